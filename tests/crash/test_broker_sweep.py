"""Crashes and failing disks at every operation of a workload with delays, transactions, retries, offsets and retention.

As `test_sweep.py` for the log.  `make crash N=20` tries twenty times as many random crash images, and every failure.
"""

import errno
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from rmqstore.config import StoreConfig
from rmqstore.engine.broker.consumer_offsets import ConsumerOffsets
from rmqstore.engine.broker.delay_delivery import DelayDelivery
from rmqstore.engine.broker.topics import Topics
from rmqstore.engine.broker.transaction_book import TransactionBook
from rmqstore.engine.broker.transaction_messages import committed_message
from rmqstore.errors import StoreError
from rmqstore.files import replace as replacing
from rmqstore.files.filesystem import FileSystem
from tests.crash.broker_workload import (
    ASYNC,
    LEDGER,
    SYNC,
    BrokerWorkload,
    actions,
    check_disk,
    run,
)
from tests.crash.disks import Choice, FailingDisk, MemoryDisk, Operation, WatchedDisk
from tests.crash.strides import IS_WHOLE, ROUNDS, every, first, stride
from tests.crash.workload import Moments

pytestmark = [pytest.mark.stores, pytest.mark.crash]

CONFIGS = {"sync": SYNC, "async": ASYNC, "ledger": LEDGER}


def choices() -> list[Choice]:
    return ["lost", "kept", *(random.Random(seed) for seed in range(ROUNDS))]


class BrokerMoments(Moments):
    """Takes one image with the same promises only once.  A single round takes turns between what is kept and what is
    torn; a run that does not take all (strides.py) has
    every `quick`-th."""

    def __init__(self, inner: MemoryDisk, choices: list[Choice], promises: Callable, quick: int = 1) -> None:
        super().__init__(inner, choices, promises)
        self._all = choices
        self._distance = stride(quick)
        self._seen: set[tuple[int, str]] = set()

    def before(self, operation: Operation) -> None:
        is_turn = operation.number % self._distance == first(self._distance)
        kept = operation.number // self._distance % 2 == 0
        self._choices = [each for each in self._all
                         if is_turn and (each == "lost" or ROUNDS > 1 or kept == (each == "kept"))]  # fmt: skip
        count = len(self.taken)
        super().before(operation)
        self.taken, new = self.taken[:count], self.taken[count:]
        for moment in new:
            state = (hash(frozenset(moment[2].image().items())), repr(moment[3]))
            if state not in self._seen:
                self._seen.add(state)
                self.taken.append(moment)


def sweep_crashes(config: StoreConfig, clock_step_ms: int = 1900, quick: int = 1) -> int:
    """Checks what a crash before any operation of the workload leaves, or before every `quick`-th, at times thoroughly.
    Raises what is wrong; returns how many operations there are."""
    moments = BrokerMoments(MemoryDisk(), choices(), lambda: load.promises, quick)
    load = BrokerWorkload(moments, config, clock_step_ms)
    run(load, actions())
    assert not load.errors
    for number, (operation, choice, disk, promises) in enumerate(moments.taken):
        try:
            check_disk(disk, config, promises, thorough=number % 29 == 0 or IS_WHOLE)
        except Exception as error:
            error.add_note(f"crash before {operation}, {choice}")
            raise
    return moments.operations


def sweep_failures(config: StoreConfig, error: int | str, forever: bool, quick: int = 1) -> int:
    """Lets any operation of the workload fail, or every `quick`-th, and crashes afterwards.  Raises what is wrong;
    returns how many operations there are."""
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    run(BrokerWorkload(watched, config), actions())
    assert watched.trace is not None
    places = [each.number for each in watched.trace if error != "short" or each.verb == "write"]
    for at in every(quick, places):
        disk = MemoryDisk()
        failing = FailingDisk(disk, at, error, forever)
        load = BrokerWorkload(failing, config)
        try:
            run(load, actions())
            assert failing.failed is not None
            for choice in ("lost", random.Random(at)):
                check_disk(disk.crash(choice), config, load.promises.copy(), thorough=False)
        except Exception as problem:
            problem.add_note(f"operation {at} failed: {failing.failed}, {load.errors}")
            raise
    return len(places)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_crash_before_any_operation(name: str):
    assert sweep_crashes(CONFIGS[name], quick=17) > 400


@pytest.mark.parametrize(("name", "clock_step_ms"), [("sync", 700), ("async", 0)])
def test_a_crash_while_time_hardly_passes(name: str, clock_step_ms: int):
    """Delays and checks then come due in other places of the workload, or not before the crash."""
    assert sweep_crashes(CONFIGS[name], clock_step_ms, quick=41) > 200


FAILURES_MIN = 8
FAILURES = [(error, forever) for error in (errno.EIO, errno.ENOSPC, "short") for forever in (False, True)]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("error", "forever"), FAILURES, ids=str)
def test_any_operation_fails(name: str, error: int | str, forever: bool):
    """No promise without the disk; and a crash afterwards is survived as any."""
    assert sweep_failures(CONFIGS[name], error, forever, quick=97) >= FAILURES_MIN


# The sweeps find bugs: each of these is planted, and a sweep has to catch it.
Plant = Callable[[pytest.MonkeyPatch], None]
FOUND = (AssertionError, StoreError, OSError)


def progress_saved_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    real = DelayDelivery.persist

    def persist(self: DelayDelivery) -> None:
        self._progress = replace(self._progress, sync_log=lambda: None)
        real(self)

    patch.setattr(DelayDelivery, "persist", persist)


def progress_moves_on_when_refused(patch: pytest.MonkeyPatch) -> None:
    real = DelayDelivery._put_all

    def put_all(self: DelayDelivery, restored, due_ms) -> int:
        real(self, restored, due_ms)
        return len(due_ms)

    patch.setattr(DelayDelivery, "_put_all", put_all)


def delivered_early(patch: pytest.MonkeyPatch) -> None:
    real = DelayDelivery._due_ms
    patch.setattr(
        DelayDelivery, "_due_ms", lambda self, level, entries, now_ms: real(self, level, entries, now_ms + 999)
    )


def offsets_saved_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    real = ConsumerOffsets.persist

    def persist(self: ConsumerOffsets) -> None:
        self.sync_log = None
        real(self)

    patch.setattr(ConsumerOffsets, "persist", persist)


def offsets_not_saved(patch: pytest.MonkeyPatch) -> None:
    """Before five seconds have passed, that is."""
    step = ConsumerOffsets.step
    real = ConsumerOffsets.persist
    patch.setattr(ConsumerOffsets, "persist", lambda self: None)

    def later(self: ConsumerOffsets) -> float:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ConsumerOffsets, "persist", real)
            return step(self)

    patch.setattr(ConsumerOffsets, "step", later)


def op_before_the_committed_message(patch: pytest.MonkeyPatch) -> None:
    real = TransactionBook.settle

    def decide(self: TransactionBook, transaction, half, *, is_commit: bool, put_op):
        self._look(transaction, half)
        if is_commit and transaction.committed is None:
            real(self, transaction, put_op)
            return self._log.put(committed_message(half))
        return real(self, transaction, put_op)

    patch.setattr(TransactionBook, "decide", decide)


def committed_message_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionBook, "_find_committed", lambda self, transaction, half: None)


def fate_told_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    real = TransactionBook.settle
    patch.setattr(TransactionBook, "settle", lambda self, transaction, _: real(self, transaction, self._log.put_copy))


def open_transactions_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionBook, "_start", lambda self, topic: self._log.bounds(topic, 0)[1])


def config_renamed_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def put_in_place(fs: FileSystem, path: str, data) -> None:
        if fs.exists(f"{path}.tmp"):
            fs.remove(f"{path}.tmp")
        fs.create(f"{path}.tmp", 0).write(0, data)
        fs.rename(f"{path}.tmp", path)

    patch.setattr(replacing, "_put_in_place", put_in_place)


def config_without_its_directory(patch: pytest.MonkeyPatch) -> None:
    real = MemoryDisk.sync_directory
    patch.setattr(
        MemoryDisk, "sync_directory", lambda self, path: None if path.endswith("/config") else real(self, path)
    )


def topics_saved_when_there_is_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Topics, "_save", lambda self, *_: None)


BY_CRASHES: list[tuple[Plant, StoreConfig]] = [
    (progress_saved_before_the_sync, ASYNC),
    (delivered_early, SYNC),
    (offsets_saved_before_the_sync, ASYNC),
    (offsets_not_saved, SYNC),
    (op_before_the_committed_message, SYNC),
    (committed_message_not_looked_for, SYNC),
    (fate_told_before_the_sync, SYNC),
    (open_transactions_forgotten, SYNC),
    (config_renamed_before_the_sync, ASYNC),
    (config_without_its_directory, SYNC),
    (topics_saved_when_there_is_time, SYNC),
]


@pytest.mark.teeth
@pytest.mark.parametrize(("plant", "config"), BY_CRASHES, ids=lambda value: getattr(value, "__name__", ""))
def test_crashes_catch(monkeypatch: pytest.MonkeyPatch, plant: Plant, config: StoreConfig):
    plant(monkeypatch)
    with pytest.raises(FOUND):
        sweep_crashes(config)


@pytest.mark.teeth
def test_failures_catch(monkeypatch: pytest.MonkeyPatch):
    progress_moves_on_when_refused(monkeypatch)
    with pytest.raises(FOUND):
        sweep_failures(SYNC, errno.ENOSPC, False)
