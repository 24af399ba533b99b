"""The vectors of a batch: equal to what the scalar codecs say of each record."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.formats import message, sys_flag
from rmqstore.formats.delay_levels import LevelsSince
from rmqstore.formats.java_hash import index_hash, string_hash
from rmqstore.formats.java_text import java_text
from rmqstore.formats.properties import parse_properties, split_keys
from rmqstore.records import batch as record_batch
from rmqstore.records import gather
from tests.records.logs import laid, walked

pytestmark = pytest.mark.stores

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


def expected_items(record: message.Record, *, with_tags: bool) -> list[int]:
    if record.sys_flag & sys_flag.TRANSACTION_MASK == sys_flag.ROLLBACK:
        return []
    properties, topic = parse_properties(record.properties), java_text(record.topic)
    keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    keys += split_keys(properties.get("KEYS", ""))
    if with_tags and properties.get("TAGS"):
        keys.append(f"T#{properties['TAGS']}")
    return [index_hash(f"{topic}#{key}") for key in keys]


def expected_code(record: message.Record) -> int:
    properties = parse_properties(record.properties)
    if record.topic == b"SCHEDULE_TOPIC_XXXX" and properties.get("DELAY", "").isdigit():
        return record.store_timestamp + 7000
    return string_hash(properties.get("TAGS", ""))


LEVELS = (LevelsSince(0, (5000, 6000, 7000)),)


@pytest.mark.parametrize("few_count", [0, 48])
@given(fields=RECORDS, window_size=st.integers(50, 900))
@settings(max_examples=40, deadline=None)
def test_batches_say_what_the_scalar_codecs_say(few_count: int, fields, window_size) -> None:
    data = laid(fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batch, "FEW_COUNT", few_count)
        patch.setattr(gather, "_JOINED_COUNT_MAX", few_count)
        batches = walked(data, window_size=window_size)
        position = 0
        for batch in batches:
            rows, hashes = batch.index_items()
            tagged_rows, tagged_hashes = batch.index_items(with_tags=True)
            topics, numbers = batch.topics
            codes = batch.tags_codes(LEVELS)
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
                assert hashes[rows == row].tolist() == expected_items(record, with_tags=False)
                assert tagged_hashes[tagged_rows == row].tolist() == expected_items(record, with_tags=True)
                position = record.end
            assert (np.diff(rows) >= 0).all()
            assert (np.diff(tagged_rows) >= 0).all()
            assert batch.end == position
        assert position == len(data)


def test_many_topics_of_one_hash_are_told_apart() -> None:
    fields = [{"topic": topic, "queue_offset": number} for number, topic in enumerate([b"Aa", b"BB", b"x"] * 30)]
    (batch,) = walked(laid(fields))
    topics, numbers = batch.topics
    assert [topics[number] for number in numbers.tolist()] == ["Aa", "BB", "x"] * 30


@pytest.mark.parametrize(
    ("level", "code"),
    [
        ("2", 1_700_000_006_001),
        ("+2", 1_700_000_006_001),
        ("9", 1_700_000_007_001),
        ("0", 2598919),
        ("x", 2598919),
        ("9999999999", 2598919),
    ],
)
def test_delivery_times_of_the_schedule_topic(level: str, code: int) -> None:
    properties = f"TAGS\x01TagA\x02DELAY\x01{level}\x02".encode()
    (batch,) = walked(laid([{"topic": b"SCHEDULE_TOPIC_XXXX", "properties": properties}]))
    assert batch.tags_codes(LEVELS).tolist() == [code]
    (batch,) = walked(laid([{"topic": b"SCHEDULE_TOPIC_XXXX", "properties": properties}]))
    unknown = batch.tags_codes(())
    assert unknown.tolist() == [2598919]
