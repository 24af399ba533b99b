"""The log of entries: DLedger's own vectors and tests as tables of cases, and where this is safer than the original."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore import LedgerConfig, Message, StoreConfig, open_store
from rmqstore.clock import ManualClock
from rmqstore.dledger.entry_log import EntryLog, MemoryEntryStore
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.errors import NotAStore, NotNow, Rejected, StoreClosed, StoreDamaged, StoreInUse
from rmqstore.formats.dledger import Entry, Term, encode_entry
from rmqstore.snapshot.entries import ledger_entries
from tests.crash.disks import MemoryDisk, WatchedDisk
from tests.dledger.ledgers import LEDGER, PLAIN, put
from tests.store.interrupting import Interrupt

pytestmark = pytest.mark.stores

SMALL = EntryStoreConfig(data_file_size=256, index_file_size=128)
NODE = "/node/dledger-n0"


def opened(disk: MemoryDisk, config: EntryStoreConfig = SMALL) -> EntryStore:
    return EntryStore(NODE, config, ManualClock(), disk)


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [f"hello-{number}".encode() for number in range(first, first + count)]


def of_leader(count: int, term: int = 1, config: EntryStoreConfig = SMALL) -> list[Entry]:
    """Entries as a leader of a group has them."""
    with opened(MemoryDisk(), config) as store:
        return store.append(bodies(count), term)


def indexes(store: EntryLog) -> list[bytes]:
    return [store.get(index).body for index in range(max(store.begin_index, 0), store.end_index + 1)]


def reopened(disk: MemoryDisk, how: str = "killed", config: EntryStoreConfig = SMALL) -> EntryStore:
    return opened(disk.crash(how), config)  # type: ignore[arg-type]


def test_where_a_log_begins_in_the_middle_of_a_file_is_on_the_disk_before_its_first_entry() -> None:
    """Only the index tells."""
    disk = WatchedDisk(MemoryDisk(), keep_trace=True)
    store = EntryStore(NODE, SMALL, ManualClock(), disk)
    store.truncate(Entry(10, 1, 800, b"hello-10"))
    assert disk.trace is not None
    begun = next(each for each in disk.trace if (each.verb, "/data/" in each.path) == ("write", True))
    assert [each.verb for each in disk.trace[: begun.number] if "/index/" in each.path][-1] == "sync"


@pytest.mark.parametrize("count", [0, 5])
@pytest.mark.parametrize("offset", [768 + 200, 768 + 201, 768 + 255])
def test_a_place_where_no_file_holds_an_entry_begins_no_log(offset: int, count: int) -> None:
    """It comes from a leader of other file sizes, or from nobody's; what was there stays there."""
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(count), 1)
    store.flush()
    before = disk.image()
    with pytest.raises(Rejected, match=f"entry 10 of byte {offset}: its 56 bytes and a blank entry do not fit"):
        store.truncate(Entry(10, 1, offset, b"hello-10"))
    assert disk.image() == before
    store.truncate(Entry(10, 1, 768 + 192, b"hello-10"))
    assert indexes(reopened(disk)) == [b"hello-10"]


def test_the_files_are_those_of_the_original() -> None:
    """Five entries of 55 bytes in files of 256: after the fourth 36 bytes remain, which a blank fills.  The one field
    that differs is the CRC of the body, which the original leaves 0 and never looks at."""
    disk = MemoryDisk()
    with opened(disk) as store:
        store.save_term(Term(3, None))
        store.save_term(Term(3, "n0"))
        made = store.append(bodies(5), 3)
        assert store.update_committed(3, 3)
        assert store.committed_end == 220
    image = {path.removeprefix(NODE): data for path, data in disk.image().items()}
    assert [entry.offset for entry in made] == [0, 55, 110, 165, 256]
    plain = [encode_entry(Entry(each.index, 3, each.offset, each.body, body_crc=each.body_crc)) for each in made]
    first, second = image[f"/data/{0:020d}"], image[f"/data/{256:020d}"]
    assert first == b"".join(plain[:4]) + bytes.fromhex("ffffffff00000024") + bytes(28)
    assert second == plain[4].ljust(256, b"\0")
    assert plain[0][:40] == bytes.fromhex("0000000100000037" + "00" * 8 + "0000000000000003" + "00" * 8 + "00" * 8)
    assert image[f"/index/{0:020d}"].hex() == (
        "0000000100000000000000000000003700000000000000000000000000000003"
        "0000000100000000000000370000003700000000000000010000000000000003"
        "00000001000000000000006e0000003700000000000000020000000000000003"
        "0000000100000000000000a50000003700000000000000030000000000000003"
    )
    assert image["/currterm"] == b"voteLeader=n0\ncurrTerm=3\n"
    assert image["/checkpoint"] == b"committedIndex=3\nendIndex=4\n"


def test_entries_that_an_opening_finds_are_on_the_disk_when_it_is_done() -> None:
    """A kill left all of them in memory; a member that has opened may tell its group that it has them."""
    disk = MemoryDisk()
    opened(disk).append(bodies(7), 1)
    found = disk.crash("killed")
    assert indexes(opened(found)) == bodies(7)
    assert indexes(reopened(found, "lost")) == bodies(7)


def test_a_flush_has_entries_and_their_index_on_the_disk() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(7), 1)
    store.flush()
    assert {path: data for path, data in disk.crash("lost").image().items() if "/lock" not in path} == {
        path: data for path, data in disk.image().items() if "/lock" not in path
    }


@pytest.mark.parametrize("make", [lambda: opened(MemoryDisk()), MemoryEntryStore], ids=["files", "memory"])
def test_what_is_appended_is_had_again(make: Callable[[], EntryLog]) -> None:
    store = make()
    assert (store.begin_index, store.end_index, store.committed_index) == (-1, -1, -1)
    made = store.append(bodies(10), 1)
    assert [entry.index for entry in made] == list(range(10))
    assert indexes(store) == bodies(10)
    for entry in of_leader(13)[10:]:
        if isinstance(store, MemoryEntryStore):
            store.append_entry(entry)
        else:
            store.append_entry(entry)
    assert (store.begin_index, store.end_index, store.end_term) == (0, 12, 1)
    assert store.update_committed(1, 7)
    assert not store.update_committed(1, 6)
    assert not store.update_committed(1, -1)
    assert store.update_committed(1, 99)
    assert store.committed_index == 12
    for wrong in (-1, 13):
        with pytest.raises(Rejected, match=f"entry {wrong}: the log has 0 to 12"):
            store.get(wrong)
    with pytest.raises(Rejected, match="term 0"):
        store.append([b""], 0)


def test_an_empty_body_is_an_entry() -> None:
    disk = MemoryDisk()
    with opened(disk) as store:
        store.append([b"", b"x", b""], 1)
    assert indexes(reopened(disk)) == [b"", b"x", b""]


def test_a_hook_changes_what_is_stored() -> None:
    """As a broker writes into a message where it stands."""
    disk = MemoryDisk()
    places = list[int]()

    def hook(index: int, place: int, body: bytearray) -> None:
        places.append(place)
        body[:8] = index.to_bytes(8)

    with opened(disk) as store:
        store.append([bytes(20)] * 10, 1, hook)
        assert places == [store.get(index).offset + 48 for index in range(10)]
    store = reopened(disk)
    assert [int.from_bytes(store.get(index).body[:8]) for index in range(10)] == list(range(10))


@pytest.mark.parametrize("how", ["killed", "lost", "closed"])
def test_what_was_flushed_is_there_again(how: str) -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(10), 1)
    store.flush()
    store.append(bodies(3, 10), 2)
    if how == "closed":
        store.close()
    else:
        store.abandon()
    again = reopened(disk, "killed" if how == "closed" else how)
    count = 10 if how == "lost" else 13
    assert indexes(again) == bodies(count)
    assert again.end_term == (1 if how == "lost" else 2)
    again.append([b"more"], 3)
    assert again.end_index == count


FILES = EntryStoreConfig(data_file_size=10 * 1024 + 8, index_file_size=320, on_middle_damage="cut")


@pytest.mark.parametrize(("removed", "end"), [(0, 99), (2, 89), (12, -1)])
def test_files_that_are_gone_end_the_log_in_front_of_them(removed: int, end: int) -> None:
    """100 entries of 1072 bytes, nine in a file; the original goes on as if there had never been more."""
    disk = MemoryDisk()
    with opened(disk, FILES) as store:
        store.append([b"%d" % number * 512 for number in range(10, 100)] + [bytes(1024)] * 10, 1)
        assert len({entry.offset // FILES.data_file_size for entry in map(store.get, range(100))}) == 12
    paths = sorted(path for path in disk.image() if "/data/" in path)
    for path in paths[len(paths) - removed :]:
        disk.remove(path)
    again = reopened(disk, "killed", FILES)
    assert (again.begin_index, again.end_index) == (0 if end >= 0 else -1, end)
    assert len(indexes(again)) == end + 1


def test_entries_that_the_group_agreed_on_do_not_go_unnoticed() -> None:
    disk = MemoryDisk()
    with opened(disk) as store:
        store.append(bodies(10), 1)
        store.update_committed(1, 9)
    disk.remove(f"{NODE}/data/{512:020d}")
    with pytest.raises(StoreDamaged, match="agreed on entry 9, but the data end with entry 7"):
        opened(disk)


TRUNCATE = EntryStoreConfig(data_file_size=8 * 1024 + 8, index_file_size=640)


def test_an_entry_of_the_leader_becomes_the_last() -> None:
    """Of ten entries of 1072 bytes, seven in the first file: 5 stays, 6 is new, 9 is beyond the end and begins anew."""
    leader = opened(MemoryDisk(), TRUNCATE)
    leader.append([bytes(1024)] * 10, 1)
    disk = MemoryDisk()
    follower = opened(disk, TRUNCATE)
    for entry in map(leader.get, range(10)):
        follower.append_entry(entry)
    for index, begin in ((5, 0), (6, 0), (9, 9)):
        entry = leader.get(index)
        follower.truncate(entry)
        assert (follower.begin_index, follower.end_index) == (begin, index)
        assert follower.data_end == entry.offset + entry.size
        assert follower.get(index).body == entry.body
        again = opened(disk.crash("lost"), TRUNCATE)
        assert (again.begin_index, again.end_index, again.data_end) == (begin, index, follower.data_end)
        assert again.get(index) == follower.get(index)


@pytest.mark.parametrize(("index", "begin", "end", "data_end"), [(5, 0, 5, 366), (7, 7, 7, 476)])
def test_what_is_cut_off_does_not_come_back(index: int, begin: int, end: int, data_end: int) -> None:
    """Reopened, the original has entries 6 and 7 again after a cut at 5, and nothing at all after a beginning at 7."""
    entries = of_leader(10)
    disk = MemoryDisk()
    store = opened(disk)
    for entry in entries if index == 5 else ():
        store.append_entry(entry)
    store.truncate(entries[index])
    assert (store.begin_index, store.end_index, store.data_end) == (begin, end, data_end)
    for how in ("killed", "lost"):
        again = reopened(disk, how)
        assert (again.begin_index, again.end_index, again.data_end) == (begin, end, data_end)
        again.append_entry(entries[index + 1])
        assert again.get(index + 1).body == entries[index + 1].body


def test_another_entry_in_the_place_of_one_that_differs() -> None:
    disk, other = MemoryDisk(), Entry(4, 2, 256, b"other")
    store = opened(disk)
    for entry in of_leader(10):
        store.append_entry(entry)
    store.truncate(other)
    assert (store.end_index, store.end_term) == (4, 2)
    again = reopened(disk, "lost")
    assert indexes(again) == [*bodies(4), b"other"]
    assert again.end_term == 2


def test_what_the_group_agreed_on_is_not_cut() -> None:
    store = opened(MemoryDisk())
    entries = store.append(bodies(10), 1)
    store.update_committed(1, 6)
    with pytest.raises(Rejected, match="the group agreed on entry 6"):
        store.truncate(entries[5])
    store.truncate(entries[6])
    assert (store.end_index, store.committed_index) == (6, 6)


def test_an_entry_that_fits_no_file_burns_none() -> None:
    """The original leaves two files of blanks behind."""
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(2), 1)
    before = disk.image()
    with pytest.raises(Rejected, match="a body of 300 bytes"):
        store.append([bytes(300)], 1)
    with pytest.raises(Rejected, match="data files of 256 bytes"):
        store.append_entry(Entry(2, 1, 110, bytes(300)))
    assert disk.image() == before
    assert [entry.offset for entry in store.append([bytes(200)], 1)] == [256]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry(4, 1, 165, b"hello-4"), "entry 3 comes next"),
        (Entry(3, 0, 165, b"hello-3"), "the last entry is of term 1"),
        (Entry(3, 1, 166, b"hello-3"), "here it is 165"),
    ],
)
def test_an_entry_that_does_not_follow_is_refused(entry: Entry, words: str) -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(3), 1)
    with pytest.raises(Rejected, match=words):
        store.append_entry(entry)
    assert (store.end_index, store.data_end) == (2, 165)
    assert indexes(reopened(disk)) == bodies(3)


@pytest.mark.parametrize("lost", ["all", "first", "middle", "last", "one unit", "the first unit of an older file"])
def test_an_index_is_made_again_from_the_data(lost: str) -> None:
    """The original loses the units of older files for good where it makes newer ones again."""
    disk = MemoryDisk()
    with opened(disk) as store:
        store.append(bodies(40), 1)
    whole = disk.image()
    paths = sorted(path for path in whole if "/index/" in path)
    for path in {"all": paths, "first": paths[:1], "middle": paths[1:2], "last": paths[-1:]}.get(lost, ()):
        disk.remove(path)
    if lost == "one unit":
        disk.put_file(paths[-2], whole[paths[-2]][:32] + bytes(32) + whole[paths[-2]][64:])
    elif lost == "the first unit of an older file":
        disk.put_file(paths[1], bytes(32) + whole[paths[1]][32:])
    again = opened(disk)
    assert indexes(again) == bodies(40)
    again.close()
    assert disk.image() == whole


@pytest.mark.parametrize("room", ["data", "index"])
def test_a_file_of_another_size_is_an_error_with_its_path(room: str) -> None:
    disk = MemoryDisk()
    with opened(disk) as store:
        store.append(bodies(10), 1)
    path = min(path for path in disk.image() if f"/{room}/" in path)
    disk.put_file(path, disk.image()[path][:100])
    before = disk.image()
    with pytest.raises(StoreDamaged) as refusal:
        opened(disk)
    assert room in str(refusal.value)
    assert {**disk.image(), f"{NODE}/lock": b""} == {**before, f"{NODE}/lock": b""}


def test_damage_in_front_of_sound_entries_is_refused() -> None:
    """The original drops all that follows without a word."""
    disk = MemoryDisk()
    with opened(disk) as store:
        store.append(bodies(10), 1)
    path = f"{NODE}/data/{256:020d}"
    data = bytearray(disk.image()[path])
    data[55 + 50] ^= 1  # in the body of entry 5
    disk.put_file(path, bytes(data))
    before = disk.image()
    with pytest.raises(StoreDamaged, match="entry 5 does not follow, or its body is damaged"):
        opened(disk)
    assert disk.image() == before
    cut = EntryStoreConfig(data_file_size=256, index_file_size=128, on_middle_damage="cut")
    assert indexes(opened(disk, cut)) == bodies(5)


@pytest.mark.parametrize("torn", [b"", b"nonsense", b"currTerm=\n", b"currTerm=99999999999999999999\n"])
def test_a_torn_term_is_refused(torn: bytes) -> None:
    """Whoever came back with term 0 might vote twice."""
    disk = MemoryDisk()
    with opened(disk) as store:
        store.save_term(Term(7, "n1"))
    disk.put_file(f"{NODE}/currterm", torn)
    with pytest.raises(StoreDamaged, match="names no term"):
        opened(disk)


@pytest.mark.parametrize("left", [
    {}, {"currterm": b"voteLeader=n1\ncurrTerm=2\n"}, {"currterm.bak": b"voteLeader=n0\ncurrTerm=2\n"},
    {"currterm.tmp": b"", "currterm.bak": b"voteLeader=\ncurrTerm=1\n"},
], ids=["gone", "older", "only an older spare", "two spares"])  # fmt: skip
def test_a_term_behind_the_entries_is_refused(left: dict[str, bytes]) -> None:
    """The node may have voted in a newer one; the file written by hand lets it go on."""
    disk = MemoryDisk()
    with opened(disk) as store:
        store.append(bodies(3), 2)
        store.append(bodies(1), 3)
    disk.remove(f"{NODE}/currterm")
    for name, content in left.items():
        disk.put_file(f"{NODE}/{name}", content)
    before = disk.image()
    with pytest.raises(StoreDamaged, match="the node has entries of term 3: write currTerm=3"):
        opened(disk)
    assert disk.image() == before
    disk.put_file(f"{NODE}/currterm", b"currTerm=3\nvoteLeader=\n")
    assert opened(disk).term == Term(3, None)


def test_the_term_of_an_entry_is_noted_before_it() -> None:
    disk, copy = MemoryDisk(), MemoryDisk()
    store = opened(disk)
    store.save_term(Term(3, "n0"))
    made = store.append(bodies(2), 3)
    assert store.term == Term(3, "n0")
    made += store.append(bodies(1, 2), 5)
    assert reopened(disk).term == reopened(disk, "lost").term == Term(5, None)
    follower = opened(copy)
    for entry in made:
        follower.append_entry(entry)
    assert reopened(copy, "lost").term == follower.term == Term(5, None)


@pytest.mark.parametrize("kept", ["currterm.tmp", "currterm.bak"])
def test_a_term_that_was_just_being_replaced_is_found(kept: str) -> None:
    """Java takes the file away before it puts the new one there."""
    disk = MemoryDisk()
    with opened(disk) as store:
        store.save_term(Term(7, "n1"))
    disk.rename(f"{NODE}/currterm", f"{NODE}/{kept}")
    assert opened(disk).term == Term(7, "n1")


def test_a_term_never_goes_back() -> None:
    store = opened(MemoryDisk())
    store.save_term(Term(7, "n1"))
    with pytest.raises(Rejected, match="the node is in term 7"):
        store.save_term(Term(6, None))


def test_several_paths_take_turns_and_read_only_ones_get_no_file() -> None:
    disk = MemoryDisk()
    paths = ("/a", "/b", "/c")
    with opened(disk, EntryStoreConfig(data_file_size=256, index_file_size=128, data_paths=paths)) as store:
        store.append(bodies(20), 1)
    held = {path for path in paths if any(file.startswith(f"{path}/") for file in disk.image())}
    assert held == set(paths)
    before = {path for path in disk.image() if path.startswith(("/a/", "/b/"))}
    config = EntryStoreConfig(
        data_file_size=256, index_file_size=128, data_paths=("/a", "/b", "/c", "/d"), read_only_data_paths=("/a", "/b")
    )
    with opened(disk, config) as store:
        assert indexes(store) == bodies(20)
        store.append(bodies(20, 20), 1)
    assert {path for path in disk.image() if path.startswith(("/a/", "/b/"))} == before
    assert indexes(opened(disk, config)) == bodies(40)


def test_clean_space_is_planned_first_and_leaves_what_is_not_agreed_on() -> None:
    """The original looks at no committed entry."""
    disk = MemoryDisk()
    with opened(disk) as store:
        store.append(bodies(20), 1)
        store.flush()
        assert store.plan_clean(any_age=True).log_files == ()
        store.update_committed(1, 9)
        plan = store.plan_clean(any_age=True)
        before = disk.image()
        assert [file.start for file in plan.log_files] == [0, 256]
        assert disk.image() == before
        store.clean(any_age=True)
        assert (store.begin_index, store.end_index) == (8, 19)
        assert indexes(store) == bodies(12, 8)
        assert f"{NODE}/index/{0:020d}" not in disk.image()
        assert f"{NODE}/index/{256:020d}" in disk.image()
        with pytest.raises(Rejected, match="the log has 8 to 19"):
            store.get(7)
    again = opened(disk)
    assert (again.begin_index, again.end_index) == (8, 19)
    assert indexes(again) == bodies(12, 8)


def test_a_destroyed_log_is_empty_and_begins_again() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(20), 1)
    store.update_committed(1, 19)
    store.destroy()
    assert (store.begin_index, store.end_index, store.committed_index) == (-1, -1, -1)
    assert not [path for path in disk.image() if "/data/" in path or "/index/" in path]
    store.append(bodies(3), 1)
    store.close()
    assert indexes(opened(disk)) == bodies(3)


@pytest.mark.parametrize("what", ["a store", "an empty store", "a node's store", "another program's", "a checkpoint"])
def test_a_directory_that_holds_something_else_is_refused_and_left_as_it_is(tmp_path: Path, what: str) -> None:
    root = tmp_path / "root"
    if what in {"a store", "an empty store", "a node's store"}:
        with open_store(root, LEDGER if what == "a node's store" else PLAIN) as store:
            put(store, 0 if what == "an empty store" else 3)
    else:
        root.mkdir()
        (root / ("checkpoint" if what == "a checkpoint" else "notes.txt")).write_bytes(bytes(4096))
    before = {path: path.is_dir() or path.read_bytes() for path in root.rglob("*")}
    below = ".*its nodes are .*dledger-n0" if what == "a node's store" else ""
    with pytest.raises(NotAStore, match=f"which does not belong to a DLedger node{below}"):
        EntryStore(root, SMALL)
    assert {path: path.is_dir() or path.read_bytes() for path in root.rglob("*")} == before


@pytest.mark.parametrize("name", ["data/photo.jpg", "index/notes.txt", "data/2024/1", "index/7.parquet"])
def test_rooms_of_a_nodes_names_with_files_of_another_program_are_left_as_they_are(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NotAStore, match=r"has (data|index)/\S+, which does not belong to a DLedger node"):
        EntryStore(tmp_path, SMALL)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("left", [(), ("data",), ("data", "index"), ("index",)])
def test_a_directory_with_what_a_crash_left_of_a_new_node_is_taken(tmp_path: Path, left: Sequence[str]) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "checkpoint").write_text("committedIndex=-1\nendIndex=-1\n")
    for room in left:
        (tmp_path / "node" / room).mkdir()
    with EntryStore(tmp_path / "node", SMALL) as store:
        assert store.append(bodies(2), 1)
    with EntryStore(tmp_path / "node", SMALL) as store:
        assert store.end_index == 1


def test_two_at_once_are_refused() -> None:
    disk = MemoryDisk()
    with opened(disk), pytest.raises(StoreInUse):
        opened(disk)
    opened(disk).close()


CRASHING = EntryStoreConfig(data_file_size=1024, index_file_size=1024)


def test_readers_see_the_entries(tmp_path: Path) -> None:
    with EntryStore(tmp_path / "dledger-n0", SMALL) as store:
        store.append(bodies(10), 1)
        store.update_committed(1, 9)
    table = ledger_entries(tmp_path / "dledger-n0", ["index", "term", "body"])
    assert table["body"].to_pylist() == bodies(10)


def test_a_full_disk_is_told_before_anything_is_appended() -> None:
    class Full(MemoryDisk):
        def used_ratio(self, path: str) -> float:
            return 0.95

    store = EntryStore(NODE, SMALL, ManualClock(), Full())
    store.append(bodies(1), 1)
    store.clean()
    with pytest.raises(NotNow, match="the disk is full"):
        store.append(bodies(1, 1), 1)
    assert store.end_index == 0


NEXT = Entry(10, 1, 622, b"hello-10")
HOSTILE = {
    "index that is none": replace(NEXT, index=-1),
    "index beyond all": replace(NEXT, index=2**63 - 1),
    "index of another kind": replace(NEXT, index=10.0),
    "offset beyond all": replace(NEXT, offset=2**63),
    "offset that is none": replace(NEXT, offset=-622),
    "offset of an older entry": replace(NEXT, offset=165),
    "offset 0": replace(NEXT, offset=0),
    "term beyond all": replace(NEXT, term=2**63),
    "older term": replace(NEXT, term=0),
    "truth for a term": replace(NEXT, term=True),
    "magic 0": replace(NEXT, magic=0),
    "magic of a blank": replace(NEXT, magic=-1),
    "magic of later DLedgers": replace(NEXT, magic=4),
    "wrong CRC": replace(NEXT, body_crc=12345),
    "too large": replace(NEXT, body=bytes(300)),
    "text": replace(NEXT, body="hello"),
    "another place of an entry that is there": Entry(9, 1, 165, b"hello-3"),
    "older term of one that is there": Entry(9, 0, 567, b"hello-9"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("call", ["append_entry", "truncate"])
def test_a_hostile_entry_is_refused_with_nothing_changed(name: str, call: str) -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(10), 1)
    store.update_committed(1, 4)
    store.flush()
    before = disk.image()
    with pytest.raises(Rejected):
        getattr(store, call)(HOSTILE[name])
    assert disk.image() == before
    assert (store.begin_index, store.end_index, store.end_term, store.committed_index) == (0, 9, 1, 4)
    store.append_entry(NEXT)
    assert indexes(reopened(disk)) == [*bodies(10), b"hello-10"]


def test_an_entry_of_a_log_far_ahead_is_no_way_to_overwrite_this_one() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(10), 1)
    store.update_committed(1, 9)
    with pytest.raises(Rejected, match="entry 9 ends at 622"):
        store.truncate(Entry(99, 1, 300, b"x"))
    store.truncate(Entry(99, 1, 5000, b"x"))  # the leader has deleted all that this member has
    again = reopened(disk, "lost")
    assert (again.begin_index, again.end_index) == (99, 99)


def test_one_vote_a_term() -> None:
    store = opened(MemoryDisk())
    store.save_term(Term(5, None))
    store.save_term(Term(5, "n0"))
    store.save_term(Term(5, "n0"))
    for other in (Term(5, "n1"), Term(5, None), Term(4, "n0"), Term(2**70, "n0"), Term(6, "x\ncurrTerm=99")):
        with pytest.raises(Rejected):
            store.save_term(other)
    with pytest.raises(Rejected, match="the node is in term 5"):
        store.append([b"x"], 3)
    assert store.term == Term(5, "n0")


def test_a_closed_log_does_nothing() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.append(bodies(3), 1)
    store.close()
    before = disk.image()
    for call in (lambda: store.append([b"x"], 1), lambda: store.get(0), store.flush, store.destroy, store.clean):
        with pytest.raises(StoreClosed):
            call()
    store.close()
    assert disk.image() == before


def test_a_store_and_its_members_log_exclude_each_other(tmp_path: Path) -> None:
    config = StoreConfig(log_file_size=4096, dledger=LedgerConfig(index_file_size=640))
    with open_store(tmp_path, config) as store:
        store.put(Message("t", b"x"))
        with pytest.raises(StoreInUse):
            EntryStore(tmp_path / "dledger-n0")
    with EntryStore(tmp_path / "dledger-n0") as log:
        assert log.end_index == 0
        with pytest.raises(StoreInUse):
            open_store(tmp_path, config)
    open_store(tmp_path, config).close()


def test_a_fork_has_nothing_of_it(tmp_path: Path) -> None:
    """The child has the files open, but not the lock."""
    with EntryStore(tmp_path / "dledger-n0", SMALL) as store:
        store.append(bodies(3), 1)
        store.flush()
        child = os.fork()
        if not child:
            refused = 0
            for call in (
                lambda: store.append([b"x"], 1),
                store.flush,
                store.destroy,
                lambda: store.save_term(Term(9, None)),
            ):
                try:
                    call()
                except StoreClosed:
                    refused += 1
            store.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        with pytest.raises(StoreInUse):
            EntryStore(tmp_path / "dledger-n0")
        store.append(bodies(1, 3), 1)
        assert indexes(store) == bodies(4)


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupt_at_any_line_of_an_append_leaves_whole_entries(seed: int) -> None:
    at = seed
    while True:
        at += 3
        disk = MemoryDisk()
        store = opened(disk)
        store.append(bodies(2), 1)
        interrupt = Interrupt(at, is_real=True)
        interrupt.call(lambda: store.append(bodies(6, 2), 2))  # noqa: B023
        count = store.end_index + 1
        assert indexes(store) == bodies(count), interrupt.place
        assert store.end_term == (2 if count > 2 else 1), interrupt.place
        store.append([b"next"], 3)
        assert indexes(reopened(disk)) == [*bodies(count), b"next"], interrupt.place
        if interrupt.place is None:
            break
    assert at > 100


@pytest.mark.parametrize(
    "setting",
    [{"data_file_size": 10}, {"data_file_size": 2**31}, {"data_file_size": "256"}, {"index_file_size": 100},
     {"index_file_size": 0}, {"on_middle_damage": "perhaps"}, {"data_paths": "/a"}, {"checkpoint_interval_ms": None}],
    ids=str,
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(Rejected):
        EntryStoreConfig(**setting)  # type: ignore[arg-type]
