"""Batches of messages added to a store exactly once: tasks stage parts in parallel, one process commits them.

    writer = stage_part(path, "job-1", 7, 0, 0, config)      # in each task
    writer.add(arrow_batch)
    part = writer.finish()
    append_once(path, Batch("job-1", 7, (part,)), config)    # once they are done; and again, if need be

A batch is named by its writer and a number that rises; a batch that is in, or one of a lower number, is not added
again.  The store belongs to this engine meanwhile: one that a broker or another writer holds is refused.
"""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.config import StoreConfig
from rmqstore.core.message import PutStatus
from rmqstore.directory.store_root import require_replaceable, require_room
from rmqstore.engine.engine import Engine
from rmqstore.engine.log.encode.columns import EncodedColumns, record_blocks
from rmqstore.engine.log.encode.queue_choice import QueueChoice
from rmqstore.engine.log.opening import mark_open
from rmqstore.engine.log.put.appender import record_form
from rmqstore.engine.log.put.deferred_put import light_rows
from rmqstore.engine.log.recovery.apply import open_parts
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.engine.log.staging.committed_batches import (
    Batch,
    BatchInDoubt,
    commit_batch,
    committed_batch,
    covers,
    has_intent,
    pending_intents,
    record_committed,
    settle_batches,
    staging_directory,
    writers,
)
from rmqstore.engine.log.staging.staged_parts import PartWriter, read_parts
from rmqstore.engine.log.staging.swap import clear_new, finish_swap, swap
from rmqstore.engine.log.staging.sweep import sweep
from rmqstore.engine.log.staging.write_behind import WriteBehind
from rmqstore.errors import NotNow, Rejected, StoreError, StoreInUse
from rmqstore.files.filesystem import FileSystem, RealFileSystem, join
from rmqstore.files.ownership import Ownership
from rmqstore.files.reading import canonical_path, is_locked
from rmqstore.formats import names
from rmqstore.formats.sink_files import CommittedBatch, StagedPart, is_writer_id

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Batch", "BatchInDoubt", "StagedPart", "StagingTask", "append_once", "discard", "last_batch", "make_store",
    "overwrite_once", "require_free", "settle_store", "stage_part",
]  # fmt: skip


class StagingTask:
    """The rows of one task on their way into its staged part; one thread.

    `add` takes them as `Store.put_columns` does; rows without a queue get one of `queue_count`, by their keys or in
    turn.
    """

    def __init__(self, part: PartWriter, config: StoreConfig, choice: QueueChoice, clock: Clock) -> None:
        self._part = part
        self._form = record_form(config)
        self._level_count = len(config.delay_ms())
        self._choice = choice
        self._clock = clock

    def add(self, rows: "pa.RecordBatch") -> None:
        """Encodes and writes rows.  Raises Rejected for what makes no messages, OSError."""
        chosen = self._choice.queued(rows)
        for block in record_blocks(chosen, self._form, self._clock.now_ms(), level_count=self._level_count):
            self._part.add(block)

    def finish(self) -> StagedPart:
        """Makes the part durable, and says what it is.  Raises OSError."""
        return self._part.finish()

    def discard(self) -> None:
        """Takes everything back."""
        self._part.discard()


def stage_part(
    path: str,
    batch: tuple[str, int],
    task: tuple[int, int],
    config: StoreConfig,
    queue_count: int,
    *,
    clock: Clock = SYSTEM_CLOCK,
    filesystem: FileSystem | None = None,
) -> StagingTask:
    """Begins the part of one task: `batch` is writer and number, `task` partition and attempt.

    Raises Rejected, NotAStore for a place where no store can be.
    """
    writer_id, batch_id = _checked(*batch)
    fs, root = filesystem or RealFileSystem(), canonical_path(path)
    _require_plain(config)
    require_room(fs, root, config.log_paths)
    finish_swap(fs, root)
    part = PartWriter(fs, staging_directory(root, writer_id, batch_id), *task)
    return StagingTask(part, config, QueueChoice(queue_count, task[0]), clock)


def last_batch(path: str, writer_id: str, *, filesystem: FileSystem | None = None) -> int | None:
    """The number of the last batch of a writer that the store holds: no batch up to it is added; None before the first.

    Raises Rejected for what is no writer's name, Corrupt.
    """
    _checked(writer_id, 0)
    committed = committed_batch(filesystem or RealFileSystem(), canonical_path(path), writer_id)
    return None if committed is None else committed.batch_id


def make_store(
    path: str,
    config: StoreConfig | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    filesystem: FileSystem | None = None,
) -> None:
    """Makes a store without messages where there is none.  Raises StoreInUse, StoreError as `open_store`, OSError."""
    fs, root = filesystem or RealFileSystem(), canonical_path(path)
    if not fs.exists(join(root, names.LOG_ROOM)):
        Engine(root, _quiet(config), clock, fs, threads=False).close()


def append_once(
    path: str,
    batch: Batch,
    config: StoreConfig | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    filesystem: FileSystem | None = None,
) -> bool:
    """Adds a batch after what the store holds, unless it is in; whether it was added.

    Raises StoreInUse, NotNow (no room on the disk, say), BatchInDoubt, StoreError as `open_store`, OSError: then the
    batch is not in, or the next call finds that it is.
    """
    _checked(batch.writer_id, batch.batch_id)
    fs, root, config = filesystem or RealFileSystem(), canonical_path(path), _quiet(config)
    settle_store(root, config, clock=clock, filesystem=fs)
    engine = Engine(root, config, clock, fs, threads=False)
    log = _EngineLog(engine)
    try:
        added = commit_batch(fs, root, batch, log, has_crc=config.append_property_crc)
    except (StoreError, OSError):
        log.let_go()
        engine.abandon()
        with suppress(StoreError, OSError):
            settle_store(root, config, clock=clock, filesystem=fs)
        raise
    engine.close()
    _sweep(fs, root, batch, clock)
    return added


def overwrite_once(
    path: str,
    batch: Batch,
    config: StoreConfig | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    filesystem: FileSystem | None = None,
) -> bool:
    """Puts a new store with nothing but the batch in the place of the one at `path`, unless the batch is in; whether
    it did.

    There is the old store or the new one, after a crash at any moment.  Raises as `append_once`; NotAStore, which names
    the first entry that is no part of a store, where anything but a store and its parts would be deleted.
    """
    _checked(batch.writer_id, batch.batch_id)
    fs, root, config = filesystem or RealFileSystem(), canonical_path(path), _quiet(config)
    if config.log_paths:
        raise Rejected("a store with log paths of its own is not overwritten: its log lies elsewhere; append to it")
    require_replaceable(fs, root)
    settle_store(root, config, clock=clock, filesystem=fs)
    fs.make_directories(root)
    lock = fs.lock(join(root, names.LOCK_FILE))
    try:
        if covers(committed_batch(fs, root, batch.writer_id), batch.batch_id):
            return False
        new = clear_new(fs, root)
        with closing(Engine(new, config, clock, fs, threads=False)) as engine:
            log = _EngineLog(engine)
            try:
                staging = staging_directory(root, batch.writer_id, batch.batch_id)
                for encoded in read_parts(fs, staging, batch.parts):
                    log.append(encoded)
            finally:
                log.let_go()
        for committed in _carried_over(fs, root, batch):
            record_committed(fs, new, committed)
        swap(fs, root)
    finally:
        lock.release()
    return True


def discard(
    path: str, batch: tuple[str, int], parts: Sequence[StagedPart], *, filesystem: FileSystem | None = None
) -> None:
    """Removes the parts of a batch that was given up, as far as that is possible; not while an intent names them, which
    may have to be compared with the log.
    """
    fs, root, (writer_id, batch_id) = filesystem or RealFileSystem(), canonical_path(path), _checked(*batch)
    if has_intent(fs, root, writer_id):
        return
    directory = staging_directory(root, writer_id, batch_id)
    for part in parts:
        with suppress(OSError):
            fs.remove(join(directory, part.name))
    with suppress(OSError):
        fs.remove_directory(directory)


def _require_plain(config: StoreConfig | None) -> None:
    """Raises Rejected for a store on a DLedger log: batches are staged as bare records."""
    if config is not None and config.dledger is not None:
        raise Rejected("the sink adds no batches to a store with dledger=; put_columns does, without exactly once")


def require_free(path: str, config: StoreConfig | None = None, *, overwrite: bool = False) -> None:
    """Raises StoreInUse for a store that somebody of this host writes to, and NotAStore, UnsupportedLayout for what
    cannot be appended to, or not overwritten, before work is done in vain.

    An overwrite that was cut short between two stores is completed.
    """
    root = canonical_path(path)
    _require_plain(config)
    finish_swap(RealFileSystem(), root)
    if overwrite:
        require_replaceable(RealFileSystem(), root)
    else:
        require_room(RealFileSystem(), root, (config or StoreConfig()).log_paths)
    lock = join(root, names.LOCK_FILE)
    if is_locked(lock):
        raise StoreInUse(lock, "a broker or another writer has the store open")


def settle_store(
    path: str,
    config: StoreConfig | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    filesystem: FileSystem | None = None,
) -> None:
    """Ends what a commit that was cut short began: its batch is in as a whole afterwards, or not at all.

    Does nothing for a store where nothing is open.  Raises NotAStore, StoreInUse, BatchInDoubt, Corrupt, OSError.
    """
    fs, root, config = filesystem or RealFileSystem(), canonical_path(path), config or StoreConfig()
    _require_plain(config)
    require_room(fs, root, config.log_paths)
    finish_swap(fs, root)
    if not pending_intents(fs, root):
        return
    ownership = Ownership(root, fs.lock(join(root, names.LOCK_FILE)))
    try:
        ownership.claim(fs, config.log_directories(root))
        plan = plan_recovery(fs, root, config)
        mark_open(fs, root)
        parts = open_parts(fs, plan, config, clock)
        try:
            settle_batches(fs, plan, parts)
        finally:
            parts.handles.close()
    finally:
        ownership.end()


class _EngineLog:
    """The log of an engine without threads, as a commit needs it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._write_behind = WriteBehind(engine.sync_log)

    @property
    def end(self) -> int:
        """Where the next record goes."""
        return self._engine.log.marks.appended

    def append(self, encoded: EncodedColumns) -> None:
        """Puts all rows, and makes topics that are new known.  Raises Rejected, NotNow, DurabilityLost."""
        appender = self._engine.appender
        refused = appender.gate.admit(encoded.queues)
        if refused is PutStatus.MESSAGE_ILLEGAL:
            raise Rejected("the store's table of topics (config/topics.json) does not take messages into these queues")
        if self._engine.parts.queues.kinds.multi_dispatch and next(light_rows(encoded), None) is not None:
            raise Rejected("INNER_MULTI_DISPATCH: this store has light queues, put messages for them one by one")
        result = appender.put_records(encoded) if refused is None else None
        if result is None or result.message_count < encoded.count:
            status = refused if result is None else result.status
            raise NotNow(f"{self._engine.path}: the batch does not go into the log ({status.name if status else '-'}); "
                         "nothing of it was added: make room, and bring it again")  # fmt: skip
        self._write_behind.wrote(len(encoded.data))

    def sync(self) -> None:
        """Makes what was appended durable."""
        self._write_behind.settle()
        self._engine.sync_log()

    def let_go(self) -> None:
        """Nothing uses the store any more when this returns."""
        self._write_behind.end()


def _quiet(config: StoreConfig | None) -> StoreConfig:
    """The configuration for a store that only a commit writes to: nothing happens by itself."""
    return replace(config or StoreConfig(), flush="ASYNC", pool_buffers=0, preallocate=False, retention=False)


def _carried_over(fs: FileSystem, root: str, batch: Batch) -> list[CommittedBatch]:
    """The records that the new store begins with: the batch's, and those of other writers, whose batches must not come
    back."""
    found = [committed_batch(fs, root, writer_id) for writer_id in writers(fs, root) if writer_id != batch.writer_id]
    row_count = sum(part.row_count for part in batch.parts)
    own = CommittedBatch(batch.writer_id, batch.batch_id, row_count, batch.is_lasting)
    return [committed for committed in (*found, own) if committed is not None and committed.is_lasting]


def _sweep(fs: FileSystem, root: str, batch: Batch, clock: Clock) -> None:
    """The batch is in: what cannot be removed now, the next commit removes."""
    with suppress(OSError):
        sweep(fs, root, batch.writer_id, batch.batch_id, clock.now_ms())


def _checked(writer_id: str, batch_id: int) -> tuple[str, int]:
    if not is_writer_id(writer_id) or not 0 <= batch_id < 2**63:
        raise Rejected(f"writer {writer_id[:140]!r}, batch {batch_id}: a writer is called by letters, digits, _, . and "
                       "-, at most 128, and its batches are numbered from 0")  # fmt: skip
    return writer_id, batch_id
