"""Queues whose entries stand in RocksDB alone are read from there, and give the rows that their files gave."""

from pathlib import Path

import pytest

from tests.golden.cases import FOLDERS, unpack
from tests.golden.rocksdb_queues import bounds_of, move_into_rocksdb, reads_database, rows_of

pytestmark = pytest.mark.stores

# One of each kind of store that has no queues of batches.
CASES = [
    case
    for case in (
        "basic-5.5.1", "basic-midflip-5.5.1", "batch-5.5.1", "crcprop-flip-5.5.1", "delay-5.5.1", "deleted_head-5.5.1",
        "killed-5.5.1", "killed-bodyflip-5.5.1", "killed-lagcq-5.5.1", "lite-5.5.1", "lite-killed-5.5.1", "lmq-5.5.1",
        "rocksindex-5.5.1", "sysflags-5.5.1", "broker-clean-4.9.8",
    )
    if case in FOLDERS
]  # fmt: skip
# A message in front of the newest entry has none: the queue files of a killed store lack some.
NOT_ALL_HAVE_ENTRIES = ("killed-lagcq-5.5.1",)
MODES = ("auto", "queue", "commitlog")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_rows_by_the_entries_of_a_database_are_those_by_files(case: str, mode: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    rows, bounds = rows_of(store, mode), bounds_of(store)
    move_into_rocksdb(store)
    assert reads_database(store) == (case not in NOT_ALL_HAVE_ENTRIES)
    assert rows_of(store, mode) == rows
    assert bounds_of(store) == bounds
