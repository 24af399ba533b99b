"""A topic that its master deletes and makes again: the replica has its new messages, and the old ones go."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.clock import ManualClock
from rmqstore.config import HaConfig
from rmqstore.engine import Attached, Engine
from rmqstore.errors import StoreError
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.formats.names import format_start
from rmqstore.replication.following.follower import Follower, ForeignRecord
from rmqstore.replication.following.masters import BareMaster
from rmqstore.replication.following.replica import Replica
from rmqstore.testing import Probe
from tests.crash.disks import Choice, MemoryDisk
from tests.crash.strides import first, stride
from tests.crash.workload import Ledger, Moments
from tests.store.interrupting import Interrupt

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=4096, queue_file_size=400, preallocate=False, statistics=False)
ROOT = "/s"
Steps = Callable[[rmqstore.Store], None]


def put(store: rmqstore.Store, topic: str, bodies: Sequence[str], queues: Sequence[int]) -> None:
    for number, body in enumerate(bodies):
        assert store.put(Message(topic, body.encode(), queue_id=queues[number % len(queues)])).is_stored


def numbered(word: str, count: int) -> list[str]:
    return [f"{word} {number}" for number in range(count)]


def in_all_queues(store: rmqstore.Store) -> None:
    put(store, "t", numbered("old", 9), (0, 1, 2))
    put(store, "other", ["x", "y"], (0,))
    assert store.delete_topic("t")
    put(store, "other", ["z"], (0,))
    put(store, "t", numbered("new", 4), (0, 1))


def again_and_again(store: rmqstore.Store) -> None:
    for turn in range(4):
        put(store, "t", numbered(f"turn {turn}", 5), (0, 1))
        assert store.delete_topic("t")
    put(store, "t", ["last"], (1,))


def in_more_queues(store: rmqstore.Store) -> None:
    """Those that are new have messages before the first of those that begin again comes."""
    put(store, "t", numbered("old", 3), (0,))
    assert store.delete_topic("t")
    put(store, "t", numbered("new", 7), (1, 2, 0))


def in_other_queues(store: rmqstore.Store) -> None:
    """An old queue gets nothing any more, and one message of another shows that it went."""
    put(store, "t", numbered("old", 12), (0, 3, 0))
    put(store, "t", ["the end"], (0,))
    assert store.delete_topic("t")
    put(store, "t", numbered("new", 5), (5, 0))


# Of the lines of a portion every so many is interrupted, in each case others.
LINES = stride(101, whole=9)
CASES = [in_all_queues, again_and_again, in_more_queues, in_other_queues]


class OfMaster:
    """What a master has after some steps: its log, and what its queues hold, by topic and queue id."""

    def __init__(self, steps: Steps, config: StoreConfig = CONFIG) -> None:
        disk = MemoryDisk()
        with rmqstore.open_store(ROOT, config, filesystem=disk, clock=ManualClock(), workers=False) as store:
            steps(store)
            store.flush()
            log = Probe(store).engine.log
            self.log = log.read(0, log.marks.appended)
            self.held = held(Probe(store).engine)


def held(engine: Engine) -> dict[tuple[str, int], list[bytes]]:
    """The bodies in each queue that has some."""
    found = {}
    for key, end in engine.parts.queues.next_offsets().items():
        first = engine.parts.queues.batches.find(*key) or engine.parts.queues.find(*key)
        assert first is not None
        bodies = [message.body for message in engine.fetch.get(*key, first.min_offset, 1000).messages] if end else []
        if bodies:
            found[key] = bodies
    return found


def replica_on(fs: FileSystem, config: StoreConfig = CONFIG) -> Engine:
    return Engine(ROOT, config, ManualClock(), fs, Attached(follows="the master"), threads=False)


def fed(follower: Follower, data: bytes, portion: int) -> None:
    for begin in range(0, len(data), portion):
        follower.take(data[begin : begin + portion])
        follower.append()


def gone_on(engine: Engine, log: bytes) -> None:
    """The rest of the master's log, as a new connection brings it."""
    follower = Follower(engine, lambda: None)
    end = follower.end
    assert engine.log.read(0, end) == log[:end]
    fed(follower, log[end:], 1 << 20)
    assert follower.sync() == len(log)
    engine.catch_up()


@pytest.mark.parametrize("portion", [150, 1000, 1 << 20])
@pytest.mark.parametrize("steps", CASES)
def test_queues_that_begin_again_hold_what_the_masters_hold(steps: Steps, portion: int) -> None:
    """Whether the old messages were fetched a while ago or come in the same portion."""
    master = OfMaster(steps)
    disk = MemoryDisk()
    engine = replica_on(disk)
    fed(Follower(engine, lambda: None), master.log, portion)
    engine.catch_up()
    assert held(engine) == master.held
    engine.close()
    assert disk.image()["/s/commitlog/" + "0" * 20] == master.log[:4096].ljust(4096, b"\0")
    engine = replica_on(disk)
    assert held(engine) == master.held
    engine.close()


@pytest.mark.parametrize("portion", [150, 1000, 1 << 20])
@pytest.mark.parametrize("count", [2, 30])
def test_a_replica_that_begins_in_the_middle_of_the_old_messages(count: int, portion: int) -> None:
    """Their numbers are not 0, and the first new one comes in the same portion."""

    def steps(store: rmqstore.Store) -> None:
        put(store, "t", numbered("old", 60), (0,))
        assert store.delete_topic("t")
        put(store, "t", numbered("new", count), (0,))

    master = OfMaster(steps)
    start = 4096

    def prepare(fs: FileSystem, root: str) -> None:
        fs.make_directories(f"{root}/commitlog")
        fs.create(f"{root}/commitlog/{format_start(start)}", 4096).close()

    attached = Attached(follows="the master", prepare=prepare)
    engine = Engine(ROOT, CONFIG, ManualClock(), MemoryDisk(), attached, threads=False)
    fed(Follower(engine, lambda: None), master.log[start:], portion)
    engine.catch_up()
    assert held(engine) == master.held
    engine.close()


def test_a_topic_with_batch_queues_begins_again() -> None:
    config = CONFIG.__class__(log_file_size=1 << 16, preallocate=False, statistics=False)

    def steps(store: rmqstore.Store) -> None:
        for word in ("old", "new"):
            store.topics.put(TopicConfig("b", attributes={"queue.type": "BatchCQ"}))
            for _ in range(3):
                assert store.put_batch([Message("b", word.encode(), queue_id=0)] * 3).is_stored
            store.flush()
            if word == "old":
                store.delete_topic("b")

    master = OfMaster(steps, config)
    engine = replica_on(MemoryDisk(), config)
    engine.features.topics.put(TopicConfig("b", attributes={"queue.type": "BatchCQ"}))
    gone_on(engine, master.log)
    assert held(engine) == master.held == {("b", 0): [b"new"] * 9}


@pytest.mark.parametrize("kinds", [("BatchCQ", "SimpleCQ"), ("SimpleCQ", "BatchCQ")])
@pytest.mark.parametrize("portion", [500, 1 << 20])
def test_a_topic_that_is_made_again_may_have_queues_of_another_kind(kinds: tuple[str, str], portion: int) -> None:
    config = CONFIG.__class__(log_file_size=1 << 16, preallocate=False, statistics=False)

    def told(kind: str) -> None:
        """As the master's table has it."""
        topic = {"topicName": "b", "readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": kind}}
        engine.features.topics.follow({"topicConfigTable": {"b": topic}, "dataVersion": {"counter": 1}})

    def steps(store: rmqstore.Store) -> None:
        for word, kind in zip(("old", "new"), kinds, strict=True):
            store.topics.put(TopicConfig("b", attributes={"queue.type": kind}))
            for _ in range(3):
                put_some = (
                    store.put_batch if kind == "BatchCQ" else lambda messages: [store.put(each) for each in messages]
                )
                put_some([Message("b", word.encode(), queue_id=0)] * 3)
            store.flush()
            if word == "old":
                store.delete_topic("b")

    master = OfMaster(steps, config)
    engine = replica_on(MemoryDisk(), config)
    told(kinds[0])
    fed(Follower(engine, lambda: told(kinds[1])), master.log, portion)
    engine.catch_up()
    assert held(engine) == master.held == {("b", 0): [b"new"] * 9}


def test_a_single_record_that_says_0_is_no_new_beginning() -> None:
    """The next one of its queue does not go on from there: it is damaged, and the old messages stay."""
    old, new = OfMaster(lambda store: put(store, "t", numbered("old", 4), (0,))), OfMaster(again_and_again)
    assert new.log
    engine = replica_on(MemoryDisk())
    gone_on(engine, old.log)
    follower = Follower(engine, lambda: None)

    def steps(store: rmqstore.Store) -> None:
        put(store, "t", numbered("old", 6), (0,))

    data = bytearray(OfMaster(steps).log[follower.end :])
    at = 4 + 4 + 4 + 4 + 4  # queue offset: behind size, magic, CRC of the body, queue id and flag
    assert int.from_bytes(data[at : at + 8]) == 4
    data[at : at + 8] = bytes(8)
    follower.take(bytes(data))
    with pytest.raises(ForeignRecord, match="begins with it, and the next one does not"):
        follower.append()
    engine.catch_up()
    assert held(engine) == old.held


@pytest.mark.some(9)
@pytest.mark.crash
@pytest.mark.parametrize(
    ("steps", "choice"),
    [(again_and_again, "random"), *((steps, choice) for steps in (in_more_queues, in_other_queues)
                                    for choice in ("killed", "lost", "kept", "random"))],
)  # fmt: skip
def test_a_crash_at_any_operation_leaves_what_can_be_gone_on_with(steps: Steps, choice: str) -> None:
    master = OfMaster(steps)
    choices: list[Choice] = [random.Random(5) if choice == "random" else choice]  # type: ignore[list-item]
    moments = Moments(MemoryDisk(), choices, Ledger, quick=7)
    fed(Follower(replica_on(moments), lambda: None), master.log, 1000)
    assert moments.count > 50
    for operation, _, disk, _ in moments.taken:
        engine = replica_on(disk)
        gone_on(engine, master.log)
        assert held(engine) == master.held, operation
        engine.close()


@pytest.mark.some(3)
@pytest.mark.crash
@pytest.mark.parametrize("steps", [in_all_queues, in_more_queues, in_other_queues])
def test_an_interrupt_at_any_line_leaves_what_can_be_gone_on_with(steps: Steps) -> None:
    master, at = OfMaster(steps), CASES.index(steps) + first(LINES)
    while True:
        at += LINES
        engine = replica_on(MemoryDisk())
        follower = Follower(engine, lambda: None)
        follower.take(master.log)
        interrupt = Interrupt(at, is_real=True)
        interrupt.call(follower.append)
        follower.append()
        assert follower.sync() == len(master.log), interrupt.place
        engine.catch_up()
        assert held(engine) == master.held, interrupt.place
        if interrupt.place is None:
            break
    assert at > 300


class _Failing(MemoryDisk):
    """A disk whose n-th removal of a file fails."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def remove(self, path: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(5, "Input/output error", path)
        super().remove(path)


def failing_disks() -> Iterator[_Failing]:
    at = 0
    while True:
        at += 1
        disk = _Failing(at)
        yield disk
        if disk.left > 0:
            assert at > 3
            return


def test_a_disk_that_fails_ends_it_and_the_next_opening_completes_it() -> None:
    master = OfMaster(in_all_queues)
    for disk in failing_disks():
        follower = Follower(replica_on(disk), lambda: None)
        try:
            fed(follower, master.log, 1000)
        except StoreError as error:
            assert "a topic that was deleted could not be removed" in str(error)  # noqa: PT017
        engine = replica_on(disk.crash("killed"))
        gone_on(engine, master.log)
        assert held(engine) == master.held
        engine.close()


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
def test_readers_of_the_replica_see_what_those_of_the_master_see(tmp_path: Path, mode: str) -> None:
    """While it runs, after a clean end, and where the note of the deletion is lost."""

    def rows(root: Path) -> list[tuple[str, int, int, bytes]]:
        table = open_snapshot(root).scan(scan_mode=mode).read_all()
        names = ("topic", "queueId", "queueOffset", "body")
        return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))

    config = CONFIG.__class__(log_file_size=4096, queue_file_size=400, ha=HaConfig(listen="127.0.0.1:0"))
    with rmqstore.open_store(tmp_path / "m", config) as store:
        in_other_queues(store)
        in_all_queues(store)
        store.flush()
        assert store.ha_address is not None
        end = Probe(store).log_end
        wanted = rows(tmp_path / "m")
        assert len(wanted) == 7
        with Replica(tmp_path / "r", BareMaster(store.ha_address, 4096)) as replica:
            replica.run(lambda state: state.log_end >= end)
            replica.finish()
            assert rows(tmp_path / "r") == wanted
    assert rows(tmp_path / "r") == wanted
    (tmp_path / "r" / "config" / "deletedTopics.json").unlink()
    assert rows(tmp_path / "r") == wanted
