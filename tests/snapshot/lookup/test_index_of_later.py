"""A snapshot that stays open while its store goes on: an index file that was begun later has nothing to say to it."""

from pathlib import Path

import pytest

from rmqstore import Message, Snapshot, StoreConfig, open_snapshot, open_store
from rmqstore.engine.store import Store
from rmqstore.snapshot.lookup import by_key

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(
    log_file_size=65536, queue_file_size=2000, message_size_max=3000, index_slot_count=100, index_item_count=200,
    preallocate=False,
)  # fmt: skip


def put(store: Store, first: int, last: int) -> None:
    for number in range(first, last):
        store.put(Message("t", b"%d" % number, keys=[f"k{number}", "all"]))
    store.flush()


def answers(snapshot: Snapshot, count: int) -> list[list[int]]:
    return [[one.queue_offset for one in snapshot.query("t", f"k{number}")] for number in range(count)]


@pytest.mark.some(3)
@pytest.mark.parametrize("before", [20, 50, 130])
@pytest.mark.parametrize("later", [5, 30, 80, 300])
def test_each_message_is_found_once_however_the_store_goes_on(tmp_path: Path, before: int, later: int) -> None:
    with open_store(tmp_path, CONFIG, workers=False) as store:
        put(store, 0, before)
        snapshot = open_snapshot(tmp_path)
        expected = [[number] for number in range(before)]
        assert answers(snapshot, before) == expected
        newest = [one.queue_offset for one in snapshot.query("t", "all", count_max=16)]
        assert newest == list(range(before - 16, before))
        put(store, before, before + later)
        assert answers(snapshot, before) == expected
        assert [one.queue_offset for one in snapshot.query("t", "all", count_max=16)] == newest


def test_the_log_is_not_walked_for_an_index_of_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path, CONFIG, workers=False) as store:
        put(store, 0, 60)
        snapshot = open_snapshot(tmp_path)
        put(store, 60, 300)
        starts: list[int] = []
        walked = by_key.walk
        monkeypatch.setattr(by_key, "walk", lambda view, limits: starts.append(limits.start) or walked(view, limits))
        assert answers(snapshot, 1) == [[0]]
    assert all(start > 0 for start in starts)
