"""A reader beside a writer: each look is one state of the store, whole, however slowly the reader gets on."""

import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import rmqstore
from rmqstore import Message, StoreChanging, StoreConfig
from rmqstore.engine.store import Store, open_store
from rmqstore.formats.names import format_start
from tests.snapshot.small_store import small_store
from tests.snapshot.starved_reader import starved

pytestmark = pytest.mark.stores

SIZES: dict[str, Any] = {"log_file_size": 4096, "queue_file_size": 400, "index_slot_count": 20, "index_item_count": 50}
MODES = ("queue", "auto", "commitlog")
SEEDS = range(2)
FILE_SIZES = pytest.mark.parametrize("file_size", [4096, 1024 * 1024])  # the files go round, or the log ends in one
Bounds = dict[tuple[str, int], tuple[int, int]]


class Writer:
    """A store that is written to, step by step; at most `steps` times."""

    def __init__(self, root: Path, seed: int, steps: int = 3000, **changes: Any) -> None:
        self.rng = Random(seed)
        self.left = steps
        self.put_count = 0
        config = StoreConfig(**{**SIZES, "flush": "ASYNC", "preallocate": False, **changes})
        self.store: Store = open_store(str(root), config, workers=False)

    def put(self, count: int, size_max: int = 300) -> None:
        """Messages, dispatched later."""
        for _ in range(count):
            body = b"m%d" % self.put_count + b"." * self.rng.randrange(size_max)
            topic = self.rng.choice(("alpha", "beta"))
            assert self.store.put(Message(topic, body, queue_id=self.rng.randrange(3), keys=["k"])).is_stored
            self.put_count += 1

    def some(self) -> None:
        """A few messages, or none, dispatched or not, sometimes a large one that begins the next file."""
        if self.left <= 0:
            return
        self.left -= 1
        choice = self.rng.random()
        if choice < 0.5:
            self.put(self.rng.randrange(1, 4))
        if choice < 0.1:
            self.put(1, 3000)
        if self.rng.random() < 0.7:
            self.store.step()


@pytest.fixture
def writer_of(tmp_path: Path) -> Iterator[Callable[..., Writer]]:
    """Makes writers, which are closed at the end."""
    made: list[Writer] = []

    def make(seed: int, **changes: Any) -> Writer:
        made.append(Writer(tmp_path / f"store{len(made)}", seed, **changes))
        return made[-1]

    yield make
    for writer in made:
        writer.store.close()


def bounds_of(snapshot: rmqstore.Snapshot) -> Bounds:
    return {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in snapshot.queues().to_pylist()}


def rows_of(snapshot: rmqstore.Snapshot, **how: Any) -> dict[tuple[str, int], list[int]]:
    """The queue offsets of a scan by queue, in order; rows whose body is not their own fail."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    bodies: Counter[bytes] = Counter()
    for row in snapshot.scan(columns=["topic", "queueId", "queueOffset", "body"], **how).read_all().to_pylist():
        found[row["topic"], row["queueId"]].append(row["queueOffset"])
        bodies[row["body"].split(b".")[0]] += 1
    assert set(bodies.values()) <= {1}
    return found


def assert_whole(bounds: Bounds, rows: dict[tuple[str, int], list[int]]) -> None:
    assert {key: offsets for key, offsets in rows.items() if offsets} == {
        key: list(range(*span)) for key, span in bounds.items() if span[0] < span[1]
    }


@pytest.mark.some(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
@FILE_SIZES
def test_a_live_store_is_never_called_corrupt(
    seed: int, mode: str, file_size: int, writer_of: Callable[..., Writer]
) -> None:
    writer = writer_of(seed, log_file_size=file_size)
    writer.put(20)
    writer.store.step()
    root = writer.store.path
    with starved(writer.some) as operations:
        snapshot = rmqstore.open_snapshot(root)
        bounds, written = bounds_of(snapshot), writer.put_count
        rows = rows_of(snapshot, scan_mode=mode, verify_crc="always")
    assert_whole(bounds, rows)
    assert 20 <= sum(high for _, high in bounds.values()) <= written
    assert snapshot.stores[0].damage == ()
    assert len(operations) > 50


def open_with_events(root: Path, events: dict[int, Callable[[], None]]) -> tuple[rmqstore.Snapshot, int]:
    """A snapshot, with an event before some of the operations that opening it takes; how many it took."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count in events:
            events.pop(count)()

    with starved(step):
        return rmqstore.open_snapshot(root), count


def delete_oldest(root: Path) -> None:
    """What a broker does with what expired: files of the log, and those of the queues that led there."""
    for start in (0, 4096):
        (root / "commitlog" / format_start(start)).unlink()
    for queue_id in (0, 1):
        (root / "consumequeue" / "T" / str(queue_id) / format_start(0)).unlink()


COUNT = 220
SINCE_LOG_LISTED = 18  # of the operations of a look, those after it listed the log for the last time
BEFORE = {("T", 0): (0, 110), ("T", 1): (0, 110)}


@pytest.mark.parametrize("part", range(3))
def test_files_that_expire_during_a_look_are_not_part_of_it(tmp_path: Path, part: int) -> None:
    made = small_store(COUNT)
    (made.write(tmp_path / "whole") / "abort").touch()
    _, count = open_with_events(tmp_path / "whole", {})
    for number in range(1 + part, count + 1, 9):
        root = made.write(tmp_path / str(number))
        (root / "abort").touch()
        snapshot, _ = open_with_events(root, {number: lambda root=root: delete_oldest(root)})
        bounds = bounds_of(snapshot)
        if number > count - SINCE_LOG_LISTED and bounds == BEFORE:
            continue  # the look was over
        first = next(n for n, offset in enumerate(made.offsets) if offset >= 8192)
        assert bounds == {("T", queue_id): ((first + 1 - queue_id) // 2, 110) for queue_id in (0, 1)}, number
        assert_whole(bounds, rows_of(snapshot, scan_mode=MODES[number % 3]))


@pytest.mark.parametrize("is_torn_by_page", [False, True])
def test_a_write_that_becomes_visible_page_by_page_is_no_damage(tmp_path: Path, is_torn_by_page: bool) -> None:
    """Several records come in one write, of which a reader sees a part at first."""
    made = small_store(60, file_size=16384)
    whole = bytes(made.data[0])
    seen = made.offsets[40] + 97 if is_torn_by_page else made.offsets[40]
    for number in range(1, 200):
        root = made.write(tmp_path / str(number))
        (root / "abort").touch()
        for queue in (root / "consumequeue" / "T").iterdir():
            path = queue / format_start(0)
            path.write_bytes(path.read_bytes()[: 15 * 20].ljust(path.stat().st_size, b"\0"))
        log = root / "commitlog" / format_start(0)
        log.write_bytes(whole[:seen].ljust(len(whole), b"\0"))
        snapshot, count = open_with_events(root, {number: lambda log=log: log.write_bytes(whole)})
        assert snapshot.stores[0].damage == (), number
        assert bounds_of(snapshot) in ({("T", 0): (0, 20), ("T", 1): (0, 20)}, {("T", 0): (0, 30), ("T", 1): (0, 30)})
        if number > count:
            break
    assert number > 30


def rebuilding(root: Path, queue_id: int) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None]]:
    """What a recovery does that builds a queue anew: its entries go, a few come back, all are there."""
    directory = root / "consumequeue" / "T" / str(queue_id)
    held = {path: path.read_bytes() for path in directory.iterdir()}

    def write(count: int) -> None:
        for path, data in held.items():
            room = min(max(count * 20 - int(path.name), 0), len(data))
            path.write_bytes(data[:room].ljust(len(data), b"\0"))

    return lambda: write(0), lambda: write(3), lambda: write(1000)


@pytest.mark.some(3)
@pytest.mark.parametrize("part", range(3))
def test_ends_do_not_go_back_during_a_recovery(tmp_path: Path, part: int) -> None:
    root = small_store(COUNT).write(tmp_path)
    (root / "abort").touch()
    erase, begin, end = rebuilding(root, 1)
    _, count = open_with_events(root, {})
    for first in range(1 + part, count, 9):
        for other in (begin, end):
            snapshot, _ = open_with_events(root, {first: erase, first + 15: other})
            assert bounds_of(snapshot) == BEFORE, (first, other is end)
            end()
            assert_whole(BEFORE, rows_of(snapshot, scan_mode=MODES[first % 3]))


def test_a_store_that_never_stands_still_is_told(tmp_path: Path) -> None:
    root = small_store(COUNT).write(tmp_path)
    path = root / "commitlog" / format_start(4096)

    def replace_log_file() -> None:
        data = path.read_bytes()
        path.rename(tmp_path / f"old{len(list(tmp_path.iterdir()))}")  # kept, so that no inode is used again
        path.write_bytes(data)

    with (
        starved(replace_log_file),
        pytest.raises(StoreChanging, match="files of its log were deleted or replaced") as e,
    ):
        rmqstore.open_snapshot(root)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)
    assert "retry when its writer is idle" in str(e.value)
    assert bounds_of(rmqstore.open_snapshot(root)) == BEFORE
