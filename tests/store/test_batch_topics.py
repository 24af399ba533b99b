"""Topics with batch queues as a program sees them: what may be put how, what comes back, and what stays as it is."""

import functools
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import sink
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import Corrupt, Rejected
from rmqstore.files.reading import LOCAL
from rmqstore.formats import sys_flag
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.formats.inner_batch import Piece, encode_pieces
from rmqstore.sink import Batch, append_once, stage_part
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from rmqstore.testing import Probe
from tests.snapshot.starved_reader import starved
from tests.store.aging import Opened

pytestmark = pytest.mark.stores

SMALL = StoreConfig(flush="SYNC", log_file_size=16384, queue_file_size=400, index_slot_count=50, index_item_count=90,
                    batch_queue_file_size=46 * 4)  # fmt: skip
BATCH = TopicConfig("batch", 2, 2, attributes={"queue.type": "BatchCQ"})
BODY = encode_pieces(
    [Piece(number, b"w%d" % number, b"TAGS\1t%d\2KEYS\1k%d\2" % (number, number)) for number in range(3)]
)
WHOLE = Message("batch", BODY, sys_flag=0xC0, properties={"INNER_NUM": "3", "UNIQ_KEY": "U"})


def columns(*messages: Message) -> pa.Table:
    return pa.table({
        "topic": [message.topic for message in messages],
        "body": [message.body for message in messages],
        "sysFlag": pa.array([message.sys_flag for message in messages], pa.int32()),
        "properties": pa.array([list(message.properties.items()) for message in messages],
                               pa.map_(pa.string(), pa.string())),
    })  # fmt: skip


def written(path: Path) -> Store:
    """A store at `path`, open: messages that came alone, in a batch, in bulk and as a whole batch, in one queue."""
    store = open_store(str(path), SMALL)
    store.topics.put(BATCH)
    results = [
        store.put(Message("batch", b"alone", tags="a", keys="k0")),
        store.put(WHOLE),
        store.put_columns(columns(Message("batch", b"row 1"), Message("batch", b"row 2", sys_flag=0x40))),
        store.put_batch([Message("batch", b"p1", tags="a"), Message("batch", b"p2", keys="k1")]),
        store.put(Message("plain", b"other")),
    ]
    assert [result.status for result in results] == [PutStatus.PUT_OK] * 5
    assert [result.queue_offset for result in results] == [0, 1, 4, 6, 0]
    return store


BODIES = [b"alone", b"w0", b"w1", b"w2", b"row 1", b"row 2", b"p1", b"p2"]


def rows_of(path: Path, mode: str, **how) -> list[dict]:
    names = ["queueOffset", "body", "sysFlag", "keys"]
    scan = rmqstore.open_snapshot(str(path)).scan(topics=["batch"], columns=names, scan_mode=mode, **how)
    return scan.read_all().to_pylist()


def test_keys_inside_of_a_batch_are_found_by_a_scan_and_not_by_the_index(tmp_path: Path) -> None:
    """RocketMQ's index has the keys of the record alone."""
    with written(tmp_path) as store:
        store.flush()
        assert store.query("batch", "k2") == []
        assert [message.body for message in store.query("batch", "U")] == [BODY]
    snapshot = rmqstore.open_snapshot(tmp_path)
    assert snapshot.query("batch", "k2") == []
    assert [message.body for message in snapshot.query("batch", "U")] == [BODY]
    assert [row["body"] for row in rows_of(tmp_path, "auto", keys="k2")] == [b"w2"]
    assert [row["body"] for row in rows_of(tmp_path, "commitlog", keys="k2")] == [b"w2"]


@pytest.mark.parametrize("verify_crc", ["auto", "always"])
def test_both_ways_of_reading_give_the_same_rows_with_all_their_columns(tmp_path: Path, verify_crc: str) -> None:
    with written(tmp_path) as store:
        for number in range(3):
            store.put(Message("batch", b"more", tags="abc"[number]))
    snapshot = rmqstore.open_snapshot(str(tmp_path))
    every = [field.name for field in snapshot.scan(columns=None).schema] + ["sysFlag", "tagsCode", "properties"]
    tables = [
        snapshot.scan(topics=["batch"], columns=list(dict.fromkeys(every)), scan_mode=mode, verify_crc=verify_crc)
        for mode in ("queue", "commitlog")
    ]
    by_queue, by_log = (sorted(table.read_all().to_pylist(), key=lambda row: row["queueOffset"]) for table in tables)
    assert by_queue == by_log
    assert [row["tagsCode"] for row in by_queue] == [97, *[0] * 7, 97, 98, 99]


@pytest.mark.parametrize("mode", ["queue", "commitlog"])
@pytest.mark.parametrize("is_open", [True, False])
def test_what_came_alone_and_in_batches_is_read_in_one_order(tmp_path: Path, mode: str, is_open: bool) -> None:
    with written(tmp_path) as store:
        store.flush()
        found = store.get("batch", 0, 0).messages
        assert [(message.queue_offset, message.body) for message in found] == list(enumerate(BODIES))
        if is_open:
            rows = rows_of(tmp_path, mode)
    if not is_open:
        rows = rows_of(tmp_path, mode)
    assert sorted((row["queueOffset"], row["body"]) for row in rows) == list(enumerate(BODIES))
    assert {row["body"] for row in rows if row["sysFlag"] & 0x80} == set()
    assert [row["body"] for row in rows_of(tmp_path, mode, tags=["a"])] == [b"alone", b"p1"]
    assert {row["body"] for row in rows_of(tmp_path, mode, keys=["k0", "k1"])} == {b"alone", b"w0", b"w1", b"p2"}
    assert [finding for finding in verify(survey(LOCAL, str(tmp_path))) if finding.severity == DAMAGE] == []


def test_rows_that_were_taken_out_of_a_batch_may_be_put_anywhere(tmp_path: Path) -> None:
    """What a scan returns is put into a plain topic, and back into one with batch queues."""
    with written(tmp_path) as store:
        store.flush()
        names = ["topic", "body", "queueId", "tags", "properties", "flag", "sysFlag", "bornTimestamp"]
        table = rmqstore.open_snapshot(str(tmp_path)).scan(topics=["batch"], columns=names).read_all()
        for topic, first in (("batch", 8), ("copy", 0)):
            rows = table.set_column(0, "topic", pa.array([topic] * len(table)))
            assert store.put_columns(rows).status is PutStatus.PUT_OK
            store.flush()
            found = store.get(topic, 0, first).messages
            assert [(message.queue_offset, message.body) for message in found] == list(enumerate(BODIES, first))
        assert store.health().is_writable


@pytest.mark.parametrize("wrong", [
    Message("plain", b"x", sys_flag=0xC0), Message("plain", b"x", sys_flag=0x80),
    Message("plain", b"x", properties={"INNER_NUM": "1"}), Message("batch", b"x", properties={"INNER_NUM": "1"}),
    replace(WHOLE, topic="plain"), Message("batch", b"x", sys_flag=0xC0), Message("batch", b"x", sys_flag=0x80),
])  # fmt: skip
def test_what_put_refuses_no_other_way_takes(tmp_path: Path, wrong: Message) -> None:
    with written(tmp_path) as store:
        end = Probe(store).log_end
        assert store.put(wrong).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put_batch([replace(wrong, sys_flag=0, properties={}), wrong]).status is PutStatus.MESSAGE_ILLEGAL
        assert store.transactions.prepare(wrong).status is PutStatus.MESSAGE_ILLEGAL
        with pytest.raises(Rejected, match="says that it is a batch, but a row is one message: row 1"):
            store.put_columns(columns(Message(wrong.topic, b"sound"), wrong))
        assert Probe(store).log_end == end
        assert store.put(Message(wrong.topic, b"sound")).status is PutStatus.PUT_OK
        store.flush()
    task = stage_part(str(tmp_path), ("w", 1), (0, 0), SMALL, 1)
    with pytest.raises(Rejected, match="row is one message: row 0"):
        task.add(columns(wrong).to_batches()[0])


def test_a_sink_writes_single_messages_into_batch_queues(tmp_path: Path) -> None:
    written(tmp_path).close()
    for number in range(2):
        task = stage_part(str(tmp_path), ("w", number), (0, 0), SMALL, 1)
        task.add(columns(*(Message("batch", b"s%d" % row) for row in range(3))).to_batches()[0])
        assert append_once(str(tmp_path), Batch("w", number, (task.finish(),)), SMALL)
    found = sorted((row["queueOffset"], row["body"]) for row in rows_of(tmp_path, "queue"))
    assert found == list(enumerate([*BODIES, *[b"s0", b"s1", b"s2"] * 2]))
    sink.settle_store(str(tmp_path), SMALL)
    with open_store(str(tmp_path), SMALL) as store:
        assert store.bounds("batch", 0) == (0, 14)


def test_the_kind_of_a_topics_queues_cannot_change() -> None:
    """RocketMQ: queue.type is not changeable, and a store whose queues are of another kind than that is not opened."""
    opened = Opened(SMALL)
    opened.store.put(Message("plain", b"x"))
    opened.store.topics.put(BATCH)
    for config in (replace(BATCH, topic="plain"), replace(BATCH, attributes={})):
        with pytest.raises(Rejected, match=r"queue\.type of an existing topic cannot change"):
            opened.store.topics.put(config)
    with pytest.raises(Rejected, match="SimpleCQ or BatchCQ"):
        opened.store.topics.put(TopicConfig("new", attributes={"queue.type": "batchcq"}))
    opened.store.topics.put(replace(BATCH, perm=4))
    assert opened.store.delete_topic("plain")
    opened.store.topics.put(replace(BATCH, topic="plain"))
    assert opened.store.put(replace(WHOLE, topic="plain")).queue_offset == 0


def test_a_lost_table_of_topics_is_made_again_with_the_kinds_of_the_queues() -> None:
    opened = Opened(SMALL)
    opened.store.topics.put(BATCH)
    opened.store.put(Message("batch", b"alone"))
    opened.store.put(WHOLE)
    opened.store.close()
    for name in ("topics.json", "topics.json.bak"):
        if opened.disk.exists(f"/store/config/{name}"):
            opened.disk.remove(f"/store/config/{name}")
    opened.store = opened.open()
    assert opened.store.put(WHOLE).queue_offset == 4
    opened.store.put(Message("new", b"has the table saved"))
    again = opened.again()
    found = again.topics.find("batch")
    assert found is not None
    assert found.attributes == {"queue.type": "BatchCQ"}
    assert opened.bodies("batch") == [b"alone", b"w0", b"w1", b"w2", b"w0", b"w1", b"w2"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_lost_first_files_of_a_batch_queue_are_written_again(count: int) -> None:
    """The three newest log files, which are read after a clean exit, hold all of it."""
    opened = Opened(SMALL)
    opened.store.topics.put(BATCH)
    for number in range(30):
        opened.store.put(Message("batch", b"%d" % number * 300) if number % 3 else WHOLE)
    bounds = opened.again().bounds("batch", 0)
    assert bounds == (0, 50)
    bodies = opened.bodies("batch")
    opened.store.close()
    room = "/store/batchconsumequeue/batch/0"
    files = sorted(entry.name for entry in opened.disk.entries(room))
    assert len(files) > 5
    for name in files[:count]:
        opened.disk.remove(f"{room}/{name}")
    assert opened.again().bounds("batch", 0) == bounds
    assert opened.bodies("batch") == bodies
    assert opened.again().bounds("batch", 0) == bounds


@pytest.mark.parametrize("loses", [False, True])
def test_a_batch_queue_that_was_made_again_does_not_take_older_messages_back(loses: bool) -> None:
    opened = Opened(SMALL)
    opened.store.topics.put(BATCH)
    for _ in range(12):
        opened.store.put(WHOLE)
    opened.store.delete_topic("batch")
    opened.store.topics.put(BATCH)
    for number in range(20):
        opened.store.put(Message("batch", b"%d" % number))
    opened.again()
    bodies = opened.bodies("batch")
    assert len(bodies) == 20
    opened.store.close()
    if loses:
        opened.disk.remove("/store/config/deletedTopics.json")
        room = "/store/batchconsumequeue/batch/0"
        opened.disk.remove(f"{room}/{min(entry.name for entry in opened.disk.entries(room))}")
    assert opened.again().bounds("batch", 0) == (0, 20)
    assert opened.bodies("batch") == bodies


def test_times_old_files_and_deleting_go_by_single_messages_too() -> None:
    opened = Opened(replace(SMALL, log_file_size=4096))
    opened.store.topics.put(BATCH)
    for number in range(40):
        opened.after(1000).put(Message("batch", b"%d" % number * 100) if number % 3 else WHOLE)
    store = opened.after(0)
    first, end = store.bounds("batch", 0)
    assert (first, end) == (0, 14 * 3 + 26)
    middle = store.get("batch", 0, 30).messages[0]
    assert store.offset_at("batch", 0, middle.store_timestamp_ms) == middle.queue_offset
    store.clean(any_age=True)
    assert store.bounds("batch", 0)[0] > 0
    bodies = opened.bodies("batch")
    assert opened.again().get("batch", 0, store.bounds("batch", 0)[0]).messages[0].body == bodies[0]
    assert opened.store.delete_topic("batch")
    assert opened.store.queues() == []
    opened.store.topics.put(BATCH)
    assert opened.store.put(Message("batch", b"anew")).queue_offset == 0
    assert opened.again().health().is_writable
    assert opened.bodies("batch") == [b"anew"]


@pytest.mark.parametrize("at", range(0, 60, 3))
def test_a_look_sees_the_newest_messages_whenever_they_are_dispatched(tmp_path: Path, at: int) -> None:
    with open_store(str(tmp_path), SMALL, workers=False) as store:
        store.topics.put(BATCH)
        for message in (Message("batch", b"old"), WHOLE):
            store.put(message)
        store.step()
        for message in (WHOLE, Message("batch", b"new")):
            store.put(message)
        steps = iter(range(1000))
        with starved(lambda: (next(steps) == at and store.step()) or None):
            found = survey(LOCAL, str(tmp_path)).queues["batch", 0]
        assert found.max_offset == 8
        assert [row["queueOffset"] for row in rows_of(tmp_path, "queue")] == [*range(8)]


def test_a_stream_sees_the_newest_single_messages_of_a_store_that_is_written(tmp_path: Path) -> None:
    """Also those that are in the log and in no queue yet."""
    with written(tmp_path) as store:
        store.flush()
        stored = store.put(Message("batch", b"newest", sys_flag=sys_flag.NEED_UNWRAP))
        assert survey(LOCAL, str(tmp_path)).queues["batch", 0].max_offset == stored.queue_offset + 1


@pytest.mark.parametrize("mode", ["queue", "commitlog"])
@pytest.mark.parametrize("column", ["body", "queueOffset"])
@pytest.mark.parametrize("said", [1, 2, 4])
def test_a_batch_of_more_or_fewer_messages_than_it_says_hides_none(
    tmp_path: Path, said: int, column: str, mode: str
) -> None:
    """Its queue counts `said`, and its body holds 3: as in RocketMQ it is stored, and nobody may guess."""
    with open_store(str(tmp_path), SMALL) as store:
        store.topics.put(BATCH)
        for message in (replace(WHOLE, properties={"INNER_NUM": str(said)}), Message("batch", b"after")):
            store.put(message)
    scan = functools.partial(rmqstore.open_snapshot(str(tmp_path)).scan, topics=["batch"], scan_mode=mode)
    with pytest.raises(Corrupt, match="its number of messages is not the one that it states"):
        scan(columns=[column]).read_all()
    rows = scan(columns=["queueOffset", "body", "corruptReason"], on_corrupt_record="null").read_all().to_pylist()
    assert [(row["queueOffset"], row["body"]) for row in rows] == [(0, None), (said, b"after")]
    assert rows[0]["corruptReason"].endswith("its number of messages is not the one that it states")
    rows = scan(columns=["queueOffset"], on_corrupt_record="skip").read_all().to_pylist()
    assert [row["queueOffset"] for row in rows] == [said]
    assert [finding.reason for finding in verify(survey(LOCAL, str(tmp_path))) if "that it states" in finding.reason]
