"""Stores that lost their end, or all of their log, in a copy that broke off: no message disappears without a word."""

import os
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from rmqstore import Corrupt, Message, Rejected, StoreConfig, TopicConfig, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import read_entries
from rmqstore.testing import Probe

pytestmark = pytest.mark.stores

SMALL = StoreConfig(log_file_size=65536, queue_file_size=2000, message_size_max=4096, preallocate=False)
MODES = pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])


def log_of(root: Path) -> Path:
    return root / "commitlog" / format_start(0)


def count_of(root: Path, mode: str = "auto", topics: tuple[str, ...] = ("t",)) -> int:
    return open_snapshot(root).scan(topics=topics, scan_mode=mode).read_all().num_rows


@pytest.fixture(scope="module", params=[True, False], ids=["both CRCs", "body CRC"])
def bulk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of 300 rows that were stored in one millisecond."""
    root = tmp_path_factory.mktemp("bulk") / "store"
    config = StoreConfig(log_file_size=65536, append_property_crc=request.param, preallocate=False)
    with open_store(root, config, clock=ManualClock(), workers=False) as store:
        rows = pa.table({"topic": ["t"] * 300, "body": [b"body %d" % row for row in range(300)]})
        store.put_columns(rows).raise_for_status()
    return root


@MODES
@pytest.mark.parametrize("how", ["cut", "zeros"])
def test_the_end_of_a_closed_store_is_missed(bulk: Path, tmp_path: Path, how: str, mode: str) -> None:
    root, rng = tmp_path / "store", Random(7)
    shutil.copytree(bulk, root)
    whole = log_of(root).read_bytes()
    end = len(whole.rstrip(b"\0")) - 40  # the last record's own CRC property is another matter
    for place in [1, 20, 100, *(rng.randrange(end) for _ in range(12))]:
        log_of(root).write_bytes(whole[:place] if how == "cut" else whole[:place].ljust(len(whole), b"\0"))
        with pytest.raises(Corrupt):
            count_of(root, mode)


@MODES
@pytest.mark.parametrize("size", [1, 20])
def test_a_killed_store_of_not_one_sound_record_is_not_empty(tmp_path: Path, size: int, mode: str) -> None:
    store = open_store(tmp_path, SMALL, workers=False)
    for number in range(60):
        store.put(Message("t", b"body %d" % number))
    store.flush()
    store.abandon()
    os.truncate(log_of(tmp_path), size)
    with pytest.raises(Corrupt, match="not one sound record"):
        count_of(tmp_path, mode)


@pytest.mark.some(5)
@MODES
@pytest.mark.parametrize("after", [0, 1])
def test_no_bit_of_the_only_batch_of_a_queue_hides_its_messages(tmp_path: Path, after: int, mode: str) -> None:
    config = StoreConfig(log_file_size=65536, append_property_crc=True, preallocate=False)
    with open_store(tmp_path, config, workers=False) as store:
        store.topics.put(TopicConfig("bcq", attributes={"queue.type": "BatchCQ"}))
        for number in range(3):
            store.put(Message("t", b"%d" % number))
        place = Probe(store).log_end
        store.put_batch([Message("bcq", b"one"), Message("bcq", b"two")]).raise_for_status()
        end = Probe(store).log_end
        for _ in range(after):
            store.put(Message("t", b"after"))
    whole = log_of(tmp_path).read_bytes()
    for bit in range(8 * place, 8 * end, 13):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        log_of(tmp_path).write_bytes(data)
        with pytest.raises(Corrupt):
            count_of(tmp_path, mode, ("t", "bcq"))


def test_two_names_of_one_directory_are_refused(bulk: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bulk)
    with pytest.raises(Rejected, match="each message would come twice"):
        open_snapshot({"a": bulk, "b": tmp_path / "link"})


@pytest.mark.parametrize("more", [1, 20, 4096])
@pytest.mark.parametrize("number", [0, -1])
def test_a_queue_file_that_is_too_long_moves_no_entry(tmp_path: Path, number: int, more: int) -> None:
    config = StoreConfig(log_file_size=65536, queue_file_size=60, preallocate=False)
    with open_store(tmp_path, config, workers=False) as store:
        for each in range(19):
            store.put(Message("t", b"%d" % each))
    path = sorted((tmp_path / "consumequeue" / "t" / "0").iterdir())[number]
    path.write_bytes(path.read_bytes() + bytes(more))
    assert count_of(tmp_path) == 19


def test_a_recovery_tells_of_entries_that_lead_nowhere(tmp_path: Path) -> None:
    config = StoreConfig(log_file_size=4096, queue_file_size=2000, message_size_max=1024, preallocate=False)
    store = open_store(tmp_path, config, workers=False)
    for number in range(60):
        store.put(Message("t", b"body %d" % number))
    store.flush()
    store.abandon()
    newest = max((tmp_path / "commitlog").iterdir())
    newest.write_bytes(bytes(newest.stat().st_size))
    with open_store(tmp_path, config, workers=False) as again:
        end = again.bounds("t", 0)[1]
        warnings = [each for each in again.warnings if "they lead nowhere in the log" in each]
    assert 0 < end < 60
    assert f"entries {end} to 60 are dropped" in warnings[0]


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "closed"])
def test_a_first_file_of_zeros_in_front_of_flushed_records_is_refused(tmp_path: Path, is_killed: bool) -> None:
    """All have one time: the flushed one that the checkpoint tells of is behind the zeros, so these were flushed."""
    config = StoreConfig(
        log_file_size=4096, queue_file_size=2000, message_size_max=1024, preallocate=False, flush="SYNC"
    )
    store = open_store(tmp_path, config, clock=ManualClock(), workers=False)
    for number in range(60):
        store.put(Message("t", b"body %d" % number)).raise_for_status()
    store.flush()
    store.abandon() if is_killed else store.close()
    log_of(tmp_path).write_bytes(bytes(4096))
    with pytest.raises(Corrupt, match="the next sound record is at"):
        open_store(tmp_path, config, workers=False)


FILES = StoreConfig(log_file_size=4096, queue_file_size=2000, message_size_max=512, preallocate=False)


def log_files_of(root: Path, is_killed: bool) -> list[Path]:
    """The log files of a store of 100 messages in three files, which nobody has open any more."""
    store = open_store(root, FILES, workers=False)
    for number in range(100):
        store.put(Message("t", b"body %d" % number))
    store.flush()
    store.abandon() if is_killed else store.close()
    return sorted((root / "commitlog").iterdir())


@MODES
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "closed"])
def test_an_empty_first_log_file_is_no_file_that_expired(tmp_path: Path, is_killed: bool, mode: str) -> None:
    first = log_files_of(tmp_path, is_killed)[0]
    os.truncate(first, 0)
    with pytest.raises(Corrupt, match="is empty, and others follow it") as told:
        count_of(tmp_path, mode)
    assert told.value.path == str(first)


@MODES
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "closed"])
def test_a_store_of_which_only_the_file_made_in_advance_is_left_is_not_empty(
    tmp_path: Path, is_killed: bool, mode: str
) -> None:
    files = log_files_of(tmp_path, is_killed)
    for path in files:
        path.unlink()
    (tmp_path / "commitlog" / format_start(4096 * len(files))).write_bytes(bytes(4096))
    with pytest.raises(Corrupt, match="not one sound record"):
        count_of(tmp_path, mode)


@MODES
def test_a_store_whose_messages_have_all_expired_is_empty(tmp_path: Path, mode: str) -> None:
    """RocketMQ keeps the newest file, which is blank where the one before is full to its last record."""
    files = log_files_of(tmp_path, True)
    for path in files:
        path.unlink()
    queue = tmp_path / "consumequeue" / "t" / "0" / format_start(0)
    entries = read_entries(queue.read_bytes())
    kept = int((entries["physical_offset"] + entries["size"] <= 8192).sum())
    assert 0 < kept < 100
    os.truncate(queue, 20 * kept)
    (tmp_path / "commitlog" / format_start(8192)).write_bytes(bytes(4096))
    assert count_of(tmp_path, mode) == 0


def test_what_keeps_a_store_shut_does_not_speak_of_options_of_a_read(tmp_path: Path) -> None:
    for path in log_files_of(tmp_path, False)[:1]:
        os.truncate(path, 0)
    with pytest.raises(Corrupt) as told:
        open_store(tmp_path, FILES, workers=False)
    assert "on_corrupt_record" not in str(told.value)
    assert "`rmqstore verify` lists all damage" in str(told.value)


def test_a_log_file_of_one_byte_is_not_called_absent(tmp_path: Path) -> None:
    first, *others = log_files_of(tmp_path, True)
    os.truncate(first, 1)
    for path in others:
        path.unlink()
    with pytest.raises(Corrupt, match="no commitlog file has anything in it"):
        open_store(tmp_path, FILES, workers=False)
