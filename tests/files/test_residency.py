"""Favours asked of the system: done where it allows, told where it refuses, harmless either way."""

import ctypes
import errno
import resource

import pytest

from rmqstore.files import residency
from rmqstore.files.filesystem import RealFileSystem
from tests.crash.disks import FailingDisk, MemoryDisk, WatchedDisk

PAGE = 4096


@pytest.fixture
def file(tmp_path):
    return RealFileSystem().create(str(tmp_path / "file"), 8 * PAGE)


def locked_kib() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck"))


@pytest.mark.parametrize(
    ("step_pages", "sync_every", "verbs"),
    [(4, 0, "www"), (4, 4, "wswsws"), (3, 5, "wwswws"), (100, 1, "ws"), (1, 100, "w" * 10 + "s")],
)
def test_warm_up_writes_every_page_and_syncs_as_asked(step_pages, sync_every, verbs) -> None:
    disk = WatchedDisk(MemoryDisk(), keep_trace=True)
    size = 9 * PAGE + 5
    file = disk.create("/file", size)
    assert residency.warm_up(file, size, step_pages, sync_every) is None
    assert "".join(each.verb[0] for each in disk.trace[1:]) == verbs
    assert file.read(0, 2 * size) == bytes(size)


@pytest.mark.parametrize("size", [8 * PAGE, 9 * PAGE])
def test_warm_up_never_overwrites_anything(file, size) -> None:
    file.write(8 * PAGE - 1, b"x")
    assert "not warmed up" in residency.warm_up(file, size, 2)
    assert file.read(0, 99 * PAGE) == bytes(8 * PAGE - 1) + b"x"


def test_warm_up_on_a_failing_disk_is_an_error() -> None:
    disk = FailingDisk(MemoryDisk(), 3, errno.EIO)
    file = disk.create("/file", PAGE)
    with pytest.raises(OSError, match="Input/output"):
        residency.warm_up(file, PAGE, 1, 1)


def test_pages_are_locked_until_the_file_is_closed(file) -> None:
    before = locked_kib()
    assert residency.lock_memory(file) is None
    assert locked_kib() == before + 32
    file.close()
    assert locked_kib() == before


def test_a_refused_lock_is_told_and_harmless(file, monkeypatch) -> None:
    class Refusing:
        def __init__(self, *_, **__) -> None:
            ctypes.set_errno(errno.ENOMEM)

        def mlock(self, address, size) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Refusing)
    assert "Cannot allocate memory" in residency.lock_memory(file)
    file.write(0, b"goes on")


def test_an_empty_or_closed_file_is_refused_not_an_error(file, tmp_path) -> None:
    empty = RealFileSystem().create(str(tmp_path / "empty"), 0)
    file.close()
    for each in (empty, file):
        assert "no mlock" in residency.lock_memory(each)


def test_what_is_not_mapped_is_refused() -> None:
    file = MemoryDisk().create("/file", PAGE)
    assert "not mapped" in residency.lock_memory(file)


def test_no_address_space_to_map_is_told(file) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as sizes:
        used = int(sizes.read().split()[0]) * PAGE
    file.truncate(1 << 34)  # sparse: only its mapping would be large
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    try:
        refused = residency.lock_memory(file)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert "Cannot allocate memory" in refused
