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
        self.lock = threading.RLock()  # guards `flushed`, `failure`, `_leader` and `_waiting`
        self._leader: object | None = None  # whose sync is under way
        self._waiting: list[tuple[int, threading.Lock]] = []

    def advance_committed(self, offset: int) -> None:
        """By the one who writes to the file.  Never beyond what is appended."""
        assert self.committed <= offset <= self.appended, (self.committed, offset, self.appended)
        self.committed = offset

    def latch(self, reason: str) -> DurabilityLost:
        """From now on nothing can be made durable: every thread that waits, or comes later, gets the error."""
        with self.lock:
            if self.failure is None:
                self.failure = DurabilityLost(reason)
            self._release(self._waiting)
            self._waiting = []
            return self.failure

    def sync_to(self, offset: int, timeout_s: float, commit: Callable[[], object] | None = None) -> bool:
        """Waits until bytes before `offset` are on the disk, syncing them when nobody else does; False at a timeout.

        `commit` is called before the sync where a write pool holds the bytes back.  Raises DurabilityLost.  A
        thread that is interrupted (Ctrl-C, say) while others wait for its sync leaves it to one of them.
        """
        if self.failure is None and self.flushed >= offset:
            return True
        turn = threading.Lock()
        turn.acquire()
        try:
            while not self._is_flushed_or_led(offset, turn):
                if not turn.acquire(timeout=timeout_s):
                    return self._withdraw(offset, turn)
            if self._leader is turn:
                self._lead(turn, commit)
        except BaseException:
            self._finish(turn, None)
            raise
        return True

    def _is_flushed_or_led(self, offset: int, turn: threading.Lock) -> bool:
        """Whether there is nothing to wait for: the bytes are on the disk, or it is the caller's turn to sync."""
        with self.lock:
            if self.failure is not None:
                raise self.failure
            if self.flushed >= offset:
                return True
            if self._leader is None:
                self._leader = turn
                return True
            self._waiting.append((offset, turn))
            return False

    def _withdraw(self, offset: int, turn: threading.Lock) -> bool:
        """Waits no longer; whether the bytes before `offset` are on the disk."""
        self._finish(turn, None)
        return self.flushed >= offset

    def _lead(self, turn: threading.Lock, commit: Callable[[], object] | None) -> None:
        """One sync for all that is committed by now."""
        try:
            if commit is not None:
                commit()
            low, target = self.flushed, self.committed
            if target > low:
                self._sync(low, target)
        except OSError as error:
            raise self.latch(f"a sync of the commitlog failed ({error.strerror or error})") from error
        self._finish(turn, target)

    def _finish(self, turn: threading.Lock, flushed: int | None) -> None:
        """Ends what belongs to `turn`: its sync, which reached up to `flushed`, or its waiting.  Wakes those that are
        served, and one of the rest if nobody syncs; again and again if need be.
        """
        with self.lock:
            if self._waiting:
                self._waiting = [waiter for waiter in self._waiting if waiter[1] is not turn]
            if flushed is not None and self.failure is None:
                assert self.flushed <= flushed <= self.committed
                self.flushed = flushed
            if self._leader is turn:
                self._leader = None
            if not self._waiting:
                return
            served = [waiter for waiter in self._waiting if waiter[0] <= self.flushed]
            if self._leader is None:
                served += [waiter for waiter in self._waiting if waiter[0] > self.flushed][:1]  # leads the next sync
            self._release(served)
            self._waiting = [waiter for waiter in self._waiting if waiter not in served]

    @staticmethod
    def _release(waiters: list[tuple[int, threading.Lock]]) -> None:
        for _, turn in waiters:
            if turn.locked():  # else it is woken already
                turn.release()
