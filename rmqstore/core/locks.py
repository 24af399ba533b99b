"""Locks that stay right whatever exception comes while they are used (Ctrl-C at any line, say).

Python's `Condition` and `Event` do not: they are written in Python, and an exception between the taking of their inner
lock and the return of their `__enter__` leaves it taken for ever.  What is here rests on the interpreter's own locks.
"""

import threading
from collections.abc import Iterable
from contextlib import suppress


class Bell:
    """Wakes one thread that waits, or will wait: a ring is kept until it is heard, and several count as one.  Any
    thread may ring."""

    def __init__(self) -> None:
        self._silence = threading.Lock()  # free: it was rung
        self._silence.acquire()

    def ring(self) -> None:
        """Has a `wait` that is under way, or else the next one, return at once.  Cheap."""
        if self._silence.locked():
            with suppress(RuntimeError):  # somebody else rang just now
                self._silence.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it was rung since the last wait, or within the time from now on."""
        return self._silence.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0.0))


def let_go(locks: Iterable["threading.RLock"]) -> None:
    """Gives back those of the locks that this thread has; for a caller that an exception takes away.

    `with` gives a lock back whatever interrupts its body.  This is for an exception just where `with` ends: only a
    debugger, or another trace function, can raise one there.
    """
    for lock in locks:
        with suppress(RuntimeError):  # not this thread's
            lock.release()
