"""Reading a queue of plain entries: along the entries, and from each to its record."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.formats.queue_extension import ADDRESS_MAX
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.get.answer import Answer, Wanted
from rmqstore.log.get.readable import FetchLimits, ReadableLog, ReadableQueue, holds_record
from rmqstore.message import GetStatus

# Two records that lie closer than this are read in one go, with what is between them.
_READ_GAP_MAX = 4096


class QueueWalk:
    """One walk along a queue that collects messages until a limit is reached: step for step as Java goes."""

    def __init__(self, log: ReadableLog, limits: FetchLimits, broker_name: str, wanted: Wanted) -> None:
        self._log, self._limits, self._broker_name, self._wanted = log, limits, broker_name, wanted
        self._size = 0  # bytes of the messages found
        self._skip_below = -1  # a file was gone: entries that point before the next one are not tried
        self._in_memory_from = log.readable_end - limits.memory_bytes * limits.memory_percent // 100
        self._answer = Answer(wanted.offset)

    def run(self, queue: ReadableQueue, end: int) -> Answer:
        """Reads to the end of the present file of the queue at the most; `end` is the queue's end, a queue offset."""
        answer, limits, wanted = self._answer, self._limits, self._wanted
        per_file = queue.files.file_size // QUEUE_ENTRY.size
        file_end = wanted.offset + per_file - wanted.offset % per_file
        last = min(end, file_end, wanted.offset + max(limits.filter_bytes // QUEUE_ENTRY.size, wanted.count))
        first = wanted.offset
        step = min(wanted.count, limits.count_in_memory) if wanted.tags is None else last - first
        while first < last:
            entries = queue.read(first, min(first + step, last))
            if not len(entries):
                break
            if not self._take(queue, entries):
                return answer
            first += len(entries)
        if first == wanted.offset:
            answer.status, answer.next_offset = GetStatus.OFFSET_FOUND_NULL, file_end
        return answer

    def _take(self, queue: ReadableQueue, entries: npt.NDArray[np.void]) -> bool:
        """Goes through some entries; False when the batch is full."""
        answer, wanted, limits = self._answer, self._wanted, self._limits
        count_end = min(wanted.count, max(limits.count_in_memory, limits.count_on_disk))
        rows = entries.tolist()
        passing = None if wanted.tags is None else wanted.tags.passing(_resolved(queue, entries))
        records = _Records(self._log, rows, passing, min(wanted.size, limits.bytes_in_memory))
        messages = answer.messages
        for place, (offset, size, _) in enumerate(rows):
            if messages and self._is_full(len(messages), offset, size):
                return False
            answer.next_offset += 1
            if offset < self._skip_below:
                continue
            if passing is not None and not passing[place]:
                answer.missed(GetStatus.NO_MATCHED_MESSAGE)
                continue
            found = records.read(place)
            if found is None:
                answer.missed(GetStatus.MESSAGE_WAS_REMOVING)
                file_size = self._log.files.file_size
                self._skip_below = offset + file_size - offset % file_size
                continue
            message = StoredMessage(*found, size, offset, self._broker_name)
            # Where a record is damaged, its entry is all that tells of its tags.
            if wanted.tags is not None and message.is_whole and not wanted.takes(message):
                answer.missed(GetStatus.NO_MATCHED_MESSAGE)
                continue
            messages.append(message)  # `answer.add`, written out: 2 µs a read of 32
            answer.status = GetStatus.FOUND
            self._size += size
            self._skip_below = -1
            if len(messages) >= count_end:  # full whatever follows, which need not be read then
                return False
        return True

    def _is_full(self, count: int, offset: int, size: int) -> bool:
        """Whether the next record is one too many (Java: DefaultMessageStore.isTheBatchFull)."""
        limits, wanted, total = self._limits, self._wanted, self._size + size
        if count >= wanted.count or total > wanted.size or self._size >= wanted.size:
            return True
        if offset >= self._in_memory_from:
            return total > limits.bytes_in_memory or count >= limits.count_in_memory
        return total > limits.bytes_on_disk or count >= limits.count_on_disk


def _resolved(queue: ReadableQueue, entries: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """The entries with tags codes in place of extension addresses."""
    if not (entries["tags_code"] <= ADDRESS_MAX).any():
        return entries
    resolved = entries.copy()
    resolved["tags_code"] = queue.tags_codes(entries)
    return resolved


class _Records:
    """The records of some queue entries; those that lie near each other come in one read of the log."""

    def __init__(
        self, log: ReadableLog, rows: Sequence[tuple[int, int, int]], passing: list[bool] | None, size_max: int
    ) -> None:
        self._log, self._rows, self._passing = log, rows, passing
        self._size_max = size_max
        self._page, self._page_at = b"", -1

    def read(self, place: int) -> tuple[bytes, int] | None:
        """The page with the record of an entry and its position there; None where it cannot be read any more."""
        offset, size, _ = self._rows[place]
        position = offset - self._page_at
        if self._page_at < 0 or position < 0 or position + size > len(self._page):
            if not holds_record(self._log, offset, size):
                return None
            self._page, self._page_at, position = self._log.read(offset, self._reach(place) - offset), offset, 0
            if len(self._page) < size:
                return None
        return self._page, position

    def _reach(self, place: int) -> int:
        """Where a read that begins with this entry's record ends: after the last of those that follow closely."""
        offset, size, _ = self._rows[place]
        start, end = offset, offset + size
        for number in range(place + 1, len(self._rows)):
            if self._passing is not None and not self._passing[number]:
                continue
            offset, size, _ = self._rows[number]
            if not 0 <= offset - end <= _READ_GAP_MAX or offset + size - start > self._size_max or size <= 0:
                break
            end = offset + size
        return end
