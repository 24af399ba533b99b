"""What is missing of a snapshot when it is scanned is told, whichever way the scan takes; see test_store_changes."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import DataLost
from rmqstore.formats.names import format_start
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from rmqstore.snapshot.scan.split_reader import read_split
from tests.snapshot.small_store import SmallStore, small_store

pytestmark = pytest.mark.stores

MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
PARTS = pytest.mark.parametrize("parts", [1, 5])
COUNT = 200
SIZE = 20


def queue_files(root: Path, queue_id: int) -> list[Path]:
    return sorted((root / "consumequeue" / "T" / str(queue_id)).iterdir())


def erase(path: Path, first: int = 0) -> None:
    """Zeros from byte `first` on, in a file of the same size."""
    size = path.stat().st_size
    os.truncate(path, first)
    os.truncate(path, size)


def erase_last(root: Path, _: SmallStore) -> None:
    erase(queue_files(root, 1)[-1])


def erase_first(root: Path, _: SmallStore) -> None:
    erase(queue_files(root, 1)[0])


def erase_all(root: Path, _: SmallStore) -> None:
    for queue_id in (0, 1):
        for path in queue_files(root, queue_id):
            erase(path)


def erase_halves(root: Path, _: SmallStore) -> None:
    for path in queue_files(root, 1):
        erase(path, 10 * SIZE)


def erase_the_last_entry(root: Path, _: SmallStore) -> None:
    erase(queue_files(root, 1)[-1], 49 * SIZE)


def remove_the_queue(root: Path, _: SmallStore) -> None:
    shutil.rmtree(root / "consumequeue" / "T" / "1")


def remove_the_oldest(root: Path, _: SmallStore) -> None:
    """As a broker does that deletes what expired: a file of the log, and the file of the queue that led into it."""
    for start in (0, 4096, 8192):
        (root / "commitlog" / format_start(start)).unlink()
    for queue_id in (0, 1):
        queue_files(root, queue_id)[0].unlink()


def cut(root: Path, store: SmallStore) -> None:
    """As a recovery does: the log ends earlier, with zeros behind, and so do the queues."""
    end = store.offsets[150]
    for path in (root / "commitlog").iterdir():
        erase(path, min(max(end - int(path.name), 0), path.stat().st_size))
    for queue_id in (0, 1):
        erase(queue_files(root, queue_id)[-1], 25 * SIZE)


# After these a new look at the store finds fewer messages; after the others it finds them all, in the log.
LOSSES = [erase_first, erase_halves, remove_the_oldest, cut]
REBUILT = [erase_last, erase_all, erase_the_last_entry, remove_the_queue]


def scanned(snapshot: rmqstore.Snapshot, mode: str, parts: int, **how: object) -> Callable[[], list[tuple[int, int]]]:
    """A plan, made now, and what reads it later, as workers do: (queue id, queue offset) of each row."""
    request = ScanRequest(columns=("queueId", "queueOffset", "body"), scan_mode=mode, **how)
    splits = snapshot.plan(snapshot.select(topics=["T"]), request, SplitBudget(min_partitions=parts))
    assert len(splits) >= parts

    def read() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for split in pickle.loads(pickle.dumps(splits)):
            for batch in read_split(split, request):
                found += zip(batch["queueId"].to_pylist(), batch["queueOffset"].to_pylist(), strict=True)
        return sorted(found)

    return read


@MODES
@PARTS
@pytest.mark.parametrize("change", LOSSES)
def test_what_a_snapshot_saw_and_is_gone_is_told(
    tmp_path: Path, change: Callable[[Path, SmallStore], None], mode: str, parts: int
) -> None:
    store = small_store(COUNT)
    root = store.write(tmp_path)
    read = scanned(rmqstore.open_snapshot(root), mode, parts)
    change(root, store)
    with pytest.raises(DataLost, match=r"T/[01]\b.*open the store again .*, or set fail_on_data_loss=False"):
        read()


@MODES
@PARTS
@pytest.mark.parametrize("change", LOSSES)
def test_going_on_without_it_doubles_and_invents_nothing(
    tmp_path: Path, change: Callable[[Path, SmallStore], None], mode: str, parts: int
) -> None:
    store = small_store(COUNT)
    root = store.write(tmp_path)
    every = scanned(rmqstore.open_snapshot(root), mode, parts)()
    assert every == [(queue_id, offset) for queue_id in (0, 1) for offset in range(COUNT // 2)]
    read = scanned(rmqstore.open_snapshot(root), mode, parts, fail_on_data_loss=False)
    change(root, store)
    rest = read()
    assert len(rest) == len(set(rest)) < len(every)
    assert set(rest) <= set(every)


@pytest.mark.some(3)
@MODES
@PARTS
@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("change", REBUILT)
def test_what_only_lacks_its_entries_is_no_loss(
    tmp_path: Path, change: Callable[[Path, SmallStore], None], fails: bool, mode: str, parts: int
) -> None:
    """A recovery leaves a store so for a while: whoever loaded again would read all of it, and so does this reader."""
    store = small_store(COUNT)
    root = store.write(tmp_path)
    read = scanned(rmqstore.open_snapshot(root), mode, parts, fail_on_data_loss=fails)
    change(root, store)
    assert read() == [(queue_id, offset) for queue_id in (0, 1) for offset in range(COUNT // 2)]


@MODES
@PARTS
def test_what_is_dispatched_meanwhile_is_read_once(tmp_path: Path, mode: str, parts: int) -> None:
    """Half of the messages have no entry when the plan is made, and all have one when it is read."""
    late, store = SmallStore(), small_store(COUNT)
    for number in range(COUNT):
        late.add("T", number % 2, body=b"body %d" % number, dispatched=number < COUNT // 2)
    root = late.write(tmp_path)
    (root / "abort").touch()
    read = scanned(rmqstore.open_snapshot(root), mode, parts)
    shutil.rmtree(root / "consumequeue")
    store.write(root)
    assert read() == [(queue_id, offset) for queue_id in (0, 1) for offset in range(COUNT // 2)]


@MODES
def test_a_part_of_a_queue_is_all_that_is_asked_for(tmp_path: Path, mode: str) -> None:
    """What is gone outside of the range that is read is nobody's loss."""
    root = small_store(COUNT).write(tmp_path)
    snapshot = rmqstore.open_snapshot(root)
    stream = snapshot.scan(topics=["T"], scan_mode=mode, start={"T": {"0": 10, "1": 12}}, end={"T": {"0": 40, "1": 42}})
    erase(queue_files(root, 1)[-1])
    assert stream.read_all().num_rows == 60
