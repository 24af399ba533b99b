"""Every operation that a workload asks of the disk is, in turn, the last before a crash, or the one that fails.

`make crash N=20` tries twenty times as many random crash images.
"""

import errno
import random

import pytest

from rmqstore.config import StoreConfig
from tests.crash.disks import FailingDisk, MemoryDisk, WatchedDisk
from tests.crash.strides import ROUNDS, every
from tests.crash.sweep import moments_of, sweep_crashes, sweep_failures
from tests.crash.workload import (
    ALONE,
    ASYNC,
    LEDGER,
    POOL,
    ROOT,
    SYNC,
    Ledger,
    Moments,
    Workload,
    actions,
    actions_of_many,
    check_disk,
    open_again,
    run,
    stored_bodies,
)

pytestmark = [pytest.mark.stores, pytest.mark.crash]

# At least so many crashes and failures belong to a sweep: one that finds nothing to do proves nothing.
CRASHES_MIN, FAILURES_MIN = 200, 8
CRASHES_STRIDE, FAILURES_STRIDE = 23, 31
CONFIGS = {"sync": SYNC, "async": ASYNC, "pool": POOL, "alone": ALONE, "ledger": LEDGER}
# What the clock does between two puts: a checkpoint answers for what is older than 3 s; clocks stand, and step back.
CLOCKS = [(name, 1900) for name in CONFIGS] + [("async", 7), ("sync", 0), ("async", -1500)]


@pytest.mark.parametrize(("name", "clock_step_ms"), CLOCKS, ids=str)
def test_a_crash_before_any_operation(name: str, clock_step_ms: int):
    assert sweep_crashes(CONFIGS[name], clock_step_ms, quick=CRASHES_STRIDE) > CRASHES_MIN


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short"], ids=["EIO", "ENOSPC", "short"])
def test_any_operation_fails(name: str, error: int | str, forever: bool):
    """No acknowledgement without the disk, no bare OSError, reads go on; and a crash afterwards is survived as any."""
    assert sweep_failures(CONFIGS[name], error, forever, quick=FAILURES_STRIDE) > FAILURES_MIN


@pytest.mark.parametrize("name", CONFIGS)
def test_a_crash_in_many_puts(name: str):
    assert sweep_crashes(CONFIGS[name], quick=41, script=actions_of_many) > CRASHES_MIN


@pytest.mark.parametrize("name", ["sync", "ledger"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short"], ids=["EIO", "ENOSPC", "short"])
def test_any_operation_of_many_puts_fails(name: str, error: int | str):
    assert sweep_failures(CONFIGS[name], error, forever=False, quick=41, script=actions_of_many) >= FAILURES_MIN


def busy_images(config: StoreConfig, count: int) -> list[tuple[MemoryDisk, Ledger]]:
    """What power cuts leave that gives a recovery most to do; nothing of it is in memory only."""
    rated = []
    for _, choice, disk, ledger in moments_of(config, rounds=1, quick=7).taken:
        if choice != "killed" and ledger.sent:
            counter = WatchedDisk(disk.crash("killed"))
            open_again(counter, config)
            rated.append((counter.operations, len(rated), disk, ledger))
    rated.sort(key=lambda each: each[:2])
    step = max(len(rated) // (4 * count), 1)
    return [(disk, ledger) for _, _, disk, ledger in rated[::-step][:count]]


@pytest.mark.parametrize("name", ["sync", "async", "ledger"])
def test_a_crash_in_the_middle_of_a_recovery(name: str):
    """Recovering goes through, however often it is interrupted, and comes to the same."""
    config = CONFIGS[name]
    for number, (disk, ledger) in enumerate(busy_images(config, 2 * ROUNDS)):
        twin = disk.crash("killed")
        wanted = stored_bodies(open_again(twin, config), ledger)
        moments = Moments(disk, ["lost", "killed", random.Random(number)], lambda: ledger, 11)  # noqa: B023
        open_again(moments, config)
        for operation, choice, again, _ in moments.taken:
            try:
                assert check_disk(again, config, ledger, thorough=operation.number % 5 == 0) == wanted
            except Exception as error:
                error.add_note(f"image {number}: crash before {operation} of its recovery, {choice}")
                raise


@pytest.mark.parametrize("name", ["sync", "pool"])
def test_a_disk_that_fails_in_the_middle_of_a_recovery(name: str):
    """The store does not open, and the next recovery comes to the same."""
    config = CONFIGS[name]
    for number, (disk, ledger) in enumerate(busy_images(config, 2 * ROUNDS)):
        counter = WatchedDisk(disk.crash("killed"))
        wanted = stored_bodies(open_again(counter, config), ledger)
        for at in every(17, range(1, counter.operations + 1)):
            for error in every(2, (errno.EIO, "short")):
                base = disk.crash("killed")
                failing = FailingDisk(base, at, error, forever=bool(at % 2))
                try:
                    open_again(failing, config)
                except OSError:
                    assert failing.failed is not None
                for choice in ("killed", "lost"):
                    try:
                        found = check_disk(base.crash(choice), config, ledger, thorough=False)
                        assert found == wanted
                    except Exception as problem:
                        problem.add_note(f"image {number}: {failing.failed} of its recovery failed, then {choice}")
                        raise


def test_the_workload_is_one():
    """The sweeps above are about something: all kinds of files are rolled, and no file is left over."""
    disk = MemoryDisk()
    load = Workload(disk, SYNC)
    run(load, actions())
    assert load.ledger.deletions == [True, True]
    kinds = [path.split("/")[2] for path in disk.image()]
    assert kinds.count("commitlog") >= 4
    assert kinds.count("index") >= 2
    assert len([path for path in disk.image() if f"{ROOT}/consumequeue/orders/0/" in path]) >= 2
