"""Where the entries of a queue end when zeros stand in the middle of its files: after the last that its record
backs.
"""

import numpy as np

from rmqstore.directory.batch_units import settled, unit_end
from rmqstore.directory.log_files import LogView
from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_files import BATCH, QueueFiles, holds_message, is_valid_entry
from rmqstore.formats import message
from rmqstore.formats.names import is_light_queue
from rmqstore.formats.properties import parse_properties
from rmqstore.formats.record_crc import verify_property_crc

# So many of the last entries after a hole are tried one by one before the last good one is looked for by halving.
_TRIES = 16
_BLOCK_SLOTS = 4096
# Units at either end of a batch queue that are looked at together.
SETTLED_BLOCK = 64
# A queue that begins again does so with 0, or a little later.
FIRST_MAX = 64


def sound_end(queue: QueueFiles, view: LogView) -> int:
    """The slot after the last entry of a queue.

    An entry after unreadable ones counts only if it points beyond those before them and its record says that it is of
    this queue and has this queue offset: a queue that was cut and not erased has others there.  Of a batch queue the
    last unit is one that `batch_units.settled` lets stand.  Raises DataLost.
    """
    end = _entries_end(queue, view)
    return _settled_end(queue, end, view) if queue.kind == BATCH else end


def _settled_end(queue: QueueFiles, end: int, view: LogView) -> int:
    while end > queue.first_slot():
        low = max(end - SETTLED_BLOCK, queue.first_slot())
        rows, _ = settled(queue, queue.read(low, end), view)
        if len(rows):
            return low + int(rows[-1]) + 1
        end = low
    return end


def _entries_end(queue: QueueFiles, view: LogView) -> int:
    end = queue.unbroken_end()
    for slots, entries in queue.written_after(end):
        last = len(slots)
        for row in range(last - 1, max(last - _TRIES, 0) - 1, -1):
            if is_backed(queue, int(slots[row]), entries[row], view):
                return int(slots[row]) + 1
        row = _last_backed(queue, slots, entries, view)
        if row >= 0:
            return int(slots[row]) + 1
    return end


def batch_end(queue: QueueFiles, end: int, view: LogView) -> int:
    """The queue offset after the last batch of the units before slot `end`; 0 if there is none.  Raises DataLost."""
    low = max(end - SETTLED_BLOCK, queue.first_slot())
    _, units = settled(queue, queue.read(low, max(low, end)), view)
    return unit_end(units[-1]) if len(units) else 0


def batch_begin(queue: QueueFiles, start: int, end: int, view: LogView) -> int:
    """The queue offset of the first batch of the units [start, end).

    If the first units cannot be believed, messages are missing: the answer then is less than the first credible one's.
    Raises DataLost.
    """
    rows, units = settled(queue, queue.read(start, min(start + SETTLED_BLOCK, end)), view)
    if not len(rows):
        return 0
    first = int(units[0]["base_queue_offset"])
    return first if rows[0] == 0 or not first else first - 1 if start else 0


def lost_unit(queue: QueueFiles, end: int, view: LogView) -> int | None:
    """The log offset that the first unit leads to, in a batch queue none of whose units counts (`end` is the end of
    those that do), if no sound record of another queue stands there; else None.  Raises DataLost.
    """
    first = queue.first_slot()
    units = queue.read(first, first + 1) if end <= first and queue.files else None
    if units is None or not holds_message(queue.kind, units)[0]:
        return None
    place, size = int(units[0]["physical_offset"]), int(units[0]["size"])
    if place < view.start:
        return None
    record = view.whole_record(place, size)
    if record is not None and (record.topic, record.queue_id) != (queue.topic.encode(), queue.queue_id):
        page, position = view.window(place, size)
        if verify_property_crc(page[position : position + size].tobytes()) is not False:
            return None
    return place


def unwritten_before(queue: QueueFiles, slot: int) -> int:
    """The first of the slots directly before `slot` that are not written; `slot` if the one before it is."""
    first = queue.first_slot()
    while slot > first:
        low = max(slot - _BLOCK_SLOTS, first)
        written = np.flatnonzero(is_valid_entry(queue.kind, queue.read(low, slot)))
        if len(written):
            return low + int(written[-1]) + 1
        slot = low
    return slot


def _last_backed(queue: QueueFiles, slots: np.ndarray, entries: np.ndarray, view: LogView) -> int:
    """A row that its record backs and whose next one is not, by halving; -1 if there is none."""
    low, high = 0, len(slots)
    while low < high:
        middle = (low + high) // 2
        if is_backed(queue, int(slots[middle]), entries[middle], view):
            low = middle + 1
        else:
            high = middle
    return low - 1


def is_backed(queue: QueueFiles, slot: int, entry: np.void, log: LogSpace) -> bool:
    """Whether a whole record stands where the entry points and says that the entry is its own."""
    record = log.whole_record(int(entry["physical_offset"]), int(entry["size"]))
    if record is None:
        return False
    wanted = int(entry["base_queue_offset"]) if queue.kind == BATCH else slot
    said = (record.topic, record.queue_id, record.queue_offset)
    if said == (queue.topic.encode(), queue.queue_id, wanted):
        return True
    return is_light_queue(queue.topic) and _names_light_queue(record, queue.topic, slot)


def _names_light_queue(record: message.Record, topic: str, slot: int) -> bool:
    """Whether the record was dispatched to a light queue (LMQ) with that queue offset."""
    from rmqstore.records.light_queues import LIGHT_QUEUE_ID, light_places  # noqa: PLC0415  few stores have such queues

    places = light_places(parse_properties(record.properties), record.queue_id)
    return ((topic, LIGHT_QUEUE_ID), slot) in places
