"""What a note of deleted topics comes to for the queues that are there."""

import pytest

from rmqstore.directory.deleted_queues import HeldPlaces, held_places, honour, without_deleted
from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_files import SIMPLE, QueueFiles, leading_blanks
from rmqstore.files.disk import StoredFile
from rmqstore.formats.deleted_topics import DeletedTopic
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY
from tests.crash.disks import MemoryDisk

SLOTS = 50


def queue_of(blanks: int, places: list[int]) -> QueueFiles:
    """A queue that begins with filler entries and then points at `places` of the log."""
    entries = [(0, PRE_BLANK_SIZE, 0)] * blanks + [(place, 100, 7) for place in places]
    data = b"".join(QUEUE_ENTRY.struct.pack(*entry) for entry in entries)
    disk, size = MemoryDisk(), SLOTS * QUEUE_ENTRY.size
    disk.put_file("/consumequeue/T/0/file", data.ljust(size, b"\0"))
    return QueueFiles("/", "T", 0, SIMPLE, (StoredFile("/consumequeue/T/0/file", 0, size),), disk)


@pytest.mark.parametrize("blanks", [0, 1, 7, 30])
def test_filler_entries_are_passed_over(blanks: int) -> None:
    queue = queue_of(blanks, [500, 600, 700])
    end = queue.unbroken_end()
    assert leading_blanks(queue, 0, end) == blanks
    assert held_places(queue, SIMPLE, 0, end) == (500, 700)


@pytest.mark.parametrize("blanks", [0, 3])
def test_a_queue_without_messages_has_no_places(blanks: int) -> None:
    queue = queue_of(blanks, [])
    assert held_places(queue, SIMPLE, 0, queue.unbroken_end()) is None


def test_what_came_back_into_a_queue_is_there() -> None:
    noted = {"T": DeletedTopic(1000, is_pending=True), "U": DeletedTopic(400)}
    held = [("T", HeldPlaces(100, 900)), ("T", HeldPlaces(300, 1200)), ("V", HeldPlaces(0, 10))]
    assert honour(noted, held) == ({"T": 300, "U": 400}, [True, False, False])


def test_notes_of_many_topics_ask_each_queue_once() -> None:
    """Not each queue for each note: readers apply the notes, too."""
    asked = []

    class Key(tuple[str, int]):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            asked.append(other)
            return super().__eq__(other)

        __hash__ = tuple.__hash__

    keys = [(f"T{number}", 0) for number in range(200)]
    noted = {topic: DeletedTopic(1000, is_pending=True) for topic, _ in keys}
    found = honour(noted, [(Key(key), HeldPlaces(1, 2)) for key in keys])
    assert found.leaving == [True] * 200
    assert len(asked) < 1000


@pytest.mark.parametrize(("end", "is_there"), [(0, True), (700, True), (701, False)])
def test_a_queue_that_ends_before_the_deletion_has_no_files(end: int, is_there: bool) -> None:
    queue = queue_of(0, [500, 600, 700])
    log = LogSpace(queue.disk, ())
    assert bool(without_deleted(queue, {"T": end}, log).files) is is_there
    assert without_deleted(queue, {"U": end}, log) is queue
