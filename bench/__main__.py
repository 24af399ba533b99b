"""All benches of this project, as ratios within one run:  python -m bench [--json FILE] [--small] [BENCH …]

Benches: scan, spark, stream, replica-stream, sink, sync, memory, plan, many, verify (reading a store's files); put,
recovery, get, delay, transactions, retention, replica, ledger (the engine).

Writes stores of 1 GiB of records (--small: 64 MiB, to see that the benches work) below RMQSTORE_BENCH_DIR or the
temporary directory.
"""

import argparse
import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from bench import (
    bench_delay,
    bench_get,
    bench_ledger,
    bench_many,
    bench_memory,
    bench_plan,
    bench_prune,
    bench_put,
    bench_recovery,
    bench_replica,
    bench_replica_stream,
    bench_retention,
    bench_scan,
    bench_sink,
    bench_spark,
    bench_stream,
    bench_sync,
    bench_transactions,
    bench_verify,
)
from bench.cpu import tree_seconds
from bench.figures import OUTPUT, Figure, Step, table, write_json
from bench.quiet import only_ours
from bench.synth import MIB, StoreShape, write_store

BODY_SIZES = (100, 1024)
BENCHES = (
    "scan",
    "memory",
    "plan",
    "many",
    "spark",
    "stream",
    "replica-stream",
    "prune",
    "sink",
    "verify",
    "sync",
    "put",
    "recovery",
    "get",
    "delay",
    "transactions",
    "retention",
    "replica",
    "ledger",
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the named benches, or all; returns the exit status: 1 for a failed bench.  A missed goal is marked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=f"{', '.join(BENCHES)}; all by default")
    parser.add_argument("--json", type=Path, default=OUTPUT / "bench.json", help="where the figures go as well")
    parser.add_argument("--small", action="store_true", help="64 MiB a store: quick, and no figures to quote")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.benches) - set(BENCHES):
        parser.error(f"no bench called {', '.join(sorted(unknown))}")
    store_bytes = 64 * MIB if chosen.small else 1024 * MIB
    figures: list[Figure] = []
    steps: list[Step] = []
    failed = False
    log = OUTPUT / "bench.log"
    scratch_room = os.environ.get("RMQSTORE_BENCH_DIR")
    with only_ours(log) as shown, tempfile.TemporaryDirectory(prefix="rmqstore-bench-", dir=scratch_room) as scratch:
        for name, measured in _plan(Path(scratch), store_bytes, chosen.benches or BENCHES):
            print(f"{name} …", file=shown)
            spent_s, began_s = tree_seconds(), monotonic()
            try:
                figures += measured()
            except Exception:  # noqa: BLE001  what the others measured is still worth knowing
                failed = True
                traceback.print_exc(file=shown)
                print(f"{name} failed; what Spark and others said is in {log}", file=shown)
            steps.append(Step(name=name, wall_s=monotonic() - began_s, cpu_s=tree_seconds() - spent_s))
    print(table(figures))
    write_json(chosen.json, "make bench", figures, steps)
    missed = sum(figure.verdict == "MISSED" for figure in figures)
    goals = sum(figure.verdict != "-" for figure in figures)
    print(f"\n{missed} of {goals} goals missed; {chosen.json} has the figures, {log} what Spark and others said")
    return int(failed)


def _plan(scratch: Path, store_bytes: int, benches: Sequence[str]) -> list[tuple[str, Callable[[], list[Figure]]]]:
    """What to run, in order: name and action.  Stores are written when their first bench runs; all else that a bench
    makes is in a directory of its own, so that none meets what another left."""
    shapes = {size: StoreShape.of_size(store_bytes, size) for size in BODY_SIZES}

    def room(name: str) -> Path:
        path = scratch / name
        path.mkdir()
        return path

    def store(size: int) -> Path:
        path = scratch / f"store-{size}"
        return path if path.exists() else write_store(path, shapes[size])

    steps: list[tuple[str, Callable[[], list[Figure]]]] = []
    if "scan" in benches:
        steps += [
            (f"scan, {n} B bodies", lambda n=n: bench_scan.measure(store(n), shapes[n], room(f"scan-{n}")))
            for n in BODY_SIZES
        ]
    if "memory" in benches:
        steps += [(f"memory, {n} B bodies", lambda n=n: bench_memory.measure(store(n), shapes[n])) for n in BODY_SIZES]
    if "plan" in benches:
        steps.append(("planning", lambda: bench_plan.measure(room("plan"))))
    if "many" in benches:
        part = 50 if store_bytes < 1024 * MIB else 1
        counts = {"queue_count": bench_many.QUEUES // part, "log_file_count": bench_many.LOG_FILES // part}
        steps.append(("many queues and files", lambda: bench_many.measure(room("many"), **counts)))
    if "spark" in benches:
        steps.append(("Spark", lambda: bench_spark.measure(store(100), shapes[100], room("spark"))))
    if "stream" in benches:
        steps.append(("Spark stream", lambda: bench_stream.measure(room("stream"), is_small=store_bytes < 1024 * MIB)))
    if "replica-stream" in benches:
        is_small = store_bytes < 1024 * MIB
        steps.append(
            ("master to Spark", lambda: bench_replica_stream.measure(room("replica-stream"), is_small=is_small))
        )
    if "prune" in benches:
        steps.append(("reading less", lambda: bench_prune.measure(room("prune"), is_small=store_bytes < 1024 * MIB)))
    if "sink" in benches:
        steps.append(("Spark sink", lambda: bench_sink.measure(room("sink"), is_small=store_bytes < 1024 * MIB)))
    if "sync" in benches:
        steps += [
            (f"sync, {n} B bodies", lambda n=n: bench_sync.measure(store(n), shapes[n], room(f"sync-{n}")))
            for n in BODY_SIZES
        ]
    return steps + _engine_plan(room, store_bytes, benches)


def _engine_plan(
    room: Callable[[str], Path], store_bytes: int, benches: Sequence[str]
) -> list[tuple[str, Callable[[], list[Figure]]]]:
    """What to run of the engine."""
    is_small = store_bytes < 1024 * MIB
    steps: dict[str, Callable[[], list[Figure]]] = {
        "verify": lambda: bench_verify.measure(room("verify"), is_small=is_small),
        "put": lambda: bench_put.measure(room("put"), is_small=is_small),
        "recovery": lambda: bench_recovery.measure(room("recovery"), store_bytes),
        "get": lambda: bench_get.measure(room("get"), is_small=is_small),
        "replica": lambda: bench_replica.measure(room("replica"), store_bytes),
        "retention": lambda: bench_retention.measure(room("retention"), is_small=is_small),
        "delay": lambda: bench_delay.measure(room("delay"), is_small=is_small),
        "transactions": lambda: bench_transactions.measure(room("transactions"), is_small=is_small),
        "ledger": lambda: bench_ledger.measure(room("ledger"), is_small=is_small),
    }
    return [(name, step) for name, step in steps.items() if name in benches]


if __name__ == "__main__":
    raise SystemExit(run())
