"""One message record: the specification's vector, round trips, and any bytes at all."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import message, sys_flag
from rmqstore.formats.message import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    NO_DATA,
    RECORD_SIZE_MIN,
    Blank,
    Record,
    Torn,
    encode_record,
    read_record,
)
from tests.formats.records import encoded, make_record, records

# The example of docs/formats.md: topic T, body hello, TAGS=A, both hosts 127.0.0.1:10911.
VECTOR = bytes.fromhex(
    "00000068 DAA320A7 3610A686 00000000 00000000 0000000000000000 0000000000000000 00000000"
    "0000018BCFE56800 7F00000100002A9F 0000018BCFE56800 7F00000100002A9F 00000000 0000000000000000"
    "00000005 68656C6C6F 01 54 0007 54414753 01 41 02"
)
LOOPBACK = bytes.fromhex("7F00000100002A9F")
VECTOR_RECORD = Record(
    position=0, end=104, magic=MAGIC_V1, body_crc=0x3610A686, queue_id=0, flag=0, queue_offset=0, physical_offset=0,
    sys_flag=0, born_timestamp=1_700_000_000_000, born_host=LOOPBACK, store_timestamp=1_700_000_000_000,
    store_host=LOOPBACK, reconsume_times=0, prepared_transaction_offset=0, body=b"hello", topic=b"T",
    properties=b"TAGS\x01A\x02",
)  # fmt: skip
V6 = {"sys_flag": sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6}
EXAMPLES = {
    "V1": VECTOR,
    "V2": encoded(magic=MAGIC_V2, topic=b"T" * 200),
    "V1, IPv6": encoded(**V6),
    "V2, born IPv6": encoded(magic=MAGIC_V2, sys_flag=sys_flag.BORN_HOST_V6),
    "V1, store IPv6": encoded(sys_flag=sys_flag.STORE_HOST_V6, body=b"", properties=b""),
}
SIZE_MIN_V1 = 91


def test_the_vector_of_the_specification_reads_and_encodes() -> None:
    assert read_record(VECTOR, 0) == VECTOR_RECORD
    assert encode_record(VECTOR_RECORD) == VECTOR
    assert VECTOR_RECORD.size == len(VECTOR) == 104


def test_the_smallest_record_has_91_bytes() -> None:
    smallest = encoded(body=b"", topic=b"", properties=b"")
    assert len(smallest) == RECORD_SIZE_MIN == SIZE_MIN_V1
    assert isinstance(read_record(smallest, 0), Record)


@pytest.mark.parametrize(
    ("flag", "born", "store"), [(0, 8, 8), (0x10, 20, 8), (0x20, 8, 20), (0x30, 20, 20), (-1, 20, 20)]
)
def test_the_host_bits_say_how_long_the_hosts_are(flag: int, born: int, store: int) -> None:
    assert message.host_sizes(flag) == (born, store)


@given(records(), st.binary(max_size=20), st.binary(max_size=20))
def test_what_is_encoded_reads_back(record: Record, before: bytes, behind: bytes) -> None:
    data = encode_record(record)
    read = read_record(before + data + behind, len(before))
    assert read == replace(record, position=len(before), end=len(before) + len(data))


@given(records())
def test_the_store_time_is_read_from_the_front_as_soon_as_it_is_there(record: Record) -> None:
    data = encode_record(record)
    end = message.HEAD.size + len(record.born_host) + message.STORE_TIME.size
    assert end <= message.STORE_TIME_REACH
    assert message.store_time(data[:end]) == record.store_timestamp
    assert message.store_time(data, len(record.born_host)) == record.store_timestamp
    assert {message.store_time(data[:size]) for size in range(end)} == {None}


@given(records())
def test_a_view_reads_as_bytes_do(record: Record) -> None:
    data = encode_record(record)
    assert read_record(memoryview(bytearray(data)), 0) == read_record(data, 0)


@pytest.mark.parametrize("data", EXAMPLES.values(), ids=EXAMPLES)
def test_every_cut_is_torn(data: bytes) -> None:
    for size in range(len(data)):
        found = read_record(data[:size], 0)
        assert isinstance(found, Torn)
        assert found.position == 0
        assert found.reason


@pytest.mark.parametrize("data", EXAMPLES.values(), ids=EXAMPLES)
def test_every_other_byte_is_a_record_a_blank_or_torn(data: bytes) -> None:
    """And what is still read as a record is all of its bytes."""
    for place in range(len(data)):
        for mask in (0x01, 0x0C, 0x10, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= mask
            found = read_record(bytes(changed), 0)
            assert isinstance(found, Record | Blank | Torn)
            if isinstance(found, Record):
                assert encode_record(found) == changed


@given(st.binary(max_size=200), st.integers(0, 210))
def test_any_bytes_at_any_place_are_something(data: bytes, position: int) -> None:
    assert isinstance(read_record(data, position), Record | Blank | Torn)


@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from([MAGIC_V1, MAGIC_V2]), st.binary(max_size=300))
def test_any_size_and_any_rest_behind_a_magic_are_a_record_within_bounds_or_torn(
    size: int, magic: int, rest: bytes
) -> None:
    data = struct.pack(">ii", size, magic) + rest
    found = read_record(data, 0)
    assert isinstance(found, Torn) or (isinstance(found, Record) and found.end == size <= len(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(200), NO_DATA),
        (bytes(7), "7 bytes left"),
        (b"", "0 bytes left"),
        (b"\0\0\0\x68\x12\x34\x56\x78" + bytes(200), "12345678"),
        (b"\0\0\0\x5a" + VECTOR[4:], "record size 90"),
        (b"\x80\0\0\0" + VECTOR[4:], "record size -2147483648"),
        (b"\x7f\xff\xff\xff" + VECTOR[4:], "record size 2147483647"),
        (b"\0\0\0\x69" + VECTOR[4:], "record size 105 with 104"),
        (b"\0\0\0\x67" + VECTOR[4:], "do not add up"),
        (VECTOR[:84] + b"\xff\xff\xff\xff" + VECTOR[88:], "body size -1"),
        (VECTOR[:84] + b"\x7f\xff\xff\xff" + VECTOR[88:], "body size 2147483647"),
        (VECTOR[:93] + b"\x80" + VECTOR[94:], "topic size -128"),
        (VECTOR[:93] + b"\x09" + VECTOR[94:], "topic size 9"),
        (VECTOR[:95] + b"\xff\xf8" + VECTOR[97:], "-8"),
        (VECTOR[:95] + b"\x00\x06" + VECTOR[97:], "5, 1, 6 do not add up"),
    ],
)
def test_what_is_torn_says_why(data: bytes, reason: str) -> None:
    found = read_record(data, 0)
    assert isinstance(found, Torn)
    assert reason in found.reason


def test_a_record_too_small_for_its_ipv6_hosts_is_torn() -> None:
    data = bytearray(encoded(body=b"", topic=b"", properties=b""))
    data[39] |= 0x30
    found = read_record(bytes(data), 0)
    assert isinstance(found, Torn)
    assert "hosts" in found.reason


def test_a_blank_fills_the_rest_of_a_file() -> None:
    blank = message.BLANK.struct.pack(77, MAGIC_BLANK)
    assert read_record(b"\x01" * 3 + blank + bytes(69), 3) == Blank(3, 77)
    assert read_record(blank, 0) == Blank(0, 77)


@pytest.mark.parametrize(
    ("field", "value"),
    [("topic", b"t" * 128), ("properties", b"p" * 2**15), ("queue_id", 2**31), ("physical_offset", 2**63)],
)
def test_what_does_not_fit_its_field_is_not_encoded(field: str, value: object) -> None:
    with pytest.raises(struct.error):
        encode_record(make_record(**{field: value}))


def test_the_second_version_takes_longer_topics() -> None:
    long = make_record(magic=MAGIC_V2, topic=b"t" * 255)
    found = read_record(encode_record(long), 0)
    assert isinstance(found, Record)
    assert found.topic == long.topic
