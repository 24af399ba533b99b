"""Time, passed in: the wall clock for times that are stored, the monotonic one for waiting; the two cannot be
confused."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The engine's source of time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC: the time that records and files carry.  May step back."""

    def monotonic_s(self) -> float:
        """Seconds from some fixed moment, never stepping back: for durations and deadlines."""


# A day within the ends of the years 1 and 9999, in ms: any time zone has them.
_FIRST_MS, _LAST_MS = -62_135_510_400_000, 253_402_214_400_000


def local_time(now_ms: int) -> datetime:
    """The local time, in whole seconds; the nearest that a calendar has for a clock that went astray."""
    return datetime.fromtimestamp(min(max(now_ms, _FIRST_MS), _LAST_MS) // 1000, UTC).astimezone()


class SystemClock:
    """The host's clocks."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is moved: for tests, and for replaying what was stored at another time."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self.ms = ms
        self._began_ms = ms

    def now_ms(self) -> int:
        """The time it was set to."""
        return self.ms

    def monotonic_s(self) -> float:
        """Seconds that it was moved on since it was made; setting it back does not count."""
        self._began_ms = min(self._began_ms, self.ms)
        return (self.ms - self._began_ms) / 1000

    def advance(self, ms: int) -> None:
        """Moves it on."""
        self.ms += ms


SYSTEM_CLOCK = SystemClock()
