"""Databases of queues that do not tell all, or that change: their stores have all rows all the same."""

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore.snapshot import ScanRequest, SplitBudget, open_snapshot, read_split
from rmqstore.snapshot.opening import look_at, open_stores
from rmqstore.snapshot.split import Split
from tests.golden.cases import unpack
from tests.golden.rocksdb_queues import (
    DATABASE,
    bounds_of,
    entries_of,
    entries_of_files,
    key_of,
    move_into_rocksdb,
    reads_database,
    rows_of,
    with_database,
    without_entries,
)
from tests.golden.rows import EVERYTHING, scanned

pytestmark = pytest.mark.stores

MODES = ("auto", "queue", "commitlog")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
@pytest.mark.parametrize("case", ["killed-5.5.1", "lite-killed-5.5.1"])
def test_what_a_database_has_not_yet_is_found_in_the_log(case: str, share: float, mode: str, tmp_path: Path) -> None:
    """RocksDB keeps its newest entries in memory, and a kill takes them; light queues are in the records' names."""
    store = unpack(case, tmp_path)
    rows = rows_of(store, mode)
    move_into_rocksdb(store, share)
    assert reads_database(store)
    assert rows_of(store, mode) == rows


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("newest", [46_434, 120_000, 190_708, 196_607])
def test_a_database_that_ends_before_the_log_begins_tells_nothing(newest: int, mode: str, tmp_path: Path) -> None:
    """A broker ran on beyond its retention with its entries in memory, and was killed: messages between are gone."""
    store = unpack("deleted_head-5.5.1", tmp_path)
    rows, bounds = rows_of(store, mode), bounds_of(store)
    gone = [key for key, _, place in entries_of_files(store) if place >= newest]
    move_into_rocksdb(store)
    without_entries(store, gone)
    assert rows_of(store, mode) == rows
    assert bounds_of(store) == bounds


def test_the_log_in_front_of_the_newest_entry_is_not_searched(tmp_path: Path) -> None:
    store = unpack("killed-5.5.1", tmp_path)
    newest = max(place for _, _, place in entries_of_files(store))
    move_into_rocksdb(store)
    assert open_stores(str(store)).stores[0].walk_from == newest
    assert look_at(str(store)).stores[0].walk_from == 0


def _hole(store: Path) -> None:
    """As in a queue of batches."""
    without_entries(store, [sorted(entries_of(store))[3]])


def _is_left_behind(store: Path) -> None:
    """An entry behind the last message, as a cut of the log leaves it."""
    entries = entries_of(store)
    last = max(entries)
    with_database(store, {last[:-8] + (int.from_bytes(last[-8:]) + 1).to_bytes(8): entries[last]})


def _is_of_another_log(store: Path) -> None:
    entries = entries_of(store)
    with_database(store, {key: (int.from_bytes(one[:8]) + 1).to_bytes(8) + one[8:] for key, one in entries.items()})


def _has_other_keys(store: Path) -> None:
    with_database(store, {b"\0\0\0\1\1T": b"?"})


def _has_a_negative_place(store: Path) -> None:
    with_database(store, {key_of("T", 0, -1): bytes(28)})


def _has_a_path_for_a_topic(store: Path) -> None:
    with_database(store, {key_of("../T", 0, 0): bytes(28)})


def _has_values_of_another_size(store: Path) -> None:
    entries = entries_of(store)
    with_database(store, {max(entries): entries[max(entries)][:20]})


def _is_cut(store: Path) -> None:
    table = max((store / DATABASE).glob("*.sst"), key=lambda path: path.stat().st_size)
    os.truncate(table, table.stat().st_size // 2)


def _has_a_damaged_block(store: Path) -> None:
    for table in (store / DATABASE).glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[20] ^= 255
        table.write_bytes(data)


def _begins_later(store: Path) -> None:
    """As of a broker that was told to keep its queues there when it had messages already."""
    entries = entries_of(store)
    by_place = sorted(entries, key=lambda key: entries[key][:8])
    without_entries(store, by_place[: len(by_place) // 2])


def _lacks_a_queue(store: Path) -> None:
    entries = entries_of(store)
    without_entries(store, [key for key in entries if key[:-8] == max(entries)[:-8]])


UNPROVEN = [
    _hole, _is_left_behind, _is_of_another_log, _has_other_keys, _has_a_negative_place, _has_a_path_for_a_topic,
    _has_values_of_another_size, _is_cut, _has_a_damaged_block, _begins_later, _lacks_a_queue,
]  # fmt: skip


@pytest.mark.parametrize("change", UNPROVEN, ids=lambda change: change.__name__[1:])
def test_a_database_that_does_not_tell_all_hides_nothing(change: Callable[[Path], None], tmp_path: Path) -> None:
    store = unpack("basic-5.5.1", tmp_path)
    rows, bounds = rows_of(store, "auto"), bounds_of(store)
    move_into_rocksdb(store)
    change(store)
    assert not reads_database(store)
    assert rows_of(store, "auto") == rows
    assert bounds_of(store) == bounds


@pytest.mark.parametrize("is_configured", [False, True])
def test_a_topic_that_the_broker_deleted_is_gone_as_where_queues_are_files(is_configured: bool, tmp_path: Path) -> None:
    """RocketMQ takes its entries out; with topics.json that knows it, its queues are lost, and the log has them."""
    store = unpack("basic-5.5.1", tmp_path)
    rows = rows_of(store, "auto")
    topics = sorted({row["topic"] for row in rows})
    gone = rows[-1]["topic"]
    kept = [topic for topic in topics if topic != gone or is_configured]
    table = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in kept}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    move_into_rocksdb(store)
    without_entries(store, [key for key in entries_of(store) if gone.encode() in key])
    assert len(topics) > 1
    assert reads_database(store) == (not is_configured)
    assert {row["topic"] for row in rows_of(store, "auto")} == set(kept)


def test_without_the_extra_the_log_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = unpack("basic-5.5.1", tmp_path)
    rows = rows_of(store, "auto")
    move_into_rocksdb(store)
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert not reads_database(store)
    assert rows_of(store, "auto") == rows


def test_topics_with_queues_of_batches_are_read_from_the_log(tmp_path: Path) -> None:
    """Their entries have one key a batch, and count other messages than there are (RocketMQ 5.5.1)."""
    store = unpack("rocksdb-clean-5.5.1", tmp_path)
    assert not reads_database(store)


def test_a_database_that_went_after_it_was_opened_is_read_all_the_same(tmp_path: Path) -> None:
    """A broker's compaction takes files away at any time."""
    store = unpack("basic-5.5.1", tmp_path)
    rows = rows_of(store, "auto")
    move_into_rocksdb(store)
    snapshot = rmqstore.open_snapshot(store)
    shutil.rmtree(store / DATABASE)
    assert scanned(snapshot, scan_mode="auto", on_corrupt_record="null") == rows


@pytest.mark.parametrize("meanwhile", ["nothing", "another database", "no database", "no extra"])
def test_a_split_that_was_pickled_reads_the_database_that_it_finds(
    meanwhile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another host, later: entries are there that came since, others were taken away."""
    store = unpack("killed-5.5.1", tmp_path)
    entries = {key: value for key, value, _ in entries_of_files(store)}
    move_into_rocksdb(store, 0.5)
    snapshot, request = open_snapshot(store), ScanRequest(on_corrupt_record="null")
    ranges = snapshot.select(pattern=".*", include_system_topics=True)
    splits = snapshot.plan(ranges, request, SplitBudget())

    def read(splits: list[Split]) -> pa.Table:
        return pa.Table.from_batches(batch for split in splits for batch in read_split(split, request))

    rows, pickled = read(splits), pickle.dumps(splits)
    if meanwhile == "another database":
        with_database(store, entries)
    elif meanwhile == "no database":
        shutil.rmtree(store / DATABASE)
    elif meanwhile == "no extra":
        monkeypatch.setitem(sys.modules, "rocksdict", None)
        with pytest.raises(rmqstore.Rejected, match=r"pip install 'rmqstore\[rocksdb\]'"):
            read(pickle.loads(pickled))
        return
    assert read(pickle.loads(pickled)) == rows


def test_a_fork_reads_what_its_parent_opened(tmp_path: Path) -> None:
    store = unpack("basic-5.5.1", tmp_path)
    move_into_rocksdb(store)
    snapshot = rmqstore.open_snapshot(store)
    count = snapshot.scan(**EVERYTHING).read_all().num_rows
    child = os.fork()
    if not child:
        os._exit(0 if snapshot.scan(**EVERYTHING).read_all().num_rows == count else 1)
    assert os.waitpid(child, 0)[1] == 0
