"""Deleting what is old: what a plan takes and leaves, that just that happens, and what a crash in it leaves."""

import errno
import json
import random
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

import rmqstore
from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetStatus, Message
from rmqstore.engine.log.retention.plan import DiskUse, LogFile, Request, RetentionPolicy, RetentionView, plan_retention
from rmqstore.engine.log.retention.rounds import apply_retention, unconsumed_from
from rmqstore.engine.store import open_store
from rmqstore.errors import DataLost, NotNow, Rejected
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.testing import Probe
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut, WatchedDisk
from tests.log.retaining import (
    ALWAYS,
    CONFIG,
    NEVER,
    QUEUES,
    ROOT,
    advance,
    body_of,
    check_against_log,
    fill,
    filled,
    parts_of,
    readable,
    retention_of,
)

pytestmark = pytest.mark.stores

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
SIZE = 100


def files_of(*ages_h: float, gap_after: int | None = None) -> tuple[LogFile, ...]:
    """Log files of these ages, oldest first."""
    starts = [(number + (gap_after is not None and number > gap_after)) * SIZE for number in range(len(ages_h))]
    return tuple(
        LogFile(f"/s/commitlog/{start:020d}", start, SIZE, NOW_MS - int(age * HOUR_MS))
        for start, age in zip(starts, ages_h, strict=True)
    )


def view_of(*ages_h: float, used: float = 0.5, gap_after: int | None = None, **changes) -> RetentionView:
    files = files_of(*ages_h, gap_after=gap_after)
    use = DiskUse((("/s/commitlog", used),), used)
    plain = RetentionView("/s", files, files[-1].end, use, lambda _: (), lambda _: ())
    return replace(plain, **changes)


def taken(view: RetentionView, policy: RetentionPolicy = ALWAYS) -> list[tuple[int, str]]:
    return [(file.start // SIZE, file.reason) for file in plan_retention(view, policy, NOW_MS).log_files]


def test_the_oldest_go_up_to_the_first_that_is_not_old_enough() -> None:
    assert taken(view_of(80, 72, 71.9, 90, 0)) == [(0, "age"), (1, "age")]
    plan = plan_retention(view_of(80, 72, 71.9, 90, 0), ALWAYS, NOW_MS)
    assert (plan.trigger, plan.log_start, plan.min_offset, plan.freed_bytes) == ("hour", 0, 2 * SIZE, 2 * SIZE)


def test_the_file_being_written_stays_however_old_it_is() -> None:
    assert taken(view_of(100)) == []
    assert taken(view_of(100, 100, 100)) == [(0, "age"), (1, "age")]
    assert taken(view_of(100, 100, 100, log_end=SIZE + 1)) == [(0, "age")], "the second one is being written"
    assert taken(view_of(100, 100, 100, used=0.99, log_end=0, request=Request(900, any_age=True))) == []


def test_only_at_the_hour_or_when_the_disk_or_somebody_says_so() -> None:
    hour = datetime.fromtimestamp(NOW_MS // 1000, UTC).astimezone().hour
    assert taken(view_of(100, 0), RetentionPolicy(delete_when=f"{hour}")) == [(0, "age")]
    assert taken(view_of(100, 0), RetentionPolicy(delete_when=f"{(hour + 5) % 24}; {hour} ;")) == [(0, "age")]
    assert taken(view_of(100, 0), RetentionPolicy(delete_when=f"{(hour + 1) % 24}")) == []
    assert taken(view_of(100, 1, 0, request=Request(900)), NEVER) == [(0, "manual")]
    assert taken(view_of(100, 1, 0, request=Request(900, any_age=True)), NEVER) == [(0, "forced"), (1, "forced")]
    assert taken(view_of(1, 1, 1, 0, request=Request(2 * SIZE, any_age=True)), NEVER) == [(0, "forced"), (1, "forced")]


@pytest.mark.parametrize(
    ("used", "expected", "is_full"),
    [
        (0.75, [], False),
        (0.76, [(0, "age")], False),
        (0.85, [(0, "age")], False),
        (0.86, [(0, "disk"), (1, "disk")], False),
        (0.90, [(0, "disk"), (1, "disk")], False),
        (0.91, [(0, "disk"), (1, "disk")], True),
        (-1.0, [(0, "age")], False),
    ],
)
def test_the_levels_of_the_disk(used: float, expected: list[tuple[int, str]], is_full: bool) -> None:
    view = view_of(100, 1, 0, used=used)
    assert taken(view, NEVER) == expected
    assert plan_retention(view, NEVER, NOW_MS).is_disk_full == is_full
    by_age = [(0, "age")] if expected else []
    assert taken(view, replace(NEVER, cleans_forcibly=False)) == by_age


def test_of_several_log_paths_the_emptiest_counts_and_full_ones_are_told() -> None:
    use = DiskUse((("/a", 0.95), ("/b", 0.2)), 0.1)
    plan = plan_retention(view_of(100, 0, disk=use), NEVER, NOW_MS)
    assert (plan.log_files, plan.is_disk_full, plan.full_log_paths) == ((), False, ("/a",))
    full_queues = DiskUse((("/a", 0.2),), 0.95)
    plan = plan_retention(view_of(1, 0, disk=full_queues), NEVER, NOW_MS)
    assert ([file.reason for file in plan.log_files], plan.is_disk_full) == (["disk"], True)


def test_ten_files_a_round_whatever_the_reason() -> None:
    for view in (view_of(*[100] * 12), view_of(*[1] * 12, used=0.95),
                 view_of(*[1] * 12, request=Request(9999, any_age=True))):  # fmt: skip
        plan = plan_retention(view, ALWAYS, NOW_MS)
        assert len(plan.log_files) == 10
        assert plan.has_more
        assert not plan_retention(view, replace(ALWAYS, batch_max=11), NOW_MS).has_more


def test_what_must_stay_stays_even_on_a_full_disk() -> None:
    view = view_of(100, 100, 100, 0, used=0.99, kept_from=SIZE + 7, kept_why="because")
    plan = plan_retention(view, ALWAYS, NOW_MS)
    assert [file.start for file in plan.log_files] == [0]
    assert plan.held_back.endswith("00100: because")
    assert plan.is_disk_full
    assert plan_retention(replace(view, kept_from=2 * SIZE), ALWAYS, NOW_MS).min_offset == 2 * SIZE


def test_behind_a_gap_the_log_begins_with_the_next_file() -> None:
    plan = plan_retention(view_of(100, 100, 0, gap_after=1), ALWAYS, NOW_MS)
    assert plan.min_offset == 3 * SIZE


def test_a_plan_can_be_shown() -> None:
    plan = plan_retention(view_of(*[100] * 16, used=0.95), ALWAYS, NOW_MS)
    assert max(map(len, plan.lines())) <= 80
    shown = "\n".join(plan.lines())
    for part in ("95% used", "no message is taken", "00000000000000000000: 100 bytes", "left for the next round"):
        assert part in shown
    document = json.loads(json.dumps(plan.as_dict()))
    assert document["minOffset"] == 10 * SIZE
    assert document["freedBytes"] == 10 * SIZE
    assert plan_retention(view_of(0), NEVER, NOW_MS).lines()[-1].endswith("nothing to do")


def policy_of_broker(text: str) -> RetentionPolicy:
    """As `rmqstore clean --broker-conf` makes it."""
    return RetentionPolicy.of(StoreConfig.from_broker_conf("broker.conf", lambda _: text), text)


def test_a_broker_s_configuration() -> None:
    text = "deleteWhen=02;14\nfileReservedTime = 48\ndiskMaxUsedSpaceRatio=3\ndiskSpaceWarningLevelRatio=99\n"
    text += "cleanFileForciblyEnable=false\ndeleteFileBatchMax=3\nbrokerName=a\n#fileReservedTime=1\n"
    policy = policy_of_broker(text)
    assert policy == RetentionPolicy(
        delete_when="02;14", reserved_ms=48 * HOUR_MS, max_used_percent=10, warning_percent=90, cleans_forcibly=False,
        batch_max=3,
    )  # fmt: skip
    for wrong in ("deleteWhen=25", "deleteWhen=four", "fileReservedTime=x", "deleteFileBatchMax=0"):
        with pytest.raises(Rejected, match=r"delete_when|fileReservedTime|batch_max"):
            policy_of_broker(wrong)


# --- a store


def test_what_the_plan_says_is_what_goes() -> None:
    disk = MemoryDisk()
    store = filled(disk, 0)
    stored = fill(store, 90)
    store.flush()
    retention, before = retention_of(store), disk.image()
    plan = retention.plan(any_age=True)
    assert disk.image() == before
    assert retention.clean_now(any_age=True) == plan
    gone = before.keys() - disk.image().keys()
    paths = [path for queue in plan.queues for path in queue.paths]
    assert gone == {*paths, *(file.path for file in plan.log_files), *(file.path for file in plan.index_files)}
    assert plan.freed_bytes == sum(len(before[path]) for path in gone)
    assert len(plan.log_files) == 8
    assert len(plan.queues) == 3
    assert len(plan.index_files) >= 5
    check_against_log(store, stored)
    assert not retention.plan().must_follow, "queues would be looked at every time"
    assert (retention.removed_files, retention.removed_bytes) == (plan.file_count, plan.freed_bytes)
    stored |= fill(store, 30, 90)
    store.flush()
    check_against_log(store, stored)
    assert disk.crash("lost").image().keys() == disk.image().keys(), "a deletion is not durable"
    store.close()
    check_against_log(open_store(ROOT, CONFIG, filesystem=disk, workers=False), stored)


def test_reads_of_what_is_gone_say_so() -> None:
    store = filled(MemoryDisk())
    retention_of(store).clean_now(any_age=True)
    low, high = store.bounds("orders", 0)
    answer = store.get("orders", 0, 0)
    assert (answer.status, answer.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
    assert store.get("orders", 0, low).messages[0].queue_offset == low < high
    assert store.offset_at("orders", 0, 0) == low
    with pytest.raises(DataLost):
        store.message_at(0)


def test_a_queue_of_which_all_is_gone_goes_on_counting() -> None:
    disk = MemoryDisk()
    store = filled(disk, 0)
    for _ in range(30):
        store.put(Message("early", b"x"))
    fill(store, 40)
    store.flush()
    retention_of(store).clean_now(any_age=True)
    assert store.bounds("early", 0) == (30, 30)
    store.close()
    store = open_store(ROOT, CONFIG, filesystem=disk, workers=False)
    assert store.bounds("early", 0) == (30, 30)
    assert store.put(Message("early", b"y")).queue_offset == 30
    store.flush()
    assert store.get("early", 0, 30).messages[0].body == b"y"


def test_the_steps_of_a_day() -> None:
    """Nothing in the first minute, ten files a round, a pause between two of them, ten seconds between two rounds."""
    store = filled(MemoryDisk(), 150)
    probe, clock = Probe(store), Probe(store).clock
    assert isinstance(clock, ManualClock)
    retention = retention_of(store, replace(ALWAYS, reserved_ms=0))
    count = len(probe.log_files)
    assert count > 12
    assert retention.step() == 10
    clock.advance(59_999)
    assert retention.step() == 10
    assert len(probe.log_files) == count
    clock.advance(10_000)
    for gone in range(1, 11):
        assert retention.step() == pytest.approx(0.1)
        assert len(probe.log_files) == count - gone
        assert retention.step() == pytest.approx(0.1), "it was too early for the next one"
        clock.advance(100)
    assert store.bounds("orders", 0)[0] == 0
    assert retention.step() == 10
    assert store.bounds("orders", 0)[0] > 0
    assert retention.step() == 10
    clock.advance(10_000)
    retention.step()
    assert len(probe.log_files) == count - 11
    assert retention.last_plan is not None
    assert retention.last_plan.trigger == "hour"


def test_what_was_asked_for_goes_on_in_the_next_rounds_and_then_ends() -> None:
    store = filled(MemoryDisk(), 150)
    retention = retention_of(store, replace(NEVER, pause_ms=0))
    count = len(Probe(store).log_files)
    assert retention.clean_now().changes_nothing, "nothing is old"
    assert retention.clean_now(any_age=True).has_more
    assert len(Probe(store).log_files) == count - 10
    fill(store, 60, 150)
    store.flush()
    retention.step()
    assert Probe(store).log_files[0] == (count - 1) * 4096, "only what was there when it was asked for"
    assert retention.last_plan is not None
    assert not retention.last_plan.has_more


def test_a_full_disk_is_told_before_anything_is_deleted_and_until_there_is_room() -> None:
    store, used = filled(MemoryDisk()), [0.95]
    retention = retention_of(store, used=lambda path: used[0])
    retention.step()
    assert retention.full_reason is not None
    assert "95%" in retention.full_reason
    assert retention.full_log_paths == (f"{ROOT}/commitlog",)
    assert readable(store), "reads go on"
    used[0] = 0.90
    advance(store, 10_000)
    retention.step()
    assert retention.full_reason is None


def test_what_is_not_dispatched_stays() -> None:
    store = filled(MemoryDisk(), 30)
    end = Probe(store).dispatched
    fill(store, 60, 30)
    Probe(store).sync_log()
    plan = retention_of(store).clean_now(any_age=True)
    assert plan.min_offset == end - end % 4096
    assert "not in their queues" in plan.held_back


def test_a_disk_that_does_not_confirm_puts_the_round_off() -> None:
    store = filled(MemoryDisk())
    retention = retention_of(store, flush=lambda: False)
    with pytest.raises(NotNow):
        retention.clean_now(any_age=True)
    assert Probe(store).log_files[0] == 0


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_a_round_that_fails_is_not_counted_and_no_later_one_does_what_it_should(part: str) -> None:
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    retention_of(filled(watched)).clean_now(any_age=True)
    assert watched.trace is not None
    at = next(each.number for each in watched.trace if each.verb == "remove" and part in each.path)
    store = filled(FailingDisk(MemoryDisk(), at, errno.EIO))
    retention = retention_of(store)
    with pytest.raises(OSError, match="Input/output"):
        retention.clean_now(any_age=True)
    assert (retention.removed_files, retention.removed_bytes) == (0, 0)
    left = Probe(store).log_files
    retention.step()
    assert Probe(store).log_files == left
    plan = retention.clean_now(any_age=True)
    assert (retention.removed_files, retention.removed_bytes) == (plan.file_count, plan.freed_bytes)


@pytest.mark.parametrize("verb", ["remove", "sync_directory"])
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_a_deletion_that_fails_is_told_and_tried_again(verb: str, part: str) -> None:
    halves = replace(NEVER, pause_ms=0, batch_max=5)  # what is asked for goes on in the next step, and fails there
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    whole = retention_of(filled(watched), halves)
    assert whole.clean_now(any_age=True).has_more
    whole.step()
    assert watched.trace is not None
    at = [each.number for each in watched.trace if each.verb == verb and part in each.path][-1]
    disk = FailingDisk(MemoryDisk(), at, errno.EIO)
    store = filled(disk, 0)
    stored = fill(store, 90)
    store.flush()
    retention = retention_of(store, halves)
    retention.clean_now(any_age=True)
    assert retention.step() == 10
    assert isinstance(retention.failure, OSError)
    assert disk.failed is not None
    assert disk.failed.verb == verb
    advance(store, 10_000)
    assert retention.step() == 10
    assert retention.failure is None
    check_against_log(store, stored)
    healthy = MemoryDisk()
    retention_of(filled(healthy)).clean_now(any_age=True)
    assert _kinds(disk.inner) == _kinds(healthy)


def _kinds(disk) -> list[str]:
    """The files of a store; index files are named after times."""
    return [path if "/index/" not in path else "index" for path in disk.image() if "checkpoint" not in path]


def test_a_reader_keeps_the_file_it_has_and_its_room_is_free_after() -> None:
    disk = MemoryDisk()
    store = filled(disk)
    file, content = Probe(store).engine.parts.log.file_of(0), Probe(store).read_log(0, 4096)
    opened = disk.open_count
    retention_of(store).clean_now(any_age=True)
    assert file.read(0, 4096) == content
    assert Probe(store).read_log(0, 4096) == b""
    held = disk.open_count
    assert held < opened
    del file
    assert disk.open_count == held - 1


def test_queue_files_are_looked_at_once_and_the_newest_entry_s_stays() -> None:
    watched = WatchedDisk(MemoryDisk())
    store = filled(watched)
    parts = Probe(store).engine.parts
    queue = parts.queues.find("orders", 0)
    assert queue is not None
    reads: list[str] = []
    watched.before_reading = reads.append  # type: ignore[method-assign]
    parts.handles.close()
    assert queue.expired(10**9) == [0, 200], "the last one holds the newest entry"
    assert len([path for path in reads if path.endswith("00")]) == 2 * 2, "an open and a read for each"
    reads.clear()
    assert queue.expired(10**9) == [0, 200]
    assert queue.expired(0) == []
    assert reads == []
    for _ in range(10):
        store.put(Message("other", b"x"))
    store.flush()
    other = parts.queues.find("other", 0)
    assert other is not None
    other.files.add(200)  # as an append does before it writes there
    assert other.expired(10**9) == [], "the next queue offset is known by it alone"


def test_the_log_stays_from_the_slowest_group_on() -> None:
    store = filled(MemoryDisk())
    queues = Probe(store).engine.parts.queues
    last = {queue_id: store.bounds("orders", queue_id)[1] for queue_id in (0, 1)}
    assert unconsumed_from(queues, {("fast", "orders"): last, ("other", "nowhere"): {0: 3}}) is None
    committed = {("fast", "orders"): last, ("slow", "orders"): {0: 15, 1: 20}}
    place = store.get("orders", 0, 15, 1).messages[0].physical_offset
    assert unconsumed_from(queues, committed) == place
    retention = retention_of(store, used=lambda _: 0.95, protect=lambda: unconsumed_from(queues, committed))
    plan = retention.clean_now(any_age=True)
    assert plan.min_offset == place - place % 4096
    assert "not consumed" in plan.held_back
    assert unconsumed_from(queues, {("late", "orders"): {0: 0}}) == plan.min_offset + _first_of("orders", 0, store)


def _first_of(topic: str, queue_id: int, store) -> int:
    """How far behind the beginning of the log a queue's first message stands."""
    low, _ = store.bounds(topic, queue_id)
    return store.get(topic, queue_id, low, 1).messages[0].physical_offset - Probe(store).log_start


# --- crashes

SWEPT = replace(CONFIG, index_item_count=12)


@pytest.mark.some(4)
@pytest.mark.crash
@pytest.mark.parametrize("choice", ["lost", "kept", "killed", 1, 2])
def test_a_crash_at_any_point_of_a_round(choice) -> None:
    """What is left is a store without a gap; the same round again completes it."""
    _, whole, first, synced = _round(CrashAt(MemoryDisk()))
    for at in range(first, whole.operations + 1):
        stored, disk, _, _ = _round(CrashAt(MemoryDisk(), at))
        inner = disk.inner
        assert isinstance(inner, MemoryDisk)
        image = inner.crash(random.Random(choice * 1000 + at) if isinstance(choice, int) else choice)
        starts = [int(path[-20:]) for path in image.image() if "/commitlog/" in path]
        assert starts == list(range(starts[0], 5 * 4096 + 1, 4096)), f"{at}: a gap"
        store = open_store(ROOT, SWEPT, filesystem=image, workers=False)
        end = store.recovery.log_end
        assert end >= synced
        stored = {place: body for place, body in stored.items() if place < end}  # the rest was lost with the power
        check_against_log(store, stored)
        retention_of(store).clean_now(any_age=True)
        check_against_log(store, stored)
        assert len([path for path in image.image() if "/commitlog/" in path]) == 1, at
        if at % 4 == 0:
            store.close()
            check_against_log(open_store(ROOT, SWEPT, filesystem=image, workers=False), stored)


def _round(disk: CrashAt) -> tuple[dict[int, bytes], CrashAt, int, int]:
    """A store and one round in it, as far as it gets; the round's first operation, and how far the log was synced."""
    store = open_store(ROOT, SWEPT, filesystem=disk, workers=False)
    stored = fill(store, 36)
    store.flush()
    stored |= fill(store, 18, 36)  # dispatched, and not synced
    probe = Probe(store)
    probe.catch_up()
    first, synced = disk.operations + 1, probe.flushed
    retention = retention_of(store, log_end=lambda: probe.log_end)
    with suppress(PowerCut):
        retention.clean_now(any_age=True)
    return stored, disk, first, synced


def test_a_plan_that_is_carried_out_twice_does_nothing_more() -> None:
    disk = MemoryDisk()
    store = filled(disk)
    plan = retention_of(store).plan(any_age=True)
    parts = parts_of(store)
    apply_retention(plan, parts)
    image = disk.image()
    apply_retention(plan, parts)
    assert {path: data for path, data in disk.image().items() if "checkpoint" not in path} == {
        path: data for path, data in image.items() if "checkpoint" not in path
    }


# --- readers in the way


def test_rounds_while_others_put_read_and_dispatch(tmp_path) -> None:
    """Who reads gets messages or is told where to go on; every file is closed in the end."""
    store = filled(RealFileSystem(), 200, SWEPT, str(tmp_path))
    retention = retention_of(store, replace(ALWAYS, reserved_ms=0, pause_ms=0))
    problems: list[BaseException] = []
    is_over = threading.Event()

    def read() -> None:
        places = dict.fromkeys(QUEUES, 0)
        while not is_over.is_set():
            for queue, offset in places.items():
                answer = store.get(*queue, offset)
                assert answer.status is not GetStatus.NO_MESSAGE_IN_QUEUE
                for message in answer.messages:
                    assert message.is_whole
                    assert message.queue_offset >= offset
                places[queue] = answer.next_offset if answer.next_offset < answer.max_offset else 0
            store.query("orders", "key3")

    def put() -> None:
        for number in range(200, 350):
            topic, queue_id = QUEUES[number % 3]
            assert store.put(Message(topic, body_of(number), queue_id=queue_id)).is_stored
            Probe(store).step("dispatch")

    def guarded(action) -> None:
        try:
            action()
        except BaseException as problem:  # noqa: BLE001  handed to the test
            problems.append(problem)

    readers = [threading.Thread(target=guarded, args=(read,)) for _ in range(2)]
    putter = threading.Thread(target=guarded, args=(put,))
    for thread in (*readers, putter):
        thread.start()
    while putter.is_alive():
        retention.clean_now(any_age=True)
    putter.join()
    is_over.set()
    for thread in readers:
        thread.join()
    assert problems == []
    store.flush()
    while retention.clean_now(any_age=True).has_more:
        pass
    assert len(Probe(store).log_files) == 1
    assert retention.removed_files > 30
    found = readable(store)
    assert list(found) == sorted(found)
    assert store.bounds("orders", 0)[1] == 117
    store.close()


@pytest.mark.parametrize("access", ["mmap", "pread"])
@pytest.mark.parametrize("mode", ["queue", "commitlog"])
def test_a_scan_that_is_under_way_gives_its_rows_or_says_what_is_lost(tmp_path, mode: str, access: str) -> None:
    store = filled(RealFileSystem(), 60, CONFIG, str(tmp_path))
    snapshot = rmqstore.open_snapshot(str(tmp_path), access=access)
    how = {"scan_mode": mode, "batch_rows": 5}
    bodies = {body_of(number) for number in range(60)}
    whole = snapshot.scan(["orders", "refunds"], **how)
    rest = snapshot.scan(["orders", "refunds"], fail_on_data_loss=False, **how)
    early = [*whole.read_next_batch()["body"].to_pylist(), *rest.read_next_batch()["body"].to_pylist()]
    retention_of(store).clean_now(any_age=True)
    with pytest.raises(DataLost, match="commitlog"):
        whole.read_all()
    found = early[5:] + rest.read_all()["body"].to_pylist()
    assert len(found) == len(set(found)) < 60
    assert set(readable(store).values()) <= set(found) <= bodies
    anew = rmqstore.open_snapshot(str(tmp_path), access=access).scan(["orders", "refunds"], **how).read_all()
    assert set(anew["body"].to_pylist()) == set(readable(store).values())
