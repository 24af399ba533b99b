"""A store of some log files, and what may be done to one of them."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from rmqstore.formats.names import format_start
from tests.snapshot.small_store import SmallStore, small_store

FILE_SIZE = 4096
COUNT = 100
TWO_WAYS = pytest.mark.parametrize("access", ["mmap", "pread"])


def delete(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    os.truncate(file, 1000)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def overwrite(file: Path) -> None:
    """The same file, other bytes."""
    with file.open("r+b") as opened:
        opened.write(bytes(FILE_SIZE))


LOG_FILES = {"first": 0, "middle": FILE_SIZE, "newest": 2 * FILE_SIZE}


def log_file(root: Path, name: str) -> Path:
    return root / "commitlog" / format_start(LOG_FILES[name])


def stored(tmp_path: Path) -> tuple[SmallStore, Path]:
    store = small_store(COUNT)
    assert sorted(store.data) == sorted(LOG_FILES.values())
    return store, store.write(tmp_path)


def bodies(table: pa.Table) -> set[bytes]:
    return set(table["body"].to_pylist())


def expected(store: SmallStore, begin: int, stop: int) -> set[bytes]:
    """Bodies of the messages that do not stand in [begin, stop) of the log."""
    return {b"body %d" % number for number, at in enumerate(store.offsets) if not begin <= at < stop}
