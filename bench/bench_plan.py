"""Many queues: planning 2,000 of them, and reading 200 of 10 messages each.  python -m bench.bench_plan"""

from pathlib import Path
from time import perf_counter

import rmqstore
from bench.figures import Figure, best_seconds
from bench.synth import MIB, StoreShape, write_store
from rmqstore.snapshot.request import ScanRequest, SplitBudget

PLAN_QUEUES, PLAN_GOAL_SECONDS = 2000, 1.0
READ_QUEUES, READ_GOAL_SECONDS = 200, 3.0


def measure(scratch: Path) -> list[Figure]:
    """Opening, choosing and planning; then a scan of small queues."""
    many = StoreShape(count=PLAN_QUEUES * 50, body_size=100, topic_count=500, queue_count=4, log_file_size=64 * MIB)
    few = StoreShape(count=READ_QUEUES * 10, body_size=100, topic_count=50, queue_count=4, log_file_size=64 * MIB)
    wide, small = write_store(scratch / "many-queues", many), write_store(scratch / "small-queues", few)
    began = perf_counter()
    _plan(wide)
    first = perf_counter() - began
    planned, read = best_seconds([lambda: _plan(wide), lambda: _read(small)], 3)
    return [
        Figure(
            line=f"plan {PLAN_QUEUES} queues",
            value=planned,
            unit="s",
            against=f"the first time {first:.2f} s",
            judged=max(first, planned),
            goal=PLAN_GOAL_SECONDS,
            at_least=False,
        ),
        Figure(
            line=f"read {READ_QUEUES} queues of 10 messages",
            value=read,
            unit="s",
            judged=read,
            goal=READ_GOAL_SECONDS,
            at_least=False,
        ),
    ]


def _plan(store: Path) -> None:
    snapshot = rmqstore.open_snapshot(store)
    splits = snapshot.plan(snapshot.select(pattern=".*"), ScanRequest(), SplitBudget())
    assert sum(len(split.spans) for split in splits) >= PLAN_QUEUES


def _read(store: Path) -> None:
    table = rmqstore.open_snapshot(store).scan(pattern=".*").read_all()
    assert table.num_rows == READ_QUEUES * 10


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["plan"]))
