"""The one door to the disk for everything that writes: what a file and a file system can do, and the real ones.

All writes go through `DiskFile.write` (pwrite), so that a full or failing disk is an OSError and never a signal; only
index files are written through `view`.  Errors are OSError as the system gives it; nothing is retried and nothing is
swallowed.  Tests put a disk that forgets or fails in place of the real one.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from socket import socket
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from rmqstore.errors import StoreInUse
from rmqstore.files.disk import (
    DirectoryEntry,
    PlainDisk,
    ReadableDisk,
    ReadableFile,
)
from rmqstore.files.disk import (
    directory_of as _directory_of,
)
from rmqstore.files.disk import (
    join as _join,
)
from rmqstore.files.reading import is_locked, list_names
from rmqstore.files.real_file import DIRECTORY_FLAGS, FILE_FLAGS, FILE_MODE, RealFile, allocate, create_nameless
from rmqstore.files.regular import open_regular, require_directory, status_of
from rmqstore.files.store_lock import HeldLock, RealLock

if TYPE_CHECKING:
    from collections.abc import Buffer


# --- Locks of directories that hold a log: two stores may name the same one, each with a lock file of its own
# elsewhere.
#
# A lock of the directory itself leaves no file in it, which RocketMQ would take for one of the log. RocketMQ takes
# none: it keeps apart the writers of this project.


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


# ---

_DIRECTORY_MODE = 0o700

# Paths are put together and taken apart in one way everywhere.
join, directory_of = _join, _directory_of


class DiskFile(ReadableFile, Protocol):
    """One open file, read and written; any thread.  Positions and sizes are in bytes.

    Closed when the last reference to it goes away, so that its users can finish though it was evicted, retired
    or removed; `close` is for an owner who knows that nobody else uses it.
    """

    def write(self, position: int, data: "Buffer") -> None:
        """Writes all of `data`, or raises OSError with any part of it written.  Grows the file where it ends before."""

    def send(self, connection: socket, position: int, size: int) -> int:
        """Sends bytes [position, position + size) as far as a socket takes them; how many, 0 past the file's end."""

    def sync(self) -> None:
        """Makes the content durable, also what was stored through `view`.  Never call it again after it failed."""

    def truncate(self, size: int) -> None:
        """Sets the file's size; what is added reads as zeros."""

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """The parts from `position` on that may hold anything but zeros, as (from, to), in order; the rest is zeros.

        It skips what was never written, as far as the disk can tell; the whole rest of the file is a right answer.
        Reading makes a disk tell less by `next_data`: to go through a file, ask for these first.
        """

    def forget(self, position: int, size: int) -> None:
        """Says that these bytes, which are durable, are not read again soon: the system need not keep them in
        memory."""

    def view(self) -> memoryview:
        """The whole file, shared and writable; it must not shrink meanwhile.  The view stays valid after `close`."""

    def close(self) -> None:
        """Gives the file back to the system; later calls raise OSError (EBADF)."""


class FileSystem(ReadableDisk, Protocol):
    """A disk as the engine needs it, any thread; it can be read as any disk.  Names become durable with
    `sync_directory` only.
    """

    def make_directories(self, path: str) -> None:
        """Makes `path` and what is missing above it, durably.  Nothing happens to directories that exist."""

    def open(self, path: str) -> DiskFile:
        """Opens a file that exists for reading and writing.  Raises FileNotFoundError if there is none, NotAStore for
        what is no ordinary file.
        """

    def create(self, path: str, size: int) -> DiskFile:
        """Makes a new file of `size` zero bytes that are really allocated and durable; its name is not yet.

        Raises FileExistsError if anything stands there, OSError if the disk has no room; no file is left then.
        """

    def remove(self, path: str) -> None:
        """Removes a file's name; open files of it stay usable."""

    def rename(self, source: str, target: str) -> None:
        """Gives a file another name, in place of what had that name, in one step."""

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable."""

    def is_apart(self, path: str) -> bool:
        """Whether a link stands at `path`, or another disk begins there: what lies below belongs elsewhere."""

    def links(self, directory: str) -> list[str]:
        """The names of the links in a directory, also of those that lead nowhere, which `entries` leaves out."""

    def free_bytes(self, path: str) -> int:
        """Bytes that may still be written to the disk that holds `path`, which exists."""

    def used_ratio(self, path: str) -> float:
        """How full the disk is that holds `path`, 0 to 1; -1 where that cannot be known."""

    def lock(self, path: str) -> HeldLock:
        """Takes the store's lock, creating its file.  Raises StoreInUse at once if anybody has it."""

    def lock_directory(self, path: str) -> HeldLock | None:
        """Takes the lock of a directory of a log, in which it makes no file; None where there is no such directory, or
        none can be locked.  Raises StoreInUse at once if another store has it."""


class RealFileSystem(PlainDisk):
    """The host's file system: new directories are 0700, new files 0600, no descriptor is inherited by a program run.

    `is_shared`: what is made is for others as well, as far as the user's umask lets it be.
    """

    def __init__(self, *, is_shared: bool = False) -> None:
        self._directory_mode = 0o777 if is_shared else _DIRECTORY_MODE
        self._file_mode = 0o666 if is_shared else FILE_MODE

    def make_directories(self, path: str) -> None:
        """Makes what is missing from the top down, each synced into its parent before the next.

        The deepest directory that exists is synced into its parent as well: a process killed between making and
        syncing it would leave exactly that one undone.
        """
        path = os.path.abspath(path)
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        with suppress(PermissionError):  # a parent that may not be read is none that was made here
            self.sync_directory(os.path.dirname(path))
        for directory in reversed(missing):
            try:
                os.mkdir(directory, self._directory_mode)
            except FileExistsError:  # somebody was quicker, or something else stands there
                require_directory(directory)
            self.sync_directory(os.path.dirname(directory))

    def entries(self, directory: str) -> list[DirectoryEntry]:
        """Lists a directory; links are followed, and what vanishes meanwhile is left out."""
        found = []
        try:
            names = sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError:
            status_of(directory)  # says it of links that lead round in a circle
            raise
        for name in names:
            with suppress(FileNotFoundError):
                status = status_of(f"{directory}/{name}")  # os.path.join takes longer than the call
                is_directory, modified_ms = stat.S_ISDIR(status.st_mode), status.st_mtime_ns // 1_000_000
                found.append(DirectoryEntry(name, status.st_size, is_directory, modified_ms, identity=status.st_ino))
        return found

    def names(self, directory: str) -> list[str]:
        """The names alone, without a look at what stands there.  Raises NotAStore."""
        return list_names(directory)

    def open(self, path: str) -> DiskFile:
        """Opens an ordinary file; anything else, a symbolic link as well, is NotAStore."""
        try:
            return RealFile(path, open_regular(path, FILE_FLAGS))
        except NotADirectoryError:
            require_directory(os.path.dirname(path))
            raise

    def create(self, path: str, size: int) -> DiskFile:
        """Allocates, syncs, and only then names the file: a process killed meanwhile leaves none of another size, for
        which RocketMQ 4.9 would refuse the store.

        Where the system knows no nameless files, the name comes first, and is removed again when the rest fails.
        """
        return (create_nameless(path, size) if size > 0 else None) or self._create_named(path, size)

    def _create_named(self, path: str, size: int) -> DiskFile:
        """Creates, allocates and syncs; removes the file again if that fails (ext4 leaves a partly grown one)."""
        file = RealFile(path, os.open(path, FILE_FLAGS | os.O_CREAT | os.O_EXCL, self._file_mode))
        try:
            if size > 0:
                allocate(file, size)
                file.sync()
        except BaseException:
            file.close()
            with suppress(OSError):
                os.unlink(path)
            raise
        return file

    def remove(self, path: str) -> None:
        """Unlinks a file."""
        os.unlink(path)

    def rename(self, source: str, target: str) -> None:
        """Renames, replacing `target`."""
        os.rename(source, target)

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """fsync of the directory."""
        descriptor = os.open(path, DIRECTORY_FLAGS)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        """Whether anything stands at `path`, a dangling link as well."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands there; links are followed."""
        return os.path.isdir(path)

    def is_apart(self, path: str) -> bool:
        """Whether a link or a mount point stands there."""
        return os.path.islink(path) or os.path.ismount(path)

    def links(self, directory: str) -> list[str]:
        """Lists a directory for its symbolic links."""
        try:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_symlink())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def free_bytes(self, path: str) -> int:
        """The bytes that an ordinary user may still write; blocks kept for root do not count."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def used_ratio(self, path: str) -> float:
        """As RocketMQ and `df` count: blocks kept for root are neither used nor free; whole percents, rounded up.

        Java: UtilAll.getDiskPartitionSpaceUsedPercent.
        """
        try:
            status = os.statvfs(path)
        except OSError:
            return -1.0
        used = status.f_blocks - status.f_bfree
        entire = used + status.f_bavail
        return -(-used * 100 // entire) / 100 if entire > 0 else -1.0

    def real_path(self, path: str) -> str:
        """A path without symbolic links, as far as it exists."""
        return os.path.realpath(path)

    def lock(self, path: str) -> HeldLock:
        """A record lock on the first byte: the one that RocketMQ takes."""
        return RealLock.take(path)

    def is_locked(self, path: str) -> bool:
        """As `reading.is_locked`: by a process of this host, this one included."""
        return is_locked(path)

    def lock_directory(self, path: str) -> HeldLock | None:
        """A lock of this project's own: `flock`."""
        return RealDirectoryLock.take(path)
