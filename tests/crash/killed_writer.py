"""Writers that are killed for real, again and again: `python -m tests.crash.killed_writer DIRECTORY CYCLES SEED LOG`.

LOG is `plain` or `ledger`, the kind of log that the stores have.

One process without threads forks a writer for each cycle, so that no cycle pays for imports.  The writer opens the
store, holds it against everything acknowledged so far, and puts from several threads with SYNC flush until it is killed
at a random moment; every acknowledgement goes into a pipe first.  What it found wrong goes into the pipe as well.
"""

import json
import os
import random
import shutil
import sys
import threading
from dataclasses import replace

from rmqstore.config import StoreConfig
from rmqstore.core.ledger_config import LedgerConfig
from rmqstore.core.message import GetStatus, Message, PutStatus
from rmqstore.engine.store import Store, open_store
from tests.crash.killed_child import told_until_killed

CONFIG = StoreConfig(
    flush="SYNC",
    log_file_size=16 * 1024,
    queue_file_size=2000,
    index_slot_count=50,
    index_item_count=100,
    flush_interval_ms=3,
    queue_flush_interval_ms=4,
)
CONFIGS = {"plain": CONFIG, "ledger": replace(CONFIG, dledger=LedgerConfig(index_file_size=6400))}
QUEUES = 3
THREADS = 3
# After so many kills a new store is begun: every opening reads all of it.
KILLS_PER_STORE = 12
Acked = dict[str, tuple[int, int]]  # body -> queue, queue offset


def verify(store: Store, acked: Acked) -> None:
    """Every acknowledged message is where its acknowledgement said, once; each queue is whole; every key is found."""
    for queue_id in range(QUEUES):
        offset, behind = store.bounds("orders", queue_id)
        while offset < behind:
            answer = store.get("orders", queue_id, offset)
            assert answer.status is GetStatus.FOUND, (queue_id, offset, answer.status)
            for message in answer.messages:
                assert message.queue_offset == offset
                assert message.is_whole, message.corrupt_reason
                assert message.body is not None
                body = message.body.rstrip(b".").decode()
                assert message.keys == body, (message.keys, body)
                place = acked.pop(body, None)
                assert place in (None, (queue_id, offset)), (body, place, queue_id, offset)
                offset += 1
        if behind:
            newest = store.get("orders", queue_id, behind - 1).messages[0]
            assert newest.keys is not None
            assert [found.keys for found in store.query("orders", newest.keys)] == [newest.keys]
    assert not acked, f"acknowledged and lost: {sorted(acked)[:5]}"


def write(root: str, config: StoreConfig, cycle: int, acked: Acked, pipe: int) -> None:
    """Opens, verifies, then puts until the end comes from outside."""
    store = open_store(root, config)
    verify(store, acked)
    os.write(pipe, b"ready\n")

    def produce(number: int) -> None:
        chance = random.Random(cycle * 100 + number)
        for count in range(1_000_000):
            body, queue_id = f"{cycle}-{number}-{count}", chance.randrange(QUEUES)
            content = body.encode().ljust(chance.choice((20, 100, 1000, 5000)), b".")
            result = store.put(Message("orders", content, keys=body, queue_id=queue_id))
            assert result.status is PutStatus.PUT_OK, result
            os.write(pipe, f"{body} {queue_id} {result.queue_offset}\n".encode())

    threads = [threading.Thread(target=produce, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise AssertionError(f"the writers ended: {store.health()}")


def cycle_of(root: str, config: StoreConfig, cycle: int, acked: Acked, chance: random.Random) -> str | None:
    """One writer and its end; takes its acknowledgements in.  Returns what went wrong, if anything."""
    lines, failure = told_until_killed(
        lambda pipe: write(root, config, cycle, dict(acked), pipe), chance, opening_share=0.25, opening_s=0.02,
        lines_max=25,
    )  # fmt: skip
    if failure is None:
        for line in lines:
            if line != "ready":
                body, queue_id, queue_offset = line.split(" ")
                acked[body] = int(queue_id), int(queue_offset)
    return failure


def main(directory: str, cycles: int, seed: int, log: str) -> dict[str, object]:
    """All cycles, until one fails."""
    chance = random.Random(seed)
    acked: Acked = {}
    total = 0
    for cycle in range(cycles):
        root = os.path.join(directory, f"store{cycle // KILLS_PER_STORE}")
        if cycle % KILLS_PER_STORE == 0:
            acked = {}
        before = len(acked)
        failure = cycle_of(root, CONFIGS[log], cycle, acked, chance)
        total += len(acked) - before
        if failure is not None:
            return {"cycles": cycle, "acknowledged": total, "failure": failure, "store": root}
        if cycle % KILLS_PER_STORE == KILLS_PER_STORE - 1:
            shutil.rmtree(root)
    return {"cycles": cycles, "acknowledged": total, "failure": None}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))  # noqa: T201
