"""How much was sent: messages, bytes and sizes by topic, tag, sender and minute.

spark-submit jobs/traffic.py --store /data/rocketmq/store --since 2026-11-19T00:00:00Z --by topic,tags --minutes 60
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_source import job_command

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import DataFrame, SparkSession

BY = ("topic", "tags", "bornHost")
COLUMNS = (*BY, "storeTimestamp", "storeSize")
_SHARES = {"p50": 0.5, "p95": 0.95}


def transform(messages: DataFrame, by: Sequence[str] = BY, minutes: int = 1) -> DataFrame:
    """From messages with COLUMNS to `since` (a time; the beginning of each span of `minutes`), the columns `by`,
    `messages`, `bytes` (of whole records), and of a record's bytes `p50`, `p95` and `max`; ordered by time and `by`.

    The sender is `bornHost` without its port, which is another one for each of its connections.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    span = f.window("storeTimestamp", f"{minutes} minutes")["start"].alias("since")
    host = f.regexp_replace("bornHost", ":[0-9]+$", "")
    groups = [host.alias(name) if name == "bornHost" else f.col(name) for name in by]
    quantiles = [
        f.expr(f"percentile(storeSize, {share})").cast("bigint").alias(name) for name, share in _SHARES.items()
    ]
    counted = messages.groupBy(span, *groups).agg(
        f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"), *quantiles, f.max("storeSize").alias("max")
    )
    return counted.orderBy("since", *by)


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = job_command.parser_of("traffic", "messages, bytes and sizes by topic, tag, sender and minute")
    job_command.add_topics(parser)
    parser.add_argument(
        "--by",
        type=job_command.some_of(BY),
        default=",".join(BY),
        help="the columns to group by (default: %(default)s)",
    )
    parser.add_argument(
        "--minutes",
        type=job_command.whole(1),
        default=1,
        metavar="N",
        help="the length of a time span (default: %(default)s)",
    )

    def rows(spark: SparkSession, asked: Namespace) -> DataFrame:
        read = spark.read.format("rmqstore").options(columns=",".join(COLUMNS), **job_command.chosen(asked))
        return transform(read.load(asked.store), asked.by, asked.minutes)

    return job_command.run(parser, argv, rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
