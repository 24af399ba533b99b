"""The read side of the door to the disk: directories listed, files read or mapped, nothing ever created or locked.

Somebody else may write, delete, truncate or replace any of these files at any moment.  A deleted file stays readable
through an open descriptor or mapping.  A file truncated under a mapping kills the process at the next touch (SIGBUS,
and no handler helps), so every use of a mapping asks `map_bytes` again, which looks at the file's present size first.
"""

import errno
import mmap
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar
from urllib.parse import unquote, urlsplit

from rmqstore.arguments import shown
from rmqstore.errors import NotAStore, next_step
from rmqstore.files.regular import open_regular
from rmqstore.formats.names import ROOT_WANTED

_PROC_LOCKS = "/proc/locks"
_MADV_POPULATE_READ = 22  # Linux 5.14; not named in Python's mmap yet
_CHUNK_SIZE = 4 * 1024 * 1024
# How much is read behind a place to see whether something stands there, and how many pages of the rest are looked at.
_LOOK_SIZE = 64 * 1024
_PROBES = 16
# What the system says of a file that its owner deleted or replaced since it was listed.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_UNMAPPABLE = (errno.ENOMEM, errno.ENODEV)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a numbered series: `start` is the number in its name; `size`, `modified_ms` and `identity` (its
    inode) are as listed.
    """

    path: str
    start: int
    size: int
    modified_ms: int
    identity: int = 0

    @property
    def end(self) -> int:
        """The first number behind this file: where the next file of the series starts."""
        return self.start + self.size


StorePath = str | bytes | os.PathLike[str]
Item = TypeVar("Item")

# A URI by its beginning; of one letter it would be a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def path_list(paths: StorePath | Sequence[Item]) -> Sequence[StorePath | Item]:
    """One path, or several, as several."""
    if isinstance(paths, Sequence) and not isinstance(paths, str | bytes):
        return paths
    return [paths]


def real_path(path: str) -> str:
    """A path without symbolic links, as far as it exists."""
    return os.path.realpath(path)


def canonical_path(path: StorePath) -> str:
    """`path` absolute, with `~` expanded; symbolic links stay as written.  Bytes are a name as the system has it, and
    a file: URI is the path that it holds.

    Raises NotAStore for what names no place on this machine: nothing at all, another URI, the home of nobody, no text.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise NotAStore(shown(path), "is no path; give a text, bytes or a pathlib.Path") from None
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() != "file":
        raise NotAStore(text, "is not a file system path; mount or copy the store and give its directory")
    text = unquote(urlsplit(text).path, errors="surrogateescape") if scheme else text
    if not text:
        raise NotAStore("''", f"is an empty path; {ROOT_WANTED}; the one that you are in is '.'")
    if "\0" in text:
        raise NotAStore(repr(text), "holds a character 0, which no path does; give the path of a directory")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        reason = f"holds {error.object[error.start]!r}, half a character, which no path does; give it as bytes"
        raise NotAStore(repr(text), reason) from None
    expanded = os.path.expanduser(text)
    if expanded.startswith("~"):
        raise NotAStore(text, "begins with the home of a user that is not known here; a directory of that name is ./~…")
    return os.path.abspath(expanded)


def _unreadable(path: str, error: OSError) -> NotAStore:
    # Of a directory it may be one name in it that cannot be looked at.
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else path
    return NotAStore(path, f"cannot be read ({error.strerror}); {next_step(error)}")


def join(*parts: str) -> str:
    """Parts of a path put together in the host's way."""
    return os.path.join(*parts)


def is_directory(path: str) -> bool:
    """Whether `path` is a directory that can be seen."""
    return os.path.isdir(path)


def exists(path: str) -> bool:
    """Whether anything stands at `path`."""
    return os.path.lexists(path)


def list_names(directory: str) -> list[str]:
    """Names of what a directory holds, sorted; empty if there is none.  Raises NotAStore if it may not be read."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(directory, error) from None


def list_directories(directory: str) -> list[str]:
    """Names of the directories in `directory`, sorted; empty if there is none.  Raises as `list_names`."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(directory, error) from None


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory, as it was when listed."""

    name: str
    size: int
    is_directory: bool
    is_link: bool = False  # of directories alone


def list_entries(directory: str) -> list[DirectoryEntry]:
    """Everything that a directory holds, sorted by name; empty if there is none.  Raises as `list_names`."""
    found = []
    for name in list_names(directory):
        try:
            status = os.stat(join(directory, name))
        except OSError:
            continue  # gone meanwhile, or a link that leads nowhere
        is_directory = stat.S_ISDIR(status.st_mode)
        is_link = is_directory and os.path.islink(join(directory, name))
        found.append(DirectoryEntry(name, status.st_size, is_directory, is_link))
    return found


def list_stored_files(
    directory: str, parse: Callable[[str], int | None], *, with_empty: bool = False
) -> tuple[StoredFile, ...]:
    """The files of a numbered series in order; names that `parse` refuses and directories are left out, and so are
    empty files unless they are asked for.

    A file that vanishes while it is looked at is left out as well: its owner deleted it.  Raises as `list_names`.
    """
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                start = parse(entry.name)
                if start is None:
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                if entry.is_file() and (with_empty or status.st_size > 0):
                    modified_ms = status.st_mtime_ns // 1_000_000
                    found.append(StoredFile(entry.path, start, status.st_size, modified_ms, status.st_ino))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise _unreadable(directory, error) from None
    return tuple(sorted(found, key=lambda file: file.start))


def read_small_file(path: str, size_max: int) -> bytes | None:
    """The content of a small file, cut at `size_max` bytes; None if there is none, or a directory stands there.  Raises
    NotAStore if it may not be read, and for what is no ordinary file.
    """
    if is_directory(path):
        return None
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            return file.read(size_max)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from None


def version_of(path: str) -> tuple[int, ...]:
    """What changes when the file at `path` is made anew or written to; empty if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def is_locked(path: str) -> bool:
    """Whether a process of this host holds a record lock on the file at `path`, as a running broker does on `lock`.

    Goes by /proc/locks: opening and closing the file here would drop a lock that this very process holds on it (POSIX).
    False where there is no such list.
    """
    try:
        status = os.stat(path)
        with open(_PROC_LOCKS, encoding="ascii", errors="replace") as locks:
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
            return any(device in line.split() for line in locks)
    except OSError:
        return False


_SHRANK = "the file shrank below"


def shrunk(path: str, size: int) -> OSError:
    """The error (ESTALE) for a file that ends before the first `size` bytes that it had."""
    return OSError(errno.ESTALE, f"{_SHRANK} {size} bytes while it was read", path)


def tells_of_change(reason: str) -> bool:
    """Whether the words of a system's error are those for a file that its owner deleted, replaced or cut."""
    return reason.startswith(_SHRANK) or reason in {os.strerror(number) for number in _GONE}


class OpenFile:
    """One file open for reading; `read` and `map_bytes` may be called from any thread.

    Close it, or use it as a context manager; what `map_bytes` returned stays valid after that.  Raises at construction
    FileNotFoundError (or another error in _GONE) if the file is gone, NotAStore if it is there and cannot be opened, or
    is no ordinary file: its messages are not lost, and who asked for what is left must not go on without them.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        try:
            self._descriptor = open_regular(path, os.O_RDONLY)
        except OSError as error:
            if error.errno in _GONE:
                raise
            raise _unreadable(path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the descriptor back; views of the mapping keep the mapping alive."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._map = None

    def size(self) -> int:
        """The file's size at this moment, in bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, size: int) -> bytes:
        """Bytes [position, position + size), fewer where the file ends before."""
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(self._descriptor, size, position)
            if not part:
                break
            parts.append(part)
            position, size = position + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def next_data(self, position: int) -> int | None:
        """The first position at or behind `position` where the file system holds data, which may be zeros; None if it
        holds none up to the end of the file.  `position` itself where the file system cannot tell.
        """
        if not hasattr(os, "SEEK_DATA"):
            return position
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else position

    def map_bytes(self, size: int) -> memoryview:
        """The first `size` bytes, mapped read-only.

        Raises OSError (ESTALE) if the file is now shorter: touching the mapping there would end the process.
        """
        if self.size() < size:
            raise shrunk(self.path, size)
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        return memoryview(self._map)

    def map_if_possible(self, size: int) -> memoryview | None:
        """As `map_bytes`; None where the system has no room for the mapping (a limit of the address space), or cannot
        map files of this file system.
        """
        try:
            return self.map_bytes(size)
        except OSError as error:
            if error.errno in _UNMAPPABLE:
                return None
            raise

    def pages(self, size: int, is_mapped: bool) -> "memoryview | ReadPages":
        """The first `size` bytes as what slices are taken of: the mapping, or reads with pread.

        Raises OSError (ESTALE) if the file is now shorter, now or at a slice; after `close` only the mapping answers.
        """
        mapped = self.map_if_possible(size) if is_mapped else None
        if mapped is not None:
            return mapped[:size]
        if self.size() < size:
            raise shrunk(self.path, size)
        return ReadPages(self, size)

    def prefault(self, position: int, size: int) -> None:
        """Brings a part of the mapping into this process's page table at once, where the system can: one call in place
        of a fault for every few pages."""
        if self._map is None:
            return
        first = position // mmap.PAGESIZE * mmap.PAGESIZE
        last = min(position + size, len(self._map))
        try:
            self._map.madvise(_MADV_POPULATE_READ, first, last - first)
        except (OSError, ValueError):
            return  # before Linux 5.14, or a bad disk: touching the pages will tell

    def drop(self, position: int, size: int) -> None:
        """Lets the system take back the pages of a part of the mapping that was read; it can be read again."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            first = position // mmap.PAGESIZE * mmap.PAGESIZE
            last = min(position + size, len(self._map)) // mmap.PAGESIZE * mmap.PAGESIZE
            if last > first:
                self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


class ReadPages:
    """The first bytes of an open file, of which each slice is read when it is asked for."""

    def __init__(self, source: OpenFile, size: int) -> None:
        self._source, self._size = source, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        start, stop, _ = part.indices(self._size)
        data = self._source.read(start, stop - start)
        if len(data) < stop - start:
            raise shrunk(self._source.path, stop)
        return data


def seems_blank(source: OpenFile, start: int, end: int) -> bool:
    """Whether bytes [start, end) of a file look like zeros, without reading all of them: holes are passed over, then
    64 KiB are read, and of what lies behind them, which a copy may have without holes, the last page and 15 more.

    False is certain.  Raises OSError as the system gives it.
    """
    position = source.next_data(start)
    if position is None or position >= end:
        return True
    if not _all_zero(source.read(position, min(_LOOK_SIZE, end - position))):
        return False
    rest = source.next_data(position + _LOOK_SIZE) if position + _LOOK_SIZE < end else None
    if rest is None or rest >= end:
        return True
    last = max(end - mmap.PAGESIZE, rest)
    places = {rest + (last - rest) * number // (_PROBES - 1) for number in range(_PROBES)}
    return all(_all_zero(source.read(place, min(mmap.PAGESIZE, end - place))) for place in places)


def _all_zero(data: bytes) -> bool:
    return data == bytes(len(data))


def is_blank(path: str, start: int, end: int) -> bool:
    """Whether bytes [start, end) of a file are all zero, as far as the file reaches; holes read quickly.

    Raises OSError as the system gives it.
    """
    with OpenFile(path) as source:
        for position in range(start, end, _CHUNK_SIZE):
            data = source.read(position, min(_CHUNK_SIZE, end - position))
            if data.count(0) != len(data):
                return False
    return True
