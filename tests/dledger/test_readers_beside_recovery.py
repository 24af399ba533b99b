"""What readers see of a store on a DLedger log while its owner opens it again after a crash."""

import pytest

from rmqstore import open_store
from rmqstore.clock import ManualClock
from rmqstore.errors import StoreChanging
from rmqstore.formats.names import QueueKey
from rmqstore.snapshot.survey.survey import survey
from tests.crash.disks import MemoryDisk
from tests.crash.workload import Moments
from tests.dledger.ledgers import LEDGER, put

pytestmark = pytest.mark.stores

ROOT = "/store"


def ends(disk: MemoryDisk) -> dict[QueueKey, int]:
    return {key: queue.max_offset for key, queue in survey(disk, ROOT).queues.items()}


@pytest.mark.parametrize("how", ["killed", "closed and marked as open"])
def test_no_queue_ends_earlier_than_before_at_any_moment(how: str) -> None:
    """What the queues listed counts as agreed on; an opening that cuts them, to write them again from the log, has the
    checkpoint say so first.  A stream would take the store for another one."""
    disk = MemoryDisk()
    store = open_store(ROOT, LEDGER, filesystem=disk, clock=ManualClock(), workers=False)
    put(store, 90)
    if how == "killed":
        store.abandon()
    else:
        store.close()
        disk.create(f"{ROOT}/abort", 0)
    for path in [path for path in disk.image() if "dledger-n0/checkpoint" in path]:
        disk.remove(path)
    disk.put_file(f"{ROOT}/checkpoint", bytes(4096))  # so that all is dispatched again
    before = ends(disk)
    assert sum(before.values()) == 90
    moments = Moments(disk, ["kept"], list)
    with open_store(ROOT, LEDGER, filesystem=moments, clock=ManualClock(), workers=False) as store:
        put(store, 3, "after")
    assert len(moments.taken) > 20
    looks = 0
    for operation, _, left, _ in moments.taken:
        try:
            now = ends(left)
        except StoreChanging:
            continue
        looks += 1
        assert all(now.get(key, 0) >= end for key, end in before.items()), (operation, before, now)
    assert looks > 20
