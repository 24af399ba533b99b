"""A store of ours, written by several threads that never stop: `python -m tests.conformance.killed_writer PATH
FIRST`.

Says on standard output, a line each, what was acknowledged: number, physical offset, queue offset.  To be killed.
"""

import itertools
import os
import sys
import threading

from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.store import open_store
from tests.conformance.workload import SIZES

THREADS = 4
QUEUES = 3
TOPIC = "acked"


def body_of(number: int) -> bytes:
    """The body of message `number`: what an acknowledgement is checked by."""
    return f"{number}:".encode() + b"x" * (1 + number % 700)


def main(path: str, first: int) -> None:
    """Puts messages numbered from `first` on, until it is killed."""
    numbers = itertools.count(first)
    with open_store(path, StoreConfig(**SIZES, flush="SYNC")) as store:

        def write() -> None:
            for number in numbers:
                sent = Message(TOPIC, body_of(number), f"t{number % 5}", f"k{number}", queue_id=number % QUEUES)
                result = store.put(sent)
                if result.status is PutStatus.PUT_OK:
                    os.write(1, f"{number} {result.physical_offset} {result.queue_offset}\n".encode())

        threads = [threading.Thread(target=write, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
