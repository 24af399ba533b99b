"""Reading from a store that is open: messages of a queue, messages of a key; and the memory of a large one.

python -m bench.bench_get
"""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from bench.figures import Figure
from bench.synth import FIRST_TIME_MS, MIB, Ints, StoreShape, write_store
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.formats.index import file_size
from rmqstore.formats.index_table import put_items
from rmqstore.formats.java_hash import string_hashes

TOPIC = "BenchTopic"
GET_COUNT, GET_GOAL_MS = 32, 0.15
QUERY_GOAL_MS = 0.1
ASKED = 2000
# Two keys a message: just what one index file of the size that a broker makes can hold.
MESSAGES, MESSAGES_SMALL = 9_999_999, 300_000
FILES, QUEUES = 100, 10_000
_CHILD = """
import json, sys, time
from rmqstore.config import StoreConfig
from rmqstore.engine.store import open_store

def status():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: int(lines[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS", "RssAnon")}

before = status()
began = time.perf_counter()
store = open_store(sys.argv[1], StoreConfig.broker())
seconds = time.perf_counter() - began
opened = status()
queues = store.queues()
found = sum(len(store.get(topic, queue_id, 0).messages) for topic, queue_id in queues)
read = status()
print(json.dumps({
    "seconds": seconds, "queues": len(queues), "found": found,
    "opened": opened["VmRSS"] - before["VmRSS"], "read": read["VmRSS"] - before["VmRSS"],
    "peak": read["VmHWM"] - before["VmRSS"], "anonymous": read["RssAnon"] - before["RssAnon"],
}))
store.close()
"""


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """All figures; stores are removed again."""
    figures = get_latency(scratch, (64 if is_small else 512) * MIB)
    figures += query_latency(scratch, MESSAGES_SMALL if is_small else MESSAGES)
    return figures + open_memory(scratch)


def get_latency(scratch: Path, store_bytes: int) -> list[Figure]:
    """`get` of 32 messages of 1 KiB: of one queue among four that fill by turns, and of one that fills alone."""
    figures = []
    for queue_count in (4, 1):
        shape = StoreShape.of_size(store_bytes, 1024)
        shape = StoreShape(count=shape.count, body_size=1024, queue_count=queue_count)
        path = write_store(scratch / "read", shape)
        per_queue = shape.count // queue_count
        chance = random.Random(1)
        places = [(chance.randrange(queue_count), chance.randrange(per_queue - GET_COUNT)) for _ in range(ASKED)]
        with open_store(str(path), StoreConfig.broker(index_enabled=False)) as store:
            taken, with_bodies = (_latencies(get, store, places) for get in (_get, _get_bodies))
        shutil.rmtree(path)
        among = "alone in the log" if queue_count == 1 else f"among {queue_count} queues"
        against = f"p99 {_at(taken, 0.99):.3f} ms; with every body looked at p50 {_at(with_bodies, 0.5):.3f} ms"
        line = f"get {GET_COUNT} of 1 KiB, a queue {among}, p50"
        figures.append(_milliseconds(line, taken, against, GET_GOAL_MS))
    return figures


def query_latency(scratch: Path, count: int) -> list[Figure]:
    """A key query that finds its one message, the second time that it is asked."""
    shape = StoreShape(count=count, body_size=100)
    path = write_store(scratch / "indexed", shape)
    config = StoreConfig.broker()
    write_index(path / "index", shape, config)
    chance = random.Random(1)
    numbers = [chance.randrange(count) for _ in range(ASKED)]
    began = perf_counter()
    with open_store(str(path), config) as store:
        opened = perf_counter() - began
        first, taken = (_latencies(_query, store, [(number,) for number in numbers]) for _ in range(2))
    shutil.rmtree(path)
    against = f"p99 {_at(taken, 0.99):.3f} ms; the first time p50 {_at(first, 0.5):.3f} ms; open {opened:.2f} s"
    return [_milliseconds(f"key query, {count / 1e6:.1f} M messages, p50", taken, against, QUERY_GOAL_MS)]


def open_memory(scratch: Path) -> list[Figure]:
    """A log of 100 files of 1 GiB, mostly holes, and 10,000 queues: what opening takes, and reading each queue."""
    shape = StoreShape(
        count=QUEUES,
        body_size=100,
        topic_count=QUEUES // 4,
        log_file_size=1024 * MIB,
        per_file_max=QUEUES // FILES,
    )
    path = write_store(scratch / "sparse", shape)
    done = subprocess.run([sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=True)
    shutil.rmtree(path)
    seen = json.loads(done.stdout)
    assert (seen["queues"], seen["found"]) == (QUEUES, QUEUES)
    size = f"{FILES} GiB, {QUEUES:,} queues"
    held = (
        f"at the peak {seen['peak']:.0f} MiB; every queue read {seen['read']:.0f}, not of files {seen['anonymous']:.0f}"
    )
    return [
        Figure(line=f"memory of an open store, {size}", value=seen["opened"], unit="MiB", against=held),
        Figure(line=f"open, {size}", value=seen["seconds"], unit="s"),
    ]


def write_index(directory: Path, shape: StoreShape, config: StoreConfig) -> None:
    """The index file of a store that `write_store` made, with both keys of each message in the order of the log."""
    directory.mkdir()
    size = file_size(config.index_slot_count, config.index_item_count)
    view = np.memmap(directory / "20231114221320000", np.uint8, "w+", shape=(size,))
    for first in range(0, shape.count, MIB):
        numbers = np.arange(first, min(first + MIB, shape.count))
        hashes = np.empty((len(numbers), 2), np.int64)
        hashes[:, 0] = _hashes(f"{TOPIC}#7F0000010001", numbers, 12, "0" * 8)
        hashes[:, 1] = _hashes(f"{TOPIC}#order-", numbers, 10, "")
        times = np.repeat(FIRST_TIME_MS + numbers // 1000, 2)
        offsets = np.repeat(shape.offsets(first, len(numbers)), 2)
        taken = put_items(view, config.index_slot_count, config.index_item_count, hashes.ravel(), offsets, times)
        assert taken == 2 * len(numbers)
    view.flush()


def _hashes(prefix: str, numbers: Ints, digits: int, suffix: str) -> Ints:
    """Index hashes of prefix, the number in so many digits, suffix."""
    text = np.frombuffer(f"{prefix}{'0' * digits}{suffix}".encode(), np.uint8)
    keys = np.tile(text, (len(numbers), 1))
    powers = 10 ** np.arange(digits - 1, -1, -1, dtype=np.int64)
    keys[:, len(prefix) : len(prefix) + digits] = numbers[:, None] // powers % 10 + ord("0")
    starts = np.arange(len(numbers)) * len(text)
    hashes = np.abs(string_hashes(keys.ravel(), starts, np.full(len(numbers), len(text))).astype(np.int64))
    return np.where(hashes < 1 << 31, hashes, 0)


def _get(store: Store, queue_id: int, offset: int) -> None:
    result = store.get(TOPIC, queue_id, offset, GET_COUNT)
    assert result.status is GetStatus.FOUND
    assert len(result.messages) == GET_COUNT


def _get_bodies(store: Store, queue_id: int, offset: int) -> None:
    for message in store.get(TOPIC, queue_id, offset, GET_COUNT).messages:
        body = message.body
        assert body is not None
        assert len(body) == 1024


def _query(store: Store, number: int) -> None:
    assert len(store.query(TOPIC, f"order-{number:010}")) == 1


def _latencies(ask: Callable[..., None], store: Store, questions: Sequence[tuple[int, ...]]) -> list[float]:
    """Seconds of each question, in rising order."""
    taken = []
    for question in questions:
        began = perf_counter()
        ask(store, *question)
        taken.append(perf_counter() - began)
    return sorted(taken)


def _at(taken: Sequence[float], share: float) -> float:
    """A quantile, in milliseconds."""
    return taken[int(len(taken) * share)] * 1000


def _milliseconds(line: str, taken: Sequence[float], against: str, goal: float) -> Figure:
    p50 = _at(taken, 0.5)
    return Figure(line=line, value=p50, unit="ms", against=against, judged=p50, goal=goal, at_least=False)


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["get"]))
