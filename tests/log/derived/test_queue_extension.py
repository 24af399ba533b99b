"""Extension units: written with their entries, read through, cut with the queue; RocketMQ's own bytes."""

import errno
import os
from dataclasses import replace

import numpy as np
import pytest

from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.engine.log.derived.queue_extension import QueueExtension
from rmqstore.errors import Rejected
from rmqstore.files.file_sequence import FileHandles
from rmqstore.formats.java_hash import string_hash
from rmqstore.formats.names import ABORT_FILE
from rmqstore.formats.queue_extension import (
    EXTENSION_HEAD,
    address_to_offset,
    encode_unit,
    is_extension_address,
    offset_to_address,
    read_unit,
)
from rmqstore.records.batch import RecordBatch
from tests.crash.disks import MemoryDisk, Operation, WatchedDisk
from tests.golden.cases import STORE_CASES
from tests.log.queue_kinds_golden import put_again, rebuilt_golden, sizes_of
from tests.log.queue_kinds_store import KINDS, ROOT, KindsStore, derived, rebuilt, write_some

GOLDEN = QueueKinds(extension=True, extension_file_size=4096)
FILE_SIZE = 200
DIRECTORY = f"{ROOT}/consumequeue_ext/T/0"


def test_units_are_read_as_they_are_written() -> None:
    for bitmap in (b"", b"\x01\x80", bytes(32747)):
        unit = read_unit(encode_unit(-5, 7, bitmap), 0)
        assert unit is not None
        assert (unit.tags_code, unit.store_timestamp, unit.bitmap, unit.size) == (-5, 7, bitmap, 20 + len(bitmap))
    with pytest.raises(ValueError, match="bitmap"):
        encode_unit(0, 0, bytes(32748))


# --- the files of one queue


def extension_on(disk: MemoryDisk, last: int | None = None, file_size: int = FILE_SIZE) -> QueueExtension:
    made = QueueExtension(disk, FileHandles(disk, 20), DIRECTORY, file_size)
    made.load(last)
    return made


def put(extension: QueueExtension, count: int, first: int = 0, bitmaps: list[bytes] | None = None) -> list[int]:
    codes = np.arange(first, first + count)
    return [address_to_offset(each) for each in extension.put(codes, codes * 10, bitmaps).tolist()]


def test_a_unit_never_crosses_a_file() -> None:
    """9 units of 20 bytes leave 20 of 200, too few: 4 stay free.  A mark closes the file."""
    disk = MemoryDisk()
    extension = extension_on(disk)
    assert put(extension, 11) == [*range(0, 180, 20), 200, 220]
    data = disk.image()[f"{DIRECTORY}/00000000000000000000"]
    assert data[180:] == b"\xff\xff" + bytes(18)
    assert put(extension, 1, 11) == [240]
    one_by_one = extension_on(MemoryDisk())
    assert [put(one_by_one, 1, n)[0] for n in range(12)] == [*range(0, 180, 20), 200, 220, 240]


def test_units_with_bitmaps_take_their_room() -> None:
    disk = MemoryDisk()
    extension = extension_on(disk)
    sizes = [0, 100, 56, 55, 0, 177, 176]
    places = put(extension, 7, bitmaps=[bytes(size) for size in sizes])
    # 20, 120, then 76 do not fit the 60 - 4 left; 75 fit; 20 do; 197 fit no file, so that its code stays; 196 do.
    assert places[:5] == [0, 20, 200, 276, 351]
    assert places[5] == address_to_offset(5)
    assert places[6] == 400
    assert extension.resolve(np.array([offset_to_address(276), 3, offset_to_address(400)])).tolist() == [3, 3, 6]
    found = read_unit(disk.image()[f"{DIRECTORY}/00000000000000000200"], 76)
    assert found is not None
    assert len(found.bitmap) == 55


def test_addresses_that_lead_nowhere_stay() -> None:
    extension = extension_on(MemoryDisk())
    put(extension, 3)
    codes = np.array([offset_to_address(20), offset_to_address(999), 17, offset_to_address(60)])
    assert extension.resolve(codes).tolist() == [1, offset_to_address(999), 17, offset_to_address(60)]


def test_units_go_on_behind_the_last_that_is_pointed_at() -> None:
    disk = MemoryDisk()
    put(extension_on(disk), 5)
    assert extension_on(disk, offset_to_address(40)).end == 60
    assert extension_on(disk, None).end == 0
    # Where no whole unit stands, nothing may come to stand there: in the next file.
    assert extension_on(disk, offset_to_address(100)).end == 200
    fresh = extension_on(MemoryDisk(), offset_to_address(40))
    assert put(fresh, 1) == [200]


def test_old_files_go_with_the_oldest_entry() -> None:
    disk = MemoryDisk()
    extension = extension_on(disk)
    put(extension, 30)
    assert extension.remove_before(17) == []
    assert extension.remove_before(offset_to_address(399)) == [f"{DIRECTORY}/00000000000000000000"]
    assert extension.files.starts == [200, 400, 600]
    assert len(extension.remove_before(offset_to_address(5000))) == 2  # never the last
    assert extension.resolve(np.array([offset_to_address(0)])).tolist() == [offset_to_address(0)]


# --- in a store


def codes_of(store: KindsStore, topic: str = "orders") -> list[int]:
    queue = store.queues.find(topic, 0)
    assert queue is not None
    return queue.tags_codes(queue.read(0, queue.max_offset)).tolist()


def test_entries_point_at_units_with_their_tags() -> None:
    store = KindsStore(MemoryDisk())
    for number in range(25):
        store.put("orders", b"%d" % number, tags="ab"[number % 2])
    store.flush()
    assert all(is_extension_address(code) for _, _, code in store.entries("orders"))
    assert codes_of(store) == [string_hash("ab"[number % 2]) for number in range(25)]
    assert store.bodies("orders", tags="b") == [b"%d" % number for number in range(1, 25, 2)]


def test_units_are_on_the_disk_before_the_entries_that_point_at_them() -> None:
    disk = WatchedDisk(MemoryDisk(), keep_trace=True)
    store = KindsStore(disk)
    for _ in range(20):
        store.put("orders", tags="a")
    store.flush()
    assert disk.trace is not None
    rooms = [each.path.split("/")[2] for each in disk.trace if each.verb == "sync" and "/orders/" in each.path]
    assert {*rooms} == {"consumequeue", "consumequeue_ext"}
    assert rooms == sorted(rooms, reverse=True)


def test_the_filter_reads_no_record_that_a_unit_rules_out(monkeypatch: pytest.MonkeyPatch) -> None:
    store = KindsStore(MemoryDisk())
    for _ in range(20):
        store.put("orders", tags="a")
    store.flush()
    reads = []
    read = store.log.read
    monkeypatch.setattr(store.log, "read", lambda offset, size: reads.append(offset) or read(offset, size))
    assert store.bodies("orders", tags="b") == []
    assert reads == []


def test_bitmaps_are_written_where_they_are_given() -> None:
    bits = bytes.fromhex("0000400000000004000080000000")

    def bitmaps(batch: RecordBatch) -> list[bytes]:
        return [bits if offset % 2 == 0 else b"" for offset in batch.queue_offsets.tolist()]

    disk = MemoryDisk()
    store = KindsStore(disk, replace(KINDS, bitmaps=bitmaps))
    for number in range(12):
        store.put(("orders", "refunds")[number % 2])
    store.flush()
    queue = store.queues.find("refunds", 0)
    assert queue is not None
    assert queue.extension is not None
    units = [read_unit(queue.extension.files.read(address_to_offset(code), 100), 0) for _, _, code in
             store.entries("refunds")]  # fmt: skip
    assert [unit.bitmap for unit in units if unit] == [bits, b""] * 3
    assert derived(disk.image()) == rebuilt(disk.image(), replace(KINDS, bitmaps=bitmaps))


def test_a_queue_that_begins_late_has_its_units_from_zero() -> None:
    disk = MemoryDisk()
    store = KindsStore(disk)
    store.log.next_offsets["orders", 0] = 7
    store.put("orders", tags="a")
    store.flush()
    queue = store.queues.find("orders", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (7, 8)
    assert store.entries("orders")[-1][2] == offset_to_address(0)


def test_units_expire_with_their_entries() -> None:
    store = KindsStore(MemoryDisk())
    for _ in range(40):
        store.put("orders")
    store.flush()
    queue = store.queues.find("orders", 0)
    assert queue is not None
    assert queue.extension is not None
    entries = store.entries("orders")
    removed = queue.remove_expired(entries[23][0], 100)
    first = address_to_offset(entries[queue.min_offset][2])
    assert queue.extension.files.starts[0] == first - first % FILE_SIZE > 0
    assert sum("consumequeue_ext" in path for path in removed) == queue.extension.files.starts[0] // FILE_SIZE


def test_extensions_that_come_later_leave_old_entries_alone() -> None:
    disk = MemoryDisk()
    store = KindsStore(disk, PLAIN_ONLY)
    for _ in range(3):
        store.put("orders", tags="a")
    store.close()
    again = KindsStore(disk, QueueKinds(extension=True, extension_file_size=FILE_SIZE))
    again.put("orders", tags="b")
    again.close()
    assert [is_extension_address(code) for _, _, code in again.entries("orders")] == [False] * 3 + [True]
    assert codes_of(again) == [97, 97, 97, 98]
    assert KindsStore(disk).plan.changes_nothing  # type: ignore[union-attr]


@pytest.mark.parametrize("part", ["consumequeue_ext/orders/0/00000000000000000200", "consumequeue_ext"])
def test_lost_units_do_not_change_their_meaning(part: str) -> None:
    """New units never stand where old entries point, and what cannot be told is told by the records."""
    disk = MemoryDisk()
    store = KindsStore(disk)
    for number in range(12):
        store.put("orders", b"%d" % number, tags="ab"[number % 2])
    store.close()
    kept = MemoryDisk()
    for path, data in disk.image().items():
        if not path.startswith(f"{ROOT}/{part}"):
            kept.put_file(path, data)
    again = KindsStore(kept)
    for number in range(12, 15):
        again.put("orders", b"%d" % number, tags="c")
    again.close()
    addresses = [code for _, _, code in again.entries("orders")]
    assert addresses == sorted(set(addresses))
    assert again.bodies("orders", tags="a") == [b"%d" % number for number in range(0, 12, 2)]
    assert again.bodies("orders", tags="c") == [b"12", b"13", b"14"]


class Full(WatchedDisk):
    """The n-th write to files of one kind finds no room."""

    def __init__(self, inner: MemoryDisk, part: str, number: int) -> None:
        super().__init__(inner)
        self.left, self.part = number, part

    def before(self, operation: Operation) -> None:
        if operation.verb == "write" and self.part in operation.path and self.left:
            self.left -= 1
            if not self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), operation.path)


@pytest.mark.parametrize("part", ["/consumequeue/", "/consumequeue_ext/"])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_a_failed_write_leaves_no_unit_behind(part: str, number: int) -> None:
    inner = MemoryDisk()
    store = KindsStore(Full(inner, part, number))
    for _ in range(12):
        store.put("orders", tags="a")
        try:
            store.dispatch.step()
        except OSError:
            store.dispatch.step()  # the same records again
    store.flush()
    assert derived(inner.image()) == rebuilt(inner.image())


@pytest.mark.parametrize("size", [0, 23])
def test_sizes_that_hold_nothing_are_refused(size: int) -> None:
    with pytest.raises(Rejected, match="extension_file_size"):
        QueueKinds(extension_file_size=size)
    with pytest.raises(Rejected, match="batch_file_size"):
        QueueKinds(batch_file_size=size * 2 + 1)


def test_half_made_files_are_replaced() -> None:
    disk = MemoryDisk()
    store = KindsStore(disk)
    write_some(store)
    store.close()
    before = derived(disk.image())
    disk.put_file(f"{ROOT}/consumequeue_ext/orders/0/00000000000000000400", bytes(7))
    disk.put_file(f"{ROOT}/{ABORT_FILE}", b"")
    again = KindsStore(disk)
    assert again.plan is not None
    assert [len(extension.removed_files) for extension in again.plan.extensions] == [1, 0]
    assert "extensions" in " ".join(again.plan.lines())
    assert derived(disk.image()) == before


if "cqext" in STORE_CASES:

    def test_rocketmqs_queues_come_out_of_its_log_byte_for_byte(tmp_path) -> None:
        assert rebuilt_golden("cqext", GOLDEN, tmp_path) == []

    def test_rocketmqs_store_is_put_again_byte_for_byte() -> None:
        assert put_again("cqext", GOLDEN) == []

    def test_rocketmqs_store_needs_nothing_but_to_be_opened(tmp_path) -> None:
        from rmqstore.files.filesystem import RealFileSystem
        from tests.golden.cases import unpack

        store = KindsStore(RealFileSystem(), PLAIN_ONLY, root=str(unpack("cqext", tmp_path)), **sizes_of("cqext"))
        assert store.plan is not None
        assert store.plan.changes_nothing
        assert store.plan.kinds.extension_file_size == 4096
        store.put("Juu", tags="TagA")
        store.flush()
        queue = store.queues.find("Juu", 0)
        assert queue is not None
        assert is_extension_address(store.entries("Juu")[-1][2])
        assert queue.tags_codes(queue.read(queue.max_offset - 1, queue.max_offset)).tolist() == [string_hash("TagA")]
        assert EXTENSION_HEAD.size * queue.max_offset == queue.extension.end  # type: ignore[union-attr]
