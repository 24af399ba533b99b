"""A store whose commitlog lies elsewhere, or is gone, or is DLedger's never reads as an empty one."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import NotAStore, StoreConfig, UnsupportedLayout
from rmqstore.engine.store import open_store
from rmqstore.formats.checkpoint import CHECKPOINT, FILE_SIZE
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.formats.names import format_start
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.store_paths import require_stores
from rmqstore.snapshot.stream.ends import StreamEnds
from tests.snapshot.small_store import small_store, split_store

COUNT = 20
CONFIG = StoreConfig.embedded(log_file_size=65536, queue_file_size=1000, index_slot_count=50, index_item_count=200)


def count_of(snapshot: rmqstore.Snapshot) -> int:
    return int(snapshot.scan(topics=["T"]).read_all().num_rows)


def test_a_store_whose_log_lies_elsewhere_is_refused_in_a_line_that_says_how_to_name_it(tmp_path: Path) -> None:
    root, _ = split_store(COUNT, tmp_path)
    with pytest.raises(NotAStore) as caught:
        rmqstore.open_snapshot(root)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{root}: the queue T/0 has entries, but there is no commitlog file")
    for way in ("storePathCommitLog", "open_snapshot([STORE, LOG])", "rmqstore inspect STORE LOG"):
        assert way in line
    assert str(pickle.loads(pickle.dumps(caught.value))) == line


def test_every_way_to_name_its_directory_reads_it(tmp_path: Path) -> None:
    root, log = split_store(COUNT, tmp_path)
    for paths in ([root, log], [[root, log]], {"broker-a": [root, log]}, {"broker-a": (str(root), str(log))}):
        snapshot = rmqstore.open_snapshot(paths)
        assert count_of(snapshot) == COUNT
        assert len(snapshot.stores) == 1


def test_a_directory_named_as_a_log_has_to_be_there(tmp_path: Path) -> None:
    root, log = split_store(COUNT, tmp_path)
    with pytest.raises(NotAStore, match="storePathCommitLog"):
        rmqstore.open_snapshot([[root, tmp_path / "nowhere"]])
    with pytest.raises(rmqstore.Rejected, match="no directory given"):
        rmqstore.open_snapshot({"broker-a": []})
    for file in log.iterdir():
        file.unlink()
    with pytest.raises(NotAStore, match="no commitlog file"):
        rmqstore.open_snapshot([[root, log]])


def of_config(root: Path) -> None:
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text("{}")


def of_queue_directories(root: Path) -> None:
    (root / "consumequeue" / "T" / "0").mkdir(parents=True)


def of_blank_queue_files(root: Path) -> None:
    of_queue_directories(root)
    (root / "consumequeue" / "T" / "0" / format_start(0)).write_bytes(bytes(1000))


def of_a_checkpoint(root: Path) -> None:
    """What is left where RocketMQ found its log deleted, and deleted the queues."""
    root.mkdir()
    (root / "commitlog").mkdir()
    (root / "checkpoint").write_bytes(CHECKPOINT.struct.pack(1, 1, 1, 0, 0, 0).ljust(FILE_SIZE, b"\0"))


def of_the_engine(root: Path) -> None:
    open_store(root, CONFIG, workers=False).close()


@pytest.mark.parametrize(
    "made", [of_config, of_queue_directories, of_blank_queue_files, of_a_checkpoint, of_the_engine]
)
def test_a_store_that_never_had_a_message_reads_as_empty(tmp_path: Path, made: Callable[[Path], None]) -> None:
    made(tmp_path / "store")
    assert rmqstore.open_snapshot(tmp_path / "store").scan().read_all().num_rows == 0


def test_a_store_whose_messages_all_expired_reads_as_empty(tmp_path: Path) -> None:
    """RocketMQ keeps the newest file of the log; the queues keep entries that point before it."""
    store = small_store(COUNT)
    store.roll()
    store.append(b"")
    root = store.write(tmp_path / "store")
    for start in list(store.data):
        if start < store.end:
            (root / "commitlog" / format_start(start)).unlink()
    (root / "commitlog" / format_start(store.end)).write_bytes(bytes(4096))
    snapshot = rmqstore.open_snapshot(root)
    assert count_of(snapshot) == 0
    assert snapshot.queues()["maxOffset"].to_pylist() == [COUNT // 2, COUNT // 2]


def test_an_index_without_queues_tells_of_messages_too(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG) as store:
        store.put(rmqstore.Message("T", b"body", keys="k"))
    shutil.rmtree(root / "commitlog")
    shutil.rmtree(root / "consumequeue")
    with pytest.raises(NotAStore, match="the index has items"):
        rmqstore.open_snapshot(root)


def test_rocksdb_queues_and_a_checkpoint_tell_of_messages_too(tmp_path: Path) -> None:
    of_a_checkpoint(tmp_path / "store")
    (tmp_path / "store" / "consumequeue").mkdir()
    (tmp_path / "store" / "consumequeue" / "CURRENT").write_text("MANIFEST-000004\n")
    with pytest.raises(NotAStore, match="the checkpoint knows of messages"):
        rmqstore.open_snapshot(tmp_path / "store")


def test_verify_still_looks_at_a_store_without_a_log(tmp_path: Path) -> None:
    root, _ = split_store(COUNT, tmp_path)
    assert look_at(root).stores[0].log_files == ()


def test_a_stream_stops_where_its_log_goes_away(tmp_path: Path) -> None:
    root, log = split_store(COUNT, tmp_path)
    ends = StreamEnds([[root, log]])
    assert sum(ends.look().queues()["maxOffset"].to_pylist()) == COUNT
    for file in log.iterdir():
        file.unlink()
    with pytest.raises(NotAStore, match="no commitlog file"):
        ends.look()


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_commitlog_that_is_no_directory_is_no_empty_store(tmp_path: Path, what: str) -> None:
    (tmp_path / "config").mkdir()
    log = tmp_path / "commitlog"
    if what == "file":
        log.write_bytes(b"x")
    else:
        log.symlink_to(tmp_path / "not mounted")
    for look in (rmqstore.open_snapshot, require_stores):
        with pytest.raises(NotAStore, match="commitlog is no directory, or a link that leads nowhere"):
            look(tmp_path)


def ledger(directory: Path, start: int = 0) -> Path:
    """A DLedger node's directory with one entry."""
    for room in ("data", "index"):
        (directory / room).mkdir(parents=True)
        head = ENTRY_HEAD.struct.pack(1, 148, 0, 1, start, 0, 0, 0, 100)
        (directory / room / format_start(start)).write_bytes(head.ljust(4096, b"x"))
    (directory / "checkpoint").write_text("committedIndex=0\n")
    return directory


@pytest.mark.parametrize("start", [0, 16384])
def test_every_directory_of_dledger_is_refused(tmp_path: Path, start: int) -> None:
    node = ledger(tmp_path / "store" / "dledger-n0", start)
    asked = [[tmp_path / "store"], [node], [node / "data"], [node / "index"], [node, node / "data"]]
    for paths in asked:
        for look in (rmqstore.open_snapshot, require_stores):
            with pytest.raises(UnsupportedLayout, match="DLedger") as caught:
                look(paths)
            assert "\n" not in str(caught.value)


def test_a_store_with_a_log_and_a_ledger_from_the_same_offset_on_is_refused(tmp_path: Path) -> None:
    """Its own log is only the beginning of what it holds."""
    root = small_store(COUNT).write(tmp_path / "store")
    assert count_of(rmqstore.open_snapshot(root)) == COUNT
    ledger(root / "dledger-n0")
    with pytest.raises(UnsupportedLayout, match="for the same offsets"):
        rmqstore.open_snapshot(root)
