"""Opening a store directory: one look at files, queues and the newest part of the log makes a StoreExtent."""

from contextlib import suppress

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import find_queues
from rmqstore.errors import DataLost, StoreChanging, StoreError
from rmqstore.files import reading
from rmqstore.formats.sink_files import INTENT_FILE, JSON_SIZE_MAX, SINK_DIRECTORY, BatchIntent
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.survey import extents
from rmqstore.snapshot.survey.deleted import deleted_before, without_deleted
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.footprint import Footprint
from rmqstore.snapshot.survey.log_search import search, settle_end
from rmqstore.snapshot.survey.queue_bounds import queue_extents
from rmqstore.snapshot.survey.queue_entries import QueueEntries
from rmqstore.snapshot.survey.torn_end import LastWords

# After a clean stop only the CRCs of the newest part are checked on reading; RocketMQ checks its three newest files.
_CHECKED_SIZE = 16 * 1024 * 1024
# Looks in a row at a store that changes; that it happens so often means that it is not about to end.
_LOOKS_MAX = 8


def batch_start(root: str) -> int:
    """Where a batch begins that a sink is just adding, or could not end: all of it may be cut off again, so that nobody
    is to see it yet.  The highest number without one.
    """
    start = 2**63 - 1
    directory = reading.join(root, SINK_DIRECTORY)
    for writer in reading.list_directories(directory):
        data = reading.read_small_file(reading.join(directory, writer, INTENT_FILE), JSON_SIZE_MAX)
        if data is not None:
            with suppress(ValueError):
                start = min(start, BatchIntent.from_json(data).start)
    return start


def survey(
    path: str, broker_name: str | None = None, access: Access = "auto", extra_logs: tuple[str, ...] = ()
) -> StoreExtent:
    """What the store at `path` holds now; `extra_logs` are commitlog directories elsewhere that belong to it.

    A store that changes otherwise than by growing while it is looked at is looked at again.
    Raises NotAStore, UnsupportedLayout; DataLost, StoreChanging if it goes on changing.
    """
    root = reading.canonical_path(path)
    seen, changed = None, ""
    for remaining in reversed(range(_LOOKS_MAX)):
        before = Footprint.of(root, extra_logs)
        try:
            found = _look(before, broker_name, access)
            changed = before.changed(found) or ("a batch began" if batch_start(root) < found.log_end else "")
        except (DataLost, FileNotFoundError, StoreChanging) as gone:
            if remaining:
                continue  # a file vanished meanwhile: its owner deletes old ones
            raise changing(root, gone) from None
        if not changed or (found == seen and batch_start(root) >= found.log_end):
            return found
        seen = found
    raise StoreChanging(root, changed)


def changing(root: str, error: DataLost | FileNotFoundError | StoreChanging) -> StoreError:
    """What to say of a file that vanished or was cut while it was looked at: StoreChanging; a file that is there and
    cannot be read is told as it is.
    """
    if isinstance(error, StoreChanging) or (isinstance(error, DataLost) and not reading.tells_of_change(error.reason)):
        return error
    path = error.path if isinstance(error, DataLost) else error.filename
    return StoreChanging(root, f"the file {path} went or was cut")


def _look(before: Footprint, broker_name: str | None, access: Access) -> StoreExtent:
    """What a store holds that had this footprint a moment ago.  Raises as `survey` at anything that vanishes."""
    root, log_files = before.root, before.log_files
    extents.refuse_unread_layouts(root, log_files)
    checkpoint = extents.load_checkpoint(root)
    abort_present, lock_held = before.is_abort_there, before.is_locked
    rocksdb = extents.is_rocksdb(root)
    queues = {(queue.topic, queue.queue_id): queue for queue in (() if rocksdb else find_queues(root))}
    is_still = not abort_present and not lock_held
    end = min(log_files[-1].end, batch_start(root)) if log_files else 0
    mapped = end if access == "mmap" or (is_still and access == "auto") else 0
    deleted = deleted_before(root, queues.values())
    queues = {key: without_deleted(queue, deleted) for key, queue in queues.items()}
    with LogView(log_files, mapped, end, deleted) as view:
        start = extents.recovery_start(view, checkpoint, abort_present)
        entries = QueueEntries.of(queues, view)
        if entries.first_known(view.start) > view.start:
            start = view.start  # no queue knows the oldest messages: the files that did are lost
        found = settle_end(view, entries, search(view, start, entries), LastWords(is_still, checkpoint))
        queue_bounds = queue_extents(root, entries, found.end.census, found.end.log_end, view)
    log_end = found.end.log_end
    crc_from = start if abort_present else max(start, log_end - _CHECKED_SIZE)
    return StoreExtent(
        path=root,
        broker_name=broker_name or extents.stored_broker_name(root),
        log_files=log_files,
        queues=queue_bounds,
        version_line=extents.version_line(root, checkpoint),
        checkpoint=checkpoint,
        abort_present=abort_present,
        lock_held=lock_held,
        log_end=log_end,
        walk_from=found.walk_from,
        crc_from=crc_from,
        damage=found.end.damage,
        tail=found.end.tail,
        queue_layout="RocksDB" if rocksdb else "file",
        extra_logs=before.extra_logs,
        deleted_before=deleted,
        access=access,
    )
