"""Questions about single messages: by offset, by key, by time; and what the broker's configuration says."""

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Corrupt, DataLost, Rejected, Snapshot, UnknownTopic
from rmqstore.formats import sys_flag
from tests.golden.cases import FOLDERS, load_expected
from tests.snapshot.small_store import FIRST_MS, SmallStore

StoreOf = Callable[[str], Path]


@pytest.fixture
def store() -> SmallStore:
    """Ten messages of T/0 and T/1 in turn, with keys, and one of another topic with the same key."""
    store = SmallStore(1024)
    for number in range(10):
        names = {"TAGS": "A", "KEYS": f"k{number % 3} k{number}x", "UNIQ_KEY": f"U{number}"}
        store.add("T", number % 2, body=b"body %d" % number, properties=names)
    store.add("Other", properties={"KEYS": "k1"})
    return store


@pytest.fixture
def snapshot(store: SmallStore, tmp_path: Path) -> Snapshot:
    return rmqstore.open_snapshot(store.write(tmp_path))


def test_a_message_at_its_offset(snapshot: Snapshot, store: SmallStore) -> None:
    for number, offset in enumerate(store.offsets[:10]):
        message = snapshot.message_at(offset)
        assert (message.topic, message.queue_id, message.queue_offset) == ("T", number % 2, number // 2)
        assert (message.body, message.tags, message.physical_offset) == (b"body %d" % number, "A", offset)
        assert message.msg_id == message.properties["UNIQ_KEY"] == f"U{number}"
        assert message.store_timestamp == datetime.datetime.fromtimestamp(FIRST_MS // 1000 + number, datetime.UTC)
        assert message.offset_msg_id.endswith(f"{offset:016X}")
        assert message.corrupt_reason is None


def test_an_offset_without_a_record_is_corrupt(snapshot: Snapshot, store: SmallStore) -> None:
    for offset in (store.offsets[3] + 1, store.offsets[3] - 1):
        with pytest.raises(Corrupt) as caught:
            snapshot.message_at(offset)
        assert caught.value.offset == offset % 1024


@pytest.mark.parametrize("offset", [-1, 2**62])
def test_an_offset_outside_the_log_is_lost(snapshot: Snapshot, offset: int) -> None:
    with pytest.raises(DataLost, match=r"no record begins there\); the column physicalOffset says where records begin"):
        snapshot.message_at(offset)


def test_the_end_of_the_log_is_lost(snapshot: Snapshot, store: SmallStore) -> None:
    with pytest.raises(DataLost):
        snapshot.message_at(store.end)


def test_a_torn_message_is_corrupt(store: SmallStore, tmp_path: Path) -> None:
    store.change(store.offsets[2] + 88, b"B")
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    with pytest.raises(Corrupt, match="CRC of the body"):
        snapshot.message_at(store.offsets[2])


@pytest.mark.parametrize(
    ("topic", "key", "found"),
    [
        ("T", "k1", [1, 4, 7]),
        ("T", "k0", [0, 3, 6, 9]),
        ("T", "k7x", [7]),
        ("T", "U5", [5]),
        ("T", "k", []),
        ("T", "k1 k1x", []),
        ("T", "A", []),
        ("Other", "k1", [10]),
        ("Other", "U5", []),
        ("Nobody", "k1", []),
    ],
)
def test_messages_by_key(snapshot: Snapshot, store: SmallStore, topic: str, key: str, found: list[int]) -> None:
    offsets = [message.physical_offset for message in snapshot.query(topic, key)]
    assert offsets == [store.offsets[number] for number in found]


def test_messages_by_key_within_times_and_a_count(snapshot: Snapshot, store: SmallStore) -> None:
    within = snapshot.query("T", "k0", begin_ms=FIRST_MS + 3000, end_ms=FIRST_MS + 6000)
    assert [message.body for message in within] == [b"body 3", b"body 6"]
    assert [message.body for message in snapshot.query("T", "k0", count_max=2)] == [b"body 6", b"body 9"]
    assert snapshot.index_offsets("T", "k0") == [store.offsets[number] for number in (9, 6, 3, 0)]
    assert snapshot.query("T", "k0", begin_ms=FIRST_MS + 10_000) == []


def test_a_key_without_a_topic_is_asked_of_all_topics(snapshot: Snapshot) -> None:
    every = snapshot.query("k1")
    assert [message.topic for message in every] == ["T", "T", "T", "Other"]
    assert [one.physical_offset for one in every] == sorted(one.physical_offset for one in every)
    assert [message.topic for message in snapshot.query("k1", count_max=2)] == ["T", "Other"]  # the newest
    assert snapshot.query("k1", count_max=0) == []
    assert snapshot.query("k1", begin_ms=FIRST_MS + 10_000) == every[3:]
    assert snapshot.query(key="k1") == every
    with pytest.raises(Rejected, match="count_max"):
        snapshot.query("k1", count_max=-1)
    assert snapshot.query("nowhere") == []


@pytest.mark.parametrize("asked", [(), ("",), ("", ""), ("T", "")])
def test_no_key_is_refused(snapshot: Snapshot, asked: tuple[str, ...]) -> None:
    with pytest.raises(Rejected, match="no key"):
        snapshot.query(*asked)


@pytest.mark.parametrize(
    ("key", "found"),
    [("a", [1, 1, 1, 0, 0]), ("b", [0]), ("Zürich", [2]), ("", []), ("aa", []), (" ", [])],
)
def test_a_key_counts_as_often_as_a_message_has_it(tmp_path: Path, key: str, found: list[int]) -> None:
    """RocketMQ puts every one of them into the index."""
    store = SmallStore()
    for properties in ({"KEYS": "a a b"}, {"KEYS": "a  a", "UNIQ_KEY": "a"}, {"KEYS": "Zürich "}, {}, {"TAGS": "a"}):
        store.add("T", properties=properties)
    store.add("T", properties={"KEYS": "a"}, sys_flag=sys_flag.ROLLBACK, dispatched=False)
    store.add("Other", properties={"KEYS": "a"})
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    assert snapshot.index_offsets("T", key) == [store.offsets[number] for number in found]


def test_a_message_that_cannot_be_read_is_left_out_of_an_answer_by_key(store: SmallStore, tmp_path: Path) -> None:
    store.change(store.offsets[3] + 88, b"B")
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    assert [message.body for message in snapshot.query("T", "k0")] == [b"body 0", b"body 6", b"body 9"]


@pytest.mark.parametrize(
    ("queue_id", "time_ms", "lower", "upper"),
    [
        (0, 0, 0, 0),
        (0, FIRST_MS, 0, 0),
        (0, FIRST_MS + 1, 1, 0),
        (0, FIRST_MS + 2000, 1, 1),
        (0, FIRST_MS + 2001, 2, 1),
        (0, FIRST_MS + 8000, 4, 4),
        (0, FIRST_MS + 8001, 5, 4),
        (0, 2**62, 5, 4),
        (1, FIRST_MS + 1000, 0, 0),
        (1, FIRST_MS + 2000, 1, 0),
    ],
)
def test_queue_offsets_by_time(snapshot: Snapshot, queue_id: int, time_ms: int, lower: int, upper: int) -> None:
    assert snapshot.offset_at("T", queue_id, time_ms) == lower
    assert snapshot.offset_at("T", queue_id, time_ms, "upper") == upper


@pytest.mark.parametrize(
    ("time_ms", "nearest"),
    [(0, 0), (FIRST_MS + 8000, 4), (FIRST_MS + 11_100, 5), (FIRST_MS + 14_000, 6), (FIRST_MS + 99_000, 6)],
)
def test_the_nearest_message_is_found_where_no_queue_leads_to_it_yet(
    store: SmallStore, tmp_path: Path, time_ms: int, nearest: int
) -> None:
    """As RocketMQ 4.9 answers once it has opened the store, and its queue has them."""
    for number in range(11, 16):
        store.add("T", number % 2, dispatched=False)
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    assert snapshot.offset_at("T", 0, time_ms, "nearest") == nearest


def test_queue_offsets_by_time_say_what_is_wrong(snapshot: Snapshot) -> None:
    with pytest.raises(Rejected, match="boundary='middle': one of lower, upper, nearest"):
        snapshot.offset_at("T", 0, 0, "middle")
    with pytest.raises(UnknownTopic, match="did you mean T/1, T/0"):
        snapshot.offset_at("T", 7, 0)


def config(snapshot_root: Path, **files: str) -> Snapshot:
    (snapshot_root / "config").mkdir(parents=True)
    for name, text in files.items():
        (snapshot_root / "config" / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return rmqstore.open_snapshot(snapshot_root)


OFFSETS = '{"offsetTable":{"T@group":{0:5,1:7},"%RETRY%group@group":{0:1}}}'
OLDER = '{"offsetTable":{"T@group":{0:4}}}'


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"consumerOffset_json": OFFSETS}, {("T", 0): 5, ("T", 1): 7, ("%RETRY%group", 0): 1}),
        ({"consumerOffset_json": OFFSETS, "consumerOffset_json_bak": OLDER},
         {("T", 0): 5, ("T", 1): 7, ("%RETRY%group", 0): 1}),
        ({"consumerOffset_json": OFFSETS[:30], "consumerOffset_json_bak": OLDER}, {("T", 0): 4}),
        ({"consumerOffset_json": "", "consumerOffset_json_bak": OLDER}, {("T", 0): 4}),
        ({"consumerOffset_json": "\0" * 40, "consumerOffset_json_bak": OLDER}, {("T", 0): 4}),
        ({"consumerOffset_json_bak": OLDER}, {("T", 0): 4}),
        ({"consumerOffset_json": OFFSETS[:30], "consumerOffset_json_bak": OLDER[:9]}, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_consumer_offsets_come_from_the_newer_whole_file(
    tmp_path: Path, files: dict[str, str], found: dict[tuple[str, int], int]
) -> None:
    table = config(tmp_path, **files).consumer_offsets()
    assert table.column_names == ["group", "topic", "brokerName", "queueId", "offset"]
    assert {(row["topic"], row["queueId"]): row["offset"] for row in table.to_pylist()} == found
    assert set(table["group"].to_pylist()) <= {"group"}


LIGHT = '{"lmqOffsetTable":{"%LMQ%q@%LMQ%g":9},"offsetTable":{"T@group":{0:6}}}'


@pytest.mark.parametrize(
    ("plain", "light_s", "found"),
    [
        (None, 5, {("T", 0): 6, ("%LMQ%q", 0): 9}),
        (OFFSETS, 4, {("T", 0): 5, ("T", 1): 7, ("%RETRY%group", 0): 1, ("%LMQ%q", 0): 9}),
        (OFFSETS, 5, {("T", 0): 5, ("T", 1): 7, ("%RETRY%group", 0): 1, ("%LMQ%q", 0): 9}),
        (OFFSETS, 6, {("T", 0): 6, ("T", 1): 7, ("%RETRY%group", 0): 1, ("%LMQ%q", 0): 9}),
    ],
)
def test_brokers_with_enable_lmq_have_all_offsets_in_another_file(
    tmp_path: Path, plain: str | None, light_s: int, found: dict[tuple[str, int], int]
) -> None:
    """Both files are there where the switch was turned: the file written later is right."""
    texts = {"consumerOffset.json": (plain, 5), "lmqConsumerOffset.json": (LIGHT, light_s)}
    (tmp_path / "config").mkdir()
    for name, (text, written_s) in texts.items():
        if text is not None:
            (tmp_path / "config" / name).write_text(text)
            os.utime(tmp_path / "config" / name, (written_s, written_s))
    snapshot = rmqstore.open_snapshot(tmp_path)
    table = snapshot.consumer_offsets().to_pylist()
    assert {(row["topic"], row["queueId"]): row["offset"] for row in table} == found
    groups = snapshot.table("groups").to_pylist()
    assert {(row["topic"], row["queueId"]): row["committedOffset"] for row in groups} == found


TOPICS = (
    '{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"attributes":{"queue.type":"BatchCQ"},"order":true,'
    '"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}'
)


@pytest.mark.parametrize("files", [{"topics_json": TOPICS}, {"topics_json": TOPICS[:-1], "topics_json_bak": TOPICS}])
def test_topics_are_those_of_the_configuration(tmp_path: Path, files: dict[str, str]) -> None:
    (row,) = config(tmp_path, **files).topics().to_pylist()
    assert row.pop("attributes") == [("queue.type", "BatchCQ")]
    assert row == {"topic": "T", "brokerName": "default", "readQueueNums": 8, "writeQueueNums": 4, "perm": 6,
                   "order": True}  # fmt: skip


def test_a_topic_without_messages_is_known(tmp_path: Path) -> None:
    snapshot = config(tmp_path, topics_json=TOPICS)
    assert snapshot.scan(topics=["T"]).read_all().num_rows == 0
    with pytest.raises(UnknownTopic):
        snapshot.scan(topics=["U"])


@pytest.mark.parametrize("case", [case for case in ("basic", "ipv6", "deleted_head") if case in FOLDERS])
def test_every_record_of_a_golden_store_is_found_at_its_offset(case: str, store_of: StoreOf) -> None:
    snapshot = rmqstore.open_snapshot(store_of(case))
    for record in load_expected(case)["records"][::7]:
        message = snapshot.message_at(record["physicalOffset"])
        assert (message.offset_msg_id, message.properties) == (record["msgId"], record["properties"])
