"""A program for the soak: a streaming query that writes each batch to a file of its own, started and stopped on demand.

    python consumer.py STORE DIRECTORY

It takes commands from standard input, one a line: {"start": OPTIONS} begins the query anew from its checkpoint,
{"finish": OPTIONS} reads to the present end.  It says on standard output, a line each: "started" with its process ids,
"batch" for every batch that stands in its file, "failed" with the error of a query that ended by one, "finished".
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = ("topic", "queueId", "queueOffset", "body")


class Consumer:
    """One session, one query at a time."""

    def __init__(self, store: Path, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._query: StreamingQuery | None = None
        self._spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.memory", "512m")
            # Before 4.2: or a query that begins with a batch that was cut off ends with it.
            .config("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")
            .getOrCreate()
        )
        self._spark.sparkContext.setLogLevel("OFF")

    def start(self, options: dict[str, str], *, is_last: bool) -> None:
        """Begins the query anew; with `is_last` returns when it has come to the present end."""
        if self._query is not None:
            self._query.stop()
        stream = self._spark.readStream.format("rmqstore").options(**options)
        writer = (
            stream.option("columns", ",".join(COLUMNS))
            .load(str(self._store))
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self._directory / "checkpoint"))
        )
        trigger: dict[str, Any] = {"availableNow": True} if is_last else {"processingTime": "50 milliseconds"}
        self._query = writer.trigger(**trigger).start()
        say("started", os.getpid())
        if is_last:
            if _await(self._query):
                say("finished", None)
        else:
            threading.Thread(target=_await, args=[self._query], daemon=True).start()

    def _keep(self, frame: DataFrame, number: int) -> None:
        """A batch that is run again replaces the file that it left."""
        path = self._directory / "out" / f"{number:06}.parquet"
        pq.write_table(frame.toArrow(), path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        say("batch", number)


def _await(query: StreamingQuery) -> bool:
    """Waits for the end of a query, and says why if it was an error; whether it was none."""
    try:
        query.awaitTermination()
    except PySparkException as error:
        say("failed", str(error))
        return False
    return True


def say(what: str, value: object) -> None:
    """One line to whoever started this."""
    sys.stdout.write(json.dumps({what: value}) + "\n")
    sys.stdout.flush()


def main(store: Path, directory: Path) -> None:
    """Runs until standard input is closed."""
    consumer = Consumer(store, directory)
    for line in sys.stdin:
        command = json.loads(line)
        for name in command:
            consumer.start(command[name], is_last=name == "finish")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
