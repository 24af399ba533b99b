"""Messages of light queues that stand in no queue file yet: the records tell which queues they are in."""

import shutil
from pathlib import Path

import pytest
import rocksdict

from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.engine.store import Store
from rmqstore.errors import UnknownTopic
from rmqstore.snapshot.finding import DAMAGE, NOTE
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.verify import verify
from rmqstore.testing import Probe
from tests.golden.cases import java_rows, load_expected, unpack
from tests.golden.rows import SCAN_MODES, differences, scanned

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=4096, queue_file_size=200, preallocate=False, multi_dispatch=True)
COUNT = 30
LIGHT = [f"%LMQ%{name}" for name in "abc"]


def put(store: Store, low: int, high: int) -> None:
    for number in range(low, high):
        listed = ",".join(name for place, name in enumerate(LIGHT) if not number % (place + 1))
        store.put(Message("T", b"%d" % number, queue_id=number % 2, properties={"INNER_MULTI_DISPATCH": listed}))


def rows(root: Path, mode: str) -> dict[str, list[tuple[int, bytes]]]:
    table = open_snapshot(root).scan(pattern=".*", include_system_topics=True, scan_mode=mode).read_all()
    found: dict[str, list[tuple[int, bytes]]] = {}
    for topic, offset, body in zip(
        *(table[name].to_pylist() for name in ("topic", "queueOffset", "body")), strict=True
    ):
        found.setdefault(topic, []).append((offset, body))
    return {topic: sorted(held) for topic, held in found.items() if topic in LIGHT}


WANTED = {
    name: list(enumerate(b"%d" % number for number in range(0, COUNT, place + 1))) for place, name in enumerate(LIGHT)
}


@pytest.mark.parametrize("mode", SCAN_MODES)
@pytest.mark.parametrize("dispatched", [0, 1, 7, 8, COUNT - 1, COUNT])
def test_they_are_found_in_the_log_of_a_killed_store(tmp_path: Path, dispatched: int, mode: str) -> None:
    store = open_store(tmp_path, CONFIG, workers=False)
    put(store, 0, dispatched)
    Probe(store).catch_up()
    put(store, dispatched, COUNT)
    assert rows(tmp_path, mode) == WANTED  # a store that is open
    store.abandon()
    assert rows(tmp_path, mode) == WANTED
    queues = {(row["topic"], row["maxOffset"]) for row in open_snapshot(tmp_path).queues().to_pylist()}
    assert {(name, len(held)) for name, held in WANTED.items()} <= queues
    with open_store(tmp_path, CONFIG, workers=False):
        pass
    assert rows(tmp_path, mode) == WANTED


@pytest.mark.parametrize("mode", SCAN_MODES)
@pytest.mark.parametrize("lost", range(len(LIGHT)))
@pytest.mark.parametrize("count", [1, COUNT - 5])  # the last one is in all queues
def test_a_kill_may_come_between_the_entries_of_a_record(tmp_path: Path, count: int, lost: int, mode: str) -> None:
    store = open_store(tmp_path, CONFIG, workers=False)
    put(store, 0, count)
    Probe(store).catch_up()
    store.abandon()
    for name in LIGHT[lost:]:
        last = max((tmp_path / "consumequeue" / name / "0").iterdir())
        data = last.read_bytes()
        held = len(data.rstrip(b"\0")) // 20 * 20
        last.write_bytes(data[:held].ljust(len(data), b"\0"))
    before = rows(tmp_path, mode)
    assert {name: len(held) for name, held in before.items()} == {
        name: len(range(0, count, place + 1)) for place, name in enumerate(LIGHT)
    }


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_nothing_is_known_of_what_was_dispatched(tmp_path: Path, is_closed: bool) -> None:
    """A broker lets light topics expire, while their records are still in the log."""
    store = open_store(tmp_path, CONFIG, workers=False)
    put(store, 0, COUNT)
    Probe(store).catch_up()
    store.put(Message("T", b"last"))
    Probe(store).catch_up()
    store.close() if is_closed else store.abandon()
    shutil.rmtree(tmp_path / "consumequeue" / LIGHT[1])
    assert rows(tmp_path, "auto") == {name: WANTED[name] for name in (LIGHT[0], LIGHT[2])}


def test_properties_alone_make_no_light_queue(tmp_path: Path) -> None:
    """Anybody may send both; without light queues the broker has written no entry for them."""
    both = {"INNER_MULTI_DISPATCH": LIGHT[0], "INNER_MULTI_QUEUE_OFFSET": "0"}
    store = open_store(tmp_path, StoreConfig(log_file_size=4096, preallocate=False), workers=False)
    store.put(Message("T", b"first"))
    Probe(store).catch_up()
    store.put(Message("T", b"second", properties=both))
    store.abandon()
    assert rows(tmp_path, "auto") == {}
    with pytest.raises(UnknownTopic):
        open_snapshot(tmp_path).scan(topics=[LIGHT[0]])


@pytest.mark.parametrize("mode", SCAN_MODES)
@pytest.mark.parametrize("keeps_queues", [True, False])
def test_lite_topics_of_a_killed_broker_store(tmp_path: Path, keeps_queues: bool, mode: str) -> None:
    """Of 5.4.0: it was killed with messages of each lite topic that were not dispatched."""
    store = unpack("lite-killed-5.4.0", tmp_path)
    if not keeps_queues:
        shutil.rmtree(store / "consumequeue")
    wanted = java_rows(load_expected("lite-killed-5.4.0")["records"])
    assert differences(scanned(open_snapshot(store), scan_mode=mode), wanted) == []


def test_verify_finds_nothing_wrong_with_them(tmp_path: Path) -> None:
    store = unpack("lite-killed-5.4.0", tmp_path)
    (found,) = open_snapshot(store).stores
    assert [one for one in verify(found) if one.severity == "damage"] == []


@pytest.mark.parametrize("tells", ["an offset", "a lite topic", "nothing"])
@pytest.mark.parametrize("was_killed", [False, True])
def test_those_that_rocksdb_has_alone_are_read_from_the_log(tmp_path: Path, tells: str, was_killed: bool) -> None:
    """RocketMQ's combineCQUseRocksdbForLmq: plain queues are files, and light ones stand in a database between them."""
    with open_store(tmp_path, CONFIG) as store:
        put(store, 0, COUNT)
    for name in LIGHT:
        shutil.rmtree(tmp_path / "consumequeue" / name)
    rocksdict.Rdict(str(tmp_path / "consumequeue"), rocksdict.Options(raw_mode=True)).close()
    (tmp_path / "config").mkdir(exist_ok=True)
    if tells == "an offset":
        (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"%LMQ%a@g":{0:1}}}')
    if tells == "a lite topic":
        lite = '{"topicConfigTable":{"T":{"attributes":{"message.type":"LITE"}}}}'
        (tmp_path / "config" / "topics.json").write_text(lite)
    if was_killed:
        (tmp_path / "abort").touch()
    for mode in SCAN_MODES:
        assert rows(tmp_path, mode) == ({} if tells == "nothing" else WANTED)
    assert [found.reason for found in verify(open_snapshot(tmp_path).stores[0]) if found.severity == "damage"] == []
    if tells != "nothing":
        snapshot = open_snapshot(tmp_path)
        assert [snapshot.scan([name]).read_all().num_rows for name in LIGHT] == [len(WANTED[name]) for name in LIGHT]
        assert dict(zip(*(StreamEnds([tmp_path]).look().queues()[each].to_pylist() for each in ("topic", "maxOffset")),
                        strict=True))["%LMQ%c"] == len(WANTED["%LMQ%c"])  # fmt: skip


@pytest.mark.parametrize("lost", ["first", "last", "a whole file", "all files"])
def test_entries_that_a_closed_store_lost_are_told(tmp_path: Path, lost: str) -> None:
    """A scan says it of entries in a file; `verify` was silent.  A queue without files may have expired."""
    with open_store(tmp_path, CONFIG, workers=False) as store:
        put(store, 0, COUNT)
    (extent,) = open_snapshot(tmp_path).stores
    assert list(verify(extent)) == []
    room = tmp_path / "consumequeue" / LIGHT[0] / "0"
    first, *_, last = sorted(room.iterdir())
    if lost == "all files":
        shutil.rmtree(room.parent)
    elif lost == "a whole file":
        first.unlink()
    else:
        file, place = (first, 0) if lost == "first" else (last, 180)
        content = file.read_bytes()
        file.write_bytes(content[:place] + bytes(40 if lost == "first" else 20) + content[place + 40 :])
    (extent,) = open_snapshot(tmp_path).stores
    found = [(finding.severity, finding.reason) for finding in verify(extent) if LIGHT[0] in finding.path]
    wanted = {
        "a whole file": [(DAMAGE, "the entry is empty, and a message names its place (10 times, first here)")],
        "first": [(DAMAGE, "the entry is empty, and a message names its place (2 times, first here)")],
        "last": [(NOTE, "messages name places after the last entry: entries are lost, or properties of another store")],
    }
    assert found == wanted.get(lost, [])
