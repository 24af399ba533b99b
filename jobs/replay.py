"""Puts messages of one store into another: some topics, under other names, at other times.

spark-submit jobs/replay.py --store /data/rocketmq/store --topic orders --rename orders=orders-replay --to /data/events
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.errors import StoreError
from rmqstore.formats.names import is_topic_name
from rmqstore.formats.properties import DELIVERED
from rmqstore.sink import last_batch
from spark_source import job_command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "queueId", "queueOffset", "tags", "keys", "body", "properties", "flag", "bornTimestamp")
WRITER_DIGITS = 12


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
    kept = f.map_filter("properties", lambda name, _: ~name.isin(*DELIVERED))
    ordered = messages.repartition("topic", "queueId").sortWithinPartitions("topic", "queueId", "queueOffset")
    return ordered.select(
        topic.alias("topic"), "queueId", "tags", "keys", "body", kept.alias("properties"), "flag",
        born.alias("bornTimestamp"),
    )  # fmt: skip


def writer_of(asked: argparse.Namespace) -> str:
    """The name under which a replay is put once: the name that was given, or one made of its arguments.  The same
    command adds nothing a second time, says so and ends with 1; another command adds."""
    if asked.writer_id is not None:
        return str(asked.writer_id)
    told = {name: value for name, value in vars(asked).items() if name not in {"to", "writer_id"}}
    told["store"] = str(Path(asked.store).resolve())
    return "replay-" + hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:WRITER_DIGITS]


def mistake(asked: argparse.Namespace, renamed: Mapping[str, str]) -> str:
    """Why a replay is refused before it begins; "" where it is not."""
    for pair in asked.rename:
        old, _, new = pair.partition("=")
        if not old or not new:
            return f"--rename {pair}: write OLD=NEW"
        if not is_topic_name(new):
            return f"--rename {pair}: a topic takes 1 to 127 letters, digits, %, |, _ and -"
    if str(Path(asked.store).resolve()) != str(Path(asked.to).resolve()):
        return ""
    topics = [name.strip() for name in (asked.topic or "").split(",")]
    doubled = [topic for topic in topics if renamed.get(topic, topic) in topics]
    what = f"topic {doubled[0]}" if doubled and doubled[0] else "every topic"
    hint = "choose topics with --topic, and rename each one with --rename OLD=NEW"
    return f"--to is --store itself: {what} would be doubled; {hint}" if doubled else ""


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="replay.py", description="messages of one store into another")
    parser.add_argument("--store", required=True, help="the store's directory, as the executors see it")
    parser.add_argument("--to", required=True, help="the rmqstore store to put to; it is created if it does not exist")
    job_command.add_topics(parser)
    parser.add_argument(
        "--tags", type=job_command.given, help="only messages with one of these tags: 'paid || shipped'"
    )
    parser.add_argument("--keys", type=job_command.given, help="only messages with one of these")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="a topic; repeatable")
    parser.add_argument(
        "--shift-ms", type=int, default=0, help="add this to the time of sending (default: %(default)s)"
    )
    parser.add_argument(
        "--writer-id",
        help="the name of the replay, which is put once even if it runs again; by default made of the arguments",
    )
    asked = parser.parse_args(argv)
    renamed = dict(pair.partition("=")[::2] for pair in asked.rename)
    if wrong := mistake(asked, renamed):
        parser.error(wrong)
    _require_new(parser, asked)
    with job_command.session(parser) as spark:
        _replay(spark, asked, renamed)
    return 0


def _require_new(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> None:
    """Ends the program where the replay is there already, or its writer's name is none."""
    writer = writer_of(asked)
    try:
        is_there = last_batch(asked.to, writer) is not None
    except (StoreError, OSError) as wrong:
        parser.exit(1, f"{parser.prog}: {wrong}\n")
    if is_there:
        told = f"nothing was added: writer {writer} has put its replay into {asked.to}"
        parser.exit(1, f"{parser.prog}: {told}; give another --writer-id to put it again\n")


def _replay(spark: SparkSession, asked: argparse.Namespace, renamed: Mapping[str, str]) -> None:
    from pyspark.sql import Observation  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    options = job_command.chosen(asked) | {
        name: getattr(asked, name) for name in ("tags", "keys") if getattr(asked, name)
    }
    messages = spark.read.format("rmqstore").options(columns=",".join(COLUMNS), **options).load(asked.store)
    rows = transform(messages, renamed, asked.shift_ms)
    seen = Observation()
    counted = rows.observe(seen, f.count(f.lit(1)).alias("messages"))
    counted.write.format("rmqstore").options(writerId=writer_of(asked), batchId="0").mode("append").save(asked.to)
    print(f"{seen.get['messages']} messages were added to {asked.to}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
