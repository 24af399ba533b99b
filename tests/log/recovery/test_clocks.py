"""Recovery where the clock jumped between the puts: it ends, and nothing that was flushed is missing."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.log.recovery import planner as recovery
from rmqstore.engine.store import open_store
from tests.crash.disks import Choice, MemoryDisk

pytestmark = pytest.mark.stores

YEAR_MS = 365 * 86_400_000
CONFIG = StoreConfig(flush="SYNC", log_file_size=4096, queue_file_size=200, index_slot_count=5, index_item_count=40)
JUMPS_MS = st.sampled_from([0, 3, 1000, -3_600_000, 86_400_000, -25 * YEAR_MS, 25 * YEAR_MS, -60 * YEAR_MS])
RUNS = st.lists(st.lists(JUMPS_MS, min_size=1, max_size=40), min_size=1, max_size=4)


class TooManyScans(AssertionError):
    """A recovery reads the log again and again."""


@contextmanager
def bounded_scans() -> Iterator[list[object]]:
    """Has a recovery fail that reads the log more often than once for each of its files, and once for the checkpoint;
    each time once more where a record lies about its queue offset.
    """
    scans: list[object] = []
    scan_log = recovery.scan_log

    def counted(log, start, rules, *rest):
        scans.append(start)
        if len(scans) > 2 * (len(log.files) + 2):
            raise TooManyScans(scans)
        return scan_log(log, start, rules, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "scan_log", counted)
        yield scans


def run(disk: MemoryDisk, clock: ManualClock, jumps_ms: list[int], *, steps: bool) -> list[bytes]:
    """Puts one message after each jump, and ends without closing."""
    store = open_store("/store", CONFIG, filesystem=disk, clock=clock, workers=False)
    found = [body for queue_id in (0, 1) for body in bodies(store, queue_id)]
    for number, jump_ms in enumerate(jumps_ms):
        clock.ms += jump_ms
        body = b"%d of %d" % (number, clock.ms)
        assert store.put(Message("alpha", body, queue_id=number % 2, keys=["k"])).is_stored
        found.append(body)
        if steps and number % 3 == 0:
            store.step()
    if steps:
        store.flush()
    return found


def bodies(store, queue_id: int) -> list[bytes]:
    low, high = store.bounds("alpha", queue_id)
    return [message.body for offset in range(low, high) for message in store.get("alpha", queue_id, offset, 1).messages]


def check(runs: list[list[int]], choice: Choice, began_ms: int) -> None:
    with bounded_scans() as scans:
        _check(runs, choice, began_ms, scans)


def _check(runs: list[list[int]], choice: Choice, began_ms: int, scans: list[object]) -> None:
    disk, clock, wanted = MemoryDisk(), ManualClock(began_ms), []
    for number, jumps_ms in enumerate(runs):
        scans.clear()
        wanted = run(disk, clock, jumps_ms, steps=number % 2 == 0)
        disk = disk.crash(choice)
    scans.clear()
    store = open_store("/store", CONFIG, filesystem=disk, clock=clock, workers=False)
    assert sorted(body for queue_id in (0, 1) for body in bodies(store, queue_id)) == sorted(wanted)
    store.close()


def test_a_recovery_ends_where_the_clock_stood_before_1970() -> None:
    """Any checkpoint is later than such a message, also one that says nothing."""
    check([[0, 3, -60 * YEAR_MS, 3]], "killed", 1_763_700_000_000)


@settings(deadline=None, max_examples=60)
@given(runs=RUNS, seed=st.integers(0, 2**32), began_ms=st.sampled_from([1_763_700_000_000, 0, 1]))
def test_a_recovery_ends_and_loses_nothing_whatever_the_clock_did(runs, seed, began_ms) -> None:
    choice: Choice = "killed" if seed % 3 else random.Random(seed)
    check(runs, choice, began_ms)
