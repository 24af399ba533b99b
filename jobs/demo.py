"""The main job on a store that a real broker wrote: `make demo`, or `python -m jobs.demo` in a checkout of the project.

What a part shows is one function from DataFrames to a DataFrame; the rest of this module tells about it on a terminal.
"""

import argparse
import os
import sys
import tarfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import rmqstore
from spark_source.job_stream import DAY

from . import broker_demo, engine_demo, topic_to_parquet
from .printing import code, facts, heading, paragraph, table

ARCHIVE = Path(__file__).parents[1] / "examples" / "orders-store.tar.gz"
STORE = "store"
PARQUET = "orders.parquet"
SPARK_LOG = "spark.log"

ORDER = "o-1017"
PAID_BY_HOUR = """
SELECT   date_format(bornTimestamp, 'HH:00') AS hour_utc,
         count(*) AS orders_paid,
         sum(get_json_object(string(body), '$.amount_cents')) / 100 AS euros
FROM     orders
WHERE    tags = 'paid'
AND      bornTimestamp >= '2026-11-19 08:00'
AND      bornTimestamp <  '2026-11-19 12:00'
GROUP BY hour_utc
ORDER BY hour_utc
"""


def messages_per_queue(messages: DataFrame) -> DataFrame:
    """How many messages each queue of each topic holds: topic, queue, messages."""
    counted = messages.groupBy("topic", f.col("queueId").alias("queue")).agg(f.count("*").alias("messages"))
    return counted.orderBy("topic", "queue")


def backlog(offsets: DataFrame, queues: DataFrame) -> DataFrame:
    """How much each consumer group has consumed, and what waits: group, topic, consumed, waiting, waiting_by_queue.

    `offsets` as Snapshot.consumer_offsets() has them, `queues` as Snapshot.queues().  A queue in which a group has not
    said how far it is counts from its first message; messages that the broker has deleted wait for nobody.
    """
    place = ["topic", "brokerName", "queueId"]
    groups = offsets.select("group", "topic", "brokerName").distinct()
    joined = groups.join(queues, ["topic", "brokerName"]).join(offsets, ["group", *place], "left")
    following = f.greatest(f.coalesce("offset", "minOffset"), "minOffset")
    waiting = joined.withColumn("waiting", f.greatest(f.col("maxOffset") - following, f.lit(0)))
    by_queue = f.transform(
        f.array_sort(f.collect_list(f.struct("brokerName", "queueId", "waiting"))),
        lambda queue: f.format_number(queue["waiting"], 0),
    )
    totals = waiting.groupBy("group", "topic").agg(
        f.sum(f.coalesce("offset", f.lit(0))).alias("consumed"),
        f.sum("waiting").alias("waiting"),
        f.array_join(by_queue, " + ").alias("waiting_by_queue"),
    )
    return totals.orderBy(f.desc("waiting"), "group", "topic")


def history(messages: DataFrame) -> DataFrame:
    """The messages in the order in which they were sent: sent_utc, topic, tag, body.

    Of a JSON object in the body the names and values that the other columns do not say already.
    """
    said = f.from_json(f.col("body").cast("string"), "map<string,string>")
    beyond = f.map_filter(said, lambda name, _: ~name.isin("order", "event", "at"))
    pairs = f.transform(f.map_entries(beyond), lambda pair: f.concat_ws("=", pair["key"], pair["value"]))
    sent = f.date_format("bornTimestamp", "yyyy-MM-dd HH:mm:ss")
    body, tag = f.array_join(pairs, " "), f.col("tags")
    return messages.orderBy("bornTimestamp", "topic").select(
        sent.alias("sent_utc"), "topic", tag.alias("tag"), body.alias("body")
    )


def messages_per_day(days: DataFrame) -> DataFrame:
    """How many rows each day has: day, messages."""
    return days.groupBy(DAY).agg(f.count("*").alias("messages")).orderBy(DAY)


def unpack(archive: Path, output: Path) -> Path:
    """The store below `output`, unpacked from `archive` unless it is there already.

    A store that was not unpacked to its end never bears the final name.
    """
    store = output / STORE
    if not store.exists():
        unfinished = output / "unpacking"
        with tarfile.open(archive) as packed:
            packed.extractall(unfinished, filter="data")
        (unfinished / STORE).rename(store)
        unfinished.rmdir()
    return store


def start_spark(output: Path) -> SparkSession:
    """A local session that writes what Spark logs to `output`/spark.log and nothing to the terminal."""
    # Workers run the first python3 on PATH unless told otherwise; a machine whose name does not resolve needs the IP.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", module="pyspark")
    conf = SparkConf().setMaster("local[2]").setAppName("rmqstore demo")
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.sql.session.timeZone", "UTC").set("spark.sql.shuffle.partitions", "2")
    # A session of a minute ends before the JVM's second compiler pays: of a first query it takes a quarter of the CPU.
    conf.set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    with (output / SPARK_LOG).open("wb") as log:
        gateway = launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def show_store(spark: SparkSession, store: Path, snapshot: rmqstore.Snapshot) -> None:
    """Part 1: what the directory is, and how many messages are where."""
    extent = snapshot.stores[0]
    read = spark.read.format("rmqstore").option("subscribePattern", ".*").option("columns", "topic,queueId")
    counted = messages_per_queue(read.load(str(store))).cache()
    own = sorted({row.topic for row in counted.collect()})
    others = sorted(set(snapshot.queues()["topic"].to_pylist()) - set(own))
    print(heading("1. What is in the store"))
    print(
        facts(
            [
                ("directory", str(store)),
                ("written by", f"RocketMQ {extent.version_line}, by a broker called {extent.broker_name}"),
                ("the broker", "may be running" if extent.is_live else "is stopped; reading needs no broker at all"),
                (
                    "messages",
                    f"{(extent.log_end - extent.log_start) / 2**20:.1f} MiB in {len(extent.log_files)} commitlog files",
                ),
                ("topics", ", ".join(own)),
                ("broker's own", f"{', '.join(others)} (retries, dead letters, delays)"),
            ]
        )
    )
    print()
    print(paragraph("Messages per topic and queue (a queue is one of the lanes into which a topic is divided):"))
    show_code('spark.read.format("rmqstore").option("subscribePattern", ".*")', f'.load("{store}")')
    print(table(counted))


def show_query(spark: SparkSession, store: Path) -> None:
    """Part 2: SQL by tag and time."""
    print(heading("2. A question in SQL: which orders were paid that morning?"))
    print(paragraph("Each message has a tag, a time and a body.  In this topic the bodies are JSON."))
    show_code(
        'spark.read.format("rmqstore").option("subscribe", "orders")',
        f'.load("{store}").createOrReplaceTempView("orders")',
    )
    topic_to_parquet.read_topics(spark, str(store), "orders").createOrReplaceTempView("orders")
    print(paragraph("and then, with times in UTC:"))
    print(code(PAID_BY_HOUR))
    print(table(spark.sql(PAID_BY_HOUR)))


def show_backlog(spark: SparkSession, store: Path, snapshot: rmqstore.Snapshot) -> None:
    """Part 3: how far each consumer group is."""
    print(heading("3. Who is behind?"))
    print(
        paragraph(
            """A consumer group is a program that reads a topic; the broker keeps how far each group has come in each
            queue.  The difference to the end of the queue is what still waits for it:"""
        )
    )
    show_code(
        f'snapshot = rmqstore.open_snapshot("{store}")',
        "offsets = spark.createDataFrame(snapshot.consumer_offsets())",
        "queues = spark.createDataFrame(snapshot.queues())  # then join the two",
    )
    offsets, queues = snapshot.consumer_offsets(), snapshot.queues()
    print(table(backlog(spark.createDataFrame(offsets), spark.createDataFrame(queues))))
    print()
    print(paragraph("(A topic %RETRY%… holds what its group has asked to get once more.)"))


def show_history(spark: SparkSession, store: Path) -> None:
    """Part 4: the messages of one key."""
    print(heading(f"4. What happened to order {ORDER}?"))
    print(paragraph("The order number is the key of its messages, here in two topics:"))
    show_code(
        'spark.read.format("rmqstore").option("subscribe", "orders,payments")',
        f'.option("keys", "{ORDER}").load("{store}")',
    )
    read = spark.read.format("rmqstore").option("subscribe", "orders,payments").option("keys", ORDER)
    print(table(history(read.load(str(store)))))


def write_parquet(spark: SparkSession, store: Path, output: Path) -> None:
    """Part 5: a topic as Parquet files, and what is in them."""
    print(heading("5. Out to Parquet, one directory a topic and day"))
    days = topic_to_parquet.transform(topic_to_parquet.read_topics(spark, str(store), "orders"), "bornTimestamp")
    topic_to_parquet.write_by_day(days, str(output), overwrite=True)
    print(paragraph("This is what jobs/topic_to_parquet.py does.  The files are in"))
    files = sorted(output.glob(f"topic=*/{DAY}=*/*.parquet"))
    print(code("\n".join(f"{directory}/" for directory in sorted({str(file.parent) for file in files}))))
    print(paragraph("and hold, read back:"))
    print()
    print(table(messages_per_day(spark.read.parquet(str(output)))))


def show_next(store: Path) -> None:
    """Part 8: commands to go on with."""
    print(heading("8. What to try next"))
    print(
        code(
            f"""
. .venv/bin/activate
rmqstore inspect {store}
rmqstore cat {store} --topic orders --limit 5
rmqstore verify {store}
pyspark"""
        )
    )
    print(paragraph("and at the prompt of pyspark:"))
    print(
        code(
            f"""
read = spark.read.format("rmqstore").option("subscribe", "payments")
payments = read.load("{store}")
payments.groupBy("tags").count().show()"""
        )
    )
    print(
        paragraph(
            "Your own store: the storePathRootDir of a broker, or a copy of it.  docs/options.md has all options."
        )
    )


def show_code(*lines: str) -> None:
    """Prints lines of code, the second and later ones further in."""
    joined = [line if not line.startswith(".") else f"    {line}" for line in lines]
    print(code("\n".join(joined)))


def show_all(output: Path) -> None:
    """Unpacks the store and runs all parts in one Spark session."""
    store = unpack(ARCHIVE, output)
    print("rmqstore: the messages of a RocketMQ broker, read from its files with Spark")
    print()
    print(
        paragraph(
            """RocketMQ is a message broker: programs send messages to topics, other programs consume them.  The broker
            keeps all of it in one directory, its store.  This one comes from a small invented shop."""
        )
    )
    snapshot = rmqstore.open_snapshot(store)
    spark = start_spark(output)
    try:
        show_store(spark, store, snapshot)
        show_query(spark, store)
        show_backlog(spark, store, snapshot)
        show_history(spark, store)
        write_parquet(spark, store, output / PARQUET)
        engine_demo.show_engine(spark, store, output)
        broker_demo.show_broker(spark, output)
    finally:
        spark.stop()
    show_next(store)


def main(argv: Sequence[str]) -> int:
    """Runs the demo; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.demo", description="the main job on the store in examples/"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/demo"),
        help=f"directory for {STORE}/, {PARQUET}/, {engine_demo.STORE}/ and {broker_demo.STORE}/ (the last three are"
        f" replaced), {SPARK_LOG}; default: %(default)s",
    )
    output = parser.parse_args(argv).output
    if not ARCHIVE.exists():
        print(f"demo: {ARCHIVE} is not there; run it in a checkout of the project, with make demo", file=sys.stderr)
        return 1
    try:
        output.mkdir(parents=True, exist_ok=True)
        show_all(output)
    except PySparkRuntimeError as error:
        print(f"demo: Spark did not start ({error.getErrorClass()}); look into {output / SPARK_LOG}", file=sys.stderr)
        return 1
    except ChildProcessError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"demo: {error}; choose another directory with --output", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
