"""Data of a store's member in several directories: those that are only read, and those whose disks are full."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmqstore import LedgerConfig, StoreConfig, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.errors import Rejected
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk
from tests.dledger.ledgers import PLAIN, image, put

pytestmark = pytest.mark.stores


def config_of(tmp_path: Path, *names: str, read_only: tuple[str, ...] = (), converts: bool = False) -> StoreConfig:
    settings = LedgerConfig(
        index_file_size=640, data_paths=tuple(str(tmp_path / name) for name in names), converts=converts
    )
    return replace(PLAIN, dledger=settings, read_only_log_paths=tuple(str(tmp_path / name) for name in read_only))


def held(tmp_path: Path, name: str) -> list[str]:
    directory = tmp_path / name
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def count(tmp_path: Path, *names: str) -> int:
    return open_snapshot([[tmp_path / "store", *(tmp_path / name for name in names)]]).scan().read_all().num_rows


@pytest.mark.parametrize("is_named_twice", [True, False])
@pytest.mark.parametrize("is_ended_cleanly", [True, False])
def test_read_only_paths_are_read_and_get_no_file(tmp_path: Path, is_named_twice: bool, is_ended_cleanly: bool) -> None:
    """Java: DLedgerMultiPathTest; RocketMQ names such a path among the others as well."""
    root = tmp_path / "store"
    with open_store(root, config_of(tmp_path, "a", "b", "c")) as store:
        put(store, 120)
    before = {name: held(tmp_path, name) for name in "abc"}
    assert all(len(files) > 1 for files in before.values())
    named = ("a", "b", "c", "d") if is_named_twice else ("c", "d")
    config = config_of(tmp_path, *named, read_only=("a", "b"))
    for number in range(2):
        store = open_store(root, config)
        assert [each for each in store.warnings if "taken as agreed on" not in each] == []
        assert sum(store.bounds("t", queue)[1] for queue in range(3)) == 120 + 120 * number
        put(store, 120, "more")
        if is_ended_cleanly:
            store.close()
        else:
            store.abandon()
    open_store(root, config).close()
    assert {name: held(tmp_path, name) for name in "ab"} == {name: before[name] for name in "ab"}
    assert len(held(tmp_path, "c")) > len(before["c"])
    assert len(held(tmp_path, "d")) > 1
    assert count(tmp_path, "a", "b", "c", "d") == 360


def test_an_old_log_and_read_only_data_stand_in_front(tmp_path: Path) -> None:
    """One setting, readOnlyCommitLogStorePaths, names both."""
    root = tmp_path / "store"
    with open_store(root, replace(PLAIN, log_paths=(str(tmp_path / "old"),))) as store:
        put(store, 40)
    with open_store(root, config_of(tmp_path, "a", "b", read_only=("old",), converts=True)) as store:
        put(store, 60)
    before = {name: held(tmp_path, name) for name in ("old", "a")}
    with open_store(root, config_of(tmp_path, "b", read_only=("old", "a"))) as store:
        assert sum(store.bounds("t", queue)[1] for queue in range(3)) == 100
        put(store, 60, "more")
    assert {name: held(tmp_path, name) for name in ("old", "a")} == before
    assert count(tmp_path, "old", "a", "b") == 160


def test_some_path_has_to_take_new_files(tmp_path: Path) -> None:
    """Java fails with a division by zero when the next file is due."""
    root = tmp_path / "store"
    with open_store(root, config_of(tmp_path, "a", "b")) as store:
        put(store, 60)
    before = image(tmp_path)
    with pytest.raises(Rejected, match="only read, and none of its data_paths is left for new files"):
        open_store(root, config_of(tmp_path, "a", "b", read_only=("a", "b")))
    assert image(tmp_path) == before


def test_a_broker_conf_names_paths_that_are_only_read(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "enableDLegerCommitLog=true\ndLegerSelfId=n0\ndLegerPeers=n0-127.0.0.1:40911\n"
        "storePathDLedgerCommitLog=/a,/b,/c\nreadOnlyCommitLogStorePaths=/a,/b"
    )
    config = StoreConfig.from_broker_conf(conf)
    assert config.dledger == LedgerConfig(self_id="n0", data_paths=("/a", "/b", "/c"))
    assert config.read_only_log_paths == ("/a", "/b")


@pytest.mark.parametrize("kind", ["ledger", "plain"])
@pytest.mark.parametrize("preallocate", [True, False])
def test_a_path_whose_disk_is_full_gets_no_file_while_another_has_room(kind: str, preallocate: bool) -> None:
    """Java: MultiPathMappedFileQueue, MultiPathMmapFileList."""
    full = {"/a"}

    class Disk(MemoryDisk):
        def used_ratio(self, path: str) -> float:
            return 0.88 if path in full else 0.1

    paths = ("/a", "/b", "/c")
    settings = {"dledger": LedgerConfig(index_file_size=640, data_paths=paths)} if kind == "ledger" else {}
    config = replace(
        PLAIN, **({} if settings else {"log_paths": paths}), **settings, retention=True, preallocate=preallocate,
        delete_when="",
    )  # fmt: skip
    disk, clock = Disk(), ManualClock()
    with open_store("/store", config, filesystem=disk, clock=clock, workers=False) as store:
        retain = partial(Probe(store).step, "retention")
        retain()
        put(store, 120)
        made_before_the_look = [f"/a/{0:020d}"] if preallocate else []
        assert [path for path in disk.image() if path.startswith("/a/")] == made_before_the_look
        assert {path[:2] for path in disk.image() if path[:3] in ("/b/", "/c/")} == {"/b", "/c"}
        full |= {"/b", "/c"}  # none has room any more: all take turns again
        clock.advance(10_000)  # until the next round
        retain()
        put(store, 120, "more")
        assert {path[:2] for path in disk.image() if path[:3] in ("/a/", "/b/", "/c/")} == {"/a", "/b", "/c"}
    with open_store("/store", config, filesystem=disk, clock=ManualClock(), workers=False) as store:
        assert sum(store.bounds("t", queue)[1] for queue in range(3)) == 240
