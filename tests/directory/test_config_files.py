"""Topics and offsets of brokers that keep them in RocksDB."""

import json
import logging
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import rocksdict

import rmqstore
from rmqstore.directory import config_files
from rmqstore.errors import Rejected
from rmqstore.files.reading import LOCAL
from rmqstore.formats import broker_json
from tests.golden.rows import fingerprint

pytestmark = pytest.mark.stores

TOPIC = b'{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"%s","writeQueueNums":2}'
ROCKSDB = [f"rocksdb-{kind}-5.5.1" for kind in ("clean", "killed", "live")]


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    config_files.tell_once.cache_clear()
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def make_database(path: Path, entries: dict[bytes, bytes]) -> None:
    """A database as RocketMQ 5.3 has one for each table."""
    database = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    for key, value in entries.items():
        database[key] = value
    database.close()


@pytest.mark.parametrize("case", ROCKSDB)
def test_a_broker_s_tables_are_read_and_left_as_they_are(
    case: str, store_of: Callable[[str], Path], told: Callable[[], list[str]]
) -> None:
    before = fingerprint(store_of(case))
    snapshot = rmqstore.open_snapshot(store_of(case))
    topics = {row["topic"]: row for row in snapshot.topics().to_pylist()}
    assert topics["G5583Order"]["order"] is True
    assert dict(topics["G5583BatchCq"]["attributes"])["queue.type"] == "BatchCQ"
    offsets = {
        (row["group"], row["topic"], row["queueId"]): row["offset"] for row in snapshot.consumer_offsets().to_pylist()
    }
    assert [offsets["g_slow_G5583", "G5583Normal", queue_id] for queue_id in range(4)] == [2, 3, 4, 5]
    assert {row["group"] for row in snapshot.table("groups").to_pylist()} == {group for group, *_ in offsets}
    assert fingerprint(store_of(case)) == before
    assert told() == []


def test_without_the_extra_one_line_says_where_they_are_and_what_to_install(
    store_of: Callable[[str], Path], told: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    snapshot = rmqstore.open_snapshot(store_of("rocksdb-clean-5.5.1"))
    for _ in range(2):
        assert snapshot.topics().num_rows == snapshot.consumer_offsets().num_rows == 0
    place = store_of("rocksdb-clean-5.5.1") / "config" / "metadata"
    assert told() == [
        f"{place}: what {name} has otherwise is in RocksDB; to have it read: pip install 'rmqstore[rocksdb]'"
        for name in ("topics.json", "consumerOffset.json")
    ]


def test_a_host_without_room_for_links_still_reads_messages(
    store_of: Callable[[str], Path], told: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(store_of("rocksdb-clean-5.5.1") / "nowhere"))
    snapshot = rmqstore.open_snapshot(store_of("rocksdb-clean-5.5.1"))
    assert snapshot.scan(topics=["G5583Order"]).read_all().num_rows == 30
    assert snapshot.topics().num_rows == 0
    assert any("RocksDB cannot be read" in line for line in told())


def test_databases_of_5_3_stand_in_a_directory_each(tmp_path: Path, told: Callable[[], list[str]]) -> None:
    (tmp_path / "config").mkdir()
    make_database(tmp_path / "config" / "topics", {b"T": TOPIC % b"T", b"odd": b"7", b"torn": b"{"})
    offsets = {
        b"T@g": b'{"offsetTable":{0:12,"1":3}}',
        b"none": b"{}",
        b"T@h": b'{"offsetTable":{"0":"x"}}',
        b"T@i": b"[]",
    }
    make_database(tmp_path / "config" / "consumerOffsets", offsets)
    assert [(topic.topic, topic.write_queue_nums) for topic in config_files.topics(LOCAL, str(tmp_path)).values()] == [
        ("T", 2)
    ]
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("g", "T"): {0: 12, 1: 3}, ("h", "T"): {}}
    assert all("passed over" in line for line in told())
    assert told()


def test_all_tables_stand_in_one_database_by_number(tmp_path: Path, told: Callable[[], list[str]]) -> None:
    """rdb-5.5.1.tar.gz: what a broker with configManagerVersion=v2 left and answered.  It forgets topics that it makes
    on demand, and has its own ones in memory alone."""
    with tarfile.open(Path(__file__).with_name("rdb-5.5.1.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    answers = json.loads((tmp_path / "answers.json").read_bytes())
    topics = config_files.topics(LOCAL, str(tmp_path))
    answered = broker_json.topic_configs(answers["topics"])
    assert len(topics) == 12
    assert topics == {name: answered[name] for name in topics}
    offsets = config_files.consumer_offsets(LOCAL, str(tmp_path))
    assert len(offsets) == 8
    assert offsets == broker_json.consumer_offsets(answers["consumerOffset"])
    assert told() == []


def test_a_store_that_does_not_keep_them_up_says_so(tmp_path: Path) -> None:
    make_database(tmp_path / "config" / "rdb", {})
    with rmqstore.open_store(tmp_path) as store:
        (warning,) = store.warnings
    assert warning.startswith(
        f"{tmp_path / 'config' / 'rdb'}: a broker keeps topics, groups and committed offsets there"
    )


def test_torn_entries_of_numbered_tables_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    key = b"\1\0\1\2" + b"\0\1g\1" + b"\0\1T\1" + b"\0\0\0\7"
    entries = {key: b"\0\0\0\0\0\0\0\5", key + b"\0": bytes(8), key[:-2]: bytes(8), key[:5]: bytes(8)}
    entries |= {key[:-1] + b"\6": bytes(7), b"\1\0\3\2\0\1T": b"\1" + TOPIC % b"T", b"\1\0\3\2\0\1U": b"\2x"}
    entries |= {b"\1\0\3\2\0\1V": b"\1{", b"\1\0\3\2\0\1\xff": b"\1" + TOPIC % b"T", b"\1\0\3\1data_version": bytes(24)}
    make_database(tmp_path / "config" / "rdb", entries)
    assert list(config_files.topics(LOCAL, str(tmp_path))) == ["T"]
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("g", "T"): {7: 5}}


@pytest.mark.parametrize("later", ["database", "file"])
def test_a_file_beside_a_database_is_passed_over(tmp_path: Path, later: str, told: Callable[[], list[str]]) -> None:
    """A broker leaves its files where they are when it moves to RocksDB; copying may make them the newer ones."""
    (tmp_path / "config").mkdir()
    make_database(tmp_path / "config" / "topics", {b"R": TOPIC % b"R"})
    file = tmp_path / "config" / "topics.json"
    file.write_bytes(b'{"topicConfigTable":{"J":%s}}' % (TOPIC % b"J"))
    for path in (file, *(tmp_path / "config" / "topics").iterdir()):
        os.utime(path, (1000, 1000))
    os.utime(file if later == "file" else tmp_path / "config" / "topics" / "CURRENT", (2000, 2000))
    assert list(config_files.topics(LOCAL, str(tmp_path))) == ["R"]
    passed_over = [f"{file} is passed over, as topics/ in RocksDB has the table"]
    assert told() == (passed_over if later == "file" else [])


def test_a_database_that_cannot_be_read_is_told_and_a_file_stands_in(
    tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    (tmp_path / "config").mkdir()
    make_database(tmp_path / "config" / "topics", {b"R": TOPIC % b"R"})
    (tmp_path / "config" / "topics" / "CURRENT").write_text("MANIFEST-999999\n")
    assert config_files.topics(LOCAL, str(tmp_path)) == {}
    (line,) = told()
    assert "RocksDB cannot be read" in line
    (tmp_path / "config" / "topics.json").write_bytes(b'{"topicConfigTable":{"J":%s}}' % (TOPIC % b"J"))
    os.utime(tmp_path / "config" / "topics.json", (1000, 1000))
    assert list(config_files.topics(LOCAL, str(tmp_path))) == ["J"]


def test_what_is_no_part_of_a_database_is_left_alone(
    store_of: Callable[[str], Path], tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    """rocksdict writes its settings into what it opens, and would do so through a link; a FIFO is waited for."""
    store = copied(store_of("rocksdb-clean-5.5.1"), tmp_path)
    place, victim = store / "config" / "metadata", tmp_path / "victim"
    victim.write_text("precious")
    (place / "rocksdict-config.json").unlink(missing_ok=True)
    (place / "rocksdict-config.json").symlink_to(victim)
    os.mkfifo(place / "000999.log")
    assert rmqstore.open_snapshot(store).table("groups").num_rows == 20
    assert victim.read_text() == "precious"
    assert told() == []


def test_a_damaged_block_is_told_and_never_makes_a_table_shorter(
    store_of: Callable[[str], Path], tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    store = store_of("rocksdb-clean-5.5.1")
    whole = config_files.topics(LOCAL, str(store)), config_files.consumer_offsets(LOCAL, str(store))
    damaged = 0
    for number, table in enumerate(sorted((store / "config" / "metadata").glob("*.sst"))):
        other = copied(store, tmp_path / str(number))
        data = bytearray(table.read_bytes())
        data[:64] = bytes(byte ^ 0xFF for byte in data[:64])
        (other / "config" / "metadata" / table.name).write_bytes(data)
        found = config_files.topics(LOCAL, str(other)), config_files.consumer_offsets(LOCAL, str(other))
        for mine, right in zip(found, whole, strict=True):
            assert mine == right or any("RocksDB cannot be read" in line for line in told())
        damaged += found != whole
    assert damaged


def test_a_group_of_tables_that_nobody_could_read_is_not_said_to_be_unknown(
    store_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    snapshot = rmqstore.open_snapshot(store_of("rocksdb-clean-5.5.1"))
    with pytest.raises(Rejected, match=r"its broker keeps offsets in RocksDB.*rmqstore\[rocksdb\]"):
        snapshot.select(start="group:anybody")


def copied(store: Path, to: Path) -> Path:
    """A copy of a store that may be changed."""
    shutil.copytree(store, to / "copy", symlinks=True)
    return to / "copy"
