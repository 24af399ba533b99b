"""What a recovery plan is made from: the files of one store, looked at and never changed."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rmqstore.directory.deleted_topics import load_deleted_topics
from rmqstore.directory.disk import ListedFile, ReadableDisk, ReadableFile
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_root import begins_as_log, require_store
from rmqstore.errors import Corrupt, TooLarge
from rmqstore.files.filesystem import join
from rmqstore.formats import broker_json, names
from rmqstore.formats.checkpoint import FILE_SIZE as CHECKPOINT_SIZE
from rmqstore.formats.checkpoint import Checkpoint, read_checkpoint
from rmqstore.formats.deleted_topics import DeletedTopics
from rmqstore.formats.message import BLANK
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches

_CONFIG_SIZE_MAX = broker_json.TEXT_SIZE_MAX + 1
# Directories of a store root that hold files with numbers for names and are no commitlog.
_OTHER_DIRECTORIES = frozenset(
    ("timerlog", "consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "config", "compaction")
)


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


def usual_size(series: Sequence[Sequence[ListedFile]], is_used: Callable[[ListedFile], bool] | None = None) -> int:
    """The length that files of some series have by setting: most files, and most distances between starts, agree on
    it; 0 without files.  With `is_used`, one of them must be in use: a crash leaves a file that was being made with any
    length."""
    votes: Counter[int] = Counter()
    for files in series:
        votes.update(file.size for file in files if file.size)
        votes.update(later.start - file.start for file, later in pairwise(files))
    listed = [file for files in series for file in files]
    for size, _ in votes.most_common():
        if is_used is None or any(file.size == size and is_used(file) for file in listed):
            return size
    return 0


def log_directories(disk: ReadableDisk, root: str, log_paths: Sequence[str] = ()) -> tuple[str, ...]:
    """The directories of the commitlog: `log_paths` when given, else those under the root that hold such files, else
    `commitlog`."""
    if log_paths:
        return tuple(log_paths)
    children = [entry.name for entry in disk.entries(root) if entry.is_directory]
    paths = [
        join(root, name) for name in children if name not in _OTHER_DIRECTORIES and not name.startswith("dledger-")
    ]
    own = join(root, "commitlog")
    holding = [
        path for path in paths
        if any(file.size for file in numbered_files(disk, path)[0]) and (path == own or begins_as_log(disk, path))
    ]  # fmt: skip
    return tuple(holding) or (own,)


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

    def record_at(self, offset: int) -> RecordBatch | None:
        """The record that stands at `offset`, alone in a batch; None if none does."""
        if self.file_at(offset) is None:
            return None
        found = next(read_batches(self.read, offset, self.end, self.file_size, window_size=BLANK.size), None)
        return found if isinstance(found, RecordBatch) else None

    def close(self) -> None:
        """Closes what is open."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


@dataclass(frozen=True, slots=True)
class StoreView:
    """One store directory as a plan sees it; `notes` is what is to be said about it.

    `deleted_topics` are those noted; their records that stand before `deleted_before`, by topic, are in no queue.
    """

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
    batch_topics: frozenset[str] = frozenset()
    batch_queues: Mapping[QueueKey, QueueView] = field(default_factory=dict)
    batch_file_size: int = 0
    kinds: QueueKinds = PLAIN_ONLY
    notes: tuple[str, ...] = ()
    deleted_topics: DeletedTopics = field(default_factory=dict)
    deleted_before: Mapping[str, int] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has batch queues; all others' are plain, whatever their records say of themselves.

        So says the table of topics, in memory or on the disk, or a batch queue that has units.  Of a topic that no
        table names its records tell (`batch_topics` then has it): those of inner batches, which name their numbers.
        """
        return topic in self.batch_topics or self.kinds.is_batch_topic(topic)

    def with_batch_topics(self, topics: Iterable[str]) -> "StoreView":
        """The view, knowing that these topics have batch queues.  Plain queues of theirs are `passed_over`: RocketMQ 4
        made them of the same messages, and RocketMQ 5 opens no store that has both.
        """
        known = self.batch_topics.union(topics)
        plain = {key: queue for key, queue in self.queues.items() if key[0] not in known}
        others = [queue.directory for key, queue in self.queues.items() if key[0] in known and queue.files]
        return replace(self, batch_topics=known, queues=plain, passed_over=(*self.passed_over, *others))

    def queue_of(self, key: QueueKey, is_batch: bool) -> QueueView | None:
        """The queue, of whole batches or a plain one; None if there are no files."""
        return (self.batch_queues if is_batch else self.queues).get(key)


def open_view(
    disk: ReadableDisk, root: str, log_paths: Sequence[str] = (), kinds: QueueKinds = PLAIN_ONLY
) -> StoreView:
    """Looks at the store at `root`.  Raises NotAStore, UnsupportedLayout, OSError."""
    notes = [f"{path}: no part of a store, left as it is" for path in require_store(disk, root, log_paths)]
    directories = log_directories(disk, root, log_paths)
    files: list[ListedFile] = []
    strays: list[str] = []
    for directory in directories:
        found, others = numbered_files(disk, directory)
        files += found
        strays += others
    queues, empty, size = _queues(disk, root, "consumequeue")
    batch_queues, empty_batches, batch_size = _queues(disk, root, "batchconsumequeue", is_batch=True)
    known, told = _known_topics(disk, root)
    deleted, more = load_deleted_topics(disk, root)
    written = {topic for (topic, _), queue in batch_queues.items() if queue.end > queue.first}
    asked = {topic for topic, _ in queues if kinds.is_batch_topic(topic)}
    data = _small_file(disk, join(root, "checkpoint"), CHECKPOINT_SIZE)
    view = StoreView(
        disk, root, LogView(disk, sorted(files, key=lambda file: file.start)), tuple(strays), queues, size,
        (*empty, *empty_batches), read_checkpoint(data or b""), data is not None, disk.exists(join(root, "abort")),
        known, batch_queues=batch_queues, batch_file_size=batch_size,
        kinds=_present_kinds(disk, root, kinds, queues), notes=(*notes, *more), deleted_topics=deleted,
    )  # fmt: skip
    return view.with_batch_topics(told | written | asked)


def _present_kinds(
    disk: ReadableDisk, root: str, kinds: QueueKinds, queues: Mapping[QueueKey, QueueView]
) -> QueueKinds:
    """`kinds`, and those that the store has already, with the size of its extension files."""
    series = [numbered_files(disk, path)[0] for _, topic in directories(disk, join(root, "consumequeue_ext"))
              for _, path in directories(disk, topic)]  # fmt: skip
    size = usual_size(series, lambda file: any(_first_entry(disk, file)))
    return replace(
        kinds,
        multi_dispatch=kinds.multi_dispatch or any(queue.is_light for queue in queues.values()),
        extension=kinds.extension or size > 0,
        extension_file_size=size or kinds.extension_file_size,
    )


def _queues(
    disk: ReadableDisk, root: str, room: str, *, is_batch: bool = False
) -> tuple[dict[QueueKey, QueueView], list[str], int]:
    """Every queue directory with a readable name, the queue directories that hold nothing at all, and a file's size."""
    queues: dict[QueueKey, QueueView] = {}
    empty: list[str] = []
    for topic, directory in directories(disk, join(root, room)):
        for name, path in directories(disk, directory):
            queue_id = names.parse_queue_id(name)
            if queue_id is None or not names.is_topic_name(topic):
                continue
            files, strays = numbered_files(disk, path)
            if not files and not strays:
                empty.append(path)
            queues[topic, queue_id] = QueueView(disk, path, topic, queue_id, files, is_batch=is_batch)
    size = usual_size([queue.files for queue in queues.values()], lambda file: any(_first_entry(disk, file)))
    for queue in queues.values():
        queue.settle(size)
    return queues, empty, size


def directories(disk: ReadableDisk, directory: str) -> Iterator[tuple[str, str]]:
    """Name and path of the directories in a directory."""
    for entry in disk.entries(directory):
        if entry.is_directory:
            yield entry.name, join(directory, entry.name)


def _first_entry(disk: ReadableDisk, listed: ListedFile) -> bytes:
    file = disk.open(listed.path)
    try:
        return file.read(0, QUEUE_ENTRY.size)
    finally:
        file.close()


def _small_file(disk: ReadableDisk, path: str, size_max: int) -> bytes | None:
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return file.read(0, size_max)
    finally:
        file.close()


def _known_topics(disk: ReadableDisk, root: str) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The topics that the broker's configuration names, None where there is none, or none that can be read; and those
    of them that have batch queues.

    A .bak that has to stand in tells of batches only: it may be older than a topic, which must not count as deleted.
    """
    for name in ("topics.json", "topics.json.bak"):
        data = _small_file(disk, join(root, "config", name), _CONFIG_SIZE_MAX)
        if data is None or not data.strip():
            continue
        try:
            topics = broker_json.topic_configs(broker_json.parse(data))
        except TooLarge as large:
            raise TooLarge(join(root, "config", name), 0, large.reason) from None
        except (Corrupt, ValueError):
            continue
        batch_topics = frozenset(each for each, topic in topics.items() if topic.has_batch_queues)
        return None if name.endswith(".bak") else frozenset(topics), batch_topics
    return None, frozenset()
