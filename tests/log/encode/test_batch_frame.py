"""A batch: consecutive records, all or nothing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.log.encode.batch_frame import BatchFrame, batch_of
from rmqstore.engine.log.encode.record_frame import properties_block
from rmqstore.errors import Rejected
from rmqstore.formats.inner_batch import Piece, encode_pieces
from rmqstore.formats.record_crc import verify_property_crc
from tests.log.encode.framing import FORM, MESSAGES, NOW_MS, framed


def batched(messages: list[Message]) -> BatchFrame:
    batch = batch_of(messages, FORM, NOW_MS)
    assert isinstance(batch, BatchFrame), batch
    return batch


@given(st.lists(MESSAGES, min_size=1, max_size=5), st.booleans())
def test_a_batch_is_its_messages_one_behind_the_other(messages: list[Message], with_crc: bool) -> None:
    form = replace(FORM, property_crc=with_crc)
    own = [replace(message, topic="T", queue_id=3, sys_flag=message.sys_flag & ~0xC) for message in messages]
    batch = batch_of(own, form, NOW_MS)
    assert isinstance(batch, BatchFrame)
    assert (batch.topic, batch.queue_id, batch.count) == ("T", 3, len(own))
    for first, physical in ((9, 9999), (7, 1000)):
        batch.stamp(first, physical, NOW_MS + 5)
    parts = []
    for number, (message, start) in enumerate(zip(own, batch.starts, strict=True)):
        frame = framed(message, form)
        frame.stamp(7 + number, 1000 + start, NOW_MS + 5)
        parts.append(bytes(frame.data))
    assert b"".join(parts) == batch.data
    assert all(verify_property_crc(part) is (True if with_crc else None) for part in parts)


def test_one_wrong_message_refuses_the_batch() -> None:
    good = Message("T", b"x")
    for wrong, status in (
        (Message("T", b"x", sys_flag=0x4), PutStatus.MESSAGE_ILLEGAL),
        (Message("T", b"x", sys_flag=0x8), PutStatus.MESSAGE_ILLEGAL),
        (Message("T", b"x", properties={"DELAY": "3"}), PutStatus.MESSAGE_ILLEGAL),
        (Message("T", b"x", tags="\x01"), PutStatus.MESSAGE_ILLEGAL),
        (Message("T", b"x", properties={"INNER_NUM": "2"}), PutStatus.MESSAGE_ILLEGAL),
        (Message("T", b"x", properties={"p": "x" * 40_000}), PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ):
        assert batch_of([good, wrong, good], FORM, NOW_MS) is status
    assert batched([good, Message("T", b"x", properties={"DELAY": "0"})]).count == 2


@given(st.lists(MESSAGES, min_size=1, max_size=5), st.sampled_from([b"", b"CLUSTER\x01c\x02"]), st.booleans())
def test_a_batch_is_as_large_as_the_body_in_which_a_client_sends_it(messages, more: bytes, with_crc: bool) -> None:
    own = [replace(message, topic="T", queue_id=3, sys_flag=0) for message in messages]
    size = len(encode_pieces([Piece(0, message.body, properties_block(message) or b"") for message in own]))
    form = replace(FORM, more_properties=more, property_crc=with_crc)
    assert isinstance(batch_of(own, replace(form, message_size_max=size), NOW_MS), BatchFrame)
    assert batch_of(own, replace(form, message_size_max=size - 1), NOW_MS) is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("text", ["0", "-1", "00", "-0", "+0", "-2147483648", "", None])
def test_a_delay_level_that_delays_nothing_is_no_delay_in_a_batch(text: Any) -> None:
    batch = batched([Message("T", b"x", properties={"DELAY": text}), Message("T", b"y")])
    assert batch.count == 2
    assert (f"DELAY\1{text}\2".encode() in batch.data) is (text is not None)


@pytest.mark.parametrize("text", ["1", "+3", "003", "19", "2147483648", "-2147483649", "abc", " 0", "0x0"])
def test_a_delayed_message_refuses_the_batch_wherever_it_stands(text: str) -> None:
    good, delayed = Message("T", b"x"), Message("T", b"x", properties={"DELAY": text})
    for messages in ([delayed, good], [good, delayed]):
        assert batch_of(messages, FORM, NOW_MS) is PutStatus.MESSAGE_ILLEGAL
    # As a hook for delays leaves it.
    assert batch_of([good, replace(delayed, topic="SCHEDULE_TOPIC_XXXX")], FORM, NOW_MS) is PutStatus.MESSAGE_ILLEGAL


def test_a_batch_goes_to_one_queue() -> None:
    for other in (Message("U", b""), Message("T", b"", queue_id=1)):
        with pytest.raises(Rejected, match="one queue"):
            batch_of([Message("T", b""), other], FORM, NOW_MS)
    with pytest.raises(Rejected, match="no messages"):
        batch_of([], FORM, NOW_MS)
