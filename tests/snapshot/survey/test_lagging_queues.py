"""Queues that lag to before the newest files: RocketMQ's recovery does not look there, a reader does."""

from pathlib import Path

import pytest

import rmqstore
from rmqstore.config import StoreConfig
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.files.reading import LocalDisk
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
COUNT = 400


def lagging_store(root: Path, lags_from: int, *, with_first: bool = True) -> SmallStore:
    """T/0 and T/1 in turn over a dozen log files; the entries of T/1 from `lags_from` on are not there."""
    store = SmallStore()
    for number in range(COUNT):
        queue_id = number % 2
        is_there = queue_id == 0 or (with_first and number // 2 < lags_from)
        store.add("T", queue_id, body=b"%d" % number, dispatched=is_there)
    store.write(root)
    return store


def rows(root: Path, mode: str) -> dict[int, list[int]]:
    table = (
        rmqstore.open_snapshot(root).scan(topics=["T"], columns=["queueId", "queueOffset"], scan_mode=mode).read_all()
    )
    found: dict[int, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(row["queueId"], []).append(row["queueOffset"])
    return {queue_id: sorted(offsets) for queue_id, offsets in found.items()}


@MODES
@pytest.mark.parametrize("lags_from", [0, 1, 7, 60, 150, 199])
@pytest.mark.parametrize("is_clean", [True, False])
def test_messages_that_no_queue_has_are_found_however_old(
    tmp_path: Path, lags_from: int, is_clean: bool, mode: str
) -> None:
    lagging_store(tmp_path, lags_from)
    if not is_clean:
        (tmp_path / "abort").touch()
    snapshot = rmqstore.open_snapshot(tmp_path)
    assert [(q["minOffset"], q["maxOffset"]) for q in snapshot.queues().to_pylist()] == [(0, 200), (0, 200)]
    assert snapshot.stores[0].damage == ()
    assert rows(tmp_path, mode) == {0: list(range(200)), 1: list(range(200))}


def test_the_log_is_not_read_further_back_than_the_last_entry(tmp_path: Path) -> None:
    store = lagging_store(tmp_path, 100)
    (found,) = rmqstore.open_snapshot(tmp_path).stores
    lagging = store.offsets[2 * 100 + 1]
    assert lagging - store.file_size < found.walk_from <= lagging


def test_a_recovery_finds_the_same(tmp_path: Path) -> None:
    lagging_store(tmp_path, 7)
    (tmp_path / "abort").touch()
    plan = plan_recovery(LocalDisk(), str(tmp_path), StoreConfig())
    assert plan.next_offsets() == {("T", 0): 200, ("T", 1): 200}
