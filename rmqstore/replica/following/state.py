"""The state of a replica at a moment, to be shown or waited for; and its lag in time."""

from collections import deque
from dataclasses import dataclass
from typing import Literal

Doing = Literal["connecting", "comparing", "following", "waiting", "stopped", "failed"]

# An end that was heard longer ago than this says nothing of the master's present: a few questions may fail, or a busy
# machine may be late.
_FRESH_S = 15.0
# So many ends are remembered; of more, every second one is forgotten.
_HEARD_MAX = 512


@dataclass(frozen=True, slots=True)
class Traffic:
    """A replica's connections since it was opened: bytes that came, tries, and those that ended badly."""

    received_size: int = 0
    attempts: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Offsets of the log in bytes, times in ms since the epoch; None while not known.

    `error` is why the last connection failed, `tables_error` why the master was not asked; "" since one went well.
    `last_error` stays, of `last_error_ms`.  `behind_s` is as `TimeLag` says, `behind_messages` an estimate by the sizes
    of the records that came last.  `tables_age_s`: since the master's tables were taken over.
    `is_level`: the master said last, by a heartbeat, that it had no more.
    """

    phase: Doing = "connecting"
    log_start: int = 0
    log_end: int = 0
    log_files: int = 0
    master_end: int | None = None
    newest_ms: int | None = None
    behind_s: float | None = None
    behind_messages: int | None = None
    traffic: Traffic = Traffic()
    tables_age_s: float | None = None
    error: str = ""
    tables_error: str = ""
    last_error: str = ""
    last_error_ms: int | None = None
    is_level: bool = False

    @property
    def behind_bytes(self) -> int | None:
        """Bytes of the master's log that are not here yet, as far as is known."""
        return None if self.master_end is None else max(self.master_end - self.log_end, 0)


@dataclass(slots=True)
class _Heard:
    """An end of the master's log: after `first_s` it was that or more, and before `last_s` no more than that."""

    end: int
    first_s: float
    last_s: float


class TimeLag:
    """How long the oldest message that is missing has been in the master's log; times are of the monotonic clock.

    It is 0 while everything is here that the master was last heard to have, and that was a moment ago.  Otherwise it
    is the age of the newest message that is here, by its store time, within the bounds that are known for certain:
    since when the master was heard to have more, and since when it was heard to have no more.  So neither a quiet hour
    nor clocks that differ make a lag of it, once the replica has caught up.
    """

    def __init__(self) -> None:
        self._heard: deque[_Heard] = deque()  # rising ends that are not here yet
        self._reached_s: float | None = None  # the master's log was no longer than ours is, at this time

    def heard(self, asked_s: float, answered_s: float, end: int) -> None:
        """The master was asked, and answered that its log ends at `end`."""
        if self._heard and end <= self._heard[-1].end:
            if end == self._heard[-1].end:
                self._heard[-1].last_s = asked_s
            return
        self._heard.append(_Heard(end, answered_s, asked_s))
        if len(self._heard) > _HEARD_MAX:
            self._heard = deque([*list(self._heard)[:-1:2], self._heard[-1]])

    def behind_s(self, now_s: float, log_end: int, newest_age_s: float | None) -> float | None:
        """The lag of a log that ends at `log_end`, and whose newest message is so old by the wall clock; None while
        nothing is known of it."""
        while self._heard and self._heard[0].end <= log_end:
            self._reached_s = self._heard.popleft().last_s
        most_s = None if self._reached_s is None else now_s - self._reached_s
        if not self._heard and most_s is not None and most_s <= _FRESH_S:
            return 0.0
        least_s = now_s - self._heard[0].first_s if self._heard else 0.0
        if newest_age_s is None or most_s is None:
            return most_s if newest_age_s is None else max(newest_age_s, least_s)
        return max(min(newest_age_s, most_s), least_s, 0.0)
