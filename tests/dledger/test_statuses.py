"""What a put to a store on a DLedger log is answered, beside what RocketMQ answers there (DLedgerCommitLog).

PUT_OK for SUCCESS and SERVICE_NOT_AVAILABLE for DISK_FULL are RocketMQ's.  Where no file can be made it says
OS_PAGE_CACHE_BUSY, as for whatever its node refuses at once; here it is the ordinary log's status, which tells why.
"""

import errno
from dataclasses import replace

import pyarrow as pa
import pytest

from rmqstore import Message, open_store
from rmqstore.clock import ManualClock
from rmqstore.core.message import PutStatus
from rmqstore.files.filesystem import DiskFile
from tests.crash.disks import MemoryDisk
from tests.dledger.ledgers import LEDGER, put

# A record of topic "t" has 92 bytes around its body, its entry 48, and 8 stay free for a blank.
LARGEST = 4096 - 8 - 48 - 92


def files(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.image().items() if "/dledger-n0/" in path}


@pytest.mark.parametrize("way", ["put", "put_batch", "put_columns"])
def test_what_no_file_can_hold_is_illegal_and_burns_none(way: str) -> None:
    """RocketMQ's node leaves two files of blanks behind for each try."""
    disk = MemoryDisk()
    with open_store("/store", LEDGER, filesystem=disk, clock=ManualClock(), workers=False) as store:
        put(store, 3)
        before = files(disk)

        def answer(body: bytes) -> PutStatus:
            if way == "put":
                return store.put(Message("t", body)).status
            if way == "put_batch":
                return store.put_batch([Message("t", body)]).status
            return store.put_columns(pa.table({"topic": ["t"], "body": [body]})).status

        for size in (LARGEST + 1, 2 * 4096):
            assert answer(bytes(size)) is PutStatus.MESSAGE_ILLEGAL
            assert files(disk) == before
        assert answer(b"x" * LARGEST) is PutStatus.PUT_OK
        store.flush()
        assert store.get("t", 0, 1).messages[-1].body == b"x" * LARGEST
        assert len([path for path in files(disk) if "/data/" in path]) == 2
        put(store, 3, "after")


def test_a_full_disk_is_service_not_available() -> None:
    class Disk(MemoryDisk):
        used = 0.1

        def used_ratio(self, path: str) -> float:
            return self.used

    disk, clock = Disk(), ManualClock()
    config = replace(LEDGER, retention=True)
    with open_store("/store", config, filesystem=disk, clock=clock, workers=False) as store:
        put(store, 3)
        disk.used = 0.95
        clock.advance(60_000)
        store.step()
        before = files(disk)
        result = store.put(Message("t", b"x"))
        assert (result.status, result.is_stored) == (PutStatus.SERVICE_NOT_AVAILABLE, False)
        assert "95%" in result.reason
        assert {path: data for path, data in files(disk).items() if "/data/" in path} == {
            path: data for path, data in before.items() if "/data/" in path
        }
        disk.used = 0.1
        for _ in range(10):
            clock.advance(60_000)
            store.step()
        put(store, 3, "after")


def test_where_no_file_can_be_made_the_next_put_tries_again() -> None:
    class Disk(MemoryDisk):
        is_full = False

        def create(self, path: str, size: int) -> DiskFile:
            if self.is_full and "/data/" in path:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return super().create(path, size)

    disk = Disk()
    config = replace(LEDGER, preallocate=False)
    with open_store("/store", config, filesystem=disk, clock=ManualClock(), workers=False) as store:
        put(store, 3)
        disk.is_full = True
        statuses = [store.put(Message("t", bytes(2000))).status for _ in range(4)]
        assert statuses[0] is PutStatus.PUT_OK
        assert set(statuses[1:]) == {PutStatus.CREATE_MAPPED_FILE_FAILED}
        disk.is_full = False
        put(store, 30, "after")
    with open_store("/store", config, filesystem=disk, clock=ManualClock(), workers=False) as store:
        assert sum(store.bounds("t", queue)[1] for queue in range(3)) == 34
        assert store.warnings == []


def test_a_closed_store_is_service_not_available() -> None:
    store = open_store("/store", LEDGER, filesystem=MemoryDisk(), clock=ManualClock(), workers=False)
    store.close()
    assert store.put(Message("t", b"x")).status is PutStatus.SERVICE_NOT_AVAILABLE
