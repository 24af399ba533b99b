"""The index files of a store: those of golden stores again, byte for byte; answers; faults."""

import errno
import re

import pytest

from rmqstore.clock import ManualClock
from rmqstore.engine.log.derived.index_log import IndexLog
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import index
from rmqstore.formats.index import HEADER
from rmqstore.formats.index_table import put_items
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches
from tests.crash.disks import FailingDisk, MemoryDisk, WatchedDisk
from tests.formats.records import encoded
from tests.golden.cases import STORE_CASES, load_expected
from tests.log.replay import golden_batches, golden_files, replay

GOLDEN = [
    case
    for case in ("basic", "basic-4.9.8", "batch", "batchcq", "cqext", "crcprop", "delay", "killed", "lmq",
                 "multipath", "sysflags", "sysflags-4.9.8")
    if case in STORE_CASES
]  # fmt: skip
SLOTS, ITEMS = 5, 8
FOREVER = (0, 2**62)


def log_on(
    disk: FileSystem, slot_count: int = SLOTS, item_count: int = ITEMS, clock: ManualClock | None = None
) -> IndexLog:
    return IndexLog(disk, "/store", slot_count, item_count, clock or ManualClock())


def golden_log(disk: FileSystem, case: str) -> IndexLog:
    config = load_expected(case)["config"]
    return log_on(disk, config["maxHashSlotNum"], config["maxIndexNum"])


def index_files(files: dict[str, bytes]) -> list[bytes]:
    return [data for path, data in sorted(files.items()) if re.search(r"index/\d+$", path)]


def batch_of(*keys: str, start: int = 0, **fields: object) -> RecordBatch:
    """One record for each text of keys; "-" for a record without any."""
    data = b""
    for number, text in enumerate(keys):
        properties = b"" if text == "-" else b"KEYS\x01%s\x02" % text.encode()
        stamp = 1_700_000_000_000 + start + number * 700
        place = {"physical_offset": start + len(data), "store_timestamp": stamp}
        data += encoded(properties=properties, **(place | fields))
    (batch,) = read_batches(lambda at, size: data[at - start : at - start + size], start, start + len(data), 1 << 30)
    assert isinstance(batch, RecordBatch)
    return batch


@pytest.mark.parametrize("case", GOLDEN)
def test_a_golden_log_gives_the_golden_index_files(case: str) -> None:
    for window_size in (1000, 1 << 22):
        disk = MemoryDisk()
        log = golden_log(disk, case)
        replay(case, [log], window_size)
        assert index_files(disk.image()) == index_files(golden_files(case))
    asked = 0
    for query in load_expected(case)["keyQueries"]:
        if "index" in query:
            found = log.query(query["topic"], query["key"], query["begin"], query["end"], query["max"])
            assert found == query["index"]
            asked += len(found)
    assert asked > 10


@pytest.mark.parametrize("case", ["basic", "killed"])
def test_an_index_that_is_opened_again_and_again_goes_on_as_if_it_had_not_been(case: str) -> None:
    disk = MemoryDisk()
    for batch in golden_batches(case, 4096):
        log = golden_log(disk, case)
        assert log.load() == []
        log.dispatch(batch)
        log.dispatch(batch)
        assert log.end_offset == int(batch.offsets[-1])
    assert index_files(disk.image()) == index_files(golden_files(case))


def test_names_are_local_times_and_never_collide_or_go_back() -> None:
    disk, clock = MemoryDisk(), ManualClock(1_700_000_000_123)
    log = log_on(disk, clock=clock)
    for number in range(6):
        if number == 4:
            clock.ms -= 10**9
        log.dispatch(batch_of("a b c d e f g", start=number * 1000))
    names = [file.name for file in log.files]
    assert names == sorted(set(names))
    assert len(names) == 6
    assert all(re.fullmatch(r"2023111\d{10}", name) for name in names)
    assert names[0].endswith("20123")
    clock.ms += 10**10
    log = log_on(disk, clock=clock)
    log.load()
    log.dispatch(batch_of("a", start=10_000))
    assert [file.name for file in log.files][:6] == names
    assert log.files[6].name > names[5]


def test_a_record_without_keys_makes_the_file_that_java_makes() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.dispatch(batch_of("-"))
    assert index_files(disk.image()) == [bytes(index.file_size(SLOTS, ITEMS))]
    log.dispatch(batch_of("a b c d e f g", start=1000))
    assert len(log.files) == 1
    log.dispatch(batch_of("-", start=2000))
    first, second = index_files(disk.image())
    end = HEADER.read(first)
    assert HEADER.read(second) == {
        "begin_timestamp_ms": end["end_timestamp_ms"], "end_timestamp_ms": end["end_timestamp_ms"],
        "begin_offset": 1000, "end_offset": 1000, "used_slot_count": 0, "index_count": 0,
    }  # fmt: skip


def test_rolled_back_records_are_not_indexed_prepared_ones_are() -> None:
    log = log_on(MemoryDisk())
    log.dispatch(batch_of("k", sys_flag=0xC))
    log.dispatch(batch_of("k", start=1000, sys_flag=0x4))
    assert log.query("T", "k", *FOREVER) == [1000]


def test_answers_come_newest_first_across_files_up_to_the_count_asked() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.dispatch(batch_of(*["k"] * 40))
    offsets = batch_of(*["k"] * 40).offsets.tolist()[::-1]
    assert len(log.files) == 6
    assert log.query("T", "k", *FOREVER) == offsets
    assert log.query("T", "k", *FOREVER, 5) == offsets[:5]
    assert log.query("T", "other", *FOREVER) == log.query("U", "k", *FOREVER) == []
    start = 1_700_000_000_000
    assert log.query("T", "k", start + 7_000, start + 14_000)[0] in offsets[18:21]  # 700 ms apart, in whole seconds
    assert log.query("T", "k", start + 100_000, FOREVER[1]) == []
    log.dispatch(batch_of(*["k"] * 60, start=100_000))
    assert len(log.query("T", "k", *FOREVER)) == 64
    assert len(log.query("T", "k", *FOREVER, 1000)) == 100


def test_many_full_files_do_not_stay_mapped() -> None:
    log = log_on(MemoryDisk())
    log.dispatch(batch_of(*["a b c d e f g"] * 60))
    log.flush()
    assert len(log.query("T", "a", *FOREVER, 64)) == 60
    assert len(log._mapped) <= 18
    log.close()
    assert len(log.query("T", "g", *FOREVER, 64)) == 60


def test_flush_makes_all_durable_and_says_until_when_files_are_full() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.dispatch(batch_of("a b c d e f g", "h"))
    assert log.full_ms == 0
    log.flush_full()
    assert log.full_ms == 1_700_000_000_000
    log.flush()
    again = log_on(disk.crash("lost"))
    assert again.load() == []
    assert again.query("T", "h", *FOREVER) == log.query("T", "h", *FOREVER) != []
    before = disk.operations
    log.flush()
    assert disk.operations == before


def test_a_failed_sync_is_never_tried_again() -> None:
    disk = FailingDisk(MemoryDisk(), 4, errno.EIO)
    log = log_on(disk)
    log.dispatch(batch_of("a"))
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            log.flush()
    assert disk.operations == 4
    assert log.full_ms == 0


@pytest.mark.parametrize("at", range(1, 14))
@pytest.mark.parametrize("forever", [False, True])
def test_a_full_disk_is_asked_a_few_times_and_gets_no_partial_files(at: int, forever: bool) -> None:
    disk = MemoryDisk()
    failing = FailingDisk(disk, at, errno.ENOSPC, forever)
    log = log_on(failing)
    batch = batch_of("a b c", "d e f", "-", "g h", "i j k l m n o p q r", "-", "s")
    try:
        log.dispatch(batch)
    except OSError:
        assert failing.failed is not None
        assert failing.operations <= at + 8  # three tries, and what goes before each
        assert forever or failing.failed.verb == "sync_directory"  # which is not tried again, the others are
        failing.heal()  # somebody made room
    else:
        assert not forever or failing.failed is None
    log.dispatch(batch)
    log.dispatch(batch)
    expected = MemoryDisk()
    log_on(expected).dispatch(batch)
    # Where not even a removal works, an empty file stays, which does no harm.
    held = [data for data in index_files(disk.image()) if HEADER.read(data)["index_count"]]
    assert held == index_files(expected.image())
    assert len(index_files(disk.image())) <= len(held) + forever


@pytest.mark.parametrize("bad", range(1, 6))
def test_a_record_whose_keys_lie_in_two_files_is_not_indexed_twice(bad: int) -> None:
    """The disk has room for so many files only, and the batch comes again after each failure."""

    class Room(WatchedDisk):
        left = 0

        def before(self, operation) -> None:
            if operation.verb == "create":
                if not self.left:
                    raise OSError(errno.ENOSPC, "No space left on device", operation.path)
                self.left -= 1

    disk = MemoryDisk()
    room = Room(disk)
    log = log_on(room)
    batch = batch_of("a b c", *["d e f g h i j k l m"] * bad, "n", "-")
    failures = 0
    while log.end_offset != int(batch.offsets[-1]):
        room.left += 1
        try:
            log.dispatch(batch)
        except OSError:
            failures += 1
    expected = MemoryDisk()
    log_on(expected).dispatch(batch)
    assert failures == len(log.files) - 1 > 0
    assert index_files(disk.image()) == index_files(expected.image())


def test_files_are_deleted_by_name() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.dispatch(batch_of(*["a b c d e f g"] * 3))
    offsets = log.query("T", "a", *FOREVER)
    log.delete({log.files[0].name, "nothing"})
    assert log.query("T", "a", *FOREVER) == offsets[:2]
    assert len(index_files(disk.crash("lost").image())) == 2
    log.delete({log.files[1].name})
    assert log.end_offset == offsets[1]


def test_what_is_no_index_file_of_this_store_is_told_and_left() -> None:
    disk = MemoryDisk()
    other = bytearray(index.file_size(9, 30))
    log = log_on(disk)
    columns = [batch_of("k").index_items()[1], batch_of("k").offsets + 77, batch_of("k").store_ms]
    put_items(other, 9, 30, *columns)
    disk.put_file("/store/index/20200101000000000", bytes(other))
    disk.put_file("/store/index/20200101000000001", b"x" * 100)
    disk.put_file("/store/index/20200101000000002", b"")
    disk.put_file("/store/index/notes.txt", b"x")
    disk.make_directories("/store/index/20200101000000003")
    warnings = log.load()
    assert len(warnings) == 4
    assert not disk.exists("/store/index/20200101000000002")
    assert log.query("T", "k", *FOREVER) == [77]
    log.dispatch(batch_of("k", start=1000))
    assert log.query("T", "k", *FOREVER) == [1000, 77]
    assert bytes(other) == disk.image()["/store/index/20200101000000000"]


def test_a_wild_header_is_never_written_to() -> None:
    disk = MemoryDisk()
    log = log_on(disk)
    log.dispatch(batch_of("k"))
    (path,) = (path for path in disk.image() if "/index/" in path)
    wild = bytearray(disk.image()[path])
    HEADER.struct.pack_into(wild, 0, 1, 2**62, 0, 5, 3, 2**31 - 1)
    disk.put_file(path, bytes(wild))
    again = log_on(disk)
    again.load()
    again.query("T", "k", *FOREVER)
    again.dispatch(batch_of("k", start=1000))
    assert disk.image()[path] == bytes(wild)
    assert again.query("T", "k", *FOREVER, 1) == [1000]


@pytest.mark.parametrize(("slot_count", "item_count"), [(0, 5), (5, 1)])
def test_sizes_that_hold_nothing_are_refused(slot_count: int, item_count: int) -> None:
    with pytest.raises(ValueError, match="takes nothing"):
        log_on(MemoryDisk(), slot_count, item_count)
