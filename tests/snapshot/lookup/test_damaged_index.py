"""Damage of index files never costs a row: what the chains lose is read from the log."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.directory import index_files
from rmqstore.files.reading import OpenFile
from rmqstore.formats import index, java_hash
from rmqstore.formats.index import FILE_SIZE_MAX
from rmqstore.formats.index_table import finds_all
from rmqstore.snapshot.plan import key_pruning
from rmqstore.snapshot.plan.key_pruning import prune_by_keys
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.verify import verify
from tests.formats.index_writer import written

pytestmark = pytest.mark.stores

SLOTS, ITEMS, COUNT = 40, 60, 150
KEYS = [f"k{number}" for number in range(COUNT)]
Damage = Callable[[bytearray], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three index files: 59 keys each."""
    root = tmp_path_factory.mktemp("made") / "store"
    config = StoreConfig(log_file_size=65536, index_slot_count=SLOTS, index_item_count=ITEMS)
    with open_store(root, config) as store:
        for key in KEYS:
            store.put(Message("T", b"body of " + key.encode(), keys=key))
    assert len(list((root / "index").iterdir())) == 3
    return root


def slot(number: int, value: int) -> Damage:
    return lambda data: struct.pack_into(">i", data, index.HEADER.size + 4 * number, value)


def item(number: int, field: str, value: int) -> Damage:
    kind = ">q" if field == "physical_offset" else ">i"
    place = index.file_size(SLOTS, number) + index.ITEM.offset[field]
    return lambda data: struct.pack_into(kind, data, place, value)


def header(field: str, value: int) -> Damage:
    kind = ">i" if field.endswith("_count") else ">q"
    return lambda data: struct.pack_into(kind, data, index.HEADER.offset[field], value)


def slot_of(key: str) -> int:
    return java_hash.index_hash(f"T#{key}") % SLOTS


def all_slots(value: int) -> Damage:
    def change(data: bytearray) -> None:
        for number in range(0, SLOTS, 3):
            slot(number, value)(data)

    return change


DAMAGE: dict[str, Damage] = {
    "slots emptied": all_slots(0),
    "slots that lead far away": all_slots(0x01234567),
    "slots of -1": all_slots(-1),
    "a slot of an older item": slot(slot_of("k70"), 1),
    "a chain that ends early": item(50, "previous_item", 0),
    "a chain in a ring": item(20, "previous_item", 20),
    "a chain that leads into another": item(30, "previous_item", 1),
    "a hash": item(25, "key_hash", 17),
    "a hash below 0": item(25, "key_hash", -17),
    "a time below 0": item(40, "delay_s", -1),
    "a place in the log": item(33, "physical_offset", 5),
    "a lower count": header("index_count", 30),
    "no count": header("index_count", 0),
    "the first place": header("begin_offset", 7),
    "the last place": header("end_offset", 7),
    "a first time below 0": header("begin_timestamp_ms", -5),
    "a first time after the last": header("begin_timestamp_ms", 2**62),
    "a header cut short": lambda data: data.__delitem__(slice(20, None)),
    "nothing at all but a byte": lambda data: data.__delitem__(slice(1, None)),
    "nothing but zeros": lambda data: data.__setitem__(slice(None), bytes(len(data))),
    "items of zeros": lambda data: data.__setitem__(
        slice(index.file_size(SLOTS, 10), index.file_size(SLOTS, 40)), bytes(30 * index.ITEM.size)
    ),
}


def damaged(made: Path, tmp_path: Path, damage: Damage, numbers: tuple[int, ...]) -> rmqstore.Snapshot:
    """A copy of the store with some of its index files changed."""
    root = tmp_path / "store"
    for path in made.rglob("*"):
        if path.is_file():
            (root / path.relative_to(made)).parent.mkdir(parents=True, exist_ok=True)
            (root / path.relative_to(made)).write_bytes(path.read_bytes())
    for number in numbers:
        file = sorted((root / "index").iterdir())[number]
        data = bytearray(file.read_bytes())
        damage(data)
        file.write_bytes(data)
    return rmqstore.open_snapshot(root)


@pytest.mark.some(7)
@pytest.mark.parametrize("numbers", [(0,), (1,), (2,), (1, 2)])
@pytest.mark.parametrize("name", DAMAGE)
def test_every_key_is_found_in_spite_of(name: str, numbers: tuple[int, ...], made: Path, tmp_path: Path) -> None:
    snapshot = damaged(made, tmp_path, DAMAGE[name], numbers)
    for key in (*KEYS[::35], *KEYS[58:72:6]):
        assert [message.keys for message in snapshot.query("T", key)] == [key]
        assert snapshot.scan(["T"], keys=(key,), columns=["keys"]).read_all()["keys"].to_pylist() == [key]
    assert snapshot.query("T", "no such key") == []


@pytest.mark.parametrize("numbers", [(0,), (0, 1), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("is_renamed", [True, False], ids=["renamed", "removed"])
def test_keys_of_files_that_are_lost_are_found_and_told(
    numbers: tuple[int, ...], is_renamed: bool, made: Path, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(made, root)
    for file in [sorted((root / "index").iterdir())[number] for number in numbers]:
        file.rename(file.with_suffix(".old")) if is_renamed else file.unlink()
    snapshot = rmqstore.open_snapshot(root)
    for key in (*KEYS[::13], *KEYS[56:62], *KEYS[116:120]):
        assert [message.keys for message in snapshot.query("T", key)] == [key]
        assert snapshot.scan(["T"], keys=(key,), columns=["keys"]).read_all()["keys"].to_pylist() == [key]
    with open_store(root) as store:
        lacks = [key for key in KEYS if not store.query("T", key)]
        told = [warning for warning in store.warnings if "remove index/" in warning]
    assert bool(told) == (numbers in ((0,), (0, 1)))
    assert bool(lacks) == (numbers in ((0,), (0, 1), (1,)))
    shutil.rmtree(root / "index")
    with open_store(root) as store:
        assert all(store.query("T", key) for key in KEYS)
        assert store.warnings == []


def test_many_keys_at_once_are_found_in_spite_of_damage(made: Path, tmp_path: Path) -> None:
    snapshot = damaged(made, tmp_path, DAMAGE["slots emptied"], (0, 2))
    assert snapshot.scan(["T"], keys=tuple(KEYS)).read_all().num_rows == COUNT


def test_only_the_part_of_the_log_of_a_damaged_file_is_read(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_pruning, "_GAP_ENTRIES", 1)
    whole = damaged(made, tmp_path / "a", lambda data: None, ())
    hurt = damaged(made, tmp_path / "b", DAMAGE["slots emptied"], (1,))
    counts = []
    for snapshot in (whole, hurt):
        pruned = prune_by_keys(snapshot.stores[0], snapshot.select(["T"]), ScanRequest(keys=("k3",)))
        counts.append(sum(part.end - part.start for part in pruned))
    assert counts[0] < 10
    assert 59 <= counts[1] < 59 + 20


def test_a_question_by_time_keeps_to_its_times(made: Path, tmp_path: Path) -> None:
    snapshot = damaged(made, tmp_path, DAMAGE["slots emptied"], (0, 1, 2))
    stored_ms = [
        row["storeTimestamp"] for row in snapshot.scan(["T"], columns=["storeTimestamp"]).read_all().to_pylist()
    ]
    last_ms = int(max(stored_ms).timestamp() * 1000)
    assert snapshot.query("T", "k5", begin_ms=last_ms + 10_000) == []
    assert len(snapshot.query("T", "k5", end_ms=last_ms)) == 1


def test_a_message_on_the_edge_of_two_files_is_found_once(tmp_path: Path) -> None:
    """Several keys of one message may stand in two files."""
    config = StoreConfig(log_file_size=65536, index_slot_count=8, index_item_count=8)
    with open_store(tmp_path / "made", config) as store:
        for number in range(12):
            store.put(Message("T", b"body", keys=[f"a{number}", f"b{number}", f"c{number}"]))
    for hurt in range(len(list((tmp_path / "made" / "index").iterdir()))):
        snapshot = damaged(tmp_path / "made", tmp_path / str(hurt), slot_zero, (hurt,))
        for number in range(12):
            for letter in "abc":
                assert len(snapshot.index_offsets("T", f"{letter}{number}")) == 1


def slot_zero(data: bytearray) -> None:
    data[index.HEADER.size : index.HEADER.size + 8 * 4] = bytes(8 * 4)


def test_a_file_is_checked_once(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = damaged(made, tmp_path, lambda data: None, ())
    calls: list[int] = []
    monkeypatch.setattr(index_files.index_table, "finds_all", lambda *_: calls.append(1) or True)
    for _ in range(3):
        snapshot.query("T", "k1")
    assert len(calls) <= 3


@pytest.mark.parametrize("count", [1, 2, 20, 59])
def test_a_search_of_a_sound_file_finds_all(count: int) -> None:
    data = bytes(written(SLOTS, ITEMS, [f"t#{number % 7}" for number in range(count)]).data)
    assert finds_all(data, SLOTS)


def test_an_index_file_larger_than_any_is_not_read_to_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, StoreConfig(log_file_size=65536, preallocate=False), workers=False) as store:
        for number in range(20):
            store.put(Message("t", b"%d" % number, keys=[f"k{number}"]))
    (path,) = (tmp_path / "index").iterdir()
    os.truncate(path, FILE_SIZE_MAX + 1 - (FILE_SIZE_MAX + 1 - 40) % 4 + 4)
    reads: list[int] = []
    read = OpenFile.read
    monkeypatch.setattr(OpenFile, "read", lambda file, at, size: reads.append(size) or read(file, at, size))
    snapshot = open_snapshot(tmp_path, access="pread")
    assert snapshot.scan(["t"], keys=["k7"]).read_all()["body"].to_pylist() == [b"7"]
    assert "fits no number of slots" in " ".join(found.reason for found in verify(snapshot.stores[0]))
    assert max(reads) < 100 * 1024 * 1024
