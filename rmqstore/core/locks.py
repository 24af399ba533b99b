"""Locks that stay correct if an exception interrupts their use at any line, such as Ctrl-C.

Python's `Condition` and `Event` do not: they are written in Python, and an exception between the taking of their inner
lock and the return of their `__enter__` leaves it taken for ever.  What is here rests on the interpreter's own locks.
"""

import threading
from collections.abc import Iterable
from contextlib import suppress


class Bell:
    """Wakes one thread that waits, or the next one that will wait.  Several rings before a wait count as one.
    Any thread may ring."""

    def __init__(self) -> None:
        self._silence = threading.Lock()  # free: it was rung
        self._silence.acquire()

    def ring(self) -> None:
        """Makes the current `wait`, or else the next one, return at once.  Cheap."""
        if self._silence.locked():
            with suppress(RuntimeError):  # somebody else rang just now
                self._silence.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for a ring; True if it rang since the last wait, or rings within the time."""
        return self._silence.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0.0))


def let_go(locks: Iterable["threading.RLock"]) -> None:
    """Gives back those of the locks that this thread has; for a caller that an exception takes away.

    `with` gives a lock back whatever interrupts its body.  This is for an exception just where `with` ends: only a
    debugger, or another trace function, can raise one there.
    """
    for lock in locks:
        with suppress(RuntimeError):  # not this thread's
            lock.release()
