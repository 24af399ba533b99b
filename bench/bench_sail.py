"""The source in Sail, which speaks Spark Connect without a JVM, beside Spark: CPU of all processes for each row.

python -m bench.bench_sail SAIL_PYTHON [--count N] [--rounds N] [--json FILE]

SAIL_PYTHON is the Python of scripts/sail_environment.sh.  Each engine reads the same store in a process of its own, two
threads or all cores, by turns; a query is planning included.  What a column set costs is the least of all rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.cpu import tree_seconds
from bench.figures import Figure, table, write_json
from bench.synth import StoreShape, write_store
from rmqstore.snapshot.columns import DEFAULT_COLUMNS

COUNT, ROUNDS = 2_500_000, 3
COLUMNS = {
    "three columns": ("topic", "body", "queueOffset"),
    "default columns": DEFAULT_COLUMNS,
    "with the map": (*DEFAULT_COLUMNS, "properties"),
    "one column of the queue entries": ("queueOffset",),
}


def run_engine(engine: str, store: Path, count: int, rounds: int) -> dict[str, float]:
    """CPU seconds of each column set in this process and below it.  Raises RuntimeError where rows are missing."""
    session, stop = _sail() if engine == "sail" else _spark()
    try:
        frames = {}
        for name, columns in COLUMNS.items():
            reader = session.read.format("rmqstore").option("subscribe", "BenchTopic")
            frames[name] = reader.option("columns", ",".join(columns)).load(str(store))
        least = dict.fromkeys(frames, float("inf"))
        for turn in range(rounds + 1):
            for name, frame in frames.items():
                began_s = tree_seconds()
                seen = _all_rows(frame, COLUMNS[name])
                taken_s = tree_seconds() - began_s
                if seen != count:
                    raise RuntimeError(f"{engine}, {name}: {seen} of {count} rows")
                if turn:
                    least[name] = min(least[name], taken_s)
        return least
    finally:
        stop()


def _all_rows(frame: object, columns: Sequence[str]) -> int:
    """How many rows there are, with every column counted: an engine has to have made each."""
    counted = [f"count(`{name}`) AS `{name}`" for name in columns]
    row = frame.selectExpr("count(*) AS rows", *counted).collect()[0]  # type: ignore[attr-defined]
    return int(row["rows"])


def _sail() -> tuple[object, Callable[[], object]]:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    from spark_source.source import RmqStoreDataSource

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    session.dataSource.register(RmqStoreDataSource)

    def stop() -> None:
        session.stop()
        server.stop()

    return session, stop


def _spark() -> tuple[object, Callable[[], object]]:
    from bench.bench_spark import local_session

    session = local_session()
    return session, session.stop


def measure(sail_python: str, count: int, rounds: int) -> list[Figure]:
    """A figure for each column set."""
    taken: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="rmqstore-bench-", dir=os.environ.get("RMQSTORE_BENCH_DIR")) as scratch:
        store = write_store(Path(scratch) / "store", StoreShape(count=count, body_size=100))
        for engine, program in (("spark", sys.executable), ("sail", sail_python)):
            print(f"{engine} …", file=sys.stderr, flush=True)
            done = subprocess.run(
                [program, "-m", "bench.bench_sail", program, "--engine", engine, "--store", str(store),
                 "--count", str(count), "--rounds", str(rounds)],
                stdout=subprocess.PIPE, text=True, check=True,
                env={**os.environ, "TZ": "UTC", "PYSPARK_PYTHON": program},
            )  # fmt: skip
            taken[engine] = json.loads(done.stdout.splitlines()[-1])
    return [
        Figure(
            line=f"CPU a row in Sail, {name}",
            value=taken["sail"][name] / count * 1e9,
            unit="ns",
            against=f"Spark {taken['spark'][name] / count * 1e9:,.0f} ns",
            judged=taken["spark"][name] / taken["sail"][name],
        )
        for name in COLUMNS
    ]


def main() -> int:
    """Measures both, or one of them where it is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sail_python", metavar="SAIL_PYTHON")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="writes the figures there too")
    parser.add_argument("--engine", choices=("sail", "spark"), help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.engine:
        print(json.dumps(run_engine(chosen.engine, chosen.store, chosen.count, chosen.rounds)))
        return 0
    figures = measure(chosen.sail_python, chosen.count, chosen.rounds)
    print(table(figures))
    if chosen.json:
        made = (
            f"make bench-sail: {chosen.count:,} messages, every column counted, the least CPU of {chosen.rounds} rounds"
        )
        write_json(chosen.json, made, figures, [])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
