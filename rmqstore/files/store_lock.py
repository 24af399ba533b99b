"""The store's lock: a record lock on the first byte of the file `lock`, as RocketMQ takes it, not the file's presence.

Java's `FileChannel.tryLock(0, 1, false)` and `fcntl.lockf` exclude each other; `flock` would not.  Two quirks of these
locks shape the code: a process does not exclude itself, and closing any descriptor of the file drops its lock.  So a
table of this process is asked before the file is opened at all.
"""

import fcntl
import os
import threading
from typing import Protocol

from rmqstore.errors import StoreInUse

_CONTENT = b"lock"
_held: dict[tuple[int, int], "RealLock"] = {}  # by device and inode; guarded by _turn
_turn = threading.Lock()


class HeldLock(Protocol):
    """A lock that was taken; it ends with `release` or with the process."""

    @property
    def is_held(self) -> bool:
        """Whether this very process holds it: False after `release`, and in a child made by fork."""

    def is_in_place(self) -> bool:
        """Whether the file that was locked still stands where it was locked."""

    def release(self) -> None:
        """Gives it back; the file stays.  Does nothing when it is not held here."""


class RealLock:
    """A record lock of this process."""

    def __init__(self, path: str, descriptor: int, key: tuple[int, int]) -> None:
        self._path = path
        self._descriptor = descriptor
        self._key = key
        self._pid = os.getpid()

    @classmethod
    def take(cls, path: str) -> "RealLock":
        """Creates the file if need be, locks its first byte without waiting, and writes what RocketMQ writes.

        Raises StoreInUse if the lock is taken, OSError if the file cannot be opened or written.
        """
        with _turn:
            key = _identity(path)
            if key is not None and key in _held and _held[key].is_held:
                raise StoreInUse(path, "this process already writes to the store")
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
            descriptor = os.open(path, flags, 0o600)
            try:
                return cls._lock(path, descriptor)
            except BaseException:
                os.close(descriptor)
                raise

    @classmethod
    def _lock(cls, path: str, descriptor: int) -> "RealLock":
        """Locks what was opened; `_turn` is held."""
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError):
            raise StoreInUse(path, "another process writes to the store") from None
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino)
        if _identity(path) != key:
            raise StoreInUse(path, "the lock file was replaced while it was taken")
        os.pwrite(descriptor, _CONTENT, 0)
        os.fsync(descriptor)
        held = cls(path, descriptor, key)
        _held[key] = held
        return held

    @property
    def is_held(self) -> bool:
        """Whether this process holds it; cheap enough to ask before each write."""
        return self._descriptor >= 0 and self._pid == os.getpid()

    def is_in_place(self) -> bool:
        """Whether the path still leads to the file that was locked; two microseconds."""
        try:
            status = os.lstat(self._path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._key

    def release(self) -> None:
        """Closes the descriptor, which gives the lock back.  In a child made by fork the parent's lock stays."""
        with _turn:
            if self.is_held:
                _held.pop(self._key, None)
                os.close(self._descriptor)
                self._descriptor = -1


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of what stands at `path`; None if nothing does."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _after_fork_in_child() -> None:
    """A child holds none of its parent's locks, and a turn that another thread of the parent had is free."""
    global _turn  # noqa: PLW0603 - the lock itself has to be a new one
    _turn = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
