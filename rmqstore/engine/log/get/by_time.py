"""Queue offsets by store time, as RocketMQ 5.x answers them (Java: getOffsetInQueueByTime).

By halving: store times never fall along a queue but where a clock was set back.
"""

from typing import Literal, get_args

from rmqstore.engine.log.derived.batch_queue import BatchQueue
from rmqstore.engine.log.get.readable import ReadableLog, ReadableQueue
from rmqstore.formats import message as layouts

Boundary = Literal["lower", "upper"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)


def offset_in_queue(log: ReadableLog, queue: ReadableQueue, timestamp_ms: int, boundary: Boundary) -> int:
    """The queue offset for a store time in a queue of plain entries."""
    high = end = queue.max_offset
    low = start = min(queue.min_offset, end)
    wanted_ms = timestamp_ms + (boundary == "upper")
    while low < high:
        middle = (low + high) // 2
        time_ms = _stored_ms(log, queue, middle)
        # What cannot be read any more lies before everything that can.
        if time_ms is not None and time_ms >= wanted_ms:
            high = middle
        else:
            low = middle + 1
    return max(low - 1, start) if boundary == "upper" else low


def offset_in_batches(queue: BatchQueue, timestamp_ms: int, boundary: Boundary) -> int:
    """The queue offset for a store time in a queue of whole batches: all messages of a batch have one time."""
    first, last = queue.slots
    slot = queue.slot_at_time(timestamp_ms + (boundary == "upper"))
    if boundary == "lower":
        units = queue.read(slot, slot + 1)
        return int(units["base_queue_offset"][0]) if len(units) else queue.max_offset
    if slot <= first:
        return queue.min_offset
    unit = queue.read(min(slot, last) - 1, min(slot, last))
    return int(unit["base_queue_offset"][0]) + int(unit["message_count"][0]) - 1


def _stored_ms(log: ReadableLog, queue: ReadableQueue, queue_offset: int) -> int | None:
    """storeTimestamp of a message by its queue offset; None where its record cannot be read."""
    entries = queue.read(queue_offset, queue_offset + 1)
    if not len(entries):
        return None
    offset, size, _ = entries[0].tolist()
    if offset < log.start or size < layouts.RECORD_SIZE_MIN or offset + size > log.readable_end:
        return None
    front = log.read(offset, layouts.STORE_TIME_REACH)
    # Even the smallest record has that many bytes.
    return layouts.store_time(front) if len(front) == layouts.STORE_TIME_REACH else None
