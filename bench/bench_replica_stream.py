"""How long a message is on its way from a master to Spark's foreachBatch, by way of a replica in a process of its own.

python -m bench.bench_replica_stream

The master is a store of ours, and RocketMQ 5.3.3 where `make conformance` has built it.  The same puts read from the
master's own directory are what that is compared with.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import rmqstore
from bench.bench_spark import local_session
from bench.bench_stream import PUT_EVERY_S, PUTS, TRIGGER_MS, WARM_UP_PUTS
from bench.figures import Figure
from rmqstore import Message, Store, StoreConfig, open_store
from rmqstore.config import HaConfig
from rmqstore.snapshot.stream.ends import StreamEnds
from tests.conformance.broker import BROKER_NAME, NEWEST, broker, name_server, until

TOPIC = "Latency"
FILE_SIZE = 16 * 1024 * 1024
# Puts of the figure without Spark, which is looked at as fast as it goes.
READABLE_PUTS = 300

Put = Callable[[bytes], object]


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """p50 and p90 of the ms from before a put until a row of it is there."""
    count = PUTS // 3 if is_small else PUTS
    spark = local_session()
    try:
        figures = _of_our_master(spark, scratch / "ours", count, READABLE_PUTS // 10 if is_small else READABLE_PUTS)
        if NEWEST.is_built:
            figures.append(_of_rocketmq(spark, scratch / "rocketmq", count))
        return figures
    finally:
        spark.stop()


def _of_our_master(spark: SparkSession, scratch: Path, count: int, readable: int) -> list[Figure]:
    config = StoreConfig(log_file_size=FILE_SIZE, ha=HaConfig(listen="127.0.0.1:0"))
    with open_store(scratch / "master", config) as master:

        def put(body: bytes) -> None:
            master.put(Message(TOPIC, body, queue_id=0)).raise_for_status()

        put(_now())
        master.flush()
        replica = scratch / "rmq" / "broker-a"
        with _replicating("--ha", _address(master), "--log-file-size", str(FILE_SIZE), "--to", str(replica)):
            until("the replica", lambda: _holds(replica, 1))
            seen = _readable(replica, put, readable)
            direct = _streamed(spark, {"stores": f'{{"broker-a": "{master.path}"}}'}, scratch / "direct", put, count)
            through = _streamed(spark, {"stores": str(replica.parent)}, scratch / "replica", put, count)
    return [
        _figure("put to our master, readable in its replica", seen),
        _figure(f"put to our master, replica, foreachBatch, trigger of {TRIGGER_MS} ms", through, direct),
    ]


def _of_rocketmq(spark: SparkSession, scratch: Path, count: int) -> Figure:
    settings = {"mappedFileSizeCommitLog": FILE_SIZE}
    with (
        name_server(scratch / "namesrv") as named,
        broker(scratch / "broker", scratch / "store", named, settings) as (running, client),
    ):
        running.change()  # registers with the name server

        def put(body: bytes) -> None:
            client.send([{"topic": TOPIC, "body": body}])

        put(_now())
        replica = scratch / "rmq" / BROKER_NAME
        with _replicating("--namesrv", named, "--to", str(replica.parent)):
            until("the replica", lambda: _holds(replica, 1))
            stores = f'{{"{BROKER_NAME}": "{scratch / "store"}"}}'
            direct = _streamed(spark, {"stores": stores}, scratch / "direct", put, count)
            through = _streamed(spark, {"stores": str(replica.parent)}, scratch / "replica", put, count)
    return _figure(
        f"send to RocketMQ {NEWEST.release}, replica, foreachBatch, trigger of {TRIGGER_MS} ms", through, direct
    )


def _streamed(
    spark: SparkSession, options: dict[str, str], checkpoint: Path, put: Put, count: int
) -> list[float]:  # fmt: skip
    """The ms that each of `count` puts took until a batch function had its row; the body says when that began."""
    taken_ms: list[float] = []

    def arrived(frame: DataFrame, _: int) -> None:
        rows = frame.collect()
        now_s = time.monotonic()
        taken_ms.extend((now_s - float(bytes(row.body))) * 1000 for row in rows)

    reader = spark.readStream.format("rmqstore").options(subscribe=TOPIC, columns="body", **options)
    writer = reader.load().writeStream.foreachBatch(arrived).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start()
    try:
        query.processAllAvailable()
        for number in range(WARM_UP_PUTS):  # one after the other: a cold JVM takes seconds for its first batches
            put(_now())
            until("a row", lambda number=number: len(taken_ms) > number)
        for _ in range(count):
            put(_now())
            time.sleep(PUT_EVERY_S)
        until("all rows", lambda: len(taken_ms) >= WARM_UP_PUTS + count)
    finally:
        query.stop()
    return taken_ms[WARM_UP_PUTS:]


def _readable(replica: Path, put: Put, count: int) -> list[float]:
    """The ms until a reader of the replica sees a put, without Spark."""
    ends = StreamEnds(replica)
    taken_ms = []
    for _ in range(count):
        before, began_s = _messages(ends), time.monotonic()
        put(_now())
        while _messages(ends) == before:
            assert time.monotonic() - began_s < 60, "the replica does not follow"
        taken_ms.append((time.monotonic() - began_s) * 1000)
    return taken_ms[WARM_UP_PUTS:]


def _messages(ends: StreamEnds) -> int:
    return sum(queue.max_offset for store in ends.look().stores for queue in store.queues.values())


def _holds(replica: Path, count: int) -> bool:
    return (replica / "commitlog").exists() and _messages(StreamEnds(replica)) >= count


def _address(master: Store) -> str:
    assert master.ha_address is not None
    return master.ha_address


def _now() -> bytes:
    return repr(time.monotonic()).encode()


@contextmanager
def _replicating(*arguments: str) -> Iterator[None]:
    """`rmqstore replicate` in a process of its own."""
    program = [sys.executable, "-c", 'from rmqstore.cli import main; main(prog_name="rmqstore")', "replicate"]
    path = str(Path(rmqstore.__file__).parents[1])
    with subprocess.Popen(
        [*program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
    ) as child:  # fmt: skip
        try:
            yield
        finally:
            child.send_signal(signal.SIGTERM)


def _figure(line: str, taken_ms: Sequence[float], direct_ms: Sequence[float] = ()) -> Figure:
    against = f"p90 {_p90(taken_ms):.1f} ms, least {min(taken_ms):.1f} ms"
    if direct_ms:
        against += (
            f"; from the master's own files p50 {statistics.median(direct_ms):.0f} ms, p90 {_p90(direct_ms):.0f} ms"
        )
    return Figure(line=f"{line}, p50", value=statistics.median(taken_ms), unit="ms", against=against)


def _p90(taken_ms: Sequence[float]) -> float:
    return sorted(taken_ms)[len(taken_ms) * 9 // 10]


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["replica"]))
