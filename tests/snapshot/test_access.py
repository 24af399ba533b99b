"""`access`: which files are mapped, whatever is asked of them."""

import errno
import mmap
import os
from pathlib import Path
from typing import Self

import pytest

from rmqstore import Message, Snapshot, StoreConfig, open_snapshot, open_store
from rmqstore.directory.index_files import index_files
from rmqstore.files import reading
from rmqstore.formats import index

pytestmark = pytest.mark.stores


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of 400 messages with keys, in several index and log files."""
    path = tmp_path_factory.mktemp("access") / "store"
    config = StoreConfig(preallocate=False, log_file_size=32 * 1024, index_slot_count=20, index_item_count=150)
    with open_store(path, config, workers=False) as store:
        for number in range(400):
            store.put(Message("orders", b"x" * 100, queue_id=number % 2, tags="paid", keys=[f"k-{number % 50}"]))
    return path


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each mapping that is made."""
    made: list[int] = []

    class Noted(mmap.mmap):
        def __new__(cls, *how: int, **more: int) -> Self:
            made.append(1)
            return super().__new__(cls, *how, **more)

    monkeypatch.setattr(reading.mmap, "mmap", Noted)
    return made


def answers(snapshot: Snapshot, **how: str) -> list[object]:
    """What is asked by key, time, place and lag, and of the tables."""
    stored = snapshot.message_at(0).store_timestamp
    first_ms = round(stored.timestamp() * 1000)
    return [
        snapshot.index_offsets("orders", "k-7"),
        snapshot.query("orders", "k-8"),
        snapshot.offset_at("orders", 0, first_ms),
        snapshot.scan(["orders"], keys=("k-7",), **how).read_all(),
        snapshot.scan(["orders"], tags=("paid",), start_time=first_ms, **how).read_all(),
        *(snapshot.table(name) for name in ("queues", "files")),
    ]


def test_pread_maps_nothing_and_answers_the_same(keyed: Path, mapped: list[int]) -> None:
    theirs = answers(open_snapshot(keyed, access="pread"))
    assert not mapped
    assert answers(open_snapshot(keyed, access="mmap")) == theirs
    assert mapped
    assert len(theirs[0]) == 8
    assert len(theirs[3]) == 8


def test_a_scan_by_pread_maps_nothing_of_a_store_that_was_opened_otherwise(keyed: Path, mapped: list[int]) -> None:
    snapshot = open_snapshot(keyed, access="auto")
    mapped.clear()
    assert snapshot.scan(["orders"], keys=("k-7",), access="pread").read_all().num_rows == 8
    assert not mapped


def test_sizes_of_an_index_file_are_told_alike_by_pread(keyed: Path) -> None:
    stores = [open_snapshot(keyed, access=how).stores[0] for how in ("pread", "mmap")]
    by_pread, by_mmap = (index_files(store.disk, store.path, store.maps_index) for store in stores)
    assert by_pread == by_mmap
    assert len(by_pread) > 1


def test_of_an_index_file_of_the_usual_size_only_parts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """420 MB in a broker: the first look-up sees whether items and slots agree, the next ones read what they follow."""
    config = StoreConfig(preallocate=False, index_slot_count=50_000, index_item_count=200_000)
    monkeypatch.setattr(index, "DEFAULT_SLOT_COUNT", 50_000)
    monkeypatch.setattr(index, "DEFAULT_ITEM_COUNT", 200_000)
    with open_store(tmp_path / "store", config, workers=False) as store:
        for number in range(20):
            store.put(Message("orders", b"x", queue_id=0, keys=[f"k-{number}"]))
    read: list[int] = []
    really = reading.OpenFile.read

    def noted(self: reading.OpenFile, position: int, size: int) -> bytes:
        read.append(size if "/index/" in self.path else 0)
        return really(self, position, size)

    monkeypatch.setattr(reading.OpenFile, "read", noted)
    snapshot = open_snapshot(tmp_path / "store", access="pread")
    assert len(snapshot.query("orders", "k-3")) == 1
    assert 0 < sum(read) < 4 * 50_000 + 10_000
    read.clear()
    assert len(snapshot.query("orders", "k-4")) == 1
    assert 0 < sum(read) < 10_000


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENODEV], ids=["no room", "no such file system"])
def test_a_file_that_cannot_be_mapped_is_read(keyed: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A limit of the address space, or a file system that maps nothing, is no loss of data."""
    theirs = answers(open_snapshot(keyed, access="pread"))

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(reading.mmap, "mmap", refused)
    assert answers(open_snapshot(keyed, access="auto")) == theirs
    assert answers(open_snapshot(keyed, access="mmap")) == theirs
