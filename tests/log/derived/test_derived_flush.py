"""What is derived from the log becomes durable in an order in which the checkpoint never says too much."""

import errno

import pytest

from rmqstore.core.message import Message
from rmqstore.errors import DurabilityLost
from tests.crash.disks import FailingDisk, MemoryDisk, Operation, WatchedDisk
from tests.crash.workload import ASYNC, open_again

QUEUE = "/store/consumequeue/orders/0/00000000000000000000"
CHECKPOINT = "/store/checkpoint"


def flushed_store(disk: WatchedDisk) -> None:
    store = open_again(disk, ASYNC)
    store.put(Message("orders", b"body", keys="key"))
    store.flush()


def test_queues_are_on_the_disk_before_the_checkpoint_speaks_of_them() -> None:
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    flushed_store(watched)
    assert watched.trace is not None
    done = [(each.verb, each.path) for each in watched.trace if each.path in (QUEUE, CHECKPOINT)]
    done = done[done.index(("create", QUEUE)) :]  # before it the checkpoint speaks of nothing
    synced = [number for number, each in enumerate(done) if each == ("sync", QUEUE)]
    assert synced, "the queue was never synced"
    assert ("write", QUEUE) not in done[synced[-1] :]
    assert synced[-1] < done.index(("write", CHECKPOINT)), "the checkpoint was written first"


def test_a_queue_that_cannot_be_synced_leaves_the_checkpoint_as_it_was() -> None:
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    flushed_store(watched)
    assert watched.trace is not None
    failing = [each for each in watched.trace if each.path == QUEUE and each.verb == "sync"]
    assert failing
    written: list[Operation] = []

    class Watching(FailingDisk):
        def before(self, operation: Operation) -> None:
            super().before(operation)
            if operation.path == CHECKPOINT and self.failed is not None:
                written.append(operation)

    disk = Watching(MemoryDisk(), failing[-1].number, errno.EIO)
    with pytest.raises(DurabilityLost, match="Input/output error"):
        flushed_store(disk)
    assert written == []
