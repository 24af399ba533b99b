"""Text as Java reads it: bytes to text as `new String(bytes, UTF_8)`, text to numbers as `Integer.parseInt`."""

import re

import numpy as np

from rmqstore.arguments import I32_MAX
from rmqstore.formats.message_columns import Bytes, Ints, Mask, Places

# An encoded surrogate (ED A0..BF xx) is one replacement character for Java, two or three for Python.
# ED is never a continuation byte, so each match begins a sequence.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()

_DIGITS_MAX = 19  # of a number of 64 bits, without zeros in front
_PLAIN_SIZE_MAX = 18  # a text of so many bytes is no number of more than 64 bits


def java_text(data: bytes) -> str:
    """UTF-8 `data` as text; never fails: each malformed sequence becomes one U+FFFD, counted as Java counts them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def parse_int(text: str, highest: int = I32_MAX) -> int | None:
    """The number of a decimal text, from -highest - 1 to `highest`, which is at most 2**63 - 1; None for other text.

    A number is one sign or none, then digits of any script (of those that are one UTF-16 unit each), with any count of
    zeros in front, and nothing else.  `highest` 2**63 - 1 gives Java's Long.parseLong.
    """
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not digits.isdecimal() or max(digits) > "\uffff":
        return None
    if not digits.isascii():
        digits = "".join(str(int(digit)) for digit in digits)
    digits = digits.lstrip("0") or "0"
    if len(digits) > _DIGITS_MAX:
        return None
    number = -int(digits) if text.startswith("-") else int(digits)
    return number if -highest - 1 <= number <= highest else None


def parse_ints(data: Bytes, starts: Places, sizes: Places, highest: int = I32_MAX) -> tuple[Ints, Mask]:
    """`parse_int` of n texts in UTF-8, text i at data[starts[i]:starts[i] + sizes[i]]; sizes below 0: absent.

    The numbers, int64[n] with 0 where there is none, and which texts are numbers, bool[n].  What is not ASCII or
    longer than any usual number is taken one by one.
    """
    numbers, is_odd = np.zeros(len(sizes), np.int64), sizes > _PLAIN_SIZE_MAX
    is_number = (sizes > 0) & ~is_odd
    rows = np.flatnonzero(is_number)
    for column in range(int(sizes[rows].max(initial=0))):
        rows = rows[sizes[rows] > column]
        letters = data[starts[rows] + column]
        digits = letters.astype(np.int64) - ord("0")
        is_digit = (digits >= 0) & (digits <= 9)
        is_sign = (letters == ord("+")) | (letters == ord("-"))
        numbers[rows] = numbers[rows] * 10 + np.where(is_digit, digits, 0)
        is_number[rows] &= is_digit | (is_sign & (sizes[rows] > 1)) if column == 0 else is_digit
        is_odd[rows] |= letters >= 0x80
    rows = np.flatnonzero(is_number)
    numbers[rows[data[starts[rows]] == ord("-")]] *= -1
    is_number &= (numbers >= -highest - 1) & (numbers <= highest)
    for row in np.flatnonzero(is_odd).tolist():
        number = parse_int(java_text(data[starts[row] : starts[row] + sizes[row]].tobytes()), highest)
        numbers[row], is_number[row] = number or 0, number is not None
    numbers[~is_number] = 0
    return numbers, is_number
