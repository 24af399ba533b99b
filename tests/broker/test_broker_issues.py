"""Bugs that RocketMQ had or has in what a broker adds to the log, named by the issue's number.

issue                        here
10668                        a timer log that points past the log's end: endless retries there
9455                         the clock was in 2050 and is back: the broker cannot be used any more
7539                         an index file cannot be made: a loop that fills the disk
6570, 3786                   what is refused, or has too many properties, makes queue offsets drift
3401, 6096, 7729, 9328, 9705 a power cut tears config/*.json, and the backup with it
"""

import errno
import struct
from contextlib import suppress

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetStatus, Message, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.testing import Probe
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut, WatchedDisk

pytestmark = pytest.mark.stores

ROOT = "/store"
YEAR_MS = 365 * 24 * 3_600_000
CONFIG = StoreConfig(
    flush="SYNC", log_file_size=128 * 1024, queue_file_size=2000, index_slot_count=5, index_item_count=9,
    flush_interval_ms=0, busy_timeout_ms=10_000_000, message_size_max=100_000,
)  # fmt: skip


def opened(disk, clock: ManualClock | None = None, config: StoreConfig = CONFIG) -> Store:
    return open_store(ROOT, config, clock=clock or ManualClock(), filesystem=disk, workers=False)


def bodies(store: Store, topic: str = "orders", queue_id: int = 0) -> list[bytes | None]:
    first, last = store.bounds(topic, queue_id)
    return [message.body for message in store.get(topic, queue_id, first, max(last - first, 1)).messages]


def test_rocketmq_10668_a_timer_log_that_points_past_the_log_is_no_concern_of_ours() -> None:
    """Timer files are left byte for byte as they are, and nothing follows what they point at."""
    disk = MemoryDisk()
    unit = struct.pack(">iqiqiqiiq", 52, -1, 1, 1_700_000_000_000, 1000, 2**40, 400, 7, 0)
    timer_files = {
        f"{ROOT}/timerlog/{0:020d}": unit * 3,
        f"{ROOT}/timerwheel": b"\1" * 64,
        f"{ROOT}/config/timercheck": unit,
    }
    for path, data in timer_files.items():
        disk.put_file(path, data)
    store = opened(disk)
    store.put(Message("orders", b"x"))
    store.put(Message("rmq_sys_wheel_timer", b"late", properties={"REAL_TOPIC": "orders", "TIMER_OUT_MS": "1"}))
    for _ in range(5):
        store.step()
    assert bodies(store) == [b"x"]
    assert bodies(store, "rmq_sys_wheel_timer") == [b"late"]
    store.close()
    assert {path: data for path, data in disk.image().items() if path in timer_files} == timer_files


@pytest.mark.parametrize("leap_ms", [25 * YEAR_MS, -25 * YEAR_MS])
@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_rocketmq_9455_a_clock_that_leaps_and_comes_back_leaves_a_working_store(leap_ms: int, is_clean: bool) -> None:
    disk, clock = MemoryDisk(), ManualClock()
    now_ms = clock.ms
    for ms, body in ((now_ms, b"a"), (now_ms + leap_ms, b"b"), (now_ms + 5000, b"c")):
        clock.ms = ms
        store = opened(disk, ManualClock(ms))
        assert store.put(Message("orders", body, keys=["k"])).status is PutStatus.PUT_OK
        assert store.put(Message("orders", body + b" later", properties={"DELAY": "1"})).status is PutStatus.PUT_OK
        store.step()
        if is_clean:
            store.close()
        else:
            disk = disk.crash("kept")
    store = opened(disk, ManualClock(now_ms + 10_000))
    for _ in range(30):
        Probe(store).clock.advance(200)  # type: ignore[attr-defined]
        store.step()
    assert store.health().is_writable
    assert bodies(store)[:3] == [b"a", b"b", b"c"]
    # Nothing waits for 2050: what is due further off than its level is due now (RocketMQ: correctDeliverTimestamp).
    assert sorted(filter(None, bodies(store)[3:])) == [b"a later", b"b later", b"c later"]
    assert {message.body for message in store.query("orders", "k")} == {b"a", b"b", b"c"}
    assert store.put(Message("orders", b"d")).queue_offset == 6


def test_rocketmq_7539_an_index_that_cannot_be_made_costs_a_few_tries_and_no_room() -> None:
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    store = opened(watched)
    store.put(Message("orders", b"x", keys=["k"]))
    store.step()
    place = next(each.number for each in watched.trace if each.verb == "create" and "/index/" in each.path)
    inner = MemoryDisk()
    disk = FailingDisk(inner, place, errno.ENOSPC, forever=True)
    store = opened(disk)
    store.put(Message("orders", b"x", keys=["k"]))
    for _ in range(20):
        store.step()
    assert disk.operations - place < 20
    assert not any("/index/" in path for path in inner.image())
    health = store.health()
    assert not health.is_writable
    assert "dispatch" in health.reasons[0]
    assert store.put(Message("orders", b"y")).status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("size", [32_766, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537])
def test_rocketmq_6570_properties_at_the_limits_of_their_length_never_move_a_queue(size: int) -> None:
    store = opened(MemoryDisk())
    value = "v" * (size - len("name\x01\x02"))
    result = store.put(Message("orders", b"x", properties={"name": value}))
    fits = size <= 32_767
    assert (result.status is PutStatus.PUT_OK) == fits
    assert result.status in (PutStatus.PUT_OK, PutStatus.PROPERTIES_SIZE_EXCEEDED)
    refused = [
        Message("orders", b"x" * 100_001), Message("bad topic", b""), Message("orders", b"", properties={"": "v"}),
        Message("orders", b"", queue_id=-1), Message("orders", b"", properties={"a": "\x01"}),
    ]  # fmt: skip
    assert {store.put(message).status for message in refused} == {PutStatus.MESSAGE_ILLEGAL}
    after = store.put(Message("orders", b"after"))
    assert after.queue_offset == int(fits)
    store.step()
    assert bodies(store)[-1] == b"after"
    assert store.get("orders", 0, 2 + int(fits)).status is not GetStatus.FOUND


@pytest.mark.parametrize("choice", ["lost", "kept"])
def test_rocketmq_3401_a_power_cut_never_takes_a_table_and_its_backup(choice: str) -> None:
    """Cut before every operation of a life in which all the tables are written several times."""

    def live(disk) -> None:
        clock = ManualClock()
        store = opened(disk, clock)
        for number in range(3):
            store.put(Message(f"topic{number}", b"x"))
            store.put(Message("orders", b"later", properties={"DELAY": "1"}))
            store.put(Message("orders", b"now"))
            store.offsets.commit("group", "orders", 0, number + 1)
            store.offsets.persist()
            clock.advance(11_000)
            store.step()
            known.append((f"topic{number}", number + 1))
        store.close()

    known: list[tuple[str, int]] = []
    watched = WatchedDisk(MemoryDisk())
    live(watched)
    for place in range(1, watched.operations + 1):
        known = []
        inner = MemoryDisk()
        with suppress(PowerCut):
            live(CrashAt(inner, place))
        store = opened(inner.crash(choice))
        assert not [text for text in store.warnings if "json" in text], (place, store.warnings)
        for topic, offset in known:
            assert store.topics.find(topic) is not None, place
            assert (store.offsets.committed("group", "orders", 0) or 0) >= offset, place
