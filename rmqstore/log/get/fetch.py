"""Reading a store back: by queue offset, by place, by key and by time, with RocketMQ's answers.

Java: DefaultMessageStore.getMessage, lookMessageByOffset, queryMessage, getOffsetInQueueByTime.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from rmqstore import arguments
from rmqstore.errors import DataLost, Rejected, StoreDamaged
from rmqstore.formats import message as layouts
from rmqstore.formats.message_id import offset_of_id, parse_offset_message_id
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.formats.queue_extension import ADDRESS_MAX
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.derived.batch_queue import BatchQueue
from rmqstore.log.get.batch_fetch import Wanted, get_messages, offset_at
from rmqstore.log.get.tag_filter import TagFilter, parse_tags
from rmqstore.message import GetResult, GetStatus

Boundary = Literal["lower", "upper"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
KEY_QUERY_COUNT = 32  # Java: defaultQueryMaxNum
_KEY_ROUNDS = 3
_I64_MAX = 2**63 - 1

# Two records that lie closer than this are read in one go, with what is between them.
_READ_GAP_MAX = 4096
_FRONT_SIZE_MAX = layouts.HEAD.size + layouts.HOST_V6.size + layouts.STORE_TIME.size
_SIZE = layouts.BLANK  # totalSize and magic


class LogFiles(Protocol):
    """What is asked of the files of a log."""

    @property
    def file_size(self) -> int:
        """Bytes of each."""

    def path_of(self, offset: int) -> str:
        """Path of the file that holds `offset`; ValueError if none does."""


class ReadableLog(Protocol):
    """What is asked of a log."""

    @property
    def start(self) -> int:
        """The first offset that can be read."""

    @property
    def readable_end(self) -> int:
        """Where what can be read ends."""

    @property
    def files(self) -> LogFiles:
        """Its files."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from `offset` on, as far as they can be read."""


class QueueFiles(Protocol):
    """What is asked of the files of a queue."""

    @property
    def file_size(self) -> int:
        """Bytes of each."""


class ReadableQueue(Protocol):
    """What is asked of a consume queue."""

    @property
    def min_offset(self) -> int:
        """The first queue offset that can be read."""

    @property
    def max_offset(self) -> int:
        """The queue offset of the next message."""

    @property
    def files(self) -> QueueFiles:
        """Its files."""

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Entries of queue offsets [first, last), as far as they are written."""

    def tags_codes(self, entries: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """The third field of entries, extension addresses resolved."""


class Queues(Protocol):
    """What is asked of the table of queues."""

    def find(self, topic: str, queue_id: int) -> ReadableQueue | None:
        """The queue, None where there is none."""


class WholeBatches(Protocol):
    """What is asked of the table of queues of whole batches."""

    def find(self, topic: str, queue_id: int) -> BatchQueue | None:
        """The queue, None where there is none."""


class KeyIndex(Protocol):
    """What is asked of the index."""

    def query(self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        """Offsets of records by the hash of a key, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much one read of a queue brings and looks at; Apache's names, values and units.

    Messages within the newest 40 % of `memory_bytes` of the log are taken to be in memory: of those a read brings more.
    """

    memory_bytes: int = 24 * 1024**3  # Java's where it cannot find out
    memory_percent: int = 40  # accessMessageInMemoryMaxRatio
    bytes_in_memory: int = 262_144  # maxTransferBytesOnMessageInMemory
    count_in_memory: int = 32
    bytes_on_disk: int = 65_536
    count_on_disk: int = 8
    filter_bytes: int = 16_000  # maxFilterMessageSize: of queue entries
    bytes_min: int = 100
    bytes_max: int = 128 * 1024 * 1024  # MAX_PULL_MSG_SIZE


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
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)  # Java makes the queue: there is none without
        # The end first: what is before it stays readable, and the start may only come nearer to it.
        high = held.max_offset
        low = held.min_offset
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        limits = self._limits
        max_bytes = limits.bytes_max if max_bytes is None else min(max(max_bytes, limits.bytes_min), limits.bytes_max)
        if whole is not None:
            size = min(max_bytes, limits.bytes_in_memory)
            return get_messages(self._log, whole, Wanted(offset, max_count, size, chosen), self._broker_name)
        assert queue is not None
        scan = _Scan(self._log, limits, self._broker_name, (max_count, max_bytes), chosen)
        scan.run(queue, offset, high)
        return GetResult(scan.status, scan.next_offset, low, high, scan.messages)

    def message_at(self, place: int | str) -> StoredMessage:
        """The message whose record begins at an offset of the log, or that has an offset message id; its body may be
        one that cannot be unpacked.  Raises DataLost where the log holds nothing, or a message of another id; Corrupt
        where no sound record begins; Rejected for text that is no such id."""
        if isinstance(place, str):
            return self._message_with_id(place)
        physical_offset = arguments.integer("physical_offset", place)
        message = self._look(physical_offset)
        if message is None:
            raise self._nothing_at(physical_offset, "no record begins there")
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
        self, topic: str, key: str, max_count: int = KEY_QUERY_COUNT, begin_ms: int = 0, end_ms: int = _I64_MAX
    ) -> list[StoredMessage]:
        """Messages of a topic by key (one of KEYS, or UNIQ_KEY) or offset message id, in the order of the log.

        The newest `max_count` (at most 64) index items of the times are looked at, rounded to seconds as the index has
        them; where none of their records has the key or can be read, those before them, three times at the most.
        Items of other keys with the same hash are left out here, where Java leaves that to its client.  The message of
        an id comes first where both are too many.
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
        round_end_ms = end_ms
        for _ in range(_KEY_ROUNDS):
            offsets = sorted(self._index.query(topic, key, begin_ms, round_end_ms, max_count))
            found = [message for message in map(self._look, offsets) if message is not None]
            sound = [message for message in found if message.is_sound]
            keyed = [message for message in sound if message.topic == topic and message.has_key(key)]
            if keyed or not offsets:
                return keyed
            if sound and sound[0].physical_offset == offsets[0]:
                round_end_ms = sound[0].store_timestamp_ms
            if round_end_ms < begin_ms:
                break
        return []

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "lower") -> int:
        """The queue offset for a store time, as 5.x answers it; 0 for a queue that is not there.

        "lower": the first message stored at or after the time, the queue's end if there is none.  "upper": the last one
        stored at or before it, the queue's start if there is none.  By halving: store times never fall along a queue
        but where a clock was set back.  Raises Rejected for another word.
        """
        arguments.word("boundary", boundary, BOUNDARIES)
        topic, queue_id = arguments.text("topic", topic), arguments.integer("queue_id", queue_id)
        timestamp_ms = arguments.milliseconds("timestamp_ms", timestamp_ms)
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            whole = None if self._batches is None else self._batches.find(topic, queue_id)
            return 0 if whole is None else offset_at(whole, timestamp_ms, boundary)
        high = end = queue.max_offset
        low = start = min(queue.min_offset, end)
        wanted_ms = timestamp_ms + (boundary == "upper")
        while low < high:
            middle = (low + high) // 2
            time_ms = self._stored_ms(queue, middle)
            # What cannot be read any more lies before everything that can.
            if time_ms is not None and time_ms >= wanted_ms:
                high = middle
            else:
                low = middle + 1
        return max(low - 1, start) if boundary == "upper" else low

    def _stored_ms(self, queue: ReadableQueue, queue_offset: int) -> int | None:
        """storeTimestamp of a message by its queue offset; None where its record cannot be read."""
        entries = queue.read(queue_offset, queue_offset + 1)
        if not len(entries):
            return None
        offset, size, _ = entries[0].tolist()
        log = self._log
        if offset < log.start or size < layouts.RECORD_SIZE_MIN or offset + size > log.readable_end:
            return None
        front = log.read(offset, _FRONT_SIZE_MAX)
        if len(front) < _FRONT_SIZE_MAX:  # even the smallest record has that many bytes
            return None
        born_size, _ = layouts.host_sizes(layouts.HEAD.read(front)["sys_flag"])
        (time_ms,) = layouts.STORE_TIME.struct.unpack_from(front, layouts.HEAD.size + born_size)
        return int(time_ms)

    def _look(self, offset: int) -> StoredMessage | None:
        """The record at an offset, by its own size; None where the log holds none that is whole."""
        log = self._log
        if not log.start <= offset < log.readable_end:
            return None
        head = log.read(offset, _SIZE.size)
        if len(head) < _SIZE.size:
            return None
        size, magic = _SIZE.struct.unpack(head)
        if magic == layouts.MAGIC_BLANK or not _can_read(log, offset, size):
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


def _can_read(log: ReadableLog, offset: int, size: int) -> bool:
    """Whether a record of `size` bytes can lie at `offset`: inside what is readable, and inside one file."""
    file_size = log.files.file_size
    is_inside = log.start <= offset and size > 0 and offset + size <= log.readable_end
    return is_inside and offset % file_size + size <= file_size


class _Scan:
    """One walk along a queue that collects messages until a limit is reached: step for step as Java goes."""

    def __init__(
        self, log: ReadableLog, limits: FetchLimits, broker_name: str, most: tuple[int, int], chosen: TagFilter | None
    ) -> None:
        self._log, self._limits, self._broker_name = log, limits, broker_name
        self._max_count, self._max_bytes = most
        self._count_end = min(self._max_count, max(limits.count_in_memory, limits.count_on_disk))
        self._chosen = chosen
        self._size = 0
        self._skip_below = -1  # a file was gone: entries that point before the next one are not tried
        self._in_memory_from = log.readable_end - limits.memory_bytes * limits.memory_percent // 100
        self.status = GetStatus.NO_MATCHED_MESSAGE
        self.next_offset = 0
        self.messages: list[StoredMessage] = []

    def run(self, queue: ReadableQueue, offset: int, end: int) -> None:
        """Scans from `offset` to the end of the queue's file at the most."""
        per_file = queue.files.file_size // QUEUE_ENTRY.size
        last = min(end, offset + per_file - offset % per_file)
        last = min(last, offset + max(self._limits.filter_bytes // QUEUE_ENTRY.size, self._max_count))
        self.next_offset = first = offset
        step = min(self._max_count, self._limits.count_in_memory) if self._chosen is None else last - first
        while first < last:
            entries = queue.read(first, min(first + step, last))
            if not len(entries):
                break
            if not self._take(queue, entries):
                return
            first += len(entries)
        if first == offset:
            self.status = GetStatus.OFFSET_FOUND_NULL
            self.next_offset = offset + per_file - offset % per_file

    def _take(self, queue: ReadableQueue, entries: npt.NDArray[np.void]) -> bool:
        """Goes through some entries; False when the batch is full."""
        rows = entries.tolist()
        passing = None if self._chosen is None else self._chosen.passing(_resolved(queue, entries))
        records = _Records(self._log, rows, passing, min(self._max_bytes, self._limits.bytes_in_memory))
        for place, (offset, size, _) in enumerate(rows):
            if self.messages and self._is_full(offset, size):
                return False
            self.next_offset += 1
            if offset < self._skip_below:
                continue
            if passing is not None and not passing[place]:
                self._missed(GetStatus.NO_MATCHED_MESSAGE)
                continue
            found = records.read(place)
            if found is None:
                self._missed(GetStatus.MESSAGE_WAS_REMOVING)
                file_size = self._log.files.file_size
                self._skip_below = offset + file_size - offset % file_size
                continue
            message = StoredMessage(*found, size, offset, self._broker_name)
            # Where a record is damaged, its entry is all that tells of its tags.
            if self._chosen is not None and message.is_whole and message.tags not in self._chosen.tags:
                self._missed(GetStatus.NO_MATCHED_MESSAGE)
                continue
            self.messages.append(message)
            self._size += size
            self._skip_below = -1
            self.status = GetStatus.FOUND
            if len(self.messages) >= self._count_end:  # full whatever follows, which need not be read then
                return False
        return True

    def _missed(self, status: GetStatus) -> None:
        if not self.messages:
            self.status = status

    def _is_full(self, offset: int, size: int) -> bool:
        """Java: DefaultMessageStore.isTheBatchFull."""
        limits, count, total = self._limits, len(self.messages), self._size + size
        if count >= self._max_count or total > self._max_bytes or self._size >= self._max_bytes:
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
            if not _can_read(self._log, offset, size):
                return None
            self._page, self._page_at, position = self._log.read(offset, self._reach(place) - offset), offset, 0
            if len(self._page) < size:
                return None
        return self._page, position

    def _reach(self, place: int) -> int:
        """Where a read that begins with this entry's record ends: behind the last of those that follow closely."""
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
