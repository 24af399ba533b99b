"""What may be written to as a store, and that nothing else is touched, whoever asks."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql.types import BinaryType, StructField, StructType

from rmqstore import StoreConfig, open_store
from rmqstore.cli import main
from rmqstore.clock import ManualClock
from rmqstore.core.message import Message
from rmqstore.directory.store_root import require_replaceable, require_room, require_store
from rmqstore.engine.log.opening import mark_open
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.errors import Corrupt, NotAStore, Rejected, StoreInUse, UnsupportedLayout
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import LocalDisk
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint
from rmqstore.formats.names import format_start
from rmqstore.sink import Batch, append_once, overwrite_once, require_free, settle_store, stage_part
from rmqstore.testing import ManualStore
from spark_source.options.writes import parse_sink_options
from spark_source.sink import open_sink
from tests.crash.disks import MemoryDisk, WatchedDisk
from tests.golden.rows import fingerprint
from tests.snapshot.small_store import small_store
from tests.store.children import in_child

pytestmark = pytest.mark.stores

SIZES = {"log_file_size": 65536, "queue_file_size": 2000, "index_slot_count": 10, "index_item_count": 40}
CONFIG = StoreConfig(preallocate=False, **SIZES)
NO_BATCH = Batch("job", 1, ())


def ours(root: Path, count: int = 5) -> Path:
    """A store of this engine, closed cleanly."""
    with open_store(root, CONFIG, workers=False) as store:
        for number in range(count):
            store.put(Message("T", b"body %d" % number, keys=f"k{number}"))
    return root


def dledger(root: Path) -> Path:
    """A DLedger node's directory: entries begin with a magic of 1, index units are 32 bytes."""
    for room, size in (("data", 16384), ("index", 1280)):
        (root / room).mkdir(parents=True)
        for number in range(3):
            data = bytes([0, 0, 0, 1, 0, 0, 0, 90]) + os.urandom(80)
            (root / room / format_start(number * size)).write_bytes(data.ljust(size, b"\0"))
    (root / "checkpoint").write_text("committedIndex=3\n")
    (root / "currterm").write_text("currTerm=1\n")
    return root


def only(name: str, data: bytes) -> Callable[[Path], Path]:
    """A directory with one file."""

    def make(root: Path) -> Path:
        root.mkdir(parents=True)
        (root / name).write_bytes(data)
        return root

    return make


def user_files(root: Path) -> Path:
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    (root / "src").mkdir()
    return root


def numbered(root: Path) -> Path:
    """Numbered files of some other program."""
    root.mkdir()
    for number in range(3):
        (root / format_start(number * 4096)).write_bytes((b"not yours " * 410)[:4096])
    return root


def kafka(root: Path) -> Path:
    (root / "orders-0").mkdir(parents=True)
    for name in ("00000000000000000000.log", "00000000000000000000.index", "leader-epoch-checkpoint"):
        (root / "orders-0" / name).write_bytes(b"kafka")
    (root / "meta.properties").write_text("version=1")
    return root


def lucene(root: Path) -> Path:
    """Directories of the names that a store has, with other things in them."""
    for path in ("index/segments_1", "config/app.yaml", "commitlog/CommitLog-7-1.log", "sink/kitchen/tap"):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text("x")
    return root


def rocksdb(root: Path) -> Path:
    ours(root)
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-000004\n")
    return root


def dledger_broker(root: Path) -> Path:
    """A broker's root in DLedger mode."""
    ours(root)
    (root / "commitlog" / format_start(0)).unlink()
    (root / "commitlog").rmdir()
    dledger(root / "dledger-n0")
    return root


def mixed_broker(root: Path) -> Path:
    """A broker that had a log of its own before it went to DLedger mode."""
    dledger(ours(root) / "dledger-n0")
    return root


def child(*names: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        return ours(root).joinpath(*names)

    return make


def empty_child(*names: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        path = ours(root).joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        for file in path.iterdir():
            file.unlink()
        return path

    return make


def absent_child(root: Path) -> Path:
    return ours(root) / "commitlog" / "new"


def fifo(root: Path) -> Path:
    os.mkfifo(root)
    return root


def file(root: Path) -> Path:
    root.write_bytes(b"root:x:0:0:\n")
    return root


def dangling(root: Path) -> Path:
    root.symlink_to(root.with_name("nowhere"))
    return root


def parent(root: Path) -> Path:
    ours(root / "store")
    return root


NO_STORES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a file": (file, "is not a directory; give the broker's storePathRootDir"),
    "a FIFO": (fifo, "is not a directory"),
    "a dangling link": (dangling, "is not a directory"),
    "user files": (user_files, "holds no RocketMQ store; give the directory that holds commitlog/"),
    "TensorFlow's checkpoint": (only("checkpoint", b'model_checkpoint_path: "model-1"'), "holds no RocketMQ store"),
    "somebody's abort": (only("abort", b"missing parts: 3"), "holds no RocketMQ store"),
    "somebody's lock": (only("lock", b'{"lockfileVersion": 3}'), "holds no RocketMQ store"),
    "numbered files": (numbered, "holds no RocketMQ store"),
    "Kafka": (kafka, "holds no RocketMQ store"),
    "names that a store has": (lucene, "holds no RocketMQ store"),
    "a store's parent": (parent, "holds no RocketMQ store; did you mean {path}/store?"),
    "commitlog": (child("commitlog"), "holds no RocketMQ store; did you mean {root}?"),
    "config": (child("config"), "did you mean {root}?"),
    "index": (child("index"), "did you mean {root}?"),
    "consumequeue": (child("consumequeue"), "did you mean {root}?"),
    "a topic": (child("consumequeue", "T"), "did you mean {root}?"),
    "a queue": (child("consumequeue", "T", "0"), "did you mean {root}?"),
    "an empty commitlog": (empty_child("commitlog"), "did you mean {root}?"),
    "an empty index": (empty_child("index"), "did you mean {root}?"),
    "an empty queue": (empty_child("consumequeue", "T", "0"), "did you mean {root}?"),
    "DLedger": (dledger, "a DLedger commitlog"),
    "DLedger data": (lambda root: dledger(root / "dledger-n0") / "data", "a DLedger commitlog"),
    "DLedger's base": (lambda root: dledger(root / "dledger-n0").parent, "a DLedger commitlog"),
    "a broker in DLedger mode": (dledger_broker, "a DLedger commitlog"),
    "a broker that went to DLedger": (mixed_broker, "a DLedger commitlog"),
    "RocksDB": (rocksdb, "consume queues in RocksDB"),
}

Use = Callable[[Path], object]


def staged(path: Path) -> object:
    return stage_part(str(path), ("job", 1), (0, 0), CONFIG, 8)


def spark_sink(overwrite: bool) -> Use:
    schema = StructType([StructField("body", BinaryType())])
    return lambda path: open_sink(
        parse_sink_options({"path": str(path), "topic": "T"}, is_stream=False), schema, overwrite
    )


WRITERS: dict[str, Use] = {
    "open_store": lambda path: open_store(path, CONFIG, workers=False),
    "cut": lambda path: open_store(path, StoreConfig(on_middle_damage="cut", **SIZES), workers=False),
    "testing": lambda path: ManualStore(str(path), ManualClock(), CONFIG),
    "append_once": lambda path: append_once(str(path), NO_BATCH, CONFIG),
    "overwrite_once": lambda path: overwrite_once(str(path), NO_BATCH, CONFIG),
    "settle_store": lambda path: settle_store(str(path), CONFIG),
    "stage_part": staged,
    "require_free": lambda path: require_free(str(path), CONFIG),
    "Spark's append": spark_sink(False),
    "Spark's overwrite": spark_sink(True),
}


def whole(directory: Path) -> tuple[list[bytes], dict[Path, bytes]]:
    """Everything below a directory: names, sizes, times, contents of files."""
    listed = subprocess.run(["find", directory, "-printf", "%P %y %s %T@ %l\n"], capture_output=True, check=True).stdout
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted(listed.splitlines()), {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("what", NO_STORES)
def test_what_is_no_store_is_refused_by_all_who_write_and_nothing_is_touched(tmp_path: Path, what: str) -> None:
    make, words = NO_STORES[what]
    path = make(tmp_path / "root")
    before = whole(tmp_path)
    words = words.format(path=path, root=tmp_path / "root")
    for name, use in WRITERS.items():
        with pytest.raises((NotAStore, UnsupportedLayout)) as caught:
            use(path)
        assert words in str(caught.value) or name in ("overwrite_once", "Spark's overwrite"), (name, str(caught.value))
        assert whole(tmp_path) == before, name


@pytest.mark.some(3)
@pytest.mark.parametrize("command", [["recover"], ["recover", "--dry-run"], ["recover", "--cut"], ["clean"],
                                     ["clean", "--dry-run"], ["clean", "--force"]], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("what", [*NO_STORES, "nothing", "an empty directory", "a new disk"])
def test_the_commands_end_with_one_sentence_and_status_1(tmp_path: Path, what: str, command: list[str]) -> None:
    if what in NO_STORES:
        make, words = NO_STORES[what]
        path = make(tmp_path / "root")
    else:
        path, words = tmp_path / "root", "holds no RocketMQ store; give the directory that holds commitlog/"
        if what == "nothing":
            words = "does not exist here; give the broker's storePathRootDir, the directory that holds commitlog/"
        else:
            path.mkdir()
        if what == "a new disk":
            (path / "lost+found").mkdir()
    before = whole(tmp_path)
    result = CliRunner().invoke(main, [*command, str(path)])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    if "DLedger" in what and command[0] == "recover":  # it looks for a member, and says what is wrong with it
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"}
        assert files == {path: held for path, held in before[1].items() if path.name != "lock"}
        return
    assert words.format(path=path, root=tmp_path / "root") in result.stderr
    assert whole(tmp_path) == before


def test_the_sentence_is_that_of_inspect(tmp_path: Path) -> None:
    for make in (file, user_files, parent, lambda root: root, lambda root: root.mkdir() or root):
        path = make(tmp_path / f"root{len(list(tmp_path.iterdir()))}")
        said = [CliRunner().invoke(main, [command, str(path)]) for command in ("inspect", "recover", "clean")]
        assert [each.exit_code for each in said] == [1, 1, 1]
        assert said[0].stderr == said[1].stderr == said[2].stderr


def test_a_store_inside_of_a_store_s_directories_is_not_made(tmp_path: Path) -> None:
    path = absent_child(tmp_path / "root")
    before = whole(tmp_path)
    for use in WRITERS.values():
        with pytest.raises(NotAStore, match=r"did you mean .*/root\?"):
            use(path)
        assert whole(tmp_path) == before


def test_a_directory_that_may_not_be_read_is_said() -> None:
    class Closed(WatchedDisk):
        def before_reading(self, path: str) -> None:
            if path == "/store" and self.inner.exists(path):
                raise PermissionError(13, "Permission denied", path)

        def exists(self, path: str) -> bool:
            return self.inner.exists(path)

        def is_directory(self, path: str) -> bool:
            return self.inner.is_directory(path)

    disk = MemoryDisk()
    disk.make_directories("/store")
    with pytest.raises(NotAStore, match=r"cannot be read \(Permission denied\)"):
        open_store("/store", CONFIG, filesystem=Closed(disk), workers=False)
    assert not disk.entries("/store")


FRESH: dict[str, list[str]] = {
    "nothing": [],
    "a new disk": ["lost+found/"],
    "what desktops leave": [".DS_Store", ".Trash-0/"],
    "the lock alone": ["lock"],
    "config alone": ["config/timercheck"],
    "a config that is being made": ["config/topics.json.tmp"],
    "empty directories": ["commitlog/", "consumequeue/", "index/", "config/"],
    "what a sink staged": ["sink/job-1/batch-7/part-00000-1"],
    "an abandoned start": ["lock", "abort", "config/"],
}


@pytest.mark.parametrize("what", FRESH)
def test_a_store_is_made_where_nothing_is_or_was_begun(tmp_path: Path, what: str) -> None:
    root = tmp_path / "root"
    for name in FRESH[what]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.touch()
    if not FRESH[what]:
        root.mkdir()
    with open_store(root, CONFIG, workers=False) as store:
        assert store.put(Message("T", b"first")).is_stored
        assert not store.warnings


def test_what_stands_beside_a_store_is_told_and_left(tmp_path: Path) -> None:
    root = ours(tmp_path / "root")
    (root / "notes.txt").write_text("mine")
    numbered(root / "numbers")
    before = whole(root / "numbers")
    (root / "checkpoint").write_bytes(encode_checkpoint(Checkpoint()))
    with open_store(root, CONFIG, workers=False) as store:
        assert store.bounds("T", 0) == (0, 5)
        told = [f"{root / name}: no part of a store, left as it is" for name in ("notes.txt", "numbers")]
        assert store.health().warnings == tuple(told)
    assert whole(root / "numbers") == before


def test_a_log_over_several_directories_is_one_store(tmp_path: Path) -> None:
    root = small_store().write(tmp_path / "root")
    for path in (root / "commitlog").iterdir():
        path.unlink()
    (root / "commitlog").rmdir()
    small_store().write_log(root / "log-a", root / "log-b")
    with open_store(root, CONFIG, workers=False) as store:
        assert store.bounds("T", 0) == (0, 30)
        assert not store.warnings


def test_log_paths_elsewhere_hold_commitlog_files_or_nothing(tmp_path: Path) -> None:
    paths = (str(tmp_path / "disk1"), str(tmp_path / "disk2"))
    config = StoreConfig(log_paths=paths, preallocate=False, **SIZES)
    (tmp_path / "disk2" / "lost+found").mkdir(parents=True)
    for _ in range(2):
        with open_store(tmp_path / "root", config, workers=False) as store:
            assert store.put(Message("T", b"one")).is_stored
    user_files(tmp_path / "mine")
    config = StoreConfig(log_paths=(str(tmp_path / "mine"),), **SIZES)
    before = whole(tmp_path)
    with pytest.raises(NotAStore, match="mine: holds other things than commitlog files"):
        open_store(tmp_path / "new", config, workers=False)
    assert whole(tmp_path) == before


def test_a_log_directory_with_two_names_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "link").symlink_to("log")
    log = str(tmp_path / "log")
    for other in (f"{log}/", f"{tmp_path}/./log", f"{tmp_path}/link"):
        for more in ({"log_paths": (log, other)}, {"log_paths": (log,), "read_only_log_paths": (other,)}):
            with pytest.raises(Rejected, match="are one directory; name it once"):
                open_store(tmp_path / "store", StoreConfig(**more))
            assert not (tmp_path / "store").exists()


def test_a_log_directory_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    log, older = str(tmp_path / "log"), str(tmp_path / "older")
    config = StoreConfig(
        log_file_size=4096, message_size_max=1024, preallocate=False, log_paths=(log, older, log),
        read_only_log_paths=(older, older),
    )  # fmt: skip
    for count in (30, 60):
        with open_store(tmp_path / "store", config) as store:
            for _ in range(30):
                store.put(Message("t", bytes(300)))
            store.flush()
            assert store.bounds("t", 0) == (0, count)
    assert not (tmp_path / "older").exists() or not list((tmp_path / "older").iterdir())


def test_a_link_to_a_store_is_the_store(tmp_path: Path) -> None:
    ours(tmp_path / "root")
    (tmp_path / "link").symlink_to(tmp_path / "root")
    with open_store(tmp_path / "link", CONFIG, workers=False) as store:
        assert store.bounds("T", 0) == (0, 5)
    (tmp_path / "real").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "real")
    open_store(tmp_path / "other", CONFIG, workers=False).close()
    assert (tmp_path / "real" / "lock").exists()


def test_numbered_files_of_another_program_are_not_cut_even_in_a_commitlog(tmp_path: Path) -> None:
    numbered(tmp_path / "commitlog")
    before = fingerprint(tmp_path / "commitlog")
    with pytest.raises(Corrupt, match="not one sound record is in the log"):
        open_store(tmp_path, CONFIG, workers=False)
    assert fingerprint(tmp_path / "commitlog") == before


# --- overwriting

KEPT: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file": (lambda root: (root / "notes.txt").write_text("mine"), "'notes.txt' in it is no part of a store"),
    "the first of several": (lambda root: [(root / name).mkdir() for name in ("zoo", "art")], "'art' in it is no part"),
    "a hidden file": (lambda root: (root / ".env").write_text("x"), "'.env' in it is no part of a store"),
    "a new disk": (lambda root: (root / "lost+found").mkdir(), "'lost+found' in it is no part of a store"),
    "a link": (lambda root: (root / "index").rename(root.parent / "index") and (root / "index").symlink_to("../index"),
               "'index' in it leads out of the store"),
    "a dangling link": (lambda root: (root / "gone").symlink_to("nowhere"), "'gone' in it leads out of the store"),
    "numbered files": (lambda root: numbered(root / "numbers"), "'numbers' in it is no part of a store"),
}  # fmt: skip


@pytest.mark.parametrize("what", KEPT)
def test_an_overwrite_deletes_nothing_but_stores_and_names_what_is_in_the_way(tmp_path: Path, what: str) -> None:
    change, words = KEPT[what]
    root = ours(tmp_path / "root")
    change(root)
    before = whole(tmp_path)
    for use in (WRITERS["overwrite_once"], WRITERS["Spark's overwrite"]):
        with pytest.raises(NotAStore) as caught:
            use(root)
        assert words in str(caught.value)
        assert str(root) in str(caught.value)
        assert whole(tmp_path) == before


def test_an_overwrite_of_user_files_names_the_first(tmp_path: Path) -> None:
    root = user_files(tmp_path / "root")
    for use in (WRITERS["overwrite_once"], WRITERS["Spark's overwrite"]):
        with pytest.raises(NotAStore, match=r"would be deleted, and 'notes\.txt' in it is no part of a store"):
            use(root)


def test_a_directory_called_as_a_replaced_store_is_not_deleted_unless_it_is_one(tmp_path: Path) -> None:
    root = ours(tmp_path / "root")
    user_files(tmp_path / "root.rmqstore-old")
    before = whole(tmp_path)
    for writer in ("overwrite_once", "append_once", "settle_store"):
        with pytest.raises(NotAStore, match=r"root\.rmqstore-old.*'notes\.txt' in it is no part of one"):
            WRITERS[writer](root)
        assert whole(tmp_path) == before


@pytest.mark.parametrize("gone", ["nothing", "commitlog", "checkpoint", "lock"])
def test_a_replaced_store_is_removed_also_when_its_removal_had_begun(tmp_path: Path, gone: str) -> None:
    root = ours(tmp_path / "root")
    old = ours(tmp_path / "root.rmqstore-old")
    if gone == "commitlog":
        shutil.rmtree(old / gone)
    elif gone != "nothing":
        (old / gone).unlink()
    settle_store(str(root), CONFIG)
    assert not old.exists()
    assert root.exists()


@pytest.mark.parametrize("size", [1, 39, 4095])
def test_a_checkpoint_that_a_crash_cut_short_is_part_of_a_store(tmp_path: Path, size: int) -> None:
    """An overwrite that was given up left it beside the store, and the next one removes it."""
    root, new = ours(tmp_path / "root"), ours(tmp_path / "root.rmqstore-new")
    whole_file = encode_checkpoint(Checkpoint(physic_timestamp_ms=1_700_000_000_000))
    (new / "checkpoint").write_bytes(whole_file[:size])
    require_replaceable(RealFileSystem(), str(new))
    assert WRITERS["overwrite_once"](root)
    assert not new.exists()


def test_an_overwrite_does_not_replace_a_link(tmp_path: Path) -> None:
    root = ours(tmp_path / "root")
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(NotAStore, match="is a link or a mount point"):
        overwrite_once(str(tmp_path / "link"), NO_BATCH, CONFIG)


@pytest.mark.parametrize("what", ["nothing", "empty", "a store", "a staging area", "the lock alone"])
def test_an_overwrite_replaces_what_is_absent_empty_or_a_store(tmp_path: Path, what: str) -> None:
    root = tmp_path / "root"
    if what == "a store":
        ours(root)
    elif what != "nothing":
        root.mkdir()
    if what == "a staging area":
        staged(root).discard()  # type: ignore[attr-defined]
        (root / "sink" / "other" / "batch-3").mkdir(parents=True)
    if what == "the lock alone":
        (root / "lock").touch()
    assert overwrite_once(str(root), NO_BATCH, CONFIG)
    with open_store(root, CONFIG, workers=False) as store:
        assert store.queues() == []


def test_links_deep_in_a_store_are_removed_and_not_followed(tmp_path: Path) -> None:
    root = ours(tmp_path / "root")
    elsewhere = tmp_path / "elsewhere"
    (root / "consumequeue" / "T").rename(elsewhere)
    (root / "consumequeue" / "T").symlink_to(elsewhere)
    before = fingerprint(elsewhere)
    assert overwrite_once(str(root), NO_BATCH, CONFIG)
    assert fingerprint(elsewhere) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "root"]


def test_what_came_while_the_new_store_was_made_is_not_deleted() -> None:
    class Intruded(WatchedDisk):
        def note(self, verb: str, path: str):
            if path.startswith("/store.rmqstore-new/"):
                self.inner.put_file("/store/mine", b"mine")
            return super().note(verb, path)

    disk = MemoryDisk()
    open_store("/store", CONFIG, filesystem=disk, clock=ManualClock(), workers=False).close()
    with pytest.raises(NotAStore, match="'mine' in it is no part"):
        overwrite_once("/store", NO_BATCH, CONFIG, clock=ManualClock(), filesystem=Intruded(disk))
    assert disk.image()["/store/mine"] == b"mine"


def test_a_store_that_is_not_closed_is_a_store() -> None:
    disk = MemoryDisk()
    disk.make_directories("/store")
    mark_open(disk, "/store")
    assert require_store(disk, "/store") == ()
    assert require_room(disk, "/store") is None


def test_who_looks_at_an_open_store_leaves_it_its_lock(tmp_path: Path) -> None:
    """Closing any descriptor of the file `lock` would drop it."""
    root = str(tmp_path / "store")

    def work(tell) -> None:
        try:
            open_store(root, CONFIG, workers=False)
        except StoreInUse:
            tell("in use")

    with open_store(root, CONFIG, workers=False):
        require_store(RealFileSystem(), root)
        require_room(RealFileSystem(), root)
        plan_recovery(LocalDisk(), root, CONFIG)
        assert in_child(work) == ["in use"]
