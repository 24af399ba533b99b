"""Numbers, sizes and times as people read them."""

import datetime

# The bits of a topic's perm that say who may use it: 4 read, 2 write.
_ACCESS_WORDS = {0: "closed", 2: "write only", 4: "read only", 6: "read and write"}
_UNITS_OF_TIME = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def moment_of(milliseconds: int | None) -> datetime.datetime | None:
    """The moment of a time in ms since the epoch; None for none, and for one that no calendar holds."""
    if milliseconds is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def utc(milliseconds: int | None) -> str:
    """A time for reading, to the second, UTC; empty for none."""
    moment = moment_of(milliseconds)
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def byte_size(size: int) -> str:
    """A number of bytes for reading."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def counted(number: int, noun: str) -> str:
    """`1 file`, `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span_of(milliseconds: int) -> str:
    """A length of time in its two largest units: `3 d 4 h`, `850 ms`."""
    left, said = abs(milliseconds), list[str]()
    for unit, name in _UNITS_OF_TIME:
        if left >= unit and len(said) < 2:
            said.append(f"{left // unit:,} {name}")
            left %= unit
        elif said:
            break
    return " ".join(said) or (f"{left} ms" if left else "0 s")


def access_words(perm: int) -> str:
    """The words for what a topic's perm allows."""
    return _ACCESS_WORDS[perm & 6]
