"""Stores and disks that somebody from outside fooled readers with: each hid messages, or hung, before."""

import errno
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import DataLost, Message, StoreConfig, WrongType
from tests.crash.disks import MemoryDisk
from tests.snapshot.read_disk import ReadDisk

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=8192, queue_file_size=2000, preallocate=False, index_enabled=False)

_QUEUE_OFFSET_AT = 20  # in a record: after its size, magic, CRC, queue id and flag


def put(store: rmqstore.Store, numbers: range) -> None:
    for number in numbers:
        assert store.put(Message("t", b"%d" % number, queue_id=number % 2)).is_stored
    store.flush()


def bodies(root: Path, **options: object) -> list[bytes]:
    return sorted(rmqstore.open_snapshot(root).scan(**options).read_all()["body"].to_pylist(), key=int)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["backup", "Commitlog", "2026-11-22", "a", "commitlog.bak", "old"])
@pytest.mark.parametrize("is_closed", [True, False])
def test_an_older_copy_of_the_log_below_the_root_hides_nothing(tmp_path: Path, name: str, is_closed: bool) -> None:
    store = rmqstore.open_store(tmp_path / "s", CONFIG)
    put(store, range(100))
    shutil.copytree(tmp_path / "s" / "commitlog", tmp_path / "s" / name)
    put(store, range(100, 130))
    wanted = [b"%d" % number for number in range(130)]
    assert bodies(tmp_path / "s") == wanted
    (store.close if is_closed else store.abandon)()
    assert bodies(tmp_path / "s") == wanted
    assert bodies(tmp_path / "s", scan_mode="commitlog") == wanted
    with rmqstore.open_store(tmp_path / "s", CONFIG) as again:
        assert again.bounds("t", 0) == (0, 65)


@pytest.mark.parametrize("bit", [20, 40, 62])
def test_a_record_that_lies_about_its_number_does_not_have_a_scan_count_up_to_it(tmp_path: Path, bit: int) -> None:
    store = rmqstore.open_store(tmp_path / "s", CONFIG)
    put(store, range(200))
    store.abandon()
    shutil.rmtree(tmp_path / "s" / "consumequeue")
    shutil.rmtree(tmp_path / "s" / "config", ignore_errors=True)
    logs = sorted((tmp_path / "s" / "commitlog").iterdir())
    assert len(logs) > 2
    logs[0].write_bytes(bytes(8192))
    with logs[-1].open("r+b") as log:
        log.seek(_QUEUE_OFFSET_AT)
        number = struct.unpack(">q", log.read(8))[0]
        log.seek(_QUEUE_OFFSET_AT)
        log.write(struct.pack(">q", number ^ (1 << bit)))
    found = bodies(tmp_path / "s", on_corrupt_record="skip", fail_on_data_loss=False)
    assert len(found) <= 200


class FailingLog(ReadDisk):
    """A disk on which one log file can be listed and not be opened."""

    code = 0

    def open(self, path: str) -> object:
        if self.code and path.endswith("commitlog/00000000000000008192"):
            raise OSError(self.code, os.strerror(self.code), path)
        return super().open(path)


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize("mode", ["queue", "commitlog"])
def test_a_disk_that_fails_is_no_loss_that_a_scan_passes_over(code: int, mode: str) -> None:
    memory = MemoryDisk()
    with rmqstore.open_store("/s", CONFIG, filesystem=memory, workers=False) as store:
        for number in range(300):
            store.put(Message("t", b"%d" % number, queue_id=number % 2))
    disk = FailingLog(memory)
    rows = rmqstore.open_snapshot("/s", disk=disk).scan(["t"], scan_mode=mode, fail_on_data_loss=False)  # type: ignore[arg-type]
    disk.code = code
    with pytest.raises(DataLost, match=r"the disk fails: .*check that disk"):
        rows.read_all()


def test_a_killed_store_whose_queue_directory_is_a_link_opens(tmp_path: Path) -> None:
    store = rmqstore.open_store(tmp_path / "s", CONFIG)
    put(store, range(30))
    store.abandon()
    queue = tmp_path / "s" / "consumequeue" / "t" / "1"
    shutil.move(queue, tmp_path / "elsewhere")
    queue.symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        with rmqstore.open_store(tmp_path / "s", CONFIG) as again:
            assert again.bounds("t", 1) == (0, 15)
    assert len(bodies(tmp_path / "s")) == 30


@pytest.mark.parametrize("disk", [None, 5, "/", object()])
def test_what_is_no_disk_is_refused(tmp_path: Path, disk: object) -> None:
    with pytest.raises(WrongType, match="disk="):
        rmqstore.open_snapshot(tmp_path, disk=disk)  # type: ignore[arg-type]


def _edited(root: Path) -> int:
    """A table that somebody wrote into."""
    table = root / "config" / "consumerOffset.json"
    table.write_text(re.sub(r"([01]):\d+", r"\1:1000", table.read_text()))
    return 15


def _restored(root: Path) -> int:
    """A backup, with the newer tables of the store copied over."""
    shutil.move(root / "config", root.parent / "newer")
    shutil.rmtree(root)
    shutil.copytree(root.parent / "backup", root)
    shutil.rmtree(root / "config")
    shutil.move(root.parent / "newer", root / "config")
    return 5


def _without_queue(root: Path) -> int:
    """All messages expired, and RocketMQ takes empty queues away: new ones are numbered from 0."""
    for name in ("commitlog", "consumequeue", "checkpoint"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return 0


def _cut(root: Path) -> int:
    """A log that lost its end in a power cut."""
    (log,) = (root / "commitlog").iterdir()
    data = log.read_bytes()
    ends = [place for place in range(len(data)) if data[place : place + 4] == b"\xda\xa3\x20\xa7"]
    log.write_bytes(data[: ends[10] - 4].ljust(len(data), b"\0"))
    (root / "abort").touch()
    return 5


@pytest.mark.parametrize("happens", [_edited, _restored, _without_queue, _cut])
def test_a_group_past_the_end_of_its_queue_gets_all_that_comes_there(
    tmp_path: Path, happens: Callable[[Path], int]
) -> None:
    """Its offset was kept, and messages up to there were passed over for good."""
    root = tmp_path / "s"
    with rmqstore.open_store(root, CONFIG) as store:
        put(store, range(10))
    shutil.copytree(root, tmp_path / "backup")
    with rmqstore.open_store(root, CONFIG) as store:
        put(store, range(10, 30))
        with store.consumer("g", "t") as consumer:
            assert len(consumer.poll(100)) == 30
            consumer.commit()
    end = happens(root)
    store = rmqstore.open_store(root, CONFIG)
    told = [warning for warning in store.warnings if "group g was at offset" in warning]
    assert [
        f"of t/{queue_id}, which ends at {end}: the offset is set to that end" in told[queue_id] for queue_id in (0, 1)
    ] == [True] * 2
    put(store, range(100, 140))
    store.abandon()  # as a kill before the offsets were persisted by themselves
    with rmqstore.open_store(root, CONFIG) as store, store.consumer("g", "t") as consumer:
        assert [warning for warning in store.warnings if "group g" in warning] == []
        assert sorted(int(message.body) for message in consumer.poll(100)) == [*range(100, 140)]


@pytest.mark.parametrize(("offset", "is_told"), [(5, False), (6, True), (2**40, True)])
def test_delivery_that_is_noted_past_the_end_of_its_level_is_told(tmp_path: Path, offset: int, is_told: bool) -> None:
    """A backup's config/ that was copied after its log: what waits there is not delivered, as by a broker."""
    root = tmp_path / "s"
    with rmqstore.open_store(root, CONFIG) as store:
        for number in range(5):
            store.put(Message("t", b"%d" % number, properties={"DELAY": "18"}))
    path = root / "config" / "delayOffset.json"
    path.write_text(f'{{"offsetTable":{{18:{offset}}}}}')
    with rmqstore.open_store(root, CONFIG) as store:
        told = [warning for warning in store.warnings if "level 18 was delivered up to" in warning]
        assert len(told) == is_told
        assert all(str(path) in warning and "its queue ends at 5" in warning for warning in told)
        assert store.delay.pending_count == 0
    with rmqstore.open_store(root, CONFIG) as store:
        assert not store.warnings


def test_a_reader_that_begins_with_such_a_group_gets_them_too(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rmqstore.open_store(root, CONFIG) as store:
        put(store, range(30))
        for queue_id in (0, 1):
            store.offsets.commit("g", "t", queue_id, 15)
    _edited(root)
    following = rmqstore.open_snapshot(root).follow(["t"], start="group:g")
    with rmqstore.open_store(root, CONFIG) as store:
        put(store, range(100, 140))
        found: list[bytes] = []
        while len(found) < 40:
            found += next(following).rows["body"].to_pylist()
    assert sorted(map(int, found)) == [*range(100, 140)]
