"""Puts of several messages as one record, an inner batch: what the record says, and what may be stored so."""

import re
from collections.abc import Sequence

from rmqstore.errors import Rejected
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.inner_batch import COUNT_MAX, Piece, encode_pieces
from rmqstore.formats.message_fields import plain_message
from rmqstore.log.encode.batch_frame import is_delayed
from rmqstore.log.encode.record_frame import PROPERTIES_SIZE_MAX, RecordForm, has_plain_types, properties_block
from rmqstore.message import Message, PutStatus

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
