"""What a recovery plan is made from: the files of one store, looked at and never changed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rmqstore.errors import Corrupt, NotAStore, UnsupportedLayout
from rmqstore.files import reading
from rmqstore.files.filesystem import join
from rmqstore.formats import broker_json, names
from rmqstore.formats.checkpoint import FILE_SIZE as CHECKPOINT_SIZE
from rmqstore.formats.checkpoint import Checkpoint, read_checkpoint
from rmqstore.formats.queue_entry import QUEUE_ENTRY, is_valid, read_entries

QueueKey = tuple[str, int]

_CONFIG_SIZE_MAX = 64 * 1024 * 1024
# Directories of a store root that hold files with numbers for names and are no commitlog.
_OTHER_DIRECTORIES = frozenset(
    ("timerlog", "consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "config", "compaction")
)


class ReadableFile(Protocol):
    """The part of a DiskFile that a plan needs."""

    def size(self) -> int:
        """The file's size at this moment."""

    def read(self, position: int, size: int) -> bytes:
        """Bytes [position, position + size), fewer where the file ends before."""

    def next_data(self, position: int) -> int:
        """The first position from `position` on that may hold anything but zeros; the file's size if there is none."""

    def close(self) -> None:
        """Gives the file back."""


class ReadableEntry(Protocol):
    """One name in a directory."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def size(self) -> int:
        """Bytes of the file."""

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""


class ReadableDisk(Protocol):
    """The part of a FileSystem that a plan needs; `ReadOnlyDisk` is the one that cannot write."""

    def entries(self, directory: str) -> Sequence[ReadableEntry]:
        """What a directory holds, sorted by name; empty if there is none."""

    def open(self, path: str) -> ReadableFile:
        """Opens a file.  Raises FileNotFoundError if there is none."""

    def exists(self, path: str) -> bool:
        """Whether anything stands at `path`."""


class ReadOnlyFile(reading.OpenFile):
    """A file open for reading only."""

    def next_data(self, position: int) -> int:
        """`position`: what lies there is not known before it is read."""
        return position


class ReadOnlyDisk:
    """The host's disk, where nothing can be written: for a look at a store that somebody else may be using."""

    def entries(self, directory: str) -> Sequence[ReadableEntry]:
        """Lists a directory."""
        return reading.list_entries(directory)

    def open(self, path: str) -> ReadableFile:
        """Opens a file for reading."""
        return ReadOnlyFile(path)

    def exists(self, path: str) -> bool:
        """Whether anything stands at `path`."""
        return reading.exists(path)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a numbered series: `start` is the number in its name, `size` the length that it has."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """The first number behind what the file holds."""
        return self.start + self.size


def numbered_files(disk: ReadableDisk, directory: str) -> tuple[list[ListedFile], list[str]]:
    """The files of a series in one directory by start, empty ones too, and the paths of whatever else stands there."""
    found, strays = [], []
    for entry in disk.entries(directory):
        path = join(directory, entry.name)
        start = None if entry.is_directory else names.parse_start(entry.name)
        if start is None:
            strays.append(path)
        else:
            found.append(ListedFile(path, start, entry.size))
    return sorted(found, key=lambda file: file.start), strays


def usual_size(series: Sequence[Sequence[ListedFile]]) -> int:
    """The length that files of some series have by setting: most files, and most distances between starts, agree on
    it; 0 without files."""
    votes: Counter[int] = Counter()
    for files in series:
        votes.update(file.size for file in files if file.size)
        votes.update(later.start - file.start for file, later in pairwise(files))
    return votes.most_common(1)[0][0] if votes else 0


def log_directories(disk: ReadableDisk, root: str, log_paths: Sequence[str] = ()) -> tuple[str, ...]:
    """The directories of the commitlog: `log_paths` when given, else those under the root that hold such files, else
    `commitlog`."""
    if log_paths:
        return tuple(log_paths)
    children = [entry.name for entry in disk.entries(root) if entry.is_directory]
    paths = [
        join(root, name) for name in children if name not in _OTHER_DIRECTORIES and not name.startswith("dledger-")
    ]
    holding = [path for path in paths if any(file.size for file in numbered_files(disk, path)[0])]
    return tuple(holding) or (join(root, "commitlog"),)


def refuse_other_layouts(disk: ReadableDisk, root: str, directories: Sequence[str]) -> None:
    """Raises NotAStore for a directory without a store, UnsupportedLayout for one in a layout of another kind."""
    entries = disk.entries(root)
    children = {entry.name for entry in entries}
    if not disk.exists(root):
        raise NotAStore(root, "does not exist here; give the broker's storePathRootDir")
    has_log = any(numbered_files(disk, directory)[0] for directory in directories)
    if any(name.startswith("dledger-") for name in children) and not has_log:
        raise UnsupportedLayout(root, "a DLedger commitlog, which this version does not recover")
    if disk.exists(join(root, "consumequeue", "CURRENT")):
        raise UnsupportedLayout(
            join(root, "consumequeue"), "consume queues in RocksDB, which this version cannot write"
        )
    known = {"commitlog", "consumequeue", "batchconsumequeue", "index", "checkpoint", "config", "abort", "lock"}
    if not has_log and children and not known & children:
        raise NotAStore(root, "holds no RocketMQ store; give the directory that holds commitlog/")


class LogView:
    """The commitlog's files as one address space for reading; `file_size` is what a whole file has."""

    def __init__(self, disk: ReadableDisk, files: Sequence[ListedFile]) -> None:
        self._disk = disk
        self.files = tuple(files)
        self.file_size = usual_size([self.files])
        self._open: tuple[str, ReadableFile] | None = None

    @property
    def start(self) -> int:
        """The first offset; 0 without files."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """The first offset behind the room of the last file; 0 without files."""
        return self.files[-1].start + self.file_size if self.files else 0

    def file_at(self, offset: int) -> ListedFile | None:
        """The file in whose room `offset` lies, though it may be cut short before it."""
        for file in reversed(self.files):
            if file.start <= offset:
                return file if offset < file.start + self.file_size else None
        return None

    def next_file(self, offset: int) -> ListedFile | None:
        """The first file that starts behind `offset`."""
        return next((file for file in self.files if file.start > offset), None)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from `offset` on that one file holds, at most `size`; empty where no file does."""
        file = self.file_at(offset)
        return b"" if file is None else self.opened(file).read(offset - file.start, size)

    def opened(self, file: ListedFile) -> ReadableFile:
        """The file, open; the one before is closed."""
        if self._open is None or self._open[0] != file.path:
            self.close()
            self._open = file.path, self._disk.open(file.path)
        return self._open[1]

    def close(self) -> None:
        """Closes what is open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


@dataclass(slots=True)
class QueueView:
    """The files of one consume queue that can be used: entries of slots [`first`, `end`) are written.

    `bad_files` are in the way: empty, of a wrong length, behind a gap, or all zero.  A *slot* is a queue offset.
    """

    disk: ReadableDisk
    directory: str
    topic: str
    queue_id: int
    files: list[ListedFile]
    bad_files: list[tuple[ListedFile, str]] = field(default_factory=list)
    end: int = 0

    @property
    def key(self) -> QueueKey:
        """Topic and queue id."""
        return self.topic, self.queue_id

    @property
    def is_multi_dispatch(self) -> bool:
        """Whether it takes entries of other topics' records (LMQ): the log does not say simply which."""
        return self.topic.startswith(names.LMQ_PREFIX)

    @property
    def first(self) -> int:
        """The first slot that the files have room for; 0 without files."""
        return -(-self.files[0].start // QUEUE_ENTRY.size) if self.files else 0

    def settle(self, file_size: int) -> None:
        """Sets aside what RocketMQ stumbles over, and finds the end of what is written."""
        for number, file in enumerate(self.files):
            broken = file.size != file_size
            apart = number > 0 and file.start != self.files[number - 1].start + file_size
            if broken or apart:
                reason = f"{file.size} bytes instead of {file_size}" if broken else "the file before it is missing"
                self.bad_files += [(file, reason)] + [
                    (later, "behind such a file") for later in self.files[number + 1 :]
                ]
                del self.files[number:]
                break
        while self.files and (end := self._written_end(self.files[-1])) == self.files[-1].start // QUEUE_ENTRY.size:
            self.bad_files.append((self.files.pop(), "nothing is written in it"))
        self.end = end if self.files else 0

    def _written_end(self, file: ListedFile) -> int:
        """The slot behind the last entry of a file, by halving: entries are appended.  Its first slot if none is."""
        size = QUEUE_ENTRY.size
        low, high = file.start // size, file.end // size
        source = self.disk.open(file.path)
        try:
            while low < high:
                middle = (low + high) // 2
                entry = read_entries(source.read(middle * size - file.start, size))
                if len(entry) and is_valid(entry)[0]:
                    low = middle + 1
                else:
                    high = middle
        finally:
            source.close()
        return low

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Entries of slots [first, last) as far as they are written and in a file; structured, QUEUE_ENTRY.dtype."""
        size = QUEUE_ENTRY.size
        parts = []
        for file in self.files:
            low, high = max(first, file.start // size), min(last, file.end // size, self.end)
            if low < high:
                source = self.disk.open(file.path)
                try:
                    parts.append(source.read(low * size - file.start, (high - low) * size))
                finally:
                    source.close()
        return read_entries(b"".join(parts))

    def slot_at(self, offset: int) -> int:
        """The first slot whose message stands at or behind `offset` of the log, by halving; `end` if none does.

        A slot that is not written counts as behind: a power cut may leave such holes among the newest entries.
        """
        size = QUEUE_ENTRY.size
        for file in reversed(self.files):
            source = self.disk.open(file.path)
            try:
                low, high = file.start // size, min(file.end // size, self.end)
                first = low
                while low < high:
                    middle = high - 1 if high == self.end else (low + high) // 2
                    entry = read_entries(source.read(middle * size - file.start, size))
                    if is_valid(entry)[0] and int(entry["physical_offset"][0]) < offset:
                        low = middle + 1
                    else:
                        high = middle
                if low > first:
                    return low
            finally:
                source.close()
        return self.first


@dataclass(frozen=True, slots=True)
class StoreView:
    """One store directory as a plan sees it."""

    disk: ReadableDisk
    root: str
    log: LogView
    log_strays: tuple[str, ...]
    queues: Mapping[QueueKey, QueueView]
    queue_file_size: int
    empty_directories: tuple[str, ...]
    checkpoint: Checkpoint
    has_checkpoint: bool
    abort_present: bool
    known_topics: frozenset[str] | None


def open_view(disk: ReadableDisk, root: str, log_paths: Sequence[str] = ()) -> StoreView:
    """Looks at the store at `root`.  Raises NotAStore, UnsupportedLayout, OSError."""
    directories = log_directories(disk, root, log_paths)
    refuse_other_layouts(disk, root, directories)
    files: list[ListedFile] = []
    strays: list[str] = []
    for directory in directories:
        found, others = numbered_files(disk, directory)
        files += found
        strays += others
    queues, empty = _queues(disk, root)
    size = usual_size([queue.files for queue in queues.values()])
    for queue in queues.values():
        queue.settle(size)
    data = _small_file(disk, join(root, "checkpoint"), CHECKPOINT_SIZE)
    return StoreView(
        disk, root, LogView(disk, sorted(files, key=lambda file: file.start)), tuple(strays), queues, size,
        tuple(empty), read_checkpoint(data or b""), data is not None, disk.exists(join(root, "abort")),
        _known_topics(disk, root),
    )  # fmt: skip


def _queues(disk: ReadableDisk, root: str) -> tuple[dict[QueueKey, QueueView], list[str]]:
    """Every queue directory with a readable name, and the queue directories that hold nothing at all."""
    queues: dict[QueueKey, QueueView] = {}
    empty: list[str] = []
    for topic, directory in _directories(disk, join(root, "consumequeue")):
        for name, path in _directories(disk, directory):
            queue_id = names.parse_queue_id(name)
            if queue_id is None or not names.is_topic_name(topic):
                continue
            files, strays = numbered_files(disk, path)
            if not files and not strays:
                empty.append(path)
            queues[topic, queue_id] = QueueView(disk, path, topic, queue_id, files)
    return queues, empty


def _directories(disk: ReadableDisk, directory: str) -> Iterator[tuple[str, str]]:
    for entry in disk.entries(directory):
        if entry.is_directory:
            yield entry.name, join(directory, entry.name)


def _small_file(disk: ReadableDisk, path: str, size_max: int) -> bytes | None:
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return file.read(0, size_max)
    finally:
        file.close()


def _known_topics(disk: ReadableDisk, root: str) -> frozenset[str] | None:
    """The topics that the broker's configuration names; None where there is none, or none that can be read."""
    data = _small_file(disk, join(root, "config", "topics.json"), _CONFIG_SIZE_MAX)
    if data is None:
        return None
    try:
        return frozenset(broker_json.topic_configs(broker_json.parse(data)))
    except (Corrupt, ValueError):
        return None
