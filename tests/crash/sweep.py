"""A crash, or a failure, at every operation of a life of a store."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.errors import DurabilityLost
from rmqstore.files.filesystem import FileSystem
from tests.crash.disks import Choice, FailingDisk, MemoryDisk, WatchedDisk
from tests.crash.strides import IS_WHOLE, ROUNDS, every
from tests.crash.workload import (
    Action,
    Moments,
    Workload,
    actions,
    check_disk,
    run,
)

Promises = list[Any]


@dataclass(frozen=True)
class Scenario:
    """`run` works on a disk that `begin` makes, and adds to its list what it was promised.

    `check` opens the disk that a crash left, given the promises by then, and says what it found; each of `outcomes`
    has to be found so many times.  `quick`: `make test` takes every so many of the moments.
    """

    run: Callable[[FileSystem, Promises], object]
    check: Callable[[MemoryDisk, Promises], object]
    begin: Callable[[], MemoryDisk] = MemoryDisk
    choices: Sequence[Choice] = ("lost", "kept", "killed")
    outcomes: Mapping[object, int] = field(default_factory=dict[object, int])
    quick: int = 1
    moments_min: int = 20


def sweep(scenario: Scenario) -> int:
    """Checks what a crash before each operation of a scenario leaves.  Raises what is wrong; returns how many images
    of a crash it checked."""
    promises = Promises()
    moments = Moments(scenario.begin(), scenario.choices, lambda: promises, scenario.quick)  # type: ignore[arg-type,return-value]
    scenario.run(moments, promises)
    assert moments.count > scenario.moments_min
    found: Counter[object] = Counter()
    for operation, choice, disk, kept in moments.taken:
        try:
            found[scenario.check(disk, kept)] += 1  # type: ignore[arg-type]
        except Exception as error:
            error.add_note(f"crash before {operation}, {choice}")
            raise
    assert all(found[outcome] >= count for outcome, count in scenario.outcomes.items()), found
    return found.total()


def choices(rounds: int = ROUNDS) -> list[Choice]:
    return ["lost", "kept", "killed", *(random.Random(seed) for seed in range(rounds))]


def taken_all(config: StoreConfig, choice: Choice) -> bool:
    """Whether all that was taken must be there, synced or not: the program ended, with nothing in its own memory."""
    return choice == "killed" and not config.pool_buffers


Script = Callable[[], Sequence[Action]]


def moments_of(
    config: StoreConfig, clock_step_ms: int = 1900, rounds: int = ROUNDS, quick: int = 1, script: Script = actions
) -> Moments:
    """What crashes at every operation of the workload leave, or at every `quick`-th moment."""
    moments = Moments(MemoryDisk(), choices(rounds), lambda: load.ledger, quick)
    load = Workload(moments, config, clock_step_ms)
    run(load, script())
    assert not load.errors
    assert moments.operations >= 60
    return moments


def sweep_crashes(
    config: StoreConfig, clock_step_ms: int = 1900, rounds: int = ROUNDS, quick: int = 1, script: Script = actions
) -> int:
    """Checks what a crash at any operation of the workload leaves, every third of them thoroughly; of every `quick`-th
    where the run does not take all (strides.py).  Raises what is wrong; returns how many moments there are."""
    moments = moments_of(config, clock_step_ms, rounds, quick, script)
    for number, (operation, choice, disk, ledger) in enumerate(moments.taken):
        try:
            thorough = number % 3 == 0 or IS_WHOLE
            check_disk(disk, config, ledger, is_power_cut=not taken_all(config, choice), thorough=thorough)
        except Exception as error:
            error.add_note(f"crash before {operation}, {choice}")
            raise
    return moments.count


def sweep_failures(
    config: StoreConfig, error: int | str, forever: bool, quick: int = 1, script: Script = actions
) -> int:
    """Lets any operation of the workload fail, or every `quick`-th (strides.py).  Raises what is wrong; returns how
    many operations there are."""
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    run(Workload(watched, config), script())
    assert watched.trace is not None
    places = [each.number for each in watched.trace if error != "short" or each.verb == "write"]
    for at in every(quick, places):
        disk = MemoryDisk()
        failing = FailingDisk(disk, at, error, forever)
        load = Workload(failing, config)
        try:
            run(load, script())
            assert failing.failed is not None
            check_still_readable(load)
            for choice in ("killed", "lost", random.Random(at)):
                check_disk(disk.crash(choice), config, load.ledger,
                           is_power_cut=not taken_all(config, choice), thorough=False)  # fmt: skip
        except Exception as problem:
            problem.add_note(f"operation {at} failed: {failing.failed}, {load.errors}")
            raise
    return len(places)


def check_still_readable(load: Workload) -> None:
    """A store that lost its disk says so, takes nothing, and reads on."""
    store = load.store
    if store is None:
        return
    health = store.health()
    if not health.is_writable:
        assert health.reasons
        with suppress(DurabilityLost):
            assert not store.put(Message("orders", b"more")).is_stored
    for topic, queue_id in store.queues():
        first, behind = store.bounds(topic, queue_id)
        if behind > first:
            assert store.get(topic, queue_id, first).messages
