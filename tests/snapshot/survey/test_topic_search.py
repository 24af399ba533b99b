"""A few topics of many, looked at without the others' queues: the same rows and errors as by a look at all queues."""

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from rmqstore import StoreConfig, StoreError, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.snapshot import Snapshot, open_selected

pytestmark = pytest.mark.stores

TOPICS = [f"t{number:02d}" for number in range(40)]
LOG_FILE = 10 * 1024
COLUMNS = ("topic", "queueId", "queueOffset", "body", "corruptReason", "physicalOffset")
Outcome = tuple[object, ...]
Change = Callable[[Path], None]


class Ticking(ManualClock):
    """Later whenever it is asked: of what has one time nobody could tell that the last file is lost."""

    def now_ms(self) -> int:
        self.advance(1)
        return super().now_ms()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty topics of two queues; the records of all of them lie mixed, in four log files."""
    root = tmp_path_factory.mktemp("many") / "store"
    config = StoreConfig(log_file_size=LOG_FILE, queue_file_size=200, default_queue_nums=2, preallocate=False)
    with open_store(root, config, workers=False, clock=Ticking()) as store:
        for turn in range(4):
            names = [topic for topic, _ in product(TOPICS, range(2))]
            bodies = [b"%s of turn %d" % (name.encode(), turn) for name in names]
            queues = pa.array([queue for _, queue in product(TOPICS, range(2))], pa.int32())
            store.put_columns(pa.table({"topic": names, "body": bodies, "queueId": queues}))
    return root


def kill(root: Path) -> None:
    (root / "abort").write_text("1")


def outcome(opened: Callable[[], Snapshot], topic: str) -> Outcome:
    """The rows of a topic with its bounds, or the error."""
    try:
        snapshot = opened()
        bounds = [(r.queue_id, r.start, r.end) for r in snapshot.select([topic])]
        return ("rows", bounds, snapshot.scan([topic], columns=COLUMNS).read_all().to_pylist())
    except StoreError as error:
        return type(error).__name__, str(error)


def both(root: Path, topic: str) -> tuple[Outcome, Outcome]:
    """What a look at the topic says, and a look at all."""
    one = outcome(lambda: open_selected(root, {"topics": [topic]}), topic)
    return one, outcome(lambda: open_snapshot(root), topic)


def written_end(root: Path) -> int:
    return open_snapshot(root).stores[0].log_end


def log_file(root: Path, offset: int) -> tuple[Path, int]:
    return root / "commitlog" / f"{offset - offset % LOG_FILE:020d}", offset % LOG_FILE


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_one_topic_is_looked_at_alone(closed: Path) -> None:
    for topic in ("t00", "t17", "t39"):
        snapshot = open_selected(closed, {"topics": [topic]})
        assert snapshot.stores[0].is_partial
        assert [key[0] for key in snapshot.stores[0].queues] == [topic, topic]
        one, all_of_it = both(closed, topic)
        assert one == all_of_it
        assert len(one[2]) == 8  # type: ignore[arg-type]
    by_queue = open_selected(closed, {"assign": {"t03": [1], "t05": [0]}})
    assert {key[0] for key in by_queue.stores[0].queues} == {"t03", "t05"}


@pytest.mark.parametrize("selection", [{}, {"pattern": "t.*"}, {"topics": ["unknown"]}, {"topics": ["t01", "unknown"]}])
def test_what_names_no_topics_with_queues_looks_at_all(selection: dict[str, object], closed: Path) -> None:
    assert len(open_selected(closed, selection).stores[0].queues) == 80


def test_a_store_that_was_killed_is_looked_at_whole(closed: Path, tmp_path: Path) -> None:
    root = shutil.copytree(closed, tmp_path / "s")
    kill(root)
    assert len(open_selected(root, {"topics": ["t17"]}).stores[0].queues) == 80


def test_a_record_that_waits_for_its_entry_makes_a_look_whole(closed: Path, tmp_path: Path) -> None:
    """It says a topic, and may be another's."""
    root = shutil.copytree(closed, tmp_path / "s")
    zero_entries("t39", 1, 3)(root)
    assert not open_selected(root, {"topics": ["t17"]}).stores[0].is_partial


def test_a_store_with_few_topics_is_looked_at_whole(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", StoreConfig(preallocate=False), workers=False) as store:
        for topic in ("a", "b"):
            store.put_columns(pa.table({"topic": [topic] * 600, "body": [bytes(100)] * 600}))
    assert not open_selected(tmp_path / "s", {"topics": ["a"]}).stores[0].is_partial


@pytest.mark.parametrize(("queue_count", "is_partial"), [(1, False), (40, True)])
def test_how_much_of_the_log_is_walked_goes_by_the_queues_that_need_not_be_asked(
    queue_count: int, is_partial: bool, tmp_path: Path
) -> None:
    root, names = tmp_path / "s", [f"t{number}" for number in range(5)]
    config = StoreConfig(queue_file_size=200, default_queue_nums=queue_count, preallocate=False)
    with open_store(root, config, workers=False) as store:
        queues = pa.array([queue % queue_count for queue in range(400)], pa.int32())
        for name in names:
            store.put_columns(pa.table({"topic": [name] * 400, "body": [bytes(200)] * 400, "queueId": queues}))
    assert written_end(root) > len(names) * 32 * 1024
    assert open_selected(root, {"topics": ["t3"]}).stores[0].is_partial == is_partial
    one, all_of_it = both(root, "t3")
    assert one == all_of_it
    assert len(one[2]) == 400  # type: ignore[arg-type]


def test_a_few_topics_of_many_queues_do_not_make_all_seem_large(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_store(root, StoreConfig(queue_file_size=200, preallocate=False), workers=False) as store:
        for topic, queue_count in (("a", 1), ("b", 300), ("c", 1), ("d", 1)):
            queues = pa.array([queue % queue_count for queue in range(300)], pa.int32())
            store.put_columns(pa.table({"topic": [topic] * 300, "body": [b"x"] * 300, "queueId": queues}))
    assert not open_selected(root, {"topics": ["a"]}).stores[0].is_partial


def lose(*parts: str) -> Change:
    return lambda root: shutil.rmtree(root.joinpath(*parts))


def zero_entries(topic: str, queue: int, first: int) -> Change:
    """The queue loses its entries from `first` on."""
    return lambda root: overwrite(
        root / "consumequeue" / topic / str(queue) / f"{0:020d}", first * 20, bytes((4 - first) * 20)
    )


def garbage_behind(distance: int) -> Change:
    def change(root: Path) -> None:
        path, position = log_file(root, written_end(root) + distance)
        overwrite(path, position, b"\1")

    return change


def hole(size: int) -> Change:
    """Zeros before the last record, as a power cut leaves them."""

    def change(root: Path) -> None:
        path, position = log_file(root, written_end(root))
        overwrite(path, position - size, bytes(size - 300))

    return change


def lose_last_log_file(root: Path) -> None:
    max((root / "commitlog").iterdir()).unlink()


def empty_log_file(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[1].write_bytes(b"")


def checkpoint_later(root: Path) -> None:
    data = bytearray((root / "checkpoint").read_bytes())
    for place in (0, 8):
        later = int.from_bytes(data[place : place + 8], "big") + 1000
        data[place : place + 8] = later.to_bytes(8, "big")
    (root / "checkpoint").write_bytes(data)


def note_deleted(root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "deletedTopics.json").write_text("[]")


CHANGES: dict[str, Change] = {
    "nothing": lambda root: None,
    "own queues lost": lose("consumequeue", "t17"),
    "one own queue lost": lose("consumequeue", "t17", "1"),
    "own last entry lost": zero_entries("t17", 0, 3),
    "own last entries lost": zero_entries("t17", 0, 1),
    "own entries lost": zero_entries("t17", 1, 0),
    "another's queue lost": lose("consumequeue", "t20"),
    "another's entries lost": zero_entries("t20", 0, 2),
    "the first record's queue lost": lose("consumequeue", "t00", "0"),
    "all queues lost": lose("consumequeue"),
    "garbage right at the end": garbage_behind(0),
    "garbage later": garbage_behind(700),
    "a small hole": hole(400),
    "a larger hole": hole(2000),
    "last log file lost": lose_last_log_file,
    "an empty log file": empty_log_file,
    "a checkpoint of something later": checkpoint_later,
    "topics deleted": note_deleted,
}


@pytest.mark.some(9)
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_the_same_as_by_a_look_at_all(change: str, killed: bool, closed: Path, tmp_path: Path) -> None:
    root = shutil.copytree(closed, tmp_path / "s")
    CHANGES[change](root)
    if killed:
        kill(root)
    for topic in ("t00", "t17", "t39"):
        one, all_of_it = both(root, topic)
        assert one == all_of_it, topic


@pytest.mark.deep
@pytest.mark.parametrize("killed", [False, True])
def test_the_same_with_any_byte_of_the_log_damaged(killed: bool, closed: Path, tmp_path: Path) -> None:
    root = shutil.copytree(closed, tmp_path / "s")
    if killed:
        kill(root)
    for offset in range(5, written_end(root) + 200, 1013):
        path, position = log_file(root, offset)
        before = path.read_bytes()
        overwrite(path, position, bytes([before[position] ^ 0x41]))
        for topic in ("t00", "t17", "t39"):
            one, all_of_it = both(root, topic)
            assert one == all_of_it, (offset, topic)
        path.write_bytes(before)


@pytest.mark.parametrize("killed", [False, True])
def test_a_log_cut_off_hides_no_row_of_the_topic(killed: bool, closed: Path, tmp_path: Path) -> None:
    """Where the end of the log is zeros, a look at one topic may pass over what is only others' loss, and no more."""
    root = shutil.copytree(closed, tmp_path / "s")
    if killed:
        kill(root)
    whole, end = both(root, "t17")[1], written_end(root)
    starts = open_snapshot(root).scan(columns=("physicalOffset",)).read_all()["physicalOffset"].to_pylist()
    last = [start for start in sorted(starts) if start >= end - end % LOG_FILE]
    path, _ = log_file(root, end - 1)
    before = path.read_bytes()
    for place in [*last[::3], *(start + 30 for start in last[::5])]:
        overwrite(path, place % LOG_FILE, bytes(len(before) - place % LOG_FILE))
        one, all_of_it = both(root, "t17")
        assert all_of_it == one or (one == whole and not killed), place
        path.write_bytes(before)


def test_messages_that_wait_for_their_entries_are_found(closed: Path, tmp_path: Path) -> None:
    root = shutil.copytree(closed, tmp_path / "s")
    zero_entries("t17", 0, 2)(root)
    snapshot = open_selected(root, {"topics": ["t17"]})
    assert snapshot.stores[0].is_partial
    assert snapshot.stores[0].queues["t17", 0].gap == (2, 4)
    assert snapshot.scan(["t17"]).read_all().num_rows == 8


def test_a_store_that_is_open_may_grow_meanwhile(closed: Path, tmp_path: Path) -> None:
    root = shutil.copytree(closed, tmp_path / "s")
    config = StoreConfig(log_file_size=LOG_FILE, queue_file_size=200, preallocate=False)
    with open_store(root, config, workers=False) as store:
        for turn in range(3):
            rows = open_selected(root, {"topics": ["t17"]}).scan(["t17"]).read_all().num_rows
            assert rows == 8 + 2 * turn
            names = ["t17", "t18"] * 2
            queues = pa.array([0, 0, 1, 1], pa.int32())
            store.put_columns(pa.table({"topic": names, "body": [b"new"] * 4, "queueId": queues}))
            store.flush()
