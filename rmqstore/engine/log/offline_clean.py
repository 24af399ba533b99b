"""Retention of a store that nobody has open: what `rmqstore clean` shows, and does."""

from collections.abc import Iterator
from dataclasses import replace

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.config import StoreConfig
from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_root import require_store
from rmqstore.directory.store_view import StoreView, open_view
from rmqstore.engine.log.derived.expired import expired_files, expired_starts
from rmqstore.engine.log.derived.index_log import end_of
from rmqstore.engine.log.opening import mark_closed, recovered
from rmqstore.engine.log.recovery.index_choice import IndexView, index_views
from rmqstore.engine.log.retention.plan import (
    DiskUse,
    ExpiredFile,
    ExpiredQueue,
    LogFile,
    Request,
    RetentionPlan,
    RetentionPolicy,
    RetentionView,
    plan_retention,
)
from rmqstore.engine.log.retention.rounds import RetainedParts, apply_retention, look
from rmqstore.files.disk import ReadableDisk
from rmqstore.files.filesystem import RealFileSystem, directory_of, join
from rmqstore.files.ownership import Ownership
from rmqstore.files.reading import LocalDisk, canonical_path
from rmqstore.formats import names
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.message import BLANK
from rmqstore.formats.queue_entry import QUEUE_ENTRY

# How full the disk is does not count: the caller decides.
_ANY_DISK = DiskUse((), -1.0)
_ALL = 2**63 - 1


def plan_offline(
    root: str, config: StoreConfig, policy: RetentionPolicy, any_age: bool, clock: Clock = SYSTEM_CLOCK
) -> tuple[RetentionPlan, bool]:
    """The plan of `clean_offline` for a store as it is, and whether the store was closed cleanly.

    Only looks.  A store that was not closed cleanly is recovered before it is cleaned, which may change what there is.
    Raises NotAStore, UnsupportedLayout, OSError.
    """
    disk = LocalDisk()
    store = open_view(disk, canonical_path(root), config.named_log_paths())
    try:
        view = RetentionView(
            store.root, _log_files(store.log), _written_from(store.log), _ANY_DISK,
            lambda low: _expired_queues(store, low), lambda low: _expired_index(disk, store.root, config, low),
            request=Request(_ALL, any_age),
        )  # fmt: skip
        return plan_retention(view, replace(policy, batch_max=_ALL), clock.now_ms()), not store.abort_present
    finally:
        store.log.close()


def clean_offline(
    root: str, config: StoreConfig, policy: RetentionPolicy, any_age: bool, clock: Clock = SYSTEM_CLOCK
) -> RetentionPlan:
    """Deletes all log files that are old enough, or all but the newest for `any_age`, and what leads to them only.

    All rounds at once: nobody waits for the disk.  The store is locked, recovered if need be, and closed cleanly.
    Raises NotAStore, StoreInUse, Corrupt, OSError; the next opening recovers the store then.
    """
    root, fs = canonical_path(root), RealFileSystem()
    require_store(fs, root, config.named_log_paths())  # what is no store must not become one
    ownership = Ownership(root, fs.lock(join(root, names.LOCK_FILE)))
    try:
        ownership.claim(fs, config.log_directories(root))
        store, recovery, _ = recovered(fs, root, config, clock)
        try:
            end = recovery.log_end
            parts = RetainedParts(
                fs, root, store.log, store.queues, store.index, lambda: end, lambda: end, lambda: True
            )  # fmt: skip
            view = look(parts, _ANY_DISK, request=Request(_ALL, any_age))
            plan = plan_retention(view, replace(policy, batch_max=_ALL), clock.now_ms())
            apply_retention(plan, parts)
            mark_closed(fs, root)
        finally:
            if store.index is not None:
                store.index.close()
            store.handles.close()
    finally:
        ownership.end()
    return plan


def _log_files(log: LogSpace) -> tuple[LogFile, ...]:
    fs = RealFileSystem()  # of which nothing is asked but the times
    times = {
        join(directory, entry.name): entry.modified_ms
        for directory in dict.fromkeys(directory_of(file.path) for file in log.files)
        for entry in fs.entries(directory)
    }
    return tuple(LogFile(file.path, file.start, log.file_size, times[file.path]) for file in log.files
                 if file.path in times)  # fmt: skip


def _written_from(log: LogSpace) -> int:
    """Where the newest file begins that has anything in it: all before it is written for good."""
    used = (file.start for file in reversed(log.files) if any(log.read(file.start, BLANK.size)))
    return next(used, log.start)


def _expired_queues(store: StoreView, min_physical: int) -> Iterator[ExpiredQueue]:
    kinds = (
        (store.queues, store.queue_file_size, QUEUE_ENTRY.size),
        (store.batch_queues, store.batch_file_size, BATCH_QUEUE_ENTRY.size),
    )
    for queues, size, unit in kinds:
        for queue in queues.values():
            starts = [file.start for file in queue.files]
            starts = expired_starts(starts, size, queue.end * unit, min_physical, _LastPlaces(queue, size, unit))
            if starts:
                paths = tuple(file.path for file in queue.files[: len(starts)])
                yield ExpiredQueue(queue.topic, queue.queue_id, paths, size * len(paths))


class _LastPlaces:
    """Where the last record of each file of a queue stands in the log."""

    def __init__(self, queue: QueueView, file_size: int, unit: int) -> None:
        self._queue = queue
        self._file_size = file_size
        self._unit = unit

    def __call__(self, start: int) -> int | None:
        """By the start of the file; None if its entry cannot be read."""
        last = (start + self._file_size) // self._unit - 1
        entries = self._queue.read(last, last + 1)
        is_written = len(entries) == 1 and entries["physical_offset"][0] >= 0 and entries["size"][0] > 0
        return int(entries["physical_offset"][0]) if is_written else None


def _expired_index(disk: ReadableDisk, root: str, config: StoreConfig, min_physical: int) -> Iterator[ExpiredFile]:
    if not config.index_enabled:
        return
    views = index_views(disk, root, (config.index_slot_count, config.index_item_count))
    for view in expired_files(views[:-1], _last_indexed, min_physical):
        yield ExpiredFile(view.path, view.size)


def _last_indexed(view: IndexView) -> int | None:
    """How far a file says the log is indexed; None where it cannot be believed."""
    return None if view.header is None or view.fault else end_of(view.header)
