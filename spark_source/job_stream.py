"""The part that the jobs which carry topics elsewhere share: days, files of a size, and a stream that runs to its end.

It stands beside `job_command` for the same reason: spark-submit runs a job as a script, which is in no package.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that --help answers where there is no PySpark
    from pyspark.sql import DataFrame, SparkSession

DAY = "day"
PARTITIONS = ("topic", DAY)
TIME_COLUMNS = ("storeTimestamp", "bornTimestamp")
TARGET_MIB = 128
# A task of a read has at most this share of a file, so that files can be put together, and big topics divided.
_TASKS_A_FILE = 4
# Every batch of a run is counted; Spark alone would keep the progress of a hundred.
_PROGRESS_KEPT = 1_000_000
_ORDER = (*PARTITIONS, "brokerName", "queueId", "queueOffset")


def add_transport(parser: argparse.ArgumentParser) -> None:
    """The arguments that all jobs have which carry topics elsewhere."""
    parser.add_argument("--store", required=True, help="the broker's store directory, as the executors see it")
    parser.add_argument("--topic", required=True, help="a topic, or several separated by commas")
    parser.add_argument(
        "--partition-by",
        choices=TIME_COLUMNS,
        default=TIME_COLUMNS[0],
        help="the column that gives the day (default: %(default)s)",
    )
    parser.add_argument(
        "--target-mib",
        type=mebibytes,
        default=TARGET_MIB,
        metavar="N",
        help="size of a file, roughly, in MiB (default: %(default)s)",
    )


def mebibytes(text: str) -> int:
    """A whole number of MiB, at least 1."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of MiB, at least 1")
    return int(text)


def with_day(messages: DataFrame, time_column: str) -> DataFrame:
    """`messages` with `day`, the date of `time_column` in the session's time zone; null where the time is."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return messages.withColumn(DAY, f.to_date(time_column))


def options_of(asked: argparse.Namespace) -> dict[str, str]:
    """The options of a read of the topics, in tasks that are small enough for files of the size that was asked for."""
    return {"subscribe": asked.topic, "maxBytesPerPartition": f"{asked.target_mib * 1024 // _TASKS_A_FILE}k"}


def in_files(days: DataFrame, target_mib: int) -> DataFrame:
    """Rows of `with_day`, shuffled so that a writer by PARTITIONS makes few files, each of about `target_mib` MiB.

    Spark's own rebalancing does it: after the shuffle its real sizes are known, and adaptive execution puts small parts
    together and divides large ones.  What is counted is the shuffle's size, compressed, which is about Parquet's.
    Within a file the rows are in the order of their queues.
    """
    conf = days.sparkSession.conf
    conf.set("spark.sql.adaptive.enabled", "true")
    # Else parts are put together only as far as all cores stay busy, and files are as many as cores.
    conf.set("spark.sql.adaptive.coalescePartitions.parallelismFirst", "false")
    conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", f"{target_mib}m")
    order = [name for name in _ORDER if name in days.columns]
    return days.hint("rebalance", *PARTITIONS).sortWithinPartitions(*order)


def run_available(stream: DataFrame, checkpoint: str, put: Callable[[DataFrame, str, int], None]) -> int:
    """Hands what `stream` has now to `put`, in batches, each with the query's id and its number; returns how many rows
    were read.

    After a crash the batch that was not noted in `checkpoint` comes once more, with the same id, number and rows:
    `put` sees to it that it is there once.
    """
    spark = stream.sparkSession
    # Before PySpark 4.2 a query that begins with the batch of a crash would end after it.
    spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")

    def one(batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        put(batch, str(query), number)

    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_PROGRESS_KEPT))
    writer = stream.writeStream.foreachBatch(one).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return sum(progress.numInputRows for progress in query.recentProgress)


def read_stream(spark: SparkSession, asked: argparse.Namespace) -> DataFrame:
    """The topics as a stream from their beginning; what a checkpoint has is not read again."""
    read = spark.readStream.format("rmqstore").options(startingOffsets="earliest", **options_of(asked))
    return read.load(asked.store)
