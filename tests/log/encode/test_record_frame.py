"""The scalar writer: the same bytes as the specification's codec, the limits and their statuses, stamping."""

import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.log.encode.record_frame import (
    BODY_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    RECORD_EXTRA_MAX,
    Frame,
    RecordForm,
    frame_of,
    properties_block,
)
from rmqstore.formats import message as layouts
from rmqstore.formats import sys_flag
from rmqstore.formats.host import encode_host
from rmqstore.formats.message import MAGIC_V1, MAGIC_V2, Record, encode_record, read_record
from rmqstore.formats.properties import encode_properties, parse_properties
from rmqstore.formats.record_crc import PROPERTY_CRC_SIZE, verify_property_crc
from tests.formats.records import I64
from tests.log.encode.framing import FORM, HOST, MESSAGES, NOW_MS, framed

V6_FORM = RecordForm(encode_host("[2001:db8::1]:10911"))
# The example of docs/formats.md.
VECTOR = bytes.fromhex(
    "00000068 DAA320A7 3610A686 00000000 00000000 0000000000000000 0000000000000000 00000000"
    "0000018BCFE56800 7F00000100002A9F 0000018BCFE56800 7F00000100002A9F 00000000 0000000000000000"
    "00000005 68656C6C6F 01 54 0007 54414753 01 41 02"
)


def refused(message: Message, form: RecordForm = FORM) -> PutStatus:
    status = frame_of(message, form, NOW_MS)
    assert isinstance(status, PutStatus)
    return status


def stored_properties(message: Message) -> dict[str, str]:
    """What a record of the message holds, in its order: the rules once more, plainly."""
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    own = {"TAGS": message.tags or "", "KEYS": keys, "WAIT": "" if message.wait_store_ok else "false"}
    stored = {name: value for name, value in own.items() if value}
    for name, value in message.properties.items():
        if value is not None and name not in stored and name != "__CRC32#" and not name.startswith("__RMQ.TRANSIENT."):
            stored[name] = value
    return stored


def record_of(message: Message, form: RecordForm) -> Record:
    """The message as the specification's record, at no place yet."""
    born = form.store_host if message.born_host is None else encode_host(message.born_host)
    flags = message.sys_flag & ~0x30
    flags |= (len(born) > 8) * sys_flag.BORN_HOST_V6 | (len(form.store_host) > 8) * sys_flag.STORE_HOST_V6
    return Record(
        position=0, end=0, magic=MAGIC_V1 if len(message.topic) <= 127 else MAGIC_V2,
        body_crc=zlib.crc32(message.body) & 0x7FFFFFFF, queue_id=message.queue_id, flag=message.flag, queue_offset=0,
        physical_offset=0, sys_flag=flags,
        born_timestamp=NOW_MS if message.born_timestamp_ms is None else message.born_timestamp_ms, born_host=born,
        store_timestamp=0, store_host=form.store_host, reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset, body=message.body,
        topic=message.topic.encode(), properties=encode_properties(stored_properties(message)) + form.more_properties,
    )  # fmt: skip


def test_the_vector_of_the_specification() -> None:
    frame = framed(Message("T", b"hello", tags="A"))
    frame.stamp(0, 0, NOW_MS)
    assert frame.data == VECTOR


@given(MESSAGES, st.sampled_from([FORM, V6_FORM, replace(FORM, more_properties=b"CLUSTER\x01c\x02")]), I64, I64, I64)
def test_frames_are_the_codec_s_bytes(
    message: Message, form: RecordForm, queue_offset: int, physical_offset: int, store_ms: int
) -> None:
    frame = framed(message, form)
    record = record_of(message, form)
    assert frame.data == encode_record(record)
    assert (frame.topic, frame.queue_id, frame.sys_flag) == (message.topic, message.queue_id, record.sys_flag)
    for shift in (1, 0):  # a second stamp leaves nothing of the first
        frame.stamp(queue_offset ^ shift, physical_offset ^ shift, store_ms ^ shift)
    counted = record.sys_flag & 0xC in (0, 8)
    assert frame.is_counted == counted
    placed = replace(
        record, queue_offset=queue_offset if counted else 0, physical_offset=physical_offset, store_timestamp=store_ms
    )
    assert frame.data == encode_record(placed)


@given(MESSAGES, I64, I64, I64)
def test_the_crc_property_ends_the_record_and_holds(
    message: Message, queue_offset: int, physical_offset: int, store_ms: int
) -> None:
    frame = framed(message, replace(FORM, property_crc=True))
    for shift in (1, 0):
        frame.stamp(queue_offset ^ shift, physical_offset ^ shift, store_ms ^ shift)
        assert verify_property_crc(bytes(frame.data)) is True
    record = read_record(bytes(frame.data), 0)
    assert isinstance(record, Record)
    assert record.properties[:-PROPERTY_CRC_SIZE] == encode_properties(stored_properties(message))


def test_properties_stand_in_their_order() -> None:
    message = Message("T", b"", tags="t", keys=["a", "b"], properties={"z": "1", "a": "2"}, wait_store_ok=False)
    assert properties_block(message) == b"TAGS\x01t\x02KEYS\x01a b\x02WAIT\x01false\x02z\x011\x02a\x012\x02"
    assert properties_block(Message("T", b"", properties={"b": "1", "TAGS": "t"})) == b"b\x011\x02TAGS\x01t\x02"


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert parse_properties(properties_block(Message("T", b"", tags="a\ud800")) or b"") == {"TAGS": "a?"}


def test_texts_of_a_class_of_their_own_are_texts():
    class Key(str):
        __slots__ = ()

    block = properties_block(Message("T", b"", tags=Key("paid"), keys=Key("o-17"), properties={"UNIQ_KEY": Key("u")}))
    assert parse_properties(block or b"") == {"TAGS": "paid", "KEYS": "o-17", "UNIQ_KEY": "u"}


@pytest.mark.parametrize("mark", ["\x01", "\x02"])
@pytest.mark.parametrize("place", ["tags", "keys", "key", "name", "value"])
def test_separators_in_text_are_refused(place: str, mark: str) -> None:
    text = f"a{mark}b"
    messages = {
        "tags": Message("T", b"", tags=text),
        "keys": Message("T", b"", keys=text),
        "key": Message("T", b"", keys=["a", text]),
        "name": Message("T", b"", properties={text: "v"}),
        "value": Message("T", b"", properties={"n": text}),
    }
    assert refused(messages[place]) is PutStatus.MESSAGE_ILLEGAL


def test_a_property_without_a_name_is_refused() -> None:
    assert refused(Message("T", b"", properties={"": "v"})) is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "../../../x", "/abs", "a/b", "a\0b", "a b", "thème", "a\n", "T" * 128, "%RETRY%" + "g" * 249],
    ids=lambda topic: ascii(topic)[:20],
)
def test_topics_that_are_no_names_are_refused(topic: str) -> None:
    """RocketMQ #1637: no topic may become a path."""
    assert refused(Message(topic, b"")) is PutStatus.MESSAGE_ILLEGAL


def test_long_retry_topics_are_v2_or_refused() -> None:
    for size in (128, 255):
        topic = "%RETRY%".ljust(size, "g")
        record = read_record(bytes(framed(Message(topic, b"x")).data), 0)
        assert isinstance(record, Record)
        assert (record.magic, record.topic) == (MAGIC_V2, topic.encode())
        assert refused(Message(topic, b"x"), replace(FORM, long_topics_as_v2=False)) is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("prefix", ["%DLQ%", "%LMQ%", "%retry%", ""])
def test_only_retry_topics_may_be_longer_than_127_bytes(prefix: str) -> None:
    assert len(framed(Message(prefix.ljust(127, "g"), b"x")).topic) == 127
    for size in (128, 255, 256):
        assert refused(Message(prefix.ljust(size, "g"), b"x")) is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("name", ["a", "TAGS", "KEYS", "WAIT", "UNIQ_KEY", "DELAY", "INNER_NUM", "__CRC32#", "", "a\1"])
def test_a_property_whose_value_is_none_is_absent(name: str) -> None:
    absent: Any = {name: None}
    kept = {"None": "None", "b": "1"}
    assert framed(Message("T", b"x", properties=absent)).data == framed(Message("T", b"x")).data
    for properties in (absent | kept, kept | absent):
        assert (
            framed(Message("T", b"x", properties=properties)).data == framed(Message("T", b"x", properties=kept)).data
        )


def test_inner_num_belongs_to_inner_batches() -> None:
    """A record with INNER_BASE and an INNER_NUM that is no number ends RocketMQ 5.3.3's log."""
    for value in ("2", "", "none"):
        message = Message("T", b"x", properties={"INNER_NUM": value, "INNER_BASE": "0"})
        for flags in (0, sys_flag.NEED_UNWRAP, sys_flag.PREPARED):
            assert refused(replace(message, sys_flag=flags)) is PutStatus.MESSAGE_ILLEGAL
        assert framed(replace(message, sys_flag=sys_flag.INNER_BATCH)).properties_size > 0
    assert framed(Message("T", b"x", properties={"INNER_BASE": "0", "inner_num": "2"})).properties_size > 0


def property_of(size: int) -> dict[str, str]:
    """Properties whose block has `size` bytes."""
    return {"p": "x" * (size - 3)}


@pytest.mark.parametrize("size", [32766, 32767, 32768, 65535, 65536])
def test_properties_beyond_i16_are_refused(size: int) -> None:
    """RocketMQ #6570: a short that overflows is how a queue's offsets began to drift."""
    message = Message("T", b"x", properties=property_of(size))
    if size <= PROPERTIES_SIZE_MAX:
        record = read_record(bytes(framed(message).data), 0)
        assert isinstance(record, Record)
        assert len(record.properties) == size
    else:
        assert refused(message) is PutStatus.PROPERTIES_SIZE_EXCEEDED
    with_crc = replace(FORM, property_crc=True)
    fits = size + PROPERTY_CRC_SIZE <= PROPERTIES_SIZE_MAX
    assert isinstance(frame_of(message, with_crc, NOW_MS), Frame) is fits


def test_properties_are_measured_in_bytes() -> None:
    message = Message("T", b"", tags="中" * (PROPERTIES_SIZE_MAX // 3))
    assert refused(message) is PutStatus.PROPERTIES_SIZE_EXCEEDED


def test_bodies_up_to_the_limit() -> None:
    body = bytes(BODY_SIZE_MAX)
    assert len(framed(Message("T", body)).data) > BODY_SIZE_MAX
    assert refused(Message("T", body + b"x")) is PutStatus.MESSAGE_ILLEGAL
    small = replace(FORM, message_size_max=100)
    assert isinstance(frame_of(Message("T", bytes(100)), small, NOW_MS), Frame)
    assert refused(Message("T", bytes(101)), small) is PutStatus.MESSAGE_ILLEGAL


def test_the_largest_record_is_within_its_limit() -> None:
    """A legal body, the longest topic and full properties stay below message_size_max + 64 KiB by themselves."""
    largest = Message("%RETRY%".ljust(255, "g"), bytes(50), properties=property_of(PROPERTIES_SIZE_MAX))
    assert len(framed(largest, replace(V6_FORM, message_size_max=50)).data) < 50 + RECORD_EXTRA_MAX


@pytest.mark.parametrize(
    "message",
    [
        Message("T", None),  # type: ignore[arg-type]
        Message("T", b"", queue_id=-1),
        Message("T", b"", queue_id=2**31),
        Message("T", b"", flag=2**31),
        Message("T", b"", sys_flag=2**31),
        Message("T", b"", born_timestamp_ms=2**63),
        Message("T", b"", born_host="somewhere"),
        Message("T", b"", reconsume_times=2**31),
        Message("T", b"", prepared_transaction_offset=-(2**63) - 1),
    ],
    ids=["null body", "queue -1", "queue", "flag", "sysFlag", "born", "host", "reconsumeTimes", "prepared"],
)
def test_values_without_a_place_in_a_record_are_refused(message: Message) -> None:
    assert refused(message) is PutStatus.MESSAGE_ILLEGAL
    assert refused(message, V6_FORM) is PutStatus.MESSAGE_ILLEGAL


def test_wrong_types_are_the_caller_s_error() -> None:
    with pytest.raises(TypeError):
        frame_of(Message("T", "text"), FORM, NOW_MS)  # type: ignore[arg-type]


def test_other_buffers_serve_as_bodies() -> None:
    data = framed(Message("T", b"hello")).data
    assert framed(Message("T", bytearray(b"hello"))).data == data  # type: ignore[arg-type]
    assert framed(Message("T", memoryview(b"hello"))).data == data  # type: ignore[arg-type]


def test_a_form_names_its_mistakes() -> None:
    with pytest.raises(ValueError, match="store host of 3 bytes"):
        RecordForm(b"abc")
    with pytest.raises(ValueError, match="0x02"):
        RecordForm(encode_host(HOST), more_properties=b"CLUSTER\x01c")


def test_forms_are_values() -> None:
    assert RecordForm(encode_host(HOST)) == FORM
    assert layouts.FRONT_V4.size == 88
