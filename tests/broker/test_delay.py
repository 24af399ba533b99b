"""Delay levels: which messages wait and how, what is delivered, and the same in vectors."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.broker.delay import DelayLevels, RestoredRecord, Undeliverable, restored_record
from rmqstore.engine.broker.delay_delivery import Restored, read_records, restored_columns, restored_few
from rmqstore.engine.log.encode.record_frame import Frame, RecordForm, frame_of
from rmqstore.formats import names
from rmqstore.formats.delay_levels import DEFAULT_DELAY_MS, DEFAULT_TABLES
from rmqstore.formats.host import encode_host
from rmqstore.formats.message import Record, encode_record, read_record
from rmqstore.formats.properties import encode_properties, parse_properties
from rmqstore.formats.property_columns import split_pieces
from rmqstore.formats.record_crc import masked_crc32, property_crc, verify_property_crc
from rmqstore.records.dispatch_rules import set_delivery_times
from tests.golden.cases import FOLDERS, OPENED_CASES, read_json
from tests.golden.conftest import store_of

__all__ = ["store_of"]

LEVELS = DelayLevels(StoreConfig().delay_ms())
FORM = RecordForm(encode_host("127.0.0.1:10911"))
FORMS = [FORM, replace(FORM, property_crc=True), RecordForm(encode_host("[2001:db8::1]:10911"))]
SIZE_MAX = 1_000_000
NOW_MS = 1_700_000_000_000


def waiting(message: Message, levels: DelayLevels = LEVELS) -> Message:
    answer = levels(message)
    assert isinstance(answer, Message)
    return answer


def test_a_message_with_a_level_waits_in_the_queue_of_its_level() -> None:
    message = Message("orders", b"x", "paid", "k", {"a": "1", "DELAY": "3", "b": "2"}, queue_id=7, sys_flag=0x8)
    answer = waiting(message)
    assert (answer.topic, answer.queue_id) == (names.SCHEDULE_TOPIC, 2)
    assert list(answer.properties.items()) == [
        ("a", "1"), ("b", "2"), ("DELAY", "3"), ("REAL_TOPIC", "orders"), ("REAL_QID", "7")
    ]  # fmt: skip
    assert replace(answer, topic="orders", queue_id=7, properties=message.properties) == message


def test_a_level_above_the_highest_is_the_highest() -> None:
    answer = waiting(Message("orders", b"x", properties={"DELAY": "99"}))
    assert (answer.queue_id, answer.properties["DELAY"]) == (17, "18")


@pytest.mark.parametrize("text", ["+3", "003"])
def test_a_level_that_the_store_has_stays_as_it_was_written(text: str) -> None:
    answer = waiting(Message("orders", b"x", properties={"DELAY": text}))
    assert (answer.queue_id, answer.properties["DELAY"]) == (2, text)


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"x"),
        Message("orders", b"x", properties={"a": "1"}),
        Message("orders", b"x", properties={"DELAY": "0"}),
        Message("%DLQ%group", b"x", properties={"DELAY": "-1"}),
        Message("orders", b"x", properties={"DELAY": ""}),
        Message("orders", b"x", properties={"DELAY": None, "TIMER_DELIVER_MS": None}),  # type: ignore[dict-item]
        Message("orders", b"x", properties={"DELAY": "soon"}, sys_flag=0x4),
        Message("orders", b"x", properties={"DELAY": "3"}, sys_flag=0x4),
        Message("orders", b"x", properties={"DELAY": "3"}, sys_flag=0xC),
        Message(names.SCHEDULE_TOPIC, b"x", properties={"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}),
        Message(names.TIMER_TOPIC, b"x", properties={"TIMER_DELIVER_MS": "5"}),
        Message("orders", b"x", properties={"TIMER_DELIVER_MS": "5", "TIMER_OUT_MS": "5"}),
    ],
)
def test_others_are_left_as_they_are(message: Message) -> None:
    assert LEVELS(message) is message


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (Message("orders", b"x", properties={"DELAY": "soon"}), PutStatus.MESSAGE_ILLEGAL),
        (Message("orders", b"x", properties={"DELAY": "3000000000"}), PutStatus.MESSAGE_ILLEGAL),
        (Message("orders", b"x", properties={"DELAY": "3"}, queue_id=-1), PutStatus.MESSAGE_ILLEGAL),
        (Message("../x", b"x", properties={"DELAY": "3"}), PutStatus.MESSAGE_ILLEGAL),
        (Message("T" * 128, b"x", properties={"DELAY": "3"}), PutStatus.MESSAGE_ILLEGAL),
        (Message("%DLQ%".ljust(128, "g"), b"x", properties={"DELAY": "3"}), PutStatus.MESSAGE_ILLEGAL),
        (Message(names.SCHEDULE_TOPIC, b"x", properties={"DELAY": "soon"}), PutStatus.MESSAGE_ILLEGAL),
        (Message(names.SCHEDULE_TOPIC, b"x", properties={"DELAY": "soon"}, sys_flag=0x4), PutStatus.MESSAGE_ILLEGAL),
        (Message(names.SCHEDULE_TOPIC, b"x", properties={"DELAY": "soon"}, sys_flag=0xC), PutStatus.MESSAGE_ILLEGAL),
        (Message("orders", b"x", properties={"TIMER_DELAY_SEC": "3"}), PutStatus.WHEEL_TIMER_NOT_ENABLE),
        (Message("orders", b"x", properties={"TIMER_DELAY_MS": "3", "DELAY": "0"}), PutStatus.WHEEL_TIMER_NOT_ENABLE),
    ],
)
def test_what_could_not_be_delivered_in_time_is_refused(message: Message, status: PutStatus) -> None:
    assert LEVELS(message) is status


def test_a_store_without_levels_refuses_delays() -> None:
    assert DelayLevels(())(Message("orders", b"x", properties={"DELAY": "1"})) is PutStatus.MESSAGE_ILLEGAL


@given(st.text("+-0123456789 x\u0663\uff13", max_size=12) | st.text(max_size=3))
def test_dispatch_reads_the_level_that_a_put_took(text: str) -> None:
    answer = LEVELS(Message("orders", b"x", properties={"DELAY": text.translate({1: None, 2: None})}))
    if isinstance(answer, PutStatus):
        return
    block = encode_properties(answer.properties)
    pieces = split_pieces(np.frombuffer(block, np.uint8), np.array([0, len(block)]))
    codes = np.array([-1])
    set_delivery_times(codes, pieces, (np.array([0]), np.array([10])), DEFAULT_TABLES)
    is_waiting = answer.topic == names.SCHEDULE_TOPIC
    assert codes.tolist() == [10 + DEFAULT_DELAY_MS[answer.queue_id] if is_waiting else -1]


def test_a_level_wins_over_a_timer_and_an_earlier_return_address() -> None:
    asked = {"TIMER_DELIVER_MS": "5", "REAL_TOPIC": "old", "REAL_QID": "9", "DELAY": "1"}
    answer = waiting(Message("orders", b"x", properties=asked))
    assert answer.properties == {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}


def test_a_long_retry_topic_may_wait_where_records_may_have_it() -> None:
    message = Message("%RETRY%" + "g" * 200, b"x", properties={"DELAY": "1"})
    assert waiting(message).queue_id == 0
    assert DelayLevels((1000,), long_topics_as_v2=False)(message) is PutStatus.MESSAGE_ILLEGAL


# What is delivered.


def stored(message: Message, form: RecordForm = FORM, offset: int = 0, queue_offset: int = 5) -> bytes:
    """The record of a message at a place of the log."""
    frame = frame_of(message, form, NOW_MS)
    assert isinstance(frame, Frame), frame
    frame.stamp(queue_offset, offset, NOW_MS)
    return bytes(frame.data)


def restored(data: bytes, form: RecordForm = FORM, offset: int = 0) -> Record:
    answer = restored_record(data, offset, form, SIZE_MAX)
    assert isinstance(answer, RestoredRecord), answer
    record = read_record(answer.data, 0)
    assert isinstance(record, Record)
    assert (record.topic.decode(), record.queue_id, record.sys_flag) == (answer.topic, answer.queue_id, answer.sys_flag)
    return record


@pytest.fixture(scope="module")
def records_of(store_of: Callable[[str], Path]) -> Callable[[str], list[Record]]:
    """All records of a real broker's log."""

    def records(case: str) -> list[Record]:
        found = []
        for path in sorted((store_of(case) / "commitlog").iterdir()):
            data, position = path.read_bytes(), 0
            while isinstance(record := read_record(data, position), Record):
                found.append(record)
                position = record.end
        return found

    return records


@pytest.mark.parametrize("case", OPENED_CASES)
def test_what_a_real_broker_delivered_is_what_we_would(case: str, records_of: Callable[[str], list[Record]]) -> None:
    records = records_of(case)
    delivered: dict[bytes, list[Record]] = {}
    for record in records:
        if record.topic != names.SCHEDULE_TOPIC.encode() and b"REAL_TOPIC\x01" in record.properties:
            delivered.setdefault(record.properties, []).append(record)
    waited = [record for record in records if record.topic == names.SCHEDULE_TOPIC.encode()]
    count = 0
    for record in waited:
        data = encode_record(record)
        answer = restored(data, replace(FORM, store_host=record.store_host), record.physical_offset)
        for theirs in delivered.get(record.properties, []):
            placed = {name: getattr(theirs, name) for name in ("queue_offset", "physical_offset", "store_timestamp")}
            assert encode_record(replace(answer, **placed)) == encode_record(theirs)
            count += 1
    sent = [each for each in read_json(FOLDERS[case], "sent") if each["kind"] == "delay"]
    assert count >= len(sent) > 0


@pytest.mark.parametrize("case", OPENED_CASES)
def test_what_a_real_broker_had_wait_is_what_we_would(case: str, records_of: Callable[[str], list[Record]]) -> None:
    levels = DelayLevels(StoreConfig(delay_levels=read_json(FOLDERS[case], "meta")["messageDelayLevel"]).delay_ms())
    waited = {}
    for record in records_of(case):
        if record.topic == names.SCHEDULE_TOPIC.encode():
            found = parse_properties(record.properties)
            waited[found["UNIQ_KEY"]] = record, found
    sent = [each for each in read_json(FOLDERS[case], "sent") if each["kind"].startswith("delay")]
    compared = 0
    for each in sent:
        if each["msgId"] not in waited:
            assert not each["mustBePresent"]
            continue
        record, found = waited[each["msgId"]]
        asked = Message(each["topic"], record.body, properties=each["properties"], queue_id=int(found["REAL_QID"]))
        answer = waiting(asked, levels)
        assert (answer.topic, answer.queue_id) == (record.topic.decode(), record.queue_id)
        assert dict(answer.properties).items() <= found.items()
        compared += 1
    assert compared >= 20


def test_the_golden_delay_store(records_of: Callable[[str], list[Record]]) -> None:
    """Levels above the table and level 0 are among them: each goes where it says."""
    waited = [record for record in records_of("delay") if record.topic == names.SCHEDULE_TOPIC.encode()]
    assert len(waited) > 50
    for record in waited:
        found = parse_properties(record.properties)
        answer = restored(encode_record(record), FORM, record.physical_offset)
        assert (answer.topic.decode(), str(answer.queue_id)) == (found["REAL_TOPIC"], found["REAL_QID"])
        assert (answer.properties, answer.body) == (record.properties, record.body)


DELAYED = waiting(Message("orders", b"body", properties={"DELAY": "1"}, prepared_transaction_offset=77, sys_flag=8))


def test_host_flags_and_stored_host_stay() -> None:
    data = stored(DELAYED, FORMS[2])
    record = restored(data)
    assert (record.born_host, record.store_host, record.sys_flag) == (FORMS[2].store_host, FORMS[2].store_host, 0x38)
    assert record.prepared_transaction_offset == 0


def test_the_crc_property_is_the_stores_own_matter() -> None:
    with_crc, without = stored(DELAYED, FORMS[1]), stored(DELAYED)
    assert restored(with_crc).properties == restored(without).properties
    again = restored_record(without, 0, FORMS[1], SIZE_MAX)
    assert isinstance(again, RestoredRecord)
    assert again.data.endswith(property_crc(b""))
    assert read_record(again.data, 0).properties == restored(without).properties + property_crc(b"")  # type: ignore[union-attr]


def test_an_unclosed_block_is_closed_before_the_crc_property() -> None:
    record = read_record(stored(DELAYED), 0)
    assert isinstance(record, Record)
    answer = restored(encode_record(replace(record, properties=record.properties[:-1])), FORMS[1])
    assert answer.properties == record.properties + property_crc(b"")


def changed(**changes: object) -> bytes:
    """The record of DELAYED with other fields."""
    record = read_record(stored(DELAYED), 0)
    assert isinstance(record, Record)
    return encode_record(replace(record, **changes))  # type: ignore[arg-type]


BACK = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%b\x02"
UNDELIVERABLE: dict[str, tuple[bytes, Undeliverable]] = {
    "half": (changed(properties=BACK % (names.HALF_TOPIC.encode(), b"0")), Undeliverable.HALF),
    "no address": (changed(properties=b"DELAY\x011\x02"), Undeliverable.UNREADABLE),
    "no queue": (changed(properties=BACK % (b"orders", b"one")), Undeliverable.UNREADABLE),
    "negative queue": (changed(properties=BACK % (b"orders", b"-1")), Undeliverable.UNREADABLE),
    "no topic name": (changed(properties=BACK % (b"../x", b"1")), Undeliverable.UNREADABLE),
    "not a text": (changed(properties=BACK % (b"\xff", b"1")), Undeliverable.UNREADABLE),
    "round in circles": (changed(properties=BACK % (names.SCHEDULE_TOPIC.encode(), b"1")), Undeliverable.UNREADABLE),
    "damaged body": (changed(body=b"Body"), Undeliverable.UNREADABLE),
    "another place": (changed(physical_offset=1), Undeliverable.UNREADABLE),
    "no record": (bytes(120), Undeliverable.UNREADABLE),
    "nothing": (b"", Undeliverable.UNREADABLE),
    "longer": (stored(DELAYED) + b"\0", Undeliverable.UNREADABLE),
    "wrong property crc": (stored(DELAYED, FORMS[1]).replace(b"DELAY\x011", b"DELAY\x012"), Undeliverable.UNREADABLE),
    "too large": (stored(replace(DELAYED, body=b"x" * SIZE_MAX)), Undeliverable.UNREADABLE),
    "no room for a crc": (
        changed(properties=BACK % (b"orders", b"1") + b"p\x01" + b"v" * 32720 + b"\x02"), Undeliverable.UNREADABLE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNDELIVERABLE)
def test_what_cannot_be_delivered(case: str) -> None:
    data, why = UNDELIVERABLE[case]
    assert restored_record(data, 0, FORMS[1], SIZE_MAX) is why
    for restore in (restored_few, restored_columns):
        answer = restore(*page_of([data]), np.zeros(1, np.int64), FORMS[1], SIZE_MAX)
        assert (answer.records.count, len(answer.rows)) == (0, 0)
        assert (answer.half_count, answer.unreadable_count) == (
            why is Undeliverable.HALF,
            why is not Undeliverable.HALF,
        )


# In vectors.


def page_of(records: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(records), np.uint8), np.cumsum([0, *map(len, records)])


def outcome(answer: Restored) -> tuple[object, ...]:
    """All that one can see of it, the bytes as they are appended."""
    records = answer.records
    taken: dict[tuple[str, int], int] = {}
    data = b""
    if records.count:
        bases = records.bases(0, records.count, {("orders", 0): 9})
        data = bytes(records.stamp(0, records.count, bases, 4000, NOW_MS))
    taken.update(records.moved(0, records.count, taken))
    return data, records.starts.tolist(), taken, answer.rows.tolist(), answer.half_count, answer.unreadable_count


TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=8)
TOPICS = st.sampled_from(["orders", "refunds", "%RETRY%" + "g" * 150, names.HALF_TOPIC])
DELAYED_MESSAGES = st.builds(
    Message,
    topic=TOPICS,
    body=st.binary(max_size=200),
    tags=st.none() | TEXTS,
    keys=TEXTS,
    properties=st.dictionaries(st.text("ABC", min_size=1, max_size=3), TEXTS, max_size=3),
    queue_id=st.integers(0, 2**31 - 1) | st.integers(0, 2),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 1, 8, 0x301]),
    born_host=st.sampled_from([None, "203.0.113.9:1", "[2001:db8::2]:65535"]),
    reconsume_times=st.integers(0, 3),
    prepared_transaction_offset=st.integers(-(2**63), 2**63 - 1),
)
FORGED = st.sampled_from([data for data, _ in UNDELIVERABLE.values() if len(data) < 1000])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(DELAYED_MESSAGES, st.integers(1, 20), st.sampled_from(FORMS)), max_size=6),
       st.lists(FORGED, max_size=2), st.sampled_from(FORMS), st.randoms(use_true_random=False))  # fmt: skip
def test_vectors_restore_what_single_records_are(messages, forged, form, chance) -> None:
    records = []
    for message, level, stored_form in messages:
        asked = replace(message, properties={**message.properties, "DELAY": str(level)})
        data = stored(waiting(asked), stored_form)
        if chance.random() < 0.3:  # as 4.9.8 writes it
            record = read_record(data, 0)
            if not record.properties.endswith(property_crc(data[:-20])):
                data = encode_record(replace(record, properties=record.properties.removesuffix(b"\x02")))
        records.append(data)
    records += forged
    chance.shuffle(records)
    page, bounds = page_of(records)
    offsets = np.zeros(len(records), np.int64)
    few, many = (restore(page, bounds, offsets, form, SIZE_MAX) for restore in (restored_few, restored_columns))
    assert outcome(many) == outcome(few)
    if form.property_crc:
        data, starts, *_ = outcome(many)
        for first, last in pairwise(starts):
            assert verify_property_crc(data[first:last])


def test_a_restored_record_has_its_bodys_crc() -> None:
    assert restored(stored(DELAYED)).body_crc == masked_crc32(b"body")


# Reading.


class Log:
    """A log of one file."""

    file_size = 1 << 30

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.data, self.start = data, start
        self.reads: list[int] = []

    @property
    def files(self) -> "Log":
        return self

    @property
    def readable_end(self) -> int:
        return len(self.data)

    def path_of(self, offset: int) -> str:
        raise ValueError(offset)

    def read(self, offset: int, size: int) -> bytes:
        self.reads.append(size)
        return self.data[offset : offset + size]


def read(log: Log, offsets: list[int], sizes: list[int]) -> list[bytes]:
    page, bounds = read_records(log, np.array(offsets, np.int64), np.array(sizes, np.int64))
    return [page[low:high].tobytes() for low, high in pairwise(bounds)]


def test_records_near_each_other_are_read_together_and_others_by_themselves() -> None:
    log = Log(np.random.default_rng(1).bytes(10_000_000))
    places = [0, 300, 900, 1_200_000, 3_000_000, 9_000_000, 9_000_100]
    assert read(log, places, [100] * 7) == [log.data[place : place + 100] for place in places]
    assert log.reads == [100] * 5 + [200]


def test_places_that_no_file_holds_give_nothing() -> None:
    log = Log(bytes(range(200)) * 10, start=300)
    places = [299, 300, 500, 1950, 5000, -7, 400, 600]
    sizes = [100, 100, 90, 100, 100, 100, 2**31 - 1, -5]
    assert [len(data) for data in read(log, places, sizes)] == [0, 100, 0, 0, 0, 0, 0, 0]
    assert read(log, [], []) == []


def test_a_file_that_goes_while_it_is_read_gives_nothing() -> None:
    log = Log(bytes(1000))
    log.read = lambda offset, size: b""  # type: ignore[method-assign]
    assert read(log, [0, 100], [100, 100]) == [b"", b""]


def test_entries_out_of_order_are_read_all_the_same() -> None:
    log = Log(np.random.default_rng(1).bytes(1000))
    assert read(log, [500, 100, 700], [100] * 3) == [log.data[place : place + 100] for place in (500, 100, 700)]
