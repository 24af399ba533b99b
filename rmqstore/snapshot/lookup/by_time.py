"""Which queue offset belongs to a time: RocketMQ's answers, those of 5.x (lower, upper) and that of 4.9 (nearest)."""

from typing import Literal, get_args

from rmqstore.core.arguments import word
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import BATCH
from rmqstore.formats import message
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

Boundary = Literal["lower", "upper", "nearest"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
# Entries read at once where the next message with a record is looked for.
_BLOCK_ENTRIES = 1024


def offset_at(store: StoreExtent, queue: QueueExtent, timestamp_ms: int, boundary: Boundary) -> int:
    """The queue offset for a store time in ms.

    "lower": the first message with storeTimestamp ≥ the time, the queue's end if there is none.  "upper": the last with
    storeTimestamp ≤ the time, the queue's start if there is none.  "nearest": the answer of 4.9, which first chooses a
    queue file by its modification time.  Raises Rejected for another word.
    """
    word("boundary", boundary, BOUNDARIES)
    with store.view("auto") as view:
        times = QueueTimes(store, queue, view)
        if boundary == "nearest":
            return _nearest(store, queue, times, timestamp_ms)
        if boundary == "upper":
            return max(times.first_later(timestamp_ms + 1) - 1, queue.min_offset)
        return times.first_later(timestamp_ms)


class QueueTimes:
    """Store times of a queue's messages by queue offset."""

    def __init__(self, store: StoreExtent, queue: QueueExtent, view: LogView) -> None:
        from rmqstore.snapshot.scan.entry_runs import EntryReader  # noqa: PLC0415  for questions by time alone

        self._queue = queue
        self._view = view
        self._span = queue.span(queue.min_offset, queue.max_offset)
        self._entries = EntryReader(store.split([self._span]), view)

    def first_later(self, timestamp_ms: int) -> int:
        """The first queue offset whose message was stored at or after a time; the end of the queue if none was.

        By halving: store times never fall along a queue but when a broker's clock is set back.
        """
        low, high = self._queue.min_offset, self._queue.max_offset
        while low < high:
            middle = (low + high) // 2
            queue_offset, time_ms = self._next(middle, high)
            if time_ms is None or time_ms >= timestamp_ms:
                high = middle
            else:
                low = queue_offset + 1
        return low

    def _next(self, first: int, last: int) -> tuple[int, int | None]:
        """The first queue offset of [first, last) whose record can be read, and its storeTimestamp in ms; (last, None)
        if there is none.
        """
        time_ms = self.at(first)
        if time_ms is not None:
            return first, time_ms
        for run in self._entries.runs(self._span.part(first + 1, last), _BLOCK_ENTRIES):
            for entry in run.entries:
                time_ms = stored_time(self._view, int(entry["physical_offset"]))
                if time_ms is not None:
                    return max(int(entry["queue_offset"]), first), time_ms
        return last, None

    def at(self, queue_offset: int) -> int | None:
        """storeTimestamp in ms of one message; None where no record can be read."""
        for run in self._entries.runs(self._span.part(queue_offset, queue_offset + 1)):
            if len(run.entries):
                return stored_time(self._view, int(run.entries["physical_offset"][0]))
        return None


def stored_time(view: LogView, offset: int) -> int | None:
    """storeTimestamp in ms of the record at an offset of the log; None where the log holds nothing there."""
    if offset >= view.end or view.file_number(offset) is None:
        return None
    page, position = view.window(offset, message.STORE_TIME_REACH)
    return message.store_time(page[position : position + message.STORE_TIME_REACH].tobytes())


def _nearest(store: StoreExtent, queue: QueueExtent, times: QueueTimes, timestamp_ms: int) -> int:
    """Java 4.9: ConsumeQueue.getOffsetInQueueByTime, of a store that it has opened: what the queue lacks is in its last
    file then.
    """
    files = queue.files.files
    if queue.files.kind == BATCH or not files:
        return times.first_later(timestamp_ms)
    size = QUEUE_ENTRY.size
    file = next((file for file in files if file.modified_ms >= timestamp_ms), files[-1])
    low = max(queue.min_offset, file.start // size)
    high = (queue.max_offset if file is files[-1] else file.end // size) - 1
    left: tuple[int, int] | None = None
    right: tuple[int, int] | None = None
    while high >= low:
        middle = (low + high) // 2
        is_listed = middle < queue.entry_end
        if is_listed and int(queue.files.read(middle, middle + 1)["physical_offset"][0]) < store.log_start:
            low = middle + 1
            continue
        time_ms = times.at(middle)
        if time_ms is None:
            return 0
        if time_ms == timestamp_ms:
            return middle
        if time_ms > timestamp_ms:
            high, right = middle - 1, (middle, time_ms)
        else:
            low, left = middle + 1, (middle, time_ms)
    if left is None or right is None:
        found = right or left
        return found[0] if found else file.start // size
    return right[0] if abs(timestamp_ms - left[1]) > abs(timestamp_ms - right[1]) else left[0]
