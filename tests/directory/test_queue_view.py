"""A small queue is kept in memory: it answers as its file would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.directory.queue_files import SIMPLE, OwnQueueFiles
from rmqstore.directory.queue_view import QueueView
from rmqstore.files.disk import StoredFile
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.crash.disks import MemoryDisk

SLOTS = 60  # more than are kept
FILE_SIZE = SLOTS * QUEUE_ENTRY.size


def view_of(disk: MemoryDisk, start: int) -> QueueView:
    files = (StoredFile("/q/file", start, FILE_SIZE),)
    view = QueueView(OwnQueueFiles("/", "T", 0, SIMPLE, files, disk))
    view.settle(FILE_SIZE)
    return view


@pytest.mark.parametrize("start", [0, FILE_SIZE])
@given(
    places=st.lists(st.integers(0, 1000), max_size=SLOTS).map(sorted),
    holes=st.sets(st.integers(0, SLOTS), max_size=4),
    asked=st.tuples(st.integers(-2, 2 * SLOTS + 2), st.integers(-2, 2 * SLOTS + 2), st.integers(-1, 1001)),
)
def test_what_is_kept_answers_as_the_file_does(
    start: int, places: list[int], holes: set[int], asked: tuple[int, int, int]
) -> None:
    entries = [
        bytes(QUEUE_ENTRY.size) if slot in holes else QUEUE_ENTRY.struct.pack(place, 100, 7)
        for slot, place in enumerate(places)
    ]
    disk = MemoryDisk()
    disk.put_file("/q/file", b"".join(entries).ljust(FILE_SIZE, b"\0"))
    kept, plain = view_of(disk, start), view_of(disk, start)
    plain._kept = None
    first, last, offset = asked
    assert (kept.first, kept.end) == (plain.first, plain.end)
    if kept.files:
        assert kept.read(max(first, 0), last).tolist() == plain.read(max(first, 0), last).tolist()
        assert kept.slot_at(offset) == plain.slot_at(offset)
    assert (kept._kept is None) == (not kept.files or kept.end - kept.first > 51)
