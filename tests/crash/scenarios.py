"""What single features do on a disk, and what has to be true after a crash before any of their operations.

A row is enough for a feature: tests/crash/test_scenarios.py takes the crashes.
"""

import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.engine.broker.consumer_offsets import ConsumerOffsets
from rmqstore.engine.broker.topics import Topics
from rmqstore.engine.store import Store, open_store
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.dledger import Entry
from rmqstore.replica.following.follower import Follower
from tests.crash.disks import Choice, MemoryDisk
from tests.crash.sweep import Promises, Scenario
from tests.deletions.following import fed, gone_on, held_by, log_of, replica_on
from tests.deletions.histories import HISTORIES, Play
from tests.dledger.ledgers import CONVERTS, PLAIN, put
from tests.log.queue_kinds_store import KindsStore, derived, rebuilt, write_some

ROOT = "/store"
NODE = "/node/dledger-n0"
_STORES = pytest.mark.stores


def _random(count: int) -> list[Choice]:
    return ["lost", "kept", "killed", *map(random.Random, range(count))]


def _offsets_of(group: str) -> Scenario:
    """No offset that was persisted moves back, and those of all groups are of one moment."""

    def loaded(fs: FileSystem) -> ConsumerOffsets:
        offsets = ConsumerOffsets(fs, ROOT, ManualClock())
        assert offsets.load() == []
        return offsets

    def run(fs: FileSystem, done: Promises) -> None:
        offsets = loaded(fs)
        for offset in (1, 2, 3):
            offsets.commit(group, "t", 0, offset)
            offsets.commit("other", "t", 0, offset)
            offsets.persist()
            done.append(offset)

    def check(disk: MemoryDisk, done: Promises) -> int:
        after = loaded(disk)
        found = after.committed(group, "t", 0) or 0
        assert found == (after.committed("other", "t", 0) or 0)
        assert len(done) <= found <= len(done) + 1
        return found

    return Scenario(run, check, choices=_random(8), outcomes={0: 1, 1: 1, 2: 1, 3: 1})


def _admitted_topics() -> Scenario:
    def loaded(fs: FileSystem) -> Topics:
        topics = Topics(fs, ROOT, ManualClock())
        assert topics.load() == []
        return topics

    def run(fs: FileSystem, done: Promises) -> None:
        topics = loaded(fs)
        for name in ("a", "b", "c"):
            message = Message(name, b"", queue_id=0)
            assert topics(message) is message
            done.append(name)

    def check(disk: MemoryDisk, done: Promises) -> int:
        found = list(loaded(disk).all())
        assert found in (done, ["a", "b", "c"][: len(done) + 1])
        return len(found)

    return Scenario(run, check, choices=_random(6), outcomes={0: 1, 1: 1, 2: 1, 3: 1})


def _queues_of_all_kinds() -> Scenario:
    """They come out as from the log alone, whatever reached the disk; and the store goes on."""

    def run(fs: FileSystem, _: Promises) -> None:
        store = KindsStore(fs, flush="SYNC")
        write_some(store)
        store.flush()
        write_some(store, 1)
        store.dispatch.catch_up()
        write_some(store, 2)
        store.close()
        write_some(KindsStore(fs, flush="SYNC", clock=store.clock), 3)

    def check(disk: MemoryDisk, _: Promises) -> bool:
        after = KindsStore(disk, clock=ManualClock(1_800_000_000_000))
        image = disk.image()
        assert derived(image) == rebuilt(image)
        for queue in ("orders", "%LMQ%x", "%LMQ%y", "batches"):
            after.bodies(queue)
        again = disk.crash("lost")
        KindsStore(again)
        assert derived(again.image()) == derived(image)
        if goes_on := len(image) % 5 == 0:
            write_some(after, 9)
            after.close()
            assert derived(disk.image()) == rebuilt(disk.image())
            assert KindsStore(disk).plan.changes_nothing  # type: ignore[union-attr]
        return goes_on

    return Scenario(run, check, choices=_random(1), outcomes={False: 1, True: 1}, quick=37)


def _bodies(count: int, first: int = 0) -> list[bytes]:
    return [f"hello-{number}".encode() for number in range(first, first + count)]


def _held(store: EntryStore) -> list[bytes]:
    return [store.get(index).body for index in range(max(store.begin_index, 0), store.end_index + 1)]


def _entries(seed: int) -> Scenario:
    """What was flushed is there, nothing is made up, and what was cut off does not come back."""
    config = EntryStoreConfig(data_file_size=1024, index_file_size=1024)

    def run(fs: FileSystem, durable: Promises) -> None:
        store = EntryStore(NODE, config, ManualClock(), fs)
        sent: list[bytes] = []
        for number in range(12):
            made = _bodies(9, 9 * number)
            store.append(made, 1 + number // 4)
            sent += made
            if number % 3 == 2:
                store.flush()
                durable[:] = sent
            if number == 7:
                durable[:] = sent = sent[:54]
                store.truncate(store.get(53))
        store.close()

    def check(disk: MemoryDisk, durable: Promises) -> None:
        again = EntryStore(NODE, config, ManualClock(), disk)
        found = _held(again)
        assert found[: len(durable)] == durable
        assert all(body == f"hello-{number}".encode() or number >= 54 for number, body in enumerate(found))
        again.append([b"next"], 9)
        again.close()
        assert _held(EntryStore(NODE, config, ManualClock(), disk)) == [*found, b"next"]

    choices: list[Choice] = ["lost", "killed", random.Random(seed)]
    return Scenario(run, check, choices=choices, moments_min=60)


def _a_member_that_begins_elsewhere() -> Scenario:
    """Its leader has deleted what it has: all goes, and one entry comes; nothing in between stops it for good."""
    config, wanted = EntryStoreConfig(data_file_size=256, index_file_size=128), Entry(99, 1, 5000, b"x")

    def opened(fs: FileSystem) -> EntryStore:
        return EntryStore(NODE, config, ManualClock(), fs)

    def begin() -> MemoryDisk:
        disk = MemoryDisk()
        with opened(disk) as store:
            store.append(_bodies(30), 1)
            store.update_committed(1, 29)
        return disk

    def check(disk: MemoryDisk, _: Promises) -> bool:
        again = opened(disk)
        found = _held(again)
        assert found in ([b"x"], _bodies(len(found)))
        again.truncate(wanted)
        assert (again.begin_index, again.end_index) == (99, 99)
        again.close()
        assert _held(opened(disk)) == [b"x"]
        return found == [b"x"]

    return Scenario(lambda fs, _: opened(fs).truncate(wanted), check, begin, ("lost", "killed"), {False: 1, True: 1})


def _store(fs: FileSystem, config: StoreConfig) -> Store:
    return open_store(ROOT, config, filesystem=fs, clock=ManualClock(), workers=False)


def _a_conversion() -> Scenario:
    """One that ends anywhere is completed by the next."""

    def begin() -> MemoryDisk:
        disk = MemoryDisk()
        with _store(disk, PLAIN) as store:
            put(store, 60)
        return disk

    def run(fs: FileSystem, _: Promises) -> None:
        with _store(fs, CONVERTS) as store:
            put(store, 3, "entry")

    def check(disk: MemoryDisk, _: Promises) -> None:
        with _store(disk, CONVERTS) as again:
            assert sum(again.bounds("t", queue_id)[1] for queue_id in range(3)) >= 60
            put(again, 3, "after")
            for queue_id in range(3):
                places = range(*again.bounds("t", queue_id))
                assert all(len(again.get("t", queue_id, offset, max_count=1).messages) == 1 for offset in places)

    return Scenario(run, check, begin, ("lost", "killed"), moments_min=40)


def _a_store_that_is_made(choice: Choice) -> Scenario:
    """What is left is opened, and takes a message."""

    def use(fs: FileSystem, _: Promises) -> None:
        with _store(fs, PLAIN) as store:
            put(store, 1)

    return Scenario(use, use, choices=[choice])


def _a_replica(name: str, choice: str) -> Scenario:
    """It goes on from there to what its master holds, whose topic was deleted and made again."""
    play = Play(HISTORIES[name].steps)
    choices: list[Choice] = [random.Random(5) if choice == "random" else choice]  # type: ignore[list-item]

    def check(disk: MemoryDisk, _: Promises) -> None:
        engine = replica_on(disk)
        gone_on(engine, log_of(play))
        assert held_by(engine) == play.wanted(HISTORIES[name].replica or "")
        engine.close()

    return Scenario(
        lambda fs, _: fed(Follower(replica_on(fs), lambda: None), log_of(play), 1000), check, choices=choices,
        quick=7, moments_min=51,
    )  # fmt: skip


_OFTEN, _SELDOM = pytest.mark.some(3), pytest.mark.some(9)
# By name: what makes the scenario, and its marks.
SCENARIOS: dict[str, tuple[Callable[[], Scenario], Sequence[pytest.MarkDecorator]]] = {
    "offsets": (lambda: _offsets_of("g"), ()),
    "offsets of light queues": (lambda: _offsets_of("%LMQ%c"), ()),
    "admitted topics": (_admitted_topics, ()),
    "queues of all kinds": (_queues_of_all_kinds, [_STORES]),
    **{f"entries {seed}": (lambda seed=seed: _entries(seed), [_STORES, _OFTEN]) for seed in range(3)},
    "a member that begins elsewhere": (_a_member_that_begins_elsewhere, [_STORES]),
    "a conversion": (_a_conversion, [_STORES]),
    **{f"a store that is made, {choice}": (lambda choice=choice: _a_store_that_is_made(choice), [_STORES])
       for choice in ("lost", "kept", "killed")},
    **{f"a replica, {name}, {choice}": (lambda name=name, choice=choice: _a_replica(name, choice),
                                        [_STORES, _SELDOM, pytest.mark.crash])
       for name, choice in [("deleted again and again", "random"),
                            *product(("in more queues", "in other queues"), ("killed", "lost", "kept", "random"))]},
}  # fmt: skip
