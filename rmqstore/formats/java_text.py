"""Text as Java reads it: bytes to text as `new String(bytes, UTF_8)`, text to numbers as `Integer.parseInt`, a file of
settings as `java.util.Properties`.
"""

import re

import numpy as np

from rmqstore.core.arguments import I32_MAX
from rmqstore.formats.message_columns import Bytes, Ints, Mask, Places

# An encoded surrogate (ED A0..BF xx) is one replacement character for Java, two or three for Python.
# ED is never a continuation byte, so each match begins a sequence.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()

_LINE_END = re.compile(r"\r\n|\r|\n")
_ODD_BACKSLASHES = re.compile(r"(?<!\\)(\\\\)*\\$")
_NAME_AND_VALUE = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u([0-9a-fA-F]{4})|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))

_DIGITS_MAX = 19  # of a number of 64 bits, without zeros in front
_PLAIN_SIZE_MAX = 18  # a text of so many bytes is no number of more than 64 bits


def java_text(data: bytes) -> str:
    """UTF-8 `data` as text; never fails: each malformed sequence becomes one U+FFFD, counted as Java counts them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def java_trim(text: str) -> str:
    """`text.trim()` of Java: without characters up to U+0020 at its ends.  Other white space, such as U+3000 or U+00A0,
    is text.
    """
    return text.strip(_TRIMMED)


def java_properties(text: str) -> dict[str, str]:
    """Names and values of a file of settings, whose bytes are ISO 8859-1; the last of a name wins.

    `#` and `!` begin a comment; a name ends at `=`, `:` or a blank; a backslash at a line's end joins the next, and
    else escapes what follows, `\\u00e9` too.  Values keep blanks at their end.
    """
    found: dict[str, str] = {}
    lines = iter(_LINE_END.split(text))
    for line in lines:
        whole = line.lstrip(" \t\f")
        if whole in ("", "\\") or whole[0] in "#!":
            continue
        while _ODD_BACKSLASHES.search(whole):
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        match = _NAME_AND_VALUE.match(whole)
        assert match is not None  # it matches any text
        name, value = (_unescaped(part) for part in match.groups())
        found[name] = value
    return found


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(lambda match: chr(int(match[2], 16)) if match[2] else _ESCAPED.get(match[1], match[1]), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves of a pair are escaped alone


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
