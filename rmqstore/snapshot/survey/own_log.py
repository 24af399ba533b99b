"""Whether the queues of a store and its commitlog are of one store: a path may name another store's log.

What is looked at is an entry or two where all is well.  Only where no entry leads to a record of its own, and the log
itself is sound at its beginning, with a record that no queue knows, are they of two stores: damage leaves some of that
as it was.
"""

from collections.abc import Iterator

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import is_backed
from rmqstore.directory.queue_files import BATCH, QueueFiles, first_behind, holds_message
from rmqstore.errors import DataLost, NotAStore
from rmqstore.formats.message_columns import locate
from rmqstore.records.soundness import Reason, judge_place
from rmqstore.snapshot.survey.extents import StoreExtent

_QUEUES_MAX = 8
_LEAST = 2  # entries that lead astray: a single one may be damaged
_RECORD_SIZE_MAX = 2**31 - 1


def require_own_log(store: StoreExtent) -> None:
    """Raises NotAStore for a store whose entries and records contradict each other throughout.  Of one that is only
    known in part the log's first record and its entry agree.
    """
    if not store.log_files or store.queue_layout != "file" or store.is_partial:
        return
    try:
        with store.view("pread") as view:
            astray = _astray(store, view)
            if len(astray) < _LEAST or not _begins_unknown(store, view):
                return
    except DataLost:  # a file went meanwhile: a read of it says so
        return
    queue, slot, offset = astray[0]
    directory = store.log_files[0].path.rpartition("/")[0]
    raise NotAStore(
        store.path,
        f"its queues and the commitlog in {directory} are of two stores: entry {slot} of {queue.topic}/{queue.queue_id}"
        f" leads to byte {offset}, where no such message stands, and so do all others that were looked at; name the "
        "directory that this store's own broker has as storePathCommitLog",
    )


def _astray(store: StoreExtent, view: LogView) -> list[tuple[QueueFiles, int, int]]:
    """Entries that do not lead to their records: queue, slot, offset; none as soon as a single entry does."""
    found = []
    for queue, slot in _some_entries(store, view):
        entry = queue.read(slot, slot + 1)
        if not holds_message(queue.kind, entry)[0]:
            continue
        if is_backed(queue, slot, entry[0], view):
            return []
        found.append((queue, slot, int(entry["physical_offset"][0])))
    return found


def _some_entries(store: StoreExtent, view: LogView) -> Iterator[tuple[QueueFiles, int]]:
    """The last entries of some queues, then the first and the middle ones, of what the log has not let expire."""
    queues = [queue for queue in store.queues.values() if queue.files.files]
    chosen = queues[:: max(len(queues) // _QUEUES_MAX, 1)][:_QUEUES_MAX]
    yield from ((queue.files, queue.entry_end - 1) for queue in chosen if queue.entry_end > queue.entry_start)
    for queue in chosen:
        end = queue.files.unbroken_end()
        first = first_behind(queue.files, queue.files.first_slot(), end, view.start)
        yield from ((queue.files, slot) for slot in sorted({first, (first + end) // 2}) if slot < end)


def _begins_unknown(store: StoreExtent, view: LogView) -> bool:
    """Whether a sound record begins the log that its queue has no entry for."""
    page, position = view.window(view.start, _RECORD_SIZE_MAX)
    located = locate(page, np.array([position], np.int64))
    if judge_place(located, np.array([view.start], np.int64))[0] != Reason.SOUND:
        return False
    at, size = int(located.topic_at[0]), int(located.topic_size[0])
    key = page[at : at + size].tobytes().decode(errors="replace"), int(located.head("queue_id")[0])
    queue = store.queues.get(key)
    if queue is None or queue.files.kind == BATCH:
        return queue is None
    slot = int(located.head("queue_offset")[0])
    entry = queue.files.read(slot, slot + 1)
    is_its = int(entry["physical_offset"][0]) == view.start and is_backed(queue.files, slot, entry[0], view)
    return not (holds_message(queue.files.kind, entry)[0] and is_its)
