"""Stores as RocketMQ 5.4 and 5.5 leave them: tags in the index, the queues' progress in the checkpoint, and databases
beside the rest.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import rocksdict

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.config import QUEUES_TOLD_SINCE, TAGS_INDEXED_SINCE
from rmqstore.directory.store_root import require_replaceable
from rmqstore.errors import Rejected, UnsupportedLayout
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats import index
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint, read_checkpoint
from rmqstore.formats.java_hash import index_hash
from rmqstore.sink import Batch, append_once, stage_part
from rmqstore.snapshot.finding import DAMAGE, NOTE
from rmqstore.snapshot.verify import verify
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk
from tests.golden.cases import unpack

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(flush="SYNC", log_file_size=1 << 16, index_slot_count=50, index_item_count=41, preallocate=False)
OF_5_5 = replace(CONFIG, release="5.5.1")


def put(path: Path, config: StoreConfig, *tags: str | None) -> None:
    """Puts a message with each of these tags, a key in each, and closes the store."""
    with open_store(path, config, workers=False) as store:
        for number, each in enumerate(tags):
            store.put(Message("orders", b"x", tags=each, keys=f"k{number}", queue_id=0)).raise_for_status()


def items_of(path: Path) -> list[int]:
    """The hashes of all index items, in their order."""
    found = []
    for file in sorted((path / "index").iterdir()):
        data = file.read_bytes()
        header = index.read_header(data)
        assert header is not None
        items = index.read_items(data, CONFIG.index_slot_count)
        found += items["key_hash"][1 : header.index_count].tolist()
    return found


def hashes_of(*texts: str) -> list[int]:
    return [index_hash(f"orders#{text}") for text in texts]


def checkpoint_of(path: Path) -> Checkpoint:
    return read_checkpoint((path / "checkpoint").read_bytes())


def places_of(path: Path) -> list[int]:
    found: list[int] = open_snapshot(path).scan(columns=["physicalOffset"]).read_all()["physicalOffset"].to_pylist()
    return sorted(found)


def damage_of(path: Path) -> list[str]:
    (store,) = open_snapshot(path).stores
    return [finding.reason for finding in verify(store) if finding.severity == DAMAGE]


def test_a_new_store_is_as_before(tmp_path: Path) -> None:
    put(tmp_path, CONFIG, "red", None)
    assert items_of(tmp_path) == hashes_of("k0", "k1")
    assert checkpoint_of(tmp_path).logics_physical_offset == 0


@pytest.mark.parametrize(
    ("release", "tags", "progress"),
    [("4.9", False, False), ("5.3.3", False, False), ("5.4", True, False), ("5.4.0", True, False), ("5.5", True, True),
     ("5.10", True, True), ("6.0", True, True)],
)  # fmt: skip
def test_a_new_store_for_a_release(release: str, tags: bool, progress: bool, tmp_path: Path) -> None:
    config = replace(CONFIG, release=release)
    assert (config.is_for(TAGS_INDEXED_SINCE), config.is_for(QUEUES_TOLD_SINCE)) == (tags, progress)
    put(tmp_path, config, "red", None, "blue")
    wanted = ("k0", "T#red", "k1", "k2", "T#blue") if tags else ("k0", "k1", "k2")
    assert items_of(tmp_path) == hashes_of(*wanted)
    assert checkpoint_of(tmp_path).logics_physical_offset == (places_of(tmp_path)[-1] if progress else 0)
    assert damage_of(tmp_path) == []


@pytest.mark.parametrize("release", ["", "5", "five", "5.5-SNAPSHOT", "5..5", "v5.5", " 5.5", "5.99999"])
def test_what_is_no_release(release: str) -> None:
    with pytest.raises(Rejected, match=r"a release of RocketMQ, as 4\.9 or 5\.5\.1"):
        StoreConfig(release=release)


def test_a_broker_s_store_for_a_release() -> None:
    assert StoreConfig.broker(release="5.5").is_for(QUEUES_TOLD_SINCE)


def by_sink(path: Path) -> None:
    rows = pa.record_batch({"topic": ["orders"] * 2, "body": [b"x"] * 2, "tags": ["green", None], "keys": ["s0", "s1"]})
    task = stage_part(str(path), ("w", 1), (0, 0), CONFIG, 1)
    task.add(rows)
    append_once(str(path), Batch("w", 1, (task.finish(),)), CONFIG)


def by_columns(path: Path) -> None:
    rows = pa.record_batch({"topic": ["orders"] * 2, "body": [b"x"] * 2, "tags": ["green", None], "keys": ["s0", "s1"]})
    with open_store(path, CONFIG, workers=False) as store:
        store.put_columns(rows).raise_for_status()


def by_batch(path: Path) -> None:
    with open_store(path, CONFIG, workers=False) as store:
        store.put_batch(
            [Message("orders", b"x", tags="green", keys="s0"), Message("orders", b"x", keys="s1")]
        ).raise_for_status()


def after_a_kill(path: Path) -> None:
    store = open_store(path, CONFIG, workers=False)
    store.put(Message("orders", b"x", tags="green", keys="s0", queue_id=0)).raise_for_status()
    store.put(Message("orders", b"x", keys="s1", queue_id=0)).raise_for_status()
    Probe(store).crash()
    open_store(path, CONFIG, workers=False).close()


def without_an_index(path: Path) -> None:
    for file in (path / "index").iterdir():
        file.unlink()
    (path / "rocksdbstore").mkdir()  # that of a broker, which tells of tags where no item does
    by_columns(path)


@pytest.mark.parametrize("go_on", [by_sink, by_columns, by_batch, after_a_kill, without_an_index])
@pytest.mark.parametrize("count", [2, 39])
def test_a_store_that_has_them_keeps_them_up(go_on: Callable[[Path], None], count: int, tmp_path: Path) -> None:
    """Whatever the configuration says of other things, and however full its last file is."""
    tags = ["red" if number % 3 else None for number in range(count)]
    put(tmp_path, OF_5_5, *tags)
    wanted = [text for number, tag in enumerate(tags) for text in (f"k{number}", *([f"T#{tag}"] if tag else []))]
    go_on(tmp_path)
    assert items_of(tmp_path) == hashes_of(*wanted, "s0", "T#green", "s1")
    assert checkpoint_of(tmp_path).logics_physical_offset >= places_of(tmp_path)[-1]
    assert damage_of(tmp_path) == []


def test_a_release_that_is_named_counts_more_than_the_index(tmp_path: Path) -> None:
    put(tmp_path, OF_5_5, "red")
    put(tmp_path, replace(CONFIG, release="5.3.3"), "blue")
    assert items_of(tmp_path) == hashes_of("k0", "T#red", "k0")
    assert damage_of(tmp_path) == []  # tags without an item are none
    put(tmp_path, replace(CONFIG, release="5.4"), "green")
    assert items_of(tmp_path) == hashes_of(
        "k0", "T#red", "k0", "T#blue", "k0", "T#green"
    )  # of the newest it is made up
    assert damage_of(tmp_path) == []


@pytest.mark.parametrize("release", [None, "5.4"])
@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("how", [by_columns, after_a_kill])
def test_a_broker_s_store_that_says_no_progress_says_it_from_now_on(
    release: str | None, count: int, how: Callable[[Path], None], tmp_path: Path
) -> None:
    """RocketMQ 5.5 with enableAcceleratedRecovery does not start where it says none, as that of a young store does; a
    release that somebody names is believed."""
    put(tmp_path, CONFIG, *[None] * count)
    (tmp_path / "rocksdbstore").mkdir()
    assert checkpoint_of(tmp_path).logics_physical_offset == 0
    if release is not None:
        put(tmp_path, replace(CONFIG, release=release), "red")
    else:
        how(tmp_path)
    assert checkpoint_of(tmp_path).logics_physical_offset == (0 if release else places_of(tmp_path)[-1])


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize(("past", "is_told"), [(0, False), (1, True), (10**9, True)])
def test_progress_past_the_end_of_the_log_is_told_by_verify(
    past: int, is_told: bool, is_closed: bool, tmp_path: Path
) -> None:
    put(tmp_path, OF_5_5, "red", "blue")
    (store,) = open_snapshot(tmp_path).stores
    known = replace(checkpoint_of(tmp_path), logics_physical_offset=store.log_end + past)
    (tmp_path / "checkpoint").write_bytes(encode_checkpoint(known))
    if not is_closed:
        (tmp_path / "abort").touch()
    found = [
        finding for finding in verify(open_snapshot(tmp_path).stores[0]) if "logicsPhysicalOffset" in finding.reason
    ]
    assert [finding.severity for finding in found] == [DAMAGE if is_closed else NOTE] * is_told
    open_store(tmp_path, CONFIG, workers=False).close()
    assert checkpoint_of(tmp_path).logics_physical_offset <= store.log_end


def test_a_cut_lowers_the_progress() -> None:
    """Else RocketMQ 5.5 would begin to dispatch behind what comes instead."""
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store("/store", OF_5_5, clock=clock, filesystem=disk, workers=False)
    places = [store.put(Message("orders", b"x" * 100, queue_id=0)).physical_offset for _ in range(9)]
    store.close()
    file = disk.open("/store/commitlog/00000000000000000000")
    file.write(places[5], bytes(file.size() - places[5]))  # as after a lost sector
    file.sync()
    disk.create("/store/abort", 0).close()
    assert read_checkpoint(disk.open("/store/checkpoint").read(0, 4096)).logics_physical_offset == places[-1]
    open_store("/store", CONFIG, clock=clock, filesystem=disk, workers=False).close()
    assert places[4] <= read_checkpoint(disk.open("/store/checkpoint").read(0, 4096)).logics_physical_offset < places[5]


def make_database(path: Path) -> None:
    rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True)).close()


def of_broker(path: Path, pop: str = "kvStore") -> Path:
    """A store with everything that a broker of RocketMQ 5.5 may leave beside."""
    put(path, OF_5_5, "red")
    for room in ("rocksdbstore", "consumequeue_rocksdb", pop, "config/metadata", "config/topics"):
        (path / room).parent.mkdir(exist_ok=True)
        make_database(path / room)
    for name in ("timerwheel.4096.tmp", "timerwheel.4096", "abort.bak"):
        (path / name).write_bytes(b"")
    return path


@pytest.mark.parametrize("pop", ["kvStore", "kvStore/pop"])
def test_the_parts_of_a_store_of_5_5(tmp_path: Path, pop: str) -> None:
    path = of_broker(tmp_path / "s", pop)
    require_replaceable(RealFileSystem(), str(path))
    assert damage_of(path) == []
    with open_store(path, workers=False) as store:
        places = [str(path / "config" / name) for name in ("metadata", "topics")]
        assert sorted(warning.partition(":")[0] for warning in store.warnings) == places
        assert len(store.query("orders", "k0")) == 1
    assert open_snapshot(path).scan().read_all().num_rows == 1


@pytest.mark.parametrize("pop", ["kvStore", "kvStore/pop"])
@pytest.mark.parametrize("room", ["rocksdbstore", "consumequeue_rocksdb", "kvStore"])
def test_a_damaged_database_of_a_store_of_5_5_is_damage(tmp_path: Path, room: str, pop: str) -> None:
    """RocketMQ does not start on one, and nobody said so."""
    path = of_broker(tmp_path / "s", pop)
    database = path / (pop if room == "kvStore" else room)
    (manifest,) = database.glob("MANIFEST-*")
    manifest.unlink()
    (reason,) = damage_of(path)
    assert reason.startswith("RocksDB cannot be read")
    (database / "CURRENT").unlink()
    assert damage_of(path) == []


@pytest.mark.parametrize("reach", ["first", "last", "nothing"])
def test_keys_that_rocksdbs_index_has_are_not_missed_in_the_files(tmp_path: Path, reach: str) -> None:
    """A broker with indexFileWriteEnable=false goes on without the files that this engine made."""
    put(tmp_path, OF_5_5, *["red"] * 60)
    newest = max((tmp_path / "index").iterdir())
    newest.unlink()
    assert any("keys are not indexed yet" in reason for reason in damage_of(tmp_path))
    database = rocksdict.Rdict(str(tmp_path / "rocksdbstore"), rocksdict.Options(raw_mode=True))
    places = places_of(tmp_path)
    if reach != "nothing":
        database[b"lastOffsetPy"] = (places[-1] if reach == "last" else places[-2]).to_bytes(8, "big")
    database.close()
    assert len(damage_of(tmp_path)) == (0 if reach == "last" else 1)


@pytest.mark.parametrize("room", ["rocksdbstore", "consumequeue_rocksdb", "kvStore"])
def test_directories_of_these_names_that_are_others(room: str, tmp_path: Path) -> None:
    put(tmp_path, CONFIG, "red")
    (tmp_path / room).mkdir()
    (tmp_path / room / "photo.jpg").write_bytes(b"x")
    with pytest.raises(rmqstore.NotAStore, match=f"{room!r} in it is no part of a store"):
        require_replaceable(RealFileSystem(), str(tmp_path))


@pytest.mark.parametrize("room", ["consumequeue", "consumequeue_rocksdb"])
def test_queues_in_a_database_beside_files(room: str, tmp_path: Path) -> None:
    """rocksdbCQDoubleWriteEnable: the files count, and Java brings its database up to them."""
    put(tmp_path, OF_5_5, "red", "blue")
    make_database(tmp_path / room)
    assert open_snapshot(tmp_path).stores[0].queue_layout == "file"
    assert damage_of(tmp_path) == []
    put(tmp_path, CONFIG, "green")
    assert open_snapshot(tmp_path).scan().read_all().num_rows == 3


@pytest.mark.parametrize("room", ["consumequeue", "consumequeue_rocksdb"])
def test_queues_in_a_database_alone(room: str, tmp_path: Path) -> None:
    put(tmp_path, OF_5_5, "red", "blue")
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / room).mkdir()
    (tmp_path / room / "CURRENT").write_text("MANIFEST-000005\n")
    assert open_snapshot(tmp_path).stores[0].queue_layout == "RocksDB"
    assert open_snapshot(tmp_path).scan().read_all().num_rows == 2
    with pytest.raises(UnsupportedLayout, match="consume queues in RocksDB") as refusal:
        open_store(tmp_path)
    assert refusal.value.path == str(tmp_path / room)


@pytest.mark.parametrize(
    "case",
    ["basic-5.5.1", "killed-5.5.1", "lite-5.5.1", "doublewrite-5.5.1", "doublewrite-apart-5.5.1", "nommap-5.5.1"],
)
def test_verify_finds_no_damage_in_what_rocketmq_left(case: str, tmp_path: Path) -> None:
    assert damage_of(unpack(case, tmp_path)) == []


def test_verify_finds_a_broken_last_record_there(tmp_path: Path) -> None:
    put(of_broker(tmp_path / "s"), CONFIG, "red")
    file, place = tmp_path / "s" / "commitlog" / "00000000000000000000", places_of(tmp_path / "s")[-1]
    data = bytearray(file.read_bytes())
    data[place + 4 : place + 8] = b"KKKK"
    file.write_bytes(data)
    assert "the entry points at no record" in damage_of(tmp_path / "s")
