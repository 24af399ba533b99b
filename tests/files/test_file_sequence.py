"""Files as one address space: found, read across, added, cut and retired, and none of it undone by a crash."""

import errno
import os
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import Corrupt
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import RealFileSystem
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut, WatchedDisk

SIZE = 1024
ROOT = "/store/commitlog"


def name(start: int) -> str:
    return f"{ROOT}/{start:020d}"


def sequence(disk, open_max=8, **options) -> FileSequence:
    return FileSequence(disk, FileHandles(disk, open_max), [ROOT], SIZE, **options)


def loaded(disk, **options) -> FileSequence:
    files = sequence(disk, **options)
    files.load()
    return files


def with_files(*starts: int, disk=None) -> FileSequence:
    """A sequence of durable files, each full of its own number."""
    disk = disk or MemoryDisk()
    for number, start in enumerate(starts):
        disk.put_file(name(start), bytes([number + 1]) * SIZE)
    return loaded(disk)


# --- finding and reading ---


def test_an_empty_sequence_holds_nothing() -> None:
    files = loaded(MemoryDisk())
    assert (files.starts, files.start, files.end, files.holds(0), files.read(0, 10)) == ([], 0, 0, False, b"")
    for ask in (files.path_of, files.file_of):
        with pytest.raises(ValueError, match="no file holds 0"):
            ask(0)


def test_reading_crosses_files_and_stops_at_the_end() -> None:
    files = with_files(2048, 3072, 4096)
    assert files.read(3071, 1026) == b"\1" + b"\2" * 1024 + b"\3"
    assert files.read(5119, 99) == b"\3"
    assert files.read(5120, 1) == files.read(2047, 5) == files.read(3000, 0) == b""
    assert (files.start, files.end) == (2048, 5120)


def test_reading_stops_at_a_gap() -> None:
    """RocketMQ #2140: a missing file in the middle is told at load, and both sides stay readable."""
    disk = MemoryDisk()
    for start in (0, 2048):
        disk.put_file(name(start), b"x" * SIZE)
    files = sequence(disk)
    assert files.load() == [f"{name(2048)}: no file holds [1024, 2048)"]
    assert (len(files.read(0, 9999)), len(files.read(1024, 9999)), len(files.read(2048, 9999))) == (1024, 0, 1024)
    assert (files.start, files.end, files.holds(1500)) == (0, 3072, False)


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(-10, 33 * SIZE))
def test_finding_agrees_with_looking_at_each(numbers: set[int], offset: int) -> None:
    files = sequence(MemoryDisk())
    files.starts = sorted(number * SIZE for number in numbers)
    holding = [start for start in files.starts if start <= offset < start + SIZE]
    assert files.holds(offset) == bool(holding)
    if holding:
        assert files.path_of(offset) == name(holding[0])


def test_a_file_cut_by_somebody_else_reads_short() -> None:
    files = with_files(0, 1024)
    files.file_of(0).truncate(100)
    assert files.read(50, 2000) == b"\1" * 50


# --- loading ---


def test_foreign_names_are_told_and_left() -> None:
    """RocketMQ #3257: foreign files and directories do not keep the store from opening."""
    disk = MemoryDisk()
    disk.put_file(name(0), bytes(SIZE))
    for odd in ("notes.txt", "0", "9223372036854775807".zfill(20), "00000000000000001024.tmp"):
        disk.put_file(f"{ROOT}/{odd}", b"abc")
    disk.make_directories(name(1024))
    before = disk.image()
    files = sequence(disk)
    assert len(files.load()) == 5
    assert files.starts == [0]
    assert disk.image() == before


@pytest.mark.parametrize("size", [0, 1, 1023])
def test_the_file_that_was_being_made_is_removed(size) -> None:
    """RocketMQ #6904: killed between creating a file and giving it its size."""
    disk = MemoryDisk()
    disk.put_file(name(0), b"x" * SIZE)
    disk.put_file(name(1024), bytes(size))
    files = sequence(disk)
    assert len(files.load(repair=False)) == 1
    assert (files.starts, disk.exists(name(1024))) == ([0], True)
    assert len(files.load()) == 1
    assert list(disk.crash("lost").image()) == [name(0)]
    files.add(1024)


def test_an_all_zero_last_file_is_a_file() -> None:
    disk = MemoryDisk()
    disk.put_file(name(0), bytes(SIZE))
    assert loaded(disk).starts == [0]


@pytest.mark.parametrize(
    ("sizes", "path"),
    [
        ({0: 1025}, name(0)),
        ({0: 2048}, name(0)),
        ({0: 0, 1024: 1024}, name(0)),
        ({0: 10, 1024: 1024}, name(0)),
        ({0: 1024, 1024: 500}, name(1024)),
        ({0: 500, 1024: 0}, name(0)),
        ({0: 1024, 1000: 1024}, name(1000)),
    ],
)
def test_lengths_and_places_that_no_writer_leaves_are_corrupt(sizes, path) -> None:
    disk = MemoryDisk()
    for start, size in sizes.items():
        disk.put_file(name(start), b"x" * size)
    before = disk.image()
    with pytest.raises(Corrupt) as caught:
        loaded(disk)
    assert caught.value.path == path
    assert disk.image() == before


def test_a_file_that_is_there_twice_is_corrupt() -> None:
    disk = MemoryDisk()
    for directory in ("/a", "/b"):
        disk.put_file(f"{directory}/{0:020d}", b"x" * SIZE)
    files = FileSequence(disk, FileHandles(disk, 4), ["/a", "/b"], SIZE)
    with pytest.raises(Corrupt, match="still reaches"):
        files.load()


# --- several directories ---


def test_several_directories_are_one_sequence() -> None:
    disk = MemoryDisk()
    handles = FileHandles(disk, 4)
    directories = ["/a", "/b", "/c"]
    files = FileSequence(disk, handles, directories, SIZE, pick=lambda k: directories[k % 2])
    for number in range(4):
        files.add(number * SIZE)
        files.write(number * SIZE, bytes([number + 1]) * SIZE)
    files.sync(0, files.end)
    after = disk.crash("lost")
    assert sorted(after.image()) == [f"/a/{0:020d}", f"/a/{2048:020d}", f"/b/{1024:020d}", f"/b/{3072:020d}"]
    again = FileSequence(after, FileHandles(after, 4), directories, SIZE)
    assert again.load() == []
    assert again.read(0, 9999) == b"".join(bytes([number + 1]) * SIZE for number in range(4))
    again.cut(1500)
    assert again.remove_first(1) == [f"/a/{0:020d}"]
    assert sorted(after.crash("lost").image()) == [f"/b/{1024:020d}"]


# --- writing and adding ---


def test_writing_stays_within_one_file() -> None:
    files = with_files(0, 1024)
    files.write(1020, b"abcd")
    files.write(1024, b"efgh")
    files.write(1000, b"ijkl")
    assert files.read(1000, 28) == b"ijkl" + b"\1" * 16 + b"abcdefgh"
    for offset, data in ((1021, b"abcd"), (2048, b"x"), (0, bytes(1025))):
        with pytest.raises(ValueError, match=r"no file holds|reach beyond"):
            files.write(offset, data)
    assert files.file_of(0).size() == SIZE


def test_an_added_file_is_durable_and_zero() -> None:
    disk = MemoryDisk()
    files = loaded(disk)
    files.add(5 * SIZE)
    files.add(6 * SIZE)
    assert disk.crash("lost").image() == {name(5 * SIZE): bytes(SIZE), name(6 * SIZE): bytes(SIZE)}


@pytest.mark.parametrize("start", [0, 1024, 2047, 2049, 1 << 40 | 1])
def test_a_file_is_added_behind_the_others_only(start) -> None:
    files = with_files(0, 1024)
    with pytest.raises(ValueError, match="may start"):
        files.add(start)
    files.add(1 << 40)


def test_a_ready_made_file_is_used() -> None:
    disk = MemoryDisk()
    disk.make_directories(ROOT)
    made = {}

    def ready(path, size):
        made[path] = disk.create(path, size)
        return made[path]

    files = loaded(disk)
    files.ready = ready
    assert files.add(0) is made[files.path_for(0)]
    assert name(0) in disk.crash("lost").image()
    files.ready = lambda path, size: None
    files.add(1024)
    assert files.starts == [0, 1024]


@pytest.mark.parametrize("verb", ["make_directories", "create", "sync_directory"])
def test_a_file_that_cannot_be_added_leaves_nothing(verb) -> None:
    trial = WatchedDisk(MemoryDisk(), keep_trace=True)
    loaded(trial).add(0)
    at = next(each.number for each in trial.trace if each.verb == verb)
    disk = FailingDisk(MemoryDisk(), at, errno.ENOSPC)
    files = loaded(disk)
    with pytest.raises(OSError, match="No space left"):
        files.add(0)
    assert (files.starts, disk.entries(ROOT)) == ([], [])
    files.add(0)
    assert files.starts == [0]


def test_sync_covers_every_file_that_overlaps() -> None:
    disk = MemoryDisk()
    files = with_files(0, 1024, 2048, 3072, disk=disk)
    for start in files.starts:
        files.write(start + 10, b"new")
    files.sync(1500, 2049)
    after = disk.crash("lost").image()
    assert [after[name(start)][10:13] == b"new" for start in (0, 1024, 2048, 3072)] == [False, True, True, False]
    files.sync(1024, 1024)
    files.sync(9999, 99999)


def test_what_was_written_stays_open_until_it_is_synced() -> None:
    disk = MemoryDisk()
    files = sequence(disk, open_max=1, keep_open=True)
    for number in range(5):
        files.add(number * SIZE)
        files.write(number * SIZE, b"x")
    assert disk.open_count == 5
    files.sync(0, files.end)
    assert disk.open_count == 1
    files.write(0, b"y")
    files.cut(0)
    assert disk.open_count == 0


# --- cutting ---


def test_a_cut_ends_the_sequence_for_good() -> None:
    disk = MemoryDisk()
    files = with_files(0, 1024, 2048, 3072, disk=disk)
    files.cut(1030)
    expected = {name(0): b"\1" * SIZE, name(1024): (b"\2" * 6).ljust(SIZE, b"\0")}
    assert disk.image() == disk.crash("lost").image() == expected
    assert (files.end, files.read(1024, 99)) == (2048, (b"\2" * 6).ljust(99, b"\0"))
    files.add(2048)
    assert files.read(2048, 10) == bytes(10)


@pytest.mark.parametrize(("end", "starts"), [(0, []), (1024, [0]), (2048, [0, 1024]), (9999, [0, 1024])])
def test_a_cut_between_files_removes_whole_files(end, starts) -> None:
    disk = MemoryDisk()
    files = with_files(0, 1024, disk=disk)
    files.cut(end)
    assert files.starts == starts
    assert disk.crash("lost").image() == {name(start): bytes([start // SIZE + 1]) * SIZE for start in starts}


def test_zeros_of_an_interrupted_cut_are_made_durable() -> None:
    disk = MemoryDisk()
    files = with_files(0, disk=disk)
    files.write(100, bytes(SIZE - 100))  # zeros that a killed process wrote and did not sync
    loaded(disk).cut(100)
    assert disk.crash("lost").image() == {name(0): b"\1" * 100 + bytes(SIZE - 100)}


def test_a_cut_writes_only_where_something_stands() -> None:
    disk = WatchedDisk(MemoryDisk(), keep_trace=True)
    disk.inner.put_file(name(0), b"x" * 10 + bytes(SIZE - 10))
    loaded(disk).cut(10)
    assert [each.verb for each in disk.trace] == ["sync"]


@pytest.mark.parametrize("end", [0, 700, 1024, 2500])
def test_a_cut_that_is_interrupted_anywhere_is_completed(end) -> None:
    """RocketMQ #10666: what was cut cannot come back, whatever the disk lost, and no gap appears on the way."""
    contents = {start: bytes([start // SIZE + 1]) * SIZE for start in range(0, 4096, 1024)}

    def fresh() -> MemoryDisk:
        disk = MemoryDisk()
        for start, content in contents.items():
            disk.put_file(name(start), content)
        return disk

    whole = fresh()
    counting = CrashAt(whole)
    loaded(counting).cut(end)
    for at in range(1, counting.operations + 1):
        for seed in range(8):
            disk = CrashAt(fresh(), at)
            files = loaded(disk)
            with pytest.raises(PowerCut):
                files.cut(end)
            after = disk.inner.crash(random.Random(seed))
            again = sequence(after)
            assert again.load() == []
            again.cut(end)
            assert after.crash("lost").image() == whole.image()


# --- retiring ---


def test_the_oldest_files_are_retired_and_readers_go_on() -> None:
    disk = MemoryDisk()
    files = with_files(0, 1024, 2048, disk=disk)
    reader = files.file_of(0)
    assert files.remove_first(2) == [name(0), name(1024)]
    assert (files.start, files.read(0, 10), reader.read(0, 3)) == (2048, b"", b"\1\1\1")
    assert list(disk.crash("lost").image()) == [name(2048)]
    assert files.remove_first(0) == []


def test_a_file_that_cannot_be_removed_stays() -> None:
    disk = FailingDisk(MemoryDisk(), 2, errno.EIO)
    for start in (0, 1024, 2048):
        disk.inner.put_file(name(start), b"x" * SIZE)
    files = loaded(disk)
    with pytest.raises(OSError, match="Input/output"):
        files.remove_first(3)
    assert files.starts == [1024, 2048]
    assert len(files.read(1024, 9999)) == 2048


def test_a_file_retired_while_it_is_looked_up_reads_as_gone() -> None:
    class Late(MemoryDisk):
        def open(self, path):
            if path == name(0):
                retired.append(path)
                files.remove_first(1)
            return super().open(path)

    retired: list[str] = []
    files = with_files(0, 1024, disk=Late())
    assert files.read(0, 10) == b""
    files.sync(0, 10)
    assert retired == [name(0)]


def test_a_missing_file_that_was_not_retired_is_an_error() -> None:
    disk = MemoryDisk()
    files = with_files(0, disk=disk)
    disk.remove(name(0))
    for use in (lambda: files.read(0, 10), lambda: files.sync(0, 10)):
        with pytest.raises(FileNotFoundError):
            use()


# --- handles ---


def test_open_files_are_bounded_and_the_least_used_goes_first() -> None:
    """RocketMQ #1100: thousands of files, a few open."""
    disk = MemoryDisk()
    handles = FileHandles(disk, 3)
    for number in range(10):
        disk.put_file(f"/{number}", b"x")
    for number in range(10):
        handles.get(f"/{number}")
        handles.get("/0")
    assert (disk.open_count, len(handles)) == (3, 3)
    first = handles.get("/0")
    assert handles.get("/0") is first
    held = handles.get("/5")
    for number in range(6, 10):
        handles.get(f"/{number}")
    assert held.read(0, 1) == b"x"
    assert disk.open_count == 3 + 2  # the two that are in use were evicted and are open still
    del held, first
    assert disk.open_count == 3
    handles.close()
    assert disk.open_count == 0


def test_a_handle_opened_while_its_file_was_replaced_is_not_kept() -> None:
    disk = MemoryDisk()
    disk.put_file("/f", b"old")

    class Late(MemoryDisk):
        def open(self, path):
            file = disk.open(path)
            disk.remove("/f")
            handles.drop("/f")
            return file

    handles = FileHandles(Late(), 4)
    assert handles.get("/f").read(0, 3) == b"old"
    assert len(handles) == 0
    new = disk.create("/f", 3)
    handles.put(new)
    assert handles.get("/f") is new


def test_a_real_store_of_many_files_opens_few(tmp_path) -> None:
    fs = RealFileSystem()
    files = FileSequence(fs, FileHandles(fs, 2), [str(tmp_path / "queue")], 4096)
    before = len(os.listdir("/proc/self/fd"))
    for start in range(0, 8 * 4096, 4096):
        files.add(start)
        files.write(start, bytes([start // 4096 + 1]) * 4096)
    files.sync(0, files.end)
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    files.cut(4096 + 7)
    files.remove_first(1)
    again = FileSequence(fs, FileHandles(fs, 2), files.directories, 4096)
    assert again.load() == []
    assert again.read(4096, 9999) == (b"\2" * 7).ljust(4096, b"\0")


def test_readers_never_see_another_files_bytes_while_files_come_and_go(tmp_path) -> None:
    """RocketMQ #8405: the system gives a descriptor to the next file at once; closed too early it reads that one."""
    fs = RealFileSystem()
    before = len(os.listdir("/proc/self/fd"))
    files = FileSequence(fs, FileHandles(fs, 2), [str(tmp_path)], 4096, keep_open=True)
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        chance = random.Random(1)
        try:
            while not ended.is_set():
                start = chance.choice(files.starts or [0])
                data = files.read(start, 8)
                if data not in (b"", bytes(8), b"%08d" % start):
                    wrong.append((start, data))
        except Exception as error:  # noqa: BLE001 - any is a finding
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(150):
        files.add(number * 4096)
        files.write(number * 4096, b"%08d" % (number * 4096))
        if number % 3 == 0:
            files.sync(files.start, files.end)
        if number > 5:
            files.remove_first(1)
    ended.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    files.cut(0)
    assert len(os.listdir("/proc/self/fd")) == before
