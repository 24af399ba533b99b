"""A streaming query whose commits are killed: the process that commits, or the whole driver with it.

`python -m tests.spark_source.sink_kills DIRECTORY` runs the query once, as a driver that may be killed.
"""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import rmqstore
from rmqstore.files.filesystem import RealFileSystem
from spark_source import sink
from spark_source.source import RmqStoreDataSource
from tests.crash.disks import Operation, WatchedDisk

TOPIC = "Kills"
PLAN = "plan"
"""The file beside the store that says before which operation of the disk to end (a verb, a part of a path), whom to end
("commit", "driver"), and the driver's process id; it is removed first, so that it counts once."""


STEPS = (
    ("sync", "intent.json"),
    ("rename", "intent.json"),
    ("write", "/commitlog/"),
    ("sync", "/commitlog/"),
    ("write", "committed.json"),
    ("rename", "committed.json"),
    ("remove", "intent.json"),
    ("write", "/consumequeue/"),
    ("remove", "abort"),
)
"""Operations of a commit, one of each kind: their verb, and a part of the path."""


class DeadlyDisk(WatchedDisk):
    """The real disk, until the operation that the plan names."""

    def __init__(self, plan: Path) -> None:
        super().__init__(RealFileSystem())
        self._plan = plan
        self._verb, self._part, self._whom, self._driver = plan.read_text().split()

    def before(self, operation: Operation) -> None:
        """Ends this process, and those that started it up to the driver, as `kill -9` does."""
        if operation.verb != self._verb or self._part not in operation.path:
            return
        self._plan.unlink()
        if self._whom == "driver":
            for pid in _ancestors(int(self._driver)):
                os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _ancestors(driver: int) -> list[int]:
    """The processes above this one up to the driver, which comes first."""
    found, pid = [], os.getppid()
    while pid not in (driver, 0, 1):
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert pid == driver, "this process is none of the driver's"
    return [driver, *reversed(found)]


class KilledStreamSink(sink.StreamSink):
    """The sink, on a disk on which its commit may end."""

    def __init__(self, inner: sink.StoreSink, plan: Path) -> None:
        super().__init__(inner)
        self._plan = plan

    def commit(self, messages, batchId):
        """Commits, or dies."""
        if self._plan.exists():
            disk, real = DeadlyDisk(self._plan), sink.append_once
            sink.append_once = lambda path, batch, config: real(path, batch, config, filesystem=disk)
        super().commit(messages, batchId)


class KillingSource(RmqStoreDataSource):
    """The source under test, under another name and with that sink."""

    @classmethod
    def name(cls):
        """The word in `format(...)`."""
        return "rmqstore-killed"

    def streamWriter(self, schema, overwrite):  # noqa: N802 (Spark's name)
        """A sink with a plan."""
        own = super().streamWriter(schema, overwrite)
        return KilledStreamSink(own._sink, Path(self.options["path"]).parent / PLAN)


def query_of(spark: SparkSession, directory: Path) -> StreamingQuery:
    """The query: files with a number a line in, messages with that body out, those of a file in order."""
    spark.dataSource.register(KillingSource)
    lines: DataFrame = spark.readStream.schema("body string").option("maxFilesPerTrigger", 2).text(f"{directory}/in")
    return (
        lines.select("body")
        .writeStream.format("rmqstore-killed")
        .option("topic", TOPIC)
        .option("queues", 1)
        .option("path", f"{directory}/store")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def bodies(store: Path, topic: str = "orders") -> list[str]:
    """Every body, in the order of the log."""
    table = rmqstore.open_snapshot(store).scan(topics=[topic], columns=["body", "physicalOffset"]).read_all()
    return [body.decode() for body in table.sort_by("physicalOffset")["body"].to_pylist()]


def lines(directory: Path, number: int, count: int = 20) -> None:
    """A file of the stream's input."""
    (directory / "in").mkdir(exist_ok=True)
    text = "".join(f"{number}-{row}\n" for row in range(count))
    (directory / "in" / f"{number:04}.txt").write_text(text)


def check_stream(directory: Path, files: int, count: int = 20) -> None:
    """Each line is there once, those of a file in order."""
    found = bodies(directory / "store", TOPIC)
    assert sorted(found) == sorted(f"{number}-{row}" for number in range(files) for row in range(count))
    for number in range(files):
        assert [body for body in found if body.startswith(f"{number}-")] == [f"{number}-{row}" for row in range(count)]


def main(directory: Path) -> None:
    """The driver: writes the plan with its own process id, and runs the query to its end."""
    plan = directory / PLAN
    if plan.exists():
        plan.write_text(f"{plan.read_text()} driver {os.getpid()}")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    query_of(spark, directory).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
