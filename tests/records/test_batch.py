"""The walk along the log, and the vectors of a batch: equal to what the scalar codecs say of each record."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.formats import message, sys_flag
from rmqstore.formats.java_hash import index_hash, string_hash
from rmqstore.formats.java_text import java_text
from rmqstore.formats.message import Blank, Torn
from rmqstore.formats.properties import parse_properties, split_keys
from rmqstore.formats.record_crc import property_crc
from rmqstore.records import batch as record_batch
from rmqstore.records.batch import CrcChecks, RecordBatch, joined_bytes, read_batches
from tests.formats.records import encoded

FILE_SIZE = 4096
VALUES = st.sampled_from(["a", "b c", " ", "x  y z ", "ключ", "k" * 40, "é 1"])
PROPERTIES = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "other"]), st.one_of(VALUES, st.just("3"))),
    max_size=5,
)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from([b"T", b"T", b"orders", b"SCHEDULE_TOPIC_XXXX", "тема".encode()]),
            "queue_id": st.integers(0, 3),
            "queue_offset": st.integers(0, 2**40),
            "store_timestamp": st.integers(0, 2**41),
            "sys_flag": st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC, 0xC0, 0x40, 0x30]),
            "body": st.binary(max_size=30),
            "properties": PROPERTIES.map(
                lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
            ),
        }
    ),
    min_size=1,
    max_size=12,
)


def laid(fields: list[dict], start: int = 0) -> bytes:
    data = b""
    for each in fields:
        data += encoded(**each, physical_offset=start + len(data))
    return data


def reader(data: bytes, start: int = 0):
    return lambda offset, size: data[offset - start : offset - start + size]


def walked(data: bytes, **how) -> list:
    start = how.pop("start", 0)
    stop, file_size = how.pop("stop", start + len(data)), how.pop("file_size", 1 << 30)
    return list(read_batches(reader(data, start), start, stop, file_size, **how))


def expected_items(record: message.Record) -> list[int]:
    if record.sys_flag & sys_flag.TRANSACTION_MASK == sys_flag.ROLLBACK:
        return []
    properties, topic = parse_properties(record.properties), java_text(record.topic)
    keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    return [index_hash(f"{topic}#{key}") for key in keys + split_keys(properties.get("KEYS", ""))]


def expected_code(record: message.Record) -> int:
    properties = parse_properties(record.properties)
    if record.topic == b"SCHEDULE_TOPIC_XXXX" and properties.get("DELAY", "").isdigit():
        return record.store_timestamp + 7000
    return string_hash(properties.get("TAGS", ""))


@pytest.mark.parametrize("few_count", [0, 48])
@given(fields=RECORDS, window_size=st.integers(50, 900))
@settings(max_examples=40, deadline=None)
def test_batches_say_what_the_scalar_codecs_say(few_count: int, fields, window_size) -> None:
    data = laid(fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batch, "_FEW_COUNT", few_count)
        patch.setattr(record_batch, "_JOINED_COUNT_MAX", few_count)
        batches = walked(data, window_size=window_size)
        position = 0
        for batch in batches:
            rows, hashes = batch.index_items()
            topics, numbers = batch.topics
            codes = batch.tags_codes((5000, 6000, 7000))
            for row in range(len(batch)):
                record = message.read_record(data, position)
                assert isinstance(record, message.Record)
                assert int(batch.offsets[row]) == position == record.physical_offset
                assert int(batch.sizes[row]) == record.size
                assert int(batch.queue_ids[row]) == record.queue_id
                assert int(batch.queue_offsets[row]) == record.queue_offset
                assert int(batch.store_ms[row]) == record.store_timestamp
                assert int(batch.sys_flags[row]) == record.sys_flag
                assert batch.queued[row] == (record.sys_flag & sys_flag.TRANSACTION_MASK in (0x0, 0x8))
                assert topics[numbers[row]] == java_text(record.topic)
                assert int(codes[row]) == expected_code(record)
                assert hashes[rows == row].tolist() == expected_items(record)
                position = record.end
            assert (np.diff(rows) >= 0).all()
            assert batch.end == position
        assert position == len(data)


def test_many_topics_of_one_hash_are_told_apart() -> None:
    fields = [{"topic": topic, "queue_offset": number} for number, topic in enumerate([b"Aa", b"BB", b"x"] * 30)]
    (batch,) = walked(laid(fields))
    topics, numbers = batch.topics
    assert [topics[number] for number in numbers.tolist()] == ["Aa", "BB", "x"] * 30


@pytest.mark.parametrize(
    ("level", "code"), [("2", 1_700_000_006_001), ("9", 1_700_000_007_001), ("0", 2598919), ("x", 2598919)]
)
def test_delivery_times_of_the_schedule_topic(level: str, code: int) -> None:
    properties = f"TAGS\x01TagA\x02DELAY\x01{level}\x02".encode()
    (batch,) = walked(laid([{"topic": b"SCHEDULE_TOPIC_XXXX", "properties": properties}]))
    assert batch.tags_codes((5000, 6000, 7000)).tolist() == [code]
    (batch,) = walked(laid([{"topic": b"SCHEDULE_TOPIC_XXXX", "properties": properties}]))
    unknown = batch.tags_codes(())
    assert unknown.tolist() == [1_700_000_001_001 if level in "29" else 2598919]


def test_a_blank_leads_to_the_next_file() -> None:
    first, second = laid([{}, {}]), laid([{"queue_id": 7}], start=FILE_SIZE)
    blank = message.BLANK.struct.pack(FILE_SIZE - len(first), message.MAGIC_BLANK)
    data = (first + blank).ljust(FILE_SIZE, b"x") + second
    found = walked(data, file_size=FILE_SIZE)
    assert [type(each) for each in found] == [RecordBatch, Blank, RecordBatch]
    assert found[1] == Blank(len(first), FILE_SIZE - len(first))
    assert found[2].offsets.tolist() == [FILE_SIZE]
    assert found[2].end == len(data)


def test_nothing_is_read_beyond_stop() -> None:
    data = laid([{}, {}, {}])
    size = len(data) // 3
    assert [len(batch) for batch in walked(data, stop=2 * size)] == [2]
    assert walked(data, stop=0) == []
    whole, torn = walked(data, stop=2 * size + 10)
    assert (len(whole), torn.position) == (2, 2 * size)


def test_a_record_larger_than_the_window_is_read_whole() -> None:
    found = walked(laid([{"body": b"x" * 5000}, {}]), window_size=200)
    assert [len(batch) for batch in found] == [1, 1]


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("damage", "position", "reason"),
    [
        (lambda data, at: data[:at].ljust(at + 500, b"\0"), 1, message.NO_DATA),
        (lambda data, at: flipped(data, at + 35), 1, "physicalOffset field"),
        (lambda data, at: flipped(data, at + 4), 1, "no message magic"),
        (lambda data, at: flipped(data, at + 3), 1, "lengths"),
        (lambda data, at: data[: at + 60], 1, "record size"),
        (lambda data, at: flipped(data, at + 85), 1, "body"),
        (lambda data, at: flipped(data, 35), 0, "physicalOffset field"),
    ],
)
def test_the_walk_ends_where_no_sound_record_stands(damage, position: int, reason: str) -> None:
    data = laid([{}, {}, {}])
    at = len(data) // 3
    *batches, torn = walked(damage(data, at))
    assert sum(map(len, batches)) == position
    assert torn.position == at * position
    assert reason in torn.reason


@pytest.mark.parametrize("row", [0, 1])
def test_crcs_are_checked_when_asked(row: int) -> None:
    plain = laid([{}, {"body": b""}, {}])
    at = [0, len(plain) - len(laid([{}]))][row]
    data = flipped(plain, at + message.FRONT_V4.size)
    assert [len(batch) for batch in walked(data)] == [3]
    *batches, torn = walked(data, checks=CrcChecks(bodies=True))
    assert (sum(map(len, batches)), torn) == ([0, 2][row], Torn(at, "the CRC of the body is wrong"))


def test_crc_properties_are_checked_when_asked() -> None:
    record = encoded(properties=b"KEYS\x01k\x02" + b"\0" * 20)
    data = record[:-20] + property_crc(record[:-20])
    assert [len(batch) for batch in walked(data, checks=CrcChecks(bodies=True, properties=True))] == [1]
    found = walked(flipped(data, 44), checks=CrcChecks(bodies=True, properties=True))
    assert found == [Torn(0, "the CRC property of the record is wrong")]


def test_a_gap_between_files_ends_the_walk() -> None:
    assert walked(b"", stop=100) == [Torn(0, "0 bytes left, no record fits")]


@pytest.mark.parametrize("sizes", [[5] * 100, [0] * 100, [20, 30] * 50, [3, 30] * 50, [100] * 100, [0, 70] * 40, [9]])
def test_joined_bytes_lays_slices_end_to_end(sizes: list[int]) -> None:
    page = (np.arange(20_000) % 251).astype(np.uint8)
    positions = np.arange(len(sizes), dtype=np.int64) * 150
    data, offsets = joined_bytes(page, positions, np.array(sizes, np.int64))
    expected = [page[at : at + size].tobytes() for at, size in zip(positions.tolist(), sizes, strict=True)]
    assert data.tobytes() == b"".join(expected)
    assert offsets.tolist() == np.cumsum([0, *sizes]).tolist()
