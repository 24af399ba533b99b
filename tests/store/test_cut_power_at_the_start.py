"""The power goes in the first moments of a store: queue entries are on the disk already, and the records that they lead
to are not.  That is no other store's log.
"""

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.store import open_store
from rmqstore.snapshot import open_snapshot
from tests.crash.disks import MemoryDisk

CONFIG = StoreConfig(log_file_size=8192, queue_file_size=400, preallocate=False, statistics=False, index_enabled=False)
LOG = "/s/commitlog/00000000000000000000"


def after_cut(kept: int, lost_queues: set[str]) -> MemoryDisk:
    """What is left of five messages in five queues: `kept` of their records, and all queues but the lost ones."""
    disk = MemoryDisk()
    store = open_store("/s", CONFIG, filesystem=disk, clock=ManualClock(), workers=False)
    ends = []
    for number in range(5):
        answer = store.put(Message(f"T{number}", b"%d" % number))
        ends.append(answer.physical_offset + answer.size)
        store.flush()
    store.abandon()
    left = MemoryDisk()
    for path, data in disk.image().items():
        if not any(path.startswith(f"/s/consumequeue/{queue}/") for queue in lost_queues):
            end = ends[kept - 1] if kept else 0
            left.put_file(path, data[:end].ljust(len(data), b"\0") if path == LOG else data)
    return left


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("lost", [{"T0"}, {"T0", "T1"}, {"T0", "T1", "T2", "T3", "T4"}, {"T2"}], ids=sorted)
def test_what_the_log_has_is_there_and_nothing_else(kept: int, lost: set[str]) -> None:
    left = after_cut(kept, lost)
    with open_store("/s", CONFIG, filesystem=left, clock=ManualClock(), workers=False) as store:
        found = [message.body for number in range(5) for message in store.get(f"T{number}", 0, 0).messages]
        assert found == [b"%d" % number for number in range(kept)]


@pytest.mark.parametrize("kept", [1, 3])
def test_a_reader_does_not_call_it_two_stores(kept: int) -> None:
    rows = open_snapshot("/s", disk=after_cut(kept, {"T0"})).scan(fail_on_data_loss=False)
    assert rows.read_all()["body"].to_pylist() == [b"%d" % number for number in range(kept)]
