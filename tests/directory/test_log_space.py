"""The commitlog's files as one address space: which file has room for an offset, and what can be read there."""

import pytest

from rmqstore.directory import log_space
from rmqstore.directory.listing import numbered_files
from rmqstore.directory.log_place import corrupt_at, log_place
from rmqstore.directory.log_space import LogSpace
from rmqstore.files.disk import StoredFile
from rmqstore.formats.names import format_start
from rmqstore.formats.record_crc import masked_crc32
from tests.crash.disks import MemoryDisk
from tests.formats.records import encoded

SIZE = 1000
# Files at 1000, 2000 and 4000: one is missing; the last one was cut short.
LENGTHS = {1000: SIZE, 2000: SIZE, 4000: 300}


def space(file_size: int = SIZE, end: int | None = None, disk: MemoryDisk | None = None) -> LogSpace:
    disk = disk or MemoryDisk()
    for start, length in LENGTHS.items():
        disk.put_file(f"/log/{format_start(start)}", bytes([start // 1000]) * length)
    return LogSpace(disk, numbered_files(disk, "/log").files, file_size, end)


@pytest.mark.parametrize(
    ("offset", "holder", "following"),
    [(0, None, 1000), (999, None, 1000), (1000, 1000, 2000), (2999, 2000, 4000), (3500, None, 4000), (4999, 4000, None),
     (5000, None, None)],
)  # fmt: skip
def test_a_file_has_room_as_long_as_files_are(offset: int, holder: int | None, following: int | None) -> None:
    log = space()
    file = log.file_at(offset)
    assert (file and file.start) == holder
    assert log.next_start(offset) == following
    assert (log.start, log.end) == (1000, 5000)


def test_without_a_length_a_file_has_the_room_that_it_fills() -> None:
    log = space(0)
    assert (log.file_at(4299) is None, log.file_at(4300) is None, log.end) == (False, True, 4300)
    assert log.readable_end(2) == 4300
    assert space(0, end=4100).readable_end(2) == 4100


def test_a_read_stays_within_one_file() -> None:
    with space() as log:
        assert log.read(1990, 100) == b"\1" * 10
        assert log.read(4290, 100) == b"\4" * 10
        assert log.read(4500, 100) == b""
        assert log.read(3000, 100) == b""


def test_files_are_closed_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_space, "_OPEN_FILES_MAX", 2)
    disk = MemoryDisk()
    log = space(disk=disk)
    for offset in (1000, 2000, 4000, 1000):
        log.read(offset, 1)
    assert disk.open_count == 2


def test_a_record_is_found_by_its_place_and_its_size() -> None:
    disk = MemoryDisk()
    first = encoded(physical_offset=1000)
    second = encoded(physical_offset=1000 + len(first), body=b"x" * 50)
    stray = encoded(physical_offset=7)
    disk.put_file(f"/log/{format_start(1000)}", (first + second + stray).ljust(SIZE, b"\0"))
    with LogSpace(disk, numbered_files(disk, "/log").files) as log:
        place = 1000 + len(first)
        found, record = log.whole_record(place, len(second)), log.record_at(place)
        assert found is not None
        assert record is not None
        assert (found.physical_offset, record.offsets.tolist(), record.end) == (place, [place], place + len(second))
        for offset, size in ((place, len(second) - 1), (place + 1, len(second)), (place, 2**31), (-5, 100), (9**9, 9)):
            assert log.whole_record(offset, size) is None
        assert log.record(place) == found
        for offset in (-(2**63), -5, 0, 999, place - 1, place + 1, 1000 + SIZE - 1, 1000 + SIZE, 2**40, 2**63 - 1):
            assert log.record(offset) is None
        after = place + len(second)
        assert log.whole_record(after, len(stray)) is log.record_at(after) is None


@pytest.mark.parametrize(
    ("offset", "place"), [(5, ("commitlog", 5)), (1500, ("a", 500)), (3700, ("b", 1700)), (2000, ("b", 0))]
)
def test_a_place_is_named_by_file_and_byte(offset: int, place: tuple[str, int]) -> None:
    files = [StoredFile("a", 1000, SIZE), StoredFile("b", 2000, SIZE)]
    assert log_place(files, offset) == place
    error = corrupt_at(files, offset, "torn")
    assert (error.path, error.offset, error.reason) == (*place, "torn")


def at_2000(physical_offset: int) -> LogSpace:
    """A log whose file at 2000 begins with a record that names this place."""
    disk = MemoryDisk()
    record = encoded(body=b"hello", physical_offset=physical_offset, body_crc=masked_crc32(b"hello"))
    disk.put_file(f"/log/{format_start(2000)}", record.ljust(SIZE, b"\0"))
    return LogSpace(disk, numbered_files(disk, "/log").files, SIZE)


def test_a_file_that_begins_with_a_record_of_another_place_says_which() -> None:
    assert [log.other_place(log.files[0]) for log in map(at_2000, (1000, 2000, 4000))] == [1000, None, 4000]


def test_a_record_that_is_just_being_written_is_not_of_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head was read before its place was in it, the rest afterwards."""
    log, early = at_2000(2000), at_2000(0)
    sources = iter((early.opened(early.files[0]), log.opened(log.files[0])))

    class Written:
        """The file, a moment later with each read."""

        def read(self, position: int, size: int) -> bytes:
            return next(sources).read(position, size)

    monkeypatch.setattr(log, "opened", lambda _: Written())
    assert log.other_place(log.files[0]) is None
