"""Queue entries whose size is damaged: a sum over them must not hide the record that they stand for."""

from pathlib import Path

import pytest

import rmqstore
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.snapshot.small_store import QUEUE_FILE_ENTRIES, SmallStore, small_store

pytestmark = pytest.mark.stores

MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
KIB = 1024


def resize(root: Path, queue_id: int, slot: int, change: int) -> None:
    """Adds to the size that an entry of topic T holds."""
    start = slot // QUEUE_FILE_ENTRIES * QUEUE_FILE_ENTRIES
    path = root / "consumequeue" / "T" / str(queue_id) / format_start(start * QUEUE_ENTRY.size)
    data = bytearray(path.read_bytes())
    at = (slot - start) * QUEUE_ENTRY.size
    offset, size, code = QUEUE_ENTRY.struct.unpack_from(data, at)
    QUEUE_ENTRY.struct.pack_into(data, at, offset, size + change, code)
    path.write_bytes(data)


def rows(root: Path, mode: str) -> tuple[list[tuple[int, int]], set[tuple[int, int]]]:
    """(queue id, queue offset) of every row, sorted, and of those that are flagged."""
    table = rmqstore.open_snapshot(root).scan(scan_mode=mode, on_corrupt_record="null").read_all()
    places = list(zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))
    flags = table["corruptReason"].to_pylist() if "corruptReason" in table.column_names else [None] * len(places)
    return sorted(places), {place for place, flag in zip(places, flags, strict=True) if flag is not None}


@MODES
@pytest.mark.parametrize("change", [1, 7, 100, 65_536, 1 << 24, 2**31 - 1000])
def test_the_last_entry_of_the_log(tmp_path: Path, change: int, mode: str) -> None:
    root = small_store(60, file_size=256 * KIB).write(tmp_path)
    resize(root, 1, 29, change)
    found, _ = rows(root, mode)
    assert found == [(queue, at) for queue in (0, 1) for at in range(30)]


def long_store(path: Path) -> tuple[Path, int]:
    """Records of 300 KiB in queue 0, over several stretches of the log that are summed up; the store, the count."""
    store = SmallStore(file_size=8 * KIB * KIB)
    for number in range(20):
        store.add("T", 0, body=bytes([number]) * (300 * KIB))
    return store.write(path), 20


@pytest.mark.some(3)
@MODES
@pytest.mark.parametrize("slot", [0, 1, 2, 3, 4, 10, 13, 18])
@pytest.mark.parametrize("change", [40, 65_536, 700 * KIB, -40])
def test_an_entry_in_the_middle(tmp_path: Path, slot: int, change: int, mode: str) -> None:
    root, count = long_store(tmp_path)
    resize(root, 0, slot, change)
    found, _ = rows(root, mode)
    assert found == [(0, at) for at in range(count)]
