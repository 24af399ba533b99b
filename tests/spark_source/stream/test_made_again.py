"""A topic that is deleted and made again while a stream runs that is to fail when messages are lost."""

from pathlib import Path

import pytest

from rmqstore import Message, StoreConfig, open_store
from rmqstore.errors import DataLost
from rmqstore.store import Store
from tests.spark_source.stream.streams import Stream

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=65536, queue_file_size=2000, preallocate=False)


def put(store: Store, topic: str, count: int) -> None:
    for number in range(count):
        store.put(Message(topic, b"%d" % number, queue_id=0))
    store.flush()


@pytest.mark.parametrize("count", [1, 4, 5, 9])
@pytest.mark.parametrize("topics", ["T", "T,U"])
def test_it_fails_however_many_messages_there_are_by_now(tmp_path: Path, topics: str, count: int) -> None:
    with open_store(tmp_path, CONFIG, workers=False) as store:
        put(store, "U", 3)
        put(store, "T", 5)
        stream = Stream(tmp_path, subscribe=topics)
        assert stream.step() >= 5
        assert store.delete_topic("T")
        put(store, "T", count)
        for _ in range(3):
            with pytest.raises(DataLost, match="made again"):
                stream.step()


@pytest.mark.parametrize("count", [1, 4, 5, 6, 9])
@pytest.mark.parametrize("dispatched", [True, False])
def test_it_fails_when_the_topic_was_made_again_between_two_runs(tmp_path: Path, count: int, dispatched: bool) -> None:
    """Another topic's message is where the stream stands all the while."""
    with open_store(tmp_path, CONFIG, workers=False) as store:
        put(store, "A", 3)
        put(store, "T", 4)
        put(store, "Z", 3)
        store.put(Message("T", b"4", queue_id=0))
        if dispatched:
            store.flush()
        stream = Stream(tmp_path, subscribe="A,T,Z")
        assert stream.step() == 11
        store.flush()
        assert store.delete_topic("T")
        put(store, "T", count)
        put(store, "A", 2)
        for _ in range(2):
            stream.start()
            with pytest.raises(DataLost, match="made again"):
                stream.step()


def test_it_goes_on_where_nothing_of_it_had_been_read(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG, workers=False) as store:
        put(store, "T", 1)
        put(store, "U", 3)
        stream = Stream(tmp_path, subscribe="T,U", maxOffsetsPerTrigger="1")
        stream.begin()
        assert store.delete_topic("T")
        put(store, "T", 3)
        while stream.step():
            pass
        assert sorted(row[:3] for row in stream.rows) == [(topic, 0, at) for topic in "TU" for at in range(3)]
        assert store.delete_topic("T")
        put(store, "T", 4)
        with pytest.raises(DataLost, match="made again"):
            stream.step()


def test_with_fail_on_data_loss_false_it_goes_on(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG, workers=False) as store:
        put(store, "T", 5)
        stream = Stream(tmp_path, failOnDataLoss="false")
        assert stream.step() == 5
        assert store.delete_topic("T")
        put(store, "T", 2)
        stream.step()
        put(store, "T", 3)
        while stream.step():
            pass
        assert [row[2] for row in stream.rows][5:] == [2, 3, 4]  # what was stored before it was seen may have been read
