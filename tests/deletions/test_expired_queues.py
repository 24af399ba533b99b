"""A queue that the master cleans alone, as all its messages were deleted with the log: the others stay as they are."""

import errno
from contextlib import suppress

import pytest

from rmqstore.errors import StoreError
from rmqstore.replica.following.follower import Follower
from tests.crash.disks import FailingDisk, MemoryDisk, WatchedDisk
from tests.deletions.following import PlayedMaster, fed, followed, gone_on, held_by, log_of, replica_on
from tests.deletions.histories import Play
from tests.deletions.reading import check_opening, check_readers, forget

# Queue 1 has messages before the first ones of queue 0, and after its last one; the master's log begins at the bar.
GONE = "put early 2 t/1 | put old 5 t/0"
OLD = f"{GONE} || put other 40 t/1,2 | flush"
NEW = "put new 3 t/0 | put late 4 t/1,2"
HISTORIES = {
    "one": (f"{OLD} | expire t/0 | {NEW}", "early other new late"),
    "one, with nothing new in others": (f"{OLD} | expire t/0 | put new 30 t/0", "early other new"),
    "one after the other": (
        f"put first 3 t/3 | {OLD} | expire t/3 | expire t/0 | put new 2 t/0,3 | put late 3 t/1", "early other new late",
    ),
    "one that gets nothing": (
        f"put first 3 t/3 | {OLD} | expire t/3 | put late 3 t/1", "first early old other late",
    ),
    "one twice": (
        f"{GONE} | put other 40 t/1,2 | expire t/0 | put new 1 t/0 || put more 2 t/2 | expire t/0 | put newer 3 t/0",
        "early other more newer",
    ),
    "the topic, after that": (f"{OLD} | expire t/0 | put new 2 t/0 | flush | delete t | put last 3 t/2,0", "last"),
    "the topic": (f"{OLD} | delete t | {NEW}", "new late"),
    "the topic, for other queues": (f"{OLD} | delete t | put new 2 t/0", "new"),
    "the topic, with as many messages again": (f"{OLD} | delete t | put late 44 t/1 | put new 1 t/0", "late new"),
}  # fmt: skip


def after(steps: str) -> int:
    """Where the log ends by then."""
    return Play(steps).log_end


@pytest.mark.parametrize("portion", [150, 1 << 20])
@pytest.mark.parametrize("name", HISTORIES)
def test_the_queues_of_the_replica(name: str, portion: int) -> None:
    """Readers find these beside the open replica; those of a killed one, of one queue without the note as well; and an
    opening."""
    steps, words = HISTORIES[name]
    gone, _, later = steps.partition(" || ")
    play = Play(f"{gone} | {later}")
    wanted = play.wanted(words)
    _, disk = followed(play, PlayedMaster(play, after(gone)), portion)
    check_readers(disk, wanted)
    killed = disk.crash("killed")
    check_readers(killed, wanted)
    if name.startswith("one"):
        forget(killed)
        check_readers(killed, wanted)
    check_opening(disk.crash("lost"), wanted)


def test_where_the_master_may_not_be_asked_no_message_of_other_queues_goes() -> None:
    play = Play(f"{OLD} | delete t | put new 2 t/0".replace("||", "|"))
    master = PlayedMaster(play, after(GONE))
    master.refuses = True
    engine, _ = followed(play, master)
    assert held_by(engine) == play.wanted("early other new")


@pytest.mark.parametrize("start", [0, after("put early 2 t/1 | put old 4 t/0")])
def test_a_queue_with_a_message_that_the_master_has_began_again_with_its_topic(start: int) -> None:
    play = Play(f"{OLD} | delete t | {NEW}".replace("||", "|"))
    master = PlayedMaster(play, start)
    engine, _ = followed(play, master)
    assert held_by(engine) == play.wanted("new late")
    assert master.asked == 0


def test_a_topic_of_which_the_master_has_nothing_else() -> None:
    """What it was tells nobody: the queue alone begins again."""
    play = Play("put old 5 t/0 | put past 2 t/1 | put other 1 o/0 | expire t/0 | put new 2 t/0")
    engine, _ = followed(play, PlayedMaster(play, after("put old 5 t/0 | put past 2 t/1")))
    assert held_by(engine) == play.wanted("past other new")


def test_a_disk_that_fails_meanwhile() -> None:
    """The next opening completes it: each time another file cannot be removed."""
    play = Play(f"{OLD} | expire t/0 | {NEW}".replace("||", "|"))
    master, counter = PlayedMaster(play, after(GONE)), WatchedDisk(MemoryDisk(), keep_trace=True)
    fed(Follower(replica_on(counter), lambda: None, master), log_of(play))
    steps = [each.number for each in counter.trace or () if each.verb == "remove" or "deletedTopics" in each.path]
    assert len(steps) > 3
    for at in steps:
        disk = MemoryDisk()
        with suppress(StoreError):
            fed(Follower(replica_on(FailingDisk(disk, at, errno.EIO)), lambda: None, master), log_of(play))
        engine = replica_on(disk.crash("killed"))
        gone_on(engine, log_of(play), master)
        assert held_by(engine) == play.wanted("early other new late")
        engine.close()
