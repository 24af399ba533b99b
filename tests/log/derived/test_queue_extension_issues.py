"""RocketMQ #10755 (PR #10758): extension files are not cut with their consume queue, so units stay that no entry
points at, and later ones of other messages come behind them.
"""

import pytest

from rmqstore.formats.message import BLANK
from rmqstore.formats.names import ABORT_FILE
from rmqstore.formats.queue_extension import address_to_offset, encode_unit, is_extension_address, read_unit
from tests.crash.disks import MemoryDisk
from tests.log.queue_kinds_store import ROOT, KindsStore

EXTENSION = f"{ROOT}/consumequeue_ext/orders/0"


def referenced_and_present(store: KindsStore, disk: MemoryDisk) -> tuple[list[int], list[int]]:
    """Where entries point, and where units stand."""
    wanted = [address_to_offset(code) for _, _, code in store.entries("orders") if is_extension_address(code)]
    found = []
    for path, data in sorted(disk.image().items()):
        if path.startswith(EXTENSION):
            start, position = int(path.rpartition("/")[2]), 0
            while (unit := read_unit(data, position)) is not None:
                found.append(start + position)
                position += unit.size
            assert data[position : position + 2] in (b"\0\0", b"\xff\xff", b"")
            assert not any(data[position + 2 :])
    return wanted, found


def filled() -> tuple[MemoryDisk, list[int]]:
    """A store that was closed cleanly, and where its records stand."""
    disk = MemoryDisk()
    store = KindsStore(disk)
    places = [store.put("orders", tags="a").physical_offset for _ in range(25)]
    store.close()
    return disk, places


@pytest.mark.parametrize("left", [0, 1, 8, 9, 10, 18, 24])
def test_rocketmq_10755_units_are_cut_with_the_entries(left: int) -> None:
    """The log lost its newest records: their entries go, and their units."""
    disk, places = filled()
    path = f"{ROOT}/commitlog/00000000000000000000"
    data = disk.image()[path]
    disk.put_file(path, data[: places[left]].ljust(len(data), b"\0"))
    disk.put_file(f"{ROOT}/{ABORT_FILE}", b"")
    store = KindsStore(disk)
    wanted, found = referenced_and_present(store, disk)
    assert wanted == found
    assert len(found) == left
    store.put("orders", tags="b")
    store.flush()
    wanted, found = referenced_and_present(store, disk)
    assert wanted == found
    assert len(found) == left + 1
    assert BLANK.size  # the log is one file: nothing else was cut


@pytest.mark.parametrize("is_clean", [True, False])
def test_rocketmq_10755_units_that_rocketmq_left_behind_go(is_clean: bool) -> None:
    """What a second dispatch wrote there, behind the last entry's unit and in further files."""
    disk, _ = filled()
    wanted_before = disk.image()
    last = f"{EXTENSION}/00000000000000000400"
    data = bytearray(disk.image()[last])
    orphan = encode_unit(97, 5)
    data[140:180] = orphan * 2
    disk.put_file(last, bytes(data))
    disk.put_file(f"{EXTENSION}/00000000000000000600", orphan.ljust(200, b"\0"))
    if not is_clean:
        disk.put_file(f"{ROOT}/{ABORT_FILE}", b"")
    store = KindsStore(disk)
    wanted, found = referenced_and_present(store, disk)
    assert wanted == found
    assert len(found) == 25
    assert {path: content for path, content in disk.image().items() if path.startswith(EXTENSION)} == {
        path: content for path, content in wanted_before.items() if path.startswith(EXTENSION)
    }


def test_rocketmq_10755_units_of_a_queue_that_is_gone_go_with_it() -> None:
    disk, _ = filled()
    disk.put_file(f"{ROOT}/consumequeue_ext/gone/3/00000000000000000000", encode_unit(97, 5).ljust(200, b"\0"))
    KindsStore(disk)
    assert not disk.exists(f"{ROOT}/consumequeue_ext/gone")
