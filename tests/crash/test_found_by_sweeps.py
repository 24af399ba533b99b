"""What the sweeps of tests/crash found in this engine, each as small as it gets."""

import errno
from dataclasses import replace

import pytest

from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.errors import DurabilityLost
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint, read_checkpoint
from tests.crash.disks import FailingDisk, MemoryDisk, WatchedDisk
from tests.crash.workload import ASYNC, LEDGER, ROOT, SYNC, Fate, Workload, check_disk, open_again

LOG = f"{ROOT}/commitlog/{0:020d}"
LEDGER_LOG = f"{ROOT}/dledger-n0/data/{0:020d}"


def written(disk, count: int, config=SYNC, clock_step_ms: int = 1900) -> Workload:
    load = Workload(disk, config, clock_step_ms)
    load.open()
    for _ in range(count):
        load.put("orders", 0)
    return load


@pytest.mark.parametrize("size", [0, 7, 100])
def test_a_half_made_first_queue_file_does_not_set_the_size_of_all(size: int):
    disk = MemoryDisk()
    load = written(disk, 2)
    disk = disk.crash("lost")
    disk.put_file(f"{ROOT}/consumequeue/orders/0/{0:020d}", bytes(size))
    check_disk(disk, SYNC, load.ledger)


@pytest.mark.parametrize("size", [0, 7, 2048])
def test_a_half_made_first_log_file_does_not_set_the_size_of_all(size: int):
    disk = MemoryDisk()
    disk.put_file(f"{ROOT}/abort", b"")
    disk.put_file(LOG, bytes(size))
    store = open_again(disk, SYNC)
    assert store.put(Message("orders", b"x" * 3000)).status is PutStatus.PUT_OK
    assert len(disk.image()[LOG]) == SYNC.log_file_size


@pytest.mark.parametrize("lost_bytes", [1, 3, 9])
def test_a_record_whose_last_bytes_were_not_written_is_no_record(lost_bytes: int):
    """Its body's CRC is right, and so are all sizes: only the end of its properties is zero."""
    disk = MemoryDisk()
    load = written(disk, 2)
    content = disk.image()[LOG].rstrip(b"\0")
    disk = disk.crash("lost")
    disk.put_file(LOG, content[:-lost_bytes].ljust(4096, b"\0"))
    load.ledger.sent[1].fate = Fate.UNKNOWN
    assert check_disk(disk, SYNC, load.ledger) == [load.ledger.sent[0].body]


@pytest.mark.parametrize(("log", "config"), [(LOG, ASYNC), (LEDGER_LOG, LEDGER)], ids=["plain", "ledger"])
def test_a_first_write_that_was_cut_short_anywhere_is_cut(log: str, config: StoreConfig):
    """A full disk ends the first write into a new log after any byte, in the record's head or its entry's too."""
    disk = MemoryDisk()
    open_again(disk, config).put(Message("orders", b"hello"))
    data = disk.image()[log]
    terms = {path: said for path, said in disk.image().items() if path.endswith("/currterm")}
    for count in range(1, len(data.rstrip(b"\0"))):
        torn = MemoryDisk()
        for path, said in {f"{ROOT}/abort": b"", **terms}.items():
            torn.put_file(path, said)
        torn.put_file(log, data[:count].ljust(len(data), b"\0"))
        store = open_again(torn, config)
        assert store.queues() == [], count
        assert store.put(Message("orders", b"again")).status is PutStatus.PUT_OK


def test_an_index_file_that_is_not_full_is_the_last_one():
    """Its successor was kept as well, so the keys between the two were in none."""
    disk = MemoryDisk()
    load = Workload(disk, SYNC, 0)
    load.open()
    for _ in range(9):
        load.put("orders", 0)
    load.flush()
    half = {path: content for path, content in disk.image().items() if "/index/" in path}
    assert len(half) == 1
    for _ in range(51):
        load.put("orders", 0)
    load.flush()
    image = disk.crash("killed")
    for path, content in half.items():
        image.put_file(path, content)
    image.put_file(f"{ROOT}/checkpoint", encode_checkpoint(Checkpoint(*[load.clock.ms] * 3)))
    check_disk(image, SYNC, load.ledger)


def test_closing_makes_the_log_durable_and_complains_though_a_worker_has_ended():
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    quiet = replace(ASYNC, flush_least_pages=1000, flush_thorough_interval_ms=10**9)
    written(watched, 2, quiet).step()
    assert watched.trace is not None
    at = next(each.number for each in watched.trace if each.verb == "create" and "/consumequeue/" in each.path)
    disk = FailingDisk(MemoryDisk(), at, errno.EIO)
    load = written(disk, 2, quiet)
    load.step()
    with pytest.raises(DurabilityLost, match="dispatch"):
        load.close()
    load.ledger.durable_count = 2
    assert isinstance(disk.inner, MemoryDisk)
    assert len(check_disk(disk.inner.crash("lost"), quiet, load.ledger)) == 2


def test_a_flush_that_fails_raises_what_it_says_it_raises():
    """Not the bare OSError of the checkpoint's file."""
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    written(watched, 1).flush()
    assert watched.trace is not None
    at = max(each.number for each in watched.trace if each.path.endswith("/checkpoint"))
    load = written(FailingDisk(MemoryDisk(), at, errno.ENOSPC), 1)
    with pytest.raises(DurabilityLost):
        load.flush()


def test_a_checkpoint_says_the_time_of_the_newest_message_not_the_latest_time():
    """With a clock that steps back it would answer for messages that no queue has yet."""
    disk = MemoryDisk()
    load = written(disk, 3, SYNC, -1000)
    load.flush()
    load.put("orders", 0)
    load.flush()
    values = read_checkpoint(disk.image()["/store/checkpoint"])
    assert values.logics_timestamp_ms == values.physic_timestamp_ms == load.clock.ms


@pytest.mark.parametrize("spare", [".tmp", ".bak"])
def test_an_opening_makes_durable_what_only_a_spare_of_the_members_checkpoint_says(spare: str):
    """A crash left the new content under another name, and not yet on the disk."""
    disk = MemoryDisk()
    load = written(disk, 3, LEDGER)
    load.close()
    path = f"{ROOT}/dledger-n0/checkpoint"
    said = disk.image()[path]
    disk.rename(path, path + spare)
    disk.put_file(f"{ROOT}/abort", b"")
    open_again(disk, LEDGER)
    assert disk.crash("lost").image()[path] == said
