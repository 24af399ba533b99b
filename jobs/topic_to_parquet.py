"""Writes topics of a store to Parquet, one directory a topic and day, in files of about one size.

spark-submit jobs/topic_to_parquet.py --store /data/rocketmq/store --topic orders --output /data/orders.parquet
spark-submit jobs/topic_to_parquet.py … --checkpoint /data/orders.checkpoint    # again and again: only what is new
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_source import job_command, job_stream

if TYPE_CHECKING:  # so that --help answers, and says what is missing, where there is no PySpark
    from pyspark.sql import DataFrame, SparkSession

BATCH = "batch"
_NOTHING_THERE = {"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"}


def read_topics(spark: SparkSession, store: str, topics: str, **options: str) -> DataFrame:
    """The messages of `topics` (names between commas) with every default column."""
    return spark.read.format("rmqstore").options(subscribe=topics, **options).load(store)


def transform(messages: DataFrame, time_column: str = job_stream.TIME_COLUMNS[0]) -> DataFrame:
    """`messages` with `day`, the date of `time_column` in the session's time zone; null where the time is."""
    return job_stream.with_day(messages, time_column)


def write_by_day(
    days: DataFrame, output: str, *, overwrite: bool = False, target_mib: int = job_stream.TARGET_MIB
) -> None:
    """Writes what `transform` returns to `output`/topic=NAME/day=YYYY-MM-DD/*.parquet, in files of about `target_mib`
    MiB.

    An `output` that exists is an error, or replaced as a whole with `overwrite`.
    """
    writer = job_stream.in_files(days, target_mib).write.mode("overwrite" if overwrite else "errorifexists")
    writer.partitionBy(*job_stream.PARTITIONS).parquet(output)


def add_batch(days: DataFrame, output: str, name: str, target_mib: int = job_stream.TARGET_MIB) -> None:
    """Writes one batch of a stream to `output`/topic=NAME/day=YYYY-MM-DD/batch=`name`/*.parquet.

    A batch of that name that is there, whole or in part, is replaced: after a crash a batch comes again, with the same
    rows.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    named = job_stream.in_files(days, target_mib).withColumn(BATCH, f.lit(name))
    # Only the directories in which this batch has rows are replaced, and no other batch has the same.
    writer = named.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(*job_stream.PARTITIONS, BATCH).parquet(output)


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status.  Days are those of UTC."""
    parser = argparse.ArgumentParser(
        prog="topic_to_parquet.py", description="topics of a RocketMQ store to Parquet, by topic and day"
    )
    job_stream.add_transport(parser)
    parser.add_argument("--output", required=True, help="the directory to write, a path or URL that Spark can write to")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the output directory")
    parser.add_argument(
        "--checkpoint", help="add what is new since the last run with this directory, each message once"
    )
    asked = parser.parse_args(argv)
    if asked.overwrite and asked.checkpoint:
        parser.error(
            "--overwrite with --checkpoint would delete output that the checkpoint counts as done; remove both by hand"
        )
    job_command.require_apart(parser, asked.store, output=asked.output, checkpoint=asked.checkpoint)
    with job_command.session(parser) as spark:
        if asked.checkpoint:
            _add_new(spark, parser, asked)
        else:
            days = transform(read_topics(spark, asked.store, **_read(asked)), asked.partition_by)
            write_by_day(days, asked.output, overwrite=asked.overwrite, target_mib=asked.target_mib)
            written = spark.read.parquet(asked.output)
            print(f"{written.count()} messages of {asked.topic} are in {asked.output}, {_files(written)}")
    return 0


def _read(asked: argparse.Namespace) -> dict[str, str]:
    options = job_stream.options_of(asked)
    return {"topics": options.pop("subscribe"), **options}


def _files(written: DataFrame) -> str:
    count = len(written.inputFiles())
    return f"{count} file{'' if count == 1 else 's'}"


def _add_new(spark: SparkSession, parser: argparse.ArgumentParser, asked: argparse.Namespace) -> None:
    if _is_anothers(spark, asked.output):
        parser.exit(1, f"{parser.prog}: {asked.output} has files without {BATCH}=…: name another directory\n")

    def put(batch: DataFrame, query: str, number: int) -> None:
        add_batch(batch, asked.output, f"{query}-{number:08}", asked.target_mib)

    days = transform(job_stream.read_stream(spark, asked), asked.partition_by)
    added = job_stream.run_available(days, asked.checkpoint, put)
    print(f"{added} messages of {asked.topic} were added to {asked.output}")


def _is_anothers(spark: SparkSession, output: str) -> bool:
    """Whether `output` has files that no stream of this job wrote: rows of two layouts cannot be read together."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    try:
        files = spark.read.parquet(output).inputFiles()
    except AnalysisException as error:
        if error.getCondition() in _NOTHING_THERE:
            return False
        raise
    return any(f"/{BATCH}=" not in name for name in files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
