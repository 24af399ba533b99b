"""What readers see of a store at each operation of the opening that recovers it."""

import random
from collections.abc import Mapping

import pytest

from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.errors import StoreError
from rmqstore.formats.names import QueueKey
from rmqstore.snapshot.survey.survey import survey
from tests.crash.disks import MemoryDisk
from tests.crash.strides import IS_WHOLE, stride
from tests.crash.workload import ASYNC, LEDGER, ROOT, SYNC, Moments

pytestmark = [pytest.mark.stores, pytest.mark.crash]

CONFIGS = {"sync": SYNC, "async": ASYNC, "ledger": LEDGER}
LOSSES = ("nothing", "a queue file", "entries of a queue", "all queues", "the record's last bytes", "checkpoints")
MODES = ("auto", "queue", "commitlog")
Rows = Mapping[QueueKey, list[tuple[int, bytes]]]


def killed(config: StoreConfig, rng: random.Random) -> MemoryDisk:
    """The disk that a program left which ended without closing, once or twice."""
    disk = MemoryDisk()
    for run in range(rng.choice((1, 2))):
        store = open_store(ROOT, config, filesystem=disk, clock=ManualClock(), workers=False)
        for number in range(rng.randrange(5, 50)):
            body = b"%d.%d " % (run, number) + b"x" * rng.choice((20, 200))
            message = Message(rng.choice(("alpha", "beta")), body, queue_id=rng.randrange(2), keys=["k"])
            assert store.put(message).is_stored
            if rng.random() < 0.1:
                store.step()
        if rng.random() < 0.5:
            store.flush()
        if run == 0 and rng.random() < 0.5:
            store.close()
        else:
            store.abandon()
        disk = disk.crash("killed")
    return disk


def lose(disk: MemoryDisk, loss: str, rng: random.Random) -> None:
    """Takes away what a power cut, or a hand, may have taken."""
    image = disk.image()
    queues = [path for path in image if "/consumequeue/" in path]
    if loss == "a queue file" and queues:
        disk.remove(rng.choice(queues))
    elif loss == "entries of a queue" and queues:
        path = rng.choice(queues)
        disk.put_file(path, image[path][: rng.randrange(0, len(image[path]), 20)].ljust(len(image[path]), b"\0"))
    elif loss == "all queues":
        for path in queues:
            disk.remove(path)
    elif loss == "checkpoints":  # so that all is dispatched again
        for path in image:
            if path.endswith("/dledger-n0/checkpoint"):
                disk.remove(path)
        disk.put_file(f"{ROOT}/checkpoint", bytes(4096))
    elif loss == "the record's last bytes":
        path = max(path for path in image if "/commitlog/" in path or "/data/" in path)
        data = image[path].rstrip(b"\0")
        disk.put_file(path, data[: max(len(data) - rng.randrange(1, 20), 0)].ljust(len(image[path]), b"\0"))


def rows(disk: MemoryDisk, mode: str) -> Rows:
    """What a reader sees of each queue.  Raises StoreError where it is told that something is missing."""
    snapshot = open_snapshot(ROOT, disk=disk)
    topics = sorted(set(snapshot.queues().column("topic").to_pylist()))
    found: dict[QueueKey, list[tuple[int, bytes]]] = {}
    if not topics:
        return found
    for batch in snapshot.scan(topics=topics, columns=["topic", "queueId", "queueOffset", "body"], scan_mode=mode):
        for row in batch.to_pylist():
            found.setdefault((row["topic"], row["queueId"]), []).append((row["queueOffset"], row["body"]))
    return found


def ends(disk: MemoryDisk) -> dict[QueueKey, int]:
    """Where the queues end for a stream."""
    return {key: queue.max_offset for key, queue in survey(disk, ROOT).queues.items()}


def begins(rows: Rows, beginning: Rows) -> bool:
    """Whether each queue of `rows` begins with what `beginning` has of it."""
    return all(rows.get(key, [])[: len(part)] == part for key, part in beginning.items())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("config", CONFIGS)
def test_no_reader_sees_less_than_before_without_being_told(config: str, loss: str) -> None:
    """At each operation a reader sees what it saw before, or is told; and nothing that is not there in the end.

    Of a DLedger log a reader sees what the group agreed on, which only the opening may know: there it may see more.
    """
    looks = 0
    for seed in range(stride(1, 3)):
        rng = random.Random(f"{config} {loss} {seed}")
        disk = killed(CONFIGS[config], rng)
        lose(disk, loss, rng)
        try:
            before, queue_ends = rows(disk, "auto"), ends(disk)
        except StoreError:
            continue
        moments = Moments(disk, ["kept"], list, quick=17)
        open_store(ROOT, CONFIGS[config], filesystem=moments, clock=ManualClock(), workers=False).close()
        after = rows(disk, "auto")
        for operation, _, left, _ in moments.taken:
            for mode in MODES:
                try:
                    now, now_ends = rows(left, mode), ends(left)
                except StoreError:
                    continue
                looks += 1
                assert begins(now, before), (seed, operation, mode)
                assert begins(after, now), (seed, operation, mode)
                assert all(now_ends.get(key, 0) >= end for key, end in queue_ends.items()), (seed, operation)
    assert looks or not IS_WHOLE  # some openings have fewer operations than a quick run's stride
