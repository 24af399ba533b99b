"""Writes messages into a store of its own until somebody kills it: python -m jobs.engine_writer STORE EXAMPLE

One line on standard output for every answer of the store: topic, physical offset, bytes, messages.  EXAMPLE is the
store whose topic `audit` is put as Arrow columns.
"""

import itertools
import sys
from collections.abc import Callable, Sequence

import rmqstore

ORDERS, PAYMENTS, AUDIT = "orders", "payments", "audit"
ORDERS_A_TURN, BATCH_SIZE, ROWS_A_TURN, TURNS_A_TABLE = 10, 16, 250, 5


def write(store: rmqstore.Store, example: str, answer: Callable[[str, rmqstore.PutResult], None]) -> None:
    """Puts orders one by one, payments in batches and audit as columns, in turns and without end.

    `answer` is called with the topic and the result of each put as soon as the store has answered.
    """
    rows = rmqstore.open_snapshot(example).scan([AUDIT], columns=["topic", "body", "tags", "keys"]).read_all()
    for turn in itertools.count():
        for number in range(turn * ORDERS_A_TURN, (turn + 1) * ORDERS_A_TURN):
            answer(ORDERS, store.put(_message(ORDERS, number)))
        first = turn * BATCH_SIZE
        batch = [_message(PAYMENTS, number) for number in range(first, first + BATCH_SIZE)]
        answer(PAYMENTS, store.put_batch(batch))
        if turn % TURNS_A_TABLE == 0:
            start = turn // TURNS_A_TABLE * ROWS_A_TURN % (rows.num_rows - ROWS_A_TURN)
            answer(AUDIT, store.put_columns(rows.slice(start, ROWS_A_TURN)))


def _message(topic: str, number: int) -> rmqstore.Message:
    body = f'{{"order":"e-{number}","topic":"{topic}"}}'.encode()
    return rmqstore.Message(topic, body, tags="new", keys=[f"e-{number}"])


def report(topic: str, result: rmqstore.PutResult) -> None:
    """Prints an answer.  Raises RuntimeError for one that is no acknowledgement."""
    if result.status is not rmqstore.PutStatus.PUT_OK:
        raise RuntimeError(f"{topic}: {result.status.value}")
    print(topic, result.physical_offset, result.size, result.message_count, flush=True)


def main(argv: Sequence[str]) -> None:
    """Opens the store and writes; ends only by a signal."""
    path, example = argv
    with rmqstore.open_store(path, rmqstore.StoreConfig.embedded(flush="SYNC")) as store:
        write(store, example, report)


if __name__ == "__main__":
    main(sys.argv[1:])
