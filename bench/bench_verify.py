"""Checking a whole store: every CRC, queue entry and index item, beside reading the log's bytes alone.

python -m bench.bench_verify
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

import rmqstore
from bench.bench_put import bench_table
from bench.figures import Figure, table
from rmqstore.config import StoreConfig
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.verify import verify

ROUNDS = 5
ROWS = 51_200
GOAL = 1.0  # GB of log a second of one core, with bodies of 1 KiB
_BLOCK = 4 * 1024 * 1024


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """GB of log (10^9 bytes) a second of CPU, for bodies of 100 B and of 1 KiB."""
    return [_figure(scratch, size, count // (16 if is_small else 1)) for size, count in ((100, 64), (1024, 16))]


def _figure(scratch: Path, size: int, batch_count: int) -> Figure:
    path = scratch / f"verified-{size}"
    messages = bench_table(ROWS, size)
    with rmqstore.open_store(path, StoreConfig.broker()) as store:
        for _ in range(batch_count):
            store.put_columns(messages)
    (extent,) = look_at([str(path)]).stores
    log_bytes = extent.log_end - extent.log_start
    reading, checking = _best([lambda: _read(extent), lambda: _check(extent)])
    shutil.rmtree(path)
    return Figure(
        line=f"verify, {size} B bodies",
        value=log_bytes / checking / 1e9,
        unit="GB/s of one core",
        against=f"reading the log alone {log_bytes / reading / 1e9:.2f}",
        judged=log_bytes / checking / 1e9,
        goal=GOAL if size == 1024 else None,
    )


def _best(actions: list[Callable[[], None]]) -> list[float]:
    """CPU seconds of each, the best of some rounds in which they take turns."""
    taken: list[list[float]] = [[] for _ in actions]
    for _ in range(ROUNDS):
        for action, times in zip(actions, taken, strict=True):
            start = process_time()
            action()
            times.append(process_time() - start)
    return [min(times) for times in taken]


def _read(store: StoreExtent) -> None:
    for file in store.log_files:
        with store.disk.open(file.path) as opened:
            for at in range(0, file.size, _BLOCK):
                opened.read(at, _BLOCK)


def _check(store: StoreExtent) -> None:
    assert list(verify(store)) == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rmqstore-bench-") as made:
        print(table(measure(Path(made), is_small=False)))
