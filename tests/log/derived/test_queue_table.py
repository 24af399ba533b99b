"""Dispatch into consume queues: the files of golden stores again, byte for byte, and what survives faults."""

import errno
import random

import numpy as np
import pytest

from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.errors import Corrupt
from rmqstore.files.file_sequence import FileHandles
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.java_hash import string_hash
from rmqstore.formats.queue_entry import is_pre_blank, read_entries
from rmqstore.records import batch as record_batch
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches
from tests.crash.disks import FailingDisk, MemoryDisk
from tests.formats.records import encoded
from tests.golden.cases import STORE_CASES, load_expected
from tests.log.replay import golden_batches, golden_files, replay

# Closed cleanly or killed with dispatch up to date; lmq and cqext have queues of kinds that are not written here.
GOLDEN = [
    case
    for case in ("basic", "basic-4.9.8", "batch", "batchcq", "crcprop", "delay", "ipv6", "killed", "longtopic",
                 "multipath", "sysflags", "sysflags-4.9.8")
    if case in STORE_CASES
]  # fmt: skip
FILE_SIZE = 200


def table_on(
    disk: FileSystem, file_size: int = FILE_SIZE, load: bool = True, kinds: QueueKinds = PLAIN_ONLY
) -> QueueTable:
    table = QueueTable(disk, FileHandles(disk, 50), "/store", file_size, kinds=kinds)
    if load:
        table.load()
    return table


def queue_files(files: dict[str, bytes]) -> dict[str, bytes]:
    paths = {path.removeprefix("/store/"): data for path, data in files.items()}
    return {path: data for path, data in paths.items() if path.startswith("consumequeue/")}


def batch_of(*fields: dict, start: int = 0) -> RecordBatch:
    data = b""
    for each in fields:
        data += encoded(**each, physical_offset=start + len(data))
    (batch,) = read_batches(lambda at, size: data[at - start : at - start + size], start, start + len(data), 1 << 30)
    assert isinstance(batch, RecordBatch)
    return batch


def traffic(count: int) -> list[dict]:
    """Records of three topics with two queues each, in any order."""
    chance, following, fields = random.Random(5), {}, []
    for _ in range(count):
        key = chance.choice([b"A", b"B", b"C"]), chance.randrange(2)
        following[key] = following.get(key, -1) + 1
        fields.append({"topic": key[0], "queue_id": key[1], "queue_offset": following[key]})
    return fields


def bounds_of(table: QueueTable) -> dict[str, tuple[int, int, int]]:
    return {f"{each.topic}/{each.queue_id}": (each.min_offset, each.max_offset, each.max_physical)
            for each in table.queues()}  # fmt: skip


def java_bounds(case: str) -> dict[str, tuple[int, int, int]]:
    queues = load_expected(case)["state"]["queues"].items()
    return {name: (queue["min"], queue["max"], queue["maxPhysicOffset"])
            for name, queue in queues if queue["kind"] == "ConsumeQueue"}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
def test_a_golden_log_gives_the_golden_queue_files(case: str) -> None:
    expected = load_expected(case)
    kinds = QueueKinds(is_batch_topic=lambda topic: "BatchCQ" in expected["topics"].get(topic, {}).values())
    for window_size in (1000, 1 << 22):
        disk = MemoryDisk()
        table = table_on(disk, expected["config"]["mappedFileSizeConsumeQueue"], kinds=kinds)
        replay(case, [table], window_size)
        assert queue_files(disk.image()) == queue_files(golden_files(case))
        assert bounds_of(table) == java_bounds(case)


def test_a_golden_queue_that_begins_with_pre_blank_units_comes_out_again() -> None:
    case = "killed-preblank"
    golden = queue_files(golden_files(case))
    written = np.concatenate([read_entries(data) for data in golden.values()])
    written = written[(written["size"] > 0) & ~is_pre_blank(written)]
    disk = MemoryDisk()
    table = table_on(disk, load_expected(case)["config"]["mappedFileSizeConsumeQueue"])
    for batch in golden_batches(case, 4096, int(written["physical_offset"].min())):
        table.dispatch(batch)
    assert queue_files(disk.image()) == golden
    assert any(is_pre_blank(read_entries(data)).any() for data in golden.values())


def test_golden_stores_open_at_their_bounds() -> None:
    case = "deleted_head"
    disk = MemoryDisk()
    for path, data in golden_files(case).items():
        disk.put_file(f"/store/{path}", data)
    table = table_on(disk, load_expected(case)["config"]["mappedFileSizeConsumeQueue"])
    table.correct_min(load_expected(case)["state"]["minPhyOffset"])
    assert bounds_of(table) == java_bounds(case)
    assert any(bounds[0] for bounds in bounds_of(table).values())


@pytest.mark.parametrize("few_count", [0, 48])
def test_what_comes_again_is_dropped(few_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_batch, "FEW_COUNT", few_count)
    disk, fields = MemoryDisk(), traffic(60)
    table = table_on(disk)
    table.dispatch(batch_of(*fields))
    before = disk.image()
    for _ in range(2):
        table.dispatch(batch_of(*fields))
        assert disk.image() == before
        table = table_on(disk)
    assert sum(table.next_offsets().values()) == 60


def test_only_what_belongs_to_a_queue_gets_an_entry() -> None:
    table = table_on(MemoryDisk())
    flags = [0, 0x4, 0x8, 0xC, 0xC0, 0x40, 0x80, 0xC4, 0xC8]
    counted = {0, 8, 0xC0, 0x40, 0x80, 0xC8}  # whatever a record of a plain topic says of batches
    offsets = iter(range(9))
    table.dispatch(batch_of(*({"sys_flag": f, "queue_offset": next(offsets) if f in counted else 9} for f in flags)))
    queue = table.find("T", 0)
    assert queue is not None
    assert queue.read(0, 9)["tags_code"].tolist() == [string_hash("A")] * 6
    assert table.store_ms == 1_700_000_000_001


def test_asking_creates_nothing() -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    assert table.find("T", 0) is None
    table.flush()
    table.correct_min(5)
    assert table.next_offsets() == {}
    assert disk.operations == 0


@pytest.mark.parametrize("fields", [{"topic": b"../../x"}, {"topic": b".."}, {"topic": b""}, {"queue_id": -1}])
def test_names_that_lead_out_of_the_store_get_no_queue(fields: dict) -> None:
    disk = MemoryDisk()
    table = table_on(disk)
    table.dispatch(batch_of(fields, {"topic": b"good"}))
    assert table.refused_count == 1
    assert list(queue_files(disk.image())) == [f"consumequeue/good/0/{0:020d}"]


def test_foreign_names_are_told_and_left() -> None:
    disk = MemoryDisk()
    disk.put_file("/store/consumequeue/T/notes.txt", b"x")
    disk.put_file("/store/consumequeue/T/abc/x", b"x")
    disk.put_file("/store/consumequeue/stray", b"x")
    warnings = table_on(disk, load=False).load()
    assert len(warnings) == 2
    assert table_on(disk).queues() == []


def test_a_gap_stops_dispatch_before_anything_of_that_queue_is_written() -> None:
    table = table_on(MemoryDisk())
    table.dispatch(batch_of({}))
    with pytest.raises(Corrupt, match="T/0"):
        table.dispatch(batch_of({"queue_offset": 2}, start=1000))
    assert table.next_offsets() == {("T", 0): 1}


@pytest.mark.parametrize("at", [1, 3, 6, 20, 40])
def test_a_batch_that_a_fault_interrupted_can_come_again(at: int) -> None:
    disk, fields = MemoryDisk(), traffic(80)
    failing = FailingDisk(disk, at, errno.ENOSPC)
    table = table_on(failing)
    if at <= 40:
        with pytest.raises(OSError, match="No space"):
            table.dispatch(batch_of(*fields))
    table.dispatch(batch_of(*fields))
    table.flush()
    expected = MemoryDisk()
    table_on(expected).dispatch(batch_of(*fields))
    assert queue_files(disk.crash("lost").image()) == queue_files(expected.image())


def test_a_failed_sync_is_never_tried_again() -> None:
    disk = MemoryDisk()
    table_on(disk).dispatch(batch_of({}))
    table = table_on(FailingDisk(disk, 2, errno.EIO))
    table.dispatch(batch_of({"queue_offset": 1}, start=2000))
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            table.flush()
