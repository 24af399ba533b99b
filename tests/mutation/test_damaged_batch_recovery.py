"""Recovery of queues whose batches are stored whole, where their units are damaged: only records say what to go by."""

import os
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from rmqstore.core.message import PutStatus
from rmqstore.files.filesystem import join
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.names import ABORT_FILE, format_start
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from tests.crash.disks import MemoryDisk
from tests.log.queue_kinds_store import KINDS, ROOT, SIZES, KindsStore, write_some

pytestmark = pytest.mark.mutation

QUEUE = join(ROOT, "batchconsumequeue", "batches", "0")
UNIT = BATCH_QUEUE_ENTRY.size
BIT_STEP = 1 if "RMQSTORE_MUTATION_EXAMPLES" in os.environ else 20  # `make mutation` flips them all
FILE_SIZE = KINDS.batch_file_size
LOG_START = 5 * SIZES["log_file_size"]  # where the log begins that has lost its oldest files


@cache
def closed() -> MemoryDisk:
    """A store of more log files than are read after a clean exit."""
    disk = MemoryDisk()
    store = KindsStore(disk)
    for turn in range(6):
        write_some(store, turn)
    store.close()
    return disk.crash("kept")


@cache
def beheaded() -> MemoryDisk:
    """The same, of which the oldest log files have expired, and the queue files with nothing but their records."""
    disk = closed().crash("kept")
    for start in range(0, LOG_START, SIZES["log_file_size"]):
        disk.remove(join(ROOT, "commitlog", format_start(start)))
    for start in range(0, 27 * UNIT, FILE_SIZE):
        disk.remove(join(QUEUE, format_start(start)))
    return disk


def units(disk: MemoryDisk) -> list[tuple[str, int]]:
    """File and position of each unit that is written."""
    found = []
    for path, data in sorted(disk.image().items()):
        if path.startswith(QUEUE):
            found += [(path, at) for at in range(0, FILE_SIZE, UNIT) if any(data[at : at + UNIT])]
    return found


def flipped(sound: MemoryDisk, place: tuple[str, int], name: str, *, is_killed: bool) -> Iterator[MemoryDisk]:
    """The store with one bit of a unit's field flipped, some in turn, others in other units."""
    path, at = place
    for bit in range(at // UNIT, BATCH_QUEUE_ENTRY.dtype[name].itemsize * 8, BIT_STEP):
        disk = sound.crash("kept")
        data = bytearray(disk.image()[path])
        data[at + BATCH_QUEUE_ENTRY.offset[name] + bit // 8] ^= 1 << bit % 8
        disk.put_file(path, bytes(data))
        if is_killed:
            disk.put_file(join(ROOT, ABORT_FILE), b"")
        yield disk


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("name", ["base_queue_offset", "message_count", "physical_offset"])
def test_a_damaged_unit_shifts_nothing_that_comes_later(name: str, is_killed: bool) -> None:
    sound = KindsStore(closed().crash("kept"))
    expected = sound.queues.next_offsets()
    for place in units(closed()):
        for disk in flipped(closed(), place, name, is_killed=is_killed):
            store = KindsStore(disk)
            assert store.queues.next_offsets() == expected, place
            assert store.put_batch("batches", [b"new", b"newer"]).status is PutStatus.PUT_OK
            store.dispatch.catch_up()
            queue = store.queues.batches.find("batches", 0)
            assert queue is not None
            last = queue.read(queue.slots[1] - 1, queue.slots[1])
            assert last["base_queue_offset"].tolist() == [expected["batches", 0]], place
            assert queue.max_offset == expected["batches", 0] + 2


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("name", ["base_queue_offset", "message_count", "physical_offset"])
def test_a_damaged_first_unit_hides_no_record_that_the_log_has(name: str, is_killed: bool) -> None:
    disk = beheaded().crash("kept")
    if is_killed:
        disk.put_file(join(ROOT, ABORT_FILE), b"")
    sound = KindsStore(disk)
    bodies, expected = sound.bodies("batches"), sound.queues.next_offsets()
    assert len(bodies) > 20
    for disk in flipped(beheaded(), units(beheaded())[0], name, is_killed=is_killed):
        if not is_killed and place_of_first_unit(disk) < LOG_START:
            continue  # it counts as expired: see below
        store = KindsStore(disk)
        assert store.queues.next_offsets() == expected
        assert store.bodies("batches")[-len(bodies) :] == bodies  # and older ones, that the log still has


def test_a_first_unit_that_leads_in_front_of_the_log_counts_as_expired_and_verify_tells() -> None:
    """As in RocketMQ: after a clean end nobody reads so old a part of the log."""
    sound = KindsStore(beheaded().crash("kept"))
    bodies, places = sound.bodies("batches"), places_without_entry(beheaded())
    tried = 0
    for disk in flipped(beheaded(), units(beheaded())[0], "physical_offset", is_killed=False):
        if place_of_first_unit(disk) < LOG_START:
            assert places_without_entry(disk) > places
            assert KindsStore(disk).bodies("batches") == bodies[5:]
            tried += 1
    assert tried > 1 or BIT_STEP > 1


def place_of_first_unit(disk: MemoryDisk) -> int:
    path, at = units(beheaded())[0]
    data = disk.image()[path][at:]
    return int(np.frombuffer(data, BATCH_QUEUE_ENTRY.dtype, 1)["physical_offset"][0])


def places_without_entry(disk: MemoryDisk) -> int:
    """How many messages of the batch queue `verify` finds in the log alone."""
    found = [each.reason for each in verify(survey(disk, ROOT)) if each.severity == DAMAGE]
    (reason,) = (each for each in found if "messages have no queue entry although later ones have" in each)
    return int(reason.partition("although later ones have (")[2].split()[0])
