"""The life of a key: every message that has it, over all topics, retries and dead letters included.

spark-submit jobs/order_trace.py --store /data/rocketmq/store --key o-1017
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_source import job_command

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "tags", "body", "properties", "bornTimestamp", "storeTimestamp",
    "reconsumeTimes", "msgId", "physicalOffset",
)  # fmt: skip
BODY_SHOWN = 200


def transform(messages: DataFrame, body_shown: int = BODY_SHOWN) -> DataFrame:
    """From the messages of a key, with COLUMNS, to its steps in the order of storing.

    `step` (1, 2 …), `sent` (a time, by the sender's clock), `stored` (a time), `afterMs` (stored since the first),
    `stage` (message, retry, dead letter, delayed, transaction, other system topic), `topic` (of a retry or a delayed
    message the one that it is of), `group` (whose retry or dead letter; null for others), `attempt` (reconsumeTimes),
    `tags`, `brokerName`, `queueId`, `queueOffset`, `body` (its beginning, as UTF-8 text).
    """
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    order = Window.orderBy("storeTimestamp", "brokerName", "physicalOffset")
    first = f.min("storeTimestamp").over(Window.partitionBy())
    after = (f.unix_micros("storeTimestamp") - f.unix_micros(first)) / 1000
    body = f.substring(f.col("body").cast("string"), 1, body_shown)
    return _with_origin(messages).select(
        f.row_number().over(order).alias("step"), f.col("bornTimestamp").alias("sent"),
        f.col("storeTimestamp").alias("stored"),
        after.cast("bigint").alias("afterMs"), "stage", f.coalesce("sentTo", "topic").alias("topic"), "group",
        f.col("reconsumeTimes").alias("attempt"), "tags", "brokerName", "queueId", "queueOffset", body.alias("body"),
    ).orderBy("step")  # fmt: skip


def _with_origin(messages: DataFrame) -> DataFrame:
    """The messages with `stage`, `sentTo` (null where nothing tells) and `group`.

    RETRY_TOPIC names the topic in which a message was.  Retries of POP consumers (gRPC) lack it: their topic is
    %RETRY%, the group, an underscore or a plus, and the topic, and stands in RETRY_TOPIC of their dead letter.  Of the
    letter the group is known, and of retries of newer brokers (ORIGIN_GROUP); a plus divides, as no name has one; else
    the message itself tells, which has the same unique key.
    """
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    topic, properties = f.col("topic"), f.col("properties")
    stage = (
        f.when(topic.startswith("%RETRY%"), "retry")
        .when(topic.startswith("%DLQ%"), "dead letter")
        .when(topic.isin("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"), "delayed")
        .when(topic.startswith("RMQ_SYS_TRANS_") | topic.startswith("RMQ_SYS_ROCKSDB_TRANS_"), "transaction")
        .when(topic.startswith("rmq_sys_") | topic.startswith("RMQ_SYS_"), "other system topic")
        .otherwise("message")
    )
    # A retry waits as a delayed message first.
    via = f.when(f.col("stage") == "delayed", properties["REAL_TOPIC"]).otherwise(topic)
    is_retry = f.coalesce(via.startswith("%RETRY%"), f.lit(False))
    is_back = is_retry | (f.col("stage") == "dead letter")
    named = f.when(is_back, f.coalesce(properties["RETRY_TOPIC"], via)).when(
        f.col("stage").isin("delayed", "transaction"), properties["REAL_TOPIC"]
    )
    rest = f.when(is_back & named.startswith("%RETRY%"), f.expr("substring(named, 8)"))
    known = f.when(topic.startswith("%DLQ%"), f.expr("substring(topic, 6)")).otherwise(properties["ORIGIN_GROUP"])
    same = f.collect_set(f.when(f.col("stage") == "message", topic)).over(Window.partitionBy("msgId"))
    of_pop = f.expr(
        """CASE WHEN contains(rest, '+') THEN substring(rest, instr(rest, '+') + 1)
                WHEN startswith(rest, concat(known, '_')) THEN substring(rest, length(known) + 2)
                WHEN msgId IS NOT NULL THEN array_max(transform(filter(same, one -> endswith(rest, concat('_', one))),
                                                                one -> struct(length(one) AS size, one))).one END"""
    )
    group = f.expr(
        """CASE WHEN stage = 'dead letter' THEN known
                WHEN isRetry AND rest IS NULL THEN substring(via, 8)
                WHEN isRetry THEN substring(rest, 1, length(rest) - coalesce(length(ofPop) + 1, 0)) END"""
    )
    steps = messages.withColumn("stage", stage).withColumn("via", via).withColumn("isRetry", is_retry)
    steps = steps.withColumn("named", named).withColumn("rest", rest)
    steps = steps.withColumn("known", known).withColumn("same", same).withColumn("ofPop", of_pop)
    sent_to = f.when(f.col("rest").isNull(), f.col("named")).otherwise(f.col("ofPop"))
    return steps.withColumn("group", group).withColumn("sentTo", sent_to)


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = job_command.parser_of(
        "order_trace", "every message that has a key, over all topics, in the order of storing"
    )
    parser.add_argument("--key", required=True, type=job_command.one_key, help="a key, or a message's unique key")

    def rows(spark: SparkSession, asked: Namespace) -> DataFrame:
        read = spark.read.format("rmqstore").options(
            subscribePattern=".*", includeSystemTopics="true", keys=json.dumps([asked.key]), columns=",".join(COLUMNS)
        )
        return transform(read.load(asked.store))

    return job_command.run(parser, argv, rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
