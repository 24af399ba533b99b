"""Whole batches added exactly once: what is durable before, while and after the records of a batch go into the log.

In this order, each step durable before the next: the staged parts; the intent, which says where in the log the batch
begins and what it consists of; the records; the writer's record that the batch is in; the intent goes; the staged parts
go.  Until the writer's record is there nothing but the log holds anything of the batch: no queue entry, no index item,
no checkpoint.  So the next opening of the store can tell from the log alone what became of a batch that has an intent
(`settle_batches`): either all of it is in, or it is cut off, and the writer brings it again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqstore.engine.log.encode.columns import EncodedColumns
from rmqstore.engine.log.recovery.apply import StoreParts
from rmqstore.engine.log.recovery.plan import RecoveryPlan
from rmqstore.engine.log.staging.staged_parts import read_part, read_parts, unstamp
from rmqstore.errors import Corrupt, StoreError
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.files.replace import replace_file
from rmqstore.formats import sys_flag
from rmqstore.formats.message import Blank
from rmqstore.formats.message_columns import Bytes
from rmqstore.formats.sink_files import (
    COMMITTED_FILE,
    INTENT_FILE,
    JSON_SIZE_MAX,
    SINK_DIRECTORY,
    BatchIntent,
    CommittedBatch,
    StagedPart,
    batch_name,
    is_writer_id,
    running_crc,
)
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches

_CHUNK_SIZE = 1024 * 1024
_ZEROS = bytes(_CHUNK_SIZE)


class BatchInDoubt(StoreError):
    """A batch was cut short, and what follows its beginning is not its own: an operator has to decide.

    `path` is the intent, `start` where the batch begins in the log, `log_end` where the log ends.
    """

    def __init__(self, path: str, batch_id: int, start: int, log_end: int, reason: str) -> None:
        super().__init__(path, batch_id, start, log_end, reason)
        self.path, self.batch_id, self.start, self.log_end, self.reason = path, batch_id, start, log_end, reason

    def _line(self) -> str:
        return (
            f"{self.path}: batch {self.batch_id} is not whole in [{self.start}, {self.log_end}) of the commitlog, and "
            f"{self.reason}; look at the messages there, then remove this file: the batch comes again as a whole, and "
            "what is there of it stays"
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows that one writer adds in one step: its parts, in the order in which their rows go into the log.

    `is_lasting`: the writer may bring the batch again at any time, as a query does that starts from its checkpoint.
    """

    writer_id: str
    batch_id: int
    parts: tuple[StagedPart, ...]
    is_lasting: bool = True


class BatchLog(Protocol):
    """The log of an open store as a commit needs it; nobody else puts meanwhile."""

    @property
    def end(self) -> int:
        """Where the next record, or the blank in front of it, goes; all before it is on the disk."""

    def append(self, encoded: EncodedColumns) -> None:
        """Puts rows after what is there, all of them.  Raises StoreError."""

    def sync(self) -> None:
        """Makes what was appended durable.  Raises StoreError."""


def writer_directory(root: str, writer_id: str) -> str:
    """Where a writer keeps everything in the store at `root`."""
    return join(root, SINK_DIRECTORY, writer_id)


def staging_directory(root: str, writer_id: str, batch_id: int) -> str:
    """Where the parts of a batch wait."""
    return join(writer_directory(root, writer_id), batch_name(batch_id))


def committed_batch(fs: FileSystem, root: str, writer_id: str) -> CommittedBatch | None:
    """The last batch of a writer that is in the log; None for a writer without any.  Raises Corrupt, OSError."""
    path = join(writer_directory(root, writer_id), COMMITTED_FILE)
    data = _content(fs, path)
    try:
        return None if data is None else CommittedBatch.from_json(data)
    except ValueError as error:
        raise Corrupt(path, 0, str(error)) from None


def record_committed(fs: FileSystem, root: str, committed: CommittedBatch) -> None:
    """Makes the record of a batch durable.  Raises OSError."""
    directory = writer_directory(root, committed.writer_id)
    fs.make_directories(directory)
    replace_file(fs, join(directory, COMMITTED_FILE), committed.to_json())


def writers(fs: FileSystem, root: str) -> list[str]:
    """All who keep something in the store."""
    entries = fs.entries(join(root, SINK_DIRECTORY))
    return [entry.name for entry in entries if entry.is_directory and is_writer_id(entry.name)]


def pending_intents(fs: FileSystem, root: str) -> list[BatchIntent]:
    """The batches whose fate is open, in the order of the log.  Raises Corrupt, OSError."""
    found = []
    for writer_id in writers(fs, root):
        path = join(writer_directory(root, writer_id), INTENT_FILE)
        data = _content(fs, path)
        if data is None:
            continue
        try:
            intent = BatchIntent.from_json(data)
        except ValueError as error:
            raise Corrupt(path, 0, str(error)) from None
        if intent.writer_id != writer_id:
            raise Corrupt(path, 0, f"an intent of the writer {intent.writer_id}")
        found.append(intent)
    return sorted(found, key=lambda intent: intent.start)


def has_intent(fs: FileSystem, root: str, writer_id: str) -> bool:
    """Whether the fate of a writer's batch is open."""
    return fs.exists(join(writer_directory(root, writer_id), INTENT_FILE))


def covers(committed: CommittedBatch | None, batch_id: int) -> bool:
    """Whether a batch needs not be added any more."""
    return committed is not None and batch_id <= committed.batch_id


def commit_batch(fs: FileSystem, root: str, batch: Batch, log: BatchLog, *, has_crc: bool) -> bool:
    """Adds the batch to the log, unless it is in; whether it was added.  When it returns, it is there for good.

    When it raises (StoreError, OSError), the log may end in a part of the batch: let nobody see it, close the store as
    a crash would, and let the next opening settle it.  `has_crc`: the store's records end in the CRC property.
    """
    if covers(committed_batch(fs, root, batch.writer_id), batch.batch_id):
        return False
    staging = staging_directory(root, batch.writer_id, batch.batch_id)
    intent = BatchIntent(batch.writer_id, batch.batch_id, log.end, has_crc, batch.is_lasting, batch.parts)
    directory = writer_directory(root, batch.writer_id)
    fs.make_directories(directory)
    replace_file(fs, join(directory, INTENT_FILE), intent.to_json())
    for encoded in read_parts(fs, staging, batch.parts):
        log.append(encoded)
    log.sync()
    record_committed(fs, root, _committed(intent))
    _remove_intent(fs, root, intent)
    return True


def settle_batches(fs: FileSystem, plan: RecoveryPlan, parts: StoreParts) -> bool:
    """Decides what became of batches that were being added when the last writer ended: in as a whole, or not at all.

    For the opening of a store: after `plan` was made and the file abort is there, before the plan is applied.  True:
    the log was cut back, so that the plan holds no more and another one has to be made.  Raises BatchInDoubt with
    nothing changed, Corrupt, OSError.
    """
    intents = pending_intents(fs, plan.root)
    if intents:
        parts.log.load(repair=False)
    for intent in intents:
        found = _found_of(fs, plan, parts, intent)
        if found.is_whole:
            parts.log.sync(intent.start, plan.log_end)
            record_committed(fs, plan.root, _committed(intent))
        elif found.row_count:
            _cut_back(parts, intent.start, found.first_ms)
        _remove_intent(fs, plan.root, intent)
        if found.row_count and not found.is_whole:
            return True
    return False


@dataclass(slots=True)
class _Found:
    """The part of a batch that the log holds: its rows, the store time of the first, and whether that is all of it."""

    row_count: int = 0
    first_ms: int = 0
    is_whole: bool = False


def _found_of(fs: FileSystem, plan: RecoveryPlan, parts: StoreParts, intent: BatchIntent) -> _Found:
    """Compares the log from the intent's start on with the batch.  Raises BatchInDoubt."""
    found, match = _Found(), _Match(intent.parts)
    if intent.start >= plan.log_end:
        found.is_whole = match.is_whole
        return found
    path = join(writer_directory(plan.root, intent.writer_id), INTENT_FILE)
    if intent.start < plan.log_start:
        raise BatchInDoubt(path, intent.batch_id, intent.start, plan.log_end, "its beginning was deleted")
    for batch in _records(parts, intent.start, plan.log_end):
        found.first_ms = found.first_ms or int(batch.store_ms[0])
        match.feed(_unstamped(batch, intent.has_crc))
        if match.is_over:
            break
        found.row_count += len(batch)
    found.is_whole = match.is_whole
    if not match.is_whole:
        staging = staging_directory(plan.root, intent.writer_id, intent.batch_id)
        if match.differs or not match.is_beginning(fs, staging):
            reason = "what stands there is not the batch's alone"
            raise BatchInDoubt(path, intent.batch_id, intent.start, plan.log_end, reason)
    return found


def _records(parts: StoreParts, start: int, end: int) -> Iterator[RecordBatch]:
    for item in read_batches(parts.log.read, start, end, parts.log.file_size):
        if isinstance(item, RecordBatch):
            yield item
        elif not isinstance(item, Blank):
            path, position = parts.log.path_of(item.position), item.position % parts.log.file_size
            raise Corrupt(path, position, f"changed meanwhile: {item.reason}")


def _unstamped(batch: RecordBatch, has_crc: bool) -> Bytes:
    """The bytes of records as they were staged."""
    located = batch.located
    begin, end = int(located.starts[0]), int(located.starts[-1] + located.total_size[-1])
    data = located.page[begin:end].copy()
    starts = located.starts - begin
    is_v6 = located.flags & sys_flag.BORN_HOST_V6 != 0
    unstamp(data, starts, starts + located.total_size, is_v6, has_crc)
    return data


class _Match:
    """Holds bytes of records, as they come, against the parts of a batch."""

    def __init__(self, parts: Sequence[StagedPart]) -> None:
        self._parts = [part for part in parts if part.record_size]
        self._number = self._taken = self._crc = 0
        self.differs = False

    @property
    def is_whole(self) -> bool:
        """Whether all parts were there."""
        return self._number == len(self._parts)

    @property
    def is_over(self) -> bool:
        """Whether further bytes say nothing."""
        return self.differs or self.is_whole

    def feed(self, data: Bytes) -> None:
        """Takes the next bytes; those after the last part are of no interest."""
        while len(data) and not self.is_over:
            part = self._parts[self._number]
            taken = data[: part.record_size - self._taken]
            self._crc = running_crc(taken, self._crc)
            self._taken += len(taken)
            data = data[len(taken) :]
            if self._taken == part.record_size:
                self.differs = self._crc != part.checksum
                self._number += not self.differs
                self._taken = self._crc = 0

    def is_beginning(self, fs: FileSystem, staging: str) -> bool:
        """Whether what came of the present part is what that part begins with; False where its file cannot tell."""
        left, crc = self._taken, 0
        if not left:
            return True
        try:
            for encoded in read_part(fs, staging, self._parts[self._number]):
                crc = running_crc(encoded.data[:left], crc)
                left -= min(left, len(encoded.data))
                if not left:
                    break
        except Corrupt:
            return False
        return crc == self._crc


def _cut_back(parts: StoreParts, start: int, first_ms: int) -> None:
    """Ends the log at `start`, durably; after a crash at any point it ends there or still holds a beginning of what it
    held, and nothing says that more was on the disk.
    """
    times = {name: getattr(parts.checkpoint.values, name) for name in _TIMES}
    if max(times.values()) >= first_ms:  # another writer opened the store meanwhile
        offset = min(parts.checkpoint.values.logics_physical_offset, max(start - 1, 0))
        earlier = {name: min(ms, max(first_ms - 1, 0)) for name, ms in times.items()}
        parts.checkpoint.update(**earlier, logics_physical_offset=offset)
        parts.checkpoint.flush()
    log = parts.log
    for file_start in reversed(log.starts):
        if file_start > start:
            log.cut(file_start)
    if not log.holds(start):
        return
    file, position = log.file_of(start), start - log.starts[-1]
    for low, high in file.data_ranges(position):
        for at in range(low, high, _CHUNK_SIZE):
            file.write(at, _ZEROS[: min(_CHUNK_SIZE, high - at)])
    file.sync()


_TIMES = ("physic_timestamp_ms", "logics_timestamp_ms", "index_timestamp_ms")


def _committed(intent: BatchIntent) -> CommittedBatch:
    return CommittedBatch(intent.writer_id, intent.batch_id, intent.row_count, intent.is_lasting)


def _remove_intent(fs: FileSystem, root: str, intent: BatchIntent) -> None:
    directory = writer_directory(root, intent.writer_id)
    fs.remove(join(directory, INTENT_FILE))
    fs.sync_directory(directory)


def _content(fs: FileSystem, path: str) -> bytes | None:
    if not fs.exists(path):
        return None
    file = fs.open(path)
    return file.read(0, min(file.size(), JSON_SIZE_MAX + 1))
