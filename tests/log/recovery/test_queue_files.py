"""Queue files that hands have moved: of another queue, of another place, twice, without a message, in a log that lost
its oldest files.  Every message of the log stays, in its place.
"""

import errno
import os
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore import Message, StoreConfig, TopicConfig, open_store
from rmqstore.cli.recover import dry_plan
from rmqstore.clock import ManualClock
from rmqstore.directory.log_space import LogSpace
from rmqstore.engine.store import Store
from rmqstore.errors import StoreDamaged
from rmqstore.files.disk import DirectoryEntry
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.message import FRONT_V4
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY
from tests.crash.strides import every

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(
    log_file_size=8192, queue_file_size=400, index_slot_count=7, index_item_count=50, preallocate=False
)
CUT = replace(CONFIG, on_middle_damage="cut")
SLOTS = CONFIG.queue_file_size // QUEUE_ENTRY.size
BLANKS = QUEUE_ENTRY.struct.pack(0, PRE_BLANK_SIZE, 0) * SLOTS
# Topic, queue id, queue offset.
Place = tuple[str, int, int]


def filled(root: Path, rng: random.Random, count: int, topics: str = "AABC") -> dict[int, Place]:
    """A closed store of two queues a topic; the places of its messages by their offsets in the log."""
    with open_store(root, CONFIG, workers=False) as store:
        placed: dict[int, Place] = {}
        for number in range(count):
            topic, queue_id = rng.choice(topics), rng.randrange(2)
            body = b"%d " % number + bytes(rng.choice([10, 200]))
            result = store.put(Message(topic, body, queue_id=queue_id))
            placed[result.physical_offset] = topic, queue_id, result.queue_offset
    return placed


def expire(root: Path, count: int) -> int:
    """Removes the oldest `count` log files and the queue files that lead to nothing else; where the log begins now."""
    logs = sorted((root / "commitlog").iterdir())
    for path in logs[:count]:
        path.unlink()
    start = int(logs[count].name)
    for queue in queues(root):
        for path in sorted(queue.iterdir())[:-1]:
            if QUEUE_ENTRY.struct.unpack(path.read_bytes()[-QUEUE_ENTRY.size :])[0] < start:
                path.unlink()
    return start


def queues(root: Path) -> list[Path]:
    return sorted((root / "consumequeue").glob("*/*"))


def held(store: Store) -> dict[int, Place]:
    """The messages that consumers get, by their offsets in the log."""
    found: dict[int, Place] = {}
    for topic, queue_id in store.queues():
        at, end = store.bounds(topic, queue_id)
        while at < end and (messages := store.get(topic, queue_id, at, 32).messages):
            found.update({each.physical_offset: (topic, queue_id, each.queue_offset) for each in messages})
            at = messages[-1].queue_offset + 1
    return found


def require_all(root: Path, wanted: dict[int, Place], next_offsets: dict[tuple[str, int], int]) -> None:
    """Opening brings all messages, or refuses and changes nothing: then a cut brings them, and says that none goes.  An
    opening after that has nothing to do, and gives no number twice.
    """
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    try:
        with open_store(root, CONFIG, workers=False) as store:
            found = held(store)
    except StoreDamaged:
        with pytest.raises(StoreDamaged):
            dry_plan(str(root), CONFIG)
        after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}
        assert after == {path: data for path, data in before.items() if path.name != "lock"}
        plan = dry_plan(str(root), CUT)
        assert (plan.lost, plan.unqueued) == ((), ())
        with open_store(root, CUT, workers=False) as store:
            found = held(store)
    assert found == wanted
    assert dry_plan(str(root), CONFIG).changes_nothing
    with open_store(root, CONFIG, workers=False) as store:
        given = {key: store.put(Message(key[0], b"new", queue_id=key[1])).queue_offset for key in next_offsets}
    assert given == next_offsets


def copied(queue: Path, first: int, last: int) -> None:
    (queue / format_start(last)).write_bytes((queue / format_start(first)).read_bytes())


def blank(queue: Path, first: int, last: int) -> None:
    (queue / format_start(last)).write_bytes(BLANKS)


def alone(change: Callable[[Path, int, int], None]) -> Callable[[Path, int, int], None]:
    """The change, after which the queue has no other file."""

    def changed(queue: Path, first: int, last: int) -> None:
        change(queue, first, last)
        for path in queue.iterdir():
            if path.name != format_start(last):
                path.unlink()

    return changed


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("gone", [1, 2])
@pytest.mark.parametrize("last", [400, 800, 1200, 1600])
@pytest.mark.parametrize(
    "change", [copied, alone(copied), blank, alone(blank)], ids=["copied", "1", "blank", "1 blank"]
)
def test_a_file_of_numbers_that_the_log_does_not_say(
    tmp_path: Path, change: Callable[[Path, int, int], None], last: int, gone: int, is_closed: bool
) -> None:
    """The log has numbers 40 to 69 of the queue, or 50 to 69; the file says nothing of these."""
    with open_store(tmp_path, CONFIG, workers=False) as store:
        placed = {
            store.put(Message("A", b"%d" % number + bytes(200), queue_id=0)).physical_offset: number
            for number in range(70)
        }
    first = tmp_path / "consumequeue" / "A" / "0" / format_start(0)
    oldest = first.read_bytes()
    start = expire(tmp_path, gone)
    first.write_bytes(oldest)
    change(first.parent, 0, last)
    first.unlink(missing_ok=True)
    if not is_closed:
        (tmp_path / "abort").touch()
    wanted = {offset: ("A", 0, number) for offset, number in placed.items() if offset >= start}
    require_all(tmp_path, wanted, {("A", 0): 70})


def blanked(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("gone", [0, 2])
@pytest.mark.parametrize("start", [400, 1200])
@pytest.mark.parametrize("change", [blanked, shortened, emptied, Path.unlink])
def test_a_queue_file_that_cannot_be_used_hides_no_later_one(
    tmp_path: Path, change: Callable[[Path], None], start: int, gone: int, is_closed: bool
) -> None:
    """The messages are in old files of the log, which nothing else leads an opening to; the last file but one has
    entries of messages that have expired, or leads to its messages.
    """
    with open_store(tmp_path, CONFIG, workers=False) as store:
        placed = {
            store.put(Message("A", b"%d" % number + bytes(200), queue_id=0)).physical_offset: ("A", 0, number)
            for number in range(90)
        }
        others = [store.put(Message("Z", b"%d" % number + bytes(200), queue_id=0)) for number in range(200)]
    placed |= {each.physical_offset: ("Z", 0, each.queue_offset) for each in others}
    oldest = expire(tmp_path, gone)
    path = tmp_path / "consumequeue" / "A" / "0" / format_start(start)
    if path.exists() and (change is not Path.unlink or path > min(path.parent.iterdir())):
        change(path)
    if not is_closed:
        (tmp_path / "abort").touch()
    wanted = {offset: place for offset, place in placed.items() if offset >= oldest}
    require_all(tmp_path, wanted, {("A", 0): 90, ("Z", 0): 200})


BATCHES = replace(CONFIG, batch_queue_file_size=46 * 10)


def filled_batches(root: Path) -> list[tuple[str, list[bytes]]]:
    """A closed store of two topics with batch queues, whose messages are in old log files; their bodies."""
    clock = ManualClock(1_700_000_000_000)
    with open_store(root, BATCHES, clock=clock, workers=False) as store:
        for topic in "AB":
            store.topics.put(TopicConfig(topic, 1, 1, attributes={"queue.type": "BatchCQ"}))
        for number in range(28):
            for topic in "AB":
                if number % 3:
                    store.put_batch([Message(topic, b"%d/%d" % (number, each), queue_id=0) for each in range(3)])
                else:
                    store.put(Message(topic, b"%d" % number, queue_id=0))
        for _ in range(200):
            clock.advance(100)
            store.put(Message("Z", bytes(200), queue_id=0))
    with open_store(root, BATCHES, clock=clock, workers=False) as store:
        return batch_bodies(store)


def batch_bodies(store: Store) -> list[tuple[str, list[bytes]]]:
    return [(topic, [each.body for each in store.get(topic, 0, 0, 1000).messages]) for topic in "AB"]


def exchanged(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def replaced(one: Path, other: Path) -> None:
    one.write_bytes(other.read_bytes())


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(
    ("change", "first", "second"),
    [
        (exchanged, "A/0", "B/0"),
        (exchanged, "A/460", "B/460"),
        (exchanged, "A/920", "B/920"),
        (exchanged, "A/0", "A/460"),
        (exchanged, "A/460", "B/0"),
        (replaced, "A/460", "A/0"),
        (replaced, "A/920", "A/0"),
        (replaced, "A/0", "A/460"),
        (replaced, "A/0", "B/0"),
    ],
)
def test_files_of_batch_queues_that_are_others_are_refused(
    tmp_path: Path, change: Callable[[Path, Path], None], first: str, second: str, is_closed: bool
) -> None:
    """A cut writes the queues again, and every message is in its own."""
    wanted = filled_batches(tmp_path)
    one, other = (
        tmp_path / "batchconsumequeue" / name[0] / "0" / format_start(int(name[2:])) for name in (first, second)
    )
    change(one, other)
    if not is_closed:
        (tmp_path / "abort").touch()
    with pytest.raises(StoreDamaged, match="writes the queues again from this log"):
        open_store(tmp_path, BATCHES, workers=False)
    with open_store(tmp_path, replace(BATCHES, on_middle_damage="cut"), workers=False) as store:
        assert batch_bodies(store) == wanted
    assert dry_plan(str(tmp_path), BATCHES).changes_nothing


@pytest.mark.crash
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("slot", [9, 10, 11])
def test_one_damaged_unit_where_two_files_of_a_batch_queue_meet_refuses_nothing(
    tmp_path: Path, slot: int, is_closed: bool
) -> None:
    """No more than anywhere else in so old a part of a queue, which `verify` reads and an opening does not."""
    wanted = filled_batches(tmp_path / "sound")
    for bit in every(12, range(64), whole=1):
        root = tmp_path / str(bit)
        shutil.copytree(tmp_path / "sound", root)
        file = root / "batchconsumequeue" / "A" / "0" / format_start(slot // 10 * 460)
        data = bytearray(file.read_bytes())
        data[slot % 10 * 46 + bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        if not is_closed:
            (root / "abort").touch()
        with open_store(root, BATCHES, workers=False) as store:
            assert [store.bounds(topic, 0) for topic in "AB"] == [(0, len(bodies)) for _, bodies in wanted]


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("start", [0, 460])
@pytest.mark.parametrize("change", [blanked, shortened, emptied])
def test_a_file_of_a_batch_queue_that_cannot_be_used_hides_no_later_one(
    tmp_path: Path, change: Callable[[Path], None], start: int, is_closed: bool
) -> None:
    wanted = filled_batches(tmp_path)
    change(tmp_path / "batchconsumequeue" / "A" / "0" / format_start(start))
    if not is_closed:
        (tmp_path / "abort").touch()
    with open_store(tmp_path, BATCHES, workers=False) as store:
        assert batch_bodies(store) == wanted


def change_one(rng: random.Random, root: Path) -> None:
    """Does something to two queue files, which may be the same."""
    one, other = rng.choices([path for queue in queues(root) for path in sorted(queue.iterdir())], k=2)
    content, moved, last = one.read_bytes(), other.read_bytes(), max(one.parent.iterdir())
    match rng.choice(["copy", "exchange", "move", "behind", "stale", "half", "blank", "shift"]):
        case "copy":
            one.write_bytes(moved)
        case "exchange":
            one.write_bytes(moved)
            other.write_bytes(content)
        case "move":
            one.replace(other.parent / one.name)
        case "behind":
            (one.parent / format_start(int(last.name) + CONFIG.queue_file_size)).write_bytes(moved)
        case "stale":  # as RocketMQ's recovery leaves them after the end that it finds
            own = last.read_bytes()
            size = own.find(bytes(QUEUE_ENTRY.size))
            size = len(own) if size < 0 else -(-size // QUEUE_ENTRY.size) * QUEUE_ENTRY.size
            last.write_bytes(own[:size] + moved[: len(own) - size])
        case "half":
            if one != last:
                one.write_bytes(content[: len(content) // 2].ljust(len(content), b"\0"))
        case "blank":
            one.write_bytes(BLANKS)
        case "shift":
            one.write_bytes(content[QUEUE_ENTRY.size :] + content[: QUEUE_ENTRY.size])


@pytest.mark.parametrize("seed", range(24))
def test_no_message_goes_whatever_is_done_to_queue_files(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    placed = filled(tmp_path, rng, rng.choice([120, 250]))
    start = expire(tmp_path, rng.randrange(3))
    if rng.random() < 0.5:
        (tmp_path / "abort").touch()
    for _ in range(rng.choice([1, 1, 2])):
        change_one(rng, tmp_path)
    next_offsets: dict[tuple[str, int], int] = {}
    for topic, queue_id, number in placed.values():
        next_offsets[topic, queue_id] = max(next_offsets.get((topic, queue_id), 0), number + 1)
    require_all(tmp_path, {offset: place for offset, place in placed.items() if offset >= start}, next_offsets)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(("since", "back"), [(60, 2), (60, 6), (60, 10), (60, 16), (54, 16)])
def test_numbers_that_came_twice_stay_with_the_first_records(
    tmp_path: Path, since: int, back: int, is_closed: bool
) -> None:
    """The last records say numbers again, of which the first records have expired in part, or all."""
    with open_store(tmp_path, CONFIG, workers=False) as store:
        bodies = [b"%d" % number + bytes(200) for number in range(70)]
        placed = [store.put(Message("A", body, queue_id=0)).physical_offset for body in bodies]
    for number, offset in list(enumerate(placed))[since:]:
        path = tmp_path / "commitlog" / format_start(offset // CONFIG.log_file_size * CONFIG.log_file_size)
        data = bytearray(path.read_bytes())
        at = offset % CONFIG.log_file_size + FRONT_V4.offset["queue_offset"]
        data[at : at + 8] = struct.pack(">q", number - back)
        path.write_bytes(data)
    for path in (tmp_path / "consumequeue" / "A" / "0").iterdir():
        path.unlink()
    (tmp_path / "abort").touch()
    open_store(tmp_path, CONFIG, workers=False).close()
    start = expire(tmp_path, 2)
    if not is_closed:
        (tmp_path / "abort").touch()
    says = [number - back * (number >= since) for number in range(70)]
    first = dict(zip(reversed(says), reversed(placed), strict=True))
    if placed[since] == start:
        first = dict(zip(says, placed, strict=True))
    wanted = {offset: ("A", 0, number) for number, offset in first.items() if offset >= start}
    require_all(tmp_path, wanted, {("A", 0): max(says) + 1})


def test_a_log_file_that_cannot_be_read_does_not_matter_in_front_of_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for its beginning: old files may stand on a bad disk."""
    with open_store(tmp_path, CONFIG, workers=False) as store:
        for number in range(200):
            store.put(Message("A", b"%d" % number + bytes(200), queue_id=0))
    read, asked = LogSpace.read, []

    def bad(log: LogSpace, offset: int, size: int) -> bytes:
        if 100 < offset < 3 * CONFIG.log_file_size and offset % CONFIG.log_file_size > 100:
            asked.append(offset)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(offset))
        return read(log, offset, size)

    monkeypatch.setattr(LogSpace, "read", bad)
    assert dry_plan(str(tmp_path), CONFIG).scan_start > 3 * CONFIG.log_file_size
    assert asked
    open_store(tmp_path, CONFIG, workers=False).close()


def test_of_many_queues_few_records_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a store of many queues costs no look at each of them."""
    with open_store(tmp_path, CONFIG, workers=False) as store:
        for number in range(1200):
            store.put(Message("A", b"x", queue_id=number // 2))
        for _ in range(100):
            store.put(Message("B", bytes(300), queue_id=0))
    read, places = LogSpace.read, set[int]()

    def counted(log: LogSpace, offset: int, size: int) -> bytes:
        places.add(offset)
        return read(log, offset, size)

    monkeypatch.setattr(LogSpace, "read", counted)
    plan = dry_plan(str(tmp_path), CONFIG)
    assert len([place for place in places if place < plan.scan_start and place % CONFIG.log_file_size]) <= 512


def test_each_topic_is_looked_at_once_where_its_queues_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path, CONFIG, workers=False) as store:
        store.put(Message("A", b"x", queue_id=0))
    for number in range(300):
        (tmp_path / "consumequeue" / "B" / str(number)).mkdir(parents=True)
    entries, asked = RealFileSystem.entries, list[str]()

    def counted(disk: RealFileSystem, directory: str) -> list[DirectoryEntry]:
        asked.append(directory)
        return entries(disk, directory)

    monkeypatch.setattr(RealFileSystem, "entries", counted)
    open_store(tmp_path, CONFIG, workers=False).close()
    assert not (tmp_path / "consumequeue" / "B").exists()
    assert asked.count(str(tmp_path / "consumequeue" / "B")) < 10


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("sizes", [(196, 200), (196, 196), (1, 399), (399, 399)])
def test_files_that_were_all_cut_within_an_entry_are_written_again(
    sizes: tuple[int, int], was_killed: bool, tmp_path: Path
) -> None:
    """No size that divides an entry is one that files have by setting."""
    root = tmp_path / "store"
    placed = filled(root, random.Random(1), 12, topics="A")
    for queue, size in zip(sorted(queues(root)), sizes, strict=True):
        (file,) = queue.iterdir()
        os.truncate(file, size)
    if was_killed:
        (root / "abort").touch()
    with open_store(root, CONFIG, workers=False) as store:
        for offset, (topic, queue_id, number) in placed.items():
            (found,) = store.get(topic, queue_id, number, 1).messages
            assert found.physical_offset == offset
    (size,) = {file.stat().st_size for queue in queues(root) for file in queue.iterdir()}
    assert size == (200 if 200 in sizes else CONFIG.queue_file_size)
