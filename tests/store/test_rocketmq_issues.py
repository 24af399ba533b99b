"""Bugs that RocketMQ had or has, one test each, named by its issue's number; docs/recovery.md tells them.

What another layer does about the same bug is tested beside that layer:

issue
9713   tests/log/put/test_watermarks.py
6904   tests/files/test_file_sequence.py: test_the_file_that_was_being_made_is_removed
3257   tests/files/test_file_sequence.py: test_foreign_names_are_told_and_left
9728   tests/log/derived/test_consume_queue.py: test_files_without_an_entry_are_no_entries
7902   tests/log/derived/test_dispatch_loop.py: test_a_failing_dispatcher_stops_the_loop_before_the_batch
8660   tests/log/derived/test_queue_table.py: test_asking_creates_nothing
1375   tests/formats/test_stored_message.py: test_a_body_that_is_not_what_its_flag_says_is_told
1637   tests/log/derived/test_queue_table.py: test_names_that_lead_out_of_the_store_get_no_queue
7576   tests/files/test_store_lock.py: test_a_lock_file_left_behind_is_no_lock
1100   tests/files/test_file_sequence.py: test_a_real_store_of_many_files_opens_few

289 is of replication; the part of it that there is here is tests/log/derived/test_dispatch_loop.py:
test_bytes_that_are_no_record_are_waited_at_and_never_skipped.  Others: test_retention_issues.py (files are deleted),
test_queue_extension_issues.py, test_broker_issues.py (what a broker adds to the log).
"""

import errno
import os
import resource
import struct
import threading
from dataclasses import replace

import pytest

from rmqstore.core.message import GetStatus, Message, PutStatus
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.engine.store import open_store
from rmqstore.errors import DurabilityLost, NotNow, StoreInUse
from rmqstore.formats import message as layouts
from rmqstore.formats import sys_flag
from rmqstore.formats.index import read_header
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut, WatchedDisk
from tests.crash.workload import (
    ASYNC,
    ROOT,
    SYNC,
    Fate,
    Ledger,
    Workload,
    actions,
    check,
    check_disk,
    check_rebuild,
    open_again,
    run,
    stored_bodies,
)
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.stores

LOG = f"{ROOT}/commitlog/{0:020d}"


def written(disk, count: int, config=SYNC, size: int = 100, waits: bool = True) -> Workload:
    """A store with some messages in one queue, and its ledger."""
    load = Workload(disk, config)
    load.open()
    for _ in range(count):
        load.put("orders", 0, size, waits)
    return load


def record_sizes(content: bytes) -> list[int]:
    """Of the records at the beginning of a log file."""
    sizes: list[int] = []
    while size := struct.unpack_from(">i", content, sum(sizes))[0]:
        sizes.append(size)
    return sizes


def failing_at(verb: str, part: str, error: int, forever: bool = False) -> FailingDisk:
    """A disk that fails with the first operation of a kind on a path that comes after a first put."""
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    load = written(watched, 1)
    first = watched.operations
    load.put("orders", 0)
    assert watched.trace is not None
    at = next(each.number for each in watched.trace[first:] if each.verb == verb and part in each.path)
    return FailingDisk(MemoryDisk(), at, error, forever)


def test_rocketmq_9713_a_failed_sync_is_no_acknowledgement_and_is_not_tried_again():
    disk = failing_at("sync", "commitlog", errno.EIO)
    load = written(disk, 1)
    with pytest.raises(DurabilityLost, match="sync of the commitlog"):
        load.put("orders", 0)
    operations = disk.operations
    with pytest.raises(DurabilityLost):
        load.put("orders", 0)
    with pytest.raises(DurabilityLost):
        load.flush()
    assert disk.operations == operations, "it went on using the disk"
    assert load.store is not None
    assert not load.store.health().is_writable
    assert load.ledger.sent[1].fate is Fate.UNKNOWN
    load.store.step()
    assert load.store.get("orders", 0, 0).messages[0].body == load.ledger.sent[0].body


def test_rocketmq_9713_what_a_failed_sync_left_in_memory_is_written_again_by_the_next_opening():
    """Linux takes the pages for clean: else a later power cut tears a hole in front of acknowledged messages."""
    disk = failing_at("sync", "commitlog", errno.EIO)
    load = written(disk, 1)
    with pytest.raises(DurabilityLost):
        load.put("orders", 0)
    with pytest.raises(DurabilityLost):
        load.close()
    disk.trace = []
    load.open()
    steps = [each.verb for each in disk.trace if "/commitlog/" in each.path or each.path.endswith("/abort")]
    assert steps[:3] == ["write", "sync", "write"], "the note goes when the bytes are on the disk"
    assert isinstance(disk.inner, MemoryDisk)
    bodies = [each.body for each in load.ledger.sent]
    assert stored_bodies(open_again(disk.inner.crash("lost"), SYNC), load.ledger) == bodies[:2]
    load.put("orders", 0)
    assert len(check_disk(disk.inner.crash("lost"), SYNC, load.ledger)) == 3


def test_rocketmq_9693_a_device_that_went_read_only_is_an_error_not_a_crash():
    disk = failing_at("write", "commitlog", errno.EROFS, forever=True)
    load = written(disk, 1)
    with pytest.raises(DurabilityLost, match=r"[Rr]ead-only file system"):
        load.put("orders", 0)
    with pytest.raises(DurabilityLost):
        load.close()


def test_rocketmq_1790_a_disk_fault_in_a_write_latches_and_reads_go_on():
    disk = failing_at("write", "commitlog", errno.EIO)
    load = written(disk, 1)
    with pytest.raises(DurabilityLost):
        load.put("orders", 0)
    assert load.store is not None
    load.store.step()
    assert load.store.get("orders", 0, 0).status is GetStatus.FOUND
    assert load.store.message_at(0).body == load.ledger.sent[0].body


def test_rocketmq_467_a_torn_first_record_is_zeroed_durably():
    """Nothing is in front of it: no file can be cut, and its bytes must not come back in front of what is put next."""
    disk = MemoryDisk()
    written(disk, 1)
    disk = disk.crash("killed")
    record = disk.image()[LOG].rstrip(b"\0")
    disk.put_file(LOG, record[:-60].ljust(4096, b"\0"))
    assert stored_bodies(open_again(disk, SYNC), Ledger()) == []
    assert disk.crash("lost").image()[LOG] == bytes(4096)


def test_rocketmq_467_a_torn_record_is_cut_and_what_is_put_after_it_is_found():
    disk = MemoryDisk()
    load = written(disk, 3)
    end = disk.image()[LOG].rstrip(b"\0")
    disk = disk.crash("killed")
    torn = end[: len(end) - 60]  # in the middle of the third body
    disk.put_file(LOG, torn.ljust(4096, b"\0"))
    for each in load.ledger.sent[2:]:
        each.fate = Fate.UNKNOWN
    assert len(check_disk(disk, SYNC, load.ledger)) == 2


@pytest.mark.parametrize("choice", ["lost", "killed"])
def test_rocketmq_495_queues_are_right_after_two_crashes_in_a_row(choice: str):
    disk = MemoryDisk()
    load = written(disk, 5, ASYNC)
    load.flush()
    load.put("orders", 0)
    load.step()
    load.put("orders", 1)
    first = disk.crash("lost")
    load.ledger.sent[-1].fate = load.ledger.sent[-2].fate = Fate.UNKNOWN
    again = Workload(first, ASYNC)
    again.ledger = load.ledger
    again.open()
    again.ledger.keep_only(stored_bodies(again.store, again.ledger))
    again.put("orders", 0)
    again.step()
    check_disk(first.crash(choice), ASYNC, again.ledger, is_power_cut=choice != "killed")


def test_rocketmq_1434_the_undispatched_end_of_the_file_before_the_last_is_found():
    disk = MemoryDisk()
    load = written(disk, 3, size=1000)
    load.flush()
    load.put("orders", 0, 300)
    load.put("orders", 0, 2000)  # the next file, and nothing is dispatched since the flush
    assert len(check_disk(disk.crash("lost"), SYNC, load.ledger)) == 5


def test_rocketmq_678_a_checkpoint_that_is_ahead_of_the_queues_does_no_harm():
    """10073: as if the queue's pages had been lost after the checkpoint was written."""
    disk = MemoryDisk()
    load = written(disk, 8, size=1000)
    load.flush()
    image = disk.crash("killed")
    for path in image.image():
        if "/consumequeue/" in path:
            image.put_file(path, bytes(SYNC.queue_file_size))
    load.ledger.durable_count = 8
    assert len(check_disk(image, SYNC, load.ledger)) == 8


@pytest.mark.parametrize("config", [SYNC, ASYNC], ids=["sync", "async"])
def test_rocketmq_1153_recovery_does_not_begin_at_the_first_file_because_nobody_waited(config):
    """7233: messages that do not wait for the disk move the checkpoint on as well."""
    disk = MemoryDisk()
    load = written(disk, 40, config, size=1000, waits=False)
    load.flush()
    load.put("orders", 0, waits=False)
    plan = plan_recovery(disk.crash("killed"), ROOT, config)
    assert not plan.is_clean_exit
    assert plan.scan_start >= plan.log_end - 4 * config.log_file_size
    assert plan.log_end > 9 * config.log_file_size


def test_rocketmq_9587_a_recovery_that_is_killed_again_and_again_comes_to_its_end():
    disk = MemoryDisk()
    load = Workload(disk, ASYNC)
    run(load, actions())
    disk = disk.crash("killed")
    counter = CrashAt(disk.crash("killed"))
    open_again(counter, ASYNC)
    for _ in range(3 * counter.operations):
        cutting = CrashAt(disk, 9)
        try:
            open_again(cutting, ASYNC)
            break
        except PowerCut:
            disk = disk.crash("killed")
    else:
        # Nine operations at a time never got through: then more must be needed at once, and each step must help.
        cutting = CrashAt(disk)
        open_again(cutting, ASYNC)
        assert cutting.operations <= counter.operations
    check(open_again(disk.crash("killed"), ASYNC), load.ledger, is_power_cut=False)


@pytest.mark.parametrize(
    "kind", ["commitlog/00000000000000008192", "consumequeue/orders/0/00000000000000000600", "index"]
)
def test_rocketmq_6904_an_empty_last_file_of_any_kind_is_no_obstacle(kind: str):
    disk = MemoryDisk()
    load = written(disk, 12, size=300)
    load.flush()
    disk = disk.crash("killed")
    disk.put_file(f"{ROOT}/{kind}" + ("/20990101000000000" if kind == "index" else ""), b"")
    check_disk(disk, SYNC, load.ledger, is_power_cut=False)


def test_rocketmq_3257_foreign_files_are_named_and_left_alone():
    disk = MemoryDisk()
    load = written(disk, 3)
    load.close()
    foreign = [f"{ROOT}/commitlog/notes.txt", f"{ROOT}/consumequeue/orders/0/core.123", f"{ROOT}/index/x.bak",
               f"{ROOT}/consumequeue/orders/0/.tmp", f"{ROOT}/commitlog/lost+found/a"]  # fmt: skip
    for path in foreign:
        disk.put_file(path, b"mine")
    store = open_again(disk, SYNC)
    check(store, load.ledger)
    assert f"{foreign[0]}: not a commitlog file, left as it is" in store.warnings
    store.put(Message("orders", b"more"))
    store.close()
    image = disk.image()
    assert [image[path] for path in foreign] == [b"mine"] * len(foreign)


@pytest.mark.parametrize("size", [0, SYNC.queue_file_size])
@pytest.mark.parametrize("clean", [True, False])
def test_rocketmq_9728_a_last_queue_file_without_an_entry_is_no_obstacle(size: int, clean: bool):
    disk = MemoryDisk()
    load = written(disk, 10)
    if clean:
        load.close()
    else:
        load.flush()
    disk = disk.crash("killed")
    disk.put_file(f"{ROOT}/consumequeue/orders/0/{200:020d}", bytes(size))
    disk.put_file(f"{ROOT}/consumequeue/nothing/0/{0:020d}", bytes(size))
    store = open_again(disk, SYNC)
    assert store.bounds("orders", 0) == (0, 10)
    assert store.bounds("nothing", 0) == (0, 0)
    assert not disk.exists(f"{ROOT}/consumequeue/nothing")
    assert store.put(Message("orders", b"more")).queue_offset == 10
    store.flush()
    assert store.get("orders", 0, 10).messages[0].body == b"more"


def test_rocketmq_10017_records_of_a_file_that_was_used_before_are_not_believed():
    """The same bytes at another place pass magic and CRC: only their own physical offset tells."""
    disk = MemoryDisk()
    load = written(disk, 2)
    image = disk.image()[LOG]
    first, second = record_sizes(image)
    disk = disk.crash("killed")
    stale = image[: first + second] + image[:first]  # the first record once more, behind the second
    disk.put_file(LOG, stale.ljust(4096, b"\0"))
    assert len(check_disk(disk, SYNC, load.ledger)) == 2


@pytest.mark.parametrize("sizes", [(100, 100), (100, 77)], ids=["same", "odd"])
def test_rocketmq_10666_what_a_recovery_cut_off_never_comes_back(sizes: tuple[int, int]):
    """The old tail has the right offsets: with records of the same size it would line up with new ones again."""
    disk = MemoryDisk()
    load = written(disk, 10, size=sizes[0])
    load.close()
    disk = disk.crash("killed")
    content = bytearray(disk.image()[LOG])
    at = sum(record_sizes(content)[:3])
    content[at + layouts.RECORD_SIZE_MIN] ^= 1  # in the fourth body
    disk.put_file(LOG, bytes(content))
    cutting = replace(SYNC, on_middle_damage="cut")
    again = Workload(disk, cutting)
    again.open()
    again.ledger = load.ledger
    again.ledger.keep_only(stored_bodies(again.store, load.ledger))
    assert [each.fate for each in load.ledger.sent] == [Fate.STORED] * 3 + [Fate.REFUSED] * 7
    again.put("orders", 0, sizes[1])
    for choice in ("lost", "kept", "killed"):
        assert len(check_disk(disk.crash(choice), SYNC, load.ledger)) == 4


def test_rocketmq_6665_no_offset_points_behind_the_log_after_a_recovery():
    disk = MemoryDisk()
    load = written(disk, 6, replace(ASYNC, flush_least_pages=1000, flush_thorough_interval_ms=10**9))
    load.flush()
    for _ in range(6):
        load.put("orders", 0)
    load.step()
    kept = disk.crash("kept").image()
    image = disk.crash("lost")
    for path, content in kept.items():  # queues and index got to the disk, the log's end did not
        if "/commitlog/" not in path:
            image.put_file(path, content)
    store = open_again(image, ASYNC)
    end = store.recovery.log_end
    count = len(check(store, load.ledger))
    assert 6 <= count < 12
    assert store.bounds("orders", 0) == (0, count)
    newest = store.get("orders", 0, count - 1).messages[0]
    assert newest.physical_offset + newest.store_size <= end
    headers = [read_header(content) for path, content in image.image().items() if "/index/" in path]
    assert all(header is not None and header.end_offset < end for header in headers)
    assert store.health().dispatch_behind_bytes == 0


@pytest.mark.parametrize("flushed", [True, False])
def test_rocketmq_3868_every_key_is_found_after_a_kill(flushed: bool):
    """RocketMQ deletes index files that are newer than the checkpoint, and builds only a part of them again."""
    disk = MemoryDisk()
    load = Workload(disk, ASYNC)
    load.open()
    for _ in range(40):
        load.put("orders", 0, 400)
    if flushed:
        load.flush()
    load.step()
    for choice in ("lost", "kept", "killed"):
        check_disk(disk.crash(choice), ASYNC, load.ledger, is_power_cut=choice != "killed")


def test_rocketmq_7902_a_dispatcher_that_dies_ends_acknowledging():
    disk = MemoryDisk()

    class Broken:
        def dispatch(self, batch) -> None:
            raise MemoryError("no room")

        def flush(self) -> None:
            pass

    store = open_store(ROOT, SYNC, filesystem=disk, workers=False, dispatchers=[Broken()])
    assert store.put(Message("orders", b"first")).status is PutStatus.PUT_OK
    store.step()
    health = store.health()
    assert not health.is_writable
    assert "MemoryError" in health.reasons[0]
    assert store.put(Message("orders", b"second")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.message_at(0).body == b"first"
    with pytest.raises(DurabilityLost):
        store.flush()
    with pytest.raises(DurabilityLost):
        store.close()


def test_rocketmq_7902_whoever_waits_for_a_dead_worker_is_told_at_once(tmp_path):
    class Broken:
        def dispatch(self, batch) -> None:
            raise MemoryError("no room")

        def flush(self) -> None:
            pass

    store = open_store(str(tmp_path / "s"), SYNC, dispatchers=[Broken()])
    store.put(Message("orders", b"first"))
    answered = threading.Event()

    def wait() -> None:
        with pytest.raises((DurabilityLost, NotNow)):
            store.flush(timeout_s=600)
        answered.set()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert answered.wait(PATIENCE_S), "it waits for a timeout"
    waiter.join()
    with pytest.raises(DurabilityLost):
        store.close()


def test_rocketmq_8660_reading_creates_no_queue():
    disk = MemoryDisk()
    load = written(disk, 1)
    load.flush()
    before = disk.image()
    assert load.store is not None
    assert load.store.get("unknown", 7, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert load.store.query("unknown", "key") == []
    assert load.store.offset_at("unknown", 7, 0) == 0
    assert load.store.bounds("unknown", 7) == (0, 0)
    assert disk.image() == before
    assert load.store.queues() == [("orders", 0)]


def test_rocketmq_1375_a_body_that_is_not_compressed_though_its_flag_says_so_stops_nobody():
    disk = MemoryDisk()
    store = open_again(disk, SYNC)
    for flags in (0, sys_flag.COMPRESSED, 0):
        assert store.put(Message("orders", b"plain text", sys_flag=flags)).status is PutStatus.PUT_OK
    store.flush()
    answer = store.get("orders", 0, 0)
    assert answer.next_offset == 3
    assert [message.body for message in answer.messages] == [b"plain text", None, b"plain text"]
    assert answer.messages[1].corrupt_reason
    assert answer.messages[1].stored_body == b"plain text"


@pytest.mark.parametrize("topic", ["../../../x", "..", ".", "/etc/x", "a/b", "a\0b", "", "t" * 128, "名"])
def test_rocketmq_1637_no_topic_leads_out_of_the_store(topic: str):
    disk = MemoryDisk()
    load = written(disk, 1)
    load.flush()
    load.step()
    before = disk.image()
    assert load.store is not None
    assert load.store.put(Message(topic, b"body")).status is PutStatus.MESSAGE_ILLEGAL
    load.store.step()
    assert disk.image().keys() == before.keys()


def test_rocketmq_7576_a_lock_file_without_its_owner_is_no_lock(tmp_path):
    """6593: and a lock that is held is an answer at once, not a wait."""
    root = str(tmp_path / "store")
    with open_store(root, SYNC) as store:
        store.put(Message("orders", b"body"))
        with pytest.raises(StoreInUse):
            open_store(root, SYNC)
    assert os.path.exists(os.path.join(root, "lock"))
    with open_store(root, SYNC) as store:
        assert store.get("orders", 0, 0).messages[0].body == b"body"


def test_rocketmq_1100_a_store_of_many_files_needs_few_open_ones(tmp_path):
    config = replace(ASYNC, open_files_max=16)
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 60, old[1]))
    try:
        with open_store(str(tmp_path / "store"), config, workers=False) as store:
            for number in range(120):
                assert store.put(Message(f"topic{number % 60}", b"x" * 1500)).status is PutStatus.PUT_OK
                if number % 20 == 19:
                    store.flush()  # the worker's part: log files stay open until they are synced
            assert len(os.listdir(tmp_path / "store" / "commitlog")) > 50
            for number in range(60):
                assert len(store.get(f"topic{number}", 0, 0).messages) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)


def test_a_rebuild_of_the_workload_is_what_the_engine_wrote():
    """What all of these rest on: a log alone gives the queues and the index that were written beside it."""
    disk = MemoryDisk()
    load = Workload(disk, SYNC)
    run(load, actions())
    load.close()
    check_rebuild(disk.image(), SYNC)
