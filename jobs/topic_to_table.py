"""Appends what is new in topics of a store to a Delta or Iceberg table, each message once.

spark-submit --packages io.delta:delta-spark_4.1_2.13:4.1.0 jobs/topic_to_table.py --store /data/rocketmq/store \
    --topic orders --format delta --table /data/orders.delta --checkpoint /data/orders.checkpoint
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spark_source import job_command, job_stream

if TYPE_CHECKING:  # so that --help answers, and says what is missing, where there is no PySpark
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

# In the summary of each snapshot of an Iceberg table: the query and the batch that it holds.
QUERY, BATCH = "rmqstore.query", "rmqstore.batch"
_PROPERTY = "snapshot-property."


def transform(messages: DataFrame, time_column: str = job_stream.TIME_COLUMNS[0]) -> DataFrame:
    """`messages` with `day`, the date of `time_column` in the session's time zone; null where the time is."""
    return job_stream.with_day(messages, time_column)


def make_table(spark: SparkSession, schema: StructType, table: str, kind: str) -> None:
    """Makes a table for rows of `schema` that is partitioned by topic and day, unless it is there."""
    empty = spark.createDataFrame([], schema).write.format(kind).mode("ignore")
    _write(empty.partitionBy(*job_stream.PARTITIONS), table)


def append_to_delta(days: DataFrame, table: str, query: str, number: int) -> None:
    """Appends a batch to a Delta table, which is a path where there is a slash in it, else a name.

    The commit itself holds query and number, and a Delta table takes no batch that it has: it is there once, whoever
    appends it again.
    """
    once = {"txnAppId": query, "txnVersion": str(number)}
    _write(days.write.format("delta").mode("append").options(**once), table)


def _write(writer: DataFrameWriter, table: str) -> None:
    writer.save(table) if "/" in table else writer.saveAsTable(table)


def append_to_iceberg(days: DataFrame, table: str, query: str, number: int) -> None:
    """Appends a batch to an Iceberg table.

    The summary of its snapshot holds query and number; a batch that a snapshot of the table's history holds is not
    appended again.  Two at a time may not append batches of one query: Iceberg would take both.
    """
    if number > last_batch(days.sparkSession, table, query):
        named = {f"{_PROPERTY}{QUERY}": query, f"{_PROPERTY}{BATCH}": str(number)}
        days.writeTo(table).options(**named).append()


def last_batch(spark: SparkSession, table: str, query: str) -> int:
    """The newest batch of `query` in the history of an Iceberg table; -1 if there is none."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    spark.catalog.refreshTable(table)  # a session keeps a table as it saw it for half a minute
    snapshots, history = spark.table(f"{table}.snapshots"), spark.table(f"{table}.history")
    # A snapshot that was rolled back is a snapshot still, and its rows are not in the table.
    current = history.where("is_current_ancestor").select("snapshot_id")
    ours = snapshots.join(current, "snapshot_id", "left_semi").where(f.col("summary")[QUERY] == query)
    newest = ours.agg(f.max(f.col("summary")[BATCH].cast("bigint"))).first()
    return -1 if newest is None or newest[0] is None else int(newest[0])


APPENDS: dict[str, Callable[[DataFrame, str, str, int], None]] = {
    "delta": append_to_delta,
    "iceberg": append_to_iceberg,
}
# What Spark says where it was started without the library of a table, or without its catalog.
_NO_LIBRARY = {"DATA_SOURCE_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE", "CATALOG_NOT_FOUND"}


def main(argv: Sequence[str]) -> int:
    """Runs the job with the arguments of a command line; returns the exit status.  Days are those of UTC."""
    parser = argparse.ArgumentParser(
        prog="topic_to_table.py",
        description="topics of a RocketMQ store to a Delta or Iceberg table, each message once",
    )
    job_stream.add_transport(parser)
    parser.add_argument(
        "--table", required=True, help="the name of the table in a catalog, or the path of a Delta table"
    )
    parser.add_argument("--format", required=True, choices=sorted(APPENDS), help="the format of the table")
    parser.add_argument("--checkpoint", required=True, help="the checkpoint directory of the stream")
    asked = parser.parse_args(argv)
    if asked.format == "iceberg" and "/" in asked.table:
        parser.error(f"--table {asked.table}: write an Iceberg table as catalog.database.table")
    table = asked.table if "/" in asked.table else None
    job_command.require_apart(parser, asked.store, table=table, checkpoint=asked.checkpoint)
    with job_command.session(parser) as spark:
        _add_new(spark, parser, asked)
    return 0


def _add_new(spark: SparkSession, parser: argparse.ArgumentParser, asked: argparse.Namespace) -> None:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    append = APPENDS[asked.format]

    def put(batch: DataFrame, query: str, number: int) -> None:
        append(job_stream.in_files(batch, asked.target_mib), asked.table, query, number)

    days = transform(job_stream.read_stream(spark, asked), asked.partition_by)
    try:
        make_table(spark, days.schema, asked.table, asked.format)
    except (AnalysisException, Py4JJavaError) as error:
        if not any(f"[{said}]" in str(error) for said in _NO_LIBRARY):
            raise
        parser.exit(1, f"{parser.prog}: {_start(asked)}\n")
    added = job_stream.run_available(days, asked.checkpoint, put)
    print(f"{added} messages of {asked.topic} were added to {asked.table}")


def _start(asked: argparse.Namespace) -> str:
    library = "--packages io.delta:delta-spark_… " if asked.format == "delta" else "an Iceberg catalog "
    return f"Spark was started without what {asked.table} needs: {library}(docs/jobs.md has a whole command)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
