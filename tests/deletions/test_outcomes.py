"""Every history of a topic that is deleted, for each observer: the engine, readers, a stream's ends and a replica."""

import random
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext, suppress

import pytest

from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.errors import Corrupt
from rmqstore.replica.following.follower import Follower
from rmqstore.snapshot.stream.ends import StreamEnds
from tests.crash.disks import MemoryDisk
from tests.deletions.following import fed, held_by, log_of, replica_on, tell
from tests.deletions.histories import CONFIG, HISTORIES, ROOT, Play, Queue, held, opened
from tests.deletions.reading import MODES, check_opening, check_readers, forget, rows_in

pytestmark = pytest.mark.stores


def cases(observer: str) -> list[object]:
    """The names of the histories that this observer is asked about."""
    return [
        pytest.param(name, marks=pytest.mark.some(history.some) if history.some > 1 else ())
        for name, history in HISTORIES.items()
        if getattr(history, observer) is not None
    ]


def has_all(found: Mapping[Queue, list[bytes]], wanted: Mapping[Queue, list[bytes]]) -> bool:
    """Whether each queue ends with what is wanted of it."""
    return all(found.get(key, [])[-len(bodies) :] == bodies for key, bodies in wanted.items())


@pytest.mark.parametrize("ending", ["closed", "killed", "lost", "kept"])
@pytest.mark.parametrize("name", cases("engine"))
def test_the_engine(name: str, ending: str) -> None:
    """Each opening finds the same; what was deleted is no topic; after a clean end there is nothing to recover."""
    play = Play(HISTORIES[name].steps)
    wanted = play.wanted(HISTORIES[name].engine or "")
    for mode, end in zip(MODES, (ending, "killed", "closed"), strict=True):
        disk = play.end(end)
        assert end != "closed" or plan_recovery(disk, ROOT, CONFIG).changes_nothing
        assert rows_in(disk, None, mode) == wanted
        play.store = opened(disk)
        assert held(play.store) == wanted
        assert {topic for topic, _ in play.put if play.store.topics.find(topic)} == {topic for topic, _ in wanted}


@pytest.mark.parametrize("name", cases("reader"))
def test_readers_without_a_note(name: str) -> None:
    """While the store is open, unless its files change afterwards, and when it is closed."""
    play = Play(HISTORIES[name].steps)
    wanted = play.wanted(HISTORIES[name].reader or "")
    gone = {topic for topic, _ in play.put} - {topic for topic, _ in wanted}
    play.store.flush()
    for ending in ("closed",) if play.later else ("live", "closed"):
        disk = play.end(ending)
        forget(disk)
        check_readers(disk, wanted, gone)
    if not gone:
        check_opening(disk, wanted)


@pytest.mark.some(8)
@pytest.mark.parametrize("seed", range(30))
def test_readers_without_a_note_where_anything_may_have_happened(seed: int) -> None:
    chance = random.Random(seed)
    play = Play("put other0 1 o/0")
    there = {"o": ["other0"]}
    for step in range(chance.randint(5, 40)):
        topic = chance.choice("abc")
        if chance.random() < 0.25:
            play.go_on(f"flush | delete {topic}")
            there.pop(topic, None)
        else:
            queues = ",".join(str(each) for each in range(chance.randint(1, 4)))
            play.go_on(f"put {topic}{step} {chance.randint(1, 7)} {topic}/{queues}")
            there.setdefault(topic, []).append(f"{topic}{step}")
    for topic, words in there.items():  # in its first queue something came last, as where topics are in use
        play.go_on(f"put end 1 {topic}/0")
        words.append("end")
    play.store.flush()
    disk = play.end(chance.choice(["live", "closed"]))
    forget(disk)
    wanted = {
        key: bodies for topic, words in there.items() for key, bodies in play.wanted(" ".join(words)).items()
        if key[0] == topic
    }  # fmt: skip
    check_readers(disk, wanted)


@pytest.mark.some(11)
@pytest.mark.parametrize("ending", ["closed", "killed"])
@pytest.mark.parametrize("seed", range(40))
def test_an_opening_changes_no_row(seed: int, ending: str) -> None:
    """Queues that got nothing since are as gone as those that did; and what is put then comes after the new ones.

    After a crash nobody can tell of such queues: what they had is there again, as in RocketMQ, which dispatches it.
    """
    chance = random.Random(seed)
    play, queues = Play("put other 3 o/0"), chance.randint(1, 4)
    for _ in range(chance.randint(1, 3) if queues == 1 else 1):
        play.go_on(f"put old {chance.randint(queues, 9)} t/{'0,1,2,3'[: 2 * queues - 1]} | flush | delete t")
    used = chance.randrange(queues)
    play.go_on(f"put new {chance.randint(1, 4)} t/{used} | put more {chance.randint(0, 2)} o/0 | flush")
    disk = play.end(ending)
    forget(disk)
    found, wanted = rows_in(disk, None, "auto"), play.wanted("other new more")
    assert found == wanted or ending == "killed"
    assert has_all(found, wanted)
    check_opening(disk, found, ("t", used))


@pytest.mark.some(5)
@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_that_loses_queue_files_hides_no_new_message(seed: int) -> None:
    """Rows are the same before and after a recovery; both refuse a single record that says 0."""
    chance = random.Random(seed)
    play, queues = Play("put other 3 o/0"), chance.randint(1, 4)
    play.go_on(f"put old {chance.randint(queues, 9)} t/{'0,1,2,3'[: 2 * queues - 1]} | flush | delete t")
    used = Counter(chance.choices(range(4), k=chance.randint(1, 9)))
    for queue_id in used.elements():
        play.go_on(f"put new 1 t/{queue_id}")
    disk = play.go_on("flush").end("killed")
    forget(disk)
    for queue in sorted({path.rpartition("/")[0] for path in disk.image() if "/consumequeue/" in path}):
        if chance.random() < 0.4:
            play.go_on(f"lose {queue.removeprefix(f'{ROOT}/')}")
    may_refuse, wanted, rows = 1 in used.values(), play.wanted("other new"), None
    with suppress(Corrupt) if may_refuse else nullcontext():
        rows = rows_in(disk, None, "auto")
        assert has_all(rows, wanted)
    try:
        opened(disk).close()
    except Corrupt:
        assert may_refuse
        return
    for mode in MODES:
        found = rows_in(disk, None, mode)
        assert found == rows or (rows is None and has_all(found, wanted))


@pytest.mark.parametrize("name", cases("killed"))
def test_readers_after_a_crash_without_a_note(name: str) -> None:
    play = Play(HISTORIES[name].steps)
    wanted = play.wanted(HISTORIES[name].killed or "")
    play.store.flush()
    disk = play.end("killed")
    forget(disk)
    check_readers(disk, wanted)
    check_opening(disk, wanted)


@pytest.mark.parametrize("name", cases("reader"))
def test_the_ends_of_a_stream(name: str) -> None:
    """At each step they are those of the queues, and of what is not in them yet; a deletion finds all in its queues."""
    play = Play()
    ends = StreamEnds(ROOT, disk=play.disk)  # type: ignore[arg-type]
    for step in HISTORIES[name].steps.partition(" | end | ")[0].split(" | "):
        if step.startswith("delete"):
            play.store.flush()
            ends.look()
        play.go_on(step)
        found = {key: (queue.min_offset, queue.max_offset) for key, queue in ends.look().stores[0].queues.items()}
        assert found == {key: (0, end) for key, end in play.ends.items()}


@pytest.mark.parametrize("portion", [150, 1000, 1 << 20])
@pytest.mark.parametrize("name", cases("replica"))
def test_a_replica(name: str, portion: int) -> None:
    """Whether the old messages were fetched a while ago or come in the same portion; after an opening, too."""
    play = Play(HISTORIES[name].steps)
    wanted, disk = play.wanted(HISTORIES[name].replica or ""), MemoryDisk()
    engine = replica_on(disk)
    tell(engine, play.kinds[:1])
    fed(Follower(engine, lambda: tell(engine, play.kinds[-1:])), log_of(play), portion)
    engine.catch_up()
    assert held_by(engine) == wanted
    engine.close()
    assert log_of(play, disk) == log_of(play)
    engine = replica_on(disk)
    assert held_by(engine) == wanted
    engine.close()
