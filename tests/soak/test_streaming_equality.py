"""What a stream commits while everything around it is killed and restarted is what was written, each row once.

12 restarts; RMQSTORE_SOAK_ROUNDS says how many (`make soak`: many more), RMQSTORE_SOAK_SEED which.
"""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import rmqstore
from spark_source.stream.reader import HAS_LIMITS
from tests.soak.processes import Child, kill

pytestmark = [pytest.mark.spark, pytest.mark.deep]

ROUNDS = int(os.environ.get("RMQSTORE_SOAK_ROUNDS", "12"))
SEED = int(os.environ.get("RMQSTORE_SOAK_SEED", "1"))
HERE = Path(__file__).parent
PROJECT = Path(rmqstore.__file__).parents[1]
# A new driver takes as long as many other restarts: one round in so many.
DRIVER_KILL_EVERY = 12
# How long a round goes on behind its first batches, at most, before something is killed in the middle of the next.
UNTIL_KILL_S = 0.3
# Of a JVM that starts often and lives for a minute.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
RATE = 300.0

Row = tuple[str, int, int, int]


class Soak:
    """A writer, a stream that follows it, and the dice that say what is done to the stream."""

    def __init__(self, directory: Path) -> None:
        self.dice = random.Random(SEED)
        self.store, self.journal = directory / "store", directory / "journal"
        self.progress = directory / "progress.json"
        self._directory = directory
        (directory / "out").mkdir()
        self._environment = os.environ | {
            "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_SUBMIT_ARGS": f'--driver-java-options "{SHORT_LIVED}" pyspark-shell',
        }  # fmt: skip
        self.writer = self._child("writer.py", self.store, self.journal, self.progress, RATE, SEED)
        assert self.writer.line() == "ready"
        self.consumer = self._consumer()
        self.done: dict[str, int] = {}
        self._is_killed = False  # something of this driver

    def _child(self, program: str, *arguments: object) -> Child:
        command = [sys.executable, str(HERE / program), *map(str, arguments)]
        return Child(command, self._environment, self._directory / f"{program}.log")

    def _consumer(self) -> Child:
        return self._child("consumer.py", self.store, self._directory)

    def options(self) -> dict[str, str]:
        """The stream, with limits by chance where Spark has them (4.2 and later): none, few rows, few bytes, or a least
        number with a delay."""
        limits = self.dice.choice(
            [
                {},
                {"maxOffsetsPerTrigger": str(self.dice.randrange(50, 500))},
                {"maxBytesPerTrigger": str(self.dice.randrange(500, 200_000))},
                {"minOffsetsPerTrigger": "200", "maxTriggerDelay": "300ms"},
                {"maxOffsetsPerTrigger": "400", "maxBytesPerTrigger": "100k"},
            ]
            if HAS_LIMITS
            else [{}]
        )
        cut = self.dice.choice([{}, {"maxRecordsPerPartition": "500"}, {"scanMode": "queue"}])
        fixed = {"subscribePattern": "soak-.*", "startingOffsets": "earliest", "progressFile": str(self.progress)}
        return fixed | limits | cut

    def round(self, number: int) -> None:
        """Starts the stream from its checkpoint, lets it make some batches, and ends it in one way or another."""
        self.consumer.tell({"start": self.options()})
        self._await_batches(self.dice.randrange(1, 3))
        how = self.dice.choice(("stop", "stop", "kill source", "kill worker"))
        how = "kill driver" if number % DRIVER_KILL_EVERY == DRIVER_KILL_EVERY - 1 else how
        if how != "stop":
            self._await_batches(100, within_s=self.dice.random() * UNTIL_KILL_S)
        if how == "kill driver":
            self.consumer.kill()
            self.consumer = self._consumer()
            self._is_killed = False
        elif how == "kill source":
            for pid in self.consumer.descendants("python_streaming_source_runner"):
                kill(pid)
                self._is_killed = True
        elif how == "kill worker":
            for pid in self.consumer.descendants("pyspark.daemon", "pyspark.worker"):
                kill(pid)
                self._is_killed = True
        self.done[how] = self.done.get(how, 0) + 1

    def finish(self) -> int:
        """Ends the writer, and reads what is left; how many files it had deleted."""
        self.writer.tell({})
        self.writer.close()
        retired = self.writer.heard()["retired"]
        last = {"finish": self.options() | ({"maxBytesPerTrigger": "4m"} if HAS_LIMITS else {})}
        self.consumer.tell(last)
        while "finished" not in (said := self._heard()):
            if "failed" in said:
                self.consumer.tell(last)
        self.consumer.close()
        return int(retired)

    def close(self) -> None:
        """Ends what is still there."""
        for child in (self.writer, self.consumer):
            child.kill()

    def _await_batches(self, count: int, within_s: float | None = None) -> None:
        """Waits for so many batches, or that long; a query that what was killed before takes along begins anew."""
        while count:
            said = self._heard() if within_s is None else self._heard(within_s)
            if not said and within_s is not None:
                return
            count -= "batch" in said
            if "failed" in said:
                self.consumer.tell({"start": self.options()})

    def _heard(self, *within_s: float) -> dict[str, object]:
        said = self.consumer.heard(*within_s)
        assert said or within_s, "the stream says nothing"
        if "failed" in said:
            # A pool of workers may hand out one that was killed long before: an error of Spark's, and none of ours.
            assert self._is_killed, said["failed"]
            text = str(said["failed"])
            assert not [ours for ours in ("rmqstore.errors", "spark_source") if ours in text], text
        return said


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Soak]:
    running = Soak(tmp_path)
    yield running
    running.close()


def test_the_union_of_the_batches_is_what_was_written_each_row_once_and_in_order(soak, tmp_path):
    for number in range(ROUNDS):
        soak.round(number)
    retired = soak.finish()
    written = journal_of(soak.journal)
    ends: dict[tuple[str, int], int] = {}
    rows: list[Row] = []
    for path in sorted((tmp_path / "out").glob("*.parquet")):
        for row in rows_of(path):
            key = row[:2]
            assert row[2] == ends.get(key, 0), f"{path.name}: {row} follows offset {ends.get(key, 0) - 1}"
            ends[key] = row[2] + 1
            rows.append(row)
    assert sorted(rows) == sorted(written)
    assert len(rows) > 100 * ROUNDS
    assert soak.done.get("kill driver", 0) == ROUNDS // DRIVER_KILL_EVERY
    assert retired > 3


def journal_of(path: Path) -> list[Row]:
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(topic, int(queue_id), int(offset), int(number)) for topic, queue_id, offset, number in lines]


def rows_of(path: Path) -> Iterator[Row]:
    for row in pq.read_table(path).to_pylist():
        yield row["topic"], row["queueId"], row["queueOffset"], int(row["body"].split()[0])
