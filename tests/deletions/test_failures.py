"""A crash, a failing disk or an interrupt while a topic is deleted, or while a replica finds that one was."""

import errno

import pytest

from rmqstore.core.message import Message
from rmqstore.errors import StoreError
from rmqstore.replica.following.follower import Follower
from tests.crash.disks import Choice, FailingDisk, MemoryDisk, WatchedDisk
from tests.crash.strides import first, stride
from tests.crash.workload import Ledger, Moments
from tests.deletions.following import fed, gone_on, held_by, log_of, replica_on
from tests.deletions.histories import HISTORIES, Play, held, opened
from tests.deletions.reading import MODES, rows_in
from tests.store.interrupting import Interrupt

pytestmark = pytest.mark.stores

FILLED = " | ".join(f"put old 1 t/{number % 2} | put kept 1 o/0" for number in range(6))
BEFORE = {True: f"{FILLED} | flush", False: FILLED}  # whether the queues have the messages
LINES = stride(101, whole=9)  # of the lines of a portion every so many is interrupted, in each case others
CASES = ["in all queues", "deleted again and again", "in more queues", "in other queues"]


def images(before: str, steps: str) -> dict[MemoryDisk, str]:
    """What a crash at each operation of these steps leaves, each image once, and which step it was."""
    choices: list[Choice] = []
    moments = Moments(MemoryDisk(), choices, Ledger)
    play, found = Play(before, moments), dict[int, tuple[MemoryDisk, str]]()
    choices += ["lost", "kept", "killed"]
    for step in steps.split(" | "):
        begin = moments.operations
        play.go_on(step)
        for operation, _, disk, _ in moments.taken:
            if operation.number > begin:
                found.setdefault(hash(frozenset(disk.image().items())), (disk, step))
    return dict(found.values())


@pytest.mark.some(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_crash_leaves_the_topic_whole_or_gone(is_flushed: bool, mode: str) -> None:
    """Readers see what the next opening does, the one after it changes nothing, and a put goes behind what is there."""
    steps = "delete t | put new 2 t/0 | flush"
    play, taken, seen = Play(FILLED), images(BEFORE[is_flushed], steps), set()
    play.go_on(steps)
    one_new = {**play.wanted("kept"), ("t", 0): [b"new 0"]}
    may_be = [one_new, *map(play.wanted, ("old kept", "kept", "new kept"))]
    assert len(taken) > 20
    for disk, step in taken.items():
        read = rows_in(disk, None, mode)
        store = opened(disk)
        found = held(store)
        assert read == found
        assert found in may_be
        assert (store.topics.find("t") is None) == (("t", 0) not in found) or step == "put new 2 t/0"
        again = disk.crash("killed")
        opened(again)
        assert {**again.image(), "/store/abort": b""} == {**disk.image(), "/store/abort": b""}
        assert store.put(Message("t", b"more", queue_id=0)).queue_offset == len(found.get(("t", 0), ()))
        seen.add(may_be.index(found))
    assert seen == {0, 1, 2, 3}


@pytest.mark.some(3)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("forever", [True, False])
def test_a_disk_that_fails_leaves_the_topic_there_or_gone(error: int, forever: bool) -> None:
    """After an OSError, and a repetition or a new start: nothing is in between."""
    counter = WatchedDisk(MemoryDisk())
    play = Play(BEFORE[True], counter)
    begin, may_be = counter.operations + 1, ([], play.wanted("old")["t", 0])
    play.go_on("delete t")
    outcomes = set()
    for at in range(begin, counter.operations + 1):
        for repeats in (False, True):
            disk = MemoryDisk()
            store = Play(BEFORE[True], FailingDisk(disk, at, error, forever)).store
            try:
                store.delete_topic("t")
            except (OSError, StoreError):
                outcomes.add("failed")
                assert held(store).get(("t", 0), []) in may_be
            if repeats and not forever and store.put(Message("o", b"x")).is_stored:
                store.delete_topic("t")
                outcomes.add("repeated")
                assert ("t", 0) not in held(opened(disk.crash("killed")))
            for choice in ("lost", "killed"):
                again = opened(disk.crash(choice))
                found = [held(again).get(("t", queue_id), []) for queue_id in (0, 1)]
                assert found in ([[], []], [play.put["t", 0], play.put["t", 1]])
                assert (again.topics.find("t") is None) == (found == [[], []])
    assert outcomes >= {"failed"} | (set() if forever else {"repeated"})


@pytest.mark.some(3)
@pytest.mark.crash
@pytest.mark.parametrize("name", ["in all queues", "in more queues", "in other queues"])
def test_a_replica_goes_on_after_an_interrupt_at_any_line(name: str) -> None:
    play, at = Play(HISTORIES[name].steps), CASES.index(name) + first(LINES)
    while True:
        at += LINES
        engine = replica_on(MemoryDisk())
        follower = Follower(engine, lambda: None)
        follower.take(log_of(play))
        interrupt = Interrupt(at, is_real=True)
        interrupt.call(follower.append)
        follower.append()
        assert follower.sync() == play.log_end, interrupt.place
        engine.catch_up()
        assert held_by(engine) == play.wanted(HISTORIES[name].replica or ""), interrupt.place
        if interrupt.place is None:
            break
    assert at > 300


def test_a_disk_that_fails_ends_a_replica_and_the_next_opening_completes_it() -> None:
    """Each time another file of the old queues cannot be removed."""
    play = Play(HISTORIES["in all queues"].steps)
    counter = WatchedDisk(MemoryDisk(), keep_trace=True)
    fed(Follower(replica_on(counter), lambda: None), log_of(play), 1000)
    removals = [operation.number for operation in counter.trace or () if operation.verb == "remove"]
    assert len(removals) > 2
    for at in removals:
        disk = MemoryDisk()
        follower = Follower(replica_on(FailingDisk(disk, at, errno.EIO)), lambda: None)
        try:
            fed(follower, log_of(play), 1000)
        except StoreError as error:
            assert "a topic that was deleted could not be removed" in str(error)  # noqa: PT017
        engine = replica_on(disk.crash("killed"))
        gone_on(engine, log_of(play))
        assert held_by(engine) == play.wanted("x z new")
        engine.close()
