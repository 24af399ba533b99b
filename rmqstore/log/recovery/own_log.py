"""Whether the queues of a store and its commitlog are of one store: a setting may name another store's log, from which
recovery would make all queues anew.

The rule is that of `snapshot.own_log`, for who writes: no entry leads to a record of its own, while the log begins with
a sound record that no queue knows.
"""

from collections.abc import Iterator

from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.errors import NotAStore
from rmqstore.files.filesystem import directory_of
from rmqstore.formats.queue_entry import is_pre_blank, is_valid

_QUEUES_MAX = 8
_LEAST = 2  # entries that lead astray: a single one may be damaged


def require_own_log(store: StoreView) -> None:
    """Raises NotAStore for a store whose entries and records contradict each other throughout; OSError."""
    astray = []
    for queue, slot in _some_entries(store):
        offset = _offset_of(queue, slot)
        if offset is None or offset < store.log.start:
            continue
        if _is_backed(store, queue, slot):
            return
        astray.append((queue, slot, offset))
    if len(astray) < _LEAST or not _begins_unknown(store):
        return
    queue, slot, offset = astray[0]
    raise NotAStore(
        store.root,
        f"its queues and the commitlog in {directory_of(store.log.files[0].path)} are of two stores: entry {slot} of "
        f"{queue.topic}/{queue.queue_id} leads to byte {offset}, where no such message stands, and so do all others "
        "that were looked at; name the store's own commitlog (log_paths, storePathCommitLog), or say "
        "on_middle_damage='cut' to make the queues anew from this one",
    )


def _some_entries(store: StoreView) -> Iterator[tuple[QueueView, int]]:
    """The last, the first and a middle entry of some plain queues, of what the log has not let expire."""
    queues = [queue for queue in store.queues.values() if queue.end > queue.first and not queue.is_light]
    for queue in queues[:: max(len(queues) // _QUEUES_MAX, 1)][:_QUEUES_MAX]:
        first = queue.slot_at(store.log.start)
        slots = {queue.end - 1: None, first: None, (first + queue.end) // 2: None}
        yield from ((queue, slot) for slot in slots if first <= slot < queue.end)


def _offset_of(queue: QueueView, slot: int) -> int | None:
    """Where the message of a slot stands in the log; None for a slot that holds none."""
    entry = queue.read(slot, slot + 1)
    if not len(entry) or not is_valid(entry)[0] or is_pre_blank(entry)[0]:
        return None
    return int(entry["physical_offset"][0])


def _is_backed(store: StoreView, queue: QueueView, slot: int) -> bool:
    """Whether the record stands where an entry says, and says the same of itself."""
    entry = queue.read(slot, slot + 1)[0]
    record = store.log.record_at(int(entry["physical_offset"]))
    if record is None:
        return False
    said = (record.topics[0][0], int(record.queue_ids[0]), int(record.queue_offsets[0]), int(record.sizes[0]))
    return said == (queue.topic, queue.queue_id, slot, int(entry["size"]))


def _begins_unknown(store: StoreView) -> bool:
    """Whether a sound record begins the log that its queue has no entry for."""
    record = store.log.record_at(store.log.start)
    if record is None:
        return False
    key, slot = (record.topics[0][0], int(record.queue_ids[0])), int(record.queue_offsets[0])
    if key in store.batch_queues:
        return False
    queue = store.queues.get(key)
    if queue is None or _offset_of(queue, slot) != store.log.start:
        return True
    return not _is_backed(store, queue, slot)
