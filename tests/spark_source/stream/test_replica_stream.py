"""A stream from a replica that is kept up, killed and started again while messages are put to its master."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rmqstore import Message, Store, StoreConfig, open_snapshot, open_store
from rmqstore.config import HaConfig
from rmqstore.errors import StoreError

pytestmark = [pytest.mark.host, pytest.mark.spark]

FILE_SIZE = 64 * 1024
KILLS = 3
# Messages that are put between two kills, at least.
STRIDE = 400
PATIENCE_S = 600
_ASK_AGAIN_S = 0.05


class Bodies:
    """The numbers in the bodies that a query brought; a batch that is run again replaces what it brought before."""

    def __init__(self) -> None:
        self._batches: dict[int, list[tuple[str, int]]] = {}
        self.count = 0

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = frame.select("brokerName", "body").collect()
        self._batches[number] = [(row["brokerName"], int(row["body"])) for row in rows]
        self.count = sum(map(len, self._batches.values()))

    @property
    def all(self) -> list[tuple[str, int]]:
        return sorted(row for batch in self._batches.values() for row in batch)


class Putting:
    """Numbers that a thread puts to a store, one after the other, until it is told to stop."""

    def __init__(self, master: Store) -> None:
        self.count = 0
        self._master, self._is_over = master, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            # SYNC flush: as fast as the disk takes them, and not faster than a replica follows.
            answer = self._master.put(Message("orders", b"%d" % self.count, queue_id=self.count % 3, tags="a"))
            answer.raise_for_status()
            self.count += 1

    def stop(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self.count


@contextmanager
def replicating(master: Store, target: Path, environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """`rmqstore replicate` in a process of its own, which is killed at the end."""
    assert master.ha_address is not None
    program = 'from rmqstore.cli import main; main(prog_name="rmqstore")'
    command = ["replicate", "--ha", master.ha_address, "--log-file-size", str(FILE_SIZE), "--to", str(target), "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *command], stdout=subprocess.DEVNULL, env=environment
    ) as child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGKILL)


def until(what: str, is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, f"{what}: not within {PATIENCE_S} s"
        time.sleep(_ASK_AGAIN_S)


def rows_in(store: Path) -> int:
    """The messages that a reader finds there at this moment."""
    try:
        return sum(row["maxOffset"] for row in open_snapshot(store).queues().to_pylist())
    except StoreError:
        return 0


def test_every_row_comes_once_however_often_the_replica_is_killed(
    spark: SparkSession, tmp_path: Path, worker_environment: dict[str, str]
) -> None:
    directory, bodies = tmp_path / "rmq", Bodies()
    replica = directory / "broker-a"
    config = StoreConfig(flush="SYNC", log_file_size=FILE_SIZE, queue_file_size=2000, ha=HaConfig(listen="127.0.0.1:0"))
    with open_store(tmp_path / "master", config) as master:
        putting = Putting(master)
        try:
            with replicating(master, replica, worker_environment):
                until("the replica's first rows", lambda: rows_in(replica) > 0)
                reader = spark.readStream.format("rmqstore").option("stores", str(directory))
                reader = reader.option("subscribe", "orders").option("startingOffsets", "earliest")
                writer = reader.load().writeStream.foreachBatch(bodies)
                query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
                until("rows in the stream", lambda: bodies.count > 0)
            for _ in range(KILLS):
                seen = putting.count
                until("puts without a replica", lambda seen=seen: putting.count > seen + STRIDE)
                with replicating(master, replica, worker_environment):
                    until("rows that came meanwhile", lambda seen=seen: bodies.count > seen)
            with replicating(master, replica, worker_environment):
                count = putting.stop()
                until("the last row", lambda: bodies.count >= count)
        finally:
            putting.stop()
        query.processAllAvailable()
        query.stop()
    assert bodies.all == [("broker-a", number) for number in range(count)]
    assert count > KILLS * STRIDE
