"""What recovery keeps of its first look at the log, so that it need not look again."""

import numpy as np
import pytest

from rmqstore.config import StoreConfig
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.engine.log.recovery import first_read
from rmqstore.engine.log.recovery.first_read import SeenRecords, records_to_keep
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.formats.delay_levels import DEFAULT_TABLES
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches
from rmqstore.records.vectors import RecordVectors
from tests.crash.disks import MemoryDisk
from tests.log.recovering import ROOT, SIZES, all_there, derived, keyed_store, killed, rebuilt, recover, settled

COUNT = 110


def lost() -> MemoryDisk:
    """A store that was killed and lost its queues and index."""
    disk = killed(settled(keyed_store(COUNT)))
    bare = MemoryDisk()
    for path, data in disk.image().items():
        if "consumequeue" not in path and "/index/" not in path and "checkpoint" not in path:
            bare.put_file(path, data)
    return bare


def batches() -> list[RecordBatch]:
    """The records of a small log, a few at a time."""
    store = keyed_store(COUNT)
    size = len(store.data[0])

    def read(offset: int, count: int) -> bytes:
        start = offset - offset % size
        return bytes(store.data[start][offset - start : offset - start + count])

    items = read_batches(read, 0, store.end, size, window_size=2000)
    return [item for item in items if isinstance(item, RecordBatch)]


@pytest.mark.parametrize("count", [0, 1, 40, 10_000])
def test_the_same_comes_out_however_much_is_kept(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = lost()
    monkeypatch.setattr(first_read, "_RECORDS_MAX", count)
    found = recover(disk)
    kept_count = sum(len(each) for each in found.plan.seen.records)
    assert kept_count == COUNT if count > COUNT else count <= kept_count < COUNT
    all_there(found, keyed_store(COUNT))
    assert derived(disk) == rebuilt(disk)


def test_nothing_that_is_kept_is_read_again() -> None:
    disk = lost()
    found = recover(disk)
    assert found.plan.dispatch_from == found.plan.seen.records[0].offsets[0]
    assert found.plan.seen.records[-1].end == found.plan.log_end


def test_what_is_kept_has_no_gaps() -> None:
    some, asked = batches(), list[RecordBatch]()
    kept = records_to_keep(StoreConfig(), PLAIN_ONLY, DEFAULT_TABLES)

    def keep(batch: RecordBatch) -> RecordVectors | None:
        asked.append(batch)
        return kept(batch) if kept is not None and len(asked) != 2 else None

    seen = SeenRecords(keep)
    for batch in some:
        seen.add(batch)
    assert len(some) > 3
    assert len(asked) == 2
    assert len(seen.all().records) == 1
    assert seen.all().places.tolist() == np.concatenate([batch.offsets for batch in some]).tolist()


@pytest.mark.parametrize("kinds", [QueueKinds(multi_dispatch=True), QueueKinds(extension=True)])
def test_queues_that_ask_for_more_than_is_kept_read_the_log(kinds: QueueKinds) -> None:
    assert records_to_keep(StoreConfig(), kinds, DEFAULT_TABLES) is None


def test_nothing_is_kept_for_who_only_looks_nor_after_a_clean_exit() -> None:
    config = StoreConfig(**SIZES)
    assert not plan_recovery(lost(), ROOT, config).seen.records
    assert plan_recovery(lost(), ROOT, config, keeps_records=True).seen.records
    assert not plan_recovery(settled(keyed_store(COUNT)), ROOT, config, keeps_records=True).seen.records


def test_what_is_kept_is_not_shown() -> None:
    found = plan_recovery(lost(), ROOT, StoreConfig(**SIZES), keeps_records=True)
    assert "seen" not in found.as_dict()
    assert found == plan_recovery(lost(), ROOT, StoreConfig(**SIZES))
