"""Transactions with their half messages and what became of them: who left some undecided, and for how long.

spark-submit jobs/transaction_audit.py --store /data/rocketmq/store --late-minutes 30 --only late,lost
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_source import job_command

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import DataFrame, SparkSession

HALF_MESSAGES = "RMQ_SYS_TRANS_HALF_TOPIC"
# Brokers since 5.4 may have them in a topic of their own (transRocksDBEnable).
HALF_TOPICS = f"{HALF_MESSAGES}|RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
HALF_COLUMNS = ("msgId", "brokerName", "queueOffset", "keys", "tags", "body", "bornHost")
FINAL_COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "body")
VERDICTS = ("committed", "rolledback", "discarded", "pending", "late", "lost", "changed")
LATE_MINUTES = 15


def transform(
    transactions: DataFrame, halves: DataFrame, finals: DataFrame, late_minutes: int = LATE_MINUTES
) -> DataFrame:
    """From the table `transactions`, the messages of HALF_TOPICS (HALF_COLUMNS) and those of the topics that they are
    for (FINAL_COLUMNS) to a row a transaction, in the order of their beginning: `verdict`, `topic`, `producerGroup`,
    `transactionId`, `keys`, `tags`, `producer` (a host), `preparedAt`, `decidedAt`, `tookMs`, `checkTimes`,
    `halfOffset`, `brokerName`, `queueId`, `commitOffset`, `bytes` (of the half message's body).

    `verdict` is the state, but for a pending one that is older than `late_minutes` at the time of the newest
    transaction (late), and for a committed one whose message is not in its topic (lost: deleted, or never dispatched)
    or has another body (changed).
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    half = halves.select(
        f.col("msgId").alias("transactionId"), "brokerName", f.col("queueOffset").alias("halfOffset"), "keys", "tags",
        f.col("body").alias("halfBody"),
        f.regexp_replace("bornHost", ":[0-9]+$", "").alias("producer"),
    )  # fmt: skip
    final = finals.select(
        "topic", "brokerName", "queueId", f.col("queueOffset").alias("commitOffset"), f.col("body").alias("finalBody"),
        f.lit(True).alias("isThere"),
    )  # fmt: skip
    joined = transactions.join(half, ["brokerName", "halfOffset", "transactionId"], "left").join(
        final, ["topic", "brokerName", "queueId", "commitOffset"], "left"
    )
    newest = transactions.agg(f.greatest(f.max("preparedTimestamp"), f.max("decidedTimestamp")).alias("newest"))
    is_old = f.col("preparedTimestamp") < f.col("newest") - f.make_interval(mins=f.lit(late_minutes))
    verdict = (
        f.when((f.col("state") == "pending") & is_old, "late")
        .when((f.col("state") == "committed") & f.col("isThere").isNull(), "lost")
        .when((f.col("state") == "committed") & (f.col("finalBody") != f.col("halfBody")), "changed")
        .otherwise(f.col("state"))
    )
    took = f.unix_millis("decidedTimestamp") - f.unix_millis("preparedTimestamp")
    return joined.crossJoin(newest).select(
        verdict.alias("verdict"), "topic", "producerGroup", "transactionId", "keys", "tags", "producer",
        f.col("preparedTimestamp").alias("preparedAt"), f.col("decidedTimestamp").alias("decidedAt"),
        took.alias("tookMs"), "checkTimes", "halfOffset", "brokerName", "queueId", "commitOffset",
        f.length("halfBody").alias("bytes"),
    ).orderBy("preparedAt", "halfOffset")  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = job_command.parser_of("transaction_audit", "transactions with their half messages and what became of them")
    parser.add_argument(
        "--late-minutes", type=job_command.whole(0), default=LATE_MINUTES, metavar="N",
        help="a pending transaction is late after this time (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--only", type=job_command.some_of(VERDICTS), default=VERDICTS, metavar="VERDICTS",
        help=f"only transactions with these verdicts, separated by commas: {', '.join(VERDICTS)}",
    )  # fmt: skip

    def rows(spark: SparkSession, asked: Namespace) -> DataFrame:
        def read(**options: str) -> DataFrame:
            return spark.read.format("rmqstore").options(**options).load(asked.store)

        halves = read(subscribePattern=HALF_TOPICS, includeSystemTopics="true", columns=",".join(HALF_COLUMNS))
        finals = read(subscribePattern=".*", columns=",".join(FINAL_COLUMNS))
        found = transform(read(table="transactions"), halves, finals, asked.late_minutes)
        return found.where(found["verdict"].isin(*asked.only))

    return job_command.run(parser, argv, rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
