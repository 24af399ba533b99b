"""Messages that were sent more than once: unique key and body are in a topic again.

spark-submit jobs/duplicates.py --store /data/rocketmq/store --topic orders --within 60
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_source import job_command

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "msgId", "body", "storeTimestamp")


def transform(messages: DataFrame, within_minutes: int | None = None) -> DataFrame:
    """From messages with COLUMNS to those that their topic has more than once, by unique key (`msgId`) and body:
    `topic`, `msgId`, `copies`, `first` and `last` (times of storing), `places`
    (array<struct<brokerName, queueId, queueOffset>>, in the order of storing); most copies first.

    The key alone does not do: all messages of a batch of a 5.x client may have one.  `within_minutes` leaves out what
    was stored farther apart from first to last.  A message without a unique key is none.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    place = f.struct("storeTimestamp", "brokerName", "queueId", "queueOffset")
    sent = messages.where(f.col("msgId").isNotNull()).groupBy("topic", "msgId", f.sha2("body", 256).alias("digest"))
    found = sent.agg(
        f.count("*").alias("copies"),
        f.min("storeTimestamp").alias("first"),
        f.max("storeTimestamp").alias("last"),
        f.array_sort(f.collect_list(place)).alias("stored"),
    ).where("copies > 1")
    if within_minutes is not None:
        found = found.where(f.col("last") <= f.col("first") + f.make_interval(mins=f.lit(within_minutes)))
    places = f.transform("stored", lambda one: f.struct(one["brokerName"], one["queueId"], one["queueOffset"]))
    shown = found.withColumn("places", places.cast("array<struct<brokerName:string,queueId:int,queueOffset:bigint>>"))
    return shown.drop("stored", "digest").orderBy(f.desc("copies"), "topic", "msgId")


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = job_command.parser_of("duplicates", "messages that a topic has more than once, by unique key and body")
    job_command.add_topics(parser)
    parser.add_argument(
        "--within",
        type=job_command.whole(0),
        metavar="MINUTES",
        help="only duplicates that were stored within this many minutes",
    )

    def rows(spark: SparkSession, asked: Namespace) -> DataFrame:
        read = spark.read.format("rmqstore").options(columns=",".join(COLUMNS), **job_command.chosen(asked))
        return transform(read.load(asked.store), asked.within)

    return job_command.run(parser, argv, rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
