"""Spark local[2] reading to `noop`, beside a source that yields ready-made batches of the same schema and sizes.

python -m bench.bench_spark
"""

import compileall
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

import rmqstore
from bench.bench_scan import THREE_COLUMNS
from bench.figures import Figure, best_seconds
from bench.ready_made import ReadyMadeSource
from bench.synth import StoreShape
from rmqstore.snapshot import read_split
from rmqstore.snapshot.columns import DEFAULT_COLUMNS
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from spark_source.columns.schema import spark_schema

ROUNDS = 3
WITH_MAP = (*DEFAULT_COLUMNS, "properties")
SINGLE = ("property.MSG_REGION", "property.WAIT")
SINGLE_GOAL = 1.15  # of the time of the default columns
JSON_COUNT, JSON_ROWS = 400_000, 20_000
JSON_FIELDS = "id bigint, amount double, status string"
JSON_GOAL = 2.0  # times the rows a second of from_json
GOALS = (
    ("three columns", THREE_COLUMNS, 0.8),
    ("default columns", DEFAULT_COLUMNS, 0.65),
    ("with the map", WITH_MAP, 0.65),
)


def measure(store: Path, shape: StoreShape, scratch: Path) -> list[Figure]:
    """One figure a set of columns: our rows a second, as a share of those of the ready-made source."""
    spark = local_session()
    try:
        spark.dataSource.register(ReadyMadeSource)
        figures = [_figure(spark, store, shape, scratch, *goal) for goal in GOALS]
        return [*figures, _single_properties(spark, store, shape), _json_fields(spark, scratch / "json")]
    finally:
        spark.stop()


def local_session() -> SparkSession:
    """A session of two threads whose workers import this project."""
    show_this_project()
    session: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("rmqstore bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def show_this_project() -> None:
    """Makes Spark's workers import this project, with modules as compiled as those of an installed package are: under
    PYTHONDONTWRITEBYTECODE every process would compile them again."""
    root = Path(rmqstore.__file__).parents[1]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for package in ("rmqstore", "spark_source"):
        compileall.compile_dir(root / package, quiet=1)


def _figure(
    spark: SparkSession, store: Path, shape: StoreShape, scratch: Path, name: str, columns: Sequence[str], goal: float
) -> Figure:
    sample, sizes = _ready(store, scratch, name.replace(" ", "-"), columns)
    ready = spark.read.format("ready-made").schema(spark_schema(tuple(columns)))
    ready_frame = ready.option("sample", str(sample)).option("sizes", str(sizes)).load()
    ours = (
        spark.read.format("rmqstore")
        .option("subscribe", "BenchTopic")
        .option("columns", ",".join(columns))
        .load(str(store))
    )
    assert ours.count() == ready_frame.count() == shape.count
    taken, possible = best_seconds([lambda: to_noop(ours), lambda: to_noop(ready_frame)], ROUNDS)
    rate = shape.count / taken
    return Figure(
        line=f"Spark {shape.body_size} B, {name}",
        value=rate / 1e6,
        unit="M messages/s",
        against=f"ready-made batches {shape.count / possible / 1e6:.2f} M/s",
        judged=possible / taken,
        goal=goal,
    )


def _single_properties(spark: SparkSession, store: Path, shape: StoreShape) -> Figure:
    """Two properties as columns of their own beside the default columns, and the map beside them."""
    rows = spark.read.format("rmqstore").option("subscribe", "BenchTopic")
    frames = [
        rows.option("columns", ",".join(columns)).load(str(store))
        for columns in (DEFAULT_COLUMNS, (*DEFAULT_COLUMNS, *SINGLE), WITH_MAP)
    ]
    default, single, whole = best_seconds([lambda f=frame: to_noop(f) for frame in frames], ROUNDS)  # type: ignore[misc]
    return Figure(
        line=f"Spark {shape.body_size} B, two properties as columns",
        value=shape.count / single / 1e6,
        unit="M messages/s",
        against=f"default columns {shape.count / default / 1e6:.2f}, with the map {shape.count / whole / 1e6:.2f} M/s",
        judged=single / default,
        goal=SINGLE_GOAL,
        at_least=False,
    )


def _json_fields(spark: SparkSession, store: Path) -> Figure:
    """Three fields of JSON bodies as columns, beside from_json on the body."""
    _write_json(store)
    read = spark.read.format("rmqstore").option("subscribe", "BenchTopic")
    ours = read.option("bodyFormat", "json").schema(JSON_FIELDS).load(str(store))
    bodies = spark.read.format("rmqstore").option("subscribe", "BenchTopic").schema("body string").load(str(store))
    said = bodies.select(functions.from_json("body", JSON_FIELDS).alias("said")).select("said.*")
    assert ours.count() == JSON_COUNT
    assert ours.exceptAll(said).isEmpty()
    taken, theirs = best_seconds([lambda: to_noop(ours), lambda: to_noop(said)], ROUNDS)
    return Figure(
        line="Spark 300 B of JSON, three fields",
        value=JSON_COUNT / taken / 1e6,
        unit="M messages/s",
        against=f"from_json {JSON_COUNT / theirs / 1e6:.2f} M/s",
        judged=theirs / taken,
        goal=JSON_GOAL,
    )


def _write_json(store: Path) -> None:
    with rmqstore.open_store(store) as engine:
        for first in range(0, JSON_COUNT, JSON_ROWS):
            bodies = [_json_body(number) for number in range(first, first + JSON_ROWS)]
            rows = {"topic": ["BenchTopic"] * JSON_ROWS, "queueId": [number % 4 for number in range(JSON_ROWS)]}
            engine.put_columns(pa.RecordBatch.from_pydict(rows | {"body": pa.array(bodies, pa.binary())}))


def _json_body(number: int) -> bytes:
    """An order of about 300 bytes."""
    lines = [{"sku": f"a{number % 97 + at}", "count": at, "price": at / 4} for at in range(3)]
    order = {
        "id": number,
        "status": ("paid", "open")[number % 2],
        "customer": {"name": f"u{number % 1000}", "city": "Oslo"},
    }
    return json.dumps(order | {"lines": lines, "amount": number % 1000 / 8, "note": "x" * 60}).encode()


def to_noop(frame: DataFrame) -> None:
    """Reads all of it and writes nothing."""
    frame.write.format("noop").mode("overwrite").save()


def _ready(store: Path, scratch: Path, name: str, columns: Sequence[str]) -> tuple[Path, Path]:
    """The largest batch of our own scan as an Arrow file, and the rows of every batch of every partition."""
    snapshot, request = rmqstore.open_snapshot(store), ScanRequest(columns=tuple(columns))
    largest: pa.RecordBatch | None = None
    sizes = []
    for split in snapshot.plan(snapshot.select(["BenchTopic"]), request, SplitBudget()):
        rows = []
        for batch in read_split(split, request):
            rows.append(batch.num_rows)
            largest = batch if largest is None or batch.num_rows > largest.num_rows else largest
        sizes.append(rows)
    assert largest is not None
    sample_path, sizes_path = scratch / f"{name}.arrow", scratch / f"{name}.json"
    with pa.OSFile(str(sample_path), "wb") as sink, pa.ipc.new_file(sink, largest.schema) as writer:
        writer.write_batch(largest)
    sizes_path.write_text(json.dumps(sizes))
    return sample_path, sizes_path


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["spark"]))
