"""Spark local[2] writing messages of 100 bytes into a new store, keys indexed, and the proof that they are all there.

python -m bench.bench_sink

The clock runs from the call of save() until it returns: encoded, staged, appended, synced, in queues and index, the
commit durable.  The rows are read from a Parquet file, in the page cache.  Reading them back through Spark, every key
once and in order, has a time of its own; the goal is on both together.
"""

import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.bench_spark import local_session
from bench.figures import Figure

GOAL_ROWS_S = 200_000
BODY_SIZE = 100
QUEUES = 4
ROUNDS = 3


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """Rows a second with and without reading back: the best of some rounds, each into a new store."""
    count = 200_000 if is_small else 2_000_000
    spark = local_session()
    try:
        rows = message_rows(spark, scratch, count)
        times = [_round(spark, rows, scratch / f"sink-{turn}", count) for turn in range(ROUNDS + 1)][1:]
    finally:
        spark.stop()
    written, read_back = min(times, key=sum)
    line = f"Spark sink {BODY_SIZE} B, keys indexed"
    whole = count / (written + read_back)
    return [
        Figure(line=line, value=count / written / 1e6, unit="M messages/s", against="the commit alone"),
        Figure(
            line=f"{line}, read back",
            value=whole / 1e6,
            unit="M messages/s",
            judged=whole,
            goal=None if is_small else GOAL_ROWS_S,
        ),
    ]


def message_rows(spark: SparkSession, scratch: Path, count: int) -> DataFrame:
    """The messages in two files, so that two tasks have the same to do."""
    directory = scratch / "sink-rows"
    directory.mkdir()
    body = pa.array([bytes(BODY_SIZE)], pa.binary())
    for half in range(2):
        numbers = np.arange(half * count // 2, (half + 1) * count // 2)
        table = pa.table(
            {
                "body": body.take(pa.array(np.zeros(len(numbers), np.int64))),
                "keys": pa.array(numbers).cast(pa.string()),
                "tags": pa.array(["paid"]).take(pa.array(np.zeros(len(numbers), np.int64))),
            }
        )
        pq.write_table(table, directory / f"{half}.parquet")
    frame = spark.read.parquet(str(directory))
    assert frame.count() == count
    return frame


def _round(spark: SparkSession, rows: DataFrame, store: Path, count: int) -> tuple[float, float]:
    """Seconds of the write, and of the proof."""
    began = time.perf_counter()
    rows.write.format("rmqstore").option("topic", "BenchTopic").option("queues", QUEUES).mode("append").save(str(store))
    written = time.perf_counter()
    found = spark.read.format("rmqstore").option("subscribe", "BenchTopic").option("columns", "keys,body,queueOffset")
    number = f.col("keys").cast("long")
    row = found.load(str(store)).agg(
        f.count("*"), f.sum(number), f.sum(number * number % 1009), f.sum(f.length("body"))
    ).first()  # fmt: skip
    read = time.perf_counter()
    expected = np.arange(count, dtype=np.int64)
    assert tuple(row) == (count, int(expected.sum()), int((expected * expected % 1009).sum()), count * BODY_SIZE)
    shutil.rmtree(store)
    return written - began, read - written


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["sink"]))
