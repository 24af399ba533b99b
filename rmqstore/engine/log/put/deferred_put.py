"""Puts whose records tell queue offsets in their properties: inner batches, and messages for light queues.

What the record says, and how long it is, is known only under the put lock.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqstore.core.message import Message, PutStatus
from rmqstore.directory.queue_kinds import QueueKinds
from rmqstore.engine.log.encode.batch_frame import is_delayed
from rmqstore.engine.log.encode.columns import EncodedColumns
from rmqstore.engine.log.encode.record_frame import (
    PROPERTIES_SIZE_MAX,
    Frame,
    RecordForm,
    frame_of,
    has_plain_types,
    properties_block,
)
from rmqstore.errors import Rejected
from rmqstore.formats import message as layouts
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.host import decode_host
from rmqstore.formats.inner_batch import COUNT_MAX, Piece, encode_pieces, is_misused
from rmqstore.formats.layout import Layout
from rmqstore.formats.message import Record, read_record
from rmqstore.formats.message_fields import plain_message
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, NAME_END, WAIT, parse_properties
from rmqstore.records.light_queues import LIGHT_QUEUE_ID, SEPARATOR, may_dispatch, split_names

# --- Puts of several messages as one record, an inner batch: what the record says, and what may be stored so.

BOTH_FLAGS = sys_flag.NEED_UNWRAP | sys_flag.INNER_BATCH
_NUMBER = re.compile(rb"[0-9]{1,18}")


def inner_batch_of(messages: Sequence[Message], form: RecordForm) -> Message | PutStatus:
    """The messages of one queue as one message whose body holds them, or why they may not be stored.

    Born as the first of them, and found by its UNIQ_KEY, which stands for the batch; their own KEYS and TAGS stay
    inside, as those that RocketMQ's clients send do.  Raises Rejected for no message at all and for several queues.
    """
    if not messages:
        raise Rejected("a batch of no messages")
    messages = [each if has_plain_types(each) else plain_message(each) for each in messages]
    first = messages[0]
    if any(each.sys_flag & sys_flag.TRANSACTION_MASK or is_delayed(each) for each in messages):
        return PutStatus.MESSAGE_ILLEGAL
    if any((each.topic, each.queue_id) != (first.topic, first.queue_id) for each in messages):
        raise Rejected(f"a batch goes to one queue, not to {first.topic}/{first.queue_id} and others")
    pieces = []
    for each in messages:
        block = properties_block(each)
        if block is None:
            return PutStatus.MESSAGE_ILLEGAL
        if len(block) > PROPERTIES_SIZE_MAX:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        pieces.append(Piece(each.flag, each.body, block))
    if len(pieces) > COUNT_MAX or sum(len(piece.body) for piece in pieces) > form.message_size_max:
        return PutStatus.MESSAGE_ILLEGAL
    unique = first.properties.get(properties.UNIQUE_KEY)
    own = {} if unique is None else {properties.UNIQUE_KEY: unique}
    return Message(
        first.topic, encode_pieces(pieces), properties={**own, properties.INNER_COUNT: str(len(pieces))},
        queue_id=first.queue_id, flag=first.flag, sys_flag=first.sys_flag | BOTH_FLAGS,
        born_timestamp_ms=first.born_timestamp_ms, born_host=first.born_host, reconsume_times=first.reconsume_times,
        wait_store_ok=any(each.wait_store_ok for each in messages),
    )  # fmt: skip


def message_count(message: Message) -> int | None:
    """INNER_NUM of a message that says it is an inner batch; None unless it is a count that a unit can hold."""
    text = (message.properties.get(properties.INNER_COUNT) or "").encode(errors="replace")
    count = int(text) if _NUMBER.fullmatch(text) else 0
    return count if 0 < count <= COUNT_MAX else None


# ---

# --- A record with one property whose value is known only under the put lock: a queue offset, as text.
#
# `INNER_BASE` of an inner batch and `INNER_MULTI_QUEUE_OFFSET` of a message that goes into several queues are such;
# the size of the record depends on them.

_MARK = "\0late\0"
_TOTAL_SIZE = Layout(layouts.HEAD.fields[0])


class DeferredFrame:
    """`complete` makes the record, then `data` and `stamp` are those of its `Frame`; again and again if need be."""

    __slots__ = ("_block_after", "_block_before", "_front", "_size_max", "frame")

    def __init__(self, frame: Frame, properties_at: int, mark: bytes, size_max: int) -> None:
        self.frame = frame
        self._size_max = size_max
        self._front = bytes(frame.data[:properties_at])
        block = bytes(frame.data[properties_at + layouts.PROPERTIES_SIZE.size :])
        before, _, after = block.partition(mark)
        self._block_before = before + mark[: -len(_MARK)]
        self._block_after = after

    @property
    def data(self) -> bytearray:
        """The record."""
        return self.frame.data

    def complete(self, value: str) -> PutStatus | None:
        """Puts the value in; why the message may not be stored, if it became too large by it."""
        block = b"".join((self._block_before, value.encode(), self._block_after))
        if len(block) > PROPERTIES_SIZE_MAX:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        data = bytearray().join((self._front, layouts.PROPERTIES_SIZE.struct.pack(len(block)), block))
        if len(data) > self._size_max:
            return PutStatus.MESSAGE_ILLEGAL
        _TOTAL_SIZE.struct.pack_into(data, 0, len(data))
        self.frame.data = data
        return None


def deferred_frame_of(
    message: Message, name: str, form: RecordForm, now_ms: int, size_max: int
) -> DeferredFrame | PutStatus:
    """The record of a message but for the value of the property `name`, or why it may not be stored, as `frame_of`.

    The property keeps its place if the message has one of that name, and else is the last of the message's own.
    `size_max` is what the whole record may have.
    """
    marked = replace(message, properties={**message.properties, name: _MARK})
    frame = frame_of(marked, form, now_ms)
    if isinstance(frame, PutStatus):
        return frame
    topic = form.topic_bytes(message.topic)
    assert topic is not None
    hosts_at = frame.store_time_at + layouts.STORE_TIME.size
    properties_at = hosts_at + len(form.store_host) + layouts.FOOT.size + len(message.body) + len(topic)
    return DeferredFrame(frame, properties_at, f"{name}\1{_MARK}".encode(), size_max)


# ---

# --- Puts into light queues (LMQ): the queue offsets that a message gets in the queues that its properties name.
#
# Java: LmqDispatch, MultiDispatchUtils of 5.3.x.


def is_light_message(message: Message) -> bool:
    """Whether a put of the message gives it places in light queues as well."""
    return bool((message.properties.get(MULTI_DISPATCH) or "").strip()) and may_dispatch(message.topic)


class LightQueues:
    """Gives out the queue offsets of light queues, under the put lock: `next_offsets` is the store's table.

    At most `count_max` light queues; the message that needs one more is refused.  `_light` are those that there are.
    """

    def __init__(self, next_offsets: Mapping[QueueKey, int], count_max: int) -> None:
        self._next_offsets = next_offsets
        self._count_max = count_max
        self._light = {topic for topic, _ in next_offsets if is_light_queue(topic)}

    def frame_of(self, message: Message, form: RecordForm, now_ms: int) -> DeferredFrame | PutStatus:
        """The record of a message for light queues; `offsets_of` gives the value that it lacks.

        WAIT is not stored.  The whole record must be no larger than a body may be, as in Java.
        """
        kept = {name: value for name, value in message.properties.items() if name != WAIT}
        stored = replace(message, properties=kept, wait_store_ok=True)
        return deferred_frame_of(stored, MULTI_QUEUE_OFFSET, form, now_ms, form.message_size_max)

    def offsets_of(self, message: Message) -> str | PutStatus:
        """INNER_MULTI_QUEUE_OFFSET for a message that is appended next: empty pieces for names that are not light."""
        listed = split_names(message.properties[MULTI_DISPATCH])
        if len(self._light) + len(set(filter(is_light_queue, listed)) - self._light) > self._count_max:
            return PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        offsets = self._next_offsets
        pieces = [str(offsets.get((name, LIGHT_QUEUE_ID), 0)) if is_light_queue(name) else "" for name in listed]
        return SEPARATOR.join(pieces)

    def moved(self, message: Message) -> dict[QueueKey, int]:
        """The next offsets of its light queues, once the message is appended.  A name that is listed twice has one
        entry, so one number (in Java two, and a hole in the queue).
        """
        light = set(filter(is_light_queue, split_names(message.properties[MULTI_DISPATCH])))
        self._light |= light
        return {(name, LIGHT_QUEUE_ID): self._next_offsets.get((name, LIGHT_QUEUE_ID), 0) + 1 for name in light}


# ---

_LISTS_QUEUES = re.compile(re.escape(MULTI_DISPATCH.encode() + NAME_END))


@dataclass(frozen=True, slots=True)
class DeferredPut:
    """One put: `complete` and `moved` are called under the put lock, before the record is appended."""

    frame: DeferredFrame
    message: Message
    message_count: int
    light: LightQueues | None  # None: an inner batch

    @property
    def key(self) -> QueueKey:
        """Topic and queue id."""
        return self.frame.frame.topic, self.frame.frame.queue_id

    @property
    def is_counted(self) -> bool:
        """Whether it takes numbers in its own queue: of no transaction, or committed."""
        return self.frame.frame.is_counted

    def complete(self, queue_offset: int) -> PutStatus | None:
        """Makes the record whole but for its place; why it may not be stored, if so."""
        if self.light is None:
            return self.frame.complete(str(queue_offset))
        offsets = self.light.offsets_of(self.message)
        return offsets if isinstance(offsets, PutStatus) else self.frame.complete(offsets)

    def moved(self, queue_offset: int) -> dict[QueueKey, int]:
        """The next offsets of the queues that the message goes to, once it is appended with `queue_offset`."""
        if not self.is_counted:
            return {}
        further = {} if self.light is None else self.light.moved(self.message)
        return further | {self.key: queue_offset + self.message_count}


class DeferredPuts:
    """Tells which messages are completed under the put lock.  `next_offsets` is the store's table of queue offsets.

    `names`: a message without these properties, and without the flag of an inner batch, is an ordinary put.
    """

    def __init__(self, next_offsets: Mapping[QueueKey, int], kinds: QueueKinds, form: RecordForm) -> None:
        self._kinds = kinds
        self._form = form
        self._light = LightQueues(next_offsets, kinds.light_queue_max) if kinds.multi_dispatch else None
        self.names = frozenset((MULTI_DISPATCH,)) if kinds.multi_dispatch else frozenset[str]()

    def put_of(self, message: Message, now_ms: int) -> DeferredPut | PutStatus | None:
        """The deferred put of a message, why it may not be stored, or None where it is an ordinary put."""
        if message.sys_flag & sys_flag.INNER_BATCH and self._is_batch(message):
            return self._batch_put(message, now_ms)
        if self._light is None or not is_light_message(message):
            return None
        frame = self._light.frame_of(message, self._form, now_ms)
        return frame if isinstance(frame, PutStatus) else DeferredPut(frame, message, 1, self._light)

    def refuses(self, message: Message) -> bool:
        """Whether a message says wrongly that it is a batch; also where its flags are not a batch's, or where it does
        not say how many messages it holds, which RocketMQ stores as one message.
        """
        is_batch = bool(message.sys_flag & sys_flag.INNER_BATCH)
        may_come = is_batch and self._is_batch(message)
        return is_misused(is_batch, message.properties.get(properties.INNER_COUNT) is not None, may_come)

    def batch_put_of(self, messages: Sequence[Message], now_ms: int) -> DeferredPut | PutStatus | None:
        """The messages of a batch that is stored whole as one deferred put; None where they are stored one by one.

        MESSAGE_ILLEGAL for messages for light queues, which RocketMQ would not bring there either, and for those that
        say to be batches themselves.  RocketMQ stores a batch without a UNIQ_KEY one by one also for such a topic; here
        it is stored whole.
        """
        if self._light is not None and any(map(is_light_message, messages)):
            return PutStatus.MESSAGE_ILLEGAL
        if any(map(claims_to_be_batch, messages)):
            return PutStatus.MESSAGE_ILLEGAL
        if not messages or not self.is_batch_topic(messages[0].topic):
            return None
        whole = inner_batch_of(messages, self._form)
        return whole if isinstance(whole, PutStatus) else self._batch_put(whole, now_ms)

    def check_columns(self, table: pa.Table | pa.RecordBatch) -> None:
        """Raises Rejected for rows that would have to be completed under the put lock."""
        if self._light is None or "properties" not in table.schema.names:
            return
        column = table.column("properties")
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            if not pa.types.is_map(chunk.type) and not pa.types.is_list(chunk.type):
                continue  # nothing, or what is refused where the rows are looked at
            is_map = isinstance(chunk, pa.MapArray)
            names, values = (chunk.keys, chunk.items) if is_map else chunk.flatten().flatten()
            if MULTI_DISPATCH in names.filter(values.is_valid()).unique().to_pylist():
                raise Rejected(f"{MULTI_DISPATCH}: put messages for light queues one by one")

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has batch queues."""
        return self._kinds.is_batch_topic(topic)

    def _is_batch(self, message: Message) -> bool:
        """Whether a message is an inner batch that goes where such may come; one for light queues may go nowhere."""
        is_whole = sys_flag.is_inner_batch(message.sys_flag) and message_count(message) is not None
        is_light = self._light is not None and is_light_message(message)
        return is_whole and not is_light and self.is_batch_topic(message.topic)

    def _batch_put(self, message: Message, now_ms: int) -> DeferredPut | PutStatus:
        frame = deferred_frame_of(message, properties.INNER_BASE, self._form, now_ms, self._form.record_size_max)
        return frame if isinstance(frame, PutStatus) else DeferredPut(frame, message, message_count(message) or 1, None)


def claims_to_be_batch(message: Message) -> bool:
    """Whether a message says to be a batch that comes where none may: in a batch, or in a transaction."""
    is_batch = bool(message.sys_flag & sys_flag.INNER_BATCH)
    return is_misused(is_batch, message.properties.get(properties.INNER_COUNT) is not None, False)


def light_rows(records: EncodedColumns) -> Iterator[tuple[int, Message]]:
    """The records that name light queues, as messages; ascending.  Only they cost anything each."""
    data, last = records.data.tobytes(), -1
    for found in _LISTS_QUEUES.finditer(data):
        row = records.row_at(found.start())
        if row > last:
            last = row
            message = _message_at(data, int(records.starts[row]))
            if message is not None and is_light_message(message):
                yield row, message


def _message_at(data: bytes, start: int) -> Message | None:
    """The message of a record, its body as it is stored."""
    record = read_record(data, start)
    if not isinstance(record, Record):
        return None
    return Message(
        record.topic.decode(),
        record.body,
        properties=parse_properties(record.properties),
        queue_id=record.queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp,
        born_host=decode_host(record.born_host, 0, len(record.born_host)),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )
