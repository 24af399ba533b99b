"""Dead letters, each with the message that it was, and the retries on the way.

spark-submit jobs/dead_letters.py --store /data/rocketmq/store --group billing
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_source import job_command

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import Column, DataFrame, SparkSession

DLQ, RETRY = "%DLQ%", "%RETRY%"
# Of letters and retries, and of the messages that they were.
BACK_COLUMNS = ("topic", "tags", "keys", "body", "properties", "storeTimestamp", "offsetMsgId", "reconsumeTimes")
ORIGIN_COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "offsetMsgId")


def transform(letters: DataFrame, retries: DataFrame, origins: DataFrame) -> DataFrame:
    """One row a dead letter, the newest first: `group`, `topic` (in which the message was sent), `diedAt`, `attempts`
    (reconsumeTimes), `tags`, `keys`, `body`, `originId` (its offset id), of the message itself `brokerName`,
    `queueId`, `queueOffset` and `sentAt` (null where it is gone), of the retries that are still there `retries` (how
    many) and `lastRetryAt`.

    `letters` and `retries` have BACK_COLUMNS, `origins` ORIGIN_COLUMNS.  RocketMQ links them by the property
    ORIGIN_MESSAGE_ID, which each copy keeps; a message that was put into a dead letter topic by hand has none.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    dead = letters.select(
        _group(DLQ).alias("group"), f.coalesce(f.col("properties")["RETRY_TOPIC"], f.lit(None)).alias("topic"),
        f.col("storeTimestamp").alias("diedAt"), f.col("reconsumeTimes").alias("attempts"), "tags", "keys", "body",
        f.col("properties")["ORIGIN_MESSAGE_ID"].alias("originId"),
    )  # fmt: skip
    tried = retries.select(
        _group(RETRY).alias("group"), f.col("properties")["ORIGIN_MESSAGE_ID"].alias("originId"), "storeTimestamp"
    )
    tried = tried.groupBy("group", "originId").agg(
        f.count("*").alias("retries"), f.max("storeTimestamp").alias("lastRetryAt")
    )
    sent = origins.select(
        f.col("offsetMsgId").alias("originId"), "brokerName", "queueId", "queueOffset",
        f.col("storeTimestamp").alias("sentAt"),
    )  # fmt: skip
    joined = dead.join(sent, "originId", "left").join(tried, ["group", "originId"], "left")
    return joined.select(
        "group", "topic", "diedAt", "attempts", "tags", "keys", "body", "originId", "brokerName", "queueId",
        "queueOffset", "sentAt", f.coalesce("retries", f.lit(0)).alias("retries"), "lastRetryAt",
    ).orderBy(f.desc("diedAt"), "group", "originId")  # fmt: skip


def _group(prefix: str) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.substring("topic", len(prefix) + 1, 255)


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = job_command.parser_of("dead_letters", "dead letters, each with the message that it was and its retries")
    parser.add_argument("--group", help="of this consumer group alone")

    def rows(spark: SparkSession, asked: Namespace) -> DataFrame:
        def back(prefix: str) -> DataFrame:
            return _read(spark, asked, prefix + re.escape(asked.group) if asked.group else f"{prefix}.*", BACK_COLUMNS)

        letters = back(DLQ)
        return transform(letters, back(RETRY), _read(spark, asked, ".*", ORIGIN_COLUMNS))

    return job_command.run(parser, argv, rows)


def _read(spark: SparkSession, asked: Namespace, pattern: str, columns: Sequence[str]) -> DataFrame:
    """The messages of all topics that fit; none where no topic does."""
    read = spark.read.format("rmqstore").options(subscribePattern=pattern, columns=",".join(columns))
    return read.option("includeSystemTopics", str(pattern != ".*").lower()).load(asked.store)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
