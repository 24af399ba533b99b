"""Golden stores as a broker with storeType=defaultRocksDB has them: the entries of their queue files in a database."""

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import rocksdict

import rmqstore
from rmqstore.directory.queue_files import SIMPLE, find_queues, holds_message
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot.opening import open_stores
from tests.golden.rows import scanned

DATABASE = "consumequeue_rocksdb"


def move_into_rocksdb(store: Path, share: float = 1.0) -> None:
    """Takes the store's queue files away, and puts their entries into a database: those that lead into the first
    `share` of the log, as one that lags behind has them.
    """
    entries = list(entries_of_files(store))
    last = max(place for _, _, place in entries)
    shutil.rmtree(store / DATABASE, ignore_errors=True)
    with_database(store, {key: value for key, value, place in entries if place <= last * share})
    shutil.rmtree(store / "consumequeue")


def entries_of_files(store: Path) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, value and place in the log of each entry in a queue file, as RocksDB has them."""
    for queue in find_queues(LOCAL, str(store)):
        assert queue.kind == SIMPLE
        first = queue.first_slot()
        entries = queue.read(first, queue.written_end())
        for row in np.flatnonzero(holds_message(queue.kind, entries)).tolist():
            place = int(entries["physical_offset"][row])
            yield key_of(queue.topic, queue.queue_id, first + row), entries[row].tobytes() + bytes(8), place


def key_of(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """The key of an entry."""
    name = topic.encode()
    return struct.pack(f">i1s{len(name)}s1si1sq", len(name), b"\1", name, b"\1", queue_id, b"\1", queue_offset)


def with_database(store: Path, entries: dict[bytes, bytes]) -> None:
    """Puts entries into the database of a store's queues, which may be new."""
    database = rocksdict.Rdict(str(store / DATABASE), rocksdict.Options(raw_mode=True))
    for key, value in entries.items():
        database[key] = value
    database.flush()
    database.close()


def entries_of(store: Path) -> dict[bytes, bytes]:
    """All entries of the database of a store's queues."""
    database = rocksdict.Rdict(str(store / DATABASE), rocksdict.Options(raw_mode=True))
    found = dict(database.items())
    database.close()
    return found


def without_entries(store: Path, keys: list[bytes]) -> None:
    """Takes entries out of the database of a store's queues."""
    database = rocksdict.Rdict(str(store / DATABASE), rocksdict.Options(raw_mode=True))
    for key in keys:
        del database[key]
    database.flush()
    database.close()


def rows_of(store: Path, mode: str) -> list[dict[str, Any]]:
    """All rows of a store, damaged ones too."""
    return scanned(rmqstore.open_snapshot(store), scan_mode=mode, on_corrupt_record="null")


def reads_database(store: Path) -> bool:
    """Whether a reader goes by the entries in RocksDB."""
    return open_stores(str(store)).stores[0].database is not None


def bounds_of(store: Path, look: Callable[[str], Any] = open_stores) -> dict[tuple[str, int], tuple[int, int]]:
    """The bounds of all queues."""
    queues = look(str(store)).stores[0].queues
    return {key: (queue.min_offset, queue.max_offset) for key, queue in queues.items()}
