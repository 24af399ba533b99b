"""Recovery of small stores, by what the plan says and by what comes out.

The ways in which RocketMQ's stores came to harm are told by the numbers of its issues in docs/recovery.md.
"""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from rmqstore.engine.log.opening import mark_closed
from rmqstore.engine.log.recovery.apply import apply, open_parts
from rmqstore.engine.log.recovery.plan import LostMessages
from rmqstore.errors import Corrupt, NotAStore, UnsupportedLayout
from rmqstore.files.filesystem import join
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint, read_checkpoint
from rmqstore.formats.deleted_topics import DeletedTopic
from rmqstore.formats.index import HEADER
from rmqstore.formats.message import BLANK, HEAD, MAGIC_BLANK
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY
from rmqstore.records.batch import RecordBatch
from tests.crash.disks import MemoryDisk
from tests.log.recovering import (
    QUEUE_FILE_SIZE,
    ROOT,
    all_there,
    derived,
    image,
    keyed_store,
    killed,
    lay,
    lay_log,
    lay_queue,
    plan,
    rebuilt,
    recover,
    settled,
)
from tests.snapshot.small_store import FIRST_MS, QUEUE_FILE_ENTRIES, SmallStore, small_store

pytestmark = pytest.mark.stores

DAY_MS = 86_400_000


def with_checkpoint(disk: MemoryDisk, **changes: int) -> MemoryDisk:
    path = join(ROOT, "checkpoint")
    fields = read_checkpoint(disk.image()[path])
    values = {name: getattr(fields, name) for name in fields.__slots__} | changes
    disk.put_file(path, encode_checkpoint(Checkpoint(**values)))
    return disk


def paths(disk: MemoryDisk, part: str) -> list[str]:
    return [path for path in disk.image() if part in path]


def test_a_clean_store_is_left_as_it_is() -> None:
    store = keyed_store()
    disk = settled(store)
    before = disk.image()
    made = plan(disk)
    assert made.changes_nothing
    assert made.is_clean_exit
    assert made.lines()[-1].split() == ["result", "nothing", "to", "do"]
    all_there(recover(disk), store)
    after = disk.image()
    assert after.pop(join(ROOT, "abort")) == b""
    assert after == before


def test_a_new_store_has_nothing_to_recover() -> None:
    disk = MemoryDisk()
    disk.make_directories(ROOT)
    disk.lock(join(ROOT, "lock"))
    found = recover(disk)
    assert found.plan.changes_nothing
    assert found.plan.log_end == 0
    assert found.parts.log.starts == []


@pytest.mark.parametrize(("name", "error"), [("somewhere", NotAStore), ("dledger-n0", UnsupportedLayout)])
def test_what_is_no_store_is_refused(name: str, error: type[Exception]) -> None:
    disk = MemoryDisk()
    disk.put_file(join(ROOT, name, "file"), b"x")
    with pytest.raises(error):
        plan(disk)
    with pytest.raises(NotAStore):
        plan(MemoryDisk())


def test_queues_in_rocksdb_are_refused() -> None:
    disk = settled(keyed_store())
    disk.rename(join(ROOT, "consumequeue"), "/aside")
    disk.put_file(join(ROOT, "consumequeue", "CURRENT"), b"MANIFEST")
    with pytest.raises(UnsupportedLayout):
        plan(disk)


def test_a_lost_end_of_queues_and_index_is_built_again() -> None:
    store = keyed_store()
    disk = killed(settled(store))
    for _ in range(7):
        store.add("T", len(store.offsets) % 2, properties={"UNIQ_KEY": f"U{len(store.offsets)}"})
    lay_log(disk, store)
    found = recover(disk)
    all_there(found, store)
    assert derived(disk) == rebuilt(disk)
    assert found.parts.checkpoint.values.physic_timestamp_ms == FIRST_MS + 1000 * (len(store.offsets) - 1)


@pytest.mark.parametrize("exit_was_clean", [True, False])
@pytest.mark.parametrize(
    ("field", "reason"), [("magic", "no message magic"), ("body_crc", "the CRC of the body is wrong")]
)
def test_what_is_dropped_at_the_end_of_the_log_is_told(exit_was_clean: bool, field: str, reason: str) -> None:
    store = keyed_store(20)
    disk = settled(store)
    lost = store.add("T", 0, dispatched=False)
    store.change(lost + HEAD.offset[field], b"\x01")
    lay_log(disk, store)
    made = plan(disk if exit_was_clean else killed(disk))
    (warning,) = made.warnings
    path = join(ROOT, "commitlog", format_start(0))
    assert warning.startswith(f"{path}: the log is cut at byte {lost}: {reason}")
    assert warning.endswith(f"{store.end - lost} bytes from there on are dropped")
    assert recover(disk).plan.warnings == (warning,)
    assert recover(disk).plan.warnings == ()  # it is gone


def test_queue_entries_behind_the_end_of_the_log_go() -> None:
    store = keyed_store(20)
    disk = killed(settled(store))
    for number in range(40, 60):
        store.add("T", number % 2)  # dispatched, but the log lost them
    for (topic, queue_id), entries in store.entries.items():
        lay_queue(disk, topic, queue_id, b"".join(entries))
    found = recover(disk)
    assert [found.entries("T", queue_id)[-1][0] for queue_id in (0, 1)] == [9, 9]
    assert derived(disk) == rebuilt(disk)


def test_an_undispatched_end_of_the_file_before() -> None:
    store = keyed_store(160)
    assert len(store.data) > 4
    third = sorted(store.data)[-3]
    seen = sum(offset < third - 1000 for offset in store.offsets)
    shorter = keyed_store(seen)
    disk = settled(shorter)  # dispatch stood still for more than two files
    lay_log(disk, store)
    all_there(recover(disk), store)
    disk = killed(settled(shorter))
    lay_log(disk, store)
    found = recover(disk)
    all_there(found, store)
    assert found.plan.scan_start < third


def test_a_checkpoint_ahead_of_the_queues() -> None:
    """The queues lost pages that the checkpoint takes for flushed: reading begins where they are covered."""
    store = keyed_store(120)
    disk = killed(settled(store))
    for path in paths(disk, "/consumequeue/"):
        disk.put_file(path, disk.image()[path][: 6 * 20].ljust(QUEUE_FILE_SIZE, b"\0"))
    for path in paths(disk, "/consumequeue/")[1::2]:
        disk.remove(path)
    found = recover(disk)
    all_there(found, store)
    assert "missing in their queues" in found.plan.scan_reason
    assert derived(disk) == rebuilt(disk)


def test_a_checkpoint_lets_reading_begin_late() -> None:
    store = keyed_store(120)
    found = recover(killed(settled(store)))
    assert found.plan.scan_start == max(store.data)
    all_there(found, store)


def test_messages_without_keys_do_not_make_it_read_everything() -> None:
    store = small_store(120)
    found = recover(killed(settled(store)))
    assert found.plan.scan_start == max(store.data)


def test_progress_is_kept() -> None:
    """The checkpoint moves on with every log file that is dispatched again."""
    store = keyed_store(120)
    disk = lay(store, abort=True)
    made = plan(disk)
    seen = []

    class Watching:
        def dispatch(self, _: RecordBatch) -> None:
            data = disk.image().get(join(ROOT, "checkpoint"), b"")
            seen.append(read_checkpoint(data).physic_timestamp_ms)

        def flush(self) -> None:
            pass

    from rmqstore.clock import ManualClock
    from rmqstore.config import StoreConfig
    from tests.log.recovering import SIZES

    config = StoreConfig(**SIZES)
    apply(made, open_parts(disk, made, config, ManualClock(), [Watching()]))
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert len(set(seen)) == len(store.data)


@pytest.mark.parametrize("size", [0, 1000])
@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0"])
def test_a_file_that_was_being_made(directory: str, size: int) -> None:
    store = keyed_store()
    disk = killed(settled(store))
    path = join(ROOT, directory, format_start(8192 * 4 if directory == "commitlog" else QUEUE_FILE_SIZE))
    disk.put_file(path, bytes(size))
    all_there(recover(disk), store)
    assert not disk.exists(path)


@pytest.mark.parametrize("abort", [False, True])
def test_queues_that_are_gone_begin_where_the_log_does(abort: bool) -> None:
    store = keyed_store(150)
    disk = settled(store)
    first = sorted(store.data)[2]
    for start in sorted(store.data)[:2]:
        disk.remove(join(ROOT, "commitlog", format_start(start)))
    for path in paths(disk, "/consumequeue/"):
        disk.remove(path)
    if abort:
        killed(disk)
    found = recover(disk)
    kept = [[place for place in enumerate(store.offsets[queue_id::2]) if place[1] >= first] for queue_id in (0, 1)]
    assert [found.entries("T", queue_id) for queue_id in (0, 1)] == kept
    assert [queue.min_offset for queue in found.plan.queues] == [kept[queue_id][0][0] for queue_id in (0, 1)]
    blank = QUEUE_ENTRY.struct.pack(0, PRE_BLANK_SIZE, 0)
    assert disk.image()[paths(disk, "/consumequeue/T/0")[0]].startswith(blank)


def test_a_record_of_another_place_is_no_record() -> None:
    """A file that was used before: old records with right magic and CRC stand after the end, at other offsets."""
    store = keyed_store(20)
    disk = killed(settled(store))
    stale = bytes(keyed_store(6).data[0][: keyed_store(6).end])
    store.change(store.end, stale)
    lay_log(disk, store)
    found = recover(disk)
    assert found.plan.log_end == store.end
    all_there(found, store)


def test_nothing_speaks_of_more_than_the_log() -> None:
    store = keyed_store()
    disk = with_checkpoint(killed(settled(store)), confirm_offset=10**9)
    found = recover(disk)
    assert found.parts.checkpoint.values.confirm_offset == store.end
    assert max(queue.max_physical for queue in found.parts.queues.queues()) == store.end
    assert found.parts.index is not None
    assert found.parts.index.end_offset < store.end


@pytest.mark.parametrize("shift_ms", [25 * 365 * DAY_MS, -25 * 365 * DAY_MS, -3_600_000])
def test_a_clock_that_jumped(shift_ms: int) -> None:
    """A stretch of the log has times far off; afterwards the clock is right again."""
    store = keyed_store(60)
    for number in range(60, 150):
        at_ms = FIRST_MS + 1000 * number + (shift_ms if number < 100 else 0)
        names = {"UNIQ_KEY": f"U{number}"}
        store.add("T", number % 2, properties=names, store_timestamp=at_ms)
    for disk in (killed(settled(store)), settled(store)):
        all_there(recover(disk), store)
        assert derived(disk) == rebuilt(disk)


def test_a_checkpoint_from_the_future_answers_for_nothing() -> None:
    store = keyed_store(120)
    late_ms = FIRST_MS + 30 * 365 * DAY_MS
    disk = with_checkpoint(
        killed(settled(keyed_store(60))),
        physic_timestamp_ms=late_ms, logics_timestamp_ms=late_ms, index_timestamp_ms=late_ms,
    )  # fmt: skip
    lay_log(disk, store)
    found = recover(disk)
    all_there(found, store)
    assert found.plan.scan_start == 0
    assert found.parts.checkpoint.values.physic_timestamp_ms == FIRST_MS + 119_000


@pytest.mark.parametrize("index_ms", [0, FIRST_MS, FIRST_MS + 15_000, FIRST_MS + 25_000, FIRST_MS + 119_000])
def test_every_key_is_found_after_a_kill(index_ms: int) -> None:
    """Index files hold parts of records' keys; those newer than the checkpoint go."""
    store = keyed_store(120)
    disk = with_checkpoint(killed(settled(store)), index_timestamp_ms=index_ms)
    assert len(paths(disk, "/index/")) > 5
    found = recover(disk)
    all_there(found, store)
    assert derived(disk) == rebuilt(disk)


@pytest.mark.parametrize("abort", [False, True])
def test_a_lost_index_is_built_again(abort: bool) -> None:
    store = keyed_store(120)
    for lost in (slice(None), slice(3, None), slice(-1, None)):
        disk = settled(store)
        for path in paths(disk, "/index/")[lost]:
            disk.remove(path)
        if abort:
            killed(disk)
        all_there(recover(disk), store)
        assert derived(disk) == rebuilt(disk)


@pytest.mark.parametrize(
    "place", [8, 24, 36, HEADER.size + 4, HEADER.size + 16 * 4 + 20 + 8, HEADER.size + 16 * 4 + 36]
)
@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_damaged_index_file_is_built_again(number: int, place: int) -> None:
    store = keyed_store(60)
    disk = killed(settled(store))
    path = paths(disk, "/index/")[number]
    data = bytearray(disk.image()[path])
    data[place + 3] ^= 0x55
    disk.put_file(path, bytes(data))
    all_there(recover(disk), store)
    assert derived(disk) == rebuilt(disk)


def test_a_missing_file_in_the_middle() -> None:
    store = keyed_store(120)
    gone = sorted(store.data)[-2]
    disk = settled(store)
    disk.remove(join(ROOT, "commitlog", format_start(gone)))
    with pytest.raises(Corrupt, match="commitlog files are missing"):
        recover(disk)
    made = plan(disk, on_middle_damage="cut")
    assert f"no commitlog file holds {gone} to {gone + 4096}" in made.warnings
    assert made.log_end == gone
    recover(disk, on_middle_damage="cut")
    assert derived(disk) == rebuilt(disk)


def test_a_file_that_is_missing_before_what_is_read() -> None:
    """Opening the store loses nothing more: both sides stay, and it is told."""
    store = keyed_store(120)
    gone = sorted(store.data)[-2]
    disk = killed(settled(store))
    disk.remove(join(ROOT, "commitlog", format_start(gone)))
    found = recover(disk)
    assert found.plan.warnings == (f"no commitlog file holds {gone} to {gone + 4096}",)
    all_there(found, store)


def test_no_log_at_all() -> None:
    disk = settled(keyed_store())
    for path in paths(disk, "/commitlog/"):
        disk.remove(path)
    with pytest.raises(Corrupt, match="there is no commitlog file"):
        plan(disk)
    found = recover(disk, on_middle_damage="cut")
    assert found.plan.log_end == 0
    assert derived(disk) == {}
    assert found.parts.queues.next_offsets() == {}


@pytest.mark.parametrize(("name", "size", "reason"), [
    (0, 4095, "4095 bytes"), (0, 5000, "5000 bytes"), (None, 4096, "no multiple of 4096"),
])  # fmt: skip
def test_log_files_that_nobody_writes(name: int | None, size: int, reason: str) -> None:
    disk = settled(keyed_store())
    disk.put_file(join(ROOT, "commitlog", format_start(1000 if name is None else name)), b"x" * size)
    with pytest.raises(Corrupt, match=reason):
        plan(disk)


def test_a_log_file_that_lost_its_last_byte_gets_it_back() -> None:
    store = keyed_store()
    disk = settled(store)
    path = paths(disk, "/commitlog/")[-1]
    whole = disk.image()[path]
    disk.put_file(path, whole[:-1])
    assert plan(disk).log_resized[0].new_size == 4096
    all_there(recover(disk), store)
    assert disk.image()[path] == whole


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("change", ["short", "gap"])
def test_queue_files_that_cannot_be_used(change: str, abort: bool) -> None:
    store = keyed_store(6 * QUEUE_FILE_ENTRIES)
    disk = settled(store)
    first, second, _ = paths(disk, "/consumequeue/T/1/")
    if change == "short":
        disk.put_file(second, disk.image()[second][:-20])
    else:
        disk.remove(second)
    if abort:
        killed(disk)
    found = recover(disk)
    all_there(found, store)
    assert disk.exists(first)
    assert derived(disk) == rebuilt(disk)


@pytest.mark.parametrize("field", ["physical_offset", "size"])
def test_a_damaged_queue_entry_is_written_again(field: str) -> None:
    store = keyed_store(40)
    disk = settled(store)
    path = paths(disk, "/consumequeue/T/0/")[0]
    for slot in (0, 7, 19):
        data = bytearray(disk.image()[path])
        data[slot * 20 + QUEUE_ENTRY.offset[field] + 3] ^= 0x10
        disk.put_file(path, bytes(data))
        all_there(recover(disk), store)
        assert derived(disk) == rebuilt(disk)
        mark_closed(disk, ROOT)


def test_damage_in_the_middle_is_refused_or_cut() -> None:
    store = keyed_store()
    damaged = store.offsets[-5]
    store.change(damaged + 95, b"\xff")
    for disk in (settled(keyed_store()), killed(settled(keyed_store()))):
        lay_log(disk, store)
        before = disk.image()
        with pytest.raises(Corrupt) as refusal:
            recover(disk)
        assert refusal.value.path == join(ROOT, "commitlog", format_start(damaged - damaged % 4096))
        assert refusal.value.offset == damaged % 4096
        assert f"the next sound record is at {store.offsets[-4]}" in refusal.value.reason
        assert disk.image() == before
        found = recover(disk, on_middle_damage="cut")
        assert found.plan.dropped_from == store.offsets[-4]
        all_there(found, store, -5)
        assert derived(disk) == rebuilt(disk)


def test_the_last_record_of_a_clean_store_is_not_given_up_silently() -> None:
    """A queue entry knows of it; of a tail that no entry knows the writer had not finished, it is made zero."""
    store = keyed_store()
    store.change(store.offsets[-1] + 95, b"\xff")
    disk = settled(keyed_store())
    lay_log(disk, store)
    with pytest.raises(Corrupt, match="an entry points there though the exit was clean"):
        plan(disk)
    disk = settled(keyed_store(59))
    lay_log(disk, store)
    found = recover(disk)
    all_there(found, store, -1)
    assert found.plan.zeroed is not None


@pytest.mark.parametrize("abort", [False, True])
def test_a_blank_at_the_end_of_the_last_file(abort: bool) -> None:
    """The next file is gone, or was not made: the log ends with the file, and stays so."""
    store = keyed_store(20)
    disk = settled(store)
    end, room = store.end, 4096 - store.end % 4096
    store.append(BLANK.struct.pack(room, MAGIC_BLANK))
    lay_log(disk, store)
    if abort:
        killed(disk)
    found = recover(disk)
    assert found.plan.log_end == end + room
    all_there(found, store)
    mark_closed(disk, ROOT)
    assert plan(disk).changes_nothing


def test_files_made_in_advance_go() -> None:
    store = keyed_store(20)
    disk = killed(settled(store))
    for start in (4096, 8192):
        disk.put_file(join(ROOT, "commitlog", format_start(start)), bytes(4096))
    found = recover(disk)
    assert found.parts.log.starts == [0]
    assert [file.path[-5:] for file in found.plan.log_removed] == ["08192", "04096"]


def test_a_log_that_holds_nothing_keeps_its_place() -> None:
    disk = MemoryDisk()
    for start in (8192, 12288):
        disk.put_file(join(ROOT, "commitlog", format_start(start)), bytes(10) + b"garbage" + bytes(4079))
    killed(disk)
    with pytest.raises(Corrupt, match="not one sound record"):
        plan(disk)
    found = recover(disk, on_middle_damage="cut")
    assert (found.plan.log_start, found.plan.log_end) == (8192, 8192)
    assert found.parts.log.starts == [8192]
    assert not any(disk.image()[join(ROOT, "commitlog", format_start(8192))])


def first_record(size: int = 1500) -> bytes:
    """A commitlog file that begins with one record of some sectors."""
    store = SmallStore()
    store.add("T", 0, body=b"b" * size)
    return bytes(store.data[0])


def without_sector(data: bytes, number: int) -> bytes:
    return data[: number * 512] + bytes(512) + data[(number + 1) * 512 :]


TEARS = {
    "its head": lambda data: without_sector(data, 0),
    "its middle": lambda data: without_sector(data, 1),
    "its end": lambda data: data[:1024] + bytes(len(data) - 1024),
    "bytes of its last sector": lambda data: data[:1400] + bytes(len(data) - 1400),
}


@pytest.mark.parametrize("tear", TEARS)
def test_a_first_record_that_a_power_cut_tore_is_cut(tear: str) -> None:
    disk = MemoryDisk()
    disk.put_file(join(ROOT, "commitlog", format_start(0)), TEARS[tear](first_record()))
    killed(disk)
    made = plan(disk)
    assert "the first record was torn by a power cut" in made.end_reason
    assert "the first record was torn by a power cut" in " ".join(" ".join(made.lines()).split())
    recover(disk)
    assert not any(disk.image()[join(ROOT, "commitlog", format_start(0))])


@pytest.mark.parametrize("lost", [512, 1024, 3072])
def test_a_first_record_that_reaches_into_the_last_sector_of_its_file_is_cut(lost: int) -> None:
    store = SmallStore(file_size=4096)
    store.add("T", 0, body=b"b" * 3500)
    disk = killed(lay(store))
    path = join(ROOT, "commitlog", format_start(0))
    data = disk.image()[path]
    assert any(data[-512:])
    disk.put_file(path, bytes(lost) + data[lost:])
    for name in list(disk.image()):
        if "consumequeue" in name:
            disk.remove(name)
    assert "the first record was torn by a power cut" in plan(disk).end_reason


NOT_TORN = {
    "a flipped bit": lambda data: data[:600] + bytes([data[600] ^ 1]) + data[601:],
    "text": lambda data: (b"user data\n" * 1000)[: len(data)],
    "text behind an empty sector": lambda data: bytes(512) + (b"user data\n" * 1000)[: len(data) - 512],
    "text that ends early": lambda data: b"user data\n".ljust(len(data), b"\0"),
    "entries of a queue": lambda data: struct.pack(">qiq", 0, 100, 7).ljust(len(data), b"\0"),
    "a record of another place": lambda data: data[:35] + b"\x09" + bytes(len(data) - 36),
}


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("what", NOT_TORN)
def test_bytes_and_not_one_sound_record_are_cut_only_when_told_to(what: str, is_killed: bool) -> None:
    disk = MemoryDisk()
    disk.put_file(join(ROOT, "commitlog", format_start(0)), NOT_TORN[what](first_record()))
    if is_killed:
        killed(disk)
    before = disk.image()
    with pytest.raises(Corrupt, match=r"not one sound record is in the log.*recover --cut"):
        plan(disk)
    assert disk.image() == before
    made = plan(disk, on_middle_damage="cut")
    assert "not one sound record is in the log" in made.end_reason
    assert made.zeroed is not None
    recover(disk, on_middle_damage="cut")
    assert not any(disk.image()[join(ROOT, "commitlog", format_start(0))])


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_only_record_is_damage_where_messages_were_on_the_disk(tear: str) -> None:
    """After a clean exit, or with a checkpoint that answers for what is not there any more."""
    for flushed_ms in (0, FIRST_MS):
        disk = MemoryDisk()
        disk.put_file(join(ROOT, "commitlog", format_start(0)), TEARS[tear](first_record()))
        if flushed_ms:
            times = Checkpoint(physic_timestamp_ms=flushed_ms, logics_timestamp_ms=flushed_ms)
            disk.put_file(join(ROOT, "checkpoint"), encode_checkpoint(times))
            killed(disk)
        with pytest.raises(Corrupt, match="not one sound record"):
            plan(disk)


def notes_once(disk: MemoryDisk, begin: int) -> None:
    """After a crash nothing is known of the topic's other queues; the next opening notes the deletion, and only it."""
    mark_closed(disk, ROOT)
    found = plan(disk)
    assert found.deleted_topics == (("T", DeletedTopic(begin)),)
    assert replace(found, notes_deleted=False).changes_nothing
    recover(disk)
    mark_closed(disk, ROOT)
    assert plan(disk).changes_nothing


@pytest.mark.parametrize("abort", [False, True])
def test_a_topic_that_was_deleted_and_made_again(abort: bool) -> None:
    """Old messages of the same queue stand in the log; they do not come into the new queue."""
    store = SmallStore()
    for _ in range(12):
        store.add("T", 0)
    store.entries.clear()
    store.next_offsets.clear()
    again = [store.add("T", 0, properties={"UNIQ_KEY": f"N{number}"}) for number in range(20)]
    disk = killed(lay(store))
    found = recover(disk)
    assert found.entries("T", 0) == list(enumerate(again))
    notes_once(disk, again[0])
    if abort:
        killed(disk)
    assert recover(disk).entries("T", 0) == list(enumerate(again))
    assert derived(disk) == rebuilt(disk)


def remade(count: int, behind: int, *, dispatched: bool) -> tuple[SmallStore, list[int]]:
    """A topic with 12 messages was deleted, and has `count` again; `behind` of another topic come last."""
    store = SmallStore()
    for _ in range(12):
        store.add("T", 0)
    store.entries.clear()
    store.next_offsets.clear()
    again = [store.add("T", 0, dispatched=dispatched, properties={"UNIQ_KEY": f"N{at}"}) for at in range(count)]
    for _ in range(behind):
        store.add("other", 0)
    return store, again


@pytest.mark.parametrize("behind", [0, 1, 9])
@pytest.mark.parametrize("count", [1, 2])
def test_a_single_message_of_a_topic_that_was_made_again_before_a_crash_stays(count: int, behind: int) -> None:
    """An entry of its queue agrees with it."""
    store, again = remade(count, behind, dispatched=True)
    disk = killed(lay(store))
    found = recover(disk)
    assert found.plan.log_end == store.end
    assert found.entries("T", 0) == list(enumerate(again))
    notes_once(disk, again[0])


@pytest.mark.parametrize("behind", [0, 1, 9])
def test_a_single_message_that_may_be_of_a_topic_made_again_is_nobodys_to_cut(behind: int) -> None:
    store, again = remade(1, behind, dispatched=False)
    disk = killed(lay(store))
    with pytest.raises(Corrupt, match=r"T/0 is at queue offset 12, and one record says 0: .* deleted and made again"):
        recover(disk)
    found = recover(disk, on_middle_damage="cut")
    assert found.plan.log_end == store.end
    assert found.entries("T", 0) == list(enumerate(again))


def test_a_topic_that_was_made_again_twice_with_one_message_each() -> None:
    store, _ = remade(1, 3, dispatched=False)
    store.entries.clear()
    store.next_offsets.clear()
    again = [store.add("T", 0), store.add("T", 0)]
    disk = killed(lay(store))
    assert recover(disk).entries("T", 0) == list(enumerate(again))


def test_a_deleted_topic_does_not_make_it_read_everything() -> None:
    store = SmallStore()
    for number in range(150):
        store.add("Gone" if number % 3 else "T", 0, dispatched=number % 3 == 0)
    disk = killed(lay(store, checkpoint=Checkpoint(FIRST_MS + 149_000, FIRST_MS + 149_000, FIRST_MS)))
    assert plan(disk).scan_start == 0  # nobody says that the topic is gone: its queue may be lost
    disk.put_file(
        join(ROOT, "config", "topics.json"),
        json.dumps(
            {"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}}
        ).encode(),
    )
    assert plan(disk).scan_start == max(store.data)


def test_a_queue_offset_that_lies() -> None:
    """One record says a queue offset far off.  As the last one it is given up like a torn one; before others it is
    damage."""
    store = keyed_store(40)
    for victim, refused in ((39, False), (30, True)):
        changed = keyed_store(40)
        place = store.offsets[victim] + HEAD.offset["queue_offset"]
        changed.change(place, (victim // 2 ^ 64).to_bytes(8, "big"))
        disk = killed(settled(store))
        lay_log(disk, changed)
        if refused:
            with pytest.raises(Corrupt, match=f"the record says queue offset {victim // 2 ^ 64} of T/0"):
                recover(disk)
        found = recover(disk, on_middle_damage="cut")
        assert found.plan.log_end == store.offsets[victim]
        all_there(found, store, victim)


def test_queue_offsets_that_jump_are_refused_or_begin_anew() -> None:
    store = keyed_store(20)
    store.next_offsets["T", 0] += 5
    later = [store.add("T", 0, dispatched=False) for _ in range(4)]
    disk = killed(settled(keyed_store(20)))
    lay_log(disk, store)
    with pytest.raises(Corrupt, match="the queue offsets of T/0 jump from 10 to 15"):
        recover(disk)
    found = recover(disk, on_middle_damage="cut")
    assert found.entries("T", 0) == list(enumerate(later, 15))
    assert len(found.entries("T", 1)) == 10
    assert [(each.topic, each.count) for each in found.plan.unqueued] == [("T", 10)]
    assert "lose 10 sound messages stay in the log and are in no queue" in " ".join(
        " ".join(found.plan.lines()).split()
    )
    mark_closed(disk, ROOT)
    assert plan(disk).changes_nothing  # it is said once
    again = recover(killed(disk))
    assert again.entries("T", 0) == list(enumerate(later, 15))
    assert again.plan.unqueued == ()


def test_shifted_entries_are_put_right() -> None:
    """RocketMQ, started without the newest entries of a queue, puts the next one at the wrong place."""
    store = keyed_store(40)
    disk = settled(store)
    entries = store.entries["T", 0]
    lay_queue(disk, "T", 0, b"".join([*entries[:15], entries[19]]))
    all_there(recover(disk), store)
    assert derived(disk) == rebuilt(disk)


def test_light_queues_are_only_held_against_the_end() -> None:
    store = keyed_store(40)
    disk = killed(settled(store))
    entry = QUEUE_ENTRY.struct.pack
    lay_queue(disk, "%LMQ%x", 0, entry(store.offsets[3], 100, 0) + entry(store.end + 5, 100, 0))
    found = recover(disk)
    assert found.entries("%LMQ%x", 0) == [(0, store.offsets[3])]
    assert found.plan.warnings == ()


def test_sizes_come_from_the_files() -> None:
    store = keyed_store()
    disk = killed(settled(store))
    other = {"log_file_size": 1 << 20, "queue_file_size": 4000, "index_slot_count": 7, "index_item_count": 9}
    found = recover(disk, **other)
    assert found.plan.index_sizes == (16, 40)
    assert (found.parts.log.file_size, found.parts.queue_file_size) == (4096, QUEUE_FILE_SIZE)
    all_there(found, store)


def test_an_index_that_is_switched_off_is_left_alone() -> None:
    store = keyed_store()
    disk = killed(settled(store))
    before = {path: data for path, data in disk.image().items() if "/index/" in path}
    found = recover(disk, index_enabled=False)
    assert found.parts.index is None
    assert {path: data for path, data in disk.image().items() if "/index/" in path} == before


def test_the_plan_is_for_people_and_programs() -> None:
    store = keyed_store(120)
    disk = killed(settled(store))
    store.add("T", 0, body=b"x" * 200)
    store.change(store.offsets[-1] + 100, bytes(100))
    lay_log(disk, store)
    made = plan(disk)
    assert max(map(len, made.lines())) <= 80
    text = " ".join(" ".join(made.lines()).split())
    for part in ("not clean: the file abort is there", "T/1: entries", "dispatch", "zero"):
        assert part in text
    document = json.loads(json.dumps(made.as_dict()))
    assert document["logEnd"] == store.offsets[-1] == made.log_end
    assert document["queues"][0]["topic"] == "T"
    assert not document["changesNothing"]
    assert hash(made) == hash(plan(disk))
    assert made == plan(disk)


def test_what_a_cut_gives_up_is_told_by_topic_with_its_times() -> None:
    store = keyed_store(60)
    for number in range(30):
        store.add("UV"[number % 2], 0, body=b"%d" % number)
    disk = settled(store)
    gone = 50
    store.change(store.offsets[gone] + HEAD.offset["body_crc"], b"\x01")
    lay_log(disk, store)
    made = plan(disk, on_middle_damage="cut")
    at = [FIRST_MS + 1000 * number for number in range(90)]
    assert made.lost == (
        LostMessages("T", 9, at[51], at[59]),
        LostMessages("U", 15, at[60], at[88]),
        LostMessages("V", 15, at[61], at[89]),
    )
    text = " ".join(" ".join(made.lines()).split())
    for part in (
        f"lose 39 sound messages stand after the end, the first at {store.offsets[51]}, and go",
        "lose U: 15, stored 2023-11-14T22:14:20Z to 2023-11-14T22:14:48Z",
        "queues 2 afterwards; 4 lose entries, 0 get missing ones",
        "cut T/0: entries 25 to 30; then it ends at 25",
        "cut U/0: entries 0 to 15; the queue goes",
        "checkpoint written again, with times up to 2023-11-14T22:14:09Z",
    ):
        assert part in text
    assert made.as_dict()["lost"][0] == {"topic": "T", "count": 9, "firstMs": at[51], "lastMs": at[59]}


def test_entries_that_are_written_again_are_not_called_cut() -> None:
    store = keyed_store(120)
    text = " ".join(" ".join(plan(killed(settled(store))).lines()).split())
    assert "0 lose entries, 2 get missing ones or are made again" in text
    assert "rewrite T/0: entries" in text


def test_doing_it_twice_changes_no_byte() -> None:
    store = keyed_store(120)
    disk = killed(settled(keyed_store(100)))
    lay_log(disk, store)
    made = recover(disk).plan
    once = disk.image()
    recover(disk)
    assert disk.image() == once
    from rmqstore.clock import ManualClock
    from rmqstore.config import StoreConfig
    from tests.log.recovering import SIZES

    apply(made, open_parts(disk, made, StoreConfig(**SIZES), ManualClock()))
    assert disk.image() == once
    mark_closed(disk, ROOT)
    assert plan(disk).changes_nothing
    assert image(disk)["/store/checkpoint"] == once["/store/checkpoint"]


def test_many_queues_in_one_scan() -> None:
    rng = np.random.default_rng(7)
    store = SmallStore(file_size=65536)
    for _ in range(600):
        store.add(f"T{rng.integers(5)}", int(rng.integers(40)), body=b"")
    disk = lay(store, abort=True)
    found = recover(disk)
    assert found.parts.queues.next_offsets() == store.next_offsets == found.plan.next_offsets()
