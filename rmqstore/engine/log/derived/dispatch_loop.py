"""Following the log: every record is handed, once and in order, to every dispatcher."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.core.locks import Bell
from rmqstore.engine.log.derived.dispatch_recent import RecentDispatch
from rmqstore.engine.log.derived.parsed_batches import ParsedBatches
from rmqstore.formats import message
from rmqstore.formats.framing import Framing, bare
from rmqstore.formats.record_chain import WINDOW_SIZE
from rmqstore.records.batch import RecordBatch
from rmqstore.records.dispatcher import Dispatcher
from rmqstore.records.read_batches import read_batches

__all__ = ["DispatchLoop", "Dispatcher", "LogBytes"]

# A message is to be readable within a few ms, and each look at the log has its price, 0.1 ms: what comes within this
# time goes together.  2 ms instead cost readers 2 ms (median) and spare one putter nothing that can be measured.  A log
# in which nothing happens is looked at less and less often, until somebody wakes the worker.
_PAUSE_S = 0.001
_IDLE_PAUSE_MAX_S = 0.02


class LogBytes(Protocol):
    """The part of a log that is needed to follow it."""

    @property
    def start(self) -> int:
        """The first offset that it holds."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size), fewer where it ends."""


class FollowedLog(NamedTuple):
    """A log in files of `file_size` bytes; `end` answers up to which offset records are complete and can be read."""

    log: LogBytes
    end: Callable[[], int]
    file_size: int
    framing: Callable[[int], Framing] = bare


class DispatchLoop:
    """Hands what lies between `position` and the log's end to the dispatchers, in their order; the worker's step.

    `recent` does what the dispatchers do for records that were put a moment ago, `parsed` has batches that came from
    another log; what neither has at hand comes from the log.  An exception of a dispatcher comes
    out of `step`, and `position` stays before the batch, so that it is delivered again.  Where no record stands though
    the log has bytes there, the loop waits: it never skips any; `stuck` says where and why.
    """

    def __init__(
        self,
        followed: FollowedLog,
        dispatchers: Sequence[Dispatcher],
        *,
        position: int,
        clock: Clock = SYSTEM_CLOCK,
        recent: RecentDispatch | None = None,
        parsed: ParsedBatches | None = None,
    ) -> None:
        self.position = position  # all records before it are dispatched
        self.stuck: message.Torn | None = None
        self._log, self._end, self._file_size, self._framing = followed
        self._dispatchers = tuple(dispatchers)
        self._clock = clock
        self._fresh, self._parsed = recent, parsed
        self._pause_s = _PAUSE_S
        self._waiting: list[Bell] = []  # of those who wait until it has moved
        self._is_over = False

    @property
    def behind(self) -> int:
        """Bytes of the log that are not dispatched."""
        return max(self._end() - self.position, 0)

    @property
    def is_idle(self) -> bool:
        """Whether the log is looked at seldom now, so that an append had better wake the worker."""
        return self._pause_s > _PAUSE_S

    def step(self) -> float:
        """Dispatches up to one window of the log; returns after how many seconds to look again at the latest.

        0 when more lies ahead.  Raises whatever a dispatcher raises.
        """
        before = self.position
        self.position = max(before, self._log.start)  # what was deleted before it was dispatched is gone
        self._deliver(self.position)
        if self.position == before:
            self._pause_s = min(self._pause_s * 2, _IDLE_PAUSE_MAX_S)
            return self._pause_s
        self._pause_s = _PAUSE_S
        self._ring()
        if self._end() - self.position > WINDOW_SIZE // 64:
            return 0
        return _PAUSE_S

    def catch_up(self) -> None:
        """Steps until all of the log is dispatched, or it cannot be read on; not while a worker runs."""
        while self.behind and self.stuck is None:
            self.step()

    def wait_until(self, offset: int, timeout_s: float) -> bool:
        """Waits until all before `offset` is dispatched; False at a timeout, or when nothing is dispatched any more."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        bell = Bell()
        self._waiting.append(bell)
        try:
            while self.position < offset and not self._is_over:
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    return False
                bell.wait(left_s)
            return self.position >= offset
        finally:
            self._waiting.remove(bell)

    def wait_beyond(self, offset: int, timeout_s: float) -> None:
        """Waits until what follows `offset` is dispatched, at most for `timeout_s` seconds of the system's clock."""
        bell = Bell()
        self._waiting.append(bell)
        try:
            if self.position <= offset:
                bell.wait(timeout_s)
        finally:
            self._waiting.remove(bell)

    def give_up_waiting(self) -> None:
        """Says that no step comes any more: every `wait_until`, present or later, returns at once."""
        self._is_over = True
        self._ring()

    def _ring(self) -> None:
        for bell in list(self._waiting):
            bell.ring()

    def _deliver(self, start: int) -> None:
        end = self._end()
        if start >= end:
            return
        if self._fresh is not None and (reached := self._fresh.dispatch(start, end)) > start:
            self.position = reached
            return
        if self._parsed is not None and (batch := self._parsed.take(start, end)) is not None:
            self._hand_out(batch)
            return
        for standing in read_batches(self._log.read, start, end, self._file_size, framing=self._framing):
            if isinstance(standing, message.Torn):
                self.stuck = standing
                return
            self.stuck = None
            if isinstance(standing, message.Blank):
                self.position = start - start % self._file_size + self._file_size
                self._deliver(self.position)  # a blank is no window, and what follows may be at hand
                return
            self._hand_out(standing)
            return

    def _hand_out(self, batch: RecordBatch) -> None:
        for dispatcher in self._dispatchers:
            dispatcher.dispatch(batch)
        self.position = batch.end
