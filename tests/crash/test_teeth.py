"""The sweeps find bugs: each of these is planted into the engine, and a sweep has to catch it, by its own harm.

What a sweep says is part of each line: a plant that breaks by itself, or does another harm than it is named for, is
none.  `make teeth` runs these, and plants many more into the text, to which it holds single tests.
"""

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.directory import store_view
from rmqstore.directory.log_space import LogSpace
from rmqstore.engine.broker import features
from rmqstore.engine.broker.features import TopicDeletion
from rmqstore.engine.engine import Engine
from rmqstore.engine.log import opening
from rmqstore.engine.log.derived.consume_queue import ConsumeQueue
from rmqstore.engine.log.derived.derived_flush import DerivedFlush
from rmqstore.engine.log.derived.index_log import IndexLog
from rmqstore.engine.log.put.commitlog import CommitLog
from rmqstore.engine.log.put.confirmation import Confirmation
from rmqstore.engine.log.put.watermarks import Watermarks
from rmqstore.engine.log.recovery import apply, log_end
from rmqstore.engine.log.recovery import planner as recovery
from rmqstore.errors import Corrupt, DurabilityLost, StoreInUse
from rmqstore.files.file_sequence import FileSequence
from rmqstore.formats.deleted_topics import DeletedTopic
from tests.crash.disks import MemoryDisk
from tests.crash.sweep import sweep_crashes, sweep_failures
from tests.crash.workload import ASYNC, POOL, ROOT, SYNC, Ledger, check_disk, open_again

pytestmark = [pytest.mark.crash, pytest.mark.teeth]

# What a sweep raises when it found something; a TypeError would only say that the plant does not fit any more.
FOUND = (AssertionError, Corrupt)
LOST = "was acknowledged and is lost"
Plant = Callable[[pytest.MonkeyPatch], None]


def skip_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileSequence, "sync", lambda self, low, high: None)


def ack_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Confirmation, "confirm", lambda self, offset: PutStatus.PUT_OK)


def skip_directory_sync(patch: pytest.MonkeyPatch) -> None:
    """Of new log files; it is asked for, the disk does not do it."""
    real = MemoryDisk.sync_directory
    patch.setattr(
        MemoryDisk, "sync_directory", lambda self, path: None if path.endswith("commitlog") else real(self, path)
    )


def no_zero_fill(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("rmqstore.files.file_sequence.blank", lambda file, position: file.sync())


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
    patch.setattr(apply, "_cut_files", lambda planned, end, parts, file_size: None)


def no_look_back(patch: pytest.MonkeyPatch) -> None:
    """Recovery reads from where the checkpoint says, whatever queues and index lack."""
    patch.setattr(recovery, "covered_start", lambda store, start: start)
    planner = recovery._Planner
    patch.setattr(planner, "_indexed", lambda self, start: start)
    patch.setattr(planner, "_earlier_start", lambda self, scan: None)


def queues_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Recovery does not look whether entries are missing."""
    patch.setattr(recovery, "covered_start", lambda store, start: start)
    patch.setattr(recovery, "hole_start", lambda store, tracks, start: start)


def from_the_last_file_only(patch: pytest.MonkeyPatch) -> None:
    """The last one that holds anything."""
    no_look_back(patch)

    def start(log: LogSpace, checkpoint: object, is_clean: bool) -> tuple[int, str]:
        used = [file.start for file in log.files if any(log.read(file.start, 8))]
        return (used or [log.start])[-1], "the last"

    patch.setattr(recovery, "usual_start", start)


def crc_ignored(patch: pytest.MonkeyPatch) -> None:
    real = log_end.read_batches

    def read(*arguments, checks: object = None, **more):
        return real(*arguments, **more)

    patch.setattr(log_end, "read_batches", read)


def torn_end_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_end, "lacks_end", lambda batch: False)


def any_size_counts(patch: pytest.MonkeyPatch) -> None:
    real = store_view.usual_size
    patch.setattr(store_view, "usual_size", lambda series, is_used=None: real(series))


def checkpoint_first(patch: pytest.MonkeyPatch) -> None:
    """It speaks of queues that are not on the disk; recovery does not look whether entries are missing."""
    queues_are_believed(patch)
    real = DerivedFlush.flush

    def flush(self: DerivedFlush, whole_index: bool = False) -> None:
        if self._queues.store_ms:
            self._checkpoint.update(logics_timestamp_ms=self._queues.store_ms)
        self._checkpoint.flush()
        real(self, whole_index)

    patch.setattr(DerivedFlush, "flush", flush)


def queues_not_synced(patch: pytest.MonkeyPatch) -> None:
    """And recovery does not look whether entries are missing: either of the two by itself does no harm."""
    queues_are_believed(patch)
    patch.setattr(ConsumeQueue, "flush", lambda self: None)


def index_not_built_again(patch: pytest.MonkeyPatch) -> None:
    real = IndexLog.load

    def load(self: IndexLog, *arguments) -> list[str]:
        warnings = real(self, *arguments)
        self.end_offset = 2**62  # all is indexed, it thinks
        return warnings

    patch.setattr(IndexLog, "load", load)


def closed_before_flushed(patch: pytest.MonkeyPatch) -> None:
    """A store counts as closed before its log, its queues and its end are on the disk; then they get there."""
    real = Engine._close

    def close(self: Engine) -> None:
        opening.mark_closed(self.fs, self.path)
        real(self)

    patch.setattr(Engine, "_close", close)


def not_marked_open(patch: pytest.MonkeyPatch) -> None:
    def mark(fs, root: str) -> None:
        if not fs.exists(f"{root}/abort"):
            fs.create(f"{root}/abort", 0).close()

    patch.setattr(opening, "mark_open", mark)


def synced_before_committed(patch: pytest.MonkeyPatch) -> None:
    """The pool's bytes get into the file after the sync that is to make them durable."""

    def lead(self: Watermarks, turn: threading.Lock, commit: Callable[[], object] | None) -> None:
        low = self.flushed
        self._sync(low, self.committed)
        if commit is not None:
            commit()
        self._finish(turn, self.committed)

    patch.setattr(Watermarks, "_lead", lead)


def deletion_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(features, "save_deleted_topics", lambda fs, root, noted: None)


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


BY_CRASHES: list[tuple[Plant, StoreConfig, str]] = [
    (skip_sync, SYNC, LOST),
    (ack_before_sync, SYNC, LOST),
    (skip_directory_sync, SYNC, "there is no commitlog file"),
    (no_zero_fill, ASYNC, "is out of order, or was refused"),
    (queues_not_cut, SYNC, "NO_MESSAGE_IN_QUEUE"),
    (from_the_last_file_only, ASYNC, r"the key 'key\d+' finds \[\]"),
    (crc_ignored, ASYNC, "has no body"),
    (any_size_counts, SYNC, "consumequeue/orders/0/0{20}', 100"),
    (checkpoint_first, ASYNC, r"the key 'key\d+' finds \[\]|\('orders', 0, \d+\)"),
    (queues_not_synced, ASYNC, r"\('orders', 0, \d+\)"),
    (index_not_built_again, SYNC, r"the key 'KEY1' finds \[\]"),
    (closed_before_flushed, ASYNC, "counts as closed, and lacks"),
    (not_marked_open, ASYNC, f"{LOST}|counts as closed, and lacks"),
    (synced_before_committed, replace(POOL, flush="SYNC"), LOST),
    (first_tear_refused, ASYNC, "not one sound record is in the log"),
    (deletion_not_noted, SYNC, r"\('refunds', 0, 1\)"),
    (deletion_noted_afterwards, SYNC, r"\('refunds', 0, 1\)"),
]
BY_FAILURES: list[tuple[Plant, StoreConfig, int | str, bool, str]] = [
    (sync_again, SYNC, errno.EIO, False, r"\('orders', 0, 0, -1\)"),
    (flushed_though_it_failed, SYNC, errno.EIO, True, LOST),
    (puts_after_the_latch, SYNC, errno.EIO, False, "a put was taken after durability was lost"),
    (not_written_again, SYNC, errno.EIO, False, "no data; the next sound record is at"),
    (torn_end_taken, POOL, "short", True, "other properties"),
]


@pytest.mark.parametrize(("plant", "config", "finding"), BY_CRASHES, ids=lambda value: getattr(value, "__name__", ""))
def test_crashes_catch(monkeypatch: pytest.MonkeyPatch, plant: Plant, config: StoreConfig, finding: str):
    plant(monkeypatch)
    with pytest.raises(FOUND, match=finding):
        sweep_crashes(config, rounds=6)


@pytest.mark.parametrize(
    ("plant", "config", "error", "forever", "finding"), BY_FAILURES, ids=lambda value: getattr(value, "__name__", "")
)
def test_failures_catch(monkeypatch: pytest.MonkeyPatch, plant: Plant, config, error, forever, finding: str):
    plant(monkeypatch)
    with pytest.raises(FOUND, match=finding):
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

    real, asked = MemoryDisk.lock, list[MemoryDisk]()

    def no_lock(self, path) -> Never:
        asked.append(self)
        return Never()

    monkeypatch.setattr(MemoryDisk, "lock", no_lock)
    recovered = opening.recovered

    def lock_last(fs, root, *arguments):
        parts = recovered(fs, root, *arguments)
        real(asked[-1], f"{root}/lock")
        return parts

    monkeypatch.setattr("rmqstore.engine.engine.recovered", lock_last)
    with pytest.raises(AssertionError):
        second_opener()


def test_a_message_that_was_never_put_is_noticed():
    disk = MemoryDisk()
    store = open_again(disk, SYNC)
    store.put(Message("orders", b"body"))
    ledger = Ledger()
    with pytest.raises(AssertionError, match="was never put"):
        check_disk(disk.crash("killed"), SYNC, ledger)
