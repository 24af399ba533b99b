"""Exactly-once batches: parts, intents, what is settled how, and what is swept.  Crashes at any point: tests/crash."""

import json
import re
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetStatus, Message
from rmqstore.engine.log.encode import columns
from rmqstore.engine.log.encode.dispatch_rows import DispatchRows
from rmqstore.engine.log.encode.queue_choice import QueueChoice
from rmqstore.engine.log.put.appender import record_form
from rmqstore.engine.log.staging import committed_batches, staged_parts
from rmqstore.engine.log.staging.committed_batches import (
    committed_batch,
    pending_intents,
    record_committed,
    staging_directory,
)
from rmqstore.engine.log.staging.staged_parts import PartWriter, read_part
from rmqstore.engine.log.staging.sweep import ABANDONED_MS, sweep
from rmqstore.engine.store import open_store
from rmqstore.errors import Corrupt, NotAStore, NotNow, Rejected, StoreInUse
from rmqstore.formats import sink_files
from rmqstore.formats.sink_files import BatchIntent, CommittedBatch, StagedPart
from rmqstore.sink import Batch, BatchInDoubt, append_once, discard, overwrite_once, settle_store, stage_part
from tests.crash.disks import CrashAt, MemoryDisk, PowerCut
from tests.crash.unaware import unaware
from tests.log.encode.one_block import record_columns

ROOT = "/store"
CONFIG = StoreConfig(log_file_size=4096, queue_file_size=200, index_slot_count=5, index_item_count=9, preallocate=False)
INTENT = f"{ROOT}/sink/w/intent.json"


def rows(*bodies: str, **columns) -> pa.RecordBatch:
    topics = pa.array(["orders"] * len(bodies), pa.string())
    return pa.record_batch(
        {"topic": topics, "body": pa.array([body.encode() for body in bodies], pa.binary())} | columns
    )


def staged(fs, batch_id: int, *parts: pa.RecordBatch, writer: str = "w", config=CONFIG, queues: int = 1) -> Batch:
    done = []
    for partition, part in enumerate(parts):
        task = stage_part(ROOT, (writer, batch_id), (partition, 0), config, queues, clock=ManualClock(), filesystem=fs)
        task.add(part)
        done.append(task.finish())
    return Batch(writer, batch_id, tuple(done))


def append(fs, batch: Batch, config=CONFIG) -> bool:
    return append_once(ROOT, batch, config, clock=ManualClock(), filesystem=fs)


def opened(fs, config=CONFIG):
    return open_store(ROOT, config, clock=ManualClock(), filesystem=fs, workers=False)


def bodies(fs, config=CONFIG) -> list[str]:
    """Every message's body, in the order of the log."""
    found = []
    with opened(fs, config) as store:
        for topic, queue_id in store.queues():
            offset = 0
            while (answer := store.get(topic, queue_id, offset)).status is GetStatus.FOUND:
                found += [(each.physical_offset, each.body.decode()) for each in answer.messages]
                offset += len(answer.messages)
    return [body for _, body in sorted(found)]


def cut_short(fs: MemoryDisk, batch: Batch, writes: int) -> MemoryDisk:
    """The disk of a writer that ended behind so many writes of this batch into the log."""
    counter = CrashAt(fs.crash("killed"))
    counter.trace = []
    append(counter, batch)
    log = [each.number for each in counter.trace if each.verb == "write" and "/commitlog/" in each.path]
    image = fs.crash("killed")
    with pytest.raises(PowerCut):
        append(CrashAt(image, log[writes]), batch)
    assert image.exists(INTENT)
    return image.crash("killed")


def test_a_batch_is_added_once():
    disk = MemoryDisk()
    assert append(disk, staged(disk, 0, rows("a", "b"), rows("c")))
    assert not append(disk, staged(disk, 0, rows("a", "b"), rows("c")))
    assert append(disk, staged(disk, 1, rows("d")))
    assert not append(disk, staged(disk, 0, rows("x")))
    assert bodies(disk) == ["a", "b", "c", "d"]
    assert committed_batch(disk, ROOT, "w") == CommittedBatch("w", 1, 1, True)
    assert [entry.name for entry in disk.entries(f"{ROOT}/sink/w")] == ["committed.json"]


def test_a_batch_counts_when_its_messages_are_on_the_disk(monkeypatch: pytest.MonkeyPatch):
    disk = MemoryDisk()
    lost: list[MemoryDisk] = []

    def record(*given: object) -> None:
        lost.append(disk.crash("lost"))
        record_committed(*given)

    monkeypatch.setattr(committed_batches, "record_committed", record)
    assert append(disk, staged(disk, 0, rows("first body"), rows("x" * 3000), rows("last body" * 300)))
    (image,) = lost
    log = b"".join(data for path, data in sorted(image.image().items()) if "/commitlog/" in path)
    assert [body in log for body in (b"first body", b"x" * 3000, b"last body" * 300)] == [True] * 3


def test_writers_do_not_know_of_each_other():
    disk = MemoryDisk()
    assert append(disk, staged(disk, 5, rows("a")))
    assert append(disk, staged(disk, 5, rows("b"), writer="other"))
    assert bodies(disk) == ["a", "b"]


def test_an_empty_batch_is_one():
    disk = MemoryDisk()
    assert append(disk, staged(disk, 0, rows()))
    assert not append(disk, staged(disk, 0, rows("late")))
    assert bodies(disk) == []


def test_only_the_parts_that_are_named_are_added():
    """Two attempts ran at one partition, as with speculation: one of them counts."""
    disk = MemoryDisk()
    first = stage_part(ROOT, ("w", 0), (0, 1), CONFIG, 1, filesystem=disk)
    second = stage_part(ROOT, ("w", 0), (0, 2), CONFIG, 1, filesystem=disk)
    for task in (first, second):
        task.add(rows("a", "b"))
    first.finish()
    assert append(disk, Batch("w", 0, (second.finish(),)))
    assert bodies(disk) == ["a", "b"]
    assert not disk.exists(staging_directory(ROOT, "w", 0))


def test_a_job_leaves_nothing_behind():
    disk = MemoryDisk()
    batch = staged(disk, 0, rows("a"))
    assert append(disk, replace(batch, is_lasting=False))
    assert not disk.exists(f"{ROOT}/sink")
    assert bodies(disk) == ["a"]


@pytest.mark.parametrize("crc", [False, True])
def test_a_part_is_read_as_it_was_written(crc: bool):
    config = replace(CONFIG, append_property_crc=crc)
    table = pa.record_batch(
        {
            "topic": ["orders", "refunds", "orders"],
            "body": [b"one", b"", b"three"],
            "queueId": pa.array([1, 0, 1], pa.int32()),
            "sysFlag": pa.array([0, 4, 8], pa.int32()),  # of no transaction, prepared, committed
            "bornHost": ["127.0.0.1:1", "[::1]:2", None],
        }
    )
    encoded = record_columns(table, record_form(config), 77)
    disk = MemoryDisk()
    writer = PartWriter(disk, "/s", 3, 9)
    writer.add(encoded)
    writer.add(encoded)
    part = writer.finish()
    assert (part.partition, part.attempt, part.row_count, part.record_size) == (3, 9, 6, 2 * len(encoded.data))
    first, second = read_part(disk, "/s", part)
    for found in (first, second):
        assert found.data.tobytes() == encoded.data.tobytes()
        assert found.queues == encoded.queues
        bases = encoded.bases(0, 3, {("orders", 1): 5})
        stamps = [each.stamp(0, 3, bases, 1000, 7).tobytes() for each in (found, encoded)]
        assert stamps[0] == stamps[1]
        encoded = record_columns(table, record_form(config), 77)


KEYS = [f"k{number % 7} k{number}" for number in range(300)]
PARTS = [
    rows(*KEYS, keys=KEYS, tags=["T", None, "Ü"] * 100),
    rows("x", sysFlag=pa.array([4], pa.int32())),  # prepared: in no queue
    rows("y"),
]


def test_queues_and_index_are_those_that_the_log_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks say what their rows give."""
    found = derived_files(MemoryDisk(), PARTS)
    assert sum("/index/" in path for path in found) > 3
    monkeypatch.setattr(columns, "dispatch_items", lambda _: None)
    assert derived_files(MemoryDisk(), PARTS) == found


@pytest.mark.parametrize("failure", [Corrupt("part", 0, "damaged"), FileNotFoundError(2, "gone")])
def test_parts_that_are_damaged_or_gone_after_the_commit_are_not_needed(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = derived_files(MemoryDisk(), PARTS)
    read_again, due = staged_parts._dispatch_rows, [failure]

    def failing(fs: MemoryDisk, path: str, position: int) -> DispatchRows:
        if due:
            raise due.pop()
        return read_again(fs, path, position)

    monkeypatch.setattr(staged_parts, "_dispatch_rows", failing)
    assert derived_files(MemoryDisk(), PARTS) == wanted
    assert not due


def derived_files(disk: MemoryDisk, parts: list[pa.RecordBatch]) -> dict[str, bytes]:
    """The queue and index files after a commit of rows."""
    assert append(disk, staged(disk, 0, *parts))
    with open_store(ROOT, CONFIG, clock=ManualClock(), filesystem=disk, workers=False):
        pass
    content = disk.image()
    return {path: data for path, data in content.items() if "/consumequeue/" in path or "/index/" in path}


@pytest.mark.parametrize("damage", ["cut", "front", "data", "gone"])
def test_a_damaged_part_is_refused_and_nothing_is_added(damage: str):
    disk = MemoryDisk()
    append(disk, staged(disk, 0, rows("old")))
    batch = staged(disk, 1, rows("a", "b"))
    path = f"{staging_directory(ROOT, 'w', 1)}/{batch.parts[0].name}"
    file = disk.open(path)
    if damage == "gone":
        disk.remove(path)
    elif damage == "cut":
        file.truncate(file.size() - 1)
    else:
        at = 40 if damage == "front" else file.size() - 2
        file.write(at, bytes([file.read(at, 1)[0] ^ 1]))
    with pytest.raises(Corrupt, match="part-00000-0"):
        append(disk, batch)
    assert not pending_intents(disk, ROOT)
    assert bodies(disk) == ["old"]


def in_blocks(disk: MemoryDisk, block_count: int) -> Batch:
    """A batch of one part, three rows a block, numbered through."""
    task = stage_part(ROOT, ("w", 0), (0, 0), CONFIG, 1, clock=ManualClock(), filesystem=disk)
    for number in range(0, block_count * 3, 3):
        task.add(rows(*map(str, range(number, number + 3))))
    return Batch("w", 0, (task.finish(),))


@pytest.mark.parametrize("ahead_from", [0, 1 << 30])
def test_parts_of_many_blocks(ahead_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_parts, "_READ_AHEAD_SIZE", ahead_from)
    disk = MemoryDisk()
    assert append(disk, in_blocks(disk, 50))
    assert bodies(disk) == [str(number) for number in range(150)]


@pytest.mark.parametrize("ahead_from", [0, 1 << 30])
@pytest.mark.parametrize("number", [0, 20, 49])
def test_a_message_that_is_damaged_in_its_part_leaves_no_doubt(
    number: int, ahead_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its block does not get into the log, where no CRC of a record covers it; what is there of the part goes again."""
    monkeypatch.setattr(staged_parts, "_READ_AHEAD_SIZE", ahead_from)
    disk = MemoryDisk()
    batch = in_blocks(disk, 50)
    file = disk.open(f"{staging_directory(ROOT, 'w', 0)}/{batch.parts[0].name}")
    whole = file.read(0, file.size())
    at = [found.start() for found in re.finditer(b"orders", whole)]
    file.write(at[-150:][number * 3] + 5, b"x")  # of the topic in the record, which no CRC of its own covers
    with pytest.raises(Corrupt, match="part-00000-0"):
        append(disk, batch)
    assert not pending_intents(disk, ROOT)
    assert bodies(disk) == []
    assert not [thread.name for thread in threading.enumerate() if "read-ahead" in thread.name]


@pytest.mark.parametrize("block_count", [1, 50])
def test_a_part_of_another_content_is_refused_before_all_of_it_is_in(block_count: int) -> None:
    disk = MemoryDisk()
    batch = in_blocks(disk, block_count)
    other = Batch("w", 0, (replace(batch.parts[0], checksum=batch.parts[0].checksum ^ 1),))
    with pytest.raises(Corrupt, match="were written"):
        append(disk, other)
    assert bodies(disk) == []
    assert append(disk, batch)
    assert bodies(disk) == [str(number) for number in range(block_count * 3)]


def test_whoever_opens_the_store_sees_the_batch_as_a_whole_or_not_at_all():
    disk = MemoryDisk()
    append(disk, staged(disk, 0, rows("old")))
    batch = staged(disk, 1, rows(*"abc"), rows("d" * 3000), rows("e" * 3000))
    image = cut_short(disk, batch, 2)
    settle_store(ROOT, CONFIG, clock=ManualClock(), filesystem=image)
    assert not image.exists(INTENT)
    assert bodies(image) == ["old"]


def test_messages_of_a_broker_behind_a_part_of_a_batch_are_for_an_operator():
    disk = MemoryDisk()
    append(disk, staged(disk, 0, rows("old")))
    batch = staged(disk, 1, rows(*"abc"), rows("d" * 3000), rows("e" * 3000))
    image = cut_short(disk, batch, 2)
    with unaware(image), opened(image) as store:
        store.put(Message("orders", b"of a broker"))
    before = image.image()
    with pytest.raises(BatchInDoubt, match="batch 1 is not whole") as caught:
        settle_store(ROOT, CONFIG, clock=ManualClock(), filesystem=image)
    assert INTENT in str(caught.value)
    with pytest.raises(BatchInDoubt):
        append(image, batch)
    changed = {path for path, content in image.image().items() if before.get(path) != content}
    assert changed <= {f"{ROOT}/abort", f"{ROOT}/lock"}
    image.remove(INTENT)
    assert bodies(image)[-1] == "of a broker"


def test_a_whole_batch_counts_though_a_broker_went_on_behind_it():
    disk = MemoryDisk()
    batch = staged(disk, 0, rows(*"abc"))
    counter = CrashAt(disk.crash("killed"))
    counter.trace = []
    append(counter, batch)
    at = next(each.number for each in counter.trace if each.path.endswith("committed.json.tmp"))
    with pytest.raises(PowerCut):
        append(CrashAt(disk, at), batch)
    disk = disk.crash("killed")
    with unaware(disk), opened(disk) as store:
        store.put(Message("orders", b"more"))
    assert not append(disk, batch)
    assert bodies(disk) == ["a", "b", "c", "more"]


def test_without_the_staged_parts_an_incomplete_batch_is_not_guessed_at():
    disk = MemoryDisk()
    batch = staged(disk, 0, rows(*"abc"), rows("d" * 3000, "e" * 3000))
    image = cut_short(disk, batch, 2)
    image.remove(f"{staging_directory(ROOT, 'w', 0)}/{batch.parts[1].name}")
    with pytest.raises(BatchInDoubt):
        settle_store(ROOT, CONFIG, clock=ManualClock(), filesystem=image)


def test_a_store_that_is_held_is_refused():
    disk = MemoryDisk()
    batch = staged(disk, 0, rows("a"))
    with opened(disk):
        for add in (append_once, overwrite_once):
            with pytest.raises(StoreInUse):
                add(ROOT, batch, CONFIG, clock=ManualClock(), filesystem=disk)
    assert append(disk, batch)


def test_a_full_disk_leaves_nothing_of_the_batch():
    disk = MemoryDisk()
    append(disk, staged(disk, 0, rows("old")))
    batch = staged(disk, 1, rows("d" * 3000), rows("e" * 3000))
    disk.free = 4000
    with pytest.raises(NotNow, match="nothing of it was added"):
        append(disk, batch)
    disk.free = 1 << 30
    assert bodies(disk) == ["old"]
    assert append(disk, batch)
    assert bodies(disk) == ["old", "d" * 3000, "e" * 3000]


def test_an_overwrite_is_a_new_store_and_keeps_what_writers_brought():
    disk = MemoryDisk()
    append(disk, staged(disk, 4, rows("old"), writer="stream"))
    batch = staged(disk, 0, rows("a"), rows("b"))
    assert overwrite_once(ROOT, batch, CONFIG, clock=ManualClock(), filesystem=disk)
    assert bodies(disk) == ["a", "b"]
    assert not overwrite_once(ROOT, batch, CONFIG, clock=ManualClock(), filesystem=disk)
    assert not append(disk, staged(disk, 4, rows("old"), writer="stream"))
    assert {entry.name for entry in disk.entries("/")} == {"store"}


@pytest.fixture
def cut_overwrite(monkeypatch: pytest.MonkeyPatch) -> MemoryDisk:
    """A store of "old" that was moved away for one of "new", which is whole and not in its place yet."""
    disk = MemoryDisk()
    append(disk, staged(disk, 4, rows("old"), writer="another"))
    batch = staged(disk, 0, rows("new"))
    rename = disk.rename

    def cut(source: str, target: str) -> None:
        if source.endswith("-new"):
            raise PowerCut
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "rename", cut)
        with pytest.raises(PowerCut):
            overwrite_once(ROOT, batch, CONFIG, clock=ManualClock(), filesystem=disk)
    assert not disk.exists(ROOT)
    return disk


def test_a_batch_that_is_staged_after_an_overwrite_was_cut_finds_the_new_store(cut_overwrite: MemoryDisk) -> None:
    assert append(cut_overwrite, staged(cut_overwrite, 0, rows("later"), writer="third"))
    assert bodies(cut_overwrite) == ["new", "later"]
    assert not cut_overwrite.exists(f"{ROOT}.rmqstore-old")


def test_an_overwrite_that_was_cut_and_comes_again_keeps_what_writers_brought(cut_overwrite: MemoryDisk) -> None:
    batch = staged(cut_overwrite, 0, rows("new"))
    assert not overwrite_once(ROOT, batch, CONFIG, clock=ManualClock(), filesystem=cut_overwrite)
    assert bodies(cut_overwrite) == ["new"]
    assert not append(cut_overwrite, staged(cut_overwrite, 4, rows("old"), writer="another"))


def test_what_was_made_in_the_place_of_a_cut_overwrite_costs_no_store(cut_overwrite: MemoryDisk) -> None:
    """A version of before could make it; the old store and the new one both stay until somebody has looked."""
    cut_overwrite.make_directories(f"{ROOT}/sink/w")
    for _ in range(2):
        with pytest.raises(NotAStore, match=r"was made while .* move it away"):
            settle_store(ROOT, CONFIG, filesystem=cut_overwrite)
    cut_overwrite.rename(ROOT, "/aside")
    settle_store(ROOT, CONFIG, filesystem=cut_overwrite)
    assert bodies(cut_overwrite) == ["new"]


def test_a_swap_that_somebody_else_completes_meanwhile_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    append(disk, staged(disk, 0, rows("old")))
    batch = staged(disk, 1, rows("new"))
    rename = disk.rename

    def overtaken(source: str, target: str) -> None:
        rename(source, target)
        if source.endswith("-new"):
            raise FileNotFoundError(source)

    monkeypatch.setattr(disk, "rename", overtaken)
    assert overwrite_once(ROOT, batch, CONFIG, clock=ManualClock(), filesystem=disk)
    assert bodies(disk) == ["new"]


def test_rows_for_light_queues_are_refused_where_there_are_some():
    config = replace(CONFIG, multi_dispatch=True)
    light = pa.array([[("INNER_MULTI_DISPATCH", "%LMQ%a")]], pa.map_(pa.string(), pa.string()))
    disk = MemoryDisk()
    assert append(disk, staged(disk, 0, rows("plain"), config=config), config)
    with pytest.raises(Rejected, match="put messages for them one by one"):
        append(disk, staged(disk, 1, rows("light", properties=light), config=config), config)
    assert bodies(disk, config) == ["plain"]
    other = MemoryDisk()
    assert append(other, staged(other, 0, rows("no light queues here", properties=light)))


def test_new_topics_get_into_the_table_of_topics():
    disk = MemoryDisk()
    append(disk, staged(disk, 0, rows("a", "b", "c"), queues=3))
    with opened(disk) as store:
        assert store.topics.find("orders").write_queue_nums >= 3


def test_the_sweep_takes_what_is_old_and_leaves_what_is_not():
    disk = MemoryDisk()
    for writer in ("gone", "busy", "job"):
        staged(disk, 3, rows("x"), writer=writer)
    record_committed(disk, ROOT, CommittedBatch("gone", 2, 1, True))
    record_committed(disk, ROOT, CommittedBatch("job", 2, 1, False))
    staged(disk, 8, rows("x"))
    staged(disk, 9, rows("x"))
    sweep(disk, ROOT, "w", 8, disk.now_ms + ABANDONED_MS)
    assert disk.exists(staging_directory(ROOT, "busy", 3))
    assert [entry.name for entry in disk.entries(f"{ROOT}/sink/w")] == ["batch-9"]
    sweep(disk, ROOT, "w", 8, disk.now_ms + ABANDONED_MS + 1)
    assert [entry.name for entry in disk.entries(f"{ROOT}/sink")] == ["gone", "w"]
    assert [entry.name for entry in disk.entries(f"{ROOT}/sink/gone")] == ["committed.json"]


def test_discarded_parts_are_gone():
    disk = MemoryDisk()
    batch = staged(disk, 0, rows("a"), rows("b"))
    discard(ROOT, ("w", 0), batch.parts, filesystem=disk)
    discard(ROOT, ("w", 0), batch.parts, filesystem=disk)
    assert not disk.exists(staging_directory(ROOT, "w", 0))


def test_parts_that_an_intent_needs_stay():
    disk = MemoryDisk()
    batch = staged(disk, 0, rows(*"abc"), rows("d" * 3000, "e" * 3000))
    image = cut_short(disk, batch, 2)
    discard(ROOT, ("w", 0), batch.parts, filesystem=image)
    sweep(image, ROOT, "other", 0, image.now_ms + ABANDONED_MS + 1)
    settle_store(ROOT, CONFIG, clock=ManualClock(), filesystem=image)
    assert bodies(image) == []


@pytest.mark.parametrize("writer", ["", "../x", ".hidden", "a/b", "a" * 129, "ü"])
def test_a_writer_must_be_able_to_name_a_directory(writer: str):
    with pytest.raises(Rejected, match="a writer is called by"):
        stage_part(ROOT, (writer, 0), (0, 0), CONFIG, 1, filesystem=MemoryDisk())
    with pytest.raises(Rejected, match="a writer is called by"):
        append(MemoryDisk(), Batch(writer, 0, ()))


INTENTION = BatchIntent("w", 3, 4096, True, False, (StagedPart(0, 1, 2, 3, 4, 5), StagedPart(1, 2, 3, 4, 5, 6)))


def test_intents_and_records_survive_their_files():
    assert BatchIntent.from_json(INTENTION.to_json()) == INTENTION
    committed = CommittedBatch("w", 2**62, 7, True)
    assert CommittedBatch.from_json(committed.to_json()) == committed


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"writer": "../x"}, {"writer": 1}, {"batch": -1}, {"batch": True}, {"start": 2**63},
     {"start": 1.0}, {"hasCrc": 1}, {"parts": [[1]]}, {"parts": [[0, 1, 2, 3, 4, -5]]}, {"parts": {}}],
    ids=str,
)  # fmt: skip
def test_what_no_writer_wrote_is_corrupt(change: dict):
    disk = MemoryDisk()
    disk.put_file(INTENT, json.dumps(json.loads(INTENTION.to_json()) | change).encode())
    with pytest.raises(Corrupt, match=r"intent\.json"):
        pending_intents(disk, ROOT)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_a_torn_record_is_corrupt(content: bytes):
    disk = MemoryDisk()
    disk.put_file(f"{ROOT}/sink/w/committed.json", content)
    with pytest.raises(Corrupt, match=r"committed\.json"):
        committed_batch(disk, ROOT, "w")


@pytest.mark.parametrize("field", ["magic", "flags", "row_count", "queues_size", "item_count", "data_size"])
@pytest.mark.parametrize("value", [-1, 0, 2**31 - 1])
def test_a_hostile_block_is_refused_before_anything_is_allocated(field: str, value: int):
    head = dict(zip(sink_files.BLOCK.names, (0x524D5142, 2, 1, 0, 0, 100, 0, 0), strict=True))
    data = sink_files.BLOCK.struct.pack(*(head | {field: value}).values())
    if (field, value) in {("flags", 0), ("queues_size", 0), ("item_count", 0), ("data_size", 0)}:
        assert sink_files.read_block_head(data, 1000).row_count == 1
        return
    with pytest.raises(ValueError, match="block"):
        sink_files.read_block_head(data, 1000)


def test_queues_are_chosen_by_column_by_key_and_in_turn():
    choice = QueueChoice(3, turn=1)
    assert choice.queued(rows(*"abcd"))["queueId"].to_pylist() == [1, 2, 0, 1]
    assert choice.queued(rows(*"ab"))["queueId"].to_pylist() == [2, 0]
    own = choice.queued(rows(*"ab", queueId=pa.array([7, 8], pa.int32())))
    assert own["queueId"].to_pylist() == [7, 8]
    some = choice.queued(rows(*"abc", queueId=pa.array([7, None, None], pa.int32()), keys=["k", "k", None]))
    # Java: "k".hashCode() is 107, 107 % 3 is 2.
    assert some["queueId"].to_pylist()[:2] == [7, 2]


def test_the_same_key_goes_to_the_queue_that_a_producer_chooses():
    keys = ["order-1", "", None, "Ünï", "order-1", "a" * 300]
    queued = QueueChoice(8).queued(rows(*"abcdef", keys=keys))["queueId"].to_pylist()

    def of_java(text: str) -> int:
        value = 0
        for unit in np.frombuffer(text.encode("utf-16-le"), "<u2").tolist():
            value = (value * 31 + unit) & 0xFFFFFFFF
        value -= 2**32 if value >= 2**31 else 0
        return abs(int(np.fmod(value, 8)))

    assert [queued[row] for row in (0, 3, 4, 5)] == [of_java(keys[row]) for row in (0, 3, 4, 5)]
    assert [queued[1], queued[2]] == [0, 1]
    lists = pa.array([["a", "b"], ["a b"], []], pa.list_(pa.string()))
    both = QueueChoice(1000).queued(rows(*"abc", keys=lists))["queueId"].to_pylist()
    assert both[0] == both[1] == of_java_mod("a b", 1000)


TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_keys_choose_the_same_queue_in_every_form(kind):
    plain = pa.array(["order-1", None, "order-2"], kind)
    lists = (pa.array([["order-1"], None, ["order-2"]], of(kind)) for of in (pa.list_, pa.large_list))
    for keys in (plain, *lists):
        queued = QueueChoice(1000).queued(rows(*"abc", keys=keys))["queueId"].to_pylist()
        assert queued == [of_java_mod("order-1", 1000), 0, of_java_mod("order-2", 1000)]


def test_keys_in_a_dictionary_of_views_choose_the_queue():
    names = pa.array(["order-1", "order-2"], pa.string_view())
    keys = pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), names)
    queued = QueueChoice(1000).queued(rows(*"abc", keys=keys))["queueId"].to_pylist()
    assert queued == [of_java_mod("order-1", 1000), 0, of_java_mod("order-2", 1000)]


def of_java_mod(text: str, count: int) -> int:
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    return abs(int(np.fmod(value - (2**32 if value >= 2**31 else 0), count)))
