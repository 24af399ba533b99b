"""What callers pass: taken as it is where its type is exactly right, made plain where it means the same (NumPy's
integers, subclasses of str, bytearrays), and refused in one line that names the field where it does not.

Callers on a busy path ask `type(value) is int` themselves, and come here only when it is not.
"""

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rmqstore.errors import Rejected, WrongType

I32_MAX = 2**31 - 1
I64_MAX = 2**63 - 1
_SHOWN_MAX = 60
# Milliseconds up to here are of before March 1973; seconds up to here reach the year 5138.
SECONDS_MAX = 10**11


def shown(value: object) -> str:
    """A value in a few characters of one line, however large it is."""
    try:
        short = value[:_SHOWN_MAX] if isinstance(value, str | bytes | bytearray | list | tuple) else value
        text = " ".join(repr(short).split())
    except Exception:  # noqa: BLE001 - whatever a foreign __repr__ does, the message is about something else
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def wrong_type(field: str, value: object, wanted: str) -> WrongType:
    """The error for a value of a type that `field` does not take."""
    return WrongType(field, f"{shown(value)} ({type(value).__name__})", wanted)


def integer(field: str, value: Any, low: int = -I64_MAX - 1, high: int = I64_MAX) -> int:
    """An integer of [low, high].  Raises WrongType, also for a truth value, and Rejected."""
    if type(value) is not int:
        if isinstance(value, bool) or type(value).__name__ == "bool" or not hasattr(value, "__index__"):
            raise wrong_type(field, value, "an integer")
        value = operator.index(value)
    if not low <= value <= high:
        raise Rejected(f"{field}={value}: {low} to {high}" if high < I64_MAX else f"{field}={value}: at least {low}")
    return int(value)


def milliseconds(field: str, value: Any) -> int:
    """A time in milliseconds since the epoch, to look things up by.

    Raises WrongType for a datetime or a float, and Rejected for what must be seconds.
    """
    if hasattr(value, "timestamp"):
        raise wrong_type(field, value, "milliseconds since the epoch, int(value.timestamp() * 1000)")
    if isinstance(value, float):
        raise wrong_type(field, value, "milliseconds since the epoch, an integer")
    number = integer(field, value)
    require_ms(number)
    return number


def require_ms(wanted: Any) -> None:
    """Raises Rejected where a time in ms must be in seconds: a number, or numbers in mappings and lists.

    0 is the beginning of all time, and what is no number is judged where it is used.
    """
    if isinstance(wanted, Mapping | list):
        for inner in wanted.values() if isinstance(wanted, Mapping) else wanted:
            require_ms(inner)
        return
    if isinstance(wanted, str) and re.fullmatch(r"\d{1,19}", wanted.strip(), re.ASCII):
        wanted = int(wanted)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 0 < wanted < SECONDS_MAX:
        raise Rejected(f"times are in milliseconds, and {wanted} looks like seconds: write {wanted * 1000}")


def text(field: str, value: Any, wanted: str = "text") -> str:
    """A str.  Raises WrongType."""
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise wrong_type(field, value, wanted)
    return str.__str__(value)  # of an enum whose values are text: the value, not its name


def flag(field: str, value: Any) -> bool:
    """A truth value, NumPy's too.  Raises WrongType for all others: "false" would be true."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise wrong_type(field, value, "True or False")
    return bool(value)


def octets(field: str, value: Any) -> bytes:
    """The bytes of whatever holds bytes (bytearray, memoryview, a buffer of Arrow's).  Raises WrongType."""
    if isinstance(value, str):
        raise wrong_type(field, value, "bytes, as text.encode()")
    try:
        view = memoryview(value)
    except TypeError:
        raise wrong_type(field, value, "bytes") from None
    if view.itemsize != 1 or view.ndim != 1:
        raise wrong_type(field, value, "bytes, not an array of other numbers")
    return bytes(view)


def texts(field: str, value: Any, wanted: str) -> tuple[str, ...]:
    """Several texts; one stands for itself.  Raises WrongType."""
    if isinstance(value, str):
        return (text(field, value),)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise wrong_type(field, value, wanted)
    return tuple(text(f"{field}[{number}]", each, wanted) for number, each in enumerate(value))


def text_table(field: str, value: Any) -> dict[str, str | None]:
    """Texts by name; a value of None is an absent one.  Raises WrongType."""
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "a mapping from names to texts")
    return {
        text(f"the name {shown(name)} in {field}", name): None if each is None else text(f"{field}[{name!r}]", each)
        for name, each in value.items()
    }


def word(field: str, value: Any, words: tuple[str, ...]) -> str:
    """One of some words.  Raises Rejected."""
    if value not in words:
        raise Rejected(f"{field}={shown(value)}: one of {', '.join(words)}")
    return str(value)
