"""A file and its .bak: one of them can be read after any crash, and what is torn never replaces what is sound."""

import errno
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.clock import ManualClock
from rmqstore.core.message import Message
from rmqstore.engine.broker.config_file import ConfigFile, DelayOffsetsFile
from rmqstore.engine.store import open_store
from rmqstore.errors import Corrupt, NotAStore, TooLarge
from rmqstore.files.filesystem import FileSystem
from rmqstore.snapshot import Snapshot, open_snapshot
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut

PATH = "/store/config/topics.json"
BAK = f"{PATH}.bak"
OLDER, OLD, NEW = ({"is": name, "room": "x" * 900} for name in ("older", "old", "new"))
CHOICES = ["lost", "kept", "killed", *range(12)]


def shape(document: Any) -> dict[str, str]:
    if not isinstance(document, dict):
        raise Corrupt("", 0, "no object")
    return document


def config_file(fs: FileSystem) -> ConfigFile[dict[str, str]]:
    return ConfigFile(fs, PATH, shape, json.dumps)


def scene(main: bytes | dict[str, str] | None, bak: bytes | dict[str, str] | None) -> MemoryDisk:
    disk = MemoryDisk()
    for path, content in ((PATH, main), (BAK, bak)):
        if content is not None:
            disk.put_file(path, content if isinstance(content, bytes) else json.dumps(content).encode())
    return disk


def crashed(disk: MemoryDisk, choose: Any) -> MemoryDisk:
    return disk.crash(random.Random(choose) if isinstance(choose, int) else choose)


OLD_TEXT = json.dumps(OLD).encode()
TORN = [OLD_TEXT[:512], OLD_TEXT[:512].ljust(len(OLD_TEXT), b"\0"), bytes(len(OLD_TEXT)), b"[]", b" \n", b"\xff" * 9]


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_file_gives_way_to_its_bak(torn: bytes) -> None:
    content, (warning,) = config_file(scene(torn, OLD)).load()
    assert content == OLD
    assert f"{BAK} is used" in warning


@pytest.mark.parametrize(
    ("name", "look"), [("consumerOffset.json", Snapshot.consumer_offsets), ("topics.json", Snapshot.topics)]
)
def test_a_file_that_is_too_large_to_read_is_never_taken_for_an_empty_one(
    tmp_path: Path, name: str, look: Callable[[Snapshot], object]
) -> None:
    """It may be sound: the next save would write over it."""
    with open_store(tmp_path / "store", workers=False) as store:
        store.put(Message("T", b"body"))
    config = tmp_path / "store" / "config" / name
    config.write_bytes(b'{"offsetTable":{' + b",".join(b'"g%d@T":{0:1}' % n for n in range(800_000)) + b"}}")
    held = config.read_bytes()
    with pytest.raises(
        TooLarge, match=f"{name}: .* members, the most that is read is .*; remove the entries that you do not need"
    ):
        open_store(tmp_path / "store")
    assert config.read_bytes() == held
    snapshot = open_snapshot(tmp_path / "store")
    assert snapshot.scan(["T"]).read_all().num_rows == 1
    with pytest.raises(TooLarge, match=name):
        look(snapshot)


@pytest.mark.parametrize(
    ("main", "bak", "content", "words"),
    [
        (None, None, None, ()),
        (NEW, None, NEW, ()),
        (NEW, TORN[0], NEW, ()),
        (None, OLD, OLD, ("is missing",)),
        (b"", OLD, OLD, ("is empty",)),
        (b"", None, None, ("topics.json is empty", "an empty table")),
        (None, b"{", None, ("topics.json.bak cannot be read", "an empty table")),
        (TORN[0], TORN[1], None, ("topics.json cannot", "topics.json.bak cannot", "an empty table")),
    ],
)
def test_what_can_be_used_is_used(main, bak, content, words) -> None:
    found, warnings = config_file(scene(main, bak)).load()
    assert found == content
    assert len(warnings) == bool(words)
    assert all(word in warnings[0] for word in words)


def test_a_disk_that_cannot_be_read_is_no_empty_table() -> None:
    disk = scene(None, OLD)
    disk.put_file(f"{PATH}/below", b"")  # a directory stands there
    with pytest.raises(NotAStore, match="is a directory"):
        config_file(disk).load()


def test_the_first_file_makes_its_directory_and_a_later_one_a_bak() -> None:
    disk = MemoryDisk()
    file = config_file(disk)
    assert file.load() == (None, [])
    file.save(OLD)
    assert disk.crash("lost").image() == {PATH: OLD_TEXT}
    file.save(NEW)
    assert disk.crash("lost").image() == {PATH: json.dumps(NEW).encode(), BAK: OLD_TEXT}
    assert config_file(disk).load() == (NEW, [])


def test_lone_surrogates_do_not_keep_a_file_from_being_written() -> None:
    disk = MemoryDisk()
    ConfigFile(disk, PATH, shape, lambda content: f'{{"a":"{content}"}}').save("\ud800")
    assert disk.image() == {PATH: b'{"a":"?"}'}


@pytest.mark.parametrize("main", [OLD, None, b"", *TORN])
@pytest.mark.parametrize("loads", [True, False])
def test_after_a_crash_at_any_moment_there_is_the_old_or_the_new(main, loads: bool) -> None:
    """RocketMQ #3401; also from a scene that a broker left, where only the .bak is sound: that one is not given up."""
    before = OLD if main is OLD else OLDER

    def save_twice(fs: FileSystem) -> None:
        file = config_file(fs)
        if loads:
            file.load()
        file.save(NEW)
        file.save(NEW | {"is": "newest"})

    whole = CrashAt(scene(main, OLDER))
    save_twice(whole)
    seen = set()
    for at in range(1, whole.operations + 1):
        disk = scene(main, OLDER)
        with pytest.raises(PowerCut):
            save_twice(CrashAt(disk, at))
        for choose in CHOICES:
            after = crashed(disk, choose)
            found, _ = config_file(after).load()
            assert found in (before, NEW, NEW | {"is": "newest"})
            seen.add(found["is"])
            save_twice(after)  # nothing is left in the way
            assert config_file(after.crash("lost")).load() == (NEW | {"is": "newest"}, [])
    assert seen == {before["is"], "new", "newest"}


@pytest.mark.parametrize("main", [OLD, TORN[0]])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short"])
def test_a_failing_disk_leaves_the_old_or_the_new_and_says_so(main, error) -> None:
    before = OLD if main is OLD else OLDER
    whole = CrashAt(scene(main, OLDER))
    config_file(whole).save(NEW)
    for at in range(1, whole.operations + 1):
        disk = scene(main, OLDER)
        file = config_file(FailingDisk(disk, at, error))
        with pytest.raises(OSError, match=r"Input/output|No space left"):
            file.save(NEW)
        for after in (disk, disk.crash("lost")):
            assert config_file(after).load()[0] in (before, NEW)
        file.save(NEW)  # the disk works again
        assert config_file(disk.crash("lost")).load() == (NEW, [])


def test_a_broken_pair_is_kept_for_someone_to_look_at() -> None:
    disk = scene(TORN[0], TORN[1])
    file = config_file(disk)
    file.load()
    file.save(NEW)
    assert disk.image()[f"{PATH}.unreadable"] == TORN[0]
    assert disk.image()[f"{BAK}.unreadable"] == disk.image()[BAK] == TORN[1]


DELAY_PATH = "/store/config/delayOffset.json"


@pytest.mark.parametrize(
    "version", ["", '\n\t"dataVersion":{\n\t\t"counter":9,\n\t\t"stateVersion":0,\n\t\t"timestamp":5\n\t},']
)
def test_delay_offsets_keep_their_form(version: str) -> None:
    disk = MemoryDisk()
    disk.put_file(DELAY_PATH, f'{{{version}\n\t"offsetTable":{{1:3,2:40\n\t}}\n}}'.encode())
    file = DelayOffsetsFile(disk, "/store", ManualClock(77))
    assert file.load() == ({1: 3, 2: 40}, [])
    file.save({2: 41, 1: 3})
    version = version.replace("9", "10").replace("5", "77")
    assert disk.image()[DELAY_PATH].decode() == f'{{{version}\n\t"offsetTable":{{1:3,2:41\n\t}}\n}}'


def test_delay_offsets_are_written_when_they_changed() -> None:
    disk = MemoryDisk()
    file = DelayOffsetsFile(disk, "/store", ManualClock(77))
    assert file.load() == ({}, [])
    file.save({})
    assert disk.image() == {}
    file.save({1: 5})
    operations = disk.operations
    file.save({1: 5})
    assert disk.operations == operations
    again = DelayOffsetsFile(disk.crash("lost"), "/store", ManualClock(78))
    assert again.load() == ({1: 5}, [])
    assert b'"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":77' in disk.image()[DELAY_PATH]


def test_delay_offsets_that_were_not_written_are_tried_again() -> None:
    disk = MemoryDisk()
    file = DelayOffsetsFile(FailingDisk(disk, 3, errno.EIO), "/store", ManualClock())
    with pytest.raises(OSError, match="Input/output"):
        file.save({1: 5})
    file.save({1: 5})
    assert DelayOffsetsFile(disk.crash("lost"), "/store", ManualClock()).load() == ({1: 5}, [])
