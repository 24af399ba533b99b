"""Stores on a disk that is really small: `python -m tests.store.small_disk DIRECTORY SCENARIO`.

`test_small_disk.py` mounts the disk and runs this in it.  Prints what came out as JSON.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import DataLost
from rmqstore.snapshot import open_snapshot

MIB = 1024 * 1024
CONFIG = StoreConfig(
    log_file_size=MIB, queue_file_size=20_000, index_slot_count=100, index_item_count=1000, default_queue_nums=1,
)  # fmt: skip
BODY_SIZE = 32 * 1024
PUTS_PER_STEP = 8
READER_BEGINS = 300  # a reader that then looks away while everything is deleted
STEP_MS = 10_000


def retained(root: str) -> dict[str, object]:
    """Three times as much as the disk holds goes through it: forced cleaning makes room, and readers see no hole."""
    clock = ManualClock()
    config = replace(CONFIG, retention=True)
    statuses: dict[str, int] = {}
    fullest, firsts = 0.0, [0]
    with open_store(root, config, clock=clock, workers=False) as store:
        reader: Iterable[pa.RecordBatch] = ()
        for number in range(3 * _disk_size(root) // BODY_SIZE):
            status = store.put(_message(number)).status
            statuses[status.name] = statuses.get(status.name, 0) + 1
            fullest = max(fullest, _used(root))
            if number % PUTS_PER_STEP == 0:
                clock.advance(STEP_MS)
                store.step()
                firsts.append(store.bounds("orders", 0)[0])
            if number == READER_BEGINS:
                reader = open_snapshot(root).scan(["orders"], columns=["queueOffset", "body"], batch_rows=1)
                next(iter(reader))
        for _ in range(50):  # a round is done a piece at a time
            clock.advance(STEP_MS)
            store.step()
        seen = _numbers(store)
        plans = _planned_is_done(store, root)
        last = statuses["PUT_OK"] - 1
    with open_store(root, config, clock=clock, workers=False) as store:
        again = _numbers(store)
    return {
        "statuses": statuses, "fullest": fullest, "rose": firsts == sorted(firsts), "first": firsts[-1],
        "whole": seen == list(range(seen[0], last + 1)), "again": again == list(range(again[0], last + 1)),
        "reader": _rest_of(reader), **plans,
    }  # fmt: skip


def filled(root: str) -> dict[str, object]:
    """Without retention the disk fills up: what was acknowledged stays, and what is freed is used again."""
    statuses: dict[str, int] = {}
    accepted = 0
    with open_store(root, CONFIG, workers=False) as store:
        while statuses.get("CREATE_MAPPED_FILE_FAILED", 0) < 3:
            status = store.put(_message(accepted)).status
            statuses[status.name] = statuses.get(status.name, 0) + 1
            accepted += status is PutStatus.PUT_OK
            store.step()
        whole = _numbers(store) == list(range(accepted))
        store.clean(any_age=True)
        after = store.put(_message(accepted)).status.name
    with open_store(root, CONFIG, workers=False) as store:
        again = _numbers(store)
    return {
        "statuses": statuses, "accepted": accepted, "whole": whole, "after": after,
        "again": again == list(range(again[0], accepted + 1)), "first": again[0],
    }  # fmt: skip


def _message(number: int) -> Message:
    return Message("orders", str(number).encode().ljust(BODY_SIZE, b"."), keys=str(number), queue_id=0)


def _numbers(store: Store) -> list[int]:
    """The numbers of all messages, in the order of their queue, each found where it should be."""
    store.flush()
    numbers = []
    offset, end = store.bounds("orders", 0)
    while offset < end:
        for message in store.get("orders", 0, offset).messages:
            assert message.queue_offset == offset
            assert message.body is not None
            numbers.append(int(message.body.rstrip(b".")))
            offset += 1
    assert [found.keys for found in store.query("orders", str(numbers[-1]))] == [str(numbers[-1])]
    return numbers


def _planned_is_done(store: Store, root: str) -> dict[str, object]:
    """Whether a forced cleaning deletes what its plan says, and nothing else."""
    plan = store.clean(any_age=True, dry_run=True)
    before = _files(root)
    done = store.clean(any_age=True)
    gone = before - _files(root)
    planned = {file.path for file in plan.log_files} | {path for queue in plan.queues for path in queue.paths}
    planned |= {file.path for file in plan.index_files}
    return {"planned": len(planned), "plan": bool(planned) and gone == planned and done.as_dict() == plan.as_dict()}


def _files(root: str) -> set[str]:
    """Paths of the files of log, queues and index."""
    found = set()
    for part in ("commitlog", "consumequeue", "index"):
        for directory, _, names in os.walk(os.path.join(root, part)):
            found |= {os.path.join(directory, name) for name in names}
    return found


def _rest_of(reader: Iterable[pa.RecordBatch]) -> str:
    """How a scan ends whose files were deleted meanwhile."""
    try:
        offsets = [offset for batch in reader for offset in batch["queueOffset"].to_pylist()]
    except DataLost as lost:
        return str(lost)
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    return "all"


def _disk_size(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_blocks * disk.f_frsize


def _used(path: str) -> float:
    disk = os.statvfs(path)
    return 1 - disk.f_bavail / disk.f_blocks


SCENARIOS: dict[str, Callable[[str], dict[str, object]]] = {"retained": retained, "filled": filled}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[2]](sys.argv[1])))  # noqa: T201
