"""A batch: consecutive records, all or nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import Rejected
from rmqstore.formats.batch_frames import BatchFrame, batch_of
from rmqstore.formats.record_crc import verify_property_crc
from rmqstore.message import Message, PutStatus
from tests.formats.test_record_frame import FORM, MESSAGES, NOW_MS, framed


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
        (Message("T", b"x", properties={"p": "x" * 40_000}), PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ):
        assert batch_of([good, wrong, good], FORM, NOW_MS) is status
    assert batched([good, Message("T", b"x", properties={"DELAY": "0"})]).count == 2


def test_bodies_count_together() -> None:
    form = replace(FORM, message_size_max=10)
    assert isinstance(batch_of([Message("T", b"12345")] * 2, form, NOW_MS), BatchFrame)
    assert batch_of([Message("T", b"12345"), Message("T", b"123456")], form, NOW_MS) is PutStatus.MESSAGE_ILLEGAL


def test_a_batch_goes_to_one_queue() -> None:
    for other in (Message("U", b""), Message("T", b"", queue_id=1)):
        with pytest.raises(Rejected, match="one queue"):
            batch_of([Message("T", b""), other], FORM, NOW_MS)
    with pytest.raises(Rejected, match="no messages"):
        batch_of([], FORM, NOW_MS)
