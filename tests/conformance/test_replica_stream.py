"""Spark streams from `rmqstore replicate` of a real master of RocketMQ 5.3.3, which is killed and started again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import rmqstore
from tests.conformance.broker import BROKER_NAME, BrokerClient, broker, name_server, until

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 2000}
PROJECT = str(Path(rmqstore.__file__).parents[1])
TOPIC = "Orders"


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A session whose workers find this project."""
    for name, text in {"PYTHONPATH": PROJECT, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}.items():
        monkeypatch.setenv(name, text)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@contextmanager
def replicating(named: str, target: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The command, in a process of its own; it is killed at the end."""
    program = [sys.executable, "-c", 'from rmqstore.cli import main; main(prog_name="rmqstore")']
    command = [*program, "replicate", "--namesrv", named, "--to", str(target), "--json"]
    environment = os.environ | {"PYTHONPATH": PROJECT}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGKILL)


class Rows:
    """The bodies that a query brought, by batch: one that is run again replaces what it brought before."""

    def __init__(self) -> None:
        self._batches: dict[int, list[str]] = {}
        self.brokers: set[str] = set()
        self.count = 0

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = frame.select("brokerName", "body").collect()
        self.brokers |= {row["brokerName"] for row in rows}
        self._batches[number] = [bytes(row["body"]).decode() for row in rows]
        self.count = sum(map(len, self._batches.values()))

    @property
    def bodies(self) -> list[str]:
        return sorted(body for batch in self._batches.values() for body in batch)


def send(client: BrokerClient, numbers: range) -> None:
    answers = client.send([{"topic": TOPIC, "body": b"%06d" % number * 8, "keys": str(number)} for number in numbers])
    assert {answer["status"] for answer in answers} == {"SEND_OK"}


def test_every_message_of_a_real_master_comes_once_though_the_replica_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory, rows = tmp_path / "rmq", Rows()
    with (
        name_server(tmp_path / "namesrv") as named,
        broker(tmp_path / "broker", tmp_path / "store", named, SMALL) as (running, client),
    ):
        running.change()  # registers with the name server
        send(client, range(500))
        with replicating(named, directory):
            until("the replica's queues", (directory / BROKER_NAME / "consumequeue" / TOPIC).exists)
            reader = spark.readStream.format("rmqstore").option("stores", str(directory))
            reader = reader.option("subscribePattern", TOPIC).option("startingOffsets", "earliest")
            writer = reader.load().writeStream.foreachBatch(rows)
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            until("the first rows", lambda: rows.count >= 500)
            send(client, range(500, 1000))  # of which some are on their way when it is killed
        for begin in (1000, 2000):
            send(client, range(begin, begin + 500))
            with replicating(named, directory):
                until("rows that came meanwhile", lambda begin=begin: rows.count > begin)
                send(client, range(begin + 500, begin + 1000))
        with replicating(named, directory):
            until("the last row", lambda: rows.count >= 3000)
        query.processAllAvailable()
        query.stop()
    assert rows.bodies == sorted(f"{number:06}" * 8 for number in range(3000))
    assert rows.brokers == {BROKER_NAME}
