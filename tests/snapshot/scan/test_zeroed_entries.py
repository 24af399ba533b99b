"""Zeros in the middle of a queue's files: the messages are found again in the log, or named; never left out unsaid."""

import os
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Corrupt, DataLost
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.snapshot.small_store import FIRST_MS, QUEUE_FILE_ENTRIES, SmallStore, small_store

pytestmark = pytest.mark.stores

MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
SIZE = QUEUE_ENTRY.size
COUNT = 320  # 160 entries a queue: three files full, and one with ten
# First slot and count of what is zeroed: at the start, in the middle and at the end of files, over an end, files whole.
RUNS = [(0, 3), (20, 3), (47, 3), (50, 4), (74, 2), (98, 5), (50, 50), (0, 50), (40, 110), (148, 4), (150, 5), (3, 152)]


def zero(root: Path, first: int, last: int, queue_id: int = 0) -> None:
    """Bytes [first, last) of the files of a queue of T."""
    size = QUEUE_FILE_ENTRIES * SIZE
    for start in range(0, last, size):
        low, high = max(first, start), min(last, start + size)
        if low < high:
            with (root / "consumequeue" / "T" / str(queue_id) / format_start(start)).open("r+b") as file:
                file.seek(low - start)
                file.write(bytes(high - low))


def read(root: Path, mode: str, **how: object) -> list[tuple[int, int]]:
    """(queue id, queue offset) of every row, sorted."""
    table = rmqstore.open_snapshot(root).scan(topics=["T"], scan_mode=mode, **how).read_all()
    return sorted(zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))


def all_but(count: int, *lost: int) -> list[tuple[int, int]]:
    """Every row of `count` messages, without some of queue 1."""
    return [(queue, at) for queue in (0, 1) for at in range(count // 2) if not queue or at not in lost]


def test_runs_cover_files() -> None:
    assert COUNT // 2 == 160
    assert QUEUE_FILE_ENTRIES == 50


@MODES
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_entries_are_found_again_in_the_log(tmp_path: Path, run: tuple[int, int], mode: str) -> None:
    root = small_store(COUNT, file_size=64 * 1024).write(tmp_path)
    zero(root, run[0] * SIZE, (run[0] + run[1]) * SIZE)
    assert read(root, mode) == all_but(COUNT)


@MODES
@pytest.mark.parametrize("place", [101, 999, 1007, 1500])
def test_a_part_of_an_entry_is_no_entry(tmp_path: Path, place: int, mode: str) -> None:
    root = small_store(COUNT, file_size=64 * 1024).write(tmp_path)
    zero(root, place, place + 46)
    assert read(root, mode, on_corrupt_record="null") == all_but(COUNT)


@pytest.mark.some(2)
@MODES
@pytest.mark.parametrize("run", RUNS[:5] + RUNS[6:8], ids=str)
def test_entries_of_old_log_files_are_named(tmp_path: Path, run: tuple[int, int], mode: str) -> None:
    """A store is opened by its three newest log files: what only the older ones hold is not walked."""
    store = small_store(COUNT)
    root = store.write(tmp_path)
    zero(root, run[0] * SIZE, (run[0] + run[1]) * SIZE, 1)
    lost = [at for at in range(run[0], run[0] + run[1]) if store.offsets[2 * at + 1] < sorted(store.data)[-3]]
    assert lost
    with pytest.raises(DataLost) as caught:
        read(root, mode)
    assert caught.value.queue == "T/1"
    assert caught.value.wanted == (lost[0], lost[-1] + 1)
    with pytest.raises(DataLost):
        read(root, mode, on_corrupt_record="skip")
    assert read(root, mode, fail_on_data_loss=False) == all_but(COUNT, *lost)


@MODES
def test_every_part_of_a_divided_plan_names_its_own(tmp_path: Path, mode: str) -> None:
    store = small_store(COUNT)
    root = store.write(tmp_path)
    for first in (0, 20, 50):
        zero(root, first * SIZE, (first + 3) * SIZE, 1)
    lost = {0, 1, 2, 20, 21, 22, 50, 51, 52}
    snapshot = rmqstore.open_snapshot(root)
    request = rmqstore.snapshot.request.ScanRequest(
        columns=("queueId", "queueOffset"), scan_mode=mode, fail_on_data_loss=False
    )
    budget = rmqstore.snapshot.request.SplitBudget(min_partitions=8)
    splits = snapshot.plan(snapshot.select(topics=["T"]), request, budget)
    assert len(splits) > 4
    rows, refused = [], set()
    for split in splits:
        for batch in rmqstore.snapshot.scan.split_reader.read_split(split, request):
            rows += zip(batch["queueId"].to_pylist(), batch["queueOffset"].to_pylist(), strict=True)
        strict = rmqstore.snapshot.request.ScanRequest(columns=request.columns, scan_mode=mode)
        try:
            list(rmqstore.snapshot.scan.split_reader.read_split(split, strict))
        except DataLost as error:
            refused |= {error.wanted[0], error.wanted[1] - 1}
    assert sorted(rows) == all_but(COUNT, *lost)
    assert refused
    assert refused <= lost


@MODES
@pytest.mark.parametrize("bound", [20, 21, 23])
def test_a_range_may_begin_or_end_among_them(tmp_path: Path, bound: int, mode: str) -> None:
    root = small_store(COUNT).write(tmp_path)
    zero(root, 20 * SIZE, 23 * SIZE)

    def rows(**how: object) -> list[int]:
        stream = rmqstore.open_snapshot(root).scan(assign={"T": [0]}, scan_mode=mode, fail_on_data_loss=False, **how)
        return sorted(stream.read_all()["queueOffset"].to_pylist())

    assert rows(start={"T": {"0": bound}}) == list(range(23, 160))
    assert rows(end={"T": {"0": bound}}) == list(range(20))
    if bound > 20:
        with pytest.raises(DataLost):
            rmqstore.open_snapshot(root).scan(assign={"T": [0]}, scan_mode=mode, end={"T": {"0": bound}}).read_all()


@pytest.mark.parametrize("slot", [0, 10, 20, 22, 23, 24, 80, 159])
def test_a_time_is_found_beside_them(tmp_path: Path, slot: int) -> None:
    store = small_store(COUNT)
    hurt = store.write(tmp_path)
    zero(hurt, 20 * SIZE, 23 * SIZE)
    zero(hurt, 75 * SIZE, 85 * SIZE)
    found = rmqstore.open_snapshot(hurt).offset_at("T", 0, FIRST_MS + 2000 * slot)
    assert found <= slot
    assert found == {22: 20, 23: 20, 80: 75}.get(slot, slot)  # those that are gone may be as young as the next one


@MODES
@pytest.mark.parametrize("holes", [True, False])
def test_whole_pages_of_a_large_file(tmp_path: Path, mode: str, holes: bool) -> None:
    """A file of RocketMQ's own size, sparse or as a copy without holes; 20 pages are gone."""
    root = large(tmp_path, holes)
    file = root / "consumequeue" / "T" / "0" / format_start(0)
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(bytes(20 * 4096))
    assert rmqstore.open_snapshot(root).queues()["maxOffset"].to_pylist() == [5000]
    assert read(root, mode, on_corrupt_record="null") == [(0, at) for at in range(5000)]


def large(root: Path, holes: bool) -> Path:
    store = SmallStore(1024 * 1024)
    for number in range(5000):
        store.add(body=b"body %d" % number)
    store.write_log(root / "commitlog")
    directory = root / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    data = b"".join(store.entries["T", 0])
    (directory / format_start(0)).write_bytes(data if holes else data.ljust(6_000_000, b"\0"))
    os.truncate(directory / format_start(0), 6_000_000)
    return root


@MODES
def test_left_over_entries_behind_zeros_do_not_count(tmp_path: Path, mode: str) -> None:
    """The queue was cut and not erased, and its log was written anew: their records are other ones now."""
    store = small_store(60)
    root = store.write(tmp_path)
    file = root / "consumequeue" / "T" / "0" / format_start(0)
    data = bytearray(file.read_bytes())
    data[40 * SIZE : 43 * SIZE] = b"".join(store.entries["T", 1][27:30])  # of another queue
    data[43 * SIZE : 46 * SIZE] = b"".join(store.entries["T", 0][27:30])  # of another queue offset
    data[46 * SIZE : 47 * SIZE] = QUEUE_ENTRY.struct.pack(store.end + 10_000, 100, 0)  # behind the log
    data[47 * SIZE : 48 * SIZE] = QUEUE_ENTRY.struct.pack(store.offsets[-1] + 7, 100, 0)  # no record
    file.write_bytes(data)
    assert read(root, mode) == all_but(60)
    assert rmqstore.open_snapshot(root).queues()["maxOffset"].to_pylist() == [30, 30]


@MODES
def test_zeros_alone_are_no_damage(tmp_path: Path, mode: str) -> None:
    root = small_store(200).write(tmp_path)
    (root / "consumequeue" / "T" / "0" / format_start(2 * QUEUE_FILE_ENTRIES * SIZE)).write_bytes(bytes(1000))
    assert read(root, mode) == all_but(200)


@MODES
def test_a_last_entry_with_a_wrong_size_hides_no_message(tmp_path: Path, mode: str) -> None:
    """It seems to point behind the log, but its record stands where it says."""
    store = small_store(60)
    root = store.write(tmp_path)
    change_last_entry(root, QUEUE_ENTRY.struct.pack(store.offsets[58], 30_000, 0))
    assert read(root, mode, verify_crc="never") == all_but(60)


@MODES
def test_a_last_entry_that_points_back_hides_no_message(tmp_path: Path, mode: str) -> None:
    """Its size alone makes the sum over that part of the log right."""
    store = small_store(60)
    root = store.write(tmp_path)
    size = store.end - store.offsets[59]
    change_last_entry(root, QUEUE_ENTRY.struct.pack(store.offsets[50] + 7, size, 0))
    with pytest.raises(Corrupt, match="contradicts queue T/0"):
        read(root, mode)


def change_last_entry(root: Path, entry: bytes) -> None:
    with (root / "consumequeue" / "T" / "0" / format_start(0)).open("r+b") as file:
        file.seek(29 * SIZE)
        file.write(entry)
