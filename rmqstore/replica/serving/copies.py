"""How far the slaves' disks have the log, and waiting for enough of them (Java: GroupTransferService)."""

import threading
from collections.abc import Callable
from contextlib import suppress

from rmqstore.config import HaConfig
from rmqstore.core.message import PutStatus


class Copies:
    """The acknowledgements of slaves, and what a store promises of them; any thread.  `log_end` is the own one."""

    def __init__(self, promised: HaConfig, log_end: Callable[[], int]) -> None:
        self._needed = promised.in_sync_replicas - 1
        self._least = promised.min_in_sync_replicas - 1
        self._timeout_s = promised.slave_timeout_ms / 1000
        self._fallen_behind_bytes = promised.slave_fallen_behind_bytes
        self._log_end = log_end
        self._lock = threading.RLock()  # guards what follows
        self._ends: dict[object, int] = {}  # by slave, how far its log is on its disk
        self._waiting: list[tuple[int, threading.Lock]] = []

    def attached(self, slave: object, end: int) -> None:
        """A slave has `end`: the first time, or more than before."""
        with self._lock:
            self._ends[slave] = end
            self._release()

    def gone(self, slave: object) -> None:
        """A slave is not connected any more; once more does nothing."""
        with self._lock:
            self._ends.pop(slave, None)

    def in_sync(self, end: int) -> int:
        """How many slaves lag behind `end` by less than counts as fallen behind."""
        with self._lock:
            return sum(end - each < self._fallen_behind_bytes for each in self._ends.values())

    def refusal(self) -> PutStatus | None:
        """Why nothing may be put now: IN_SYNC_REPLICAS_NOT_ENOUGH; None when it may."""
        if self._least <= 0 or self.in_sync(self._log_end()) >= self._least:
            return None
        return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH

    def confirm(self, offset: int) -> PutStatus:
        """Waits until enough slaves have everything before `offset`.

        PUT_OK; SLAVE_NOT_AVAILABLE, at once, where fewer are connected that are not far behind; else
        FLUSH_SLAVE_TIMEOUT.
        """
        if self._needed <= 0:
            return PutStatus.PUT_OK
        turn = threading.Lock()
        with self._lock:
            if self._reached() >= offset:
                return PutStatus.PUT_OK
            if self.in_sync(offset) < self._needed:
                return PutStatus.SLAVE_NOT_AVAILABLE
            turn.acquire()
            waiter = (offset, turn)
            self._waiting.append(waiter)
        try:
            is_there = turn.acquire(timeout=self._timeout_s)
        finally:
            with self._lock, suppress(ValueError):
                self._waiting.remove(waiter)
        return PutStatus.PUT_OK if is_there else PutStatus.FLUSH_SLAVE_TIMEOUT

    def _reached(self) -> int:
        """The end that enough slaves have reached."""
        ends = sorted(self._ends.values(), reverse=True)
        return ends[self._needed - 1] if len(ends) >= self._needed else -1

    def _release(self) -> None:
        reached = self._reached()
        for offset, turn in [each for each in self._waiting if each[0] <= reached]:
            with suppress(RuntimeError):
                turn.release()
            self._waiting.remove((offset, turn))
