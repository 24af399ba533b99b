"""Blocks of another store's log, appended as they are: only at the log's end, only whole sound records."""

import itertools
import random
import struct
from collections.abc import Sequence

import pytest

from rmqstore.clock import ManualClock
from rmqstore.engine.log.put.block import block_parts
from rmqstore.engine.log.put.commitlog import CommitLog, NoLogFile, TransientPool
from rmqstore.errors import DurabilityLost, Rejected
from rmqstore.files.filesystem import DiskFile
from rmqstore.formats import message, sys_flag
from rmqstore.formats.names import QueueKey
from rmqstore.formats.properties import MULTI_DISPATCH
from rmqstore.records.read_batches import read_batches
from rmqstore.replica.following.follower import first_queue_restart
from tests.crash.disks import MemoryDisk
from tests.log.queue_kinds_store import KINDS, KindsStore
from tests.store.interrupting import Interrupt, sweep

pytestmark = pytest.mark.stores

FILE_SIZE = 4096
CLOSED_MS = 9_000_000_000_000  # index files are called by when they are made


def filled(store: KindsStore) -> None:
    """Messages of every kind, over several files."""
    for number in range(12):
        store.put("plain", b"p" * 150, queue_id=number % 3, keys=[f"k{number}"], tags="a")
        store.put("light", b"l" * 60, properties={MULTI_DISPATCH: "%LMQ%x,%LMQ%y" if number % 2 else "%LMQ%y"})
        store.put("plain", b"prepared", sys_flag=sys_flag.PREPARED)
        store.put_batch("plain", [b"one", b"two" * 40, b"three"], queue_id=1)
        store.put_batch("batches", [b"in", b"one", b"record"], properties={"UNIQ_KEY": f"u{number}"})


@pytest.fixture(scope="module")
def master() -> KindsStore:
    store = KindsStore(MemoryDisk())
    filled(store)
    assert store.log.marks.appended > 3 * FILE_SIZE
    store.clock.ms = CLOSED_MS
    store.close()
    return store


def log_of(master: KindsStore) -> bytes:
    return b"".join(data for path, data in sorted(master.disk.image().items()) if "/commitlog/" in path)[
        : master.log.marks.appended
    ]


def bounds_of(master: KindsStore) -> list[int]:
    """Where records begin, the end of each file, and that of the log."""
    data, found = log_of(master), set[int]()
    for standing in read_batches(lambda at, size: data[at : at + size], 0, len(data), FILE_SIZE):
        if isinstance(standing, message.Blank):
            found |= {standing.position, standing.position + standing.size}
        else:
            assert not isinstance(standing, message.Torn)
            found |= {*standing.offsets.tolist(), standing.end}
    return sorted(found)


def replica() -> KindsStore:
    return KindsStore(MemoryDisk(), clock=ManualClock(CLOSED_MS))


def append_block(log: CommitLog, offset: int, data: bytes, *, may_be_cut: bool = False) -> int:
    """Appends a block, as far as it is whole; where that ends."""
    parts = block_parts(offset, data, log.files.file_size, KINDS, may_be_cut=may_be_cut)
    return log.append_block(offset, data, parts)


def bring(store: KindsStore, data: bytes, bounds: Sequence[int]) -> None:
    """The log, a block between each two bounds."""
    for begin, end in itertools.pairwise(bounds):
        append_block(store.log, begin, data[begin:end])


@pytest.mark.parametrize("cut", ["all at once", "each alone", "some", "some, dispatched between"])
def test_the_store_that_gets_the_blocks_is_the_one_that_they_come_from(master: KindsStore, cut: str) -> None:
    data, bounds, copy = log_of(master), bounds_of(master), replica()
    assert any(bound % FILE_SIZE == 0 for bound in bounds[1:-1])
    if cut == "all at once":
        bounds = [0, len(data)]
    elif cut != "each alone":
        bounds = [0, *sorted(random.Random(5).sample(bounds[1:-1], 17)), len(data)]
    for begin, end in itertools.pairwise(bounds):
        bring(copy, data, [begin, end])
        if "dispatched" in cut:
            copy.dispatch.step()
    assert copy.log.next_offsets == master.log.next_offsets
    assert copy.log.newest_ms == master.log.newest_ms
    copy.close()
    assert copy.disk.image() == master.disk.image()


def test_what_is_put_afterwards_goes_on_with_the_numbers_of_the_queues(master: KindsStore) -> None:
    copy = replica()
    bring(copy, log_of(master), [0, master.log.marks.appended])
    found = [
        copy.put("plain", b"more", queue_id=2).queue_offset,
        copy.put_batch("batches", [b"more"], properties={"UNIQ_KEY": "more"}).queue_offset,
        copy.put("light", b"more", properties={MULTI_DISPATCH: "%LMQ%y"}).queue_offset,
    ]
    assert found == [4, 36, 12]
    copy.flush()
    assert copy.bodies("%LMQ%y")[-1] == b"more"
    assert len(copy.entries("%LMQ%y")) == 13


def test_a_store_that_was_filled_by_blocks_is_recovered_as_any_other(master: KindsStore) -> None:
    copy, data, bounds = replica(), log_of(master), bounds_of(master)
    at = next(place for place, bound in enumerate(bounds) if bound and bound % FILE_SIZE == 0)
    bring(copy, data, bounds[: at + 1])  # the file is full, and there is no next one
    copy.log.sync_to(bounds[at], 1)
    again = KindsStore(copy.disk.crash("lost"))
    assert again.log.marks.appended == bounds[at]
    bring(again, data, bounds[at:])
    again.close()
    assert {path: data for path, data in again.disk.image().items() if "/commitlog/" in path} == {
        path: data for path, data in master.disk.image().items() if "/commitlog/" in path
    }


def test_another_offset_than_the_end_is_refused(master: KindsStore) -> None:
    copy, data, bounds = replica(), log_of(master), bounds_of(master)
    bring(copy, data, bounds[:3])
    for offset, end in ((0, bounds[2]), (bounds[1], bounds[3]), (bounds[3], bounds[4])):
        with pytest.raises(Rejected, match=f"a block of offset {offset}: the log ends at {bounds[2]}"):
            append_block(copy.log, offset, data[offset:end])
    assert copy.log.marks.appended == bounds[2]
    bring(copy, data, bounds[2:])
    assert copy.log.next_offsets == master.log.next_offsets


def test_every_torn_or_changed_block_is_refused_as_a_whole(master: KindsStore) -> None:
    copy, data, bounds = replica(), log_of(master), bounds_of(master)
    end = bounds[3]
    for size in set(range(1, end)) - set(bounds):
        with pytest.raises(Rejected, match="the block cannot stand at 0"):
            append_block(copy.log, 0, data[:size])
    head = message.HEAD.offset
    for position in (*range(head["magic"] + 4), *range(head["body_crc"], head["body_crc"] + 4)):
        changed = bytearray(data[:end])
        changed[position] ^= 0x55
        with pytest.raises(Rejected, match="the block cannot stand at 0"):
            append_block(copy.log, 0, bytes(changed))
    assert copy.log.marks.appended == 0


def test_records_of_another_place_are_refused(master: KindsStore) -> None:
    copy, data, bounds = replica(), log_of(master), bounds_of(master)
    bring(copy, data, bounds[:2])
    with pytest.raises(Rejected, match="physicalOffset field says 0"):
        append_block(copy.log, bounds[1], data[: bounds[1]])
    assert copy.log.marks.appended == bounds[1]
    assert copy.log.next_offsets == {("plain", 0): 1}


@pytest.mark.parametrize("data", [b"\0" * 100, b"x" * 500, struct.pack(">ii", 64, message.MAGIC_BLANK) + bytes(56)])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    copy = replica()
    with pytest.raises(Rejected):
        append_block(copy.log, 0, data)
    assert copy.log.marks.appended == 0
    append_block(copy.log, 0, b"")
    assert copy.put("plain", b"first").physical_offset == 0


def test_a_blank_is_brought_whole(master: KindsStore) -> None:
    """Its bytes are part of the file: half a blank would leave the end of the file to chance."""
    copy, data, bounds = replica(), log_of(master), bounds_of(master)
    file_end = next(bound for bound in bounds if bound and bound % FILE_SIZE == 0)
    blank_at = bounds[bounds.index(file_end) - 1]
    bring(copy, data, [0, blank_at])
    with pytest.raises(Rejected, match=f"does not end its file, at {file_end}"):
        append_block(copy.log, blank_at, data[blank_at : file_end - 1])
    bring(copy, data, [blank_at, file_end, len(data)])
    assert copy.log.next_offsets == master.log.next_offsets


def test_a_record_that_leaves_no_room_for_a_blank_is_no_logs_record(master: KindsStore) -> None:
    copy = replica()
    room = FILE_SIZE - copy.put("plain", b"first").size
    big = KindsStore(MemoryDisk(), log_file_size=3 * FILE_SIZE)
    big.put("plain", b"first")
    front = big.put("plain", b"").size
    big = KindsStore(MemoryDisk(), log_file_size=3 * FILE_SIZE)
    big.put("plain", b"first")
    made = big.put("plain", b"x" * (room - front - 7))
    assert made.size == room - 7
    with pytest.raises(Rejected, match="leaves no room for the blank"):
        append_block(copy.log, made.physical_offset, big.log.read(made.physical_offset, made.size))


def test_a_sync_that_failed_ends_it_as_it_ends_puts(master: KindsStore) -> None:
    copy, data, bounds = replica(), log_of(master), bounds_of(master)
    bring(copy, data, bounds[:2])
    copy.log.marks.latch("the disk is gone")
    with pytest.raises(DurabilityLost, match="the disk is gone"):
        bring(copy, data, bounds[1:3])
    assert copy.log.marks.appended == bounds[1]


def test_where_no_file_can_be_made_whole_records_before_it_are_in(master: KindsStore) -> None:
    class Full(MemoryDisk):
        """Has room for one log file."""

        is_full = True

        def create(self, path: str, size: int) -> DiskFile:
            if self.is_full and "/commitlog/" in path and not path.endswith(f"/{0:020d}"):
                raise OSError(28, "No space left on device")
            return super().create(path, size)

    data, bounds, disk = log_of(master), bounds_of(master), Full()
    file_end = next(bound for bound in bounds if bound and bound % FILE_SIZE == 0)
    log = KindsStore(disk, clock=ManualClock(CLOSED_MS)).log
    with pytest.raises(NoLogFile):
        append_block(log, 0, data)
    assert log.marks.appended == file_end
    disk.is_full = False
    append_block(log, file_end, data[file_end:])
    assert log.next_offsets == master.log.next_offsets


@pytest.mark.parametrize("buffer_count", [0, 2])
def test_interrupted_at_any_line_it_is_whole_records_with_their_notes(master: KindsStore, buffer_count: int) -> None:
    data, bounds = log_of(master), bounds_of(master)
    file_end = next(place for place, bound in enumerate(bounds) if bound and bound % FILE_SIZE == 0)
    begin, end = bounds[file_end - 3], bounds[file_end + 3]

    def check(interrupt: Interrupt) -> None:
        copy = replica()
        if buffer_count:
            pool = TransientPool(buffer_count, FILE_SIZE)
            copy.log = CommitLog(copy.parts.log, 0, pool=pool)
        log = copy.log
        bring(copy, data, [0, begin])
        interrupt.call(lambda: append_block(log, begin, data[begin:end]))
        reached = log.marks.appended
        assert reached in bounds
        assert begin <= reached <= end
        expected = replica()
        bring(expected, data, [0, reached])
        assert log.next_offsets == expected.log.next_offsets
        assert log.held_since_s < 0
        bring(copy, data, [reached, len(data)])
        assert log.next_offsets == master.log.next_offsets
        assert log.sync_to(len(data), 1)
        assert log.read(0, len(data)) == data or log.read(begin, len(data)) == data[begin:FILE_SIZE]

    assert sweep(check, step=9, is_real=True) > 40


def bring_cut(store: KindsStore, offset: int, data: bytes) -> int:
    """Appends what is whole of a block that is cut anywhere; where that ends."""
    return append_block(store.log, offset, data, may_be_cut=True)


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_that_is_cut_anywhere_becomes_the_same_log(master: KindsStore, seed: int) -> None:
    data, whole, copy, chance = log_of(master), set(bounds_of(master)), replica(), random.Random(seed)
    end = came = 0
    while end < len(data):
        came = min(came + chance.choice((1, 7, 60, 500, 9000)), len(data))
        end = bring_cut(copy, end, data[end:came])
        assert end == copy.log.marks.appended
        assert end == max(bound for bound in whole if bound <= came)
    assert log_of(copy) == data


@pytest.mark.parametrize(
    ("field", "value"),
    [("size", 2**31 - 1), ("size", -5), ("size", 0), ("size", 3), ("size", FILE_SIZE), ("magic", 0), ("magic", 7)],
)
def test_a_cut_end_that_cannot_become_a_record_is_refused(master: KindsStore, field: str, value: int) -> None:
    bounds, copy = bounds_of(master), replica()
    data = bytearray(log_of(master)[: bounds[2] - 10])
    struct.pack_into(">i", data, bounds[1] + (4 if field == "magic" else 0), value)
    with pytest.raises(Rejected):
        bring_cut(copy, 0, bytes(data))
    assert copy.log.marks.appended == 0


def test_a_blank_whose_size_does_not_end_its_file_is_refused_even_if_cut(master: KindsStore) -> None:
    data, copy = bytearray(log_of(master)), replica()
    place = next(
        bound for bound in bounds_of(master) if struct.unpack_from(">i", data, bound + 4)[0] == message.MAGIC_BLANK
    )
    struct.pack_into(">i", data, place, 4 * FILE_SIZE)
    with pytest.raises(Rejected, match="does not end its file"):
        bring_cut(copy, 0, bytes(data[: place + 8]))


@pytest.mark.parametrize("key", [("plain", 0), ("batches", 0), ("light", 0)])
def test_a_queue_that_begins_again_is_found_whatever_its_kind(master: KindsStore, key: QueueKey) -> None:
    """Also where its first beginning is in the same block; transactions that are in no queue say 0 as well."""
    log = master.log.read(0, master.log.marks.appended)
    batches = [part.records for part in block_parts(0, log, FILE_SIZE, KINDS) if part.records is not None]
    assert first_queue_restart(batches, KINDS.is_batch_topic, {}) is None
    assert first_queue_restart(batches, KINDS.is_batch_topic, {key: 0}) is None
    found = first_queue_restart(batches, KINDS.is_batch_topic, {key: 3})
    assert found is not None
    assert (found.key, found.is_doubted) == (key, False)
    again = first_queue_restart([*batches, *batches], KINDS.is_batch_topic, {})
    assert again is not None
    assert again.offset == 0
