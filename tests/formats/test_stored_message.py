"""A message read back: every field of its record, and damage that never raises."""

import datetime
import pickle
import zlib
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.host import encode_host
from rmqstore.formats.message import Record, encode_record
from rmqstore.formats.message_id import offset_message_id
from rmqstore.formats.properties import encode_properties
from rmqstore.formats.stored_message import StoredMessage
from tests.formats.records import make_record

PLACE = 4711
HOST = encode_host("203.0.113.9:10911")


def message_of(record: Record) -> StoredMessage:
    data = encode_record(replace(record, physical_offset=PLACE))
    return StoredMessage(b"before" + data + b"behind", 6, len(data), PLACE, "b")


def test_every_field() -> None:
    properties = {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "u", "other": "中"}
    message = message_of(
        make_record(
            topic=b"orders", queue_id=3, flag=4, queue_offset=5, born_timestamp=1500, store_timestamp=2000,
            born_host=HOST, store_host=HOST, reconsume_times=6, prepared_transaction_offset=7, body=b"hello",
            properties=encode_properties(properties),
        )
    )  # fmt: skip
    assert message.corrupt_reason is None
    assert message.is_whole
    assert (message.topic, message.queue_id, message.queue_offset, message.broker_name) == ("orders", 3, 5, "b")
    assert (message.flag, message.reconsume_times, message.prepared_transaction_offset) == (4, 6, 7)
    assert (message.body, message.stored_body, message.body_crc) == (b"hello", b"hello", zlib.crc32(b"hello"))
    assert (message.properties, message.tags, message.keys) == (properties, "a", "k1 k2")
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (1500, 2000)
    assert message.store_timestamp == datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=datetime.UTC)
    assert message.born_host == message.store_host == "203.0.113.9:10911"
    assert (message.msg_id, message.offset_msg_id) == ("u", offset_message_id(HOST, PLACE))
    assert (message.tags_code, message.physical_offset) == (97, PLACE)
    assert message.store_size == len(message.stored_record)
    assert [message.has_key(key) for key in ("k1", "k2", "u", "k1 k2", "")] == [True, True, True, False, False]
    assert repr(message) == "<StoredMessage orders/3 @ 5, log @ 4711>"


def test_without_properties() -> None:
    message = message_of(make_record(properties=b"", store_host=HOST))
    assert (message.tags, message.keys, message.properties, message.tags_code) == (None, None, {}, 0)
    assert message.msg_id == message.offset_msg_id


def test_times_beyond_any_calendar_are_none() -> None:
    message = message_of(make_record(born_timestamp=2**63 - 1))
    assert message.born_timestamp is None
    assert message.born_timestamp_ms == 2**63 - 1


def test_compressed_bodies_are_unpacked() -> None:
    message = message_of(make_record(sys_flag=1, body=zlib.compress(b"hello")))
    assert (message.body, message.stored_body) == (b"hello", zlib.compress(b"hello"))
    assert message.is_sound


def test_a_body_that_is_not_what_its_flag_says_is_told() -> None:
    """RocketMQ #1375: flagged as compressed and is not: a reason, no exception, and no end of the reading."""
    message = message_of(make_record(sys_flag=1, body=b"plain"))
    assert message.body is None
    assert "zlib" in (message.corrupt_reason or "")
    assert (message.stored_body, message.topic) == (b"plain", "T")
    assert message.is_sound


def test_a_body_with_a_wrong_crc_is_not_given_out() -> None:
    message = message_of(make_record(body_crc=1))
    assert message.corrupt_reason == "the CRC of the body is wrong"
    assert (message.body, message.stored_body, message.is_whole) == (None, b"hello", True)
    assert not message.is_sound


def test_a_record_of_another_place_or_size_is_not_trusted() -> None:
    data = encode_record(make_record(physical_offset=1))
    assert "names 1 as its place" in (StoredMessage(data, 0, len(data), PLACE).corrupt_reason or "")
    data = encode_record(make_record(physical_offset=PLACE))
    longer = StoredMessage(data + b"\0", 0, len(data) + 1, PLACE)
    assert (longer.is_whole, longer.topic, longer.body) == (False, "", None)


@given(st.binary(max_size=200), st.integers(0, 10))
def test_any_bytes_are_safe(data: bytes, position: int) -> None:
    message = StoredMessage(data, position, len(data) - position, PLACE)
    assert not message.is_whole
    assert message.corrupt_reason
    for name in ("topic", "tags", "body", "born_host", "msg_id", "store_timestamp", "properties"):
        getattr(message, name)


def test_equality_and_pickling_are_by_content() -> None:
    message = message_of(make_record())
    again = pickle.loads(pickle.dumps(message))
    assert again == message
    assert hash(again) == hash(message)
    assert (again.topic, again.broker_name, again.body) == ("T", "b", b"hello")
    assert message != message_of(make_record(body=b"other"))
    assert message != "T"
