"""The one door to the disk for everything that writes: what a file and a file system can do, and the real ones.

All writes go through `DiskFile.write` (pwrite), so that a full or failing disk is an OSError and never a signal; only
index files are written through `view`.  Errors are OSError as the system gives it; nothing is retried and nothing is
swallowed.  Tests put a disk that forgets or fails in place of the real one.
"""

import errno
import mmap
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from rmqstore.files.disk import (
    DirectoryEntry,
    PlainDisk,
    PlainReads,
    ReadableDisk,
    ReadableFile,
)
from rmqstore.files.disk import (
    directory_of as _directory_of,
)
from rmqstore.files.disk import (
    join as _join,
)
from rmqstore.files.regular import open_regular, require_directory, status_of
from rmqstore.files.store_lock import HeldLock, RealLock

if TYPE_CHECKING:
    from collections.abc import Buffer

# Links are not followed, so that a planted one cannot lead a write outside of the store.
_FILE_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_UNCHECKED_READ_SIZE = 64 * 1024  # a longer read asks for the file's size first: Python allocates before it reads
_ZEROS = bytes(1024 * 1024)

_SEEK_DATA = getattr(os, "SEEK_DATA", -1)  # -1: no such thing on this system, which answers EINVAL
_SEEK_HOLE = getattr(os, "SEEK_HOLE", -1)
_PAGE_SIZE = 4096
_sync_data = getattr(os, "fdatasync", os.fsync)


# Paths are put together and taken apart in one way, whoever asks for it.
join, directory_of = _join, _directory_of


class DiskFile(ReadableFile, Protocol):
    """One open file, read and written; any thread.  Positions and sizes are in bytes.

    Closed when the last reference to it goes away, so that whoever uses it can finish though it was evicted, retired
    or removed; `close` is for an owner who knows that nobody else uses it.
    """

    def write(self, position: int, data: "Buffer") -> None:
        """Writes all of `data`, or raises OSError with any part of it written.  Grows the file where it ends before."""

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
    """What the engine asks of a disk, any thread; it can be read as any disk.  Names become durable with
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

        Raises FileExistsError if anything stands there, OSError if the disk has no room; nothing is left behind then.
        """

    def remove(self, path: str) -> None:
        """Removes a file's name; who has it open goes on."""

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


def byte_size(data: "Buffer") -> int:
    """Size of a buffer in bytes, whatever its items are."""
    return len(data) if isinstance(data, bytes | bytearray) else memoryview(data).nbytes


class RealFile(PlainReads):
    """A file of the host, open for reading and writing."""

    __slots__ = ("__weakref__", "_descriptor", "_map", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None

    def __del__(self) -> None:
        if hasattr(self, "_map"):  # else its making was interrupted
            self.close()

    def close(self) -> None:
        """Gives the descriptor back; a view keeps the mapping alive."""
        descriptor, self._descriptor = self._descriptor, -1
        self._map = None
        if descriptor >= 0:
            os.close(descriptor)

    def size(self) -> int:
        """The file's size at this moment."""
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, size: int) -> bytes:
        """Bytes [position, position + size), fewer where the file ends before."""
        if size > _UNCHECKED_READ_SIZE:
            size = min(size, self.size() - position)
        if size <= 0:
            return b""
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]  # the file ends here, or a signal or the 2 GiB limit of one call cut the read short
        while data and (missing := size - sum(map(len, parts))):
            data = os.pread(self._descriptor, missing, position + size - missing)
            parts.append(data)
        return b"".join(parts)

    def write(self, position: int, data: "Buffer") -> None:
        """Writes all of `data`; one system call unless the disk takes less."""
        size = len(data) if isinstance(data, bytes | bytearray) else memoryview(data).nbytes
        written = os.pwrite(self._descriptor, data, position)
        if written != size:
            self._write_rest(position, data, written)

    def _write_rest(self, position: int, data: "Buffer", written: int) -> None:
        """Goes on after a short write, until all is written or the system says why not."""
        flat = memoryview(data)
        if flat.ndim != 1 or flat.format != "B":
            flat = memoryview(flat.tobytes())
        while written < flat.nbytes:
            step = os.pwrite(self._descriptor, flat[written:], position + written)
            if step <= 0:
                raise OSError(errno.EIO, f"the disk took no byte at {position + written}", self.path)
            written += step

    def sync(self) -> None:
        """fdatasync: on Linux also covers what was stored through a shared mapping.  Leaves other threads running."""
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        _sync_data(self._descriptor)

    def truncate(self, size: int) -> None:
        """Sets the file's size."""
        os.ftruncate(self._descriptor, size)

    def forget(self, position: int, size: int) -> None:
        """Drops whole pages from the page cache, where the system does that."""
        low, high = -(-position // _PAGE_SIZE) * _PAGE_SIZE, (position + size) // _PAGE_SIZE * _PAGE_SIZE
        if low < high and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, low, high - low, os.POSIX_FADV_DONTNEED)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Asks the file system for the parts that were written; what was only read may count as written, too."""
        size, ranges = self.size(), []
        while position < size:
            try:
                low = os.lseek(self._descriptor, position, _SEEK_DATA)
                position = os.lseek(self._descriptor, low, _SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break  # nothing but holes from here on
                if error.errno != errno.EINVAL:
                    raise
                low, position = position, size
            ranges.append((low, position))
        return ranges

    def next_data(self, position: int) -> int:
        """Asks the file system where the next written part begins."""
        size = self.size()
        try:
            return os.lseek(self._descriptor, position, _SEEK_DATA) if position < size else max(size, position)
        except OSError as error:
            if error.errno not in {errno.ENXIO, errno.EINVAL}:
                raise
            return size if error.errno == errno.ENXIO else position

    def view(self) -> memoryview:
        """A shared mapping of the whole file, made at the first call and again after the file grew."""
        size = self.size()
        mapped = self._map
        if mapped is None or len(mapped) != size:
            mapped = self._map = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_WRITE)
        return memoryview(mapped)


class RealFileSystem(PlainDisk):
    """The host's file system: new directories are 0700, new files 0600, no descriptor is inherited by a program run."""

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
                os.mkdir(directory, _DIRECTORY_MODE)
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
                status = status_of(os.path.join(directory, name))
                is_directory, modified_ms = stat.S_ISDIR(status.st_mode), status.st_mtime_ns // 1_000_000
                found.append(DirectoryEntry(name, status.st_size, is_directory, modified_ms, identity=status.st_ino))
        return found

    def open(self, path: str) -> DiskFile:
        """Opens an ordinary file; anything else, a symbolic link as well, is NotAStore."""
        try:
            return RealFile(path, open_regular(path, _FILE_FLAGS))
        except NotADirectoryError:
            require_directory(os.path.dirname(path))
            raise

    def create(self, path: str, size: int) -> DiskFile:
        """Allocates, syncs, and only then names the file: who is killed meanwhile leaves none of another size, for
        which RocketMQ 4.9 would refuse the store.

        Where the system knows no nameless files, the name comes first, and is removed again when the rest fails.
        """
        return (_create_nameless(path, size) if size > 0 else None) or self._create_named(path, size)

    def _create_named(self, path: str, size: int) -> DiskFile:
        """Creates, allocates and syncs; removes the file again if that fails (ext4 leaves a partly grown one)."""
        file = RealFile(path, os.open(path, _FILE_FLAGS | os.O_CREAT | os.O_EXCL, _FILE_MODE))
        try:
            if size > 0:
                _allocate(file, size)
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
        descriptor = os.open(path, _DIRECTORY_FLAGS)
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
        """What an ordinary user may still write; blocks kept for root do not count."""
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

    def lock(self, path: str) -> HeldLock:
        """A record lock on the first byte: the one that RocketMQ takes."""
        return RealLock.take(path)


def _create_nameless(path: str, size: int) -> RealFile | None:
    """A file that gets its name when it is whole; None where the system cannot do that (Linux: O_TMPFILE, /proc).

    Raises FileExistsError, OSError if the disk has no room.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    directory = os.path.dirname(path) or os.curdir
    try:
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        file = RealFile(path, os.open(directory, flags, _FILE_MODE))
    except (AttributeError, OSError):  # what is really wrong, the other way says
        return None
    try:
        _allocate(file, size)
        file.sync()
        # A directory's descriptor makes Python take linkat, which follows the link in /proc to the file itself.
        descriptor = os.open(directory, _DIRECTORY_FLAGS)
        try:
            os.link(f"/proc/self/fd/{file._descriptor}", path, src_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except BaseException as failure:
        file.close()
        if isinstance(failure, FileExistsError) or not isinstance(failure, OSError) or _is_full(failure):
            raise
        return None
    return file


def _is_full(failure: OSError) -> bool:
    """Whether there was no room, or the disk is broken: nothing that another way would help."""
    return failure.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def _allocate(file: RealFile, size: int) -> None:
    """Gives an empty file `size` zero bytes of real room.  Raises OSError (ENOSPC) if there is none.

    A sparse file would turn a full disk into a signal that kills the process where the file is mapped.
    """
    try:
        os.posix_fallocate(file._descriptor, 0, size)
    except AttributeError:
        pass  # not on this system
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            raise
    else:
        return
    for position in range(0, size, len(_ZEROS)):
        file.write(position, memoryview(_ZEROS)[: size - position])
