"""The directory itself: names and lengths of files, gaps, files that hold nothing, checkpoint and configuration."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from rmqstore.directory import config_files
from rmqstore.directory.deleted_topics import MAY_COME_BACK
from rmqstore.directory.layouts import is_database, is_since_5_4, logs_below
from rmqstore.directory.listing import directories, seen_entries, usual_size
from rmqstore.directory.queue_files import QueueFiles
from rmqstore.errors import Corrupt, Rejected
from rmqstore.files.disk import DirectoryEntry, ReadableDisk, StoredFile, join, read_part, read_small
from rmqstore.files.zeros import is_blank
from rmqstore.formats import broker_json, checkpoint, message, names
from rmqstore.formats.deleted_topics import DELETED_TOPICS_FILE, deleted_topics_in
from rmqstore.snapshot.finding import DAMAGE, NOTE, Finding
from rmqstore.snapshot.survey.extents import StoreExtent

# A crash or a copy of a running broker leaves the checkpoint this far ahead of the log without harm.
_AHEAD_MS = 60_000
# The words of survey for a tail where nothing was written.
_SIZE_MAX = 64 * 1024 * 1024


@dataclass(slots=True)
class LogTimes:
    """Store times in ms: the latest of all sound records, and that of the last one that belongs to a queue, which is an
    earlier one where the clock was set back; 0 without any."""

    newest_ms: int = 0
    dispatched_ms: int = 0

    def add(self, newest_ms: int, dispatched_ms: int | None) -> None:
        """Takes the times of one more stretch; None where none of it belongs to a queue."""
        self.newest_ms = max(self.newest_ms, newest_ms)
        self.dispatched_ms = self.dispatched_ms if dispatched_ms is None else dispatched_ms


def file_findings(store: StoreExtent) -> Iterator[Finding]:
    """Commitlog, queue and index files by name and length, and whether they hold anything."""
    yield from _log_findings(store)
    queues = [queue.files for queue in store.queues.values()]
    for kind in sorted({queue.kind for queue in queues}):
        of_kind = [queue for queue in queues if queue.kind == kind and store.disk.is_directory(queue.directory)]
        size = usual_size([queue.files for queue in of_kind])
        for queue in of_kind:
            yield from _queue_series(queue, size)
            yield from _empty_queue_findings(queue, store.lock_held)
    yield from _index_names(store)


def _log_findings(store: StoreExtent) -> Iterator[Finding]:
    size = usual_size([store.log_files])
    for directory in (*logs_below(store.disk, store.path), *store.extra_logs):
        yield from _entries_findings(store.disk, directory, size, "commitlog")
        yield from _doubles(store, directory)
    if not store.log_files:
        if any(queue.entry_end > queue.entry_start or queue.files.files for queue in store.queues.values()):
            reason = "there is no commitlog file, while queues have entries; RocketMQ would delete the queues"
            yield Finding(join(store.path, "commitlog"), 0, reason)
        return
    for file in store.log_files:
        if file.is_wrapped:
            continue  # `ledger_findings` tells
        damage = next((found for found in store.damage if found.path == file.path), None)
        if file.start >= store.log_end and damage is not None:
            yield Finding(file.path, damage.position, damage.reason)
        elif file.start >= store.log_end:
            empty = is_blank(store.disk, file.path, 0, file.size)
            reason = "made in advance, holds nothing yet" if empty else "holds bytes, but no sound record"
            yield Finding(file.path, 0, reason, NOTE)
        elif file.end > store.log_end and (store.tail is None or store.tail.reason == message.NO_DATA):
            position = store.log_end - file.start
            if not _ends_here(store.disk, file, position):
                yield Finding(file.path, position, "old bytes stand after the end of the log", NOTE)


def _doubles(store: StoreExtent, directory: str) -> Iterator[Finding]:
    """Files for the same part of the log as one of another directory, which is read instead."""
    read = {} if store.ledger is not None else {file.start: file.path for file in store.log_files}
    for entry in seen_entries(store.disk, directory):
        start, path = names.parse_start(entry.name), join(directory, entry.name)
        if start is not None and not entry.is_directory and read.get(start, path) != path:
            reason = f"{read[start]} is for the same part of the log, and is the file that is read"
            yield Finding(path, 0, f"{reason}; a writer opens no store with both")


def _ends_here(disk: ReadableDisk, file: StoredFile, position: int) -> bool:
    """Whether nothing but the blank record at the end of a file, or nothing at all, stands from `position` on."""
    head = read_part(disk, file.path, position, message.BLANK.size)
    is_end = isinstance(message.read_record(head, 0), message.Blank)
    return is_end or is_blank(disk, file.path, position, file.size)


def _queue_series(queue: QueueFiles, size: int) -> Iterator[Finding]:
    yield from _entries_findings(queue.disk, queue.directory, size, "queue")
    for file, later in pairwise(queue.files):
        if size and later.start - file.start != size:
            apart = later.start - file.start > size
            reason = "queue files are missing before this one" if apart else "this file overlaps the one before"
            yield Finding(later.path, 0, reason)


def _entries_findings(disk: ReadableDisk, directory: str, size: int, what: str) -> Iterator[Finding]:
    """Names and lengths that RocketMQ refuses to start on."""
    for entry in seen_entries(disk, directory):
        yield from _entry_findings(entry, join(directory, entry.name), size, what)


def _entry_findings(entry: DirectoryEntry, path: str, size: int, what: str) -> Iterator[Finding]:
    if entry.is_directory:
        yield Finding(path, 0, f"a directory among the {what} files; RocketMQ before 5.1 does not start on it", NOTE)
    elif names.parse_start(entry.name) is None:
        yield Finding(path, 0, f"a stray file among the {what} files: RocketMQ does not start on it")
    elif entry.size == 0:
        yield Finding(path, 0, f"an empty {what} file: RocketMQ before 5.1.3 does not start on it")
    elif entry.size != size:
        yield Finding(path, entry.size, f"{entry.size} bytes long, the others {size}: RocketMQ does not start on it")


def _empty_queue_findings(queue: QueueFiles, lock_held: bool) -> Iterator[Finding]:
    """All-zero files.  Alone, or right after a full file, RocketMQ reads a message out of one that is not there."""
    end = queue.written_end() * queue.layout.size
    for number, file in enumerate(queue.files):
        if file.start < end or not is_blank(queue.disk, file.path, 0, file.size):
            continue
        stumbles = number == 0 or end == file.start
        reason = (
            "all zero: RocketMQ counts a message here that does not exist" if stumbles else "all zero, never written"
        )
        yield Finding(file.path, 0, reason, DAMAGE if stumbles and not lock_held else NOTE)


def _index_names(store: StoreExtent) -> Iterator[Finding]:
    directory = join(store.path, "index")
    entries = seen_entries(store.disk, directory)
    sizes = Counter(entry.size for entry in entries if names.parse_index_name(entry.name) is not None)
    for entry in entries:
        path = join(directory, entry.name)
        if names.parse_index_name(entry.name) is None or entry.is_directory:
            yield Finding(path, 0, "not an index file; RocketMQ passes over it", NOTE)
        elif entry.size != sizes.most_common(1)[0][0]:
            yield Finding(path, entry.size, f"{entry.size} bytes long, the others {sizes.most_common(1)[0][0]}")


def checkpoint_findings(store: StoreExtent, times: LogTimes, index_ends_ms: Sequence[int]) -> Iterator[Finding]:
    """The checkpoint against the newest records and the full index files: a recovery starts from its times."""
    path = join(store.path, "checkpoint")
    data = read_small(store.disk, path, checkpoint.FILE_SIZE + 1, past_directories=True)
    if data is None:
        derived = any(queue.files.files for queue in store.queues.values()) or index_ends_ms
        if store.log_files or derived:
            reason = "there is no checkpoint; after a crash RocketMQ reads the whole commitlog again"
            yield Finding(path, 0, reason, DAMAGE if derived or not store.is_live else NOTE)
        return
    if len(data) != checkpoint.FILE_SIZE:
        yield Finding(path, len(data), f"{len(data)} bytes long instead of {checkpoint.FILE_SIZE}")
    if times.newest_ms:
        yield from _checkpoint_times(store, path, checkpoint.read_checkpoint(data), times, index_ends_ms)


def _checkpoint_times(
    store: StoreExtent, path: str, known: checkpoint.Checkpoint, times: LogTimes, index_ends_ms: Sequence[int]
) -> Iterator[Finding]:
    for name in ("physic_timestamp_ms", "logics_timestamp_ms", "index_timestamp_ms"):
        ahead_ms = getattr(known, name) - times.newest_ms
        position = checkpoint.CHECKPOINT.offset[name]
        if ahead_ms > 0 and not store.lock_held:
            harmless = ahead_ms <= _AHEAD_MS
            reason = f"{name} is {ahead_ms} ms later than the newest message"
            yield Finding(path, position, reason, NOTE if harmless else DAMAGE)
    if known.confirm_offset > max(file.end for file in store.log_files):
        yield Finding(path, checkpoint.CHECKPOINT.offset["confirm_offset"], "confirm_offset lies past the commitlog")
    if known.logics_physical_offset > store.log_end and not store.lock_held:
        reason = f"logicsPhysicalOffset {known.logics_physical_offset} lies past the log's end at {store.log_end}: "
        reason += "after a kill RocketMQ 5.5 would not look for what the queues lack in front of it"
        position = checkpoint.CHECKPOINT.offset["logics_physical_offset"]
        yield Finding(path, position, reason, NOTE if store.abort_present else DAMAGE)
    behind_ms = times.dispatched_ms - known.logics_timestamp_ms
    if not store.is_live and store.queue_layout == "file" and behind_ms > 0:
        reason = f"logics_timestamp_ms ends {behind_ms} ms before the last message, though there is no file abort: "
        is_usual = is_since_5_4(store.disk, store.path)
        if is_usual:
            reason += "RocketMQ 5.5 sets it once a minute, and not when it is stopped"
        else:
            reason += "the store was not stopped cleanly, and RocketMQ will not look for what is missing"
        position = checkpoint.CHECKPOINT.offset["logics_timestamp_ms"]
        yield Finding(path, position, reason, NOTE if is_usual else DAMAGE)
    # The last full index file may just be on its way to disk; the one before it is there for sure.
    if (
        store.is_live
        and not store.lock_held
        and len(index_ends_ms) > 2
        and known.index_timestamp_ms < min(index_ends_ms[-3:])  # the clock may have been set back
    ):
        reason = "index_timestamp_ms is older than index files that are full: after a kill they are built again"
        severity = NOTE if known.index_timestamp_ms or known.physic_timestamp_ms else DAMAGE  # zeros were never written
        yield Finding(path, checkpoint.CHECKPOINT.offset["index_timestamp_ms"], reason, severity)


_SHAPES: dict[str, Callable[[Any], object]] = {
    "topics.json": broker_json.topic_configs,
    "consumerOffset.json": broker_json.consumer_offsets,
    "lmqConsumerOffset.json": broker_json.consumer_offsets,
    "subscriptionGroup.json": broker_json.subscription_groups,
    "delayOffset.json": broker_json.delay_offsets,
    DELETED_TOPICS_FILE: deleted_topics_in,
}


def config_findings(store: StoreExtent) -> Iterator[Finding]:
    """Configuration files that do not parse, databases that cannot be read, and groups that have consumed what the log
    does not hold.
    """
    directory = join(store.path, "config")
    for entry in seen_entries(store.disk, directory):
        if entry.is_directory:
            yield from _database_findings(store, join(directory, entry.name), "tables")
        name = entry.name.removesuffix(".bak")
        if not name.endswith(".json"):
            continue
        path = join(directory, entry.name)
        if entry.is_directory:
            if name in _SHAPES:
                yield Finding(path, 0, "a directory where a table belongs: the table is empty", NOTE)
            continue
        data = read_small(store.disk, path, _SIZE_MAX, past_directories=True) or b""
        broken, odd = _json_faults(data, _SHAPES.get(name))
        for reason in odd:
            yield Finding(path, 0, reason, NOTE)
        if broken:
            spare = entry.name != name or store.lock_held
            consequence = "" if spare else _without(store, name)
            yield Finding(path, broken[0], broken[1] + consequence, NOTE if spare else DAMAGE)
    for (group, topic), offsets in config_files.consumer_offsets(store.disk, store.path).items():
        for queue_id, offset in offsets.items():
            queue = store.queues.get((topic, queue_id))
            if queue is not None and offset > queue.max_offset:
                reason = f"group {group} is at offset {offset} of {topic}/{queue_id}, which ends at {queue.max_offset}"
                yield Finding(directory, 0, reason, NOTE)


def database_findings(store: StoreExtent) -> Iterator[Finding]:
    """Databases that cannot be read, beside the queues and in their place: RocketMQ does not start on them."""
    kept = {
        names.PLAIN_ROOM: "queues",
        names.SEPARATE_ROOM: "queues",
        names.ROCKSDB_ROOM: "index, timers and transactions",
        names.POP_ROOM: "what POP consumers took",
    }
    for room, what in kept.items():
        path = join(store.path, room)
        below = directories(store.disk, path) if room == names.POP_ROOM else ()
        for each in (path, *(place for _, place in below)):
            yield from _database_findings(store, each, what)


def _database_findings(store: StoreExtent, path: str, what: str) -> Iterator[Finding]:
    """Whether the directory is a RocksDB database, which keeps `what`, and cannot be read."""
    if not is_database(store.disk, path):
        return
    from rmqstore.files import rocksdb  # noqa: PLC0415  few brokers keep anything there

    try:
        damage = rocksdb.damage_of(path)
    except Rejected as missing:
        yield Finding(path, 0, f"{what} in RocksDB, which were not looked at; {missing}", NOTE)
        return
    if damage is not None:
        yield Finding(path, 0, f"{damage}; {rocksdb.MEND}", NOTE if store.lock_held else DAMAGE)


def _shaped(shape: Callable[[Any], object], document: Any) -> object:
    return shape(document), broker_json.data_version(document)


def _without(store: StoreExtent, name: str) -> str:
    """The words for what a store loses with a table."""
    if name == DELETED_TOPICS_FILE:
        return f"; {MAY_COME_BACK}"
    backup = store.disk.exists(join(store.path, "config", f"{name}.bak"))
    return f"; RocketMQ reads {name}.bak instead" if backup else "; there is no .bak, so the table is empty"


def _json_faults(data: bytes, shape: Callable[[Any], object] | None) -> tuple[tuple[int, str] | None, Sequence[str]]:
    """Where and why a file cannot be read, and why entries of it are passed over."""
    if not data.strip():
        return (0, "empty"), ()
    try:
        document = broker_json.parse(data)
        odd = [] if shape is None else list(broker_json.sifted(document, partial(_shaped, shape)).reasons)
        return None, odd if broker_json.is_utf8(data) else [*odd, "bytes that are no UTF-8, which read as \ufffd"]
    except Corrupt as error:
        return (error.offset, error.reason), ()
