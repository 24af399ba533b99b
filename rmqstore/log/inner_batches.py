"""Inner batches: several messages of one queue in one record, for topics with queue.type=BatchCQ.

Made of the messages of a put, found again among the records of the log, and taken apart for those who read.  Java:
SendMessageProcessor.sendBatchMessage, BatchConsumeQueue, MessageDecoder.decodeMessage.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rmqstore.errors import Corrupt, Rejected
from rmqstore.formats import message as layouts
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.batch_frames import is_delayed
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.inner_batch import COUNT_MAX, Piece, encode_pieces, read_pieces
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.record_crc import masked_crc32
from rmqstore.formats.record_frame import PROPERTIES_SIZE_MAX, RecordForm, properties_block
from rmqstore.log.record_batch import RecordBatch
from rmqstore.log.stored_record import StoredMessage
from rmqstore.message import Message, PutStatus

QueueKey = tuple[str, int]
BOTH_FLAGS = sys_flag.NEED_UNWRAP | sys_flag.INNER_BATCH
_COUNT, _BASE = _NAMES = (properties.INNER_COUNT.encode(), properties.INNER_BASE.encode())
_NUMBER = re.compile(rb"[0-9]{1,18}")


def inner_batch_of(messages: Sequence[Message], form: RecordForm) -> Message | PutStatus:
    """The messages of one queue as one message whose body holds them, or why they may not be stored.

    Born as the first of them, and found by its UNIQ_KEY, which stands for the batch; their own KEYS and TAGS stay
    inside, as those that RocketMQ's clients send do.  Raises Rejected for no message at all and for several queues.
    """
    if not messages:
        raise Rejected("a batch of no messages")
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


def is_inner_batch_rows(batch: RecordBatch) -> npt.NDArray[np.bool_]:
    """Which records are inner batches that belong to a queue: bool[n]."""
    kind = batch.sys_flags & sys_flag.TRANSACTION_MASK
    is_batch = batch.sys_flags & BOTH_FLAGS == BOTH_FLAGS
    return np.asarray(is_batch & ((kind == 0) | (kind == sys_flag.COMMIT)))


def inner_batches(batch: RecordBatch, rows: Ints, codes: Ints) -> tuple[list[QueueKey], npt.NDArray[np.void]]:
    """Queue and unit of each of the inner batches in `rows`, in the order of the log; `codes` are all records' tags
    codes.  Records that do not say how many messages they hold, and from which queue offset on, have none.
    """
    topics, numbers = batch.topics
    data = batch.pieces.data
    columns = batch.pieces.find_all(_NAMES)
    keys: list[QueueKey] = []
    found: list[tuple[int, int, int]] = []
    for row in rows.tolist():
        texts = [data[starts[row] : starts[row] + max(int(sizes[row]), 0)].tobytes()
                 for starts, sizes in (columns[name] for name in _NAMES)]  # fmt: skip
        if all(map(_NUMBER.fullmatch, texts)) and 0 < int(texts[0]) <= COUNT_MAX:
            keys.append((topics[int(numbers[row])], int(batch.queue_ids[row])))
            found.append((row, int(texts[0]), int(texts[1])))
    units = np.zeros(len(found), BATCH_QUEUE_ENTRY.dtype)
    if found:
        chosen, counts, bases = (np.array(column, np.int64) for column in zip(*found, strict=True))
        units["physical_offset"], units["size"] = batch.offsets[chosen], batch.sizes[chosen]
        units["tags_code"], units["store_timestamp"] = codes[chosen], batch.store_ms[chosen]
        units["base_queue_offset"], units["message_count"], units["compacted_offset"] = bases, counts, -1
    return keys, units


def taken_apart(stored: StoredMessage, base: int, count: int) -> list[StoredMessage]:
    """The messages of an inner batch, `count` of them from queue offset `base` on, each as if it had been stored alone.

    They share the record's place, times and hosts.  A record that cannot be taken apart, or holds another number of
    messages, stays one message, and its `corrupt_reason` says why, if it does.
    """
    body = stored.body
    if body is None or not stored.is_whole:
        return [stored]
    try:
        pieces = read_pieces(body)
    except Corrupt:
        return [stored]
    if len(pieces) != count:
        return [stored]
    record = stored.record
    flags = record.sys_flag & ~(BOTH_FLAGS | sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK)
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
