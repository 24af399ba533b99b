"""Many messages as records at once: the bytes of each are those that it has alone, or it is left to be looked at."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.core.message import Message
from rmqstore.engine.log.encode.message_rows import message_rows
from rmqstore.engine.log.encode.record_frame import Frame, RecordForm, frame_of
from rmqstore.engine.log.put.confirmation import waits_for_disk
from rmqstore.formats.host import encode_host
from tests.log.encode.framing import MESSAGES

FORM = RecordForm(encode_host("127.0.0.1:10911"))
FORMS = [
    FORM,
    RecordForm(encode_host("[2001:db8::1]:10911"), more_properties=b"CLUSTER\x01c\x02"),
    replace(FORM, property_crc=True),
]
NOW_MS = 1_700_000_000_000
PLAIN = Message("orders", b"pear", tags="paid", keys=["a", "b"], properties={"a": "1"})


@settings(max_examples=300)
@given(st.lists(MESSAGES, min_size=1, max_size=5), st.sampled_from(FORMS))
def test_the_records_are_those_that_the_messages_have_alone(messages: list[Message], form: RecordForm) -> None:
    frames = [frame_of(message, form, NOW_MS) for message in messages]
    rows = message_rows(messages, form, NOW_MS, frozenset())
    if rows is None:
        return
    records, physical_offset = rows.records, 5000
    data = bytes(records.stamp(0, len(messages), records.bases(0, len(messages), {}), physical_offset, 7))
    next_offsets = dict[tuple[str, int], int]()
    wanted = b""
    for frame in frames:
        assert isinstance(frame, Frame)
        key = frame.topic, frame.queue_id
        frame.stamp(next_offsets.get(key, 0), physical_offset + len(wanted), 7)
        next_offsets[key] = next_offsets.get(key, 0) + frame.is_counted
        wanted += frame.data
    assert data == wanted
    assert (rows.waits or [True] * len(messages)) == [waits_for_disk(message) for message in messages]


@pytest.mark.parametrize(
    "message",
    [
        PLAIN,
        replace(PLAIN, tags="", keys="", properties={}),
        replace(PLAIN, tags=None, keys="a b", wait_store_ok=False),
        replace(PLAIN, properties={}, wait_store_ok=False, body=b""),
        replace(PLAIN, born_host="10.0.0.1:99", born_timestamp_ms=5, flag=-7, queue_id=3, sys_flag=4),
        replace(PLAIN, born_host="[2001:db8::9]:99", reconsume_times=2, prepared_transaction_offset=2**40),
    ],
)
def test_plain_messages_are_taken(message: Message) -> None:
    assert message_rows([PLAIN, message], FORM, NOW_MS, frozenset()) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "a/b"}, {"topic": "t" * 128}, {"topic": 7}, {"body": None}, {"body": "text"}, {"body": bytearray(1)},
        {"body": bytes(5 * 1024 * 1024)}, {"tags": "a\x01"}, {"tags": 5}, {"tags": "\ud800"}, {"keys": "k\x02"},
        {"keys": ["a", None]}, {"keys": iter(["a"])}, {"keys": 5}, {"properties": {"a": None}}, {"properties": 5},
        {"properties": {"a": "\x02"}}, {"properties": {"": "x"}}, {"properties": {"a\x01b": "c"}},
        {"properties": {"WAIT": "false"}}, {"properties": {"TAGS": "x"}}, {"properties": {"__CRC32#": "1"}},
        {"properties": {"INNER_NUM": "2"}}, {"properties": {"__RMQ.TRANSIENT.x": "1"}}, {"properties": {"LATER": "3"}},
        {"properties": {"a": "x" * 33_000}}, {"queue_id": -1}, {"queue_id": 2**31}, {"queue_id": True}, {"flag": 2**31},
        {"flag": 2**70}, {"sys_flag": 0x80}, {"sys_flag": 0xC0}, {"born_timestamp_ms": 2**63}, {"born_host": "nowhere"},
        {"born_timestamp_ms": 1.5}, {"born_host": b"10.0.0.1:9"}, {"wait_store_ok": 1}, {"reconsume_times": "1"},
    ],
)  # fmt: skip
def test_whatever_is_not_plain_is_left_to_be_looked_at(change: dict[str, Any]) -> None:
    odd = replace(PLAIN, **change)
    assert message_rows([PLAIN, odd, PLAIN], FORM, NOW_MS, frozenset({"LATER"})) is None


def test_what_is_no_message_is_left_to_be_looked_at() -> None:
    strangers: list[Any] = [PLAIN, "text"]
    assert message_rows(strangers, FORM, NOW_MS, frozenset()) is None
