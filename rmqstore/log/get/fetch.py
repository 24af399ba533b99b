"""Reading a store back: by queue offset, by place, by key and by time, with RocketMQ's answers.

Java: DefaultMessageStore.getMessage, lookMessageByOffset, queryMessage, getOffsetInQueueByTime.
"""

from rmqstore import arguments
from rmqstore.arguments import I64_MAX
from rmqstore.errors import NO_RECORD_BEGINS, DataLost, Rejected, StoreDamaged
from rmqstore.formats import message as layouts
from rmqstore.formats.message_id import offset_of_id, parse_offset_message_id
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.get.answer import Wanted, Where, answer_outside, where_of
from rmqstore.log.get.batch_fetch import collect_batches
from rmqstore.log.get.by_time import BOUNDARIES, Boundary, offset_in_batches, offset_in_queue
from rmqstore.log.get.queue_scan import QueueWalk
from rmqstore.log.get.readable import FetchLimits, KeyIndex, Queues, ReadableLog, WholeBatches, holds_record
from rmqstore.log.get.tag_filter import parse_tags
from rmqstore.message import GetResult

KEY_QUERY_COUNT = 32  # Java: defaultQueryMaxNum
_KEY_ROUNDS = 3
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
