"""Files of one size, named by the byte at which they start, as one address space (RocketMQ: MappedFileQueue)."""

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import ref

from rmqstore.files.filesystem import DiskFile, FileSystem, directory_of, join
from rmqstore.files.real_file import byte_size
from rmqstore.files.sequence_listing import listed_sequence
from rmqstore.files.zeros import blank, is_zero
from rmqstore.formats.names import format_start, parse_start

if TYPE_CHECKING:
    from collections.abc import Buffer


class FileHandles:
    """Open files by path, at most `open_max` of them beside those in use: the least recently asked for go first.

    A file that is evicted or dropped is closed when its last user lets go of it, so nobody loses it in the middle.
    """

    def __init__(self, fs: FileSystem, open_max: int) -> None:
        self._fs = fs
        self._open_max = open_max
        self._files: OrderedDict[str, DiskFile] = OrderedDict()
        self._drops = 0
        self.lock = threading.RLock()  # guards the three above; no file is opened or closed under it

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> DiskFile:
        """The file at `path`, opened if it is not open.  Raises OSError as `FileSystem.open`."""
        with self.lock:
            file = self._files.get(path)
            if file is not None:
                self._files.move_to_end(path)
                return file
            drops = self._drops
        file = self._fs.open(path)
        with self.lock:
            present = self._files.get(path)
            if present is not None:
                return present
            if drops == self._drops:  # else it may have been removed since, and another one made there
                self._files[path] = file
        self._evict()
        return file

    def borrow(self, path: str) -> DiskFile:
        """The file at `path`; if it is not open, one that is not kept.  Raises OSError as `FileSystem.open`."""
        return self._files.get(path) or self._fs.open(path)

    def put(self, file: DiskFile) -> None:
        """Takes in a file that was just made, in place of one that had its path before."""
        with self.lock:
            self._files[file.path] = file
            self._files.move_to_end(file.path)
        self._evict()

    def drop(self, path: str) -> None:
        """Forgets a file that was removed."""
        with self.lock:
            self._drops += 1
            gone = self._files.pop(path, None)
        del gone  # closed here if nobody uses it: outside of the lock

    def close(self) -> None:
        """Forgets all files; those that nobody uses are closed now.  It can be used again."""
        with self.lock:
            self._drops += 1
            files, self._files = self._files, OrderedDict()
        files.clear()

    def _evict(self) -> None:
        while len(self._files) > self._open_max:
            with self.lock:
                gone = self._files.popitem(last=False) if self._files else None
            del gone


class FileSequence:
    """Files of `file_size` bytes in one or several directories; offsets are bytes of the whole address space.

    One thread at a time may `load`, `add` and `cut`, and write a given part; reading, syncing and `remove_first` go on
    meanwhile in any thread.  `pick(k)` names the directory for the k-th file ever (SF 1.3).
    `ready`, when set, is asked first for a file that was made ahead: ready(path, size).  With `keep_open` a file that
    was written stays open until it was synced, so that no report of a failed write-back is missed; without it the file
    may be evicted between two writes, which thousands of queues need.
    """

    def __init__(
        self,
        fs: FileSystem,
        handles: FileHandles,
        directories: Sequence[str],
        file_size: int,
        *,
        pick: Callable[[int], str] | None = None,
        keep_open: bool = False,
    ) -> None:
        if file_size <= 0 or not directories:
            raise ValueError(f"files of {file_size} bytes in {len(directories)} directories")
        self.file_size = file_size
        self.directories = tuple(directories)
        self.starts: list[int] = []  # rising; replaced as a whole, never changed, so that readers need no lock
        self._replacing = threading.RLock()  # held while `starts` is replaced: one adds while another retires
        self.ready: Callable[[str, int], DiskFile | None] | None = None
        self._fs = fs
        self._handles = handles
        self._pick = pick
        self._keep_open = keep_open
        self._elsewhere: dict[int, str] = {}  # directory by start, where it is not the first one
        self._unsynced: dict[int, DiskFile] = {}  # with keep_open: written, and not known to be synced to the end
        self._last: tuple[int, Callable[[], DiskFile | None]] | None = None  # the file that was written last, weakly
        self._made: set[str] = set()  # directories that are known to exist

    @property
    def start(self) -> int:
        """The first offset that a file holds; 0 without files."""
        starts = self.starts
        return starts[0] if starts else 0

    @property
    def end(self) -> int:
        """The first offset after the last file; 0 without files."""
        starts = self.starts
        return starts[-1] + self.file_size if starts else 0

    @property
    def locks(self) -> tuple[threading.RLock, ...]:
        """The locks that `locks.let_go` may have to give back."""
        return self._replacing, self._handles.lock

    def holds(self, offset: int) -> bool:
        """Whether a file holds the byte at `offset`."""
        return self._find(self.starts, offset) is not None

    def path_of(self, offset: int) -> str:
        """Path of the file that holds `offset`.  Raises ValueError if none does."""
        return self._path(self._start_of(offset))

    def file_of(self, offset: int) -> DiskFile:
        """The file that holds `offset`, open.  Raises ValueError if none does, OSError as `FileSystem.open`."""
        return self._open(self._start_of(offset))

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size), across files; fewer at a gap, at the end, or where a file was cut short."""
        file_size = self.file_size
        parts: list[bytes] = []
        while size > 0:
            start = self._find(self.starts, offset)
            if start is None:
                break
            position = offset - start
            want = min(size, file_size - position)
            try:
                part = self._open(start).read(position, want)
            except FileNotFoundError:
                if start in self.starts:
                    raise
                break  # retired since it was looked up
            parts.append(part)  # also what was read of a file that is retired meanwhile
            if len(part) < want:
                break
            offset, size = offset + want, size - want
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, offset: int, data: "Buffer") -> None:
        """Writes `data` at `offset`.  Raises ValueError unless one file holds all of it, OSError from the disk."""
        size = len(data) if isinstance(data, bytes | bytearray) else byte_size(data)
        last = self._last
        if last is not None:
            position = offset - last[0]
            if 0 <= position <= self.file_size - size and (file := last[1]()) is not None:
                file.write(position, data)
                return
        start = self._start_of(offset)
        if offset + size > start + self.file_size:
            raise ValueError(f"{size} bytes at {offset} reach beyond the file that starts at {start}")
        file = self._open(start)
        if self._keep_open:
            self._unsynced[start] = file
        self._last = start, ref(file)
        file.write(offset - start, data)

    def sync(self, low: int, high: int) -> None:
        """Makes [low, high) durable: one fdatasync for each file that overlaps it.  Raises OSError; do not retry."""
        starts = self.starts
        first = max(bisect_right(starts, low) - 1, 0)
        for start in starts[first : bisect_left(starts, high)]:
            if start + self.file_size <= low:
                continue  # low lies in a gap
            try:
                self._open(start).sync()
            except FileNotFoundError:
                if start in self.starts:
                    raise
            if high >= start + self.file_size:
                self._unsynced.pop(start, None)

    def load(self, *, repair: bool = True) -> list[str]:
        """Lists the directories again; returns what is odd but harmless, a sentence each.

        Foreign names, directories and gaps are told and left.  A last file that is empty, or shorter than it should be
        and all zero, is what a crash leaves of a file that was being made: it is removed, or with `repair=False` only
        left out.  Raises Corrupt for any other wrong length, and for files that overlap or are there twice.
        """
        listed = listed_sequence(self._fs, self.directories, self.file_size)
        for path in listed.unfinished_paths if repair else ():
            self._fs.remove(path)
            self._fs.sync_directory(directory_of(path))
        first = self.directories[0]
        self._elsewhere = {file.start: file.directory for file in listed.files if file.directory != first}
        self.starts = [file.start for file in listed.files]
        self._last = None
        self._unsynced.clear()
        return listed.warnings

    def add(self, start: int) -> DiskFile:
        """Makes the file that starts at `start`, after all others: allocated, zero and durable with its name.

        Raises ValueError for a start that is not after the others or no multiple of the size, OSError if it cannot be
        made; no file is left then.
        """
        if (self.starts and start < self.end) or (start % self.file_size and start != self.end):
            raise ValueError(f"no file of {self.file_size} bytes may start at {start}: the last one ends at {self.end}")
        path = self.path_for(start)
        directory = directory_of(path)
        if directory not in self._made:
            self._fs.make_directories(directory)
            self._made.add(directory)
        file = self.ready(path, self.file_size) if self.ready is not None else None
        if file is None:
            file = self._created(path)
        try:
            self._fs.sync_directory(directory)
            self._handles.put(file)
            if directory != self.directories[0]:
                self._elsewhere[start] = directory
            with self._replacing:
                self.starts = [*self.starts, start]
        except BaseException:
            if start not in self.starts:
                self._handles.drop(path)
                with suppress(OSError):
                    self._fs.remove(path)
            raise
        return file

    def _created(self, path: str) -> DiskFile:
        """A new file; in place of one that an interrupted call left, which holds nothing."""
        try:
            return self._fs.create(path, self.file_size)
        except FileExistsError:
            left = self._fs.open(path)
            if left.size() > self.file_size or not is_zero(left, 0, left.size()):
                raise
            self._fs.remove(path)
            return self._fs.create(path, self.file_size)

    def path_for(self, start: int) -> str:
        """Where `add(start)` will make its file: what to have made ahead."""
        directory = self._pick(start // self.file_size) if self._pick is not None else self.directories[0]
        return join(directory, format_start(start))

    def cut(self, end: int) -> None:
        """Ends the sequence at `end`, durably: what stood after it cannot come back.

        The rest of the file that holds `end` is made zero and synced first; then files that start at or after `end`
        are removed, newest first and each one synced, so that a crash leaves no gap.  After a crash at any point the
        same call completes it.  Raises OSError.
        """
        kept = self._find(self.starts, end)
        if kept is not None and kept < end:
            blank(self._open(kept), end - kept)
        self._last = None
        while self.starts and self.starts[-1] >= end:
            path = self._remove(self.starts[-1])
            if path is not None:
                self._fs.sync_directory(directory_of(path))

    def remove_first(self, count: int) -> list[str]:
        """Retires the oldest `count` files and returns their paths.  Open reads go on; the room is free after them.

        Oldest first, each one durably before the next, so that a crash leaves no gap.  A file that is gone already, by
        whatever hand, is passed over.  Raises OSError; the files that could not be removed stay in the sequence.
        """
        removed = []
        for start in self.starts[:count]:
            path = self._remove(start)
            if path is not None:
                self._fs.sync_directory(directory_of(path))
                removed.append(path)
        return removed

    def modified_ms(self) -> dict[int, int]:
        """When each file was changed last, by its start; a file that vanishes meanwhile is left out."""
        times = {}
        for directory in self.directories:
            for entry in self._fs.entries(directory):
                start = None if entry.is_directory else parse_start(entry.name)
                if start is not None and self._elsewhere.get(start, self.directories[0]) == directory:
                    times[start] = entry.modified_ms
        return times

    def read_once(self, offset: int, size: int) -> bytes:
        """`read` within one file, for callers that ask thousands of files one thing each: none is kept open for it."""
        start = self._find(self.starts, offset)
        if start is None:
            return b""
        try:
            return self._handles.borrow(self._path(start)).read(offset - start, size)
        except FileNotFoundError:
            if start in self.starts:
                raise
            return b""

    def _find(self, starts: list[int], offset: int) -> int | None:
        """Start of the file that holds `offset`: by division where the files are contiguous, else by halving."""
        if not starts or offset < starts[0]:
            return None
        number = (offset - starts[0]) // self.file_size
        if number >= len(starts) or not 0 <= offset - starts[number] < self.file_size:
            number = bisect_right(starts, offset) - 1
        start = starts[number]
        return start if offset - start < self.file_size else None

    def _start_of(self, offset: int) -> int:
        start = self._find(self.starts, offset)
        if start is None:
            raise ValueError(f"no file holds {offset}: the files reach from {self.start} to {self.end}")
        return start

    def _path(self, start: int) -> str:
        return join(self._elsewhere.get(start, self.directories[0]), format_start(start))

    def _open(self, start: int) -> DiskFile:
        return self._unsynced.get(start) or self._handles.get(self._path(start))

    def _remove(self, start: int) -> str | None:
        """Takes a file out of the sequence, then off the disk, and returns its path; a failure puts it back.

        In this order, so that a reader who finds no file can tell a retired one from one that is missing.  None if
        another thread took it, or somebody had removed it.
        """
        path, is_there = self._path(start), True
        with self._replacing:
            if start not in self.starts:
                return None
            self.starts = [each for each in self.starts if each != start]
        try:
            self._fs.remove(path)
        except FileNotFoundError:
            is_there = False
        except BaseException:
            with self._replacing:
                self.starts = sorted([*self.starts, start])
            raise
        if self._last is not None and self._last[0] == start:
            self._last = None
        self._unsynced.pop(start, None)
        self._elsewhere.pop(start, None)
        self._handles.drop(path)
        return path if is_there else None
