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
    assert [line.partition(" is ignored")[0].rpartition(": ")[2] for line in told()] == [
        "b'torn'",
        "'odd'",
        "'T@h', '0'",
        "'T@i'",
        "'none'",
    ]


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
        f"{tmp_path / 'config' / 'rdb'}: a broker keeps topics, groups and committed offsets in this RocksDB"
    )


def test_torn_entries_of_numbered_tables_are_passed_over(tmp_path: Path, told: Callable[[], list[str]]) -> None:
    (tmp_path / "config").mkdir()
    key = b"\1\0\1\2" + b"\0\1g\1" + b"\0\1T\1" + b"\0\0\0\7"
    entries = {key: b"\0\0\0\0\0\0\0\5", key + b"\0": bytes(8), key[:-2]: bytes(8), key[:5]: bytes(8)}
    entries |= {key[:-1] + b"\6": bytes(7), b"\1\0\3\2\0\1T": b"\1" + TOPIC % b"T", b"\1\0\3\2\0\1U": b"\2x"}
    entries |= {b"\1\0\3\2\0\1V": b"\1{", b"\1\0\3\2\0\1\xff": b"\1" + TOPIC % b"T", b"\1\0\3\1data_version": bytes(24)}
    make_database(tmp_path / "config" / "rdb", entries)
    assert list(config_files.topics(LOCAL, str(tmp_path))) == ["T"]
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("g", "T"): {7: 5}}
    keys = (b"\1\0\3\2\0\1U", b"\1\0\3\2\0\1V", b"\1\0\3\2\0\1\xff", key + b"\0", key[:-2], key[:5], key[:-1] + b"\6")
    assert len(told()) == len(keys)
    for torn in keys:
        assert any(line.startswith(f"{tmp_path / 'config' / 'rdb'}: {torn!r} is ignored: ") for line in told())


def written_at(seconds: int, *places: Path) -> None:
    """Gives files, and all of a database's, this time."""
    for place in places:
        for path in place.iterdir() if place.is_dir() else (place,):
            os.utime(path, (seconds, seconds))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The directory config/ of the store that tmp_path is."""
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


def make_json_topic(config: Path, name: bytes) -> Path:
    """topics.json with one topic."""
    file = config / "topics.json"
    file.write_bytes(b'{"topicConfigTable":{"%s":%s}}' % (name, TOPIC % name))
    return file


def test_a_file_beside_a_later_database_is_passed_over(
    config: Path, tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    """A broker leaves its files where they are when it moves to RocksDB: a topic deleted since is in them."""
    make_database(config / "topics", {b"R": TOPIC % b"R"})
    written_at(1000, make_json_topic(config, b"J"), config / "topics")
    assert list(config_files.topics(LOCAL, str(tmp_path))) == ["R"]
    assert told() == []


def test_a_file_later_than_a_database_is_laid_over_it(
    config: Path, tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    make_database(config / "topics", {b"R": TOPIC % b"R", b"J": (TOPIC % b"J").replace(b'"perm":6', b'"perm":2')})
    file = make_json_topic(config, b"J")
    written_at(1000, config / "topics")
    written_at(2000, file)
    found = config_files.topics(LOCAL, str(tmp_path))
    assert {name: topic.perm for name, topic in found.items()} == {"R": 6, "J": 6}
    assert told() == [f"{file} goes before {config / 'topics'} in RocksDB where they differ, as it is the later one"]


@pytest.mark.parametrize("newer", ["topics", "rdb"])
def test_of_two_databases_the_one_written_later_is_right(config: Path, tmp_path: Path, newer: str) -> None:
    make_database(config / "topics", {b"old": TOPIC % b"old"})
    make_database(config / "rdb", {b"\1\0\3\2\0\3new": b"\1" + TOPIC % b"new"})
    written_at(1000, config / "topics", config / "rdb")
    written_at(2000, config / newer)
    assert list(config_files.topics(LOCAL, str(tmp_path))) == [{"topics": "old", "rdb": "new"}[newer]]


@pytest.mark.parametrize("entries", [{}, {b"\1\0\1\2": bytes(8)}])
def test_a_database_without_rows_hides_no_file(config: Path, tmp_path: Path, entries: dict[bytes, bytes]) -> None:
    make_database(config / "rdb", entries)
    written_at(2000, config / "rdb")
    file = config / "consumerOffset.json"
    file.write_bytes(b'{"offsetTable":{"T@g":{"0":7}}}')
    written_at(1000, file, make_json_topic(config, b"J"))
    assert list(config_files.topics(LOCAL, str(tmp_path))) == ["J"]
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("g", "T"): {0: 7}}


@pytest.mark.parametrize(
    ("latest", "offset"), [("consumerOffsets", 1), ("lmqConsumerOffset.json", 2), ("consumerOffset.json", 3)]
)
def test_of_a_queue_that_more_places_know_the_latest_is_right(
    config: Path, tmp_path: Path, latest: str, offset: int
) -> None:
    make_database(config / "consumerOffsets", {b"T@g": b'{"offsetTable":{0:1,1:11}}'})
    (config / "lmqConsumerOffset.json").write_bytes(b'{"offsetTable":{"T@g":{"0":2,"2":22}}}')
    (config / "consumerOffset.json").write_bytes(b'{"offsetTable":{"T@g":{"0":3,"3":33}}}')
    written_at(1000, *config.iterdir())
    written_at(2000, config / latest)
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("g", "T"): {0: offset, 1: 11, 2: 22, 3: 33}}


def test_a_spare_copy_counts_by_its_own_time(config: Path, tmp_path: Path) -> None:
    make_database(config / "consumerOffsets", {b"T@g": b'{"offsetTable":{0:1}}'})
    (config / "consumerOffset.json").write_bytes(b"{")
    (config / "consumerOffset.json.bak").write_bytes(b'{"offsetTable":{"T@g":{"0":3}}}')
    written_at(1000, config / "consumerOffset.json.bak")
    written_at(2000, config / "consumerOffsets")
    written_at(3000, config / "consumerOffset.json")
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("g", "T"): {0: 1}}


def test_a_reader_does_not_make_a_database_a_later_one(config: Path, tmp_path: Path) -> None:
    make_database(config / "topics", {b"R": TOPIC % b"R"})
    written_at(1000, config / "topics")
    os.utime(config / "topics" / "LOCK", (3000, 3000))
    (config / "topics" / "000999.log").touch()
    file = make_json_topic(config, b"J")
    written_at(2000, file)
    for _ in range(2):
        assert set(config_files.topics(LOCAL, str(tmp_path))) == {"R", "J"}


def test_offsets_committed_by_a_store_go_before_the_broker_s(tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).with_name("rdb-5.5.1.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "answers.json").unlink()
    before = config_files.consumer_offsets(LOCAL, str(tmp_path))
    (group, topic), offsets = next((key, offsets) for key, offsets in before.items() if offsets)
    queue_id = next(iter(offsets))
    with rmqstore.open_store(tmp_path) as store:
        store.offsets.commit(group, topic, queue_id, offsets[queue_id] + 1000)
    after = config_files.consumer_offsets(LOCAL, str(tmp_path))
    assert after == {**before, (group, topic): {**offsets, queue_id: offsets[queue_id] + 1000}}


def test_a_database_that_cannot_be_read_is_told_and_a_file_stands_in(
    tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    (tmp_path / "config").mkdir()
    make_database(tmp_path / "config" / "topics", {b"R": TOPIC % b"R"})
    (tmp_path / "config" / "topics" / "CURRENT").write_text("MANIFEST-999999\n")
    assert config_files.topics(LOCAL, str(tmp_path)) == {}
    (line,) = told()
    assert "RocksDB cannot be read" in line
    assert line.endswith("; where its files are damaged, a backup brings them back, or RocksDB's own `ldb repair`")
    assert "verify" not in line
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
