"""Which consumer groups are behind, by how much, and since when.

spark-submit jobs/lag_report.py --store /data/rocketmq/store
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_source import job_command

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import DataFrame, SparkSession


def transform(groups: DataFrame) -> DataFrame:
    """From the table `groups` to `group`, `topic`, `queues`, `lag` (messages that wait), `behind` (queues in which any
    does), `worstQueue` (struct<brokerName, queueId, lag>; null where nothing waits), `lagMs` (how much later than the
    next message of a group its queue's newest was stored, of the queue where that is longest); the longest first.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    waiting = f.when(f.col("lag") > 0, f.struct("lag", "brokerName", "queueId"))
    counted = groups.groupBy("group", "topic").agg(
        f.count("*").alias("queues"), f.sum("lag").alias("lag"), f.count(waiting).alias("behind"),
        f.max(waiting).alias("worst"), f.max("lagMs").alias("lagMs"),
    )  # fmt: skip
    worst = f.when(
        f.col("worst").isNotNull(), f.struct(f.col("worst.brokerName"), f.col("worst.queueId"), f.col("worst.lag"))
    )
    shown = counted.select("group", "topic", "queues", "lag", "behind", worst.alias("worstQueue"), "lagMs")
    return shown.orderBy(f.desc_nulls_last("lag"), "group", "topic")


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = job_command.parser_of("lag_report", "which consumer groups are behind, by how much, and since when")

    def rows(spark: SparkSession, asked: Namespace) -> DataFrame:
        return transform(spark.read.format("rmqstore").option("table", "groups").load(asked.store))

    return job_command.run(parser, argv, rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
