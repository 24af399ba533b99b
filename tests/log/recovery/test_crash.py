"""Recovery on disks that lose power, and recovery that is interrupted itself."""

import errno
import random
from functools import cache

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.directory.listing import numbered_files
from rmqstore.directory.log_space import LogSpace
from rmqstore.engine.log.recovery.log_end import has_lost_sector, next_sound
from rmqstore.engine.store import open_store
from rmqstore.errors import Corrupt, StoreError
from rmqstore.files.filesystem import join
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint
from rmqstore.formats.names import format_start
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut
from tests.crash.strides import every
from tests.log.recovering import (
    ROOT,
    Recovered,
    all_there,
    derived,
    image,
    keyed_store,
    killed,
    lay_log,
    rebuilt,
    recover,
    settled,
)
from tests.snapshot.small_store import FIRST_MS, SmallStore

pytestmark = pytest.mark.stores

LOG = join(ROOT, "commitlog")
# Damage and lag of every kind: queues, index and checkpoint are behind, the log ends torn, the next file is made.
COUNT, BEHIND = 110, 70


@cache
def broken() -> MemoryDisk:
    store = keyed_store(COUNT)
    disk = killed(settled(keyed_store(BEHIND)))
    assert 4096 - store.end % 4096 > 200
    store.append(b"\0\0\1\0\xda\xa3\x20\xa7 torn" * 5)
    lay_log(disk, store)
    disk.put_file(join(LOG, format_start(max(store.data) + 4096)), bytes(4096))
    disk.put_file(join(ROOT, "consumequeue", "New", "1", format_start(0)), bytes(1000))
    return disk


@cache
def mended() -> dict[str, bytes]:
    disk = broken().crash("kept")
    all_there(recover(disk), keyed_store(COUNT))
    assert derived(disk) == rebuilt(disk)
    return image(disk)


@cache
def operation_count() -> int:
    watched = CrashAt(broken().crash("kept"))
    recover(watched)
    return watched.operations


def test_there_is_something_to_interrupt() -> None:
    assert 40 < operation_count() < 400
    assert mended() != image(broken())


@pytest.mark.some(2)
@pytest.mark.crash
@pytest.mark.parametrize("how", ["lost", "kept", "killed", "torn"])
def test_a_recovery_that_loses_power_anywhere_is_recovered_from(how: str) -> None:
    for at in every(2, range(1, operation_count() + 1)):
        disk = CrashAt(broken().crash("kept"), at)
        with pytest.raises(PowerCut):
            recover(disk)
        after = disk.inner.crash(random.Random(at) if how == "torn" else how)
        recover(after)
        assert image(after) == mended(), at


@pytest.mark.crash
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short"])
def test_a_recovery_whose_disk_fails_anywhere_says_so(error: int | str) -> None:
    for at in every(2, range(1, operation_count() + 1)):
        disk = FailingDisk(broken().crash("kept"), at, error)
        try:
            recover(disk)
        except (OSError, StoreError):
            pass
        else:
            assert disk.failed is None or disk.failed.verb in {"create", "remove_directory"}, disk.failed
        after = disk.inner.crash("kept")
        recover(after)
        assert image(after) == mended(), at


@cache
def with_old_queues(queue: str) -> MemoryDisk:
    """A closed store that has to read from the beginning of its log: A and B have messages in its first files alone,
    but for one of A at the end of the fourth-last; `queue` says what was done to their files.
    """
    store = SmallStore()
    for number in range(60):
        store.add("AB"[number % 2], 0, body=b"old %d" % number)
    while len(store.data) < 5:
        store.add("T", 0)
    store.add("A", 0, body=b"later")
    while len(store.data) < 8:
        store.add("T", 0)
    disk = settled(store)
    one, other = (join(ROOT, "consumequeue", topic, "0", format_start(0)) for topic in "AB")
    content = disk.image()
    if queue == "exchanged":
        disk.put_file(one, content[other])
        disk.put_file(other, content[one])
    else:
        disk.put_file(one, bytes(1000) if queue == "blank" else content[one][:500].ljust(1000, b"\0"))
    return disk


@pytest.mark.crash
@pytest.mark.parametrize("how", ["lost", "kept"])
@pytest.mark.parametrize(
    ("queue", "changes"),
    [("exchanged", {"on_middle_damage": "cut"}), ("blank", {}), ("blank", {"on_middle_damage": "cut"}), ("half", {})],
    ids=["exchanged, cut", "blank", "blank, cut", "half"],
)
def test_an_opening_that_reads_old_files_may_be_killed_anywhere(queue: str, changes: dict[str, str], how: str) -> None:
    """The next opening reads as far back: what the first one took away is not in the checkpoint's care."""
    whole = CrashAt(with_old_queues(queue).crash("kept"))
    recover(whole, **changes)
    wanted = derived(whole.inner)
    assert wanted == rebuilt(whole.inner)
    for at in every(2, range(1, whole.operations + 1)):
        disk = CrashAt(with_old_queues(queue).crash("kept"), at)
        with pytest.raises(PowerCut):
            recover(disk, **changes)
        after = disk.inner.crash(how)
        try:
            recover(after)
        except Corrupt:  # nothing was changed, or not enough
            recover(after, on_middle_damage="cut")
        assert derived(after) == wanted, at


@pytest.mark.parametrize("seed", range(24))
def test_a_power_cut_tears_what_was_not_synced(seed: int) -> None:
    """Records are written one by one, dispatched and synced now and then; any part of the rest is lost.

    Never refused, all that was synced is there, what else is there is a prefix, queues and index fit the log.
    """
    chance = random.Random(seed)
    old, count = 60, 130
    disk = settled(keyed_store(old)).crash("kept")
    opened = recover(disk)
    store = keyed_store(count)
    ends = [*store.offsets, store.end]
    synced = dispatched = old
    _write(disk, store, keyed_store(old).end, store.offsets[old])
    for number in range(old, count):
        _write(disk, store, store.offsets[number], ends[number + 1])
        if chance.random() < 0.06:
            for file in disk.entries(LOG):
                disk.open(join(LOG, file.name)).sync()
            synced = number + 1
        if chance.random() < 0.2:
            _dispatch(opened, store, store.offsets[dispatched], ends[number + 1])
            dispatched = number + 1
        if chance.random() < 0.05 and dispatched <= synced:
            _flush(opened, FIRST_MS + 1000 * (dispatched - 1))
    after = disk.crash(chance)
    found = recover(after)
    kept = sum(offset < found.plan.log_end for offset in store.offsets)
    assert kept >= synced
    all_there(found, store, kept)
    assert derived(after) == rebuilt(after)


def _dispatch(opened: Recovered, store: SmallStore, low: int, high: int) -> None:
    def read(offset: int, size: int) -> bytes:
        return bytes(store.data[offset - offset % 4096][offset % 4096 :][:size])

    for item in read_batches(read, low, high, 4096):
        if isinstance(item, RecordBatch):
            for dispatcher in opened.parts.dispatchers:
                dispatcher.dispatch(item)


def _flush(opened: Recovered, newest_ms: int) -> None:
    """What is dispatched becomes durable, then the checkpoint says so."""
    parts = opened.parts
    for dispatcher in parts.dispatchers:
        dispatcher.flush()
    assert parts.index is not None
    index_ms = max(parts.index.full_ms, parts.checkpoint.values.index_timestamp_ms)
    parts.checkpoint.update(physic_timestamp_ms=newest_ms, logics_timestamp_ms=newest_ms, index_timestamp_ms=index_ms)
    parts.checkpoint.flush()


def _write(disk: MemoryDisk, store: SmallStore, low: int, high: int) -> None:
    """Writes [low, high) of the log as its writer does: the next file first, then the blank, then the record."""
    while low < high:
        start = low - low % 4096
        end = min(high, start + 4096)
        path = join(LOG, format_start(start))
        if not disk.exists(path):
            disk.create(path, 4096)
            disk.sync_directory(LOG)
        disk.open(path).write(low - start, bytes(store.data[start][low - start : end - start]))
        low = end


def torn_store(zeros: slice) -> tuple[SmallStore, MemoryDisk]:
    """40 messages, the last 20 of which the checkpoint does not know; some bytes of their part of the log are zero."""
    store = keyed_store(40, file_size=8192)
    disk = killed(settled(keyed_store(20, file_size=8192)))
    data = store.data[0]
    data[zeros] = bytes(len(data[zeros]))
    lay_log(disk, store)
    return store, disk


def test_a_lost_sector_is_a_tear_and_cut() -> None:
    store, disk = torn_store(slice(3584, 4096))
    found = recover(disk)
    kept = sum(offset < found.plan.log_end for offset in store.offsets)
    assert 20 < kept < 40
    assert found.plan.log_end <= 3584
    assert found.plan.dropped_from is not None
    assert "torn by a power cut" in found.plan.end_reason
    all_there(found, store, kept)


@pytest.mark.parametrize("shared", range(4))
def test_a_lost_sector_may_end_in_the_zeros_that_the_next_record_begins_with(shared: int) -> None:
    store = keyed_store(20, file_size=8192)
    disk = killed(settled(keyed_store(20, file_size=8192)))
    low, high = store.end, 3072
    empty = SmallStore()
    empty.add("T", 0, body=b"")
    store.add("T", 0, body=b"x" * (high - shared - low - empty.end))
    store.add("T", 1, body=b"next")
    assert store.offsets[-1] == high - shared
    assert not any(store.data[0][high - shared : high])
    store.data[0][low:high] = bytes(high - low)
    lay_log(disk, store)
    found = recover(disk)
    assert (found.plan.log_end, found.plan.dropped_from) == (low, high - shared)
    assert "torn by a power cut" in found.plan.end_reason


@pytest.mark.parametrize("zeros", [slice(3600, 3700), slice(3590, 4090)])
def test_zeros_that_are_no_sector_are_damage(zeros: slice) -> None:
    _, disk = torn_store(zeros)
    with pytest.raises(Corrupt):
        recover(disk)


def stepping_store(back: range, *, again: int | None = None) -> tuple[SmallStore, MemoryDisk]:
    """40 messages, 20 of which were flushed; the clock stood twenty seconds earlier for those of `back`.

    Message 30 is lost with its sector.  `again` has the store time of the last one that was flushed.
    """
    store = SmallStore(file_size=8192)
    for number in range(40):
        ms = FIRST_MS + 1000 * (19 if number == again else number - (20 if number in back else 0))
        store.add("T", number % 2, body=b"body %d" % number, store_timestamp=ms)
    flushed = SmallStore(file_size=8192)
    for number in range(20):
        flushed.add("T", number % 2, body=b"body %d" % number)
    disk = killed(settled(flushed))
    low = store.offsets[30] // 512 * 512
    store.data[0][low : low + 512] = bytes(512)
    lay_log(disk, store)
    return store, disk


def test_a_tear_behind_what_was_flushed_is_cut_though_the_clock_stepped_back() -> None:
    """Some of the messages behind are older than the checkpoint's time, some newer: where the message of that time
    stands says what was flushed."""
    store, disk = stepping_store(range(22, 36))
    found = recover(disk)
    assert store.offsets[19] < found.plan.log_end <= store.offsets[30]
    assert "torn by a power cut" in found.plan.end_reason


def test_a_clock_that_passed_the_checkpoints_time_again_leaves_it_open_what_was_flushed() -> None:
    _, disk = stepping_store(range(22, 36), again=37)
    with pytest.raises(Corrupt, match="the next sound record is at"):
        recover(disk)


def test_a_lost_sector_of_what_was_flushed_is_damage() -> None:
    store = keyed_store(40, file_size=8192)
    disk = killed(settled(store))
    store.data[0][1024:1536] = bytes(512)
    lay_log(disk, store)
    with pytest.raises(Corrupt, match="the next sound record is at"):
        recover(disk)


@pytest.mark.parametrize("has_crc", [True, False])
def test_properties_that_were_not_written_are_found_by_their_crc(has_crc: bool) -> None:
    """Without it the message stays as it is, with zeros in its properties, as in RocketMQ."""
    disk, config = MemoryDisk(), StoreConfig(log_file_size=32 * 1024, append_property_crc=has_crc, preallocate=False)
    store = open_store(ROOT, config, clock=ManualClock(), filesystem=disk, workers=False)
    store.put(Message("T", b"before"))
    torn = store.put(Message("T", b"torn", properties={"long": "x" * 3000})).physical_offset
    behind = store.put(Message("T", b"behind")).physical_offset
    after = disk.crash("killed")
    path = join(LOG, format_start(0))
    data = bytearray(after.image()[path])
    assert torn < 1024
    assert behind > 2560
    data[1536:2048] = bytes(512)
    after.put_file(path, bytes(data))
    again = open_store(ROOT, config, clock=ManualClock(), filesystem=after, workers=False)
    found = [message.body for message in again.get("T", 0, 0).messages]
    assert found == [b"before"] if has_crc else [b"before", b"torn", b"behind"]


def test_where_a_sector_is_missing() -> None:
    disk = MemoryDisk()
    data = bytearray(b"x" * 4096)
    data[700:1024] = bytes(324)
    disk.put_file(join(LOG, format_start(0)), b"y" * 4096)
    for start in (4096, 8192):
        disk.put_file(join(LOG, format_start(start)), bytes(data))
    files = numbered_files(disk, LOG).files
    log = LogSpace(disk, files, files[0].size)
    base = 4096
    assert has_lost_sector(log, base + 700, base + 1100)
    assert has_lost_sector(log, base + 900, base + 1024)
    assert has_lost_sector(log, base + 2000, base + 4096 + 1024) is False  # 700 to 1024 is not all of a sector
    assert not has_lost_sector(log, base + 699, base + 1100)
    assert has_lost_sector(log, base + 700, base + 1021)  # a record there begins with up to three zeros
    assert not has_lost_sector(log, base + 700, base + 1020)
    assert not has_lost_sector(log, base + 1024, base + 4096 + 600)
    disk.put_file(join(LOG, format_start(8192)), bytes(data[:512]))
    log.close()
    assert has_lost_sector(log, base + 2000, base + 4096 + 1024)


def test_the_next_sound_record() -> None:
    store = keyed_store(30)
    disk = settled(store)
    files = numbered_files(disk, LOG).files
    log = LogSpace(disk, files, files[0].size)
    first, second = store.offsets[3:5]
    assert next_sound(log, first, 0) == first
    assert next_sound(log, first + 1, 0) == second
    assert next_sound(log, first + 1, 2**62) is None
    assert next_sound(log, first + 1, 2**62, lambda located, offset: offset == store.offsets[9]) == store.offsets[9]
    assert next_sound(log, store.end, 0) is None


def spoiled(told: Checkpoint | None, place: int) -> tuple[SmallStore, MemoryDisk]:
    """A killed store of several files whose checkpoint is `told`; a sector at `place` of its log is zero."""
    store = keyed_store(100)
    disk = killed(settled(keyed_store(100)))
    start = place - place % 4096
    store.data[start][place - start : place - start + 512] = bytes(512)
    lay_log(disk, store)
    if told is None:
        disk.remove(join(ROOT, "checkpoint"))
    else:
        disk.put_file(join(ROOT, "checkpoint"), encode_checkpoint(told))
    return store, disk


@pytest.mark.parametrize("told", [None, Checkpoint(FIRST_MS - 1, FIRST_MS - 1)], ids=["no", "old"])
def test_no_tear_reaches_over_files_where_no_checkpoint_tells_of_a_flush(told: Checkpoint | None) -> None:
    """A sector of an old file is lost, and the checkpoint too, or it is another day's: full files follow."""
    store, disk = spoiled(told, 4096 + 1024)
    before = disk.image()
    assert store.end > 3 * 4096
    with pytest.raises(Corrupt, match="the next sound record is at"):
        recover(disk)
    assert disk.image() == before
    store, disk = spoiled(told, store.end - store.end % 4096 + 512)
    assert "torn by a power cut" in recover(disk).plan.end_reason
