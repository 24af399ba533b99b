"""What DLedger and RocketMQ test of their own stores, as tables of cases, with the outcome that it has here.

A row says where this engine is meant to differ.  The rows of a group of several members are none of a store's.
Java: MmapFileListTest, DLedgerMappedFileStoreTest, DLedgerManagedFileStoreTruncateTest, DLedgerCommitlogTest,
MixCommitlogTest.  DLedgerEntryCoderTest is in tests/formats/test_dledger.py, DLedgerMultiPathTest in
test_data_paths.py.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore import LedgerConfig, Message, Store, StoreConfig, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.errors import StoreDamaged
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.formats.dledger import INDEX_UNIT, Entry
from rmqstore.formats.message_id import offset_of_id
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk
from tests.dledger.ledgers import image

pytestmark = pytest.mark.stores

NODE = "/node/dledger-n0"
HEAD, BLANK = 48, 8

# --- MmapFileListTest: ten entries of 504 bytes in files of 512


def listed(config: EntryStoreConfig) -> tuple[MemoryDisk, EntryStore]:
    disk = MemoryDisk()
    return disk, EntryStore(NODE, config, ManualClock(), disk)


def data_files(disk: MemoryDisk) -> list[int]:
    return sorted(int(path.rpartition("/")[2]) for path in disk.image() if "/data/" in path)


def test_each_entry_begins_where_the_end_was_or_a_file() -> None:
    disk, store = listed(EntryStoreConfig(data_file_size=512, index_file_size=320))
    made = store.append([bytes(504 - HEAD)] * 10, 1)
    assert [entry.offset for entry in made] == [512 * number for number in range(10)]
    assert (len(data_files(disk)), store.data_end, data_files(disk)[0]) == (10, 5112, 0)


@pytest.mark.parametrize(
    ("change", "count", "low", "high"),
    [
        (lambda files: files.cut(1536), 3, 0, 1536),  # Java keeps a fourth file that holds nothing
        (lambda files: files.remove_first(2), 8, 1024, 5120),
        (lambda files: (files.cut(2048), files.remove_first(2)), 2, 1024, 2048),
        (lambda files: files.cut(0), 0, 0, 0),
    ],
    ids=["truncateOffset(1536)", "resetOffset(1024)", "both, and loaded again", "truncateOffset(-1)"],
)
def test_a_list_of_files_is_cut_at_either_end(
    change: Callable[[FileSequence], object], count: int, low: int, high: int
) -> None:
    disk, store = listed(EntryStoreConfig(data_file_size=512, index_file_size=320))
    store.append([bytes(504 - HEAD)] * 10, 1)
    store.close()
    for changes in (change, lambda _: None):
        files = FileSequence(disk, FileHandles(disk, 8), [f"{NODE}/data"], 512)
        files.load()
        changes(files)
        assert (len(files.starts), files.start, files.end) == (count, low, high)


@pytest.mark.parametrize(
    ("sizes", "end"),
    [([4095], 4095), ([4096], 4096), ([4097], 4097), ([4097, 50], 4106 + 50), ([4050, 48], 4098),
     ([4051, 48], 4106 + 48)],
)  # fmt: skip
def test_a_flush_is_of_every_byte_and_a_blank_leaves_eight(sizes: list[int], end: int) -> None:
    """Java flushes pages of 4096 bytes, unless a file is full, and one file a call."""
    disk, store = listed(EntryStoreConfig(data_file_size=4106, index_file_size=320))
    store.append([bytes(size - HEAD) for size in sizes], 1)
    assert store.data_end == end
    store.flush()
    again = EntryStore(NODE, store.config, ManualClock(), disk.crash("lost"))
    assert (again.data_end, again.end_index) == (end, len(sizes) - 1)


# --- DLedgerMappedFileStoreTest


def test_a_follower_takes_entries_at_the_leaders_places() -> None:
    config = EntryStoreConfig(data_file_size=10 * 1024 * 1024)
    disk, store = listed(config)
    place = 0
    for index in range(10):
        entry = Entry(index, 0, place, b"Hello Follower%d" % index)
        store.append_entry(entry)
        place += entry.size
    store.close()
    with EntryStore(NODE, config, ManualClock(), disk) as again:
        assert (again.begin_index, again.end_index, again.data_end) == (0, 9, place)
        assert [again.get(index).body for index in range(10)] == [b"Hello Follower%d" % index for index in range(10)]


@pytest.mark.parametrize(
    ("removed", "files", "end"), [(0, 12, 99), (2, 10, 89), (12, 0, -1)], ids=["none", "two newest", "ten more"]
)
def test_an_index_ends_with_the_data(removed: int, files: int, end: int) -> None:
    """100 bodies of 1024 bytes, nine in a file of 10 KiB and 8."""
    config = EntryStoreConfig(data_file_size=10 * 1024 + 8, index_file_size=320, on_middle_damage="cut")
    disk, store = listed(config)
    store.append([bytes(1024)] * 100, 1)
    store.close()
    for start in data_files(disk)[12 - removed :]:
        disk.remove(f"{NODE}/data/{start:020d}")
    with EntryStore(NODE, config, ManualClock(), disk) as again:
        assert (len(data_files(disk)), again.begin_index, again.end_index) == (files, min(end, 0), end)
        assert index_end(disk) == (end + 1) * INDEX_UNIT.size
        for index in range(end + 1):
            assert again.get(index).size == 1024 + HEAD


def index_end(disk: MemoryDisk) -> int:
    """Where what is written in the index ends."""
    held = {int(path.rpartition("/")[2]): data for path, data in disk.image().items() if "/index/" in path}
    ends = [start + len(data.rstrip(b"\0")) for start, data in held.items() if any(data)]
    return -(-max(ends, default=0) // INDEX_UNIT.size) * INDEX_UNIT.size


def test_entries_that_are_made_the_last_one_after_the_other() -> None:
    """Seven entries in a file; 5 is there, 6 comes after it, 9 is beyond the end."""
    config = EntryStoreConfig(data_file_size=8 * 1024 + 8, index_file_size=320)
    _, leader = listed(config)
    entries = leader.append([bytes(1024)] * 10, 1)
    disk, store = listed(config)
    for entry in entries:
        store.append_entry(entry)
    for index, begin in ((5, 0), (6, 0), (9, 9)):
        store.truncate(entries[index])
        assert (store.begin_index, store.end_index) == (begin, index)
        assert store.data_end == entries[index].offset + entries[index].size
        assert index_end(disk) == (index + 1) * INDEX_UNIT.size


def test_a_cut_after_the_oldest_files_went() -> None:
    """20 entries in three files, of which two go; the log counts as flushed from a byte that it has."""
    config = EntryStoreConfig(data_file_size=8 * 1024 + 8, index_file_size=320)
    disk, store = listed(config)
    entries = store.append([bytes(1024)] * 20, 1)
    store.flush()
    store.update_committed(1, 14)
    store.clean(any_age=True)
    assert len(data_files(disk)) == 1
    store.truncate(entries[15])
    assert (store.begin_index, store.end_index) == (14, 15)
    assert store.plan_clean(any_age=True).log_start == data_files(disk)[0] <= store.data_end
    again = EntryStore(NODE, config, ManualClock(), disk.crash("lost"))
    assert (again.begin_index, again.end_index, again.data_end) == (14, 15, store.data_end)


def test_how_far_the_group_agreed_is_known_again() -> None:
    config = EntryStoreConfig(data_file_size=10 * 1024 + 8, index_file_size=320)
    disk, store = listed(config)
    store.append([bytes(1024)] * 100, 1)
    assert store.update_committed(1, 90)
    store.close()
    with EntryStore(NODE, config, ManualClock(), disk) as again:
        assert (again.committed_index, again.end_index) == (90, 99)
        assert again.committed_end == again.get(90).offset + again.get(90).size


# --- DLedgerManagedFileStoreTruncateTest


def test_a_cut_is_on_the_disk_with_its_unit() -> None:
    """Java leaves the unit that it wrote again to the next flush."""
    disk, store = listed(EntryStoreConfig(data_file_size=4096, index_file_size=640))
    entries = store.append([b"x" * 100] * 7, 1)
    store.flush()
    store.truncate(entries[5])
    lost = disk.crash("lost").image()
    assert lost == {path: data for path, data in disk.image().items() if path != "/node/lock"}


# --- DLedgerCommitlogTest, MixCommitlogTest

PLAIN = StoreConfig(log_file_size=100 * 1024, queue_file_size=20 * 1000, retention=False, statistics=False)
CUTS = replace(PLAIN, on_middle_damage="cut", dledger=LedgerConfig(index_file_size=3200))
LEDGER = replace(CUTS, on_middle_damage="refuse")
CONVERTS = replace(PLAIN, dledger=LedgerConfig(index_file_size=3200, converts=True))
FILLER = b"x" * (1200 - HEAD - 91 - len("topic") - len(b"0000"))  # 85 entries of 1200 bytes a file


def put(store: Store, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        assert store.put(Message("topic", b"%04d" % number + FILLER)).is_stored
    store.flush()


def numbers(store: Store) -> list[int]:
    offset, end = store.bounds("topic", 0)
    found: list[int] = []
    while offset < end:
        answer = store.get("topic", 0, offset, max_count=500)
        found += [int((message.body or b"")[:4]) for message in answer.messages]
        offset = answer.next_offset
    return found


@pytest.fixture(scope="module")
def two_thousand(tmp_path_factory: pytest.TempPathFactory) -> MemoryDisk:
    disk = MemoryDisk()
    with open_store("/store", LEDGER, filesystem=disk, clock=ManualClock(), workers=False) as store:
        put(store, 2000)
    assert len([path for path in disk.image() if "/data/" in path]) == 24
    return disk


@pytest.mark.parametrize(("removed", "count"), [(0, 2000), (4, 1700), (24, 0)])
def test_queues_are_cut_to_what_the_data_have(two_thousand: MemoryDisk, removed: int, count: int) -> None:
    """Java goes on without a word; here somebody has to say `cut`."""
    disk = two_thousand.crash("killed")
    paths = sorted(path for path in disk.image() if "/data/" in path)
    for path in paths[24 - removed :]:
        disk.remove(path)
    before = disk.image()
    if removed:
        with pytest.raises(StoreDamaged):
            open_store("/store", LEDGER, filesystem=disk, clock=ManualClock(), workers=False)
        assert {path: data for path, data in disk.image().items() if path in before} == before
    with open_store("/store", CUTS, filesystem=disk, clock=ManualClock(), workers=False) as store:
        assert numbers(store) == list(range(count))
        assert store.bounds("topic", 0) == (0, count)
        put(store, 1, count)
    with open_store("/store", LEDGER, filesystem=disk, clock=ManualClock(), workers=False) as store:
        assert numbers(store) == list(range(count + 1))


@pytest.mark.parametrize("how", ["close", "abandon"])
def test_a_thousand_are_there_again(tmp_path: Path, how: str) -> None:
    store = open_store(tmp_path, LEDGER)
    put(store, 1000)
    getattr(store, how)()
    with open_store(tmp_path, LEDGER) as store:
        assert numbers(store) == list(range(1000))


@pytest.mark.parametrize("host", ["10.1.2.3:4444", "[2001:db8::7]:4444"])
@pytest.mark.parametrize("way", ["put", "put_batch"])
def test_a_messages_id_is_its_place_whatever_its_hosts(tmp_path: Path, host: str, way: str) -> None:
    """A batch is as many entries, and its id as many ids."""
    born = "[2001:db8::1]:9" if "[" in host else "10.0.0.1:9"
    with open_store(tmp_path, replace(LEDGER, store_host=host)) as store:
        messages = [Message("topic", b"%04d" % number, born_host=born) for number in range(2)]
        for _ in range(3):
            result = store.put_batch(messages) if way == "put_batch" else store.put(messages[0])
            assert result.is_stored
            ids = result.msg_id.split(",")
            assert len(ids) == (2 if way == "put_batch" else 1)
            assert offset_of_id(ids[0]) == result.physical_offset
            for number, one in enumerate(ids):
                found = store.message_at(one)
                assert (found.body, found.msg_id) == (b"%04d" % number, one)
    places = open_snapshot(tmp_path).table("entries", ["position"])["position"].to_pylist()
    rows = open_snapshot(tmp_path).scan(["topic"], columns=["physicalOffset"]).read_all()
    assert sorted(rows["physicalOffset"].to_pylist()) == [place + HEAD for place in places]


@pytest.mark.parametrize("lost", ["nothing", "queues"])
def test_a_thousand_before_and_after_the_change_of_logs(tmp_path: Path, lost: str) -> None:
    with open_store(tmp_path, PLAIN) as store:
        put(store, 1000)
        divider = (Probe(store).log_end // PLAIN.log_file_size + 1) * PLAIN.log_file_size
    with open_store(tmp_path, CONVERTS) as store:
        assert store.bounds("topic", 0) == (0, 1000)
        assert Probe(store).log_end == divider
        put(store, 1000, 1000)
    if lost == "queues":
        for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (tmp_path / "abort").touch()
    with open_store(tmp_path, LEDGER) as store:
        assert numbers(store) == list(range(2000))
        put(store, 1000, 2000)
        assert numbers(store) == list(range(3000))
    assert min(image(tmp_path / "dledger-n0" / "data")) == f"{divider:020d}"


def test_the_old_log_goes_first_and_then_the_log_begins_at_the_divider(tmp_path: Path) -> None:
    with open_store(tmp_path, PLAIN) as store:
        put(store, 870)
    with open_store(tmp_path, CONVERTS) as store:
        put(store, 300, 870)
        divider = int(min(image(tmp_path / "dledger-n0" / "data")))
        assert divider == 10 * PLAIN.log_file_size  # so many go in one round
        assert store.clean(any_age=True).file_count == 10
        assert Probe(store).log_start == divider
        low, _ = store.bounds("topic", 0)
        assert store.get("topic", 0, low).messages[0].physical_offset == divider + HEAD
        assert numbers(store) == list(range(870, 1170))
        assert store.clean(any_age=True).file_count > 0  # entries go as well, now that they are the oldest
