"""The read side of the door to the disk: directories listed, files read or mapped, nothing ever created or locked.

Somebody else may write, delete, truncate or replace any of these files at any moment.  A deleted file stays readable
through an open descriptor or mapping.  A file truncated under a mapping kills the process at the next touch (SIGBUS,
and no handler helps), so every use of a mapping asks `map_bytes` again, which looks at the file's present size first.
"""

import errno
import io
import mmap
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar
from urllib.parse import unquote, urlsplit

from rmqstore.core.arguments import shown
from rmqstore.errors import NotAStore, next_step
from rmqstore.files.disk import GONE, READ_GAP, DirectoryEntry, ReadableFile, shrunk
from rmqstore.files.regular import open_regular
from rmqstore.formats.names import ROOT_WANTED

_PROC_LOCKS = "/proc/locks"
_MADV_POPULATE_READ = 22  # Linux 5.14; not named in Python's mmap yet
_BLOCK_SIZE = 512  # of st_blocks, whatever the disk has
_UNMAPPABLE = (errno.ENOMEM, errno.ENODEV)

StorePath = str | bytes | os.PathLike[str]
Item = TypeVar("Item")

# A URI by its beginning; of one letter it would be a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def path_list(paths: StorePath | Sequence[Item]) -> Sequence[StorePath | Item]:
    """One path, or several, as several."""
    if isinstance(paths, Sequence) and not isinstance(paths, str | bytes):
        return paths
    return [paths]


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
        raise NotAStore("''", f"is an empty path; {ROOT_WANTED}; the current directory is '.'")
    if "\0" in text:
        raise NotAStore(repr(text), "contains a NUL character, which no path may; give the path of a directory")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        reason = f"holds {error.object[error.start]!r}, half a character, which no path does; give it as bytes"
        raise NotAStore(repr(text), reason) from None
    expanded = os.path.expanduser(text)
    if expanded.startswith("~"):
        raise NotAStore(text, "begins with the home of a user that is not known here; a directory of that name is ./~…")
    return os.path.abspath(expanded)


def real_path(path: StorePath) -> str:
    """As `canonical_path`, with symbolic links followed: no two names of a place are told apart.  Raises NotAStore."""
    return os.path.realpath(canonical_path(path))


def opened_at_once(path: str) -> io.FileIO:
    """A file, or a pipe with a name: one that nobody writes to would hold up a plain opening, and a signal with it.

    Raises OSError.
    """
    file = io.FileIO(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    os.set_blocking(file.fileno(), True)
    return file


def _unreadable(path: str, error: OSError) -> NotAStore:
    # Of a directory it may be one name in it that cannot be looked at.
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else path
    return NotAStore(path, f"cannot be read ({error.strerror}); {next_step(error)}")


def is_directory(path: str) -> bool:
    """Whether `path` is a directory that can be seen."""
    return os.path.isdir(path)


def exists(path: str) -> bool:
    """Whether anything stands at `path`."""
    return os.path.lexists(path)


def is_writable(directory: str) -> bool:
    """Whether this process may make files in a directory, by its effective user."""
    return os.access(directory, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def list_names(directory: str) -> list[str]:
    """Names of what a directory holds, sorted; empty if there is none.  Raises NotAStore if it may not be read."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(directory, error) from None


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
    """Numbers that change when the file at `path` is replaced or written to; empty if there is none."""
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


class OpenFile:
    """One file open for reading; `read` and `map_bytes` may be called from any thread.

    Close it, or use it as a context manager; what `map_bytes` returned stays valid after that.  Raises at construction
    FileNotFoundError (or another error in GONE) if the file is gone, NotAStore if it is there and cannot be opened,
    or is no ordinary file: its messages are not lost, and a reader that goes past lost files must not go past this one.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        try:
            self._descriptor = open_regular(path, os.O_RDONLY)
        except OSError as error:
            if error.errno in GONE:
                raise
            raise _unreadable(path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the descriptor back; views of the mapping keep the mapping alive."""
        descriptor, self._descriptor = self._descriptor, -1  # first: closed twice, it would be another file's
        self._map = None
        if descriptor >= 0:
            os.close(descriptor)

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

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each range [low, high), one read each."""
        return [self.read(low, high - low) for low, high in ranges]

    def next_data(self, position: int) -> int:
        """The first position from `position` on where the file system holds data, which may be zeros; the file's size
        if it holds none.  `position` itself where the file system cannot tell.
        """
        if not hasattr(os, "SEEK_DATA"):
            return position
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            return max(self.size(), position) if error.errno == errno.ENXIO else position

    def map_bytes(self, size: int) -> memoryview | None:
        """The first `size` bytes, mapped read-only; None where the system has no room for the mapping (a limit of the
        address space), or cannot map files of this file system.

        Raises OSError (ESTALE) if the file is now shorter: touching the mapping there would end the process.
        """
        if self.size() < size:
            raise shrunk(self.path, size)
        if self._map is None or len(self._map) < size:
            try:
                self._map = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
            except OSError as error:
                if error.errno in _UNMAPPABLE:
                    return None
                raise
        return memoryview(self._map)

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


@dataclass(frozen=True, slots=True)
class LocalDisk:
    """The host's disk, where nothing can be written: for a look at a store that somebody else may be using.

    There is one, `LOCAL`, which is pickled by its name.
    """

    can_map = True
    read_gap = READ_GAP

    def __reduce__(self) -> str:
        return "LOCAL"

    def entries(self, directory: str) -> list[DirectoryEntry]:
        """Lists a directory; links are followed, and what vanishes meanwhile is left out.  Raises as `list_names`."""
        found = []
        try:
            with os.scandir(directory) as listed:
                for entry in listed:
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    is_directory = stat.S_ISDIR(status.st_mode)
                    modified_ms = status.st_mtime_ns // 1_000_000
                    is_link = is_directory and entry.is_symlink()
                    found.append(
                        DirectoryEntry(
                            entry.name, status.st_size, is_directory, modified_ms, is_link, status.st_ino,
                            status.st_blocks * _BLOCK_SIZE, status.st_ctime_ns // 1_000_000,
                        )
                    )  # fmt: skip
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(directory, error) from None
        found.sort()
        return found

    def names(self, directory: str) -> list[str]:
        """The names alone, without a look at what stands there.  Raises NotAStore."""
        return list_names(directory)

    def open(self, path: str) -> ReadableFile:
        """Opens a file for reading.  Raises as `OpenFile`."""
        return OpenFile(path)

    def exists(self, path: str) -> bool:
        """Whether anything stands at `path`."""
        return exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands at `path`, or a link to one."""
        return is_directory(path)

    def version_of(self, path: str) -> tuple[int, ...]:
        """Identity, size and time of change in ns; empty for what cannot be looked at."""
        return version_of(path)

    def is_locked(self, path: str) -> bool:
        """As `is_locked`: by a process of this host."""
        return is_locked(path)

    def real_path(self, path: str) -> str:
        """A path without symbolic links, as far as it exists."""
        return os.path.realpath(path)


LOCAL = LocalDisk()
