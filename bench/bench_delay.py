"""Delayed messages: how fast those that are due are delivered, and how late they come.

python -m bench.bench_delay
"""

import shutil
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa

from bench.figures import Figure
from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import PutStatus
from rmqstore.engine.broker.delay_delivery import LATENESS_BOUNDS_MS, PAUSE_S
from tests.broker.delaying import Delaying

LEVEL_COUNT, TOPIC, QUEUE_COUNT, BODY_SIZE, ROWS = 18, "BenchTopic", 4, 100, 50_000
PUT_MS = 1_000  # within so much of the store's time the messages are put
RATE_GOAL = 100_000.0
LATENESS_GOAL_MS = 200


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """1,000,000 messages, mixed over all levels: put, then delivered with a clock that goes as far as the work takes,
    and to the next moment at which something is due when there is none."""
    count = 1_000_000 // (16 if is_small else 1)
    clock = ManualClock()
    load = Delaying(str(scratch / "delay"), StoreConfig.broker(), clock)
    table = _table(min(ROWS, count))
    try:
        began = perf_counter()
        for first in range(0, count, ROWS):
            result = load.store.put_columns(table.slice(0, count - first))
            assert result.status is PutStatus.PUT_OK
            clock.advance(PUT_MS * ROWS // count)
        put_s = perf_counter() - began
        load.store.flush()
        busy_s = _deliver_all(load, count)
        assert load.delivery.delivered_count == count
        lateness = load.delivery.lateness_counts
    finally:
        load.close()
        shutil.rmtree(scratch / "delay")
    return [
        Figure(
            line=f"put_columns, {LEVEL_COUNT} delay levels",
            value=count / put_s / 1e6,
            unit="M messages/s",
        ),
        Figure(
            line=f"delivery of {count:,} delayed messages",
            value=count / busy_s / 1e3,
            unit="k messages/s",
            against=f"RocketMQ's rules, {LEVEL_COUNT} levels mixed in the log",
            judged=count / busy_s,
            goal=RATE_GOAL,
        ),
        Figure(
            line="lateness of delayed messages, p99",
            value=_p99_ms(lateness),
            unit="ms at most",
            against=f"a look every {PAUSE_S * 1000:.0f} ms; levels due at once: {count // LEVEL_COUNT:,} messages/s",
            judged=_p99_ms(lateness),
            goal=LATENESS_GOAL_MS,
            at_least=False,
        ),
    ]


def _table(rows: int) -> pa.Table:
    """Messages whose levels go round."""
    numbers = np.arange(rows)
    bodies = np.random.default_rng(1).bytes(rows * BODY_SIZE)
    offsets = (np.arange(rows + 1) * BODY_SIZE).astype(np.int32)
    body = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(bodies)])
    return pa.table(
        {
            "topic": pa.array([TOPIC]).dictionary_encode().take(pa.array(np.zeros(rows, np.int32))),
            "queueId": (numbers // LEVEL_COUNT % QUEUE_COUNT).astype(np.int32),
            "tags": pa.array(["TagA"] * rows),
            "keys": pa.array([f"key{number}" for number in numbers.tolist()]),
            "delayLevel": (numbers % LEVEL_COUNT + 1).astype(np.int32),
            "body": body,
        }
    )


def _deliver_all(load: Delaying, count: int) -> float:
    """Steps until all is delivered; seconds that the steps took, by which, and by their pauses, the clock goes on."""
    busy_s = 0.0
    delivery, clock = load.delivery, load.clock
    while delivery.pending_count:
        before, began = delivery.delivered_count, perf_counter()
        pause_s = delivery.step()
        taken_s = perf_counter() - began
        clock.advance(max(1, round((taken_s + pause_s) * 1000)))
        if delivery.delivered_count > before:
            busy_s += taken_s
        elif pause_s == PAUSE_S:
            _skip_idle(load)
    assert delivery.delivered_count == count
    return busy_s


def _skip_idle(load: Delaying) -> None:
    """Moves the clock on by whole pauses, to the last look before something is due."""
    dues = []
    for level, offset in load.delivery.offsets.items():
        queue = load.engine.parts.queues.find("SCHEDULE_TOPIC_XXXX", level - 1)
        if queue is not None and offset < queue.max_offset:
            dues.append(int(queue.read(offset, offset + 1)["tags_code"][0]))
    pause_ms = round(PAUSE_S * 1000)
    load.clock.advance(max(0, (min(dues, default=0) - load.clock.ms - 1) // pause_ms) * pause_ms)


def _p99_ms(counts: np.ndarray) -> float:
    """The upper bound of the class that the 99th percent falls into."""
    place = int(np.searchsorted(np.cumsum(counts), 0.99 * counts.sum()))
    return float(LATENESS_BOUNDS_MS[place]) if place < len(LATENESS_BOUNDS_MS) else float("inf")


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["delay"]))
