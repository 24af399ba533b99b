"""Argument checks for public calls.

- A value of exactly the right type is returned as it is.
- An equivalent value (a NumPy integer, a subclass of str, a bytearray) is converted.
- Any other value raises one line that names the field.

Callers on a busy path test `type(value) is int` themselves, and call these functions only if it is not.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from rmqstore.errors import Rejected, WrongType

I32_MAX = 2**31 - 1
I64_MAX = 2**63 - 1
_SHOWN_MAX = 60
# As milliseconds this is March 1973, as seconds the year 5138: a smaller number is taken for seconds.
SECONDS_MAX = 10**11
_SECONDS_TO_WAIT_MAX = 10**9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def shown(value: object) -> str:
    """The `repr` of a value, shortened to one line of at most 60 characters."""
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
    """An integer in [low, high].  Raises WrongType, also for a bool, and Rejected outside of the range."""
    if type(value) is not int:
        if isinstance(value, bool) or type(value).__name__ == "bool":
            raise wrong_type(field, value, "an integer")
        try:
            value = operator.index(value)
        except TypeError:  # NumPy's arrays have __index__, and only those of one number answer
            raise wrong_type(field, value, "an integer") from None
    if not low <= value <= high:
        is_low = value < low and high >= I64_MAX
        raise Rejected(f"{field}={shown(value)}: {f'at least {low}' if is_low else f'{low} to {high}'}")
    return int(value)


def seconds(field: str, value: Any) -> float:
    """A timeout in seconds.  Raises WrongType, and Rejected for a timeout that no timer takes."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(field, value, "seconds, a number")
    if not 0 <= value <= _SECONDS_TO_WAIT_MAX:
        raise Rejected(f"{field}={shown(value)}: 0 to {_SECONDS_TO_WAIT_MAX}")
    return value


def milliseconds(field: str, value: Any) -> int:
    """A time in milliseconds since the epoch, to search by.

    Raises WrongType for a datetime or a float, and Rejected for a number that must be seconds.
    """
    if hasattr(value, "timestamp"):
        raise wrong_type(field, value, "milliseconds since the epoch, int(value.timestamp() * 1000)")
    if isinstance(value, float):
        raise wrong_type(field, value, "milliseconds since the epoch, an integer")
    number = integer(field, value)
    require_ms(number)
    return number


def moment(field: str, value: Any) -> int:
    """A point in time in ms since 1970: ISO 8601 text with a zone, a datetime that has one, or ms, also as text.

    Raises WrongType for anything else, and Rejected for a time without a zone or before 1970, and for a text that must
    be seconds.  A number is not checked for seconds: `require_ms` does that.
    """
    if not isinstance(value, str | datetime):
        if isinstance(value, bool) or not hasattr(type(value), "__index__"):
            raise wrong_type(field, value, "ISO 8601 text with a zone, a datetime that has one, or milliseconds")
        return integer(field, value, 0, I64_MAX)
    try:
        return instant(value) if isinstance(value, str) else _whole_ms(value)
    except Rejected as mistake:
        raise Rejected(f"{field}={shown(value)}: {mistake}") from None


def require_ms(wanted: Any) -> None:
    """Raises Rejected if a time in ms must be seconds: a number, or a number in mappings and lists.

    0 means "from the beginning" and is allowed.  Values that are not numbers are checked where they are used.
    """
    if isinstance(wanted, Mapping | list):
        for inner in wanted.values() if isinstance(wanted, Mapping) else wanted:
            require_ms(inner)
        return
    if isinstance(wanted, str) and re.fullmatch(r"\d{1,19}", wanted.strip(), re.ASCII):
        wanted = int(wanted)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 0 < wanted < SECONDS_MAX:
        raise Rejected(f"times are in milliseconds, and {wanted} looks like seconds: write {wanted * 1000}")


def instant(text: str) -> int:
    """A point in time in ms since 1970, from text: ms, unless they must be seconds, or ISO 8601 with a zone.

    A fraction of a millisecond rounds up, which keeps both `>= start` and `< end` exact for stores that hold whole ms.
    """
    text = text.strip()
    if re.fullmatch(r"\d{1,19}", text, re.ASCII):
        at_ms = int(text)
        require_ms(at_ms)
    else:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise Rejected("write ms since 1970 or ISO-8601, such as 2026-05-01T08:00:00+08:00") from None
        at_ms = _whole_ms(at)
    if at_ms > I64_MAX:
        raise Rejected("write a time that 64 bits hold in ms")
    return at_ms


_UNITS_MS = {"s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AGE = re.compile(r"-?(\d{1,9})\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_DAYS_AGO = {"today": 0, "yesterday": 1}


def moment_ms(text: str, now_ms: int) -> int:
    """A time in ms: an age such as 2h, now, today or yesterday (at 00:00 UTC), ms, or ISO 8601 with a zone.

    Raises Rejected.
    """
    said = text.strip().lower()
    if said == "now":
        return now_ms
    if said in _DAYS_AGO:
        return now_ms // _UNITS_MS["d"] * _UNITS_MS["d"] - _DAYS_AGO[said] * _UNITS_MS["d"]
    age = _AGE.fullmatch(said)
    if age is not None and age[2] in _UNITS_MS:
        return max(now_ms - int(age[1]) * _UNITS_MS[age[2]], 0)
    try:
        return instant(text)
    except Rejected as mistake:
        raise Rejected(f"{mistake}; or an age such as 30m, 2h or 7d, now, today, yesterday") from None


def time_text(at_ms: int) -> str:
    """A time in ms as ISO 8601 text; the number itself if it is after the year 9999."""
    try:
        return (EPOCH + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        return f"{at_ms} ms"


def _whole_ms(at: datetime) -> int:
    if at != at:  # noqa: PLR0124  pandas.NaT is a datetime, and no time
        raise Rejected("write a time")
    if at.utcoffset() is None:
        raise Rejected(f"a time without a zone; write {at.isoformat()}Z for UTC, or an offset such as +08:00")
    at_ms = -((EPOCH - at) // timedelta(milliseconds=1))
    if at_ms < 0:
        raise Rejected("write a time of 1970 or later")
    return at_ms


def any_text(field: str, value: Any, wanted: str = "text") -> str:
    """A str with any characters.  Raises WrongType."""
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise wrong_type(field, value, wanted)
    return str.__str__(value)  # of an enum whose values are text: the value, not its name


def text(field: str, value: Any, wanted: str = "text") -> str:
    """A str that UTF-8 can encode.  Raises WrongType, and Rejected for a lone surrogate.

    A message stores lone surrogates as `?`, so no stored name or key has one.
    """
    plain = any_text(field, value, wanted)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError as error:
            reason = f"{error.object[error.start]!r} is half a character (a lone surrogate), which UTF-8 cannot write"
            raise Rejected(f"{field}={shown(plain)}: {reason}; give text as bytes.decode() makes it") from None
    return plain


def flag(field: str, value: Any) -> bool:
    """A bool, also of NumPy.  Raises WrongType for any other value: the text "false" would count as true."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise wrong_type(field, value, "True or False")
    return bool(value)


def octets(field: str, value: Any) -> bytes:
    """The bytes of a bytes-like object (bytearray, memoryview, an Arrow buffer).  Raises WrongType."""
    if isinstance(value, str):
        raise wrong_type(field, value, "bytes, as text.encode()")
    try:
        view = memoryview(value)
    except TypeError:
        raise wrong_type(field, value, "bytes") from None
    if view.itemsize != 1 or view.ndim != 1:
        raise wrong_type(field, value, "bytes, not an array of other numbers")
    return bytes(view)


def texts(field: str, value: Any, wanted: str, each_of: Callable[[str, Any, str], str] = text) -> tuple[str, ...]:
    """A tuple of texts; a single str is a tuple of one.  `each_of` checks each text, and its errors are raised."""
    if isinstance(value, str):
        return (each_of(field, value, wanted),)
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_type(field, value, wanted)
    return tuple(each_of(f"{field}[{number}]", each, wanted) for number, each in enumerate(value))


def text_table(
    field: str, value: Any, each_of: Callable[[str, Any], str] = text, *, may_lack: bool = False
) -> dict[str, Any]:
    """Texts by name; with `may_lack` a value may be None.  Raises as `texts`."""
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "a mapping from names to texts")
    return {
        each_of(f"the name {shown(name)} in {field}", name): None
        if each is None and may_lack
        else each_of(f"{field}[{shown(name)}]", each)
        for name, each in value.items()
    }


def word(field: str, value: Any, words: tuple[str, ...]) -> str:
    """A value that must be one of `words`.  Raises Rejected."""
    if not isinstance(value, str) or value not in words:
        raise Rejected(f"{field}={shown(value)}: one of {', '.join(words)}")
    return str(value)
