"""What the Spark sink leaves, with its commits killed at every step: read by RocketMQ's own code, served by a broker.

Needs the oracle, the broker and Spark (`make conformance`).
"""

import base64
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rmqstore.config import StoreConfig
from rmqstore.engine.store import open_store
from rmqstore.formats.names import SCHEDULE_TOPIC
from tests.conformance.broker import broker, name_server, until
from tests.conformance.java import ask_all, differences, jvm
from tests.conformance.our_answers import ROOMY, answers, comparable
from tests.spark_source.sink_kills import PLAN, STEPS, TOPIC, check_stream, lines, query_of

BATCHES, ROWS = 3, 500
COLUMNS = (
    "topic string, body binary, tags string, keys array<string>, properties map<string,string>, queueId int, "
    "flag int, delayLevel int"
)
EMBEDDED = StoreConfig.embedded()
JAVA_SIZES = {
    "mappedFileSizeCommitLog": EMBEDDED.log_file_size,
    "mappedFileSizeConsumeQueue": EMBEDDED.queue_file_size,
    "maxHashSlotNum": EMBEDDED.index_slot_count,
    "maxIndexNum": EMBEDDED.index_item_count,
}

Row = tuple[str, bytes, str | None, list[str] | None, dict[str, str], int, int, int | None]


def row_of(number: int) -> Row:
    """One of a kind in tags, keys, properties and queue; every hundredth is delayed by a second."""
    tags, keys = ("paid", "sent", None)[number % 3], [f"k-{number}", f"g-{number % 7}"] if number % 5 else None
    properties = {"n": str(number), "city": "São Paulo"}
    delayed = 1 if number % 100 == 99 else None
    return "orders", b"%d" % number * (number % 50 + 1), tags, keys, properties, number % 4, number, delayed


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that a batch job and a stream left, both interrupted again and again."""
    directory = tmp_path_factory.mktemp("sink")
    with pytest.MonkeyPatch.context() as patch:
        root = str(Path(__file__).parents[2])
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            for number, (verb, part) in enumerate(STEPS):
                lines(directory, number)
                (directory / PLAN).write_text(f"{verb} {part} commit 0")
                with pytest.raises(PySparkException):
                    query_of(spark, directory).awaitTermination()
            query_of(spark, directory).awaitTermination()
            for batch in (0, 1, 1, 2, 2):  # one that is written again is added once
                rows = [row_of(number) for number in range(batch * ROWS, (batch + 1) * ROWS)]
                writer = spark.createDataFrame(rows, COLUMNS).write.format("rmqstore").mode("append")
                writer.option("writerId", "job").option("batchId", batch).save(str(directory / "store"))
        finally:
            spark.stop()
    check_stream(directory, len(STEPS))
    return directory / "store"


def copy_of(left: Path, to: Path) -> Path:
    """The store, to be written to."""
    shutil.copytree(left, to)
    return to


@pytest.mark.parametrize("version", ["5.3.3", "4.9.8"])
def test_java_reads_what_we_read(version: str, left: Path, tmp_path: Path) -> None:
    """Records, queue entries, keys and times, and each row once."""
    with open_store(str(copy_of(left, tmp_path / "ours"))) as store:
        keys = [{"topic": "orders", "key": key} for key in ("k-1", "g-3", "k-1498", "none")]
        questions = [question | {"max": 64, "begin": 0, "end": ROOMY} for question in keys]
        ours = answers(store, questions, [])
    with jvm(version) as oracle:
        found = ask_all(oracle, version, copy_of(left, tmp_path / "java"), JAVA_SIZES, None, questions)
    assert found["open"]["load"]
    javas = comparable(found, version)
    assert differences(javas, {name: ours[name] for name in javas}) == []
    counts = Counter(record["topic"] for record in javas["records"])
    assert counts == {TOPIC: 20 * len(STEPS), "orders": BATCHES * ROWS - 15, SCHEDULE_TOPIC: 15}
    assert [len(answer["physicalOffsets"]) for answer in javas["keyQueries"]] == [1, 64, 1, 0]


def test_a_broker_serves_it(left: Path, tmp_path: Path) -> None:
    """Every row with all that it has, each once, in the order of its queue; delayed ones when their time has come."""
    store = copy_of(left, tmp_path / "store")
    with (
        name_server(tmp_path / "name-server") as address,
        broker(tmp_path / "broker", store, address, JAVA_SIZES) as (running, client),
    ):
        running.change()  # has it register
        until("a route", lambda: client.call("routes", topics=["orders"]), [client, running])
        until("the delayed rows", lambda: len(pulled(client)) == BATCHES * ROWS, [client, running])
        messages = pulled(client)
        running.end(signal.SIGTERM)
    by_number = {int(message["properties"]["n"]): message for message in messages}
    assert by_number.keys() == set(range(BATCHES * ROWS))
    for number, message in by_number.items():
        topic, body, tags, keys, properties, queue_id, flag, _ = row_of(number)
        assert (message["topic"], base64.b64decode(message["body"])) == (topic, body)
        seen = message["properties"]
        assert (seen.get("TAGS"), seen.get("KEYS")) == (tags, " ".join(keys) if keys else None)
        assert {name: seen[name] for name in properties} == properties
        assert (message["queueId"], message["flag"]) == (queue_id, flag)
    for queue_id in range(4):
        own = [message for message in messages if message["queueId"] == queue_id]
        assert [message["queueOffset"] for message in own] == list(range(len(own)))
        at_once = [int(one["properties"]["n"]) for one in own if "REAL_TOPIC" not in one["properties"]]
        undelayed = [number for number in at_once if row_of(number)[7] is None]
        assert undelayed == sorted(undelayed)


def pulled(client: Any) -> list[dict[str, Any]]:
    """All messages of the topic, as a broker gives them."""
    return [message for queue_id in range(4) for message in client.call("pull", topic="orders", queueId=queue_id)]
