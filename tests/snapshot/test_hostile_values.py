"""Numbers, times and names that no sane broker writes: an answer or a typed error, whoever looks."""

import os
import shutil
from pathlib import Path

import pytest

from rmqstore import Corrupt, Message, NotNow, Rejected, StoreConfig, open_snapshot, open_store
from rmqstore.files import reading
from rmqstore.snapshot import reader
from tests.snapshot.small_store import FIRST_MS, SmallStore

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TABLES = ("queues", "topics", "groups", "files", "transactions", "delayed")
BEYOND = 2**63 - 1  # ms: in microseconds 64 bits do not hold it


@pytest.mark.parametrize(
    ("level", "waits_ms"),
    [
        ("9" * 5000, None),
        ("9999999999", None),
        ("2147483647", 7_200_000),
        ("99", 7_200_000),
        ("+2", 5_000),
        ("0" * 5000 + "2", 5_000),
        ("-1", None),
        ("0", None),
        ("\u0663", 10_000),
        ("2 ", None),
        ("2", 5_000),
    ],
)
def test_a_delay_level_of_any_text_is_a_level_or_none(level: str, waits_ms: int | None, tmp_path: Path) -> None:
    store = SmallStore(file_size=64 * 1024)
    store.add(SCHEDULE, 0, dispatched=False, properties={"DELAY": level, "TAGS": "A"})
    store.write(tmp_path)
    (code,) = (
        open_snapshot(tmp_path)
        .scan([SCHEDULE], columns=["tagsCode"], include_system_topics=True)
        .read_all()["tagsCode"]
    )
    assert code.as_py() == (ord("A") if waits_ms is None else FIRST_MS + waits_ms)


@pytest.mark.parametrize(
    ("level", "waits_ms"), [("+3", 10_000), ("9999999999", 0), ("99", 7_200_000), ("\u0663", 10_000)]
)
def test_the_table_of_delayed_messages_takes_levels_as_dispatch_does(level: str, waits_ms: int, tmp_path: Path) -> None:
    """An entry with the hash of TAGS, as a recovery of RocketMQ 4.9 writes it, tells no time; the property does."""
    store = SmallStore(file_size=64 * 1024)
    store.add(SCHEDULE, 2, properties={"DELAY": level, "TAGS": "A", "REAL_QID": "+1"})
    store.write(tmp_path)
    (row,) = open_snapshot(tmp_path).table("delayed").to_pylist()
    assert row["deliverAt"].timestamp() * 1000 == FIRST_MS + waits_ms
    assert row["queueId"] == 1


@pytest.mark.parametrize("out_ms", [str(BEYOND), "9" * 40, "-5", "+9000"])
def test_the_table_of_delayed_messages_takes_any_time_of_a_timer(out_ms: str, tmp_path: Path) -> None:
    store = SmallStore()
    store.add("rmq_sys_wheel_timer", 0, properties={"TIMER_OUT_MS": out_ms, "REAL_TOPIC": "T"})
    store.write(tmp_path)
    rows = open_snapshot(tmp_path).table("delayed").to_pylist()
    assert [row["topic"] for row in rows] == (["T"] if out_ms in ("+9000", str(BEYOND)) else [])


@pytest.mark.parametrize("time_ms", [BEYOND, -(2**63), 253_402_300_800_000, -62_135_596_800_001])
def test_a_time_that_no_calendar_holds_hides_no_message(time_ms: int, tmp_path: Path) -> None:
    store = SmallStore()
    for topic in ("T", SCHEDULE, "RMQ_SYS_TRANS_HALF_TOPIC"):
        store.add(
            topic, 0, store_timestamp=time_ms, born_timestamp=time_ms, properties={"KEYS": "k", "REAL_TOPIC": "T"}
        )
    store.write(tmp_path)
    snapshot = open_snapshot(tmp_path)
    for name in TABLES:
        snapshot.table(name)
    message = snapshot.message_at(0)
    assert (message.body, message.store_timestamp, message.born_timestamp) == (b"hello", None, None)
    assert snapshot.query("T", "k", begin_ms=-(2**63)) == [message]


def test_names_that_are_no_utf_8_are_shown_as_far_as_they_are(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"st\xffore")
    store = SmallStore()
    store.add()
    store.write(root)
    for directory in ("config", "index", "consumequeue", "commitlog"):
        (root / directory / os.fsdecode(b"\xfe")).mkdir(parents=True)
        (root / directory / os.fsdecode(b"\xfd")).write_bytes(b"x")
    snapshot = open_snapshot(root)
    assert f"{tmp_path}/st\ufffdore/config/\ufffd" in snapshot.table("files")["path"].to_pylist()
    assert snapshot.scan(["T"]).read_all().num_rows == 1
    assert snapshot.table("queues").num_rows == 1


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """A store with two full index files."""
    config = StoreConfig(log_file_size=65536, queue_file_size=2000, index_slot_count=5, index_item_count=10)
    root = tmp_path / "store"
    with open_store(root, config, workers=False) as store:
        for number in range(25):
            store.put(Message("orders", b"%d" % number, keys=["k"]))
    return root


class _Vanishing(reading.OpenFile):
    """A disk on which an index file goes while it is looked into: at the `left`th opening of one."""

    left = 0

    def __init__(self, path: str) -> None:
        if "/index/" in path:
            _Vanishing.left -= 1
            if _Vanishing.left == 0:
                Path(path).unlink()
        super().__init__(path)


@pytest.mark.parametrize("left", range(1, 9))
def test_an_index_file_that_is_removed_meanwhile_hides_no_message(
    left: int, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = max((indexed / "index").iterdir())
    whole = [message.body for message in open_snapshot(indexed).query("orders", "k")]
    assert len(whole) == 25
    monkeypatch.setattr(reading, "OpenFile", _Vanishing)
    for look in ("query", "scan"):
        again = shutil.copytree(indexed, indexed.parent / look)
        snapshot = open_snapshot(again)
        _Vanishing.left = left
        if look == "scan":
            rows = snapshot.scan(["orders"], keys=("k",), columns=["body"]).read_all()["body"].to_pylist()
            assert rows == whole
        else:
            found = [message.body for message in snapshot.query("orders", "k")]
            if (again / "index" / newest.name).exists():
                continue  # what an older file knew, nobody walks for: its messages are still in what is left
            assert found == whole


def test_an_index_that_never_holds_still_is_a_typed_error(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(reading.OpenFile):
        def __init__(self, path: str) -> None:
            if "/index/" in path:
                raise FileNotFoundError(2, "No such file or directory", path)
            super().__init__(path)

    monkeypatch.setattr(reading, "OpenFile", Gone)
    with pytest.raises(NotNow, match=r"index/\d{17}: No such file or directory; .* ask again"):
        open_snapshot(indexed).query("orders", "k")


def test_an_answer_by_key_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "QUERY_BYTES_MAX", 1000)
    store = SmallStore(file_size=64 * 1024)
    for _ in range(4):
        store.add(body=b"x" * 400, properties={"KEYS": "k"})
    store.write(tmp_path)
    snapshot = open_snapshot(tmp_path)
    assert len(snapshot.query("T", "k", count_max=2)) == 2
    with pytest.raises(Rejected, match=r"more than 1000 bytes of bodies; .*count_max"):
        snapshot.query("T", "k")


@pytest.mark.parametrize("queue_offset", [-5, -(2**63), 2**63 - 1, 2**62])
def test_a_queue_offset_that_no_file_can_hold_is_damage_to_who_writes(queue_offset: int, tmp_path: Path) -> None:
    store = SmallStore(file_size=64 * 1024)
    store.add(dispatched=False, queue_offset=queue_offset)
    store.write(tmp_path)
    config = StoreConfig(log_file_size=65536, queue_file_size=2000, preallocate=False)
    with pytest.raises(Corrupt, match=f"commitlog @ 0: a record says queue offset {queue_offset}, which no queue"):
        open_store(tmp_path, config, workers=False)
