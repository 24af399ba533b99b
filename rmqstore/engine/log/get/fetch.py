"""Reading a store back: by queue offset, by place, by key and by time, with RocketMQ's answers.

Java: DefaultMessageStore.getMessage, lookMessageByOffset, queryMessage, getOffsetInQueueByTime.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.core import arguments
from rmqstore.core.arguments import I64_MAX
from rmqstore.core.message import GetResult, GetStatus
from rmqstore.engine.log.derived.batch_queue import BatchQueue
from rmqstore.engine.log.derived.index_log import COUNT_MAX
from rmqstore.engine.log.get.by_time import BOUNDARIES, Boundary, offset_in_batches, offset_in_queue
from rmqstore.engine.log.get.readable import (
    FetchLimits,
    KeyIndex,
    Queues,
    ReadableLog,
    ReadableQueue,
    WholeBatches,
    holds_record,
)
from rmqstore.engine.log.get.tag_filter import TagFilter, parse_tags
from rmqstore.errors import NO_RECORD_BEGINS, DataLost, Rejected, StoreDamaged
from rmqstore.formats import message as layouts
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.index import of_one_key
from rmqstore.formats.inner_batch import counted_pieces, without_batch_flags
from rmqstore.formats.message_id import offset_of_id, parse_offset_message_id
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.formats.queue_extension import ADDRESS_MAX
from rmqstore.formats.record_crc import masked_crc32
from rmqstore.formats.stored_message import StoredMessage

# --- RocketMQ's answers to a read of a queue: by where the offset lies, and by what was found from there on.
#
# Java: DefaultMessageStore.getMessage.


class Where(enum.Enum):
    """Where a queue offset lies in its queue, which holds [low, high)."""

    NO_QUEUE = enum.auto()
    EMPTY = enum.auto()  # no message ever came
    TOO_SMALL = enum.auto()
    INSIDE = enum.auto()
    AT_END = enum.auto()
    BEYOND = enum.auto()


class _Next(enum.Enum):
    """Where the next read begins."""

    START = 0  # of the log: queue offset 0
    LOW = 1
    HIGH = 2


# Java makes the queue that is not there.  What lies inside is read.
STATUSES = {
    Where.NO_QUEUE: (GetStatus.NO_MESSAGE_IN_QUEUE, _Next.START),
    Where.EMPTY: (GetStatus.NO_MESSAGE_IN_QUEUE, _Next.START),
    Where.TOO_SMALL: (GetStatus.OFFSET_TOO_SMALL, _Next.LOW),
    Where.AT_END: (GetStatus.OFFSET_OVERFLOW_ONE, _Next.HIGH),
    Where.BEYOND: (GetStatus.OFFSET_OVERFLOW_BADLY, _Next.HIGH),
}


def where_of(offset: int, low: int, high: int) -> Where:
    """Where an offset lies in a queue that is there."""
    if high == 0:
        return Where.EMPTY
    if offset < low:
        return Where.TOO_SMALL
    if offset < high:
        return Where.INSIDE
    return Where.AT_END if offset == high else Where.BEYOND


def answer_outside(where: Where, low: int = 0, high: int = 0) -> GetResult:
    """The answer where nothing is read."""
    status, following = STATUSES[where]
    return GetResult(status, {_Next.START: 0, _Next.LOW: low, _Next.HIGH: high}[following], low, high)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request: at most `count` messages and `size` bytes of records, but one in any case, of these tags."""

    offset: int
    count: int
    size: int
    tags: TagFilter | None

    def takes(self, message: StoredMessage) -> bool:
        """Whether a message has one of the tags."""
        return self.tags is None or message.tags in self.tags.tags


class Answer:
    """The messages that a read has found so far; `next_offset` is where the next one begins.

    The status is FOUND from the first message on, and before it what the newest place that gave none came to.
    """

    __slots__ = ("messages", "next_offset", "status")

    def __init__(self, offset: int) -> None:
        self.status = GetStatus.NO_MATCHED_MESSAGE
        self.next_offset = offset
        self.messages: list[StoredMessage] = []

    def add(self, message: StoredMessage) -> None:
        """One more message."""
        self.messages.append(message)
        self.status = GetStatus.FOUND

    def missed(self, status: GetStatus) -> None:
        """A place gave no message."""
        if not self.messages:
            self.status = status

    def result(self, low: int, high: int) -> GetResult:
        """The answer, with the queue's bounds."""
        return GetResult(self.status, self.next_offset, low, high, self.messages)


# ---

# --- Reading a queue of plain entries: along the entries, and from each to its record.

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


# ---

# --- Reading queues of whole batches message by message.
#
# Java gives its clients whole batches, which they take apart; here any queue offset can be read from and stopped at.

# Units that one read looks at.
_UNITS_MAX = 400


def collect_batches(log: ReadableLog, queue: BatchQueue, wanted: Wanted, broker_name: str) -> Answer:
    """The next messages from a queue offset that lies inside the queue, also in the middle of a batch."""
    answer, size = Answer(wanted.offset), 0
    for stored, base, count in _batches(log, queue, wanted.offset, broker_name):
        if answer.messages and size + stored.store_size > wanted.size:
            break
        size += stored.store_size
        if not _can_read(log, stored):
            answer.next_offset = max(base + count, wanted.offset)
            answer.missed(GetStatus.MESSAGE_WAS_REMOVING)
            continue
        for message in taken_apart(stored, base, count):
            if message.queue_offset < wanted.offset and message is not stored:
                continue
            if len(answer.messages) >= wanted.count:
                return answer
            answer.next_offset = max(base + count if message is stored else message.queue_offset + 1, wanted.offset)
            if wanted.takes(message):
                answer.add(message)
            else:
                answer.missed(GetStatus.NO_MATCHED_MESSAGE)
    return answer


class _Batch(NamedTuple):
    """The record of a unit: `message_count` messages from queue offset `base` on."""

    stored: StoredMessage
    base: int
    message_count: int


def _batches(log: ReadableLog, queue: BatchQueue, offset: int, broker_name: str) -> Iterator[_Batch]:
    """The records of the units from that of a queue offset on."""
    slot = max(queue.slot_of(offset), queue.slots[0])
    units = queue.read(slot, slot + _UNITS_MAX)
    fields = ("physical_offset", "size", "base_queue_offset", "message_count")
    for place, size, base, count in zip(*(units[name].tolist() for name in fields), strict=True):
        if base + count > offset:  # numbers may be missing between units
            is_held = size >= layouts.RECORD_SIZE_MIN and holds_record(log, place, size)
            data = log.read(place, size) if is_held else b""
            yield _Batch(StoredMessage(data, 0, size, place, broker_name), base, count)


def _can_read(log: ReadableLog, stored: StoredMessage) -> bool:
    return log.start <= stored.physical_offset and len(stored.stored_record) == stored.store_size


def taken_apart(stored: StoredMessage, base: int, count: int) -> list[StoredMessage]:
    """The messages of an inner batch, `count` of them from queue offset `base` on, each as if it had been stored alone.

    They share the record's place, times and hosts.  A record that is no inner batch, cannot be taken apart, or holds
    another number of messages, stays one message, and its `corrupt_reason` says why, if it does.
    """
    record = stored.record
    if not sys_flag.is_inner_batch(record.sys_flag) or not stored.is_whole:
        return [stored]
    body = stored.body
    if body is None or (count == 1 and properties.INNER_COUNT not in stored.properties):
        return [stored]
    pieces = counted_pieces(body, count)
    if pieces is None:
        return [stored]
    flags = without_batch_flags(record.sys_flag)
    found = []
    for number, piece in enumerate(pieces):
        data = layouts.encode_record(
            replace(
                record, sys_flag=flags, flag=piece.flag, body=piece.body, properties=piece.properties,
                body_crc=masked_crc32(piece.body), queue_offset=base + number,
            )
        )  # fmt: skip
        found.append(StoredMessage(data, 0, len(data), stored.physical_offset, stored.broker_name))
    return found


# ---

KEY_QUERY_COUNT = 32  # Java: defaultQueryMaxNum
_SIZE = layouts.BLANK  # totalSize and magic
_DEFAULT_LIMITS = FetchLimits()


class Fetch:
    """The read side of a store; keeps nothing between calls, so any number of threads may read at once."""

    def __init__(
        self, log: ReadableLog, queues: Queues, index: KeyIndex | None, *,
        broker_name: str = "default", limits: FetchLimits = _DEFAULT_LIMITS, batches: WholeBatches | None = None,
    ) -> None:  # fmt: skip
        self._log, self._queues, self._index, self._batches = log, queues, index, batches
        self._broker_name = broker_name
        self._limits = limits

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int = 32, max_bytes: int | None = None,
        tags: str = "*",
    ) -> GetResult:  # fmt: skip
        """The next messages of a queue from queue offset `offset` on, at most `max_count` and `max_bytes` of records,
        but one in any case; `tags` as a consumer subscribes, `paid || sent`.

        Never raises for a place where nothing is: the status says what to do, and `next_offset` where to go on.
        Raises Rejected for a `max_count` below 1 and a `tags` that names none.
        """
        if not (type(queue_id) is type(offset) is type(max_count) is int and type(topic) is type(tags) is str):
            topic, tags = arguments.text("topic", topic), arguments.text("tags", tags, "text: a || b, or * for all")
            queue_id, offset = arguments.integer("queue_id", queue_id), arguments.integer("offset", offset)
            max_count = arguments.integer("max_count", max_count)
        if max_count < 1:
            raise Rejected(f"max_count={max_count}: at least 1")
        if max_bytes is not None:
            max_bytes = arguments.integer("max_bytes", max_bytes)
        chosen = parse_tags(tags)
        queue = self._queues.find(topic, queue_id)
        whole = None if queue is not None or self._batches is None else self._batches.find(topic, queue_id)
        held = queue or whole
        if held is None:
            return answer_outside(Where.NO_QUEUE)
        # The end first: what is before it stays readable, and the start may only come nearer to it.
        high = held.max_offset
        low = held.min_offset
        where = where_of(offset, low, high)
        if where is not Where.INSIDE:
            return answer_outside(where, low, high)
        limits = self._limits
        size = limits.bytes_max if max_bytes is None else min(max(max_bytes, limits.bytes_min), limits.bytes_max)
        if queue is not None:
            wanted = Wanted(offset, max_count, size, chosen)
            return QueueWalk(self._log, limits, self._broker_name, wanted).run(queue, high).result(low, high)
        assert whole is not None
        wanted = Wanted(offset, max_count, min(size, limits.bytes_in_memory), chosen)
        return collect_batches(self._log, whole, wanted, self._broker_name).result(low, high)

    def message_at(self, place: int | str) -> StoredMessage:
        """The message whose record begins at an offset of the log, or that has an offset message id; its body may be
        one that cannot be unpacked.  Raises DataLost where the log holds nothing, or a message of another id; Corrupt
        where no sound record begins; Rejected for text that is no such id."""
        if isinstance(place, str):
            return self._message_with_id(place)
        physical_offset = arguments.integer("physical_offset", place)
        message = self._look(physical_offset)
        if message is None:
            raise self._nothing_at(physical_offset, NO_RECORD_BEGINS)
        return self._sound(message)

    def _message_with_id(self, text: str) -> StoredMessage:
        try:
            physical_offset = parse_offset_message_id(text)[1]
        except ValueError as error:
            raise Rejected(f"{error}; a unique key is found by `query`") from None
        message = self._look(physical_offset)
        if message is None or not message.has_id(text):
            raise self._nothing_at(physical_offset, f"no message with the id {text} is there")
        return self._sound(message)

    def _nothing_at(self, physical_offset: int, reason: str) -> DataLost:
        held = (self._log.start, self._log.readable_end)
        return DataLost("commitlog", (physical_offset, physical_offset + 1), held, "commitlog", reason)

    def _sound(self, message: StoredMessage) -> StoredMessage:
        if not message.is_sound:
            file_size = self._log.files.file_size
            path = self._log.files.path_of(message.physical_offset)
            raise StoreDamaged(path, message.physical_offset % file_size, message.corrupt_reason or "")
        return message

    def query(
        self, topic: str, key: str, max_count: int = KEY_QUERY_COUNT, begin_ms: int = 0, end_ms: int = I64_MAX
    ) -> list[StoredMessage]:
        """Messages of a topic by key (one of KEYS, or UNIQ_KEY) or offset message id, in the order of the log.

        The newest `max_count`, and never more than 64 (RocketMQ: maxMsgsNumBatch): a scan with keys= has all.  Records
        that cannot be read take a place, those of other keys with the same hash take none; Java leaves these to its
        client.  Times are rounded to seconds, as the index has them.  The message of an id comes first where both are
        too many.
        """
        topic, key = arguments.text("topic", topic), arguments.text("key", key)
        max_count = arguments.integer("max_count", max_count)  # of less than one there are none, as in RocketMQ
        begin_ms, end_ms = arguments.milliseconds("begin_ms", begin_ms), arguments.milliseconds("end_ms", end_ms)
        place = offset_of_id(key)
        named = None if place is None or max_count < 1 else self._look(place)
        if named is None or not _is_asked_for(named, topic, key, (begin_ms, end_ms)):
            return self._keyed(topic, key, max_count, begin_ms, end_ms)
        others = self._keyed(topic, key, max_count - 1, begin_ms, end_ms) if max_count > 1 else []
        return sorted(others if named in others else [*others, named], key=_place_of)

    def _keyed(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[StoredMessage]:
        if self._index is None:
            return []
        looked = lru_cache(COUNT_MAX)(self._look)

        def is_others(offset: int) -> bool:
            message = looked(offset)
            return message is not None and message.is_sound and not (message.topic == topic and message.has_key(key))

        look_up = partial(self._index.query, topic, key, begin_ms, end_ms)
        offsets = sorted(of_one_key(look_up, is_others, min(max_count, COUNT_MAX)))
        return [message for message in map(looked, offsets) if message is not None and message.is_sound]

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "lower") -> int:
        """The queue offset for a store time, as 5.x answers it; 0 for a queue that is not there.

        "lower": the first message stored at or after the time, the queue's end if there is none.  "upper": the last one
        stored at or before it, the queue's start if there is none.  Raises Rejected for another word.
        """
        arguments.word("boundary", boundary, BOUNDARIES)
        topic, queue_id = arguments.text("topic", topic), arguments.integer("queue_id", queue_id)
        timestamp_ms = arguments.milliseconds("timestamp_ms", timestamp_ms)
        queue = self._queues.find(topic, queue_id)
        if queue is not None:
            return offset_in_queue(self._log, queue, timestamp_ms, boundary)
        whole = None if self._batches is None else self._batches.find(topic, queue_id)
        return 0 if whole is None else offset_in_batches(whole, timestamp_ms, boundary)

    def _look(self, offset: int) -> StoredMessage | None:
        """The record at an offset, by its own size; None where the log holds none that is whole."""
        log = self._log
        if not log.start <= offset < log.readable_end:
            return None
        head = log.read(offset, _SIZE.size)
        if len(head) < _SIZE.size:
            return None
        size, magic = _SIZE.struct.unpack(head)
        if magic == layouts.MAGIC_BLANK or not holds_record(log, offset, size):
            size = len(head)
        data = log.read(offset, size)
        return StoredMessage(data, 0, size, offset, self._broker_name) if len(data) == size else None


def _is_asked_for(message: StoredMessage, topic: str, offset_id: str, times_ms: tuple[int, int]) -> bool:
    """Whether a record is the sound message of a topic that has an id, stored within the times."""
    begin_ms, end_ms = times_ms
    is_it = message.has_id(offset_id) and message.topic == topic and message.is_sound
    return is_it and begin_ms <= message.store_timestamp_ms <= end_ms


def _place_of(message: StoredMessage) -> int:
    return message.physical_offset
