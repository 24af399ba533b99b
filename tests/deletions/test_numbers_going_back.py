"""Queues of a topic that was made again and begin with 1: RocketMQ counts on from 0, where the last message of the old
one was being put while the topic was deleted.
"""

import pytest

from rmqstore.errors import NotNow
from rmqstore.replica.following.follower import Follower
from tests.crash.disks import MemoryDisk
from tests.deletions.following import PlayedMaster, fed, followed, held_by, log_of, replica_on
from tests.deletions.histories import Play
from tests.deletions.reading import check_opening, check_readers, forget

OLD = "put old 9 t/0,1 | put x 2 o/0 | flush | delete t"
HISTORIES = {
    "one queue": (f"{OLD} | slip t/0 | put new 3 t/0", "x new"),
    "up to the old number": (f"{OLD} | slip t/0 | put new 4 t/0", "x new"),
    "beyond the old number": (f"{OLD} | slip t/0 | put new 20 t/0", "x new"),
    "a single message": (f"{OLD} | slip t/0 | put new 1 t/0 | put last 1 o/0", "x new last"),
    "both queues": (f"{OLD} | slip t/0 | slip t/1 | put new 5 t/0,1", "x new"),
    "another queue begins at 0": (f"{OLD} | slip t/0 | put new 5 t/1,0 | put last 2 o/0", "x new last"),
    "another queue began before": (f"{OLD} | put new 1 t/1 | slip t/0 | put newer 5 t/0,1", "x new newer"),
    "after a batch of three": (f"{OLD} | slip t/0 3 | put new 4 t/0", "x new"),
    "twice": (f"{OLD} | slip t/0 | put new 6 t/0 | flush | delete t | slip t/0 2 | put newer 3 t/0", "x newer"),
    "and then at 0": (f"{OLD} | slip t/0 | put new 6 t/0 | flush | delete t | put newer 3 t/0", "x newer"),
}


@pytest.mark.parametrize("portion", [150, 1 << 20])
@pytest.mark.parametrize("name", HISTORIES)
def test_the_queues_of_the_replica(name: str, portion: int) -> None:
    """Readers find these beside the open replica, those of a killed one, and an opening."""
    steps, words = HISTORIES[name]
    play = Play(steps)
    wanted = play.wanted(words)
    engine, disk = followed(play, PlayedMaster(play, 0), portion)
    assert held_by(engine) == wanted
    check_readers(disk, wanted, begins=play.begins)
    check_readers(disk.crash("killed"), wanted, begins=play.begins)
    check_opening(disk.crash("lost"), wanted, begins=play.begins)


@pytest.mark.parametrize("name", HISTORIES)
def test_the_store_itself(name: str) -> None:
    """Readers go by its queues, with the note of the deletion and without."""
    steps, words = HISTORIES[name]
    play = Play(steps)
    wanted = play.wanted(words)
    play.store.flush()
    check_readers(play.memory, wanted, begins=play.begins)
    play.store.close()
    forget(play.memory)
    check_readers(play.memory, wanted, begins=play.begins)
    check_opening(play.memory, wanted, begins=play.begins)


def test_numbers_that_come_a_second_time() -> None:
    """The master has the older messages there, and so has the replica."""
    play = Play("put old 6 t/0 | flush")
    old = play.log_end
    master = PlayedMaster(play, 0)
    play.go_on("slip t/0 | put again 3 t/0 | flush")
    disk = MemoryDisk()
    engine = replica_on(disk)
    follower = Follower(engine, lambda: None, master)
    fed(follower, log_of(play))
    assert follower.end == play.log_end > old
    engine.catch_up()
    assert held_by(engine) == play.wanted("old")


def test_a_master_under_a_controller_dispatches_what_its_slaves_have() -> None:
    """What it says is behind is counted from there, not from where its log ends."""
    play = Play(f"{OLD} | slip t/0 | put new 3 t/0")
    master = PlayedMaster(play, 0)
    master.confirmed = 0
    disk = MemoryDisk()
    engine = replica_on(disk)
    follower = Follower(engine, lambda: None, master)
    with pytest.raises(NotNow, match="the master has not dispatched its log up to"):
        fed(follower, log_of(play), confirmed=0)
    end = follower.end
    follower.own_end()
    master.confirmed = play.log_end  # and the next blocks say so
    fed(follower, log_of(play)[end:], confirmed=play.log_end)
    engine.catch_up()
    assert held_by(engine) == play.wanted("x new")


def test_a_master_whose_queues_come_later_is_asked_again() -> None:
    play = Play(f"{OLD} | slip t/0 | put new 3 t/0")
    master = PlayedMaster(play, 0)
    disk = MemoryDisk()
    engine = replica_on(disk)
    master.undispatched = play.log_end
    with pytest.raises(NotNow, match="the master has not dispatched its log up to"):
        fed(Follower(engine, lambda: None, master), log_of(play))
    end = engine.log.marks.appended
    master.undispatched = 0
    follower = Follower(engine, lambda: None, master)
    follower.own_end()
    fed(follower, log_of(play)[end:])
    engine.catch_up()
    assert held_by(engine) == play.wanted("x new")
