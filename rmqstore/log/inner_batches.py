"""Inner batches: several messages of one queue in one record, for topics with queue.type=BatchCQ.

Made of the messages of a put, found again among the records of the log, and taken apart for those who read.  Java:
SendMessageProcessor.sendBatchMessage, BatchConsumeQueue, MessageDecoder.decodeMessage.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rmqstore.errors import Rejected
from rmqstore.formats import message as layouts
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.batch_frames import is_delayed
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.inner_batch import COUNT_MAX, Piece, counted_pieces, encode_pieces, without_batch_flags
from rmqstore.formats.message_columns import Ints, take_rows
from rmqstore.formats.message_fields import plain_message
from rmqstore.formats.record_crc import masked_crc32
from rmqstore.formats.record_frame import PROPERTIES_SIZE_MAX, RecordForm, has_plain_types, properties_block
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.queue_numbers import distinct_queues
from rmqstore.log.record_vectors import Records
from rmqstore.message import Message, PutStatus

QueueKey = tuple[str, int]
Rows = npt.NDArray[np.intp]
Units = npt.NDArray[np.void]
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


def rows_by_kind(batch: Records, is_batch_topic: Callable[[str], bool]) -> tuple[Rows, Rows]:
    """The records that belong to queues: those whose topic has plain queues, and those whose topic has batch queues.

    The topic decides, as in RocketMQ, and not what a record says of itself.
    """
    topics, numbers = batch.topics
    of_batches = [is_batch_topic(topic) for topic in topics]
    nothing = np.zeros(0, np.intp)
    if not any(of_batches):
        return np.flatnonzero(batch.queued), nothing
    if all(of_batches):
        return nothing, np.flatnonzero(batch.queued)
    whole = np.array(of_batches)[numbers]
    return np.flatnonzero(batch.queued & ~whole), np.flatnonzero(batch.queued & whole)


def units_of(batch: Records, rows: Rows, codes: Ints | None = None) -> Iterator[tuple[QueueKey, Units]]:
    """The units of n ≥ 1 records of batch queues, BATCH_QUEUE_ENTRY.dtype, queue by queue, each in the order of the
    log; `codes` are all records' tags codes, 0 without.
    """
    units = np.zeros(len(rows), BATCH_QUEUE_ENTRY.dtype)
    units["physical_offset"], units["size"] = batch.offsets[rows], batch.sizes[rows]
    units["tags_code"], units["store_timestamp"] = 0 if codes is None else codes[rows], batch.store_ms[rows]
    units["base_queue_offset"], units["message_count"] = batch.numbers.bases[rows], batch.numbers.counts[rows]
    units["compacted_offset"] = -1
    topics, topic_numbers = batch.topics
    pairs, places = distinct_queues(topic_numbers[rows], batch.queue_ids[rows])
    order = np.argsort(places, kind="stable")
    cuts = np.flatnonzero(np.diff(places[order])) + 1
    for (topic, queue_id), group in zip(pairs, np.split(order, cuts), strict=True):
        yield (topics[topic], queue_id), take_rows(units, group)


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
