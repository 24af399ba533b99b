"""The delivery of waiting messages: order, times, what is in the way, progress, and any crash."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.broker.delay import DelayLevels
from rmqstore.engine.broker.delay_delivery import FAILURE_PAUSE_S, PAUSE_S
from rmqstore.engine.log.encode.columns import EncodedColumns, Goals
from rmqstore.engine.store import open_store
from rmqstore.errors import DurabilityLost
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import names
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.testing import Probe
from tests.broker.delaying import Delaying, Put, Saved
from tests.crash.disks import Choice, MemoryDisk, Operation, WatchedDisk
from tests.golden.conftest import store_of

pytestmark = pytest.mark.stores

__all__ = ["store_of"]

SMALL = StoreConfig(log_file_size=16384, queue_file_size=2000, index_enabled=False, busy_timeout_ms=10_000_000)
PATH = "/store"


def delaying(**changes: object) -> Delaying:
    settings = {"path": PATH, "config": SMALL, "clock": ManualClock(), "fs": MemoryDisk()} | changes
    return Delaying(**settings)  # type: ignore[arg-type]


def delayed(body: bytes, level: int, topic: str = "orders", queue_id: int = 0) -> Message:
    return Message(topic, body, properties={"DELAY": str(level)}, queue_id=queue_id)


def started(**changes: object) -> Delaying:
    """A store whose delivery has begun."""
    load = delaying(**changes)
    load.clock.advance(1000)
    return load


def test_a_message_comes_when_its_time_has_come() -> None:
    load = started()
    load.store.put(delayed(b"late", 2))
    load.store.put(delayed(b"soon", 1, queue_id=3))
    load.run()
    assert load.delivery.pending_count == 2
    load.clock.advance(999)
    load.run()
    assert load.bodies("orders", 3) == []
    load.clock.advance(1)
    load.run()
    assert load.bodies("orders", 3) == [b"soon"]
    load.clock.advance(3999)
    load.run()
    assert load.bodies("orders") == []
    load.clock.advance(1)
    load.run()
    assert load.bodies("orders") == [b"late"]
    assert (load.delivery.delivered_count, load.delivery.pending_count) == (2, 0)


def test_the_first_look_is_a_second_after_the_start_and_then_ten_a_second() -> None:
    load = delaying()
    load.store.put(delayed(b"x", 1))
    load.store.step()
    load.clock.advance(200)
    assert load.delivery.step() == pytest.approx(0.8)
    load.clock.advance(800)
    assert load.delivery.step() == PAUSE_S
    assert load.delivery.delivered_count == 1


def test_what_is_delivered_is_not_delayed_again_and_keeps_its_properties() -> None:
    load = started()
    load.store.put(Message("orders", b"x", "paid", "key", {"DELAY": "1", "a": "b"}, born_timestamp_ms=5, flag=9))
    load.clock.advance(1000)
    load.run()
    waited, came = (load.store.get(topic, 0, 0).messages[0] for topic in (names.SCHEDULE_TOPIC, "orders"))
    assert came.record.properties == waited.record.properties
    assert came.properties == {
        "TAGS": "paid", "KEYS": "key", "a": "b", "DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"
    }  # fmt: skip
    assert (came.flag, came.born_timestamp_ms, came.store_timestamp_ms) == (9, 5, load.clock.ms)


def test_a_level_stops_at_the_first_message_that_is_not_due() -> None:
    load = started()
    for number in range(40):
        load.store.put(delayed(b"%d" % number, 1))
        load.clock.advance(100)
    load.clock.advance(-1000)  # now the last ten are not due for a second at least
    load.run()
    assert load.bodies("orders") == [b"%d" % number for number in range(21)]
    load.clock.advance(1000)
    load.run()
    assert load.bodies("orders") == [b"%d" % number for number in range(31)]


def test_a_clock_that_was_set_back_far_makes_messages_due() -> None:
    load = started()
    load.store.put(delayed(b"x", 1))
    load.clock.advance(-86_400_000)
    load.delivery.step()  # the manual clock goes back as a whole
    load.clock.advance(1000)
    load.run()
    assert load.bodies("orders") == [b"x"]


def test_batches_are_bounded_and_the_order_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore.engine.broker.delay_delivery._BATCH_SIZE", 5000)
    monkeypatch.setattr("rmqstore.engine.broker.delay_delivery._BATCH_COUNT", 25)
    load = started()
    sizes = [10, 6000, 10, 6000, *[150] * 60]
    bodies = [b"%d" % number + bytes(size) for number, size in enumerate(sizes)]
    for body in bodies:
        load.store.put(delayed(body, 1))
    load.store.step()
    load.clock.advance(1000)
    assert load.delivery.step() == 0
    assert load.delivery.delivered_count == 1
    load.run()
    assert load.bodies("orders") == bodies


def test_messages_that_cannot_be_read_or_delivered_are_passed_over_and_counted() -> None:
    load = started()
    for number in range(30):
        load.store.put(delayed(b"%d" % number, 1))
    half = {"DELAY": "1", "REAL_TOPIC": names.HALF_TOPIC, "REAL_QID": "0"}
    load.store.put(Message(names.SCHEDULE_TOPIC, b"half", properties=half))
    load.store.put(Message(names.SCHEDULE_TOPIC, b"lost", properties={"DELAY": "1"}))
    damaged = load.store.get(names.SCHEDULE_TOPIC, 0, 4).messages or load.store.step()
    damaged = load.store.get(names.SCHEDULE_TOPIC, 0, 4).messages
    place = damaged[0].physical_offset + damaged[0].stored_record.index(b"4", 80)
    load.engine.log.files.write(place, b"!")
    load.clock.advance(1000)
    load.run()
    assert load.bodies("orders") == [b"%d" % number for number in range(30) if number != 4]
    counts = load.delivery.delivered_count, load.delivery.half_count, load.delivery.unreadable_count
    assert counts == (29, 1, 2)
    assert load.delivery.offsets[1] == 32


class Refusing:
    """A put that takes a few records of each call, or raises."""

    def __init__(self) -> None:
        self.take = 0
        self.failure: Exception | None = None

    def __call__(self, put: Put) -> Put:
        def some(records: EncodedColumns) -> PutResult:
            if self.failure is not None:
                raise self.failure
            if self.take >= records.count:
                return put(records)
            part = EncodedColumns(
                records.data[: records.starts[self.take]], records.starts[: self.take + 1],
                Goals(records.queues, records.queue_numbers[: self.take]),
                store_time_at=records.store_time_at[: self.take], has_crc=False,
            )  # fmt: skip
            stored = put(part).message_count if self.take else 0
            return PutResult(PutStatus.OS_PAGE_CACHE_BUSY, message_count=stored)

        return some


@pytest.mark.parametrize("count", [5, 50])
def test_what_a_put_refuses_is_tried_again(count: int) -> None:
    refusing = Refusing()
    load = started(wrap=refusing)
    half = {"DELAY": "1", "REAL_TOPIC": names.HALF_TOPIC, "REAL_QID": "0"}
    load.store.put(Message(names.SCHEDULE_TOPIC, b"half", properties=half))
    for number in range(count):
        load.store.put(delayed(b"%d" % number, 1))
    load.clock.advance(1000)
    load.store.step()
    for taken, progress in ((0, 1), (3, 4), (1, 5)):
        refusing.take = taken
        assert load.delivery.step() == PAUSE_S
        assert load.delivery.offsets[1] == progress
    refusing.take = 10**6
    load.run()
    assert load.bodies("orders") == [b"%d" % number for number in range(count)]
    assert (load.delivery.refused_count, load.delivery.delivered_count) == (3, count)
    assert load.delivery.lateness_counts.sum() == count


def test_a_failure_rests_its_level_for_ten_seconds() -> None:
    refusing = Refusing()
    refusing.take, refusing.failure = 10, DurabilityLost("the disk is gone")
    load = started(wrap=refusing)
    load.store.put(delayed(b"x", 1))
    load.clock.advance(1000)
    load.store.step()
    assert load.delivery.step() == PAUSE_S  # the other levels go on
    assert "the disk is gone" in load.delivery.last_failure
    refusing.failure = None
    load.clock.advance(int(FAILURE_PAUSE_S * 1000) - 1)
    load.run()
    assert load.bodies("orders") == []
    load.clock.advance(1)
    load.run()
    assert load.bodies("orders") == [b"x"]
    assert load.delivery.failure_count == 1


def test_a_message_too_large_for_its_way_back_does_not_stop_the_others() -> None:
    load = started()
    topic = "T" * 127
    room = SMALL.log_file_size - 8
    empty = load.store.put(delayed(b"", 1, topic)).size
    load.store.put(delayed(bytes(room - empty), 1, topic))
    load.store.put(delayed(b"x", 1))
    load.clock.advance(1000)
    load.run()
    assert load.bodies("orders") == [b"x"]
    assert load.delivery.unreadable_count == 1


def test_entries_that_point_at_extension_units_wait_by_their_records() -> None:
    load = started()
    for number in range(3):
        load.store.put(delayed(b"%d" % number, 1))
        load.clock.advance(400)
    load.store.step()
    queue = load.engine.parts.queues.find(names.SCHEDULE_TOPIC, 0)
    assert queue is not None
    for row in range(3):
        entry = queue.read(row, row + 1)[0]
        data = QUEUE_ENTRY.struct.pack(int(entry["physical_offset"]), int(entry["size"]), -(2**63) + 64 * row)
        queue.files.write(row * QUEUE_ENTRY.size, data)
    load.run()
    assert load.bodies("orders") == [b"0"]
    load.clock.advance(600)
    load.run()
    assert load.bodies("orders") == [b"0", b"1", b"2"]


def test_lateness_is_counted_in_classes() -> None:
    load = started()
    half = {"DELAY": "1", "REAL_TOPIC": names.HALF_TOPIC, "REAL_QID": "0"}
    load.store.put(Message(names.SCHEDULE_TOPIC, b"half", properties=half))  # does not count
    load.clock.advance(5000)
    load.store.put(delayed(b"a", 1))
    load.clock.advance(120)
    load.store.put(delayed(b"b", 1))
    load.clock.advance(1000)
    load.run()
    assert load.delivery.lateness_counts.tolist() == [1, 0, 0, 0, 1, *[0] * 7]


# Progress.


def test_progress_is_saved_every_ten_seconds_where_there_was_any() -> None:
    load = started()
    load.store.put(delayed(b"a", 1))
    load.clock.advance(1000)
    load.run()
    assert load.saved.count == 0
    load.clock.advance(8000)
    load.run()
    assert load.saved.count == 1
    assert load.saved.table == {level: int(level == 1) for level in range(1, 19)}
    load.clock.advance(60_000)
    load.run()
    load.delivery.persist()
    assert load.saved.count == 1


def test_a_save_that_fails_is_tried_again() -> None:
    refusals: list[OSError] = []

    class Refusing(Saved):
        def save(self, offsets: dict[int, int]) -> None:
            if refusals:
                raise refusals.pop()
            super().save(offsets)

    load = started(saved=Refusing())
    load.store.put(delayed(b"a", 1))
    load.clock.advance(1000)
    load.run()
    refusals.append(OSError(28, "No space left on device"))
    for _ in range(2):
        load.clock.advance(10_000)
        load.run()
    assert (load.saved.table[1], load.delivery.failure_count) == (1, 1)


def test_delivery_goes_on_where_it_was_saved() -> None:
    disk, clock, saved = MemoryDisk(), ManualClock(), Saved()
    load = started(fs=disk, clock=clock, saved=saved)
    for number in range(4):
        load.store.put(delayed(b"%d" % number, 1))
        load.clock.advance(1000)
        load.run()
    load.close()
    again = started(fs=disk, clock=clock, saved=saved)
    again.run()
    assert again.bodies("orders") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(("loaded", "first"), [(-5, 0), (1, 1), (3, 3), (99, 3)])
def test_progress_is_forced_into_its_queue(loaded: int, first: int) -> None:
    disk, clock = MemoryDisk(), ManualClock()
    with open_store(PATH, SMALL, clock=clock, filesystem=disk, hooks=[DelayLevels((1000,))], workers=False) as store:
        for number in range(3):
            store.put(delayed(b"%d" % number, 1))
        store.flush()
    load = started(fs=disk, clock=clock, saved=Saved({1: loaded, 2: 7, 40: 11}))
    assert (load.delivery.offsets[1], load.delivery.offsets[2], load.delivery.offsets[40]) == (first, 0, 11)
    load.run()
    assert load.bodies("orders") == [b"0", b"1", b"2"][first:]
    load.delivery.persist()
    assert (load.saved.table[1], load.saved.table[40]) == (3, 11)


def test_a_store_that_a_broker_left_is_continued(store_of: Callable[[str], Path], tmp_path: Path) -> None:
    """The delay store of RocketMQ's own tests: all of it is delivered, each message once."""
    config = StoreConfig(preallocate=False)
    for path in store_of("delay").rglob("*"):
        target = tmp_path / path.relative_to(store_of("delay"))
        if path.is_dir():
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    clock = ManualClock(2_000_000_000_000)
    load = Delaying(str(tmp_path), config, clock)
    clock.advance(1000)
    waited = load.delivery.pending_count
    ends = {queue: load.store.bounds(*queue)[1] for queue in load.store.queues()}
    load.run()
    came = sum(load.store.bounds(*queue)[1] - ends.get(queue, 0) for queue in load.store.queues())
    assert came == waited > 50
    assert load.delivery.pending_count == load.delivery.unreadable_count == 0


# The bulk path.


def test_columns_with_levels_are_delivered_like_messages() -> None:
    rows = [(b"%d" % number, number % 5, f"t{number % 3}", number % 2) for number in range(200)]
    stores = []
    for is_bulk in (True, False):
        load = started()
        if is_bulk:
            bodies, levels, topics, queue_ids = (list(column) for column in zip(*rows, strict=True))
            columns = {"topic": topics, "body": bodies, "delayLevel": levels, "queueId": queue_ids}
            assert load.store.put_columns(pa.table(columns)).message_count == 200
        else:
            for body, level, topic, queue_id in rows:
                asked = {"DELAY": str(level)} if level else {}
                load.store.put(Message(topic, body, properties=asked, queue_id=queue_id))
        load.clock.advance(60_000)
        load.run()
        stores.append(load)
    bulk, single = ([[m.stored_record for m in load.store.get(*queue, 0, 32).messages]
                     for queue in load.store.queues()] for load in stores)  # fmt: skip
    assert bulk == single
    assert [load.delivery.delivered_count for load in stores] == [160, 160]


def test_many_and_few_deliver_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    images = []
    for few_count in (0, 10**6):
        monkeypatch.setattr("rmqstore.engine.broker.delay_delivery._FEW_COUNT", few_count)
        disk = MemoryDisk()
        load = started(fs=disk, config=replace(SMALL, append_property_crc=True))
        chance = random.Random(3)
        for number in range(120):
            load.store.put(
                delayed(chance.randbytes(chance.randrange(400)), 1 + number % 3, f"t{number % 4}", number % 2)
            )
        load.clock.advance(60_000)
        load.run()
        load.close()
        images.append(disk.image())
    assert images[0] == images[1]


# Crashes.

CRASH = StoreConfig(log_file_size=4096, queue_file_size=200, index_enabled=False, flush="SYNC",
                    flush_interval_ms=0, busy_timeout_ms=10_000_000)  # fmt: skip
CRASH_MS = CRASH.delay_ms()


class Life:
    """A store with delayed messages: what it took is in `taken`, body → when it may come."""

    def __init__(self, fs: FileSystem, clock: ManualClock, taken: dict[bytes, int]) -> None:
        self.clock, self.taken = clock, taken
        self.store = open_store(PATH, CRASH, clock=clock, filesystem=fs, workers=False)
        self.probe, self.delivery = Probe(self.store), self.store.delay

    def put(self, count: int, level: int) -> None:
        for _ in range(count):
            body = b"<%d>" % len(self.taken)
            due_ms = self.clock.ms + CRASH_MS[level - 1]
            result = self.store.put(delayed(body.ljust(40 + 7 * level, b"."), level, f"t{level % 2}"))
            if result.status is PutStatus.PUT_OK:
                self.taken[body.ljust(40 + 7 * level, b".")] = due_ms

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.store.step()
        self.probe.catch_up()
        while self.delivery.step() == 0:
            self.probe.catch_up()
        self.store.step()
        self.probe.catch_up()

    def close(self) -> None:
        self.store.close()

    def check_nothing_early(self) -> set[bytes]:
        """The bodies that were delivered, none of them before its time."""
        came = set()
        for topic, queue_id in self.store.queues():
            if topic == names.SCHEDULE_TOPIC:
                continue
            messages: list[StoredMessage] = []
            while answer := self.store.get(topic, queue_id, len(messages)).messages:
                messages += answer
            assert len(messages) == self.store.bounds(topic, queue_id)[1]
            for message in messages:
                assert message.body is not None
                level = int(message.properties["DELAY"])
                due_ms = self.taken.get(message.body, message.born_timestamp_ms + CRASH_MS[level - 1])
                assert message.store_timestamp_ms >= due_ms, message.body
                came.add(message.body)
        return came


def live(fs: FileSystem, clock: ManualClock, taken: dict[bytes, int]) -> None:
    """Two lives of a store, with files of all kinds rolled, and progress saved while messages wait."""
    life = Life(fs, clock, taken)
    life.advance(1000)
    life.put(6, 1)
    life.put(5, 2)
    life.advance(1000)
    life.put(14, 1)
    life.advance(500)
    life.advance(3000)
    life.put(3, 3)
    life.advance(6000)  # with a save
    life.put(4, 1)
    life.advance(900)
    life.close()
    life = Life(fs, clock, taken)
    life.put(5, 2)
    life.advance(1000)
    life.advance(12_000)
    life.put(1, 1)


# `make crash` tries every choice at every operation; else they take turns.
FAR = "RMQSTORE_CRASH_ROUNDS" in os.environ


class CrashPoints(WatchedDisk):
    """Takes what a crash just before each operation would leave, with the time and what was taken until then."""

    def __init__(self, clock: ManualClock, taken: dict[bytes, int], choices: list[Choice]) -> None:
        super().__init__(MemoryDisk())
        self.points: list[tuple[Operation, Choice, MemoryDisk, int, dict[bytes, int]]] = []
        self._clock, self._taken, self._choices = clock, taken, choices

    def before(self, operation: Operation) -> None:
        assert isinstance(self.inner, MemoryDisk)
        count = len(self._choices) if FAR else 1
        for place in range(operation.number, operation.number + count):
            choice = self._choices[place % len(self._choices)]
            self.points.append((operation, choice, self.inner.crash(choice), self._clock.ms, dict(self._taken)))


def test_no_crash_loses_a_message_or_delivers_one_early() -> None:
    clock, taken = ManualClock(), {}
    disk = CrashPoints(clock, taken, ["lost", random.Random(5), "kept", random.Random(6)])
    live(disk, clock, taken)
    assert len(disk.points) > 100
    for operation, choice, after, now_ms, sent in disk.points:
        life = Life(after, ManualClock(now_ms), sent)
        life.advance(1000)
        life.check_nothing_early()
        life.advance(60_000)
        lost = set(sent) - life.check_nothing_early()
        assert not lost, (operation, choice, lost)


def test_nothing_is_saved_before_the_log_is_synced() -> None:
    """A store that syncs nothing by itself: what a power cut takes of the deliveries is delivered again."""
    clock = ManualClock()
    disk = MemoryDisk()
    config = StoreConfig(log_file_size=16384, queue_file_size=2000, index_enabled=False, flush_interval_ms=10**9,
                         flush_thorough_interval_ms=10**9, busy_timeout_ms=10_000_000)  # fmt: skip
    saved = Saved()
    load = started(fs=disk, clock=clock, config=config, saved=saved)
    load.store.put(delayed(b"x", 1))
    load.probe.sync_log()
    clock.advance(1000)
    load.run()
    unsaved = disk.crash("lost")
    load.delivery.persist()
    after = disk.crash("lost")
    for image, table in ((unsaved, {}), (after, saved.table)):
        again = started(fs=image, clock=ManualClock(clock.ms), config=config, saved=Saved(dict(table)))
        again.run()
        assert again.bodies("orders") == [b"x"]
    assert np.all(load.delivery.lateness_counts >= 0)
