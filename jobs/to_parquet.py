"""Writes topics of a store to Parquet, one directory a day.

spark-submit jobs/to_parquet.py --store /data/rocketmq/store --topic orders --output /data/orders.parquet
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import rmqstore

if TYPE_CHECKING:  # so that --help answers, and says what is missing, where there is no PySpark
    from pyspark.sql import DataFrame, SparkSession

DAY = "day"
TIME_COLUMNS = ("storeTimestamp", "bornTimestamp")


def read_topics(spark: SparkSession, store: str, topics: str) -> DataFrame:
    """The messages of `topics` (names between commas) with every default column."""
    return spark.read.format("rmqstore").option("subscribe", topics).load(store)


def transform(messages: DataFrame, time_column: str = TIME_COLUMNS[0]) -> DataFrame:
    """`messages` with `day`, the date of `time_column` in the session's time zone; null where the time is."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return messages.withColumn(DAY, f.to_date(time_column))


def write_by_day(days: DataFrame, output: str, *, overwrite: bool = False) -> None:
    """Writes what `transform` returns to `output`/day=YYYY-MM-DD/*.parquet.

    An `output` that exists is an error, or replaced as a whole with `overwrite`.
    """
    days.write.mode("overwrite" if overwrite else "errorifexists").partitionBy(DAY).parquet(output)


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status.  Days are those of UTC."""
    parser = argparse.ArgumentParser(prog="to_parquet.py", description="topics of a RocketMQ store to Parquet, by day")
    parser.add_argument("--store", required=True, help="the broker's store directory, as the executors see it")
    parser.add_argument("--topic", required=True, help="a topic, or several with commas between them")
    parser.add_argument("--output", required=True, help="the directory to write, a path or URL that Spark can write to")
    parser.add_argument("--partition-by", choices=TIME_COLUMNS, default=TIME_COLUMNS[0], help="whose day; %(default)s")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the output directory")
    asked = parser.parse_args(argv)
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        parser.exit(1, f"{parser.prog}: there is no PySpark here ({error}): pip install 'rmqstore[spark]'\n")
    spark = SparkSession.builder.appName("rmqstore to_parquet").getOrCreate()
    try:
        # A cluster that got the package with --py-files does not find its data source by itself.
        rmqstore.register(spark)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        days = transform(read_topics(spark, asked.store, asked.topic), asked.partition_by)
        write_by_day(days, asked.output, overwrite=asked.overwrite)
        written = spark.read.parquet(asked.output).count()
        print(f"{written} messages of {asked.topic} are in {asked.output}, by the day of their {asked.partition_by}")
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
