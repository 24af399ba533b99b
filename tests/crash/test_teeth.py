"""The sweeps find bugs: each of these is planted into the engine, and a sweep has to catch it."""

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from rmqstore.broker import topic_deletion
from rmqstore.broker.topic_deletion import TopicDeletion
from rmqstore.errors import DurabilityLost, StoreError, StoreInUse
from rmqstore.files.file_sequence import FileSequence
from rmqstore.formats.deleted_topics import DeletedTopic
from rmqstore.log import opening, recovery, recovery_apply, recovery_scan, recovery_view
from rmqstore.log.appender import Appender
from rmqstore.log.commitlog import CommitLog
from rmqstore.log.consume_queue import ConsumeQueue
from rmqstore.log.flush import DerivedFlush
from rmqstore.log.index_log import IndexLog
from rmqstore.log.watermarks import Watermarks
from rmqstore.message import Message
from rmqstore.store import Store
from tests.crash.disks import MemoryDisk
from tests.crash.test_sweep import sweep_crashes, sweep_failures
from tests.crash.workload import ASYNC, POOL, ROOT, SYNC, Ledger, check_disk, open_again

pytestmark = pytest.mark.crash

# What a sweep says when it found something; a TypeError would only say that the plant does not fit the engine any more.
FOUND = (AssertionError, StoreError, OSError)
Plant = Callable[[pytest.MonkeyPatch], None]


def skip_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileSequence, "sync", lambda self, low, high: None)


def ack_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Appender, "_synced", lambda self: True)


def skip_directory_sync(patch: pytest.MonkeyPatch) -> None:
    """Of new log files; it is asked for, the disk does not do it."""
    real = MemoryDisk.sync_directory
    patch.setattr(
        MemoryDisk, "sync_directory", lambda self, path: None if path.endswith("commitlog") else real(self, path)
    )


def no_zero_fill(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileSequence, "_blank", lambda self, file, position: file.sync())


def sync_again(patch: pytest.MonkeyPatch) -> None:
    def sync(self: CommitLog, low: int, high: int) -> None:
        with suppress(OSError):
            self.files.sync(low, high)
            return
        self.files.sync(low, high)

    patch.setattr(CommitLog, "_sync", sync)


def flushed_though_it_failed(patch: pytest.MonkeyPatch) -> None:
    def sync(self: CommitLog, low: int, high: int) -> None:
        with suppress(OSError):
            self.files.sync(low, high)

    patch.setattr(CommitLog, "_sync", sync)


def puts_after_the_latch(patch: pytest.MonkeyPatch) -> None:
    """The failure is told to whoever waits, and forgotten."""
    patch.setattr(Watermarks, "latch", lambda self, reason: DurabilityLost(reason))


def not_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "_write_again", lambda fs, plan, parts: None)


def queues_not_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery_apply, "_cut_files", lambda planned, end, parts, file_size: None)


def no_look_back(patch: pytest.MonkeyPatch) -> None:
    """Recovery reads from where the checkpoint says, whatever queues and index lack."""
    patch.setattr(recovery, "covered_start", lambda store, start: start)
    patch.setattr(recovery._Planner, "_indexed", lambda self, start: start)
    patch.setattr(recovery._Planner, "_earlier_start", lambda self, scan: None)


def from_the_last_file_only(patch: pytest.MonkeyPatch) -> None:
    no_look_back(patch)
    patch.setattr(recovery, "usual_start", lambda log, checkpoint, is_clean: (log.files[-1].start, "the last"))


def crc_ignored(patch: pytest.MonkeyPatch) -> None:
    real = recovery_scan.read_batches

    def read(*arguments, checks: object = None, **more):
        return real(*arguments, **more)

    patch.setattr(recovery_scan, "read_batches", read)


def torn_end_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery_scan, "lacks_end", lambda batch: False)


def any_size_counts(patch: pytest.MonkeyPatch) -> None:
    real = recovery_view.usual_size
    patch.setattr(recovery_view, "usual_size", lambda series, is_used=None: real(series))


def checkpoint_first(patch: pytest.MonkeyPatch) -> None:
    real = DerivedFlush.flush

    def flush(self: DerivedFlush, whole_index: bool = False) -> None:
        self._checkpoint.update(logics_timestamp_ms=self._queues.store_ms, physic_timestamp_ms=self._queues.store_ms)
        self._checkpoint.flush()
        real(self, whole_index)

    patch.setattr(DerivedFlush, "flush", flush)


def queues_not_synced(patch: pytest.MonkeyPatch) -> None:
    """And recovery does not look whether entries are missing: either of the two by itself does no harm."""
    no_look_back(patch)
    patch.setattr(ConsumeQueue, "flush", lambda self: None)


def index_not_built_again(patch: pytest.MonkeyPatch) -> None:
    real = IndexLog.load

    def load(self: IndexLog, *arguments) -> list[str]:
        warnings = real(self, *arguments)
        self.end_offset = 2**62  # all is indexed, it thinks
        return warnings

    patch.setattr(IndexLog, "load", load)


def closed_before_flushed(patch: pytest.MonkeyPatch) -> None:
    """A store counts as closed before its queues and its end are on the disk."""

    def close(self: Store) -> None:
        opening.mark_closed(self._fs, self.path)
        self.abandon()

    patch.setattr(Store, "close", close)


def not_marked_open(patch: pytest.MonkeyPatch) -> None:
    def mark(fs, root: str) -> None:
        if not fs.exists(f"{root}/abort"):
            fs.create(f"{root}/abort", 0).close()

    patch.setattr(opening, "mark_open", mark)


def commit_after_the_ack(patch: pytest.MonkeyPatch) -> None:
    """The pool's bytes are called flushed while they are in memory."""
    patch.setattr(CommitLog, "_write_out", lambda self, start, low, high: self.marks.advance_committed(high))


def deletion_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(topic_deletion, "save_deleted_topics", lambda fs, root, noted: None)


def deletion_noted_afterwards(patch: pytest.MonkeyPatch) -> None:
    """The queues go first: a crash in between leaves a topic without its older messages, or brings them back."""
    real = TopicDeletion._note

    def note(self: TopicDeletion, topic: str, deleted: DeletedTopic) -> None:
        if deleted.is_pending:
            self._noted[topic] = deleted
        else:
            real(self, topic, deleted)

    patch.setattr(TopicDeletion, "_note", note)


def first_tear_refused(patch: pytest.MonkeyPatch) -> None:
    """A new store whose first records a power cut tore is taken for somebody else's files."""
    patch.setattr(recovery, "is_torn_beginning", lambda log, flushed_ms: False)


BY_CRASHES: list[tuple[Plant, object]] = [
    (skip_sync, SYNC),
    (ack_before_sync, SYNC),
    (skip_directory_sync, SYNC),
    (no_zero_fill, ASYNC),
    (queues_not_cut, SYNC),
    (from_the_last_file_only, ASYNC),
    (crc_ignored, ASYNC),
    (any_size_counts, SYNC),
    (checkpoint_first, ASYNC),
    (queues_not_synced, ASYNC),
    (index_not_built_again, SYNC),
    (closed_before_flushed, ASYNC),
    (not_marked_open, ASYNC),
    (commit_after_the_ack, POOL),
    (first_tear_refused, ASYNC),
    (deletion_not_noted, SYNC),
    (deletion_noted_afterwards, SYNC),
]
BY_FAILURES: list[tuple[Plant, object, int | str, bool]] = [
    (sync_again, SYNC, errno.EIO, False),
    (flushed_though_it_failed, SYNC, errno.EIO, True),
    (puts_after_the_latch, SYNC, errno.EIO, False),
    (not_written_again, SYNC, errno.EIO, False),
    (torn_end_taken, POOL, "short", True),
]


@pytest.mark.parametrize(("plant", "config"), BY_CRASHES, ids=lambda value: getattr(value, "__name__", ""))
def test_crashes_catch(monkeypatch: pytest.MonkeyPatch, plant: Plant, config):
    plant(monkeypatch)
    with pytest.raises(FOUND):
        sweep_crashes(config, rounds=6)


@pytest.mark.parametrize(
    ("plant", "config", "error", "forever"), BY_FAILURES, ids=lambda value: getattr(value, "__name__", "")
)
def test_failures_catch(monkeypatch: pytest.MonkeyPatch, plant: Plant, config, error, forever):
    plant(monkeypatch)
    with pytest.raises(FOUND):
        sweep_failures(config, error, forever)


def test_the_lock_comes_before_the_recovery(monkeypatch: pytest.MonkeyPatch):
    """A second opener is refused with no byte changed; with the lock taken last, it would not be."""

    def second_opener() -> None:
        disk = MemoryDisk()
        disk.put_file(f"{ROOT}/lock", b"lock")
        store = open_again(disk, SYNC)
        store.put(Message("orders", b"body"))
        before = disk.image()
        with pytest.raises(StoreInUse):
            open_again(disk, SYNC)
        assert disk.image() == before

    second_opener()

    class Never:
        def is_in_place(self) -> bool:
            return True

        def release(self) -> None:
            pass

    real = MemoryDisk.lock
    monkeypatch.setattr(MemoryDisk, "lock", lambda self, path: Never())
    recovered = opening.recovered

    def lock_last(fs, root, *arguments):
        parts = recovered(fs, root, *arguments)
        real(fs._fs, f"{root}/lock")
        return parts

    monkeypatch.setattr("rmqstore.store.recovered", lock_last)
    with pytest.raises(AssertionError):
        second_opener()


def test_a_message_that_was_never_put_is_noticed():
    disk = MemoryDisk()
    store = open_again(disk, SYNC)
    store.put(Message("orders", b"body"))
    ledger = Ledger()
    with pytest.raises(AssertionError, match="was never put"):
        check_disk(disk.crash("killed"), SYNC, ledger)
