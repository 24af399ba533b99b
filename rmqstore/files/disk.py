"""A disk as readers need it: protocols that any disk may fill, and the values that they speak of.

`reading.LocalDisk` is the host's, which maps files.  A `filesystem.FileSystem` can be read as well, and so can what
tests keep in memory; an object store would fetch ranges and tell so by `read_gap`.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from socket import socket
from typing import NamedTuple, Protocol

from rmqstore.errors import DISK_FAILS

# Ranges of a file that lie nearer to each other are fetched by one read; a disk reads about as much at once anyway.
READ_GAP = 32 * 1024
# What the system says of a file that its owner deleted or replaced since it was listed.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_SHRANK = "the file shrank below"

# Bytes that are read at a time to be sent.
_SEND_SIZE = 256 * 1024


class DirectoryEntry(NamedTuple):
    """One name in a directory, as it was when listed: `size` of a file in bytes, `modified_ms` since the epoch,
    `identity` its inode (0 where a disk has none).  `is_link` is told of directories alone, where a disk knows it.
    `allocated` are the bytes that it takes on the disk, fewer than `size` where it has holes; None where nobody knows.
    `changed_ms`: when it came here, or its bytes, name or times changed last, which no copy takes along; 0 where a disk
    has none.
    """

    name: str
    size: int
    is_directory: bool
    modified_ms: int = 0
    is_link: bool = False
    identity: int = 0
    allocated: int | None = None
    changed_ms: int = 0


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a numbered series: `start` is the number in its name; `size`, `modified_ms` and `identity` (its
    inode) are as listed.  `is_wrapped`: its records stand in entries of DLedger's.
    """

    path: str
    start: int
    size: int
    modified_ms: int = 0
    identity: int = 0
    is_wrapped: bool = False

    @property
    def end(self) -> int:
        """The first number past this file: where the next file of the series starts."""
        return self.start + self.size


class ReadableFile(Protocol):
    """One open file; any thread.  Positions and sizes are in bytes."""

    path: str

    def size(self) -> int:
        """The file's size at this moment."""

    def read(self, position: int, size: int) -> bytes:
        """Bytes [position, position + size), fewer where the file ends before."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each range [low, high), as `read` gives them; a disk may fetch several at once."""

    def next_data(self, position: int) -> int:
        """The first position from `position` on that may hold anything but zeros; the file's size if there is none.
        `position` itself is a right answer.
        """

    def map_bytes(self, size: int) -> memoryview | None:
        """The first `size` bytes, mapped, which stay valid after `close`; None where this file cannot be mapped.

        Raises OSError (ESTALE) if the file is shorter now: touching the mapping there would end the process, so it is
        asked again before each use.
        """

    def prefault(self, position: int, size: int) -> None:
        """Says that this part of the mapping is read next, all of it."""

    def drop(self, position: int, size: int) -> None:
        """Says that this part of the mapping was read and need not stay in memory."""

    def close(self) -> None:
        """Gives the file back."""


class ReadableDisk(Protocol):
    """A disk as it is read; any thread."""

    def __hash__(self) -> int:
        """Disks are told apart: what was seen of a file is remembered by its disk."""

    @property
    def can_map(self) -> bool:
        """Whether `map_bytes` may answer with a mapping."""

    @property
    def read_gap(self) -> int:
        """Ranges of a file that lie nearer to each other than so many bytes are better fetched by one read."""

    def entries(self, directory: str) -> Sequence[DirectoryEntry]:
        """The entries of a directory, sorted by name; empty if there is none."""

    def names(self, directory: str) -> Sequence[str]:
        """The names of what a directory holds, sorted, also of links that lead nowhere; empty if there is none."""

    def open(self, path: str) -> ReadableFile:
        """Opens a file.  Raises FileNotFoundError if there is none, NotAStore for what is no ordinary file."""

    def exists(self, path: str) -> bool:
        """Whether anything stands at `path`."""

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands at `path`, or a link to one."""

    def version_of(self, path: str) -> tuple[int, ...]:
        """Identity and size of the file at `path`, as `StoredFile` has them, then the time of its last change; empty if
        there is none.
        """

    def is_locked(self, path: str) -> bool:
        """Whether a process holds a lock on the file at `path`, as a running broker does on `lock`; False where the
        disk cannot tell.
        """

    def real_path(self, path: str) -> str:
        """The one path of what stands at `path`, whatever links lead there."""


class PlainDisk:
    """The facts of a disk that maps nothing, and what follows from its `entries`."""

    __slots__ = ()

    can_map = False
    read_gap = READ_GAP

    def names(self: ReadableDisk, directory: str) -> Sequence[str]:
        """The names of the entries."""
        return [entry.name for entry in self.entries(directory)]

    def version_of(self: ReadableDisk, path: str) -> tuple[int, ...]:
        """As the entry of its directory has it."""
        found = [entry for entry in self.entries(directory_of(path)) if join(directory_of(path), entry.name) == path]
        return (found[0].identity, found[0].size, found[0].modified_ms) if found else ()

    def is_locked(self, _path: str) -> bool:
        """False: nobody can tell."""
        return False

    def real_path(self, path: str) -> str:
        """The path: there are no links."""
        return path


class PlainReads:
    """The part of a ReadableFile that follows from its `read`, for files of a disk that maps nothing."""

    __slots__ = ()

    def read_ranges(self: ReadableFile, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each range, one after the other."""
        return [self.read(low, high - low) for low, high in ranges]

    def send(self: ReadableFile, connection: socket, position: int, size: int) -> int:
        """Reads, then sends."""
        return connection.send(self.read(position, min(size, _SEND_SIZE)))

    def map_bytes(self, _size: int) -> memoryview | None:
        """None: it is read."""
        return None

    def prefault(self, _position: int, _size: int) -> None:
        """Nothing, as nothing is mapped."""

    def drop(self, _position: int, _size: int) -> None:
        """Nothing, as nothing is mapped."""


def join(*parts: str) -> str:
    """Parts of a path put together in the host's way.  Most are a directory and a name, ten thousands of them where a
    store is opened.
    """
    if len(parts) == 2 and parts[0] and os.sep not in (parts[0][-1], parts[1][:1]):
        return f"{parts[0]}{os.sep}{parts[1]}"
    return os.path.join(*parts)


def directory_of(path: str) -> str:
    """The directory that holds `path`."""
    return os.path.dirname(path)


def shrunk(path: str, size: int) -> OSError:
    """The error (ESTALE) for a file that ends before the first `size` bytes that it had."""
    return OSError(errno.ESTALE, f"{_SHRANK} {size} bytes while it was read", path)


def tells_of_change(reason: str) -> bool:
    """Whether the words of a system's error are those for a file that its owner deleted, replaced or cut."""
    return reason.startswith(_SHRANK) or reason in {os.strerror(number) for number in GONE}


def reason_of(error: OSError) -> str:
    """An error of the system in words, which tell a file that went from a disk that fails."""
    words = error.strerror or str(error)
    return words if error.errno in GONE else DISK_FAILS + words


def tells_of_failure(reason: str) -> bool:
    """Whether `reason_of` an error says that the disk fails: then nothing is lost that could not be there at the next
    look, and nobody may go on without it unasked.
    """
    return reason.startswith(DISK_FAILS)


def read_part(disk: ReadableDisk, path: str, position: int, size: int) -> bytes:
    """Bytes [position, position + size) of a file that is not kept open, fewer where it ends before.  Raises as `open`,
    and OSError, which names the file.
    """
    file = disk.open(path)
    try:
        return file.read(position, size)
    except OSError as error:
        error.filename = error.filename or path
        raise
    finally:
        file.close()


def read_small(disk: ReadableDisk, path: str, size_max: int, *, past_directories: bool = False) -> bytes | None:
    """The content of a small file, cut at `size_max` bytes; None if there is none.  Raises OSError, and NotAStore for
    what is no ordinary file.

    `past_directories`: a directory of that name counts as none, for whoever will not put a file in its place.
    """
    if past_directories and disk.is_directory(path):
        return None
    try:
        return read_part(disk, path, 0, size_max)
    except (FileNotFoundError, NotADirectoryError):
        return None


def pages(source: ReadableFile, size: int, *, is_mapped: bool) -> "memoryview | ReadPages":
    """The first `size` bytes of a file as what slices are taken of: the mapping, or reads.

    Raises OSError (ESTALE) if the file is now shorter, now or at a slice; after `close` only the mapping answers.
    """
    mapped = source.map_bytes(size) if is_mapped else None
    if mapped is not None:
        return mapped[:size]
    if source.size() < size:
        raise shrunk(source.path, size)
    return ReadPages(source, size)


class ReadPages:
    """The first bytes of an open file, of which each slice is read when it is asked for."""

    def __init__(self, source: ReadableFile, size: int) -> None:
        self._source, self._size = source, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        start, stop, _ = part.indices(self._size)
        data = self._source.read(start, stop - start)
        if len(data) < stop - start:
            raise shrunk(self._source.path, stop)
        return data
