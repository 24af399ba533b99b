"""Bugs that RocketMQ had or has where files are deleted, named by the issue's number.

issue         here
8405, 10288   a topic is deleted, or files expire, while its records are dispatched: SIGSEGV there
10417         the minimum of a queue whose files are all gone
2140, 2141    a log file is missing in the middle
4549, 2260    a full disk deletes what is not consumed, or nothing at all
8334, PR 39   a file that somebody holds is never deleted, or twice
"""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.core.message import GetStatus, Message
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import Corrupt
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk, WatchedDisk
from tests.formats.records import encoded
from tests.log.retaining import (
    ALWAYS,
    CONFIG,
    NEVER,
    ROOT,
    advance,
    check_against_log,
    fill,
    filled,
    readable,
    retention_of,
)
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.stores


def batches_of(count: int, topics: Sequence[str] = ("T",), size: int = 4) -> list[RecordBatch]:
    """Records of queue 0 of some topics in turns, `size` to a batch."""
    found, start = [], 0
    for first in range(0, count, size):
        data = b""
        for number in range(first, first + size):
            turn, place = divmod(number, len(topics))
            data += encoded(topic=topics[place].encode(), queue_offset=turn, physical_offset=start + len(data))
        end = start + len(data)
        (batch,) = read_batches(lambda at, size, d=data, s=start: d[at - s : at - s + size], start, end, 1 << 30)
        assert isinstance(batch, RecordBatch)
        found.append(batch)
        start = end
    return found


@contextmanager
def repeated(*actions: Callable[[], object], wake: Callable[[], object] = bool) -> Iterator[list[BaseException]]:
    """Does each action again and again in a thread, with frequent changes between threads; what they raise ends them.

    `wake` is called at the end, for an action that waits.
    """
    problems: list[BaseException] = []
    is_over = threading.Event()

    def run(action: Callable[[], object]) -> None:
        try:
            while not is_over.is_set():
                action()
        except BaseException as problem:  # noqa: BLE001  handed to the test
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)
    try:
        for thread in threads:
            thread.start()
        yield problems
    finally:
        sys.setswitchinterval(interval_s)
        is_over.set()
        wake()
        for thread in threads:
            thread.join()
    assert problems == []


def test_rocketmq_8405_a_topic_deleted_a_thousand_times_while_it_is_dispatched():
    """10288: and read and flushed at the same time."""
    disk = MemoryDisk()
    handles = FileHandles(disk, 8)
    table = QueueTable(disk, handles, ROOT, 2000)
    topics = [f"T{number}" for number in range(20)]
    batches = batches_of(2000, topics, 20)
    dispatched, removals = threading.Event(), threading.Semaphore(0)

    def dispatch() -> None:
        for batch in batches:
            table.dispatch(batch)
            dispatched.set()

    def read() -> None:
        removals.acquire(timeout=PATIENCE_S)
        for queue in table.queues():
            queue.read(queue.min_offset, queue.max_offset)
            queue.expired(10**9)
            queue.correct_min(int(batches[5].offsets[0]))
        table.flush()

    with repeated(dispatch, read, wake=removals.release) as problems:
        for _ in range(50):
            while table.find("T19", 0) is None:
                dispatched.clear()
                assert dispatched.wait(PATIENCE_S), problems
            removals.release()
            assert [table.remove_topic(topic, 0) for topic in topics] == [1] * 20
    for topic in topics:
        table.remove_topic(topic, 0)
    assert table.queues() == []
    assert disk.entries(f"{ROOT}/consumequeue") == []
    handles.close()
    assert disk.open_count == 0, "a handle leaked"
    for batch in batches:
        table.dispatch(batch)
    found = table.queues()[0].read(0, 100)["physical_offset"].tolist()
    assert found == [int(batch.offsets[0]) for batch in batches]


def test_rocketmq_8405_records_before_the_deletion_do_not_bring_the_topic_back():
    disk = MemoryDisk()
    table = QueueTable(disk, FileHandles(disk, 8), ROOT, 200)
    old = batches_of(8)
    table.dispatch(old[0])
    assert table.remove_topic("T", old[1].end) == 1
    table.dispatch(old[1])
    assert table.queues() == []
    data = encoded(topic=b"T", queue_offset=0, physical_offset=old[1].end)
    end = old[1].end
    (anew,) = read_batches(lambda at, size: data[at - end : at - end + size], end, end + len(data), 1 << 30)
    assert isinstance(anew, RecordBatch)
    table.dispatch(anew)
    queue = table.find("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (0, 1)


def test_rocketmq_8405_a_deletion_that_fails_can_be_repeated():
    watched = WatchedDisk(MemoryDisk())
    table = QueueTable(watched, FileHandles(watched, 8), ROOT, 200)
    batches = batches_of(32)
    for batch in batches[:7]:
        table.dispatch(batch)
    removals = []

    def fail_at_the_second(operation) -> None:
        assert table._writing.locked() or operation.verb == "sync", "a batch could be dispatched meanwhile"
        if operation.verb == "remove":
            removals.append(operation)
            if len(removals) == 2:
                raise PermissionError(1, "not permitted", operation.path)

    watched.before = fail_at_the_second  # type: ignore[method-assign]
    with pytest.raises(PermissionError):
        table.remove_topic("T", 0)
    table.dispatch(batches[7])  # nothing is appended behind a hole
    assert table.remove_topic("T", 0) == 1
    assert watched.inner.entries(f"{ROOT}/consumequeue") == []


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue/orders", "consumequeue/orders/1"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_rocketmq_10417_queue_files_that_are_gone_leave_no_stale_minimum(tmp_path: Path, part: str, is_clean: bool):
    root = str(tmp_path / "store")
    store = filled(RealFileSystem(), 0, CONFIG, root)
    stored = fill(store, 60)
    store.flush()
    retention_of(store).clean_now(any_age=True)
    low = {queue: store.bounds(*queue) for queue in store.queues()}
    assert all(first > 0 for first, _ in low.values())
    if is_clean:
        store.close()
    else:
        store.abandon()
    shutil.rmtree(tmp_path / "store" / part)
    with open_store(root, CONFIG, workers=False) as again:
        check_against_log(again, stored)
        assert {queue: again.bounds(*queue) for queue in again.queues()} == low


def test_rocketmq_10417_a_topic_made_anew_begins_at_its_first_message():
    store = filled(MemoryDisk())
    retention_of(store).clean_now(any_age=True)
    assert store.bounds("orders", 0)[0] > 0
    assert store.delete_topic("orders")
    end = Probe(store).log_end
    assert store.bounds("orders", 0) == (0, 0)
    assert store.put(Message("orders", b"anew")).queue_offset == 0
    store.flush()
    assert store.bounds("orders", 0) == (0, 1)
    assert store.get("orders", 0, 0).messages[0].physical_offset >= end
    assert retention_of(store).clean_now().changes_nothing
    assert store.bounds("orders", 0) == (0, 1)


def test_rocketmq_2140_a_missing_log_file_is_told_and_stops_no_retention(tmp_path: Path):
    """2141: reads pass it over, and the oldest files go on being deleted, up to the gap and behind it."""
    root = str(tmp_path)
    store = filled(RealFileSystem(), 0, CONFIG, root)
    stored = fill(store, 60)
    store.close()
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    disk = RealFileSystem()
    assert any("no commitlog file holds 4096 to 8192" in each for each in plan_recovery(disk, root, CONFIG).warnings)
    with open_store(root, CONFIG, workers=False) as again:
        assert any("4096" in warning for warning in again.warnings)
        missing = next(number for number, at in enumerate(sorted(stored)) if at >= 4096) // 3
        answer = again.get("orders", 0, missing)
        assert answer.next_offset > missing, "a reader would ask for the same for ever"
        retention = retention_of(again)
        plan = retention.clean_now(any_age=True)
        assert [file.start for file in plan.log_files] == [0, *range(8192, plan.min_offset, 4096)]
        assert len(Probe(again).log_files) == 1
        check_against_log(again, stored)


def test_rocketmq_2140_the_first_file_behind_a_gap_is_where_the_log_begins(tmp_path: Path):
    store = filled(RealFileSystem(), 0, CONFIG, str(tmp_path))
    stored = fill(store, 60)
    store.close()
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    with open_store(str(tmp_path), CONFIG, workers=False) as again:
        retention = retention_of(again, replace(ALWAYS, batch_max=1))
        assert retention.clean_now(any_age=True).min_offset == 8192
        check_against_log(again, stored)


def test_rocketmq_4549_a_full_disk_deletes_nothing_that_must_stay_and_says_so():
    """2260: and what may go does go, whatever its age, up to the file that is being written."""
    store = filled(MemoryDisk(), 0, CONFIG)
    stored = fill(store, 90)
    store.flush()
    keep = [2 * 4096 + 100]
    retention = retention_of(store, NEVER, used=lambda _: 0.97, protect=lambda: keep[0])
    run_a_round(store, retention)
    assert Probe(store).log_start == 2 * 4096
    assert retention.full_reason is not None
    assert retention.last_plan is not None
    assert "not consumed" in retention.last_plan.held_back
    check_against_log(store, stored)
    keep[0] = 2**62
    run_a_round(store, retention)
    assert Probe(store).log_files == [8 * 4096], "the file being written stays"
    check_against_log(store, stored)
    assert store.put(Message("orders", b"x")).is_stored
    Probe(store).sync_log()
    run_a_round(store, retention)
    assert Probe(store).log_files == [8 * 4096, 9 * 4096], "what is not dispatched stays as well"
    store.flush()
    run_a_round(store, retention)
    assert Probe(store).log_files == [9 * 4096]


def run_a_round(store: Store, retention) -> None:
    """A minute of a worker's life."""
    for _ in range(600):
        advance(store, 120)
        retention.step()


def test_rocketmq_8334_a_file_that_is_held_is_deleted_once_and_closed_at_last():
    disk = MemoryDisk()
    watched = WatchedDisk(disk, keep_trace=True)
    store = filled(watched)
    log = Probe(store).engine.parts.log
    held = [log.file_of(start) for start in log.starts]
    contents = [file.read(0, 4096) for file in held]
    retention = retention_of(store)
    for _ in range(3):
        retention.clean_now(any_age=True)
    assert watched.trace is not None
    removed = [each.path for each in watched.trace if each.verb == "remove" and "/commitlog/" in each.path]
    assert len(removed) == len(set(removed)) == 8
    assert len([path for path in disk.image() if "/commitlog/" in path]) == 1, "a reader keeps no name on the disk"
    assert [file.read(0, 4096) for file in held] == contents
    before = disk.open_count
    del held
    assert disk.open_count == before - 8
    assert store.get("orders", 0, 29).status is GetStatus.FOUND
    store.close()
    other = MemoryDisk()
    filled(other).close()
    assert disk.open_count == other.open_count, "no more than every closed store keeps while it lives"


class GuardedSequence(FileSequence):
    """Lets its files change only where no other thread changes them."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "starts" and "_replacing" in self.__dict__:
            assert self._replacing._is_owned()
        super().__setattr__(name, value)


def test_rocketmq_8334_files_come_and_go_at_the_same_time_and_none_twice():
    disk = MemoryDisk()
    sequence = GuardedSequence(disk, FileHandles(disk, 8), ["/a"], 100)
    sequence.add(0)
    gone: list[str] = []

    def retire() -> None:
        gone.extend(sequence.remove_first(len(sequence.starts) - 1))

    with repeated(retire, retire, retire):
        for number in range(1, 400):
            sequence.add(number * 100)
    assert len(gone) == len(set(gone))
    left = [f"/a/{start:020d}" for start in sequence.starts]
    assert left == list(disk.image())
    assert sorted([*gone, *left]) == [f"/a/{number * 100:020d}" for number in range(400)]


def test_a_gap_is_never_made_of_a_queue_that_lost_entries():
    """Entries that are not on the disk yet are flushed before the log they came from goes."""
    disk = MemoryDisk()
    store = filled(disk, 30)
    stored_before = len(readable(store))
    fill(store, 60, 30)
    Probe(store).sync_log()
    Probe(store).catch_up()
    plan = retention_of(store).clean_now(any_age=True)
    assert plan.min_offset > 4 * 4096
    assert stored_before == 30
    try:
        again = open_store(ROOT, CONFIG, filesystem=disk.crash("lost"), workers=False)
    except Corrupt as gap:
        raise AssertionError("the queue lost entries of records that are gone") from gap
    assert again.bounds("orders", 0)[1] == 30
