"""Opening a store that was closed, was killed, or has lost all but its log, beside RocketMQ's load and start.

Both have one core: a JVM's compiler and collector would be at work on the others, and a recovery is one thread here.

python -m bench.bench_recovery
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time

from bench.figures import Figure, in_turns
from bench.java_reader import build_if_possible
from bench.java_writer import JavaWriter
from bench.synth import MIB, StoreShape, write_store
from rmqstore.config import StoreConfig
from rmqstore.engine.store import open_store
from rmqstore.formats.checkpoint import encode_checkpoint, read_checkpoint
from rmqstore.formats.names import ABORT_FILE, CHECKPOINT_FILE

ROUNDS = 3
BODY_SIZE = 1024
CLEAN_GOAL, KILLED_GOAL = 1.0, 0.5  # of Java's time
REBUILD_GOAL_SECONDS = 6.0

Spoil = Callable[[Path], None]


def measure(scratch: Path, store_bytes: int) -> list[Figure]:
    """All figures.  The log is one file, so that every opening looks through all of it; it is in the page cache."""
    shape = _one_file(store_bytes)
    config = StoreConfig.broker(log_file_size=shape.log_file_size)
    bare, base = write_store(scratch / "log-only", shape), scratch / "whole"
    shutil.rmtree(bare / "consumequeue")
    (bare / CHECKPOINT_FILE).unlink()
    _copied(bare, base)
    _killed(base)
    _open(base, config, shape)  # makes queues and index, and closes cleanly
    missing = build_if_possible()
    size = f"{store_bytes // MIB} MiB"
    figures = []
    for line, spoil, goal in (
        (f"recovery of {size}, closed", _closed, CLEAN_GOAL),
        (f"recovery of {size}, killed", _killed, KILLED_GOAL),
    ):
        figures.append(_beside_java(line, scratch, base, spoil, config, shape, missing, goal))
    rebuilt, busy = _best_of_ours(scratch, bare, _killed, config, shape)
    figures.append(
        Figure(
            line=f"queues and index of {size} from nothing",
            value=rebuilt,
            unit=f"s ({busy:.2f} s of CPU)",
            judged=rebuilt,
            goal=REBUILD_GOAL_SECONDS,
            at_least=False,
        )
    )
    for path in (bare, base):
        shutil.rmtree(path)
    return figures


def _one_file(store_bytes: int) -> StoreShape:
    record_size = StoreShape(count=0, body_size=BODY_SIZE).record_size
    return StoreShape(count=(store_bytes - MIB) // record_size, body_size=BODY_SIZE, log_file_size=store_bytes)


def _closed(store: Path) -> None:
    """As a clean stop leaves it."""
    (store / ABORT_FILE).unlink(missing_ok=True)


def _killed(store: Path) -> None:
    """As a kill leaves it: `abort`, and a checkpoint that knows of no whole index file, as RocketMQ's does until the
    first one is full."""
    (store / ABORT_FILE).touch()
    path = store / CHECKPOINT_FILE
    if path.exists():
        path.write_bytes(encode_checkpoint(replace(read_checkpoint(path.read_bytes()), index_timestamp_ms=0)))


def _beside_java(
    line: str,
    scratch: Path,
    base: Path,
    spoil: Spoil,
    config: StoreConfig,
    shape: StoreShape,
    missing: str,
    goal: float,
) -> Figure:
    busy: list[float] = []

    def ours() -> float:
        taken, on_cpu = _round(scratch, base, spoil, config, shape)
        busy.append(on_cpu)
        return taken

    def java() -> float:
        store = _copied(base, scratch / "java")
        spoil(store)
        with one_core():
            writer = JavaWriter(store, config)  # a JVM of its own each time, as a broker that starts
        try:
            assert writer.messages() == shape.count
            return writer.open_seconds
        finally:
            writer.end()
            shutil.rmtree(store)

    times = in_turns([ours] if missing else [ours, java], ROUNDS)
    taken, possible = min(times[0]), min(times[1]) if len(times) > 1 else None
    return Figure(
        line=line,
        value=taken,
        unit=f"s ({min(busy[1:]):.2f} s of CPU)",
        against=f"Java load + start {possible:.2f} s" if possible else f"without Java: {missing}",
        judged=taken / possible if possible else None,
        goal=goal,
        at_least=False,
    )


def _best_of_ours(
    scratch: Path, base: Path, spoil: Spoil, config: StoreConfig, shape: StoreShape
) -> tuple[float, float]:
    return min(_round(scratch, base, spoil, config, shape) for _ in range(ROUNDS + 1))


def _round(scratch: Path, base: Path, spoil: Spoil, config: StoreConfig, shape: StoreShape) -> tuple[float, float]:
    """Seconds of one opening, and of CPU in all threads."""
    store = _copied(base, scratch / "ours")
    spoil(store)
    try:
        with one_core():
            return _open(store, config, shape)
    finally:
        shutil.rmtree(store)


@contextmanager
def one_core() -> Iterator[None]:
    """What this thread does, and the threads and processes that it starts, run on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _open(path: Path, config: StoreConfig, shape: StoreShape) -> tuple[float, float]:
    began, busy = perf_counter(), process_time()
    with open_store(str(path), config) as store:
        taken = perf_counter() - began, process_time() - busy
        assert sum(store.bounds(*queue)[1] for queue in store.queues()) == shape.count
        assert store.query("BenchTopic", f"order-{shape.count - 1:010}")
        return taken


def _copied(store: Path, target: Path) -> Path:
    """A store of its own with the same log: files of the commitlog, which no opening changes, are linked, others
    copied with their holes."""
    (target / "commitlog").mkdir(parents=True)
    for file in sorted((store / "commitlog").iterdir()):
        os.link(file, target / "commitlog" / file.name)
    others = [str(path) for path in sorted(store.iterdir()) if path.name not in ("commitlog", "lock")]
    subprocess.run(["cp", "-a", "--sparse=always", *others, str(target)], check=True)
    return target


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["recovery"]))
