"""Another store in the place of the one that a stream has read, with as many messages or more."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.errors import DataLost, Rejected
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.snapshot.stream.offsets import MARKS
from tests.snapshot.growing_store import BrokerStore, broker_store
from tests.spark_source.stream.streams import Stream

WORDS = r"T/[01]: offsets \[4, 5\) wanted.*another message stands there than the stream has read"


@pytest.fixture
def store(tmp_path: Path) -> BrokerStore:
    return broker_store(tmp_path, "store", 10)


def another(store: BrokerStore, count: int) -> BrokerStore:
    """The store of another broker in its place, and the one that was there beside it."""
    store.root.rename(store.root.with_name("kept"))
    other = broker_store(store.root.parent, "zother", count)
    other.root.rename(store.root)
    other.root = store.root
    return other


def restart(stream: Stream) -> None:
    stream.start()


def keep_on(_stream: Stream) -> None:
    """The reader that there is goes on."""


@pytest.mark.parametrize("again", [keep_on, restart])
@pytest.mark.parametrize("count", [10, 11, 40])
def test_another_store_that_is_as_long_or_longer_is_told(
    store: BrokerStore, count: int, again: Callable[[Stream], None]
) -> None:
    stream = Stream(store.root)
    assert stream.step() == 10
    another(store, count)
    for _ in range(2):
        again(stream)
        with pytest.raises(DataLost, match=WORDS):
            stream.step()
    shutil.rmtree(store.root)
    store.root.with_name("kept").rename(store.root)
    again(stream)
    assert stream.step() == 0


def test_another_store_is_told_where_a_planned_batch_is_read_again(store: BrokerStore) -> None:
    stream = Stream(store.root)
    stream.step()
    store.add_many(6)
    store.publish()
    start, end = stream.plan()
    another(store, 40)
    stream.start()
    with pytest.raises(DataLost, match=WORDS):
        stream.run(start, end)


@pytest.mark.parametrize("again", [keep_on, restart])
@pytest.mark.parametrize("grown", [0, 4])
def test_who_goes_on_after_losses_goes_on_and_is_told_once(
    store: BrokerStore, grown: int, again: Callable[[Stream], None], caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 10
    first = json.loads(stream.ends[-1])[MARKS]
    other = another(store, 10 + grown)
    again(stream)
    assert stream.step() == grown
    told = [record.getMessage() for record in caplog.records if "is another log than was read" in record.getMessage()]
    assert [line.startswith("T of default is another log than was read up to offset 5 of queue ") for line in told] == [
        True
    ]
    assert json.loads(stream.ends[-1])[MARKS] != first
    for _ in range(2):
        again(stream)
        assert stream.step() == 0
    assert sum("is another log than was read" in record.getMessage() for record in caplog.records) == 1
    other.add_many(2)
    other.publish()
    fails = Stream(store.root)
    fails.ends = stream.ends  # what was read of the other store counts from now on
    assert fails.step() == 2


@pytest.mark.parametrize("again", [keep_on, restart])
def test_a_copy_in_its_place_is_the_same_store(store: BrokerStore, again: Callable[[Stream], None]) -> None:
    stream = Stream(store.root)
    assert stream.step() == 10
    store.root.rename(store.root.with_name("kept"))
    shutil.copytree(store.root.with_name("kept"), store.root)
    again(stream)
    store.add_many(4)
    store.publish()
    assert stream.step() == 4
    assert len(set(stream.rows)) == 14


def test_a_message_that_was_deleted_since_is_no_other(store: BrokerStore) -> None:
    stream = Stream(store.root)
    assert stream.step() == 10
    store.add_many(90)
    store.publish()
    store.delete_log_file(0)
    goes_on = Stream(store.root, failOnDataLoss="false")
    goes_on.ends = list(stream.ends)
    assert 0 < goes_on.step() < 90
    with pytest.raises(DataLost, match="older messages were deleted"):
        stream.step()


def test_a_message_in_no_queue_yet_has_the_mark_that_it_has_later(store: BrokerStore) -> None:
    store.add_many(4, topic="U", dispatched=False)
    store.publish()
    stream = Stream(store.root, subscribe="U")
    assert stream.step() == 4
    first = json.loads(stream.ends[-1])[MARKS]
    for (topic, queue_id), offset in list(store.next_offsets.items()):
        if topic == "U":
            entry = QUEUE_ENTRY.struct.pack(0, 0, 0)  # dispatched later
            store.entries[topic, queue_id] = [entry] * offset
    store.add_many(2, topic="U")
    store.publish()
    stream.start()
    assert stream.step() == 2
    assert json.loads(stream.ends[-1])[MARKS].keys() == first.keys() == {"U"}


def test_one_mark_a_topic_of_the_queue_that_reaches_furthest(store: BrokerStore) -> None:
    store.add_many(3, topic="U")
    store.publish()
    stream = Stream(store.root, subscribe="T,U")
    stream.step()
    first = json.loads(stream.ends[-1])[MARKS]
    assert [*first] == ["T", "U"]
    assert [*first["T"]["default"]] == ["1"]
    for queue_id in (0, 0, 1):
        store.add("T", queue_id)
        store.publish()
        assert stream.step() == 1
        marks = json.loads(stream.ends[-1])[MARKS]
        assert [*marks["T"]["default"]] == [str(queue_id)]
        assert marks["U"] == first["U"]
        assert marks["T"] != first["T"]


def test_a_checkpoint_without_marks_goes_on_and_one_with_others_is_refused(store: BrokerStore) -> None:
    stream = Stream(store.root)
    stream.ends = [json.dumps({"T": {"default": {"0": 3, "1": 5}}})]
    assert stream.step() == 2
    for wrong in ({"T": {"default": 5}}, {"T": {"default": {"0": "x"}}}, [1], "x", {"T": {"default": {"0": -1}}}):
        with pytest.raises(Rejected, match="is not of this source"):
            stream.reader.latestOffset({MARKS: wrong, "T": {"default": {"0": 3}}}, stream.reader.getDefaultReadLimit())
