"""Puts messages of one store into another: some topics, under other names, at other times.

spark-submit jobs/replay.py --store /data/rocketmq/store --topic orders --rename orders=orders-replay --to /data/events
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_source import job_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("topic", "queueId", "queueOffset", "tags", "keys", "body", "properties", "flag", "bornTimestamp")
WRITER = "replay"
# With these a message would be delayed, or waited for by a transaction, once more.
_DONE = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TRAN_MSG", "PGROUP")


def transform(messages: DataFrame, renamed: Mapping[str, str] | None = None, shift_ms: int = 0) -> DataFrame:
    """From messages with COLUMNS to rows that the sink takes: topics of `renamed` under their new names,
    `bornTimestamp` later by `shift_ms`, queues, tags, keys, flags and properties as they were, the unique key
    included.

    What would delay a message once more, or make it a transaction's, is left out: it was delivered already.  The rows
    of a queue are in one partition, in their order.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    topic = f.col("topic")
    for old, new in (renamed or {}).items():
        topic = f.when(f.col("topic") == old, new).otherwise(topic)
    born = f.timestamp_millis(f.unix_millis("bornTimestamp") + shift_ms)
    kept = f.map_filter("properties", lambda name, _: ~name.isin(*_DONE))
    ordered = messages.repartition("topic", "queueId").sortWithinPartitions("topic", "queueId", "queueOffset")
    return ordered.select(
        topic.alias("topic"), "queueId", "tags", "keys", "body", kept.alias("properties"), "flag",
        born.alias("bornTimestamp"),
    )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="replay.py", description="messages of one store into another")
    parser.add_argument("--store", required=True, help="the store's directory, as the executors see it")
    parser.add_argument(
        "--to", required=True, help="the store to put to, of this engine's own; made if it is not there"
    )
    job_command.add_topics(parser)
    parser.add_argument("--tags", help="only messages with one of these: 'paid || shipped'")
    parser.add_argument("--keys", help="only messages with one of these")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="a topic; may come again")
    parser.add_argument("--shift-ms", type=int, default=0, help="add so much to the time of sending; %(default)s")
    parser.add_argument(
        "--writer-id", default=WRITER, help="each of a name is put once, however often it runs; %(default)s"
    )
    asked = parser.parse_args(argv)
    renamed = dict(pair.partition("=")[::2] for pair in asked.rename)
    if wrong := [pair for pair in asked.rename if not all(pair.partition("="))]:
        parser.error(f"--rename {wrong[0]}: wanted is OLD=NEW")
    with job_command.session(parser) as spark:
        options = job_command.chosen(asked) | {
            name: getattr(asked, name) for name in ("tags", "keys") if getattr(asked, name)
        }
        messages = spark.read.format("rmqstore").options(columns=",".join(COLUMNS), **options).load(asked.store)
        rows = transform(messages, renamed, asked.shift_ms)
        rows.write.format("rmqstore").options(writerId=asked.writer_id, batchId="0").mode("append").save(asked.to)
        print(f"{messages.count()} messages are in {asked.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
