"""Topics that were deleted without a note, as RocketMQ deletes them: readers show what its queues have, and no more.

The stores are this engine's, whose note is removed before they are read.
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqstore import Corrupt, Message, StoreConfig, UnknownTopic, open_snapshot, open_store
from rmqstore.store import Store

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=65536, queue_file_size=2000, message_size_max=3000, preallocate=False)
MODES = ["auto", "queue", "commitlog"]


@contextmanager
def left(store: Store, root: Path, state: str) -> Iterator[None]:
    """The store as nobody notes a deletion: open for writing, closed, or killed."""
    store.flush()
    if state == "closed":
        store.close()
    (root / "config" / "deletedTopics.json").unlink(missing_ok=True)
    if state == "killed":
        copy = root.with_name("copy")
        shutil.copytree(root, copy)
        store.close()
        shutil.rmtree(root)
        copy.rename(root)
    try:
        yield
    finally:
        store.close()


def bodies(root: Path, topics: list[str] | None, mode: str, **options: str) -> list[bytes]:
    found = open_snapshot(root).scan(topics, scan_mode=mode, **options).read_all()["body"].to_pylist()
    return sorted(found)


def put(store: Store, topic: str, word: str, count: int, queues: int = 1) -> list[bytes]:
    """Puts so many messages to so many queues in turn; their bodies."""
    words = [b"%s %d" % (word.encode(), number) for number in range(count)]
    for number, body in enumerate(words):
        assert store.put(Message(topic, body, queue_id=number % queues)).is_stored
    return words


@pytest.mark.some(3)
@pytest.mark.parametrize("state", ["live", "closed"])
@pytest.mark.parametrize(("old", "new"), [(1, 1), (4, 4), (4, 2), (2, 4)])
@pytest.mark.parametrize("count", [3, 20])
def test_a_topic_that_was_made_again_has_its_new_messages(
    tmp_path: Path, state: str, old: int, new: int, count: int
) -> None:
    """Fewer of them than it had before, or more; in other queues than before."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    others = put(store, "o", "other", 3)
    put(store, "t", "old", 10, old)
    store.flush()
    assert store.delete_topic("t")
    wanted = put(store, "t", "new", count, new)
    others += put(store, "o", "more", 1)
    with left(store, root, state):
        for mode in MODES:
            for policy in ("fail", "skip"):
                assert bodies(root, ["t"], mode, on_corrupt_record=policy) == sorted(wanted)
                assert bodies(root, None, mode, on_corrupt_record=policy) == sorted(wanted + others)


@pytest.mark.parametrize("state", ["live", "closed"])
@pytest.mark.parametrize("queues", [1, 4])
def test_a_topic_that_was_deleted_is_not_there(tmp_path: Path, state: str, queues: int) -> None:
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    others = put(store, "o", "other", 3)
    put(store, "t", "old", 10, queues)
    store.flush()
    assert store.delete_topic("t")
    others += put(store, "o", "more", 1)
    with left(store, root, state):
        for mode in MODES:
            assert bodies(root, None, mode) == sorted(others)
            with pytest.raises(UnknownTopic):
                bodies(root, ["t"], mode)


@pytest.mark.parametrize("how", ["killed", "no table of topics", "known topic", "nothing came later"])
def test_messages_without_queue_files_are_there_where_nobody_deleted_them(tmp_path: Path, how: str) -> None:
    """RocketMQ dispatches them again after a crash; and queue files may be lost."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    put(store, "o", "other", 3)
    words = put(store, "t", "old", 10, 4)
    if how != "nothing came later":
        put(store, "o", "more", 1)
    with left(store, root, "live" if how == "killed" else "closed"):
        shutil.rmtree(root / "consumequeue" / "t")
        if how == "no table of topics":
            (root / "config" / "topics.json").unlink()
        elif how == "killed":
            store.close()
            (root / "abort").touch()
            shutil.rmtree(root / "config")
        for mode in MODES:
            assert bodies(root, ["t"], mode) == sorted(words)


@pytest.mark.parametrize("gone", ["0", "1", "0 1", "2 3"])
def test_queues_that_are_lost_beside_others_of_their_topic_are_there(tmp_path: Path, gone: str) -> None:
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    words = put(store, "t", "body", 20, 4)
    put(store, "o", "more", 1)
    with left(store, root, "closed"):
        for queue_id in gone.split():
            shutil.rmtree(root / "consumequeue" / "t" / queue_id)
        for mode in MODES:
            assert bodies(root, ["t"], mode) == sorted(words)


@pytest.mark.parametrize("bit", range(3))
def test_a_record_that_names_another_queue_is_no_proof_of_a_deletion(tmp_path: Path, bit: int) -> None:
    """It stands in front of that queue's first message, and its own queue's entry points at it."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    place = store.put(Message("t", b"first", queue_id=0)).physical_offset
    put(store, "t", "body", 40, 8)
    with left(store, root, "closed"):
        path = root / "commitlog" / ("0" * 20)
        data = bytearray(path.read_bytes())
        at = place + 12 + 3  # the last byte of the queue id: behind size, magic and CRC of the body
        data[at] ^= 1 << bit
        path.write_bytes(data)
        for mode in MODES:
            with pytest.raises(Corrupt):
                bodies(root, ["t"], mode)
            assert len(bodies(root, ["t"], mode, on_corrupt_record="skip")) in (40, 41)


def test_a_record_that_names_another_topic_is_no_proof_of_a_deletion(tmp_path: Path) -> None:
    """It stands in front of that topic's first message; a queue of the topic is lost, and its messages are there."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    place = store.put(Message("u", b"first")).physical_offset
    store.put(Message("t", b"its queue is lost", queue_id=1))
    put(store, "t", "second", 1)
    put(store, "u", "more", 1)
    with left(store, root, "closed"):
        path = root / "commitlog" / ("0" * 20)
        data = bytearray(path.read_bytes())
        at = data.index(b"\x01u", place) + 1  # the topic, behind its length
        data[at] = ord("t")
        path.write_bytes(data)
        shutil.rmtree(root / "consumequeue" / "t" / "1")
        for mode in MODES:
            assert b"its queue is lost" in bodies(root, ["t"], mode, on_corrupt_record="skip")


@pytest.mark.some(8)
@pytest.mark.parametrize("seed", range(30))
def test_without_the_note_readers_find_what_they_find_with_it(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    held: dict[str, list[bytes]] = {"o": put(store, "o", "other", 1)}
    for step in range(chance.randint(5, 40)):
        topic = chance.choice("abc")
        if chance.random() < 0.25:
            store.flush()
            store.delete_topic(topic)
            held.pop(topic, None)
        else:
            held.setdefault(topic, []).extend(
                put(store, topic, f"{topic} {step}", chance.randint(1, 7), chance.randint(1, 4))
            )
    held["o"] += put(store, "o", "more", 1)
    for topic in held:  # in its first queue something came last, as where topics are in use
        held[topic] += put(store, topic, "last", 1)
    with left(store, root, chance.choice(["live", "closed"])):
        for mode in MODES:
            assert bodies(root, None, mode) == sorted(body for each in held.values() for body in each)
            for topic, wanted in held.items():
                assert bodies(root, [topic], mode) == sorted(wanted)


@pytest.mark.some(11)
@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("seed", range(40))
def test_opening_such_a_store_for_writing_changes_no_row(tmp_path: Path, seed: int, state: str) -> None:
    """Queues that got nothing since are as gone as those that did; and what is put then comes after the new ones.

    After a crash nobody can tell of such queues: what they had is there again, as in RocketMQ, which dispatches it.
    """
    chance = random.Random(seed)
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    queues = chance.randint(1, 4)
    wanted = put(store, "o", "other", 3)
    for turn in range(chance.randint(1, 3) if queues == 1 else 1):
        put(store, "t", f"old {turn}", chance.randint(queues, 9), queues)
        store.flush()
        store.delete_topic("t")
    used = chance.randrange(queues)
    for number in range(chance.randint(1, 4)):
        wanted.append(b"new %d" % number)
        assert store.put(Message("t", wanted[-1], queue_id=used)).is_stored
    wanted += put(store, "o", "more", chance.randint(0, 2))
    with left(store, root, state):
        if state == "killed":
            (root / "abort").touch()
        rows = bodies(root, None, "auto")
        assert rows == sorted(wanted) if state == "closed" else set(rows) >= set(wanted)
        with open_store(root, CONFIG, workers=False) as again:
            rows.append(b"last")
            assert again.put(Message("t", b"last", queue_id=used)).is_stored
        for mode in MODES:
            assert bodies(root, None, mode) == sorted(rows)
        (root / "config" / "deletedTopics.json").unlink(missing_ok=True)
        for mode in MODES:
            assert bodies(root, None, mode) == sorted(rows)


@pytest.mark.some(5)
@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_that_loses_queue_files_hides_no_new_message(tmp_path: Path, seed: int) -> None:
    """Rows are the same before and after a recovery; both refuse a single record that says 0."""
    chance = random.Random(seed)
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    queues = chance.randint(1, 4)
    wanted = put(store, "o", "other", 3)
    put(store, "t", "old", chance.randint(queues, 9), queues)
    store.flush()
    store.delete_topic("t")
    used = [chance.randrange(4) for _ in range(chance.randint(1, 9))]
    for number, queue_id in enumerate(used):
        wanted.append(b"new %d" % number)
        assert store.put(Message("t", wanted[-1], queue_id=queue_id)).is_stored
    may_refuse = 1 in Counter(used).values()
    with left(store, root, "killed"):
        (root / "abort").touch()
        for queue in sorted((root / "consumequeue").glob("*/*")):
            if chance.random() < 0.4:
                shutil.rmtree(queue)
        try:
            rows = bodies(root, None, "auto")
            assert set(rows) >= set(wanted)
        except Corrupt:
            assert may_refuse
            rows = []
        try:
            open_store(root, CONFIG, workers=False).close()
        except Corrupt:
            assert may_refuse
            return
        for mode in MODES:
            found = bodies(root, None, mode)
            assert found == rows or (not rows and set(found) >= set(wanted))


def test_a_broker_that_deletes_a_topic_after_this_engine_did(tmp_path: Path) -> None:
    """The note knows of the first deletion alone."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    note = root / "config" / "deletedTopics.json"
    put(store, "t", "first", 4, 2)
    store.flush()
    assert store.delete_topic("t")
    noted = note.read_bytes()
    put(store, "t", "second", 4, 2)
    store.flush()
    assert store.delete_topic("t")
    wanted = put(store, "t", "new", 2)
    wanted += put(store, "o", "more", 1)
    with left(store, root, "closed"):
        note.write_bytes(noted)
        for mode in MODES:
            assert bodies(root, None, mode) == sorted(wanted)
        open_store(root, CONFIG, workers=False).close()
        for mode in MODES:
            assert bodies(root, None, mode) == sorted(wanted)


def test_after_a_crash_new_messages_without_entries_are_no_deleted_ones(tmp_path: Path) -> None:
    """A power cut keeps some queue files and loses others: what stands in front of an entry may never have had one."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    put(store, "t", "old", 6, 2)
    store.flush()
    assert store.delete_topic("t")
    wanted = [b"lost entry %d" % number for number in range(3)]
    for body in wanted:
        store.put(Message("t", body, queue_id=1))
    wanted += put(store, "t", "new", 2)
    with left(store, root, "killed"):
        (root / "abort").touch()
        shutil.rmtree(root / "consumequeue" / "t" / "1")
        for mode in MODES:
            assert bodies(root, ["t"], mode) == sorted(wanted)
        open_store(root, CONFIG, workers=False).close()
        for mode in MODES:
            assert bodies(root, ["t"], mode) == sorted(wanted)


def test_queues_that_are_built_again_from_the_log_alone_lack_no_new_message(tmp_path: Path) -> None:
    """That one queue began again says nothing of another that came with the new topic, before that."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    put(store, "t", "old", 3)
    store.flush()
    assert store.delete_topic("t")
    wanted = [b"in a new queue"]
    store.put(Message("t", wanted[0], queue_id=1))
    wanted += put(store, "t", "new", 2)
    with left(store, root, "closed"):
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        for mode in MODES:
            assert bodies(root, ["t"], mode) == sorted(wanted)
        open_store(root, CONFIG, workers=False).close()
        for mode in MODES:
            assert bodies(root, ["t"], mode) == sorted(wanted)


@pytest.mark.parametrize("mode", MODES)
def test_queues_of_before_may_stand_beside_new_ones(tmp_path: Path, mode: str) -> None:
    """As a broker leaves them that dispatched deleted messages again after a crash: what its queues have is there."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    old = put(store, "t", "old", 10, 2)
    store.flush()
    shutil.copytree(root / "consumequeue" / "t" / "0", tmp_path / "0")
    assert store.delete_topic("t")
    for number in range(2):
        store.put(Message("t", b"new %d" % number, queue_id=1))
    put(store, "o", "more", 1)
    with left(store, root, "closed"):
        shutil.copytree(tmp_path / "0", root / "consumequeue" / "t" / "0", dirs_exist_ok=True)
        for policy in ("fail", "skip"):
            assert bodies(root, ["t"], mode, on_corrupt_record=policy) == sorted([b"new 0", b"new 1", *old[::2]])


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("queues", [1, 2])
def test_a_topic_that_was_deleted_twice_before_a_crash_keeps_nobody_from_the_others(
    tmp_path: Path, queues: int, count: int
) -> None:
    """What it had last shows, as an opening for writing brings it back."""
    root = tmp_path / "s"
    store = open_store(root, CONFIG, workers=False)
    for turn in range(3):
        last = put(store, "t", f"turn {turn}", count * queues, queues)
        store.flush()
        assert store.delete_topic("t")
    others = put(store, "o", "other", 2)
    with left(store, root, "killed"):
        (root / "abort").touch()
        for mode in MODES:
            assert bodies(root, ["o"], mode) == sorted(others)
            assert bodies(root, None, mode) == sorted(others + last)
        open_store(root, CONFIG, workers=False).close()
        for mode in MODES:
            assert bodies(root, None, mode) == sorted(others + last)
