"""`option("stores", DIRECTORY)` in Spark: all stores that are in a directory, in batches, tables and streams."""

import json
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import rmqstore
from rmqstore import Message, StoreConfig, open_store
from tests.snapshot.growing_store import broker_store
from tests.spark_source.advice import advice_in

pytestmark = pytest.mark.spark

PATIENCE_S = 600
# The broker that wrote the golden stores; the other's, of 4.9.8, tells no name.
TELLS_ITS_NAME = "golden-a"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, store: Path, project: Path) -> Path:
    """Stores of two real brokers, and what may stand beside them."""
    directory = tmp_path_factory.mktemp("rmq")
    shutil.copytree(store, directory / TELLS_ITS_NAME)
    with tarfile.open(project / "tests" / "golden" / "broker" / "broker-clean-4.9.8" / "store.tar.gz") as archive:
        archive.extractall(directory / ".unpacked", filter="data")
    (directory / ".unpacked" / "store").rename(directory / "broker-b")
    (directory / "just-made").mkdir()
    (directory / "notes.txt").touch()
    return directory


@pytest.fixture
def read(spark: SparkSession, directory: Path, topic: str) -> Callable[..., DataFrame]:
    def loaded(**options: str) -> DataFrame:
        chosen = {"stores": str(directory), "subscribe": topic} | options
        given = {name: text for name, text in chosen.items() if text != "-"}
        return spark.read.format("rmqstore").options(**given).load()

    return loaded


def counts_of(directory: Path, topic: str) -> dict[str, int]:
    return {
        broker: rmqstore.open_snapshot(directory / broker).scan([topic]).read_all().num_rows
        for broker in (TELLS_ITS_NAME, "broker-b")
    }


def by_broker(frame: DataFrame) -> dict[str, int]:
    return {row["brokerName"]: row["count"] for row in frame.groupBy("brokerName").count().collect()}


def test_a_batch_reads_all_stores_under_their_brokers_names(read, directory, topic):
    frame = read(stores=f"file://{directory}")
    assert by_broker(frame) == counts_of(directory, topic)
    places = [tuple(row) for row in frame.select("brokerName", "queueId", "queueOffset").collect()]
    assert len(set(places)) == len(places)


def test_keys_tags_and_queues_are_looked_for_in_all_stores(read, directory, topic):
    all_rows = read(columns="brokerName,keys,tags,queueId").collect()
    key = next(row["keys"] for row in all_rows if row["keys"] and row["brokerName"] == "broker-b").split()[0]
    found = read(keys=key).collect()
    assert len(found) == sum(key in (row["keys"] or "").split() for row in all_rows) > 0
    tag, count = Counter(row["tags"] for row in all_rows if row["tags"]).most_common()[0]
    assert read(tags=tag).count() == count
    assigned = read(assign=json.dumps({topic: {"broker-b": [1]}}), subscribe="-")
    in_queue = sum(row["queueId"] == 1 and row["brokerName"] == "broker-b" for row in all_rows)
    assert by_broker(assigned) == {"broker-b": in_queue}


def test_side_tables_have_the_rows_of_all_stores(spark, directory):
    for table in ("queues", "topics", "groups", "files", "transactions", "delayed"):
        frame = spark.read.format("rmqstore").option("table", table).option("stores", str(directory)).load()
        expected = {
            broker: rows.num_rows
            for broker in (TELLS_ITS_NAME, "broker-b")
            if (rows := rmqstore.open_snapshot(directory / broker).table(table)).num_rows
        }
        assert by_broker(frame) == expected


def test_a_wrong_directory_is_told_when_it_is_loaded(read, directory):
    with pytest.raises(PySparkException) as caught:
        read(stores=f"{directory}/absent").count()
    assert "absent: does not exist here; give the directory in which the stores are" in advice_in(caught.value)


class Rows:
    """The rows that a query brought, by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = [tuple(row) for row in frame.select("brokerName", "queueId", "queueOffset").collect()]

    def counts(self) -> dict[str, int]:
        """By broker; no row came twice."""
        rows = [row for batch in self.batches.values() for row in batch]
        assert len(set(rows)) == len(rows)
        return dict(Counter(row[0] for row in rows))


def started(spark: SparkSession, directory: Path, rows: Rows, **options: str) -> Any:
    reader = spark.readStream.format("rmqstore").options(**({"stores": str(directory), "subscribe": "T"} | options))
    writer = reader.load().writeStream.foreachBatch(rows)
    return writer.option("checkpointLocation", str(directory.with_name("checkpoint")))


def test_a_running_query_takes_stores_in_as_they_come(spark, tmp_path):
    directory, rows = tmp_path / "rmq", Rows()
    first = broker_store(directory, "broker-a", 10)
    query = started(spark, directory, rows).start()
    try:
        query.processAllAvailable()
        assert rows.counts() == {}  # the latest, where it starts
        broker_store(directory, "broker-b", 30)
        query.processAllAvailable()
        with open_store(directory / "broker-c", StoreConfig.embedded(broker_name="broker-c")) as engine:
            for number in range(200):
                engine.put(Message("T", b"x", queue_id=number % 4))
            first.add_many(5)
            first.publish()
            query.processAllAvailable()
        assert rows.counts() == {"broker-a": 5, "broker-b": 30, "broker-c": 200}
    finally:
        query.stop()
    query = started(spark, directory, rows).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert rows.counts() == {"broker-a": 5, "broker-b": 30, "broker-c": 200}
