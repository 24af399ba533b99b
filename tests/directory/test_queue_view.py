"""A small queue is kept in memory: it answers as its file would."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY
from tests.crash.disks import MemoryDisk
from tests.directory.one_queue import FILE_SIZE, SLOTS, view_of

pytestmark = pytest.mark.stores


@pytest.mark.parametrize("start", [0, FILE_SIZE])
@given(
    places=st.lists(st.integers(0, 1000), max_size=SLOTS).map(sorted),
    holes=st.sets(st.integers(0, SLOTS), max_size=4),
    blanks=st.one_of(st.integers(0, SLOTS).map(range), st.sets(st.integers(0, SLOTS), max_size=4)),
    negative=st.sets(st.integers(0, SLOTS), max_size=2),
    asked=st.tuples(st.integers(-2, 2 * SLOTS + 2), st.integers(-2, 2 * SLOTS + 2), st.integers(-1, 1001)),
)
def test_what_is_kept_answers_as_the_file_does(
    start: int,
    places: list[int],
    holes: set[int],
    blanks: Collection[int],
    negative: set[int],
    asked: tuple[int, int, int],
) -> None:
    def entry(slot: int, place: int) -> bytes:
        if slot in holes:
            return bytes(QUEUE_ENTRY.size)
        blank = QUEUE_ENTRY.struct.pack(0, PRE_BLANK_SIZE, 0)
        return blank if slot in blanks else QUEUE_ENTRY.struct.pack(-place if slot in negative else place, 100, 7)

    entries = [entry(slot, place) for slot, place in enumerate(places)]
    disk = MemoryDisk()
    disk.put_file("/q/file", b"".join(entries).ljust(FILE_SIZE, b"\0"))
    kept, plain = view_of(disk, start), view_of(disk, start)
    plain._kept = None
    first, last, offset = asked
    assert (kept.first, kept.end) == (plain.first, plain.end)
    if kept.files:
        assert kept.read(max(first, 0), last).tolist() == plain.read(max(first, 0), last).tolist()
        assert kept.slot_at(offset) == plain.slot_at(offset)
        assert kept.leading_blanks() == plain.leading_blanks()
    assert (kept.kept is None) == (not kept.files or kept.end - kept.first > 51)
