"""Carrying a recovery plan out, in an order that a crash at any point survives.

The file abort is there before (the caller's part), so whatever a crash leaves is recovered as after any crash; each
step leaves a state that the next plan takes further.  The log comes first: what is read from it must be on the disk
before queues, index and checkpoint speak of it.  The checkpoint comes last.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.directory.queue_kinds import PLAIN_ONLY, BatchTopics, QueueKinds
from rmqstore.engine.log.deleted_topics import save_deleted_topics
from rmqstore.engine.log.derived.checkpoint import CheckpointFile
from rmqstore.engine.log.derived.index_log import IndexLog
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.engine.log.recovery.plan import PlannedExtension, PlannedQueue, RecoveryPlan
from rmqstore.errors import StoreDamaged
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import FileSystem, directory_of, join
from rmqstore.formats import message
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.index import HEADER, read_header
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import CHECKPOINT_FILE, INDEX_ROOM
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.records.batch import RecordBatch
from rmqstore.records.dispatcher import Dispatcher
from rmqstore.records.read_batches import read_batches
from rmqstore.records.vectors import Records

_ZEROS = bytes(1024 * 1024)


@dataclass(slots=True)
class StoreParts:
    """The parts of a store, made for a plan and loaded by `apply`; the same ones then serve the store.

    `further` are told of every record that is dispatched again, after queues and index.
    """

    fs: FileSystem
    log: FileSequence
    queues: QueueTable
    index: IndexLog | None
    checkpoint: CheckpointFile
    handles: FileHandles
    queue_file_size: int
    picker: "LogPicker"
    further: Sequence[Dispatcher] = ()

    @property
    def dispatchers(self) -> tuple[Dispatcher, ...]:
        """Everything that is told of records, in order."""
        return (self.queues, *((self.index,) if self.index is not None else ()), *self.further)


def open_parts(
    fs: FileSystem, plan: RecoveryPlan, config: StoreConfig, clock: Clock, further: Sequence[Dispatcher] = (),
    kinds: QueueKinds = PLAIN_ONLY,
) -> StoreParts:  # fmt: skip
    """Parts with the sizes that the files have, and those of `config` where no file tells them.  Changes nothing."""
    handles, picker = FileHandles(fs, config.open_files_max), LogPicker(plan.log_directories, config)
    log = FileSequence(
        fs, handles, plan.log_directories, plan.log_file_size or config.log_file_size,
        pick=picker, keep_open=True,
    )  # fmt: skip
    queue_file_size = plan.queue_file_size or config.queue_file_size
    queues = QueueTable(fs, handles, plan.root, queue_file_size, plan.levels, _found_kinds(plan, kinds))
    slots, items = plan.index_sizes or (config.index_slot_count, config.index_item_count)
    index = IndexLog(fs, plan.root, slots, items, clock, plan.indexes_tags) if config.index_enabled else None
    checkpoint = CheckpointFile(fs, join(plan.root, CHECKPOINT_FILE))
    return StoreParts(fs, log, queues, index, checkpoint, handles, queue_file_size, picker, further)


def _found_kinds(plan: RecoveryPlan, kinds: QueueKinds) -> QueueKinds:
    """`kinds`, with those that the store has already and the sizes of its files."""
    found = plan.kinds
    return replace(
        kinds,
        multi_dispatch=kinds.multi_dispatch or found.multi_dispatch,
        extension=kinds.extension or found.extension,
        extension_file_size=found.extension_file_size or kinds.extension_file_size,
        is_batch_topic=BatchTopics(kinds.is_batch_topic, found.batch_topics),
        batch_file_size=found.batch_file_size or kinds.batch_file_size,
    )


class LogPicker:
    """The directory of the k-th log file (Java: MultiPathMappedFileQueue): one whose disk `full_paths` does not name,
    unless it names all.  Asked for the same file again it answers the same, for the file may have been made ahead.
    """

    def __init__(self, directories: Sequence[str], config: StoreConfig) -> None:
        self.full_paths: Callable[[], Collection[str]] = tuple
        self._directories = sorted(set(directories) - set(config.read_only_log_paths)) or sorted(directories)
        self._last = (-1, "")

    def __call__(self, number: int) -> str:
        if self._last[0] != number:
            full = self.full_paths()
            taking = [path for path in self._directories if path not in full] or self._directories
            self._last = number, taking[number % len(taking)]
        return self._last[1]


def apply(
    plan: RecoveryPlan, parts: StoreParts, log_settled: Callable[[StoreParts, RecoveryPlan], object] | None = None
) -> list[str]:
    """Does what `plan` says, loads the parts, and leaves everything synced with the checkpoint written.

    `log_settled` is called once the log is on the disk, before anything of the queues is changed.
    Returns warnings.  Doing it again changes no byte.  Raises OSError from the disk, Corrupt where the store came out
    other than planned (it changed meanwhile); either way the next plan goes on from what is there.
    """
    parts.queues.leave_out({of: noted.log_end for of, noted in plan.deleted_topics})
    warnings = _settle_log(plan, parts)
    if log_settled is not None:
        log_settled(parts, plan)
    if plan.notes_deleted:
        save_deleted_topics(parts.fs, plan.root, dict(plan.deleted_topics))
    _cut_queues(plan, parts)
    _drop_index_files(plan, parts.fs)
    warnings += parts.queues.load(plan.known)
    if parts.index is not None:
        warnings += parts.index.load()
        if plan.index_partial is not None:
            _complete_record(plan.index_partial, plan, parts.log, parts.index)
    if plan.dispatch_from is not None:
        _dispatch(plan, parts)
    parts.queues.correct_min(plan.log_start)
    if not plan.changes_nothing:
        _flush(parts)
        _write_checkpoint(plan, parts)
    _compare(plan, parts.queues)
    return warnings


def _settle_log(plan: RecoveryPlan, parts: StoreParts) -> list[str]:
    """The log ends where it should, durably, with zeros after it."""
    for resized in plan.log_resized:
        file = parts.fs.open(resized.path)
        file.write(resized.old_size, bytes(min(resized.new_size - resized.old_size, len(_ZEROS))))
        file.truncate(resized.new_size)
        file.sync()
    warnings = parts.log.load()
    log, end = parts.log, plan.log_end
    if not log.starts or (plan.is_clean_exit and plan.changes_nothing):
        return warnings
    if not plan.is_clean_exit:
        log.sync(plan.scan_start, end)
    if end > log.start:
        log.cut(end)
        return warnings
    if plan.zeroed is not None:
        for position in range(*plan.zeroed, len(_ZEROS)):
            log.write(position, _ZEROS[: plan.zeroed[1] - position])
    log.sync(end, end + 1)
    if len(log.starts) > 1:
        log.cut(log.starts[1])
    return warnings


def _cut_queues(plan: RecoveryPlan, parts: StoreParts) -> None:
    """Files that are in the way go, then entries that do not stay, newest first; then directories left empty."""
    whole = parts.queues.kinds
    for queue in plan.queues:
        end = None if queue.keep is None else queue.keep * QUEUE_ENTRY.size
        _cut_files(queue, end, parts, parts.queue_file_size)
    for queue in plan.batch_queues:
        end = None if queue.keep is None else queue.keep * BATCH_QUEUE_ENTRY.size
        _cut_files(queue, end, parts, whole.batch_file_size)
    for extension in plan.extensions:
        _cut_files(extension, extension.end, parts, whole.extension_file_size)
    emptied = [queue.directory for queue in plan.all_queues if queue.is_changed and queue.keep is None]
    emptied += [extension.directory for extension in plan.extensions if extension.is_changed and extension.end is None]
    _remove_empty([*emptied, *plan.empty_directories], parts.fs)


def _cut_files(planned: PlannedQueue | PlannedExtension, end: int | None, parts: StoreParts, file_size: int) -> None:
    """Drops what is planned to go from the files of one queue: from byte `end` on, all where it is None."""
    for file in reversed(planned.removed_files):
        with suppress(FileNotFoundError):
            parts.fs.remove(file.path)
    if planned.removed_files:
        parts.fs.sync_directory(planned.directory)
    if planned.must_cut:
        files = FileSequence(parts.fs, parts.handles, [planned.directory], file_size)
        files.load()
        end = files.start if end is None else end
        files.cut(-(-end // file_size) * file_size)  # whole files first: after one that is not full they would count
        files.cut(end)


def _remove_empty(directories: Sequence[str], fs: FileSystem) -> None:
    """Removes the directories of queues, then those of their topics, as far as nothing lies in them."""
    for paths in (directories, dict.fromkeys(map(directory_of, directories))):
        gone = [path for path in dict.fromkeys(paths) if _removed_empty(path, fs)]
        for above in dict.fromkeys(map(directory_of, gone)):
            fs.sync_directory(above)


def _removed_empty(path: str, fs: FileSystem) -> bool:
    if fs.entries(path) or not fs.exists(path) or fs.is_apart(path):  # a link, or a mount point, stays
        return False
    fs.remove_directory(path)
    return True


def _drop_index_files(plan: RecoveryPlan, fs: FileSystem) -> None:
    """Newest first, and each before the next: what stays is always the beginning."""
    for file in plan.index_deleted:
        with suppress(FileNotFoundError):
            fs.remove(file.path)
        fs.sync_directory(directory_of(file.path))


class _RestOfRecord(RecordBatch):
    """A batch of one record of whose index items the first `skipped` are in the index already."""

    skipped = 0

    def index_items(self, with_tags: bool = False) -> tuple[Ints, Ints]:
        """The items that are not there yet."""
        rows, hashes = super().index_items(with_tags)
        return rows[self.skipped :], hashes[self.skipped :]


def _complete_record(partial: tuple[int, int], plan: RecoveryPlan, log: FileSequence, index: IndexLog) -> None:
    """Puts the keys of a record that the file before had no room for, or that a crash left out."""
    offset, held = partial
    walk = read_batches(
        log.read, offset, plan.log_end, log.file_size, window_size=message.BLANK.size, framing=plan.framing
    )
    found = next(walk, None)
    if not isinstance(found, RecordBatch):
        raise StoreDamaged(log.path_of(offset), offset % log.file_size, "the record that the index ends with is gone")
    rest = _RestOfRecord(found.offsets, found.located, found.end)
    rest.skipped = held
    index.end_offset = offset - 1
    index.dispatch(rest)


def _dispatch(plan: RecoveryPlan, parts: StoreParts) -> None:
    """Hands the records of the plan to all dispatchers; after each log file what is done becomes durable, so that a
    recovery that is killed again and again gets further each time."""
    begins = {(queue.topic, queue.queue_id): queue.begin_offset for queue in plan.all_queues if queue.begin_offset}
    newest_ms, present_file = 0, None
    for records in _records(plan, parts.log):
        file = int(records.offsets[0]) // parts.log.file_size
        if present_file not in (None, file):
            _flush(parts)
            _note_progress(plan, parts.checkpoint, newest_ms)
        newest_ms, present_file = int(records.store_ms[-1]), file
        for_queues = _for_queues(records, begins)
        if for_queues is not None:
            parts.queues.dispatch(for_queues)
        if parts.index is not None:
            parts.index.dispatch(records)
        for dispatcher in parts.further:
            assert isinstance(records, RecordBatch)  # nothing is kept of the first reading where it is asked for more
            dispatcher.dispatch(records)


def _records(plan: RecoveryPlan, log: FileSequence) -> Iterator[Records]:
    """The records that the plan kept, then those of the log.  Raises Corrupt where the log is not as it was planned
    with.
    """
    start = plan.dispatch_from
    assert start is not None
    for records in plan.seen.records:
        yield records
        start = records.end
    for item in read_batches(
        log.read, start, plan.log_end, log.file_size, places=plan.seen.places, framing=plan.framing
    ):
        if isinstance(item, message.Torn):
            reason = f"changed meanwhile: {item.reason}"
            raise StoreDamaged(log.path_of(item.position), item.position % log.file_size, reason)
        if isinstance(item, RecordBatch):
            yield item


def _note_progress(plan: RecoveryPlan, checkpoint: CheckpointFile, newest_ms: int) -> None:
    """Lets a recovery that comes after a crash of this one begin later; times never go back but to what is true."""
    for name in ("physic_timestamp_ms", "logics_timestamp_ms"):
        present, last_ms = getattr(checkpoint.values, name), getattr(plan.checkpoint_after, name)
        if not present <= newest_ms <= last_ms and present <= last_ms:
            continue
        checkpoint.update(**{name: min(newest_ms, last_ms)})
    checkpoint.flush()


def _for_queues(records: Records, begins: dict[tuple[str, int], int]) -> Records | None:
    """The records without those that come before their queue begins; None if none is left."""
    if not begins or int(records.offsets[0]) >= max(begins.values()):
        return records
    topics, numbers = records.topics
    dropped: Mask = np.zeros(len(records), bool)
    for (topic, queue_id), begin in begins.items():
        if topic in topics:
            of_queue = (numbers == topics.index(topic)) & (records.queue_ids == queue_id)
            dropped |= of_queue & (records.offsets < begin)
    if not dropped.any():
        return records
    rows = np.flatnonzero(~dropped)
    return records.take(rows) if len(rows) else None


def _flush(parts: StoreParts) -> None:
    for dispatcher in parts.dispatchers:
        dispatcher.flush()


def _write_checkpoint(plan: RecoveryPlan, parts: StoreParts) -> None:
    """All is on the disk: the log up to its end, and with it queues and index, its newest file included."""
    after = plan.checkpoint_after
    index_ms = after.index_timestamp_ms if parts.index is None else _index_end_ms(parts.fs, plan.root, parts.index)
    parts.checkpoint.update(
        physic_timestamp_ms=after.physic_timestamp_ms,
        logics_timestamp_ms=after.logics_timestamp_ms,
        index_timestamp_ms=index_ms,
        confirm_offset=after.confirm_offset,
        logics_physical_offset=after.logics_physical_offset,
    )
    parts.checkpoint.flush()


def _index_end_ms(fs: FileSystem, root: str, index: IndexLog) -> int:
    """Store time of the newest item in the index; 0 without any."""
    for file in reversed(index.files):
        header = read_header(fs.open(join(root, INDEX_ROOM, file.name)).read(0, HEADER.size))
        if header is not None and header.index_count > 1:
            return header.end_timestamp_ms
    return 0


def _compare(plan: RecoveryPlan, queues: QueueTable) -> None:
    """Raises Corrupt where a queue does not end where the plan says."""
    planned, found = plan.next_offsets(), queues.next_offsets()
    for key, end in planned.items():
        if found.get(key, 0) != end:
            directory = next(queue.directory for queue in plan.all_queues if (queue.topic, queue.queue_id) == key)
            reason = f"the queue came out with its end at {found.get(key, 0)}, planned was {end}"
            raise StoreDamaged(directory, 0, reason)
