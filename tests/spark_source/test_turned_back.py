"""failOnDataLoss=false in a store that ends before where the stream stands: nothing doubled, nothing new left out."""

import json
import logging
from pathlib import Path

import pytest

from spark_source import turned_back
from tests.snapshot.growing_store import GrowingStore, made_anew
from tests.snapshot.small_store import FIRST_MS
from tests.spark_source.test_stream_reader import BROKER, Stream, expected, places

NOW_MS = FIRST_MS + 1_000_000_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turned_back.time, "time", lambda: NOW_MS / 1000)


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    grown = GrowingStore(tmp_path / "store")
    grown.add_many(120)
    grown.publish()
    return grown


def add_now(store: GrowingStore, count: int) -> None:
    """Messages that are stored after the stream has seen the shorter queues."""
    for number in range(count):
        at_ms = NOW_MS + 1 + len(store.offsets)
        store.add("T", number % 2, body=b"new", store_timestamp=at_ms)
    store.publish()


def test_a_stream_goes_on_with_what_is_stored_in_a_store_made_anew(
    store: GrowingStore, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    anew = made_anew(store, 30)
    with caplog.at_level(logging.WARNING):
        assert [stream.step() for _ in range(3)] == [0, 0, 0]
    assert sum("T/0 of default ends at offset 15, before 60 where the stream stands" in line
               for line in caplog.messages) == 1  # fmt: skip
    add_now(anew, 10)
    with caplog.at_level(logging.WARNING):
        assert stream.step() == 10
    assert any("T/1 of default goes on at offset 15" in line for line in caplog.messages)
    assert places(stream.rows[120:]) == expected({("T", 0): range(15, 20), ("T", 1): range(15, 20)})
    assert json.loads(stream.ends[-1])["T"] == {BROKER: {"0": 20, "1": 20}}
    assert stream.step() == 0
    add_now(anew, 6)
    assert stream.step() == 6
    stream.start()
    assert stream.step() == 0
    add_now(anew, 4)
    assert stream.step() == 4
    assert len(set(places(stream.rows[120:]))) == 20


def test_a_batch_that_went_on_is_the_same_when_it_is_run_again(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    anew = made_anew(store, 30)
    stream.step()
    add_now(anew, 10)
    start, end = stream.plan()
    rows = sorted(stream.run(start, end))
    stream.start()
    assert sorted(stream.run(start, end)) == rows
    assert len(rows) == 10


@pytest.mark.parametrize("most", ["1", "3", "7"])
def test_limits_hold_where_the_new_offsets_meet_the_old_ones(store: GrowingStore, most: str) -> None:
    """The end of a batch may be the very offset where the stream stood."""
    stream = Stream(store.root, failOnDataLoss="false", maxOffsetsPerTrigger=most)
    while stream.step():
        pass
    anew = made_anew(store, 118)
    assert stream.step() == 0
    add_now(anew, 10)
    while stream.step():
        pass
    assert places(stream.rows[120:]) == expected({("T", 0): range(59, 64), ("T", 1): range(59, 64)})


def test_a_copy_that_lags_brings_no_row_twice(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    copy = made_anew(store, 30)
    stream.start()
    assert stream.step() == 0
    for count in (40, 50):  # it catches up with what was stored before
        copy.add_many(count)
        copy.publish()
        assert stream.step() == 0
    add_now(copy, 8)
    assert stream.step() == 8
    assert places(stream.rows) == expected({("T", 0): range(64), ("T", 1): range(64)})


def test_a_store_that_was_cut_goes_on_where_it_was_cut(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    cut = made_anew(store, 100)
    assert stream.step() == 0
    add_now(cut, 30)  # beyond where the stream stood
    assert stream.step() == 30
    assert places(stream.rows[120:]) == expected({("T", 0): range(50, 65), ("T", 1): range(50, 65)})


def test_a_store_that_is_made_anew_again_and_again(store: GrowingStore, tmp_path: Path) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    for count in (30, 20, 10):
        anew = made_anew(store, count)
        store.root.with_name("old").rename(tmp_path / f"old-{count}")
        assert stream.step() == 0
        add_now(anew, 4)
        assert stream.step() == 4
        assert stream.step() == 0
