"""A reader beside a writer: each look is one state of the store, whole, however slowly the reader gets on."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import rmqstore
from rmqstore import Message, StoreConfig
from rmqstore.store import Store, open_store
from tests.snapshot.starved_reader import starved

SIZES: dict[str, Any] = {"log_file_size": 4096, "queue_file_size": 400, "index_slot_count": 20, "index_item_count": 50}
MODES = ("queue", "auto", "commitlog")
SEEDS = range(4)
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
