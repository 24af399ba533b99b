"""Reading less: bytes read from the store and records looked at, beside those of the read of everything.

Files are read with pread here (access=pread), so that every byte of the commitlog and the queues is counted; index
files are mapped, and a look-up touches a page or two of them.  Opening the store and planning are part of every read:
they look at the newest MiB of the log and at the entries of the newest files, whatever is asked for.

python -m bench.bench_prune
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, GreaterThan, InputPartition, LessThan
from pyspark.sql.types import StructType

import rmqstore
from bench.figures import Figure
from bench.synth import MIB
from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import PutStatus
from rmqstore.engine.store import open_store
from rmqstore.files.reading import OpenFile
from rmqstore.snapshot import read_split
from rmqstore.snapshot.columns import DEFAULT_COLUMNS
from rmqstore.snapshot.scan.entry_source import RecordCheck
from spark_source.batch_reader import BatchReader
from spark_source.columns.schema import shape_for, spark_schema
from spark_source.options.reads import parse_options
from spark_source.partitions import split_in
from spark_source.pushdown_reader import PushdownReader
from spark_source.source import RmqStoreDataSource
from tests.spark_source.read_requests import request_of

TOPIC, QUEUES, BODY_SIZE, ROWS = "BenchTopic", 4, 1024, 50_000
STEP_MS = 10_000  # between two tables of ROWS messages
RARE = 1000  # one message of so many has the tag that is looked for
SMALL_TOPIC, SMALL_ROWS = "SmallTopic", 500  # a topic beside the big one, so many messages to each ROWS of that
LIMIT = 10
COUNTS = "counts"


@dataclass(slots=True)
class Looked:
    """What a read took: bytes from files, records located and checked, rows, seconds."""

    size: int = 0
    records: int = 0
    rows: int = 0
    seconds: float = 0.0


@contextmanager
def counting() -> Iterator[Looked]:
    """Counts what this process reads of stores meanwhile."""
    looked, read, rows = Looked(), OpenFile.read, RecordCheck.rows

    def counted_read(self: OpenFile, position: int, size: int) -> bytes:
        data = read(self, position, size)
        looked.size += len(data)
        return data

    def counted_rows(self, entries, *more):  # type: ignore[no-untyped-def]
        looked.records += len(entries)
        return rows(self, entries, *more)

    OpenFile.read, RecordCheck.rows = counted_read, counted_rows  # type: ignore[method-assign]
    began = perf_counter()
    try:
        yield looked
    finally:
        looked.seconds = perf_counter() - began
        OpenFile.read, RecordCheck.rows = read, rows  # type: ignore[method-assign]


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """Each way of reading less beside the read of everything, and `limit` through Spark."""
    count = ROWS * (2 if is_small else 20)
    store = _store(scratch / "prune", count)
    columns = {"columns": ",".join(DEFAULT_COLUMNS)}
    whole = _read(store, columns)
    assert whole.rows == count
    first_ms = ManualClock().now_ms() + STEP_MS * (count // ROWS // 2)
    window = {"startingTimestamp": str(first_ms), "endingTimestamp": str(first_ms + 1)}
    pushed = [
        GreaterThan(("queueOffset",), count // QUEUES // 2),
        LessThan(("queueOffset",), count // QUEUES // 2 + 101),
    ]
    ways = [
        ("tag of 1 in 1000", _read(store, columns | {"tags": "rare"}), count // RARE),
        ("tag of 1 in 10", _read(store, columns | {"tags": "T3"}), None),
        ("a key", _read(store, columns | {"keys": f"order-{count // 2}"}), 1),
        ("a window of time", _read(store, columns | window), ROWS),
        ("three entry columns", _read(store, {"columns": "topic,queueId,queueOffset"}), count),
        ("100 queue offsets, pushed", _read(store, columns, pushed), 100 * QUEUES),
        *_scan_modes(store, columns, "all of a big topic", count),
        *_scan_modes(store, columns | {"subscribe": SMALL_TOPIC}, "all of a small topic", count // ROWS * SMALL_ROWS),
    ]
    figures = []
    for name, looked, rows in ways:
        assert rows in (None, looked.rows), (name, looked.rows)
        figures.append(_figure(name, looked, whole))
    return [*figures, *_limit_figures(store, whole)]


def _scan_modes(store: Path, options: dict[str, str], name: str, rows: int) -> list[tuple[str, Looked, int]]:
    """One read in the order that is chosen for it, beside both that it was chosen from."""
    modes = {"as chosen": "auto", "queue by queue": "queue", "along the log": "commitlog"}
    return [(f"{name}, {words}", _read(store, options | {"scanMode": mode}), rows) for words, mode in modes.items()]


def _figure(name: str, looked: Looked, whole: Looked) -> Figure:
    return Figure(
        line=f"read {name}",
        value=looked.size / MIB,
        unit="MiB",
        against=(
            f"all: {whole.size / MIB:,.0f} MiB; records {looked.records:,} of {whole.records:,}; "
            f"{looked.seconds:.2f} s of {whole.seconds:.2f} s"
        ),
        judged=looked.size / whole.size,
    )


def _store(root: Path, count: int) -> Path:
    """A store of the engine: ten tags and a rare one, a key of its own for each message, ROWS of one store time; and
    another topic between them."""
    clock = ManualClock()
    config = StoreConfig(log_file_size=256 * MIB, preallocate=False)
    bodies = np.random.default_rng(1).integers(0, 256, ROWS * BODY_SIZE, np.uint8)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * BODY_SIZE
    with open_store(str(root), config, clock=clock) as store:
        for first in range(0, count, ROWS):
            numbers = np.arange(first, first + ROWS)
            body = pa.Array.from_buffers(pa.binary(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(bodies)])
            tags = [f"T{number % 10}" if number % RARE else "rare" for number in numbers.tolist()]
            table = pa.table(
                {
                    "topic": pa.array([TOPIC] * ROWS),
                    "queueId": (numbers % QUEUES).astype(np.int32),
                    "tags": pa.array(tags),
                    "keys": pc.binary_join_element_wise("order-", pa.array(numbers).cast(pa.string()), ""),
                    "body": body,
                }
            )
            for rows in (table, _of_small_topic(table)):
                result = store.put_columns(rows)
                assert result.status is PutStatus.PUT_OK
            clock.advance(STEP_MS)
        store.flush()
    return root


def _of_small_topic(table: pa.Table) -> pa.Table:
    """Some of the messages once more, without their keys."""
    few = table.slice(0, SMALL_ROWS).select(["queueId", "tags", "body"])
    return few.append_column("topic", pa.array([SMALL_TOPIC] * SMALL_ROWS))


def _read(store: Path, options: dict[str, str], pushed: Iterable[object] = ()) -> Looked:
    """One read as Spark's executors do it, planning included."""
    read = parse_options({"path": str(store), "subscribe": TOPIC, "access": "pread"} | options)
    shape = shape_for(spark_schema(read.request.columns))
    with counting() as looked:
        reader = BatchReader(read, shape)
        if pushed:
            reader = PushdownReader(read, shape)
            reader.pushFilters(list(pushed))
        splits = [split_in(partition) for partition in reader.partitions()]
        request = request_of(reader)
        for split in splits:
            looked.rows += sum(batch.num_rows for batch in read_split(split, request))
    return looked


class CountedReader(BatchReader):
    """A BatchReader whose tasks write down what they read, a line for each batch before Spark gets it: nobody waits for
    the end of a task that Spark needs no more."""

    path = ""

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        noted = (0, 0)
        with counting() as looked:
            for batch in super().read(partition):
                with open(self.path, "a", encoding="ascii") as file:
                    file.write(f"{looked.size - noted[0]} {looked.records - noted[1]} {batch.num_rows}\n")
                noted = looked.size, looked.records
                yield batch


class CountedSource(RmqStoreDataSource):
    """The source itself, counted, in the file `counts` beside the store."""

    @classmethod
    def name(cls) -> str:
        """Beside the source's own."""
        return "rmqstore-counted"

    def reader(self, schema: StructType) -> DataSourceReader:
        """As the source's."""
        read = parse_options(self.options)
        shape = shape_for(schema)
        reader = CountedReader(read.with_columns(shape.columns), shape)
        reader.path = str(Path(self.options["path"]).with_name(COUNTS))
        return reader


def _limit_figures(store: Path, whole: Looked) -> list[Figure]:
    """What tasks read for `limit 10`, and how long it takes."""
    counts = store.with_name(COUNTS)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(rmqstore.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("rmqstore bench").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        spark.dataSource.register(CountedSource)
        reader = spark.read.format("rmqstore-counted").option("subscribe", TOPIC).option("access", "pread")
        _taken(lambda: reader.load(str(store)).limit(LIMIT).collect())  # starts the workers
        counts.unlink()
        taken = _taken(lambda: reader.load(str(store)).limit(LIMIT).collect())
        size, records, rows = np.loadtxt(counts, dtype=np.int64, ndmin=2).sum(axis=0).tolist()
    finally:
        spark.stop()
    return [_figure(f"limit {LIMIT}, in Spark", Looked(size, records, rows, taken), whole)]


def _taken(action: Callable[[], object]) -> float:
    began = perf_counter()
    action()
    return perf_counter() - began


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["prune"]))
