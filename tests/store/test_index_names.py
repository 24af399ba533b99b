"""Index files are named by local time, which a time zone, the end of daylight saving and a clock that is put right set
back: what counts is which part of the log a file has."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmqstore import Message, Store, StoreConfig, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.engine.log.derived.index_log import IndexLog
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import LOCAL
from rmqstore.formats import index
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from tests.crash.strides import every

pytestmark = pytest.mark.stores

SLOTS, ITEMS = 50, 41
CONFIG = StoreConfig(flush="SYNC", index_slot_count=SLOTS, index_item_count=ITEMS)
COUNT = 100
HOUR, YEAR = 1_00_00_000, 1_00_00_00_00_00_000
Move = Callable[[list[Path]], None]


def put(store: Store, first: int, last: int) -> None:
    for number in range(first, last):
        store.put(Message("orders", b"%d" % number, keys=[f"k{number}"], queue_id=0)).raise_for_status()
    store.flush()


def later_by(*shifts: int) -> Move:
    """Each file gets another name: that of the first, and so much later."""

    def move(files: list[Path]) -> None:
        stamp = int(files[0].name)
        for number, (file, shift) in enumerate(zip(files, shifts, strict=True)):
            file.rename(file.with_name(f"{stamp + shift + number:017d}"))

    return move


def copied(files: list[Path]) -> None:
    """A file stands there twice, as a copy by hand leaves it."""
    files[0].with_name(f"{int(files[-1].name) + 1:017d}").write_bytes(files[1].read_bytes())


def indexed_twice(files: list[Path]) -> None:
    """A broker that began with the last file by name, which was an older one, indexed the newest records again."""
    data = [file.read_bytes() for file in files]
    counts = [header.index_count for header in map(index.read_header, data) if header is not None]
    items = np.concatenate([index.read_items(each, SLOTS)[1:count] for each, count in zip(data, counts, strict=True)])
    begin_ms = min(header.begin_timestamp_ms for header in map(index.read_header, data) if header is not None)
    again = items[60:].astype([(name, "i8") for name in items.dtype.names])
    other = files[0].parent.parent.with_name("again")
    log = IndexLog(RealFileSystem(), str(other), SLOTS, ITEMS, ManualClock())
    offsets, times = again["physical_offset"], begin_ms + 1000 * again["delay_s"]
    log.put(offsets, again["key_hash"], times, int(offsets[-1]))
    log.flush()
    (made,) = (other / "index").iterdir()
    made.rename(files[0].with_name(f"{int(files[0].name) - HOUR:017d}"))


MOVES = {
    "as they were made": lambda files: None,
    "from UTC+8 to UTC": later_by(8 * HOUR, 8 * HOUR, 0),
    "the end of daylight saving": later_by(HOUR, 0, 2 * HOUR),
    "a clock that was years ahead": later_by(20 * YEAR, 0, HOUR),
    "to the west again and again": later_by(2 * HOUR, HOUR, 0),
    "a copy of a file": copied,
    "records that are in two files": indexed_twice,
}


def moved(root: Path, move: str, is_closed: bool) -> list[Path]:
    store = open_store(root, CONFIG)
    put(store, 0, COUNT)
    store.close() if is_closed else store.abandon()
    files = sorted((root / "index").iterdir())
    assert len(files) == 3
    MOVES[move](files)
    return sorted((root / "index").iterdir())


def wrong_keys(root: Path, count: int) -> dict[str, list[int]]:
    """Keys that a reader finds other than once, by each way to ask for them."""
    snapshot = open_snapshot(root)
    numbers = {*every(4, range(0, count, 7)), *range(38, 42), *range(78, 82), count - 1}
    asked = {
        "query": lambda key: [int(message.body) for message in snapshot.query("orders", key)],
        "scan": lambda key: [
            int(row)
            for batch in snapshot.scan(topics=["orders"], keys=key, columns="body")
            for row in batch.column("body").to_pylist()
        ],
    }
    return {
        name: wrong
        for name, ask in asked.items()
        if (wrong := [number for number in numbers if ask(f"k{number}") != [number]])
    }


@pytest.mark.crash
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("move", MOVES)
def test_every_key_is_found_once_whatever_the_files_are_called(tmp_path: Path, move: str, is_closed: bool) -> None:
    root = tmp_path / "store"
    files = moved(root, move, is_closed)
    assert wrong_keys(root, COUNT) == {}
    assert [found for found in verify(survey(LOCAL, str(root))) if found.severity == DAMAGE] == []
    for last in (COUNT, COUNT + 60):
        with open_store(root, CONFIG) as store:
            assert store.warnings == []
            put(store, store.bounds("orders", 0)[1], last)
            found = {number: [int(each.body) for each in store.query("orders", f"k{number}")] for number in range(last)}
        assert found == {number: [number] for number in range(last)}
        assert wrong_keys(root, last) == {}
    if is_closed:  # after a kill what the checkpoint does not answer for is written again
        assert {file.name for file in files} <= {file.name for file in (root / "index").iterdir()}


def test_the_answers_of_files_that_overlap_are_the_newest_first(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG) as store:
        for _ in range(COUNT):
            store.put(Message("orders", b"", keys=["same"], queue_id=0)).raise_for_status()
    indexed_twice(sorted((root / "index").iterdir()))
    with open_store(root, CONFIG) as store:
        offsets = [message.queue_offset for message in store.query("orders", "same")]
    assert offsets == [message.queue_offset for message in open_snapshot(root).query("orders", "same")]
    assert sorted(offsets) == list(range(COUNT - len(offsets), COUNT))
