"""Spark local[2]: a stream that reads a store to its end beside the batch read, and how long a message is on its way.

python -m bench.bench_stream
"""

import itertools
import shutil
import statistics
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.bench_scan import THREE_COLUMNS
from bench.bench_spark import local_session
from bench.figures import Figure, best_seconds
from bench.synth import StoreShape, write_store
from rmqstore import Message, StoreConfig, open_store
from rmqstore.snapshot.columns import DEFAULT_COLUMNS
from rmqstore.snapshot.stream.ends import StreamEnds

ROUNDS = 3
THROUGHPUT_SHARE_MIN = 0.7
# As many as bench_kafka streams: each start of a stream costs a second and more, most of it Spark's own.
MESSAGES = 5_000_000
TRIGGER_MS = 200
# Messages of the latency figure, and how far apart: triggers and puts must not keep step.
PUTS, PUT_EVERY_S = 60, 0.137
WARM_UP_PUTS = 10
LOOKS = 200


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """Throughput of Trigger.AvailableNow as a share of the batch read's, time from put to foreachBatch, and of a look
    at a store where nothing is new."""
    shape = StoreShape(count=MESSAGES // 16 if is_small else MESSAGES, body_size=100)
    store = write_store(scratch / "stream", shape)
    spark = local_session()
    try:
        figures = [
            _throughput(spark, store, shape, scratch, "default columns", DEFAULT_COLUMNS, THROUGHPUT_SHARE_MIN),
            _throughput(spark, store, shape, scratch, "three columns", THREE_COLUMNS),
        ]
        return [*figures, _latency(spark, scratch), _idle_look(store)]
    finally:
        spark.stop()
        shutil.rmtree(store)


def _throughput(
    spark: SparkSession, store: Path, shape: StoreShape, scratch: Path, name: str, columns: tuple[str, ...],
    goal: float | None = None,
) -> Figure:  # fmt: skip
    options = {"subscribe": "BenchTopic", "columns": ",".join(columns), "startingOffsets": "earliest"}
    numbers = itertools.count()

    def batch() -> None:
        frame = spark.read.format("rmqstore").options(**options).load(str(store))
        frame.write.format("noop").mode("overwrite").save()

    def stream() -> None:
        checkpoint = scratch / f"checkpoint-{name.replace(' ', '-')}-{next(numbers)}"
        frame = spark.readStream.format("rmqstore").options(**options).load(str(store))
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert sum(progress.numInputRows for progress in query.recentProgress) == shape.count
        shutil.rmtree(checkpoint)

    streamed, read = best_seconds([stream, batch], ROUNDS)
    return Figure(
        line=f"stream of {shape.body_size} B, AvailableNow, {name}",
        value=shape.count / streamed / 1e6,
        unit="M messages/s",
        against=f"batch read {shape.count / read / 1e6:.2f} M/s",
        judged=read / streamed,
        goal=goal,
    )


def _latency(spark: SparkSession, scratch: Path) -> Figure:
    """Time from before a put until a batch function has the row; the body says when that was."""
    root, taken_ms = scratch / "latency-store", []

    def arrived(frame: DataFrame, _: int) -> None:
        rows = frame.collect()
        now_s = time.monotonic()
        taken_ms.extend((now_s - float(bytes(row.body))) * 1000 for row in rows)
        if len(taken_ms) >= PUTS:
            is_done.set()

    is_done = threading.Event()
    with open_store(root, StoreConfig.embedded()) as engine:
        engine.put(Message("T", b"0", queue_id=0))
        engine.flush()
        frame = spark.readStream.format("rmqstore").option("subscribe", "T").option("columns", "body").load(str(root))
        writer = frame.writeStream.foreachBatch(arrived).option("checkpointLocation", str(scratch / "latency"))
        query = writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start()
        try:
            query.processAllAvailable()
            for number in range(PUTS):
                engine.put(Message("T", repr(time.monotonic()).encode(), queue_id=number % 4))
                time.sleep(PUT_EVERY_S)
            assert is_done.wait(60)
        finally:
            query.stop()
    seen = sorted(taken_ms[WARM_UP_PUTS:])
    return Figure(
        line=f"put to foreachBatch, trigger of {TRIGGER_MS} ms, p50",
        value=statistics.median(seen),
        unit="ms",
        against=f"p95 {seen[len(seen) * 95 // 100]:.0f} ms, least {seen[0]:.0f} ms",
    )


def _idle_look(store: Path) -> Figure:
    """One look of the source at a store where nothing is new, which a stream without a trigger does all the time."""
    ends = StreamEnds(store)
    ends.look()
    taken = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        ends.look()
        taken.append((time.perf_counter() - began) * 1000)
    return Figure(line="stream, a look when nothing is new, p50", value=statistics.median(taken), unit="ms")


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["stream"]))
