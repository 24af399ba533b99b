"""The basis of a recovery plan: the files of one store, looked at and never changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rmqstore.directory.config_files import load_newest
from rmqstore.directory.deleted_topics import load_deleted_topics
from rmqstore.directory.layouts import load_checkpoint, logs_below
from rmqstore.directory.listing import Numbered, directories, numbered_files, usual_size
from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_files import BATCH, SIMPLE, OwnQueueFiles, QueueFiles, listed_topics
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_root import require_store
from rmqstore.errors import NotAStore
from rmqstore.files.disk import ReadableDisk, StoredFile, read_part
from rmqstore.files.filesystem import join
from rmqstore.formats import broker_json
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.checkpoint import Checkpoint
from rmqstore.formats.deleted_topics import DeletedBefore, DeletedTopics
from rmqstore.formats.names import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    CONFIG_ROOM,
    EXTENSION_ROOM,
    INDEX_ROOM,
    LOG_ROOM,
    PLAIN_ROOM,
    QueueKey,
    parse_queue_id,
)
from rmqstore.formats.queue_entry import QUEUE_ENTRY

# The tables that an opening reads, most of them after the log.
_TABLES = ("topics.json", "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json")


@dataclass(frozen=True, slots=True)
class StoreView:
    """One store directory as a plan sees it; `notes` are sentences about it for people.

    `topic_queues` has the queue ids, as listed, of topics whose directory below consumequeue/ holds queues alone.

    `deleted_topics` are those noted; their records that stand before `deleted_before`, by topic, are in no queue.
    """

    disk: ReadableDisk
    root: str
    log: LogSpace
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
    deleted_before: DeletedBefore = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()
    topic_queues: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has batch queues; all others' are plain, whatever their records say of themselves.

        So says the table of topics, in memory or on the disk, or a batch queue that has units.  Of a topic that no
        table names its records tell (`batch_topics` then has it): those of inner batches, which name their numbers.
        """
        return topic in self.batch_topics or self.kinds.is_batch_topic(topic)

    def with_kinds_of_log(self, batch_topics: Iterable[str], *, has_light: bool = False) -> "StoreView":
        """The view, knowing that these topics have batch queues, and whether the log has light ones.  Plain queues of
        batch topics are `passed_over`: RocketMQ 4 made them of the same messages, and RocketMQ 5 opens no store that
        has both.
        """
        known = self.batch_topics.union(batch_topics)
        plain = {key: queue for key, queue in self.queues.items() if key[0] not in known}
        others = [queue.directory for key, queue in self.queues.items() if key[0] in known and queue.files]
        kinds = replace(self.kinds, multi_dispatch=self.kinds.multi_dispatch or has_light)
        return replace(self, kinds=kinds, batch_topics=known, queues=plain, passed_over=(*self.passed_over, *others))

    def queue_files(self) -> dict[QueueKey, QueueFiles]:
        """The usable files of all queues."""
        return {view.key: view.queue for view in self.all_queues()}

    def all_queues(self) -> list[QueueView]:
        """The plain queues, then those of batches."""
        return [*self.queues.values(), *self.batch_queues.values()]

    def has_files(self, topic: str) -> bool:
        """Whether a queue of a topic has files that can be used."""
        listed = self.topic_queues.get(topic)
        plain = self.queues.values() if listed is None else (self.queues.get((topic, each)) for each in listed)
        queues = (*plain, *self.batch_queues.values())
        return any(queue is not None and queue.topic == topic and queue.files for queue in queues)

    def queue_of(self, key: QueueKey, is_batch: bool) -> QueueView | None:
        """The queue, of whole batches or a plain one; None if there are no files."""
        return (self.batch_queues if is_batch else self.queues).get(key)


def open_view(
    disk: ReadableDisk, root: str, log_paths: Sequence[str] = (), kinds: QueueKinds = PLAIN_ONLY,
    *, wrapped: Sequence[str] = (),
) -> StoreView:  # fmt: skip
    """Looks at the store at `root`; in the files of the log paths `wrapped` records stand in DLedger's entries.

    Raises NotAStore, UnsupportedLayout, OSError.
    """
    others = require_store(disk, root, log_paths, may_be_ledger=bool(wrapped))
    notes = [f"{path}: no part of a store, left as it is" for path in others]
    logs = [_log_files(disk, path, path in wrapped) for path in log_paths] or [*logs_below(disk, root).values()]
    files = sorted((file for log in logs for file in log.files), key=lambda file: file.start)
    strays = tuple(stray for log in logs or [numbered_files(disk, join(root, LOG_ROOM))] for stray in log.strays)
    topic_queues: dict[str, Sequence[int]] = {}
    queues, empty, size = _queues(disk, root, SIMPLE, topic_queues)
    batch_queues, empty_batches, batch_size = _queues(disk, root, BATCH, {})
    known, told = _known_topics(disk, root)
    deleted, more = load_deleted_topics(disk, root)
    written = {topic for (topic, _), queue in batch_queues.items() if queue.end > queue.first}
    asked = {topic for topic, _ in queues if kinds.is_batch_topic(topic)}
    checkpoint = load_checkpoint(disk, root, past_directories=False)
    view = StoreView(
        disk, root, _log_space(disk, files), strays, queues, size,
        (*empty, *empty_batches), checkpoint or Checkpoint(), checkpoint is not None,
        disk.exists(join(root, ABORT_FILE)), known, batch_queues=batch_queues, batch_file_size=batch_size,
        kinds=_present_kinds(disk, root, kinds, queues), notes=(*notes, *more), deleted_topics=deleted,
        topic_queues=topic_queues,
    )  # fmt: skip
    return view.with_kinds_of_log(told | written | asked)


def require_places(store: StoreView, *, has_index: bool) -> None:
    """Raises NotAStore where something else stands where an opening will need a directory, or a file that it reads:
    before it changes anything.
    """
    disk, queues = store.disk, join(store.root, PLAIN_ROOM)
    for room in (PLAIN_ROOM, CONFIG_ROOM, *((INDEX_ROOM,) if has_index else ())):
        _require_directory(disk, join(store.root, room))
    for topic in sorted({*disk.names(queues)} - store.topic_queues.keys()):
        path = join(queues, topic)
        if disk.is_directory(path):
            for name in disk.names(path):
                if parse_queue_id(name) is not None:
                    _require_directory(disk, join(path, name))
        elif store.known_topics and topic in store.known_topics:
            _require_directory(disk, path)
    for path in (join(store.root, CHECKPOINT_FILE), *(join(store.root, CONFIG_ROOM, name) for name in _TABLES)):
        if disk.exists(path):
            _require_file(disk, path)


def _require_directory(disk: ReadableDisk, path: str) -> None:
    if disk.exists(path) and not disk.is_directory(path):
        raise NotAStore(path, "is not a directory; move it out of the store")


def _require_file(disk: ReadableDisk, path: str) -> None:
    try:
        disk.open(path).close()
    except FileNotFoundError:
        raise NotAStore(path, "is a symbolic link that leads nowhere; move it out of the store") from None


def _log_files(disk: ReadableDisk, path: str, is_wrapped: bool) -> Numbered:
    files, strays = numbered_files(disk, path)
    return Numbered([replace(file, is_wrapped=True) for file in files] if is_wrapped else files, strays)


def _log_space(disk: ReadableDisk, files: Sequence[StoredFile]) -> LogSpace:
    """The log with the length that its files have by setting."""
    return LogSpace(disk, files, usual_size([files]))


def _present_kinds(
    disk: ReadableDisk, root: str, kinds: QueueKinds, queues: Mapping[QueueKey, QueueView]
) -> QueueKinds:
    """`kinds`, and those that the store has already, with the size of its extension files."""
    series = [numbered_files(disk, path)[0] for _, topic in directories(disk, join(root, EXTENSION_ROOM))
              for _, path in directories(disk, topic)]  # fmt: skip
    size = usual_size(series, lambda file: any(read_part(disk, file.path, 0, QUEUE_ENTRY.size)))
    return replace(
        kinds,
        multi_dispatch=kinds.multi_dispatch or any(queue.is_light for queue in queues.values()),
        extension=kinds.extension or size > 0,
        extension_file_size=size or kinds.extension_file_size,
    )


class _Queues(NamedTuple):
    """The queues of one kind: every directory with a readable name, the paths of those that hold nothing at all, and
    the size of a file in bytes.
    """

    views: dict[QueueKey, QueueView]
    empty_paths: list[str]
    file_size: int


def _queues(disk: ReadableDisk, root: str, kind: str, topic_queues: dict[str, Sequence[int]]) -> _Queues:
    """The queues of one kind; notes in `topic_queues` which queues a topic has where nothing else is in its
    directory.
    """
    queues: dict[QueueKey, QueueView] = {}
    empty: list[str] = []
    for listed in listed_topics(disk, root, kind):
        if listed.holds_queues_alone:
            topic_queues[listed.topic] = [queue_id for _, queue_id, _ in listed.queues]
        for topic, queue_id, path in listed.queues:
            files, strays = numbered_files(disk, path)
            if not files and not strays:
                empty.append(path)
            own = OwnQueueFiles(root, topic, queue_id, kind, tuple(files), disk)
            queues[topic, queue_id] = QueueView(own, has_strays=bool(strays))
    unit = QUEUE_ENTRY.size if kind == SIMPLE else BATCH_QUEUE_ENTRY.size
    size = usual_size(
        [queue.files for queue in queues.values()],
        lambda file: not file.size % unit and any(read_part(disk, file.path, 0, QUEUE_ENTRY.size)),
    )
    for queue in queues.values():
        queue.settle(size)
    return _Queues(queues, empty, size)


def _known_topics(disk: ReadableDisk, root: str) -> tuple[frozenset[str] | None, frozenset[str]]:
    """The topics that the broker's configuration names, None where there is none, or none that can be read; and those
    of them that have batch queues.

    A .bak that has to stand in tells of batches only: it may be older than a topic, which must not count as deleted.
    """
    found = load_newest(disk, root, "topics.json", broker_json.topic_configs)
    if found is None:
        return None, frozenset()
    batch_topics = frozenset(each for each, topic in found.value.items() if topic.has_batch_queues)
    return None if found.is_backup else frozenset(found.value), batch_topics
