"""One consume queue: the rules of appending, where it begins and ends, and what a crash may leave of it."""

import errno

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.engine.log.derived.consume_queue import ConsumeQueue
from rmqstore.errors import Corrupt
from rmqstore.files.file_sequence import FileHandles
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY
from tests.crash.disks import FailingDisk, MemoryDisk

FILE_SIZE = 200  # ten entries
DIRECTORY = "/store/consumequeue/T/0"
SIZE = 50
PRE_BLANK = QUEUE_ENTRY.struct.pack(0, PRE_BLANK_SIZE, 0)


def queue_on(disk: FileSystem, load: bool = True) -> ConsumeQueue:
    queue = ConsumeQueue(disk, FileHandles(disk, 8), DIRECTORY, "T", 0, FILE_SIZE)
    if load:
        queue.load()
    return queue


def entries_of(first: int, last: int, spread: int = 100) -> np.ndarray:
    """Entries of queue offsets [first, last): record q is at q * spread, of SIZE bytes."""
    entries = np.zeros(last - first, QUEUE_ENTRY.dtype)
    entries["physical_offset"] = np.arange(first, last) * spread
    entries["size"], entries["tags_code"] = SIZE, np.arange(first, last)
    return entries


def put(queue: ConsumeQueue, first: int, last: int) -> int:
    return queue.append(np.arange(first, last), entries_of(first, last))


def content(disk: MemoryDisk) -> dict[int, bytes]:
    return {int(path.rpartition("/")[2]): data for path, data in disk.image().items() if path.startswith(DIRECTORY)}


def codes(queue: ConsumeQueue, first: int = 0, last: int = 10_000) -> list[int]:
    return queue.read(first, last)["tags_code"].tolist()


@given(st.lists(st.integers(0, 25), max_size=8), st.lists(st.integers(1, 30), max_size=8), st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_slicing_with_repetitions_gives_the_same_files(backs, counts, reopen) -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    done = 0
    for back, count in zip(backs, counts, strict=False):
        first = max(done - back, 0)
        taken = put(queue, first, first + count)
        assert taken == max(first + count - done, 0)
        done += taken
        if reopen:
            queue = queue_on(disk)
        assert (queue.min_offset, queue.max_offset) == (0, done)
        assert queue.max_physical == ((done - 1) * 100 + SIZE if done else -1)
    whole = entries_of(0, done).tobytes()
    files = {
        start: whole[start : start + FILE_SIZE].ljust(FILE_SIZE, b"\0") for start in range(0, len(whole), FILE_SIZE)
    }
    assert content(disk) == files
    assert codes(queue) == list(range(done))


def test_a_run_is_appended_only_where_it_continues_the_queue() -> None:
    queue = queue_on(MemoryDisk())
    data = memoryview(entries_of(0, 12).tobytes())
    assert not queue.append_run(1, data[20:], 150, 1150)
    assert queue.append_run(0, data, 50, 1150)
    assert (queue.max_offset, queue.max_physical) == (12, 1150)
    assert not queue.append_run(0, data, 50, 1150)
    assert not queue.append_run(12, data, 1150, 2000)  # its first record is indexed already
    assert not queue.append_run(13, data, 1350, 2000)
    assert codes(queue) == list(range(12))


def test_a_queue_that_begins_above_0_is_pre_blank_before() -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    assert put(queue, 13, 22) == 9
    blank = PRE_BLANK * 3 + entries_of(13, 20).tobytes()
    assert content(disk) == {200: blank, 400: entries_of(20, 22).tobytes().ljust(FILE_SIZE, b"\0")}
    for each in (queue, queue_on(disk)):
        assert (each.min_offset, each.max_offset, each.max_physical) == (13, 22, 2150)
    assert codes(queue, 13) == list(range(13, 22))
    assert codes(queue, 5) == []


def test_a_gap_is_refused_and_writes_nothing() -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    put(queue, 0, 5)
    before = disk.image()
    for offsets in ([6], [5, 7], [5, 5, 7]):
        entries = np.concatenate([entries_of(each, each + 1) for each in offsets])
        entries["physical_offset"] = np.arange(len(offsets)) * 100 + 1000
        with pytest.raises(Corrupt, match="missing in the log") as error:
            queue.append(np.array(offsets), entries)
        assert (error.value.path, disk.image()) == (DIRECTORY, before)
    assert queue.max_offset == 5


def test_queue_offsets_before_the_end_are_left_out() -> None:
    queue = queue_on(MemoryDisk())
    put(queue, 0, 5)
    late = entries_of(0, 4)
    late["physical_offset"] += 10_000
    assert queue.append(np.array([3, 5, 5, 6]), late) == 2
    assert codes(queue) == [0, 1, 2, 3, 4, 1, 3]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 300])
def test_the_end_is_found_whatever_stands_before_it(count: int) -> None:
    disk = MemoryDisk()
    queue = ConsumeQueue(disk, FileHandles(disk, 8), DIRECTORY, "T", 0, 6000)
    put(queue, 0, count)
    again = ConsumeQueue(disk, FileHandles(disk, 8), DIRECTORY, "T", 0, 6000)
    assert again.load() == []
    assert (again.max_offset, again.max_physical) == (count, (count - 1) * 100 + SIZE if count else -1)


def test_files_without_an_entry_are_no_entries() -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    put(queue, 0, 10)
    disk.put_file(f"{DIRECTORY}/{200:020d}", bytes(FILE_SIZE))
    disk.put_file(f"{DIRECTORY}/{400:020d}", bytes(FILE_SIZE))
    queue = queue_on(disk)
    assert (queue.max_offset, queue.max_physical) == (10, 950)
    queue.correct_min(0)
    put(queue, 10, 12)
    assert codes(queue) == list(range(12))


@pytest.mark.parametrize("first", [0, 3, 17])
def test_a_queue_of_zeros_alone_begins_anew(first: int) -> None:
    disk = MemoryDisk()
    disk.put_file(f"{DIRECTORY}/{0:020d}", bytes(FILE_SIZE))
    queue = queue_on(disk)
    assert (queue.min_offset, queue.max_offset) == (0, 0)
    put(queue, first, 20)
    assert (queue.min_offset, queue.max_offset) == (first, 20)
    assert codes(queue, first) == list(range(first, 20))
    assert codes(queue_on(disk), first) == list(range(first, 20))


def test_a_queue_whose_files_are_gone_knows_no_minimum() -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    put(queue, 5, 25)
    queue.correct_min(1000)
    assert queue.min_offset == 10
    for start in content(disk):
        disk.remove(f"{DIRECTORY}/{start:020d}")
    queue = queue_on(disk)
    assert (queue.min_offset, queue.max_offset, queue.max_physical) == (0, 0, -1)
    put(queue, 0, 3)
    assert codes(queue) == [0, 1, 2]


@pytest.mark.parametrize(
    ("min_physical", "expected"), [(0, 0), (1, 1), (100, 1), (950, 10), (1900, 19), (1901, 20), (2401, 25), (10**9, 25)]
)
def test_the_minimum_follows_the_log(min_physical: int, expected: int) -> None:
    queue = queue_on(MemoryDisk())
    put(queue, 0, 25)
    for now in (min_physical, 0):
        queue.correct_min(now)
        assert (queue.min_offset, queue.max_offset) == (expected, 25)


def test_flush_makes_entries_durable_and_syncs_nothing_twice() -> None:
    disk = MemoryDisk()
    queue = queue_on(disk)
    put(queue, 0, 35)
    queue.flush()
    assert codes(queue_on(disk.crash("lost"))) == list(range(35))
    before = disk.operations
    queue.flush()
    assert disk.operations == before


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, "short"])
def test_a_failing_disk_leaves_no_file_without_entries(error) -> None:
    failed = set()
    for at in range(1, 14):
        disk = MemoryDisk()
        failing = FailingDisk(disk, at, error)
        queue = queue_on(failing)
        for first in (0, 8):
            try:
                put(queue, first, first + 8)
            except OSError:
                assert failing.failed is not None
                failed.add(failing.failed.verb)
                assert all(data.rstrip(b"\0") for data in content(disk).values())
                put(queue, first, first + 8)
        assert codes(queue) == list(range(16))
        assert codes(queue_on(disk)) == list(range(16))
    assert failed >= {"create", "write", "sync_directory"}


def test_file_sizes_must_hold_whole_entries() -> None:
    with pytest.raises(ValueError, match="whole entries"):
        ConsumeQueue(MemoryDisk(), FileHandles(MemoryDisk(), 8), DIRECTORY, "T", 0, 30)
