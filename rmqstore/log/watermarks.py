"""How far the commitlog is appended, committed to its file and flushed to the disk; and waiting for the last of them.

Group commit without a thread of its own: of the threads that wait for their bytes to be on the disk one makes the sync
for all of them, while the others sleep; when it is done it wakes those that it served, and one of the rest to go on.
"""

import threading
from collections.abc import Callable

from rmqstore.errors import DurabilityLost


class Watermarks:
    """Offsets of the commitlog: flushed ≤ committed ≤ appended at any moment; none of them ever goes back.

    `appended` is moved under the put lock, `committed` by the one who writes to the file, `flushed` by `sync_to`.
    `sync(low, high)` makes bytes [low, high) durable and raises OSError when it cannot: then nothing is ever flushed
    again (`failure`).
    """

    def __init__(self, end: int, sync: Callable[[int, int], None]) -> None:
        self.appended = end
        self.committed = end
        self.flushed = end
        self.failure: DurabilityLost | None = None
        self._sync = sync
        self._lock = threading.Lock()  # guards `flushed`, `failure`, `_syncing` and `_waiting`
        self._syncing = False
        self._waiting: list[tuple[int, threading.Lock]] = []

    def advance_committed(self, offset: int) -> None:
        """By the one who writes to the file.  Never beyond what is appended."""
        assert self.committed <= offset <= self.appended, (self.committed, offset, self.appended)
        self.committed = offset

    def latch(self, reason: str) -> DurabilityLost:
        """From now on nothing can be made durable: whoever waits, or comes later, gets the error."""
        with self._lock:
            if self.failure is None:
                self.failure = DurabilityLost(reason)
            self._release(self._waiting)
            self._waiting = []
            return self.failure

    def sync_to(self, offset: int, timeout_s: float, commit: Callable[[], object] | None = None) -> bool:
        """Waits until bytes before `offset` are on the disk, syncing them when nobody else does; False at a timeout.

        `commit` is called before the sync where a write pool holds the bytes back.  Raises DurabilityLost.
        """
        while True:
            with self._lock:
                if self.failure is not None:
                    raise self.failure
                if self.flushed >= offset:
                    return True
                if not self._syncing:
                    self._syncing = True
                    break
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append((offset, turn))
            if not turn.acquire(timeout=timeout_s):
                return self._withdraw(offset, turn)
        self._lead(commit)
        return True

    def _withdraw(self, offset: int, turn: threading.Lock) -> bool:
        """Waits no longer; whether the bytes before `offset` are on the disk."""
        with self._lock:
            self._waiting = [waiter for waiter in self._waiting if waiter[1] is not turn]
            was_woken = turn.acquire(blocking=False)
            if was_woken and not self._syncing and self._waiting:
                self._waiting.pop(0)[1].release()  # woken to lead at the last moment: pass it on
            return self.flushed >= offset

    def _lead(self, commit: Callable[[], object] | None) -> None:
        """One sync for all that is committed by now."""
        try:
            if commit is not None:
                commit()
            low, target = self.flushed, self.committed
            if target > low:
                self._sync(low, target)
        except DurabilityLost:
            self._finish(None)
            raise
        except OSError as error:
            failure = self.latch(f"a sync of the commitlog failed ({error.strerror or error})")
            self._finish(None)
            raise failure from error
        self._finish(target)

    def _finish(self, flushed: int | None) -> None:
        with self._lock:
            self._syncing = False
            if flushed is not None and self.failure is None:
                assert self.flushed <= flushed <= self.committed
                self.flushed = flushed
            if not self._waiting:
                return
            served = [waiter for waiter in self._waiting if waiter[0] <= self.flushed]
            self._waiting = [waiter for waiter in self._waiting if waiter[0] > self.flushed]
            served += self._waiting[:1]  # leads the next sync
            self._waiting = self._waiting[1:]
            self._release(served)

    @staticmethod
    def _release(waiters: list[tuple[int, threading.Lock]]) -> None:
        for _, turn in waiters:
            turn.release()
