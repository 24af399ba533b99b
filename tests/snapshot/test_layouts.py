"""Which directories are stores, which are refused and why, and that none is ever written to."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rocksdict

import rmqstore
from rmqstore import NotAStore, Snapshot, StoreConfig, open_store
from rmqstore.directory.queue_files import SIMPLE, queues_of
from rmqstore.errors import StoreError, UnsupportedLayout
from rmqstore.files.reading import LOCAL
from rmqstore.formats.inner_batch import Piece, encode_pieces
from rmqstore.formats.names import format_start
from rmqstore.snapshot.verify import verify
from tests.golden.cases import FOLDERS
from tests.golden.rows import EVERYTHING, fingerprint, make_read_only, make_writable
from tests.snapshot.small_store import SmallStore, small_store

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]
COUNT = 100
BODIES = [b"body %d" % number for number in range(COUNT)]


def bodies(snapshot: Snapshot, **how: Any) -> list[bytes]:
    """All bodies of topic T in the order of writing."""
    table = snapshot.scan(topics=["T"], columns=["body", "physicalOffset"], **how).read_all()
    return table.sort_by("physicalOffset")["body"].to_pylist()


def last_line(error: StoreError) -> str:
    return str(error).splitlines()[-1]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "holds no RocketMQ store; give the directory that holds commitlog/"),
        (["data.txt"], "holds no RocketMQ store"),
        (["store/commitlog/"], "did you mean {root}/store?"),
        (["other/", "number/00000000000000000001/"], "holds no RocketMQ store"),
    ],
)
def test_a_directory_without_a_store_is_said(tmp_path: Path, names: list[str], words: str) -> None:
    for name in names:
        if name.endswith("/"):
            (tmp_path / name).mkdir(parents=True)
        else:
            (tmp_path / name).write_text("text")
    with pytest.raises(NotAStore) as caught:
        rmqstore.open_snapshot(tmp_path)
    assert words.format(root=tmp_path) in last_line(caught.value)
    assert caught.value.path == str(tmp_path)


def test_a_path_that_is_not_there_or_no_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="does not exist here; give the broker's storePathRootDir"):
        rmqstore.open_snapshot(tmp_path / "nowhere")
    (tmp_path / "file").write_text("text")
    with pytest.raises(NotAStore, match="is not a directory; give the broker's storePathRootDir"):
        rmqstore.open_snapshot(tmp_path / "file")
    with pytest.raises(NotAStore, match="a path is no pattern: the directory in which all stores are goes to"):
        rmqstore.open_snapshot(tmp_path / "broker-*")


@pytest.mark.parametrize("room", ["commitlog", "consumequeue", "config"])
def test_an_empty_store_has_no_messages(tmp_path: Path, room: str) -> None:
    (tmp_path / room).mkdir()
    snapshot = rmqstore.open_snapshot(tmp_path)
    assert snapshot.queues().num_rows == 0
    assert snapshot.scan(columns="*").read_all().num_rows == 0


@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
def test_rocksdb_queues_are_read_through_the_commitlog(tmp_path: Path, mode: str) -> None:
    store = small_store(COUNT)
    store.entries.clear()
    root = store.write(tmp_path)
    (root / "consumequeue").mkdir()
    for name, text in (("CURRENT", "MANIFEST-000004\n"), ("MANIFEST-000004", "x"), ("000005.sst", "y")):
        (root / "consumequeue" / name).write_text(text)
    snapshot = rmqstore.open_snapshot(root)
    assert snapshot.stores[0].queue_layout == "RocksDB"
    assert bodies(snapshot, scan_mode=mode) == BODIES
    assert snapshot.queues().select(["topic", "queueId", "minOffset", "maxOffset"]).to_pylist() == [
        {"topic": "T", "queueId": queue, "minOffset": 0, "maxOffset": 50} for queue in (0, 1)
    ]
    assert bodies(snapshot, scan_mode=mode, start=49) == BODIES[-2:]


def batch(store: SmallStore, first: int, count: int) -> None:
    """An inner batch as RocketMQ 5.5.1 stores it where queues are in RocksDB: without INNER_BASE."""
    pieces = [Piece(0, b"%d" % number, b"KEYS\x01k%d\x02" % number) for number in range(first, first + count)]
    told = {"UNIQ_KEY": f"U{first}", "INNER_NUM": str(count)}
    store.add("B", body=encode_pieces(pieces), sys_flag=0xC0, queue_offset=first, properties=told)


@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
def test_inner_batches_of_queues_in_rocksdb(tmp_path: Path, mode: str) -> None:
    store = SmallStore()
    for first, count in ((0, 2), (2, 3), (5, 4)):
        batch(store, first, count)
    store.add("T", sys_flag=0xC0)  # says nothing of a number: one message
    store.write_log(tmp_path / "commitlog")
    rocksdict.Rdict(str(tmp_path / "consumequeue_rocksdb"), rocksdict.Options(raw_mode=True)).close()
    (tmp_path / "abort").touch()
    snapshot = rmqstore.open_snapshot(tmp_path)
    for count in (9, 14):
        table = snapshot.scan(topics=["B"], columns=["queueOffset", "body", "keys"], scan_mode=mode).read_all()
        assert table["queueOffset"].to_pylist() == [*range(count)]
        assert table["body"].to_pylist() == [b"%d" % number for number in range(count)]
        assert table["keys"].to_pylist() == [f"k{number}" for number in range(count)]
        assert snapshot.scan(topics=["T"], scan_mode=mode).read_all().num_rows == 1
        for first, end in ((0, 1), (1, 4), (3, 8), (7, count), (6, 7), (0, count)):
            cut = snapshot.scan(topics=["B"], start=first, end=end, scan_mode=mode, columns=["queueOffset"]).read_all()
            assert cut["queueOffset"].to_pylist() == [*range(first, end)]
        bounds = {row["topic"]: row["maxOffset"] for row in snapshot.queues().to_pylist()}
        assert bounds == {"B": count, "T": 1}
        assert not [found for found in verify(snapshot.stores[0]) if found.severity == "damage"]
        batch(store, 9, 5)
        store.write_log(tmp_path / "commitlog")
        snapshot = snapshot.refresh()
    with pytest.raises(UnsupportedLayout, match="consume queues in RocksDB"):
        open_store(tmp_path)


def to_light_queues(store: SmallStore, body: str, **places: int) -> None:
    """A message that stands in light queues as well, each named with its queue offset there."""
    listed, offsets = (",".join(map(str, texts)) for texts in ((f"%LMQ%{name}" for name in places), places.values()))
    found = {"INNER_MULTI_DISPATCH": listed, "INNER_MULTI_QUEUE_OFFSET": offsets}
    store.add("T", 1, body=body.encode(), properties=found)


@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
def test_light_queues_of_queues_in_rocksdb_are_those_that_the_records_name(tmp_path: Path, mode: str) -> None:
    store = SmallStore()
    to_light_queues(store, "one", a=0)
    store.add("T", 1, body=b"plain")
    to_light_queues(store, "two", a=1, b=7)
    store.add("%LMQ%c", body=b"put there", queue_offset=3)
    to_light_queues(store, "both", c=4)
    store.write_log(tmp_path / "commitlog")
    (tmp_path / "consumequeue_rocksdb").mkdir()
    (tmp_path / "consumequeue_rocksdb" / "CURRENT").write_text("MANIFEST-000004\n")
    (tmp_path / "abort").touch()
    snapshot = rmqstore.open_snapshot(tmp_path)
    stream = (batch.rows for batch in snapshot.follow(["%LMQ%a"], columns=["body"], start="earliest", poll_s=0.001))
    seen = next(batch for batch in stream if batch.num_rows)["body"].to_pylist()
    columns = ["topic", "queueId", "queueOffset", "body"]
    for more in (False, True):
        if more:
            to_light_queues(store, "three", b=8, a=2)
            store.write_log(tmp_path / "commitlog")
            snapshot = snapshot.refresh()
            seen += next(batch for batch in stream if batch.num_rows)["body"].to_pylist()
        table = snapshot.scan(topics=["%LMQ%a", "%LMQ%b", "%LMQ%c"], scan_mode=mode, columns=columns).read_all()
        rows = sorted(tuple(row.values()) for row in table.to_pylist())
        wanted = [("%LMQ%a", 0, 0, b"one"), ("%LMQ%a", 0, 1, b"two"), ("%LMQ%b", 0, 7, b"two")]
        wanted += [("%LMQ%c", 0, 3, b"put there"), ("%LMQ%c", 0, 4, b"both")]
        wanted += [("%LMQ%a", 0, 2, b"three"), ("%LMQ%b", 0, 8, b"three")] if more else []
        assert rows == sorted(wanted)
        assert snapshot.scan(topics=["T"], scan_mode=mode).read_all().num_rows == 4 + more
        assert snapshot.scan(scan_mode=mode).read_all().num_rows == 4 + more  # light queues are asked for by name
        bounds = {row["topic"]: (row["minOffset"], row["maxOffset"]) for row in snapshot.queues().to_pylist()}
        assert bounds == {"T": (0, 4 + more), "%LMQ%a": (0, 2 + more), "%LMQ%b": (7, 8 + more), "%LMQ%c": (3, 5)}
        cut = snapshot.scan(topics=["%LMQ%a"], start=1, end=2, scan_mode=mode, columns=["body"]).read_all()
        assert cut["body"].to_pylist() == [b"two"]
    assert seen == [b"one", b"two", b"three"]


@pytest.mark.parametrize("mode", ["queue", "commitlog"])
@pytest.mark.parametrize("names", [("log-a", "log-b"), ("commitlog", "more"), ("a", "b", "c")])
def test_several_log_directories_inside_the_root(tmp_path: Path, names: tuple[str, ...], mode: str) -> None:
    root = small_store(COUNT).write(tmp_path)
    shutil.rmtree(root / "commitlog")
    small_store(COUNT).write_log(*(root / name for name in names))
    assert bodies(rmqstore.open_snapshot(root), scan_mode=mode) == BODIES


@pytest.mark.parametrize("mode", ["queue", "commitlog"])
def test_log_directories_outside_the_root_belong_to_the_store_before_them(tmp_path: Path, mode: str) -> None:
    root = small_store(COUNT).write(tmp_path / "root")
    shutil.rmtree(root / "commitlog")
    elsewhere = [root / "log-a", tmp_path / "disk2" / "log", tmp_path / "disk3"]
    small_store(COUNT).write_log(*elsewhere)
    snapshot = rmqstore.open_snapshot([root, *elsewhere[1:]])
    assert len(snapshot.stores) == 1
    assert bodies(snapshot, scan_mode=mode) == BODIES


def test_two_stores_each_with_a_log_elsewhere(tmp_path: Path) -> None:
    paths = []
    for broker in ("a", "b"):
        root = small_store(COUNT).write(tmp_path / broker)
        shutil.rmtree(root / "commitlog")
        small_store(COUNT).write_log(tmp_path / f"log-{broker}")
        (root / "brokerIdentity").write_text(f"cluster#broker-{broker}#0")
        paths += [root, tmp_path / f"log-{broker}"]
    snapshot = rmqstore.open_snapshot(paths)
    assert [store.broker_name for store in snapshot.stores] == ["broker-a", "broker-b"]
    assert len(bodies(snapshot)) == 2 * COUNT


def stray_file(log: Path) -> None:
    (log / "00000000000000012288.tmp").write_bytes(b"x" * 4096)
    (log / "notes.txt").write_text("x")
    (log / "123").write_text("x")


def stray_directory(log: Path) -> None:
    (log / format_start(12288)).mkdir()
    (log / "lost+found").mkdir()


def empty_file(log: Path) -> None:
    (log / format_start(12288)).touch()


def file_made_in_advance(log: Path) -> None:
    (log / format_start(12288)).write_bytes(bytes(4096))


def short_last_file(log: Path) -> None:
    """Cut within the unwritten rest, as a copy that stops at the last byte leaves it."""
    file = log / format_start(8192)
    os.truncate(file, len(file.read_bytes().rstrip(b"\0")))


def link_to_nowhere(log: Path) -> None:
    (log / format_start(12288)).symlink_to(log / "gone")


@pytest.mark.parametrize("mode", ["queue", "commitlog"])
@pytest.mark.parametrize(
    "harm", [stray_file, stray_directory, empty_file, file_made_in_advance, short_last_file, link_to_nowhere]
)
def test_other_things_beside_the_log_files_do_no_harm(tmp_path: Path, harm: Callable[[Path], None], mode: str) -> None:
    root = small_store(COUNT).write(tmp_path)
    harm(root / "commitlog")
    assert bodies(rmqstore.open_snapshot(root), scan_mode=mode) == BODIES


@pytest.mark.parametrize("mode", ["queue", "commitlog"])
def test_a_log_cut_in_its_last_record_ends_before_it(tmp_path: Path, mode: str) -> None:
    store = small_store(COUNT)
    root = store.write(tmp_path)
    os.truncate(root / "commitlog" / format_start(8192), store.end - 8192 - 1)
    assert bodies(rmqstore.open_snapshot(root), scan_mode=mode) == BODIES[:-1]


@pytest.mark.parametrize("mode", ["queue", "commitlog"])
def test_other_things_among_the_queues_do_no_harm(tmp_path: Path, mode: str) -> None:
    root = small_store(COUNT).write(tmp_path)
    queues = root / "consumequeue"
    (queues / "notes.txt").write_text("x")
    (queues / "a topic of no queue!").mkdir(parents=True)
    (queues / "T" / "x").mkdir()
    (queues / "T" / "99999999999").mkdir()
    (queues / "T" / "0" / "00000000000000002000.tmp").write_text("x")
    (queues / "T" / "1" / format_start(1000)).touch()
    (queues / "Empty" / "3").mkdir(parents=True)
    snapshot = rmqstore.open_snapshot(root)
    assert bodies(snapshot, scan_mode=mode) == BODIES
    found = zip(*(snapshot.queues()[name].to_pylist() for name in ("topic", "queueId", "maxOffset")), strict=True)
    assert list(found) == [("Empty", 3, 0), ("T", 0, 50), ("T", 1, 50)]


@pytest.mark.parametrize("topic", ["../elsewhere", "T/../../elsewhere", "", ".", "..", "T\0"])
def test_a_topic_that_is_a_path_has_no_queues(tmp_path: Path, topic: str) -> None:
    root = small_store(COUNT).write(tmp_path)
    shutil.copytree(root / "consumequeue" / "T", root / "elsewhere")
    assert queues_of(LOCAL, str(root), "T", SIMPLE)
    assert queues_of(LOCAL, str(root), topic, SIMPLE) == []


def ask_everything(snapshot: Snapshot, topic: str, queue_id: int) -> None:
    snapshot.queues()
    snapshot.topics()
    snapshot.consumer_offsets()
    for mode in ("auto", "queue", "commitlog"):
        snapshot.scan(**(EVERYTHING | {"scan_mode": mode, "on_corrupt_record": "null"})).read_all()
    snapshot.offset_at(topic, queue_id, 0)
    snapshot.query(topic, "key")
    for path in snapshot.stores:
        snapshot.message_at(path.log_start)


@pytest.mark.parametrize("access", ["mmap", "pread", "auto"])
@pytest.mark.parametrize("live", [False, True])
def test_nothing_is_written_and_nothing_is_created(tmp_path: Path, access: str, live: bool) -> None:
    root = small_store(COUNT).write(tmp_path / "store")
    (root / "lock").touch()
    if live:
        (root / "abort").touch()
    make_read_only(root)
    before = fingerprint(tmp_path)
    ask_everything(rmqstore.open_snapshot(root, access=access), "T", 0)
    assert fingerprint(tmp_path) == before
    make_writable(root)


@pytest.mark.parametrize("case", [case for case in ("cqext", "killed-torn", "broker-live-5.3.3") if case in FOLDERS])
def test_nothing_is_written_to_a_golden_store(case: str, store_of: StoreOf) -> None:
    root = store_of(case)
    before = fingerprint(root)
    snapshot = rmqstore.open_snapshot(root)
    first = snapshot.queues().to_pylist()[0]
    ask_everything(snapshot, first["topic"], first["queueId"])
    assert fingerprint(root) == before


def test_a_link_to_a_store_and_a_relative_path_are_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = small_store(COUNT).write(tmp_path / "store")
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    for path in ("store", "./link/", str(tmp_path / "link")):
        assert bodies(rmqstore.open_snapshot(path)) == BODIES


def test_a_store_that_lost_its_head_begins_later(tmp_path: Path) -> None:
    store = SmallStore(1024)
    for number in range(30):
        store.add(body=b"body %d" % number)
    root = store.write(tmp_path)
    (root / "commitlog" / format_start(0)).unlink()
    snapshot = rmqstore.open_snapshot(root)
    (bounds,) = snapshot.queues().to_pylist()
    gone = sum(offset < 1024 for offset in store.offsets)
    assert (bounds["minOffset"], bounds["maxOffset"]) == (gone, 30)
    assert bodies(snapshot) == [b"body %d" % number for number in range(gone, 30)]


@pytest.mark.parametrize("text", [None, "", '{"topicConfigTable":{'], ids=["missing", "empty", "torn"])
def test_the_broker_s_name_is_in_the_older_topics_too(tmp_path: Path, text: str | None) -> None:
    """A broker overwrites topics.json in place, and 4.9 deletes it in between; all else comes from the .bak by then."""
    root = small_store(COUNT).write(tmp_path)
    (root / "config").mkdir()
    told = '{"topicConfigTable":{"rmq_sys_SYNC_BROKER_MEMBER_broker-a":{}}}'
    (root / "config" / "topics.json.bak").write_text(told)
    if text is not None:
        (root / "config" / "topics.json").write_text(text)
    assert rmqstore.open_snapshot(root).stores[0].broker_name == "broker-a"


def test_a_store_that_was_just_opened_is_an_empty_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", StoreConfig(preallocate=False), workers=False) as store:
        assert rmqstore.open_snapshot(tmp_path / "store").queues().num_rows == 0
        store.abandon()
    assert rmqstore.open_snapshot(tmp_path / "store").queues().num_rows == 0


@pytest.mark.parametrize(
    ("case", "changes", "asks_log"),
    [
        ("double-clean-5.5.1", {}, True),
        ("doublewrite-5.5.1", {}, False),
        ("doublewrite-apart-5.5.1", {}, False),
        ("doublewrite-5.5.1", {"config/consumerOffset.json": '{"offsetTable":{"%LMQ%a@g":{0:1}}}'}, True),
        ("doublewrite-apart-5.5.1", {"config/lmqConsumerOffset.json": '{"lmqOffsetTable":{"%LMQ%a@g":1}}'}, True),
        ("double-clean-5.5.1", {"consumequeue/%LMQ%a/0/00000000000000000000": ""}, False),
    ],
)
def test_records_alone_tell_of_light_queues_that_rocksdb_has_alone(
    case: str, changes: dict[str, str], asks_log: bool, store_of: StoreOf, tmp_path: Path
) -> None:
    """The whole log is asked, where a table tells that there are any and no file of one is there."""
    store = tmp_path / "store"
    shutil.copytree(store_of(case), store)
    make_writable(store)
    for name, text in changes.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(text)
    (found,) = rmqstore.open_snapshot(store).stores
    assert (found.light_from <= found.log_start) == asks_log
