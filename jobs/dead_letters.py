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
BACK_COLUMNS = (
    "topic", "tags", "keys", "body", "properties", "storeTimestamp", "msgId", "bodyCrc", "reconsumeTimes",
)  # fmt: skip
ORIGIN_COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "msgId", "bodyCrc", "offsetMsgId",
)  # fmt: skip


def transform(letters: DataFrame, retries: DataFrame, origins: DataFrame) -> DataFrame:
    """One row a dead letter, the newest first: `group`, `topic` (in which the message was sent), `diedAt`, `attempts`
    (reconsumeTimes), `tags`, `keys`, `body`, `originId` (its offset id), of the message itself `brokerName`,
    `queueId`, `queueOffset` and `sentAt` (null where it is gone), of the retries that are still there `retries` (how
    many) and `lastRetryAt`.

    `letters` and `retries` have BACK_COLUMNS, `origins` ORIGIN_COLUMNS.  RocketMQ links them by the property
    ORIGIN_MESSAGE_ID, which each copy keeps; a message that was put into a dead letter topic by hand has none.  Retries
    of POP consumers (gRPC) have none either, and their letter has the id of the last retry: they are linked by topic,
    unique key and the CRC of the body.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    dead = _dead(letters)
    tried = retries.select(
        f.concat_ws("/", "topic", f.coalesce(_origin_id(), _key())).alias("triedLink"), "storeTimestamp"
    )
    tried = tried.groupBy("triedLink").agg(f.count("*").alias("retries"), f.max("storeTimestamp").alias("lastRetryAt"))
    links = f.explode(f.array("offsetMsgId", f.concat_ws("/", "topic", _key())))
    place = f.struct("storeTimestamp", "brokerName", "queueId", "queueOffset", "offsetMsgId")
    sent = origins.select(links.alias("sentLink"), place.alias("sent"))
    sent = sent.join(dead.select("sentLink").distinct(), "sentLink", "left_semi")
    sent = sent.groupBy("sentLink").agg(f.min("sent").alias("sent"))  # batches share a unique key
    joined = dead.join(sent, "sentLink", "left").join(tried, "triedLink", "left")
    return joined.select(
        "group", "topic", "diedAt", "attempts", "tags", "keys", "body",
        f.coalesce("sent.offsetMsgId", "originId").alias("originId"), "sent.brokerName", "sent.queueId",
        "sent.queueOffset", f.col("sent.storeTimestamp").alias("sentAt"),
        f.coalesce("retries", f.lit(0)).alias("retries"), "lastRetryAt",
    ).orderBy(f.desc("diedAt"), "group", "originId")  # fmt: skip


def _dead(letters: DataFrame) -> DataFrame:
    """The letters, with `sentLink` to their message and `triedLink` to their retries.

    RETRY_TOPIC names the topic in which the message was, and of a POP consumer the topic of its retries, which is
    %RETRY%, the group, an underscore or a plus, and the topic.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    group, named = f.substring("topic", len(DLQ) + 1, 255), f.col("properties")["RETRY_TOPIC"]
    usual = f.concat(f.lit(RETRY), group)
    is_pop = f.coalesce(named.startswith(f.concat(usual, f.lit("_"))) | named.startswith(f.concat(usual, f.lit("+"))),
                        f.expr("false"))  # fmt: skip
    topic = f.when(is_pop, f.substring(named, f.length(usual) + 2, f.lit(255))).otherwise(named)
    return letters.select(
        group.alias("group"), topic.alias("topic"), f.col("storeTimestamp").alias("diedAt"),
        f.col("reconsumeTimes").alias("attempts"), "tags", "keys", "body",
        f.when(~is_pop, _origin_id()).alias("originId"),
        f.when(is_pop, f.concat_ws("/", topic, _key())).otherwise(_origin_id()).alias("sentLink"),
        f.concat_ws("/", f.when(is_pop, named).otherwise(usual), f.when(is_pop, _key()).otherwise(_origin_id())).alias(
            "triedLink"
        ),
    )  # fmt: skip


def _origin_id() -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.col("properties")["ORIGIN_MESSAGE_ID"]


def _key() -> Column:
    """Null for a message without a unique key."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.concat("msgId", f.lit("/"), "bodyCrc")


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = job_command.parser_of("dead_letters", "dead letters, each with the message that it was and its retries")
    parser.add_argument("--group", type=job_command.given, help="of this consumer group alone")

    def rows(spark: SparkSession, asked: Namespace) -> DataFrame:
        group = re.escape(asked.group) if asked.group else ".*"
        letters = _read(spark, asked, DLQ + group, BACK_COLUMNS)
        retries = _read(spark, asked, f"{RETRY}{group}(?:[_+].*)?", BACK_COLUMNS)
        return transform(letters, retries, _read(spark, asked, ".*", ORIGIN_COLUMNS))

    return job_command.run(parser, argv, rows)


def _read(spark: SparkSession, asked: Namespace, pattern: str, columns: Sequence[str]) -> DataFrame:
    """The messages of all topics that fit; none where no topic does."""
    read = spark.read.format("rmqstore").options(subscribePattern=pattern, columns=",".join(columns))
    return read.option("includeSystemTopics", str(pattern != ".*").lower()).load(asked.store)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
