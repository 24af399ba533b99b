"""Putting: Arrow columns, one by one, with the disk behind it, beside RocketMQ's own store; and how soon a message can
be read.

python -m bench.bench_put
"""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.figures import Figure, in_turns
from bench.java_reader import build_if_possible
from bench.java_writer import JavaWriter, Rates
from bench.synth import MIB
from rmqstore import aio
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.store import Store, open_store

ROUNDS = 3
Seconds = npt.NDArray[np.float64]
TOPIC, QUEUE_COUNT, BATCH_SIZE = "BenchTopic", 4, 256
SYNC_THREADS = 64
SYNC_TURN = 20
STEADY_RATE, READABLE_GOAL_MS = 20_000, 5.0
HELD_SHARE = 0.99  # of the steady rate, at least, or the line says that the load was not held


@dataclass(frozen=True, slots=True)
class Goals:
    """As multiples of Java's rates in the same run."""

    accepted: float | None
    dispatched: float | None


COLUMNS_GOALS, ONE_GOALS, SYNC_GOALS = Goals(0.8, 1.5), Goals(0.35, None), Goals(0.5, None)
TASKS_GOALS = Goals(1.0, None)
MANY, MANY_GOALS = 4096, {"ASYNC": 5.0, "SYNC": 20.0}  # as multiples of a loop of puts
BARE_SYNC_GOAL = 0.8


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """All figures.  Every pair of stores is written anew and removed again."""
    part = 16 if is_small else 1
    missing = build_if_possible()
    figures = []
    for size, count in ((100, 1_024_000 // part), (1024, 256_000 // part)):
        figures += columns_beside_java(scratch, size, count, missing)
    figures += one_by_one_beside_java(scratch, 256_000 // part, missing)
    figures += sync_beside_java(scratch, 64_000 // part, missing)
    figures += tasks_beside_java(scratch, 64_000 // part, missing)
    figures += many_beside_puts(scratch, 128_000 // part, "ASYNC") + many_beside_puts(scratch, 4_096, "SYNC")
    figures += sync_beside_bare_writes(scratch, 4_000 // part)
    figures += readable_latency(scratch, 2 if is_small else 10)
    return figures


def columns_beside_java(scratch: Path, body_size: int, count: int, missing: str) -> list[Figure]:
    """Tables of some MiB, beside putMessages in batches of 256: records of the same size with the same properties."""
    rows = min(count, 6 * MIB // body_size // BATCH_SIZE * BATCH_SIZE)
    table = bench_table(rows, body_size)
    config = StoreConfig.broker()

    def ours(store: Store) -> Rates:
        def put() -> None:
            for left in range(count, 0, -rows):
                result = store.put_columns(table.slice(0, min(rows, left)))
                assert result.status is PutStatus.PUT_OK

        return timed(store, put, count)

    def java(writer: JavaWriter) -> Rates:
        return writer.put_batches(count, body_size, BATCH_SIZE)

    line = f"put_columns {body_size} B"
    best = _beside(scratch, config, ours, java, missing)
    return _rates_figures(line, f"batches of {BATCH_SIZE}", body_size, best, missing, COLUMNS_GOALS)


def one_by_one_beside_java(scratch: Path, count: int, missing: str) -> list[Figure]:
    """One thread, ASYNC, a new Message each time."""

    def ours(store: Store) -> Rates:
        return timed(store, lambda: put_each(store, count, 100), count)

    best = _beside(scratch, StoreConfig.broker(), ours, lambda java: java.put(count, 100), missing)
    return _rates_figures("put 100 B, one thread", "putMessage", 100, best, missing, ONE_GOALS)


def sync_beside_java(scratch: Path, count: int, missing: str) -> list[Figure]:
    """SYNC from 64 threads: how well they share a sync."""

    def ours(store: Store) -> Rates:
        def put() -> None:
            threads = [
                threading.Thread(target=put_each, args=(store, count // SYNC_THREADS, 100)) for _ in range(SYNC_THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return timed(store, put, count // SYNC_THREADS * SYNC_THREADS)

    config = StoreConfig.broker(flush="SYNC")
    best = _beside(scratch, config, ours, lambda java: java.put(count, 100, SYNC_THREADS), missing)
    return _rates_figures(f"put 100 B SYNC, {SYNC_THREADS} threads", "putMessage", 100, best, missing, SYNC_GOALS)[:1]


def tasks_beside_java(scratch: Path, count: int, missing: str) -> list[Figure]:
    """SYNC from 64 tasks of one event loop, beside as many threads of Java."""
    store = aio.open_store(str(scratch / "tasks"), config := StoreConfig.broker(flush="SYNC"))
    writer = None if missing else JavaWriter(scratch / "java", config)
    seen: tuple[list[float], list[float]] = ([], [])

    async def rounds() -> None:
        async with store:
            for _ in range(ROUNDS + 1):
                began = perf_counter()
                await asyncio.gather(*[_put_each_in_task(store, count // SYNC_THREADS) for _ in range(SYNC_THREADS)])
                seen[0].append(count // SYNC_THREADS * SYNC_THREADS / (perf_counter() - began))
                if writer:
                    seen[1].append(writer.put(count, 100, SYNC_THREADS).accepted)

    try:
        asyncio.run(rounds())
    finally:
        if writer:
            writer.end()
        for name in ("tasks", "java"):
            shutil.rmtree(scratch / name, ignore_errors=True)
    rate, java = (max(rates[1:], default=0.0) for rates in seen)
    return [
        Figure(
            line=f"put 100 B SYNC, {SYNC_THREADS} tasks of asyncio",
            value=rate / 1e6,
            unit="M messages/s",
            against=f"Java putMessage, {SYNC_THREADS} threads {java / 1e6:.3f} M/s" if java else f"no Java: {missing}",
            judged=rate / java if java else None,
            goal=TASKS_GOALS.accepted,
        )
    ]


async def _put_each_in_task(store: aio.AsyncStore, count: int) -> None:
    body = bytes(range(100))
    for number in range(count):
        result = await store.put(_message(number, body))
        assert result.status is PutStatus.PUT_OK


def many_beside_puts(scratch: Path, count: int, flush: Literal["SYNC", "ASYNC"]) -> list[Figure]:
    """`put_many` of 4,096 messages, again and again, beside a loop of `put` over the same; all turns count."""
    times = max(count // MANY, 1)
    messages = [_message(number, bytes(range(100))) for number in range(MANY)]
    alone = messages if flush == "ASYNC" else messages[: MANY // 16]  # a sync each

    def put_many(store: Store) -> None:
        for _ in range(times):
            assert store.put_many(messages)[-1].status is PutStatus.PUT_OK

    def put_alone(store: Store) -> None:
        for _ in range(times):
            for message in alone:
                assert store.put(message).status is PutStatus.PUT_OK

    with _store(scratch / "many", StoreConfig.broker(flush=flush)) as store:
        put_many(store)  # warms up
        many_s, alone_s = in_turns(
            [lambda: _seconds(lambda: put_many(store)), lambda: _seconds(lambda: put_alone(store))], ROUNDS
        )
    rate, alone_rate = (ROUNDS * times * len(put) / sum(s) for put, s in ((messages, many_s), (alone, alone_s)))
    return [
        Figure(
            line=f"put_many 100 B {flush}, {MANY} at a time",
            value=rate / 1e6,
            unit="M messages/s",
            against=f"put in a loop {alone_rate / 1e3:.2f} k/s",
            judged=rate / alone_rate,
            goal=MANY_GOALS[flush],
        )
    ]


def sync_beside_bare_writes(scratch: Path, count: int) -> list[Figure]:
    """SYNC from one thread, beside a loop of pwrite and fdatasync of as many bytes into a file allocated alike.

    The time of a sync changes within a second: both take turns of a few puts, and all turns count.
    """
    body_size, turns = 100, count // SYNC_TURN
    with _store(scratch / "sync-one", StoreConfig.broker(flush="SYNC")) as store:
        record_size = store.put(_message(0, bytes(body_size))).size
        with _bare_file(scratch / "bare", (turns + 1) * SYNC_TURN * record_size) as write:
            data = bytes(record_size)
            taken, possible = in_turns(
                [
                    lambda: _seconds(lambda: put_each(store, SYNC_TURN, body_size)),
                    lambda: _seconds(lambda: [write(data) for _ in range(SYNC_TURN)]),
                ],
                turns,
            )
    rate, bare_rate = (turns * SYNC_TURN / sum(seconds) for seconds in (taken, possible))
    return [
        Figure(
            line="put 100 B SYNC, one thread",
            value=rate / 1e3,
            unit="k messages/s",
            against=f"pwrite + fdatasync {bare_rate / 1e3:.2f} k/s",
            judged=rate / bare_rate,
            goal=BARE_SYNC_GOAL,
        )
    ]


def readable_latency(scratch: Path, seconds: int) -> list[Figure]:
    """From the begin of a put to the moment at which `get` in another thread has brought the message."""
    count = STEADY_RATE * seconds
    put_at, seen_at = np.zeros(count), np.zeros(count)
    with _store(scratch / "latency", StoreConfig.broker()) as store:
        reader = threading.Thread(target=_read_all, args=(store, seen_at))
        reader.start()
        rate = _put_steadily(store, put_at)
        reader.join()
    taken_ms = np.sort((seen_at - put_at)[count // 10 :]) * 1000  # the first tenth warms up
    p50, p99 = (float(np.quantile(taken_ms, share)) for share in (0.5, 0.99))
    held = f"{rate / 1e3:.1f} k puts/s" + ("" if rate >= HELD_SHARE * STEADY_RATE else ", the load was NOT held")
    return [
        Figure(
            line="put to readable, p99",
            value=p99,
            unit="ms",
            against=f"{held}; p50 {p50:.2f} ms, worst {taken_ms[-1]:.1f} ms",
            judged=p99,
            goal=READABLE_GOAL_MS,
            at_least=False,
        )
    ]


def bench_table(rows: int, body_size: int) -> pa.Table:
    """The messages of the oracle's benchBatch as columns: 256 of one queue, then 256 of the next; random bodies."""
    numbers = np.arange(rows)
    bodies = np.random.default_rng(1).bytes(rows * body_size)
    body = pa.Array.from_buffers(
        pa.binary(),
        rows,
        [None, pa.py_buffer((np.arange(rows + 1) * body_size).astype(np.int32)), pa.py_buffer(bodies)],
    )
    return pa.table(
        {
            "topic": pa.array([TOPIC]).dictionary_encode().take(pa.array(np.zeros(rows, np.int32))),
            "queueId": (numbers // BATCH_SIZE % QUEUE_COUNT).astype(np.int32),
            "tags": pa.array(["TagA"] * rows),
            "keys": pa.array([f"key{number % BATCH_SIZE}" for number in range(rows)]),
            "properties": pa.array([[("WAIT", "true")]] * rows, pa.map_(pa.string(), pa.string())),
            "body": body,
        }
    )


def put_each(store: Store, count: int, body_size: int) -> None:
    """Puts `count` messages one by one, as the oracle's benchPut does."""
    body = bytes(range(256)) * (body_size // 256) + bytes(range(body_size % 256))
    put = store.put
    for number in range(count):
        result = put(_message(number, body))
        assert result.status is PutStatus.PUT_OK


def timed(store: Store, put: Callable[[], None], count: int) -> Rates:
    """Rates of an action that puts `count` messages: until it returns, and until all of them are dispatched."""
    began = perf_counter()
    put()
    accepted = perf_counter() - began
    while store.health().dispatch_behind_bytes > 0:
        sleep(0.001)
    return Rates(count / accepted, count / (perf_counter() - began))


def _message(number: int, body: bytes) -> Message:
    return Message(TOPIC, body, tags="TagA", keys=f"key{number}", queue_id=number % QUEUE_COUNT, born_timestamp_ms=1)


def _beside(
    scratch: Path,
    config: StoreConfig,
    ours: Callable[[Store], Rates],
    java: Callable[[JavaWriter], Rates],
    missing: str,
) -> tuple[Rates, Rates | None]:
    """The best rates of both, who take turns, each with one store for all rounds; the first round warms up."""
    seen: list[list[Rates]] = [[], []]
    with _store(scratch / "ours", config) as store:
        writer = None if missing else JavaWriter(scratch / "java", config)
        try:
            for _ in range(ROUNDS + 1):
                seen[0].append(ours(store))
                if writer:
                    seen[1].append(java(writer))
        finally:
            if writer:
                writer.end()
                shutil.rmtree(scratch / "java")
    best_ours, *others = [_best(rates[1:]) for rates in seen if rates]
    return best_ours, others[0] if others else None


def _best(rates: list[Rates]) -> Rates:
    best = rates[0]
    for other in rates[1:]:
        best = best.best(other)
    return best


def _rates_figures(
    line: str, other: str, body_size: int, best: tuple[Rates, Rates | None], missing: str, goals: Goals
) -> list[Figure]:
    figures = []
    for what, goal in (("accepted", goals.accepted), ("dispatched", goals.dispatched)):
        rate = getattr(best[0], what)
        java = getattr(best[1], what) if best[1] else None
        figures.append(
            Figure(
                line=f"{line}, {what}",
                value=rate / 1e6,
                unit=f"M messages/s ({rate * body_size / 1e9:.2f} GB/s)",
                against=f"Java {other} {java / 1e6:.3f} M/s" if java else f"without Java: {missing}",
                judged=rate / java if java else None,
                goal=goal,
            )
        )
    return figures


@contextmanager
def _store(path: Path, config: StoreConfig) -> Iterator[Store]:
    """A new store, removed in the end."""
    try:
        with open_store(str(path), config) as store:
            yield store
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _bare_file(path: Path, size: int) -> Iterator[Callable[[bytes], None]]:
    """A function that writes its bytes behind the former ones and syncs them."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, size)
    os.fsync(descriptor)
    position = 0

    def write(data: bytes) -> None:
        nonlocal position
        position += os.pwrite(descriptor, data, position)
        os.fdatasync(descriptor)

    try:
        yield write
    finally:
        os.close(descriptor)
        path.unlink()


def _seconds(action: Callable[[], object]) -> float:
    began = perf_counter()
    action()
    return perf_counter() - began


def _put_steadily(store: Store, put_at: Seconds) -> float:
    """Puts each message when its time has come; returns the rate that was reached."""
    body, count, number, began = bytes(100), len(put_at), 0, perf_counter()
    while number < count:
        due = min(int((perf_counter() - began) * STEADY_RATE) + 1, count)
        while number < due:
            message = Message("Steady", body, tags="TagA", keys=f"key{number}")
            put_at[number] = perf_counter()
            result = store.put(message)
            assert result.queue_offset == number
            number += 1
        sleep(0.0005)
    return count / (perf_counter() - began)


def _read_all(store: Store, seen_at: Seconds) -> None:
    """Notes when each message of the queue was there."""
    offset = 0
    while offset < len(seen_at):
        result = store.get("Steady", queue_id=0, offset=offset, max_count=32)
        if not result.messages:
            sleep(0.0002)
            continue
        assert result.messages[0].queue_offset == offset
        seen_at[offset : offset + len(result.messages)] = perf_counter()
        offset += len(result.messages)


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["put"]))
