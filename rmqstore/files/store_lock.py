"""The store's lock: a record lock on the first byte of the file `lock`, as RocketMQ takes it, not the file's presence.

Java's `FileChannel.tryLock(0, 1, false)` and this one exclude each other; `flock` would not.  Where the system has them
it is a lock of the open file description (OFD), because the classic one, of the process, is dropped when the process
closes any descriptor of the file: a `shutil.copytree` of the store would do.  Where only the classic one is to be had,
a process does not exclude itself either: so a table of this process is asked before the file is opened at all.
"""

import errno
import fcntl
import io
import os
import struct
import threading
from contextlib import suppress
from typing import Protocol
from weakref import WeakValueDictionary

from rmqstore.errors import StoreInUse
from rmqstore.files.regular import open_regular

_CONTENT = b"lock"
# struct flock of 64-bit Linux: type, whence, start, length, process id.
_FLOCK = struct.Struct("hhqqi4x")
# What a file system says that has no locks of open file descriptions.
_NO_OFD = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK)
# By device and inode; guarded by _turn.  Weakly: a lock whose taking was interrupted, so that nobody has it, is free.
_held: WeakValueDictionary[tuple[int, int], "RealLock"] = WeakValueDictionary()
_turn = threading.RLock()


class HeldLock(Protocol):
    """A lock that was taken; it ends with `release` or with the process."""

    @property
    def is_held(self) -> bool:
        """Whether this very process holds it: False after `release`, and in a child made by fork."""

    def is_in_place(self) -> bool:
        """Whether the file that was locked still stands where it was locked."""

    def release(self) -> None:
        """Gives it back; the file stays.  Does nothing when it is not held here."""


class _LockFile(io.FileIO):
    """An open file of the interpreter's own kind, so that no interrupt comes between its closing and the note of it.

    A store that is let go without `close` gives its lock back without a word, as a crash would.
    """

    def __del__(self) -> None:
        self.close()


class RealLock:
    """A record lock of this process."""

    def __init__(self, path: str, file: _LockFile) -> None:
        self._path = path
        self._pid = os.getpid()
        self._key = (-1, -1)
        self._file = file

    @classmethod
    def take(cls, path: str) -> "RealLock":
        """Creates the file if need be, locks its first byte without waiting, and writes what RocketMQ writes.

        Raises StoreInUse if the lock is taken, NotAStore for what is no ordinary file, OSError if the file cannot be
        opened or written.
        """
        with _turn:
            key = _identity(path)
            held = None if key is None else _held.get(key)
            if held is not None and held.is_held:
                raise StoreInUse(
                    path,
                    "this process already writes to the store (rmqstore.opened_store gives what open_store opened)",
                )
            taken = cls(path, _LockFile(path, "r+", opener=_opened))
            try:
                taken._lock()
                _held[taken._key] = taken
            except BaseException:
                taken._file.close()
                raise
            return taken

    def _lock(self) -> None:
        """Locks what was opened; `_turn` is held."""
        descriptor = self._file.fileno()
        try:
            _lock_first_byte(descriptor)
        except (BlockingIOError, PermissionError):
            raise StoreInUse(self._path, "another process writes to the store") from None
        status = os.fstat(descriptor)
        self._key = (status.st_dev, status.st_ino)
        if _identity(self._path) != self._key:
            raise StoreInUse(self._path, "the lock file was replaced while it was taken")
        os.pwrite(descriptor, _CONTENT, 0)
        os.fsync(descriptor)

    @property
    def is_held(self) -> bool:
        """Whether this process holds it; cheap enough to ask before each write."""
        return not self._file.closed and self._pid == os.getpid()

    def is_in_place(self) -> bool:
        """Whether the path still leads to the file that was locked; two microseconds."""
        try:
            status = os.lstat(self._path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._key

    def release(self) -> None:
        """Gives the lock back, also where a child that was made by fork without Python's knowledge has the descriptor
        still; once more ends what an interrupt cut short.  In a child the parent's lock stays.
        """
        with _turn:
            if self.is_held:
                _unlock_first_byte(self._file.fileno())
                self._file.close()
            if _held.get(self._key) is self:
                del _held[self._key]

    def _leave_to_parent(self) -> None:
        """In a child made by fork: the lock is to end with the parent, also when the child lives longer."""
        self._file.close()


def _opened(path: str, _: int) -> int:
    """A descriptor of the lock file, which is made where there is none."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
    while True:
        try:
            return open_regular(path, flags)
        except FileNotFoundError:
            with suppress(FileExistsError):  # somebody was quicker
                return os.open(path, flags | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)


def _lock_first_byte(descriptor: int) -> None:
    """Raises BlockingIOError, PermissionError if another one has it, OSError as the system gives it."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        except OSError as error:
            if error.errno not in _NO_OFD:
                raise
        else:
            return
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def _unlock_first_byte(descriptor: int) -> None:
    if hasattr(fcntl, "F_OFD_SETLK"):
        with suppress(OSError):  # a classic lock, where there are no others: closing gives it back
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0))


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
    _turn = threading.RLock()
    for lock in list(_held.values()):
        lock._leave_to_parent()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


# --- DLedger's nodes take no lock, but their files are mapped

_PROC = "/proc"


def mapping_process(directory: str) -> int | None:
    """The id of another process that has a file below `directory` mapped so that it can write to it, as Java's stores
    have, and readers have not; None where none is seen.

    Processes of other users are not seen without the right to, and none on systems without /proc.
    """
    if not os.path.isdir(directory):
        return None
    wanted = os.path.realpath(directory).rstrip("/").encode() + b"/"
    own = os.getpid()
    with suppress(OSError):
        for name in os.listdir(_PROC):
            if name.isdigit() and int(name) != own and _maps(int(name), wanted):
                return int(name)
    return None


def unseen_owner(directory: str) -> int | None:
    """The id of the user whose directory it is, where this process may not see what that user's programs have mapped;
    None for its own, for root, and where nothing is there.
    """
    try:
        owner = os.stat(directory).st_uid
    except OSError:
        return None
    return None if os.geteuid() in (0, owner) else owner


def _is_writing(line: bytes) -> bool:
    """Whether a line of `maps`, whose second word is as `rw-s`, is of a mapping that writes to its file."""
    rights = line.split(maxsplit=2)[1]
    return rights[1:2] == b"w" and rights[3:4] == b"s"


def _maps(process: int, wanted: bytes) -> bool:
    with suppress(OSError), open(f"{_PROC}/{process}/maps", "rb") as maps:
        return any(_is_writing(line) for line in maps if b" " + wanted in line)  # the path comes last, after blanks
    return False
