"""Locks of directories that hold a log: two stores may name the same one, each with a lock file of its own elsewhere.

A lock of the directory itself leaves no file in it, which RocketMQ would take for one of the log.  RocketMQ takes none:
it keeps apart the writers of this project.
"""

import errno
import fcntl
import os
from contextlib import suppress
from weakref import WeakSet

from rmqstore.errors import StoreInUse


class RealDirectoryLock:
    """A lock of one directory, of this process; given back by `release` or with the process."""

    _descriptor = -1  # where its making is interrupted

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._pid = descriptor, os.getpid()
        _held.add(self)

    @classmethod
    def take(cls, path: str) -> "RealDirectoryLock | None":
        """Locks a directory without waiting; None where there is none, or where its file system has no such locks.

        Raises StoreInUse if the lock is taken.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # whoever needs it says so
            return None
        taken = cls(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            taken.release()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StoreInUse(path, "another open store has this directory for its log") from None
            return None
        except BaseException:
            taken.release()
            raise
        return taken

    @property
    def is_held(self) -> bool:
        """As HeldLock.is_held."""
        return self._descriptor >= 0 and self._pid == os.getpid()

    def is_in_place(self) -> bool:
        """As HeldLock.is_in_place; asked of the store's lock file alone."""
        return True

    def release(self) -> None:
        """As HeldLock.release."""
        if self.is_held:
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also where a child that knows nothing of it has it still
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self._close()


_held: WeakSet[RealDirectoryLock] = WeakSet()


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock._close()


os.register_at_fork(after_in_child=_after_fork_in_child)
