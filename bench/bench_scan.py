"""A scan to Arrow on one core, beside Java's own loop over the same store and beside one copy of the bodies.

python -m bench.bench_scan [DIRECTORY]
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import rmqstore
from bench.figures import Figure, best_seconds
from bench.java_reader import JavaReader, build_if_possible
from bench.synth import BODY_AT, MIB, StoreShape

ROUNDS = 3
THREE_COLUMNS = ("queueOffset", "storeTimestamp", "body")
# Goals as multiples of Java's rate, by body size and columns.
GOALS = {(100, "default columns"): 1.5, (100, "three columns"): 3.0, (1024, "three columns"): 2.0}
COPY_GOAL = 3.0  # three columns of 1 KiB bodies within this many times one copy of the bodies
COPY_BYTES = 256 * MIB
COUNT_GOAL = 50e6


@contextmanager
def one_core() -> Iterator[None]:
    """Arrow with a single thread; raises RuntimeError when this process used more than one core nevertheless.

    It is not tied to a core: a neighbour on that core would then look like a slow scan.
    """
    threads, io_threads = pa.cpu_count(), pa.io_thread_count()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    wall, busy = perf_counter(), process_time()
    try:
        yield
    finally:
        pa.set_cpu_count(threads)
        pa.set_io_thread_count(io_threads)
    if process_time() - busy > 1.1 * (perf_counter() - wall):
        raise RuntimeError("the scan used more than one core: its figures cannot stand beside Java's one thread")


def measure(store: Path, shape: StoreShape, scratch: Path) -> list[Figure]:
    """All figures of one store; RocketMQ's reader takes its turns between ours."""
    missing = build_if_possible()
    java = None if missing else JavaReader(store, shape, scratch)
    try:
        with one_core():
            return _measured(store, shape, java, missing)
    finally:
        if java:
            java.close()


def _measured(store: Path, shape: StoreShape, java: JavaReader | None, missing: str) -> list[Figure]:
    target = copy_target(shape)
    snapshot = rmqstore.open_snapshot(store)  # RocketMQ has the store open as well
    actions: list[Callable[[], object]] = [
        lambda: _scan(snapshot, shape, None),
        lambda: _scan(snapshot, shape, THREE_COLUMNS),
        lambda: _scan(snapshot, shape, ("queueOffset",)),
        lambda: copy_bodies(store, shape, target),
        lambda: rmqstore.open_snapshot(store),
    ]
    seconds = best_seconds([*actions, *([java.read] if java else [])], ROUNDS)
    if java:
        assert java.count == shape.count
    java_rate = max(java.messages_per_second) if java else None
    body = f"{shape.body_size} B"
    figures = [
        _beside_java(f"scan {body}, {columns}", shape, taken, java_rate, missing, GOALS.get((shape.body_size, columns)))
        for columns, taken in (("default columns", seconds[0]), ("three columns", seconds[1]))
    ]
    return figures + _beside_memory(body, shape, seconds)


def _beside_memory(body: str, shape: StoreShape, seconds: list[float]) -> list[Figure]:
    """Three columns beside one copy of the bodies; the count that never opens the commitlog."""
    copied = shape.count * shape.body_size
    gigabytes = f"one copy of the bodies {copied / seconds[3] / 1e9:.2f} GB/s"
    copy_goal = COPY_GOAL if shape.body_size >= 1024 else None
    count_rate = shape.count / seconds[2]
    return [
        Figure(
            line=f"scan {body}, three columns, time in copies",
            value=copied / seconds[1] / 1e9,
            unit="GB/s",
            against=gigabytes,
            judged=seconds[1] / seconds[3],
            goal=copy_goal,
            at_least=False,
        ),
        Figure(
            line=f"count {body} from queue entries",
            value=count_rate / 1e6,
            unit="M messages/s",
            judged=count_rate / 1e6,
            goal=COUNT_GOAL / 1e6,
        ),
        Figure(line=f"open {body}", value=seconds[4] * 1000, unit="ms"),
    ]


def _beside_java(
    line: str, shape: StoreShape, seconds: float, java: float | None, missing: str, goal: float | None
) -> Figure:
    rate = shape.count / seconds
    against = (
        f"Java {java / 1e6:.2f} M/s, {java * shape.body_size / 1e9:.2f} GB/s" if java else f"without Java: {missing}"
    )
    judged = rate / java if java else None
    unit = f"M messages/s ({rate * shape.body_size / 1e9:.2f} GB/s)"
    return Figure(line=line, value=rate / 1e6, unit=unit, against=against, judged=judged, goal=goal)


def _scan(snapshot: rmqstore.Snapshot, shape: StoreShape, columns: tuple[str, ...] | None) -> None:
    count = 0
    for batch in snapshot.scan(["BenchTopic"], columns=columns):
        count += batch.num_rows
    assert count == shape.count


def copy_bodies(store: Path, shape: StoreShape, target: npt.NDArray[np.uint8]) -> None:
    """Copies every body once, from the mapped log files into `target`, again and again from its start."""
    left, room = shape.count, len(target)
    for path in sorted((store / "commitlog").iterdir()):
        in_file = min(shape.per_file, left)
        mapped = np.memmap(path, np.uint8, "r")[: in_file * shape.record_size].reshape(in_file, shape.record_size)
        for first in range(0, in_file, room):
            part = mapped[first : first + room, BODY_AT : BODY_AT + shape.body_size]
            np.copyto(target[: len(part)], part)
        left -= in_file


def copy_target(shape: StoreShape) -> npt.NDArray[np.uint8]:
    """Memory for bodies, touched once already and larger than any cache, so that a copy into it is one to memory."""
    return np.ones((COPY_BYTES // shape.body_size, shape.body_size), np.uint8)


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["scan"]))
