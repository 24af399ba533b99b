"""A small file is its old content or its new one, whatever happens in between."""

import errno
import os
import random

import pytest

from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.replace import replace_file, replace_output
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut

PATH = "/store/config/topics.json"
OLDER, OLD, NEW = b"older", b"the old content " * 100, b"the new content " * 300


def scene() -> MemoryDisk:
    disk = MemoryDisk()
    disk.put_file(PATH, OLD)
    disk.put_file(f"{PATH}.bak", OLDER)
    return disk


def places(backup: bool) -> range:
    disk = CrashAt(scene())
    replace_file(disk, PATH, NEW, backup=backup)
    return range(1, disk.operations + 1)


@pytest.mark.parametrize("backup", [False, True])
def test_a_replaced_file_is_durable(backup) -> None:
    disk = scene()
    replace_file(disk, PATH, NEW, backup=backup)
    assert disk.crash("lost").image() == {PATH: NEW, f"{PATH}.bak": OLD if backup else OLDER}


@pytest.mark.parametrize("choose", ["lost", "kept", "killed", *range(12)])
@pytest.mark.parametrize("backup", [False, True])
def test_a_crash_leaves_the_old_or_the_new(backup, choose) -> None:
    """RocketMQ #3401: cut at each step."""
    for at in places(backup):
        disk = scene()
        with pytest.raises(PowerCut):
            replace_file(CrashAt(disk, at), PATH, NEW, backup=backup)
        after = disk.crash(random.Random(choose) if isinstance(choose, int) else choose)
        assert after.image()[PATH] in (OLD, NEW)
        assert after.image()[f"{PATH}.bak"] in (OLDER, OLD)
        replace_file(after, PATH, NEW, backup=backup)  # what was left lying about is in nobody's way
        assert after.crash("lost").image()[PATH] == NEW


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short"])
@pytest.mark.parametrize("backup", [False, True])
def test_a_failure_leaves_the_old_or_the_new(backup, error) -> None:
    for at in places(backup):
        disk = scene()
        with pytest.raises(OSError, match=r"Input/output|No space left"):
            replace_file(FailingDisk(disk, at, error), PATH, NEW, backup=backup)
        for image in (disk.image(), disk.crash("lost").image()):
            assert image[PATH] in (OLD, NEW)
        assert f"{PATH}.tmp" not in disk.image()


def test_an_empty_file_does_not_replace_its_backup() -> None:
    disk = scene()
    disk.put_file(PATH, b"")
    replace_file(disk, PATH, NEW, backup=True)
    assert disk.image() == {PATH: NEW, f"{PATH}.bak": OLDER}


def test_a_first_file_is_made_on_a_real_disk(tmp_path) -> None:
    path = str(tmp_path / "file")
    for content in (b"one", b"two"):
        replace_file(RealFileSystem(), path, content, backup=True)
    assert sorted(os.listdir(tmp_path)) == ["file", "file.bak"]
    assert ((tmp_path / "file").read_bytes(), (tmp_path / "file.bak").read_bytes()) == (b"two", b"one")


def test_a_file_for_a_user_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch) -> None:
    steps, sync, rename = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append(os.fstat(descriptor).st_size) or sync(descriptor))
    monkeypatch.setattr(os, "replace", lambda old, new: steps.append(new) or rename(old, new))
    replace_output(f"{tmp_path}/report.html", NEW)
    assert steps == [len(NEW), f"{tmp_path}/report.html"]
    assert (tmp_path / "report.html").read_bytes() == NEW
