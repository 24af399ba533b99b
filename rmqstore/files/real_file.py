"""A file of the host, open for reading and writing, and the making of one with room that is really allocated."""

import errno
import mmap
import os
from socket import socket
from typing import TYPE_CHECKING

from rmqstore.files.disk import PlainReads

if TYPE_CHECKING:
    from collections.abc import Buffer

# Links are not followed, so that a planted one cannot lead a write outside of the store.
FILE_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
FILE_MODE = 0o600
_UNCHECKED_READ_SIZE = 64 * 1024  # a longer read asks for the file's size first: Python allocates before it reads
_ZEROS = bytes(1024 * 1024)

_SEEK_DATA = getattr(os, "SEEK_DATA", -1)  # -1: no such thing on this system, which answers EINVAL
_SEEK_HOLE = getattr(os, "SEEK_HOLE", -1)
_PAGE_SIZE = 4096
_sync_data = getattr(os, "fdatasync", os.fsync)


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

    def send(self, connection: socket, position: int, size: int) -> int:
        """Sends from the page cache, without a copy."""
        return os.sendfile(connection.fileno(), self._descriptor, position, size)

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


def create_nameless(path: str, size: int) -> RealFile | None:
    """A file that gets its name when it is whole; None where the system cannot do that (Linux: O_TMPFILE, /proc).

    Raises FileExistsError, OSError if the disk has no room.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    directory = os.path.dirname(path) or os.curdir
    try:
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        file = RealFile(path, os.open(directory, flags, FILE_MODE))
    except (AttributeError, OSError):  # what is really wrong, the other way says
        return None
    try:
        allocate(file, size)
        file.sync()
        # A directory's descriptor makes Python take linkat, which follows the link in /proc to the file itself.
        descriptor = os.open(directory, DIRECTORY_FLAGS)
        try:
            os.link(f"/proc/self/fd/{file._descriptor}", path, src_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except BaseException as failure:
        file.close()
        if isinstance(failure, FileExistsError) or not isinstance(failure, OSError) or is_full(failure):
            raise
        return None
    return file


def is_full(failure: OSError) -> bool:
    """Whether there was no room, or the disk is broken: nothing that another way would help."""
    return failure.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def allocate(file: RealFile, size: int) -> None:
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
