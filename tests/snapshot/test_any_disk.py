"""A store is read in the same way on whatever disk it lies, and a split takes its disk along."""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.disk import DirectoryEntry, PlainDisk, ReadableDisk
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot import ScanRequest, SplitBudget, open_snapshot, read_split
from rmqstore.snapshot.tables.tables import SCHEMAS
from tests.crash.disks import MemoryDisk
from tests.golden.cases import BROKER_CASES
from tests.log.recovering import ROOT
from tests.snapshot.read_disk import DOORS, ReadDisk, copied, found_by_verify, scanned, small_disk, table_of

pytestmark = pytest.mark.stores


@pytest.fixture(scope="module", params=["closed", "killed"])
def memory(request: pytest.FixtureRequest) -> MemoryDisk:
    return small_disk(is_killed=request.param == "killed")


def on_host(memory: MemoryDisk, top: Path) -> str:
    """The same files on the host's disk; the root of the store there."""
    for path, data in memory.image().items():
        place = Path(f"{top}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        os.utime(place, (memory.now_ms / 1000, memory.now_ms / 1000))
    return f"{top}{ROOT}"


@pytest.mark.parametrize("door", DOORS)
def test_answers_are_the_same_on_every_disk(memory: MemoryDisk, door: str, tmp_path: Path) -> None:
    image, operations, disk = memory.image(), memory.operations, ReadDisk(memory)
    host = on_host(memory, tmp_path)
    answer = DOORS[door](disk, ROOT)
    assert str(answer) == str(DOORS[door](LOCAL, host)).replace(host, ROOT)
    assert disk.count >= 5
    assert disk.open_count == 0
    assert (memory.image(), memory.operations) == (image, operations)


class _Elsewhere(PlainDisk):
    """A disk that any process finds by its name, as a split's must be."""

    held: MemoryDisk

    def __reduce__(self) -> str:
        return "ELSEWHERE"

    def __getattr__(self, name: str) -> Any:
        return getattr(_Elsewhere.held, name)

    def entries(self, directory: str) -> Sequence[DirectoryEntry]:
        return _Elsewhere.held.entries(directory)


ELSEWHERE = _Elsewhere()


@pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
def test_a_split_takes_its_disk_along(memory: MemoryDisk, mode: Any) -> None:
    _Elsewhere.held = memory
    request = ScanRequest(scan_mode=mode, columns=("body",))
    snapshot = open_snapshot(ROOT, disk=ELSEWHERE)
    splits = snapshot.plan(snapshot.select(pattern="T.*"), request, SplitBudget(min_partitions=3))
    for split in splits:
        again = pickle.loads(pickle.dumps(split))
        assert again.disk is ELSEWHERE
        assert [batch.to_pylist() for batch in read_split(again, request)] == [
            batch.to_pylist() for batch in read_split(split, request)
        ]


def test_the_hosts_disk_is_pickled_by_its_name() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(LOCAL, protocol)
        assert pickle.loads(data) is LOCAL
        assert len(data) < 60


@pytest.mark.some(6)
@pytest.mark.parametrize("case", [case for case in BROKER_CASES if not case.startswith("rocksdb-")])
def test_a_brokers_own_store_is_the_same_on_every_disk(case: str, store_of: Callable[[str], Path]) -> None:
    """But for tables in RocksDB, which is read on this host alone."""
    host = store_of(case)
    memory = copied(host)

    def told(disk: ReadableDisk, root: str) -> Iterator[str]:
        yield str(found_by_verify(disk, root))
        snapshot = open_snapshot(root, disk=disk)
        for name in SCHEMAS:
            yield str(table_of(snapshot, name)).replace(str(host), ROOT)
        yield str(scanned(snapshot, columns="*")).replace(str(host), ROOT)

    assert list(told(ReadDisk(memory), ROOT)) == list(told(LOCAL, str(host)))
