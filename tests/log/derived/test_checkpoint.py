"""The checkpoint file: old or new after any crash, and honest about what was not written."""

import errno
import random
from contextlib import suppress
from pathlib import Path

import pytest

from rmqstore.engine.log.derived.checkpoint import CheckpointFile
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.checkpoint import FILE_SIZE, Checkpoint
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut
from tests.store.interrupting import Interrupt

PATH = "/store/checkpoint"


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories("/store")
    return disk


def test_a_missing_file_reads_as_zeros_and_is_made_by_the_first_flush() -> None:
    disk = new_disk()
    file = CheckpointFile(disk, PATH)
    assert file.values == Checkpoint()
    assert not disk.exists(PATH)
    file.update(physic_timestamp_ms=5, logics_timestamp_ms=4)
    file.update(confirm_offset=9)
    file.flush()
    assert len(disk.image()[PATH]) == FILE_SIZE
    assert CheckpointFile(disk.crash("lost"), PATH).values == Checkpoint(5, 4, 0, 0, 9)


def test_nothing_is_written_when_nothing_changed() -> None:
    disk = new_disk()
    file = CheckpointFile(disk, PATH)
    file.update(physic_timestamp_ms=5)
    file.flush()
    before = disk.operations
    file.flush()
    file.update(physic_timestamp_ms=5)
    file.flush()
    assert disk.operations == before


@pytest.mark.parametrize("size", [0, 3, 40, 4095])
def test_a_short_file_becomes_a_whole_one(size: int) -> None:
    disk = new_disk()
    disk.put_file(PATH, b"\0\0\0\0\0\0\0\x07".ljust(size, b"\0")[:size])
    file = CheckpointFile(disk, PATH)
    assert file.values.physic_timestamp_ms == (7 if size >= 8 else 0)
    file.flush()
    assert len(disk.image()[PATH]) == FILE_SIZE


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        CheckpointFile(new_disk(), PATH).update(physics=1)


def test_a_power_cut_anywhere_leaves_the_old_or_the_new_values() -> None:
    seen = set()
    for at in range(1, 12):
        disk = new_disk()
        file = CheckpointFile(disk, PATH)
        file.update(logics_timestamp_ms=1)
        file.flush()
        cut = CrashAt(disk, at)
        file = CheckpointFile(cut, PATH)
        file.update(logics_timestamp_ms=2)
        with suppress(PowerCut):
            file.flush()
        values = CheckpointFile(disk.crash(random.Random(at)), PATH).values
        assert values in (Checkpoint(0, 1), Checkpoint(0, 2))
        seen.add(values.logics_timestamp_ms)
    assert seen == {1, 2}


def test_a_failed_sync_is_never_tried_again() -> None:
    disk = new_disk()
    CheckpointFile(disk, PATH)
    disk.put_file(PATH, bytes(FILE_SIZE))
    failing = FailingDisk(disk, 2, errno.EIO)
    file = CheckpointFile(failing, PATH)
    file.update(logics_timestamp_ms=2)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.flush()
    assert failing.operations == 2


def test_an_interrupt_at_any_line_of_the_first_flush_is_made_good_by_the_next(tmp_path: Path) -> None:
    at, fs = 0, RealFileSystem()
    while True:
        at += 1
        path = str(tmp_path / str(at))
        file = CheckpointFile(fs, path)
        file.update(physic_timestamp_ms=5)
        interrupt = Interrupt(at, is_real=True)
        interrupt.call(file.flush)
        file.flush()
        assert Path(path).stat().st_size == FILE_SIZE, interrupt.place
        assert CheckpointFile(fs, path).values == Checkpoint(5), interrupt.place
        if interrupt.place is None:
            break
    assert at > 20
