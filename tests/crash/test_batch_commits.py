"""Batches added by the sink while the disk's power goes: at every operation of a commit, each batch is in once or not.

`make crash N=20` tries twenty times as many random crash images.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetStatus, Message
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import StoreError
from rmqstore.files.filesystem import FileSystem
from rmqstore.sink import Batch, append_once, overwrite_once, settle_store, stage_part
from tests.crash.disks import Choice, CrashAt, FailingDisk, MemoryDisk, Operation, PowerCut, WatchedDisk
from tests.crash.strides import ROUNDS, every
from tests.crash.sweep import Promises, Scenario, sweep
from tests.crash.unaware import unaware
from tests.crash.workload import ROOT, SYNC, Ledger, Moments, check_rebuild

pytestmark = [pytest.mark.stores, pytest.mark.crash]

PLAIN = replace(SYNC, preallocate=False)
CONFIGS = {"plain": PLAIN, "crc": replace(PLAIN, append_property_crc=True, index_enabled=False)}
WRITER = "query-1"
# A run that does not take all images of a sweep takes every n-th; n shares no factor with the number of choices.
STRIDE = 31
Commit = Callable[..., bool]


def bodies_of(batch_id: int, partition: int, count: int) -> list[bytes]:
    return [f"<{batch_id}/{partition}/{row}>".encode().ljust(20 + 37 * (row % 5), b".") for row in range(count)]


def table(bodies: Sequence[bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": ["orders"] * len(bodies),
            "body": pa.array(bodies, pa.binary()),
            "queueId": pa.array(np.arange(len(bodies)) % 2, pa.int32()),
            "keys": [f"k{row}" for row in range(len(bodies))],
        }
    )


def staged(
    fs, batch_id: int, counts: Sequence[int], config: StoreConfig, attempt: int = 0, writer: str = WRITER
) -> Batch:
    parts = []
    for partition, count in enumerate(counts):
        task = stage_part(ROOT, (writer, batch_id), (partition, attempt), config, 2, clock=later(), filesystem=fs)
        bodies = bodies_of(batch_id, partition, count)
        for first in range(0, count, 4):
            task.add(table(bodies[first : first + 4]))
        parts.append(task.finish())
    return Batch(writer, batch_id, tuple(parts))


def all_bodies(batch_id: int, counts: Sequence[int]) -> list[bytes]:
    return [body for partition, count in enumerate(counts) for body in bodies_of(batch_id, partition, count)]


def later() -> ManualClock:
    return ManualClock(ManualClock().ms + 86_400_000)


def reopened(fs, config: StoreConfig) -> Store:
    """The store as any program finds it."""
    settle_store(ROOT, config, clock=later(), filesystem=fs)
    return open_store(ROOT, config, clock=later(), filesystem=fs, workers=False)


def stored(store: Store) -> list[bytes]:
    """Bodies in the order of the log, queues and log agreeing."""
    found = []
    for topic, queue_id in store.queues():
        first, offset = store.bounds(topic, queue_id)[0], 0
        assert first == 0
        while (answer := store.get(topic, queue_id, offset)).status is GetStatus.FOUND:
            for message in answer.messages:
                assert (message.queue_offset, message.is_whole) == (offset, True)
                found.append((message.physical_offset, message.body))
                offset += 1
        assert offset == store.bounds(topic, queue_id)[1]
    return [body for _, body in sorted(found)]


OLD = [b"old 1", b"old 2" + b"." * 900, b"old 3"]


def with_messages(config: StoreConfig) -> MemoryDisk:
    disk = MemoryDisk()
    with open_store(ROOT, config, clock=ManualClock(), filesystem=disk, workers=False) as store:
        for body in OLD:
            assert store.put(Message("orders", body)).is_stored
    return disk


COUNTS = (9, 0, 30, 5)


def check_settled(disk: MemoryDisk, config: StoreConfig, before: list[bytes], batch: list[bytes]) -> bool:
    """The batch is in as a whole or not at all; then it comes again, and is in once.  Whether it was in."""
    store = reopened(disk, config)
    bodies = stored(store)
    assert bodies in (before, before + batch), [body[:12] for body in bodies]
    check_rebuild(disk.image(), config)
    store.close()
    again = staged(disk, 7, COUNTS, config, attempt=1)
    assert append_once(ROOT, again, config, clock=later(), filesystem=disk) == (bodies == before)
    assert not disk.exists(f"{ROOT}/sink/{WRITER}/intent.json")
    assert not disk.exists(f"{ROOT}/sink/{WRITER}/batch-7")
    with reopened(disk, config) as store:
        assert stored(store) == before + batch
    return bodies != before


def choices(seed: int) -> list[Choice]:
    return ["lost", "kept", "killed", *(random.Random(f"{seed}/{number}") for number in range(2 * ROUNDS))]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("is_new", [False, True], ids=["behind others", "into nothing"])
def test_a_crash_before_any_operation_of_a_commit(name: str, is_new: bool):
    config = CONFIGS[name]
    disk = MemoryDisk() if is_new else with_messages(config)
    before = [] if is_new else OLD
    batch = staged(disk, 7, COUNTS, config)

    def check(image: MemoryDisk, _: Promises) -> bool:
        return check_settled(image, config, before, all_bodies(7, COUNTS))

    def run(fs: FileSystem, _: Promises) -> None:
        assert append_once(ROOT, batch, config, clock=later(), filesystem=fs)

    assert sweep(Scenario(run, check, lambda: disk, choices(1), {False: 1, True: 1}, STRIDE))
    assert len([path for path in disk.image() if "/commitlog/" in path]) >= 2, "the batch rolls no file"


def test_a_crash_in_the_middle_of_settling():
    """Cutting a batch off goes through, however often it is interrupted, also when a broker made queues of it."""
    disk = with_messages(PLAIN)
    batch = staged(disk, 7, COUNTS, PLAIN)
    counter = CrashAt(disk.crash("killed"))
    append_once(ROOT, batch, PLAIN, clock=later(), filesystem=counter)
    for at in every(2 * STRIDE, range(20, counter.operations - 20), around=STRIDE):
        cut = CrashAt(disk.crash("killed"), at)
        with pytest.raises(PowerCut):
            append_once(ROOT, batch, PLAIN, clock=later(), filesystem=cut)
        for dispatched in (False, True):
            image = cut.inner.crash("killed")
            if dispatched:
                with unaware(image):
                    open_store(ROOT, PLAIN, clock=later(), filesystem=image, workers=False).close()
            moments = Moments(image.crash("killed"), ["lost", "killed", random.Random(at)], Ledger, STRIDE)
            settle_store(ROOT, PLAIN, clock=later(), filesystem=moments)
            for operation, choice, again, _ in moments.taken:
                try:
                    check_settled(again, PLAIN, OLD, all_bodies(7, COUNTS))
                except Exception as error:
                    error.add_note(f"commit cut at {at}, {dispatched=}, then crash before {operation}, {choice}")
                    raise


def cut_with(records: str) -> MemoryDisk:
    """A disk whose power went when the log had so many records of a batch."""
    disk = with_messages(PLAIN)
    batch = staged(disk, 7, COUNTS, PLAIN)
    watched = WatchedDisk(disk.crash("killed"), keep_trace=True)
    append_once(ROOT, batch, PLAIN, clock=later(), filesystem=watched)
    assert watched.trace is not None
    writes, syncs = (
        [each.number for each in watched.trace if "/commitlog/" in each.path and each.verb == verb]
        for verb in ("write", "sync")
    )
    cut = CrashAt(disk.crash("killed"), {"a few": writes[2], "nearly all": writes[-1], "all": syncs[0]}[records])
    with pytest.raises(PowerCut):
        append_once(ROOT, batch, PLAIN, clock=later(), filesystem=cut)
    assert isinstance(cut.inner, MemoryDisk)
    return cut.inner


@pytest.mark.parametrize("left", ["killed", "kept"])
@pytest.mark.parametrize("records", ["a few", "nearly all", "all"])
def test_what_settling_decided_is_on_the_disk_before_the_intent_goes(records: str, left: Choice):
    """In every run, whatever moments its sweeps take: a batch that counts as in reaches the disk before; one that was
    cut off does not come back."""
    moments = Moments(cut_with(records).crash(left), ["lost"], Ledger)
    settle_store(ROOT, PLAIN, clock=later(), filesystem=moments)
    moments.before(Operation(moments.operations + 1, "settled", ROOT))
    gone = next(at for at, (operation, *_) in enumerate(moments.taken)
                if (operation.verb, operation.path[-12:]) == ("remove", "/intent.json"))  # fmt: skip
    for operation, choice, image, _ in (*moments.taken[gone - 1 : gone + 3], moments.taken[-1]):
        try:
            check_settled(image, PLAIN, OLD, all_bodies(7, COUNTS))
        except Exception as error:
            error.add_note(f"crash before {operation}, {choice}")
            raise


def test_a_batch_that_was_cut_off_asks_nothing_of_what_is_stored_in_its_place():
    """Its intent is gone for good before anything is stored there."""
    left = cut_with("a few").crash("killed")
    with reopened(left, PLAIN) as store:
        assert stored(store) == OLD
        assert store.put(Message("orders", b"new")).is_stored
        again = left.crash("lost")
    with reopened(again, PLAIN) as store:
        assert stored(store) == [*OLD, b"new"]


@pytest.mark.parametrize("error", [5, 28, "short"], ids=["EIO", "ENOSPC", "short"])
def test_a_disk_that_fails_during_a_commit(error: int | str):
    """The error comes out, nothing of the batch is seen, and it is added once when it comes again."""
    disk = with_messages(PLAIN)
    batch = staged(disk, 7, COUNTS, PLAIN)
    counter = CrashAt(disk.crash("killed"))
    append_once(ROOT, batch, PLAIN, clock=later(), filesystem=counter)
    for at in every(STRIDE, range(1, counter.operations + 1)):
        for forever in (False, True):
            image = disk.crash("killed")
            failing = FailingDisk(image, at, error, forever)
            with suppress(StoreError, OSError):
                append_once(ROOT, batch, PLAIN, clock=later(), filesystem=failing)
            try:
                check_settled(image, PLAIN, OLD, all_bodies(7, COUNTS))
            except Exception as problem:
                problem.add_note(f"{failing.failed} failed, {forever=}")
                raise


def test_a_crash_before_any_operation_of_an_overwrite():
    """There is the old store or the new one, never neither."""
    disk = with_messages(PLAIN)
    batch = staged(disk, 7, COUNTS, PLAIN)
    new = all_bodies(7, COUNTS)

    def run(fs: FileSystem, _: Promises) -> None:
        assert overwrite_once(ROOT, batch, PLAIN, clock=later(), filesystem=fs)

    def check(image: MemoryDisk, _: Promises) -> bool:
        with reopened(image, PLAIN) as store:
            bodies = stored(store)
        assert bodies in (OLD, new)
        again = staged(image, 7, COUNTS, PLAIN, attempt=1)
        assert overwrite_once(ROOT, again, PLAIN, clock=later(), filesystem=image) == (bodies == OLD)
        with reopened(image, PLAIN) as store:
            assert stored(store) == new
        assert not image.exists(f"{ROOT}.rmqstore-old")
        return bodies == new

    cuts: list[Choice] = ["lost", "kept", "killed", random.Random(3)]
    assert sweep(Scenario(run, check, lambda: disk, cuts, {False: 1, True: 1}, STRIDE))


def cut_at_the_last_change_of_the_parent(before: MemoryDisk, run: Callable[[FileSystem], object]) -> MemoryDisk:
    watched = WatchedDisk(before.crash("killed"), keep_trace=True)
    run(watched)
    assert watched.trace is not None
    at = [each.number for each in watched.trace if (each.verb, each.path) == ("sync_directory", "/")][-1]
    cut = CrashAt(before.crash("killed"), at)
    with pytest.raises(PowerCut):
        run(cut)
    assert isinstance(cut.inner, MemoryDisk)
    return cut.inner


@pytest.mark.parametrize("killed", [False, True], ids=["at once", "killed between"])
def test_the_new_store_of_an_overwrite_has_its_name_for_good_before_the_old_one_goes(killed: bool):
    """In every run: on a disk that may keep the later of two changes of one directory, and not the earlier."""
    disk = with_messages(PLAIN)
    batch = staged(disk, 7, COUNTS, PLAIN)

    def overwrite(fs: FileSystem) -> None:
        overwrite_once(ROOT, batch, PLAIN, clock=later(), filesystem=fs)

    if killed:
        watched = WatchedDisk(disk.crash("killed"), keep_trace=True)
        overwrite(watched)
        assert watched.trace is not None
        (renamed,) = (each.number for each in watched.trace if (each.verb, each.path) == ("rename", ROOT))
        cut = CrashAt(disk.crash("killed"), renamed + 1)
        with pytest.raises(PowerCut):
            overwrite(cut)
        assert isinstance(cut.inner, MemoryDisk)
        left = cut_at_the_last_change_of_the_parent(
            cut.inner, lambda fs: settle_store(ROOT, PLAIN, clock=later(), filesystem=fs)
        )
    else:
        left = cut_at_the_last_change_of_the_parent(disk, overwrite)
    for seed in range(40):
        with reopened(left.crash(random.Random(seed)), PLAIN) as store:
            assert stored(store) == all_bodies(7, COUNTS), seed


def test_batch_after_batch_with_a_crash_in_each():
    """A writer that is killed in every commit adds every batch once, in order."""
    disk, wanted = MemoryDisk(), []
    chance = random.Random(11)
    for batch_id in range(12 * ROUNDS):
        counts = [chance.randrange(12) for _ in range(3)]
        attempt = 0
        while True:
            batch = staged(disk, batch_id, counts, PLAIN, attempt)
            cut = CrashAt(disk, None if attempt > 2 else chance.randrange(5, 60))
            try:
                append_once(ROOT, batch, PLAIN, clock=later(), filesystem=cut)
                break
            except PowerCut:
                attempt += 1
                disk = disk.crash(chance.choice(["lost", "kept", "killed", chance]))
        wanted += all_bodies(batch_id, counts)
    with reopened(disk, PLAIN) as store:
        assert stored(store) == wanted
