"""Stores in DLedger mode, through Spark: batch, stream and the entries of a node."""

import tarfile
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import rmqstore
from rmqstore.snapshot import ledger_entries
from tests.golden.cases import unpack_folder
from tests.snapshot.small_ledger import small_ledger

pytestmark = pytest.mark.spark
GOLDEN = Path(__file__).parents[1] / "golden"
STORE = GOLDEN / "broker" / "broker-dledger-killed-5.3.3"
NODE = GOLDEN / "ledger" / "three-uncommitted-tail" / "node.tar.gz"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_folder(STORE, tmp_path_factory.mktemp("ledger"))


@pytest.mark.parametrize("mode", ["queue", "commitlog"])
def test_rows_are_the_snapshots(spark, store, mode):
    frame = spark.read.format("rmqstore").options(
        scanMode=mode, columns="topic,queueId,queueOffset,physicalOffset,body", subscribePattern=".*"
    )
    rows = sorted(map(tuple, frame.load(str(store)).collect()))
    columns = ["topic", "queueId", "queueOffset", "physicalOffset", "body"]
    expected = rmqstore.open_snapshot(store).scan(columns=columns).read_all().to_pylist()
    assert [(*row[:4], bytes(row[4])) for row in rows] == sorted(tuple(row.values()) for row in expected)
    assert len(rows) > 1000


def test_what_may_be_revoked_is_there_where_it_is_asked_for(spark, tmp_path):
    ledger = small_ledger(20)
    ledger.add("T", 0, body=b"may be revoked", dispatched=False)
    root = ledger.write(tmp_path, committed=19)
    reader = spark.read.format("rmqstore").option("subscribe", "T")
    assert reader.load(str(root)).count() == 20
    assert reader.option("includeUncommitted", "true").load(str(root)).count() == 21
    stream = spark.readStream.format("rmqstore").options(subscribe="T", includeUncommitted="true").load(str(root))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(PySparkException, match="includeUncommitted is for batch reads and this is a stream"):
        query.awaitTermination()


def test_a_stream_has_each_row_once(spark, store, tmp_path):
    seen = []
    options = {"columns": "msgId", "subscribePattern": ".*", "startingOffsets": "earliest"}
    stream = spark.readStream.format("rmqstore").options(**options).load(str(store))
    writer = stream.writeStream.foreachBatch(lambda frame, _: seen.extend(row.msgId for row in frame.collect()))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    expected = rmqstore.open_snapshot(store).scan(columns=["msgId"]).read_all()["msgId"].to_pylist()
    assert sorted(seen) == sorted(expected)


def test_entries_of_a_node_by_itself(spark, tmp_path):
    with tarfile.open(NODE) as archive:
        archive.extractall(tmp_path, filter="data")
    node = tmp_path / "dledger-n1"
    entries = spark.read.format("rmqstore").option("table", "entries")
    frame = entries.option("columns", "*").load(str(node))
    assert frame.toArrow().cast(ledger_entries(node, "*").schema).equals(ledger_entries(node, "*"))
    assert entries.load(str(node)).where("NOT isCommitted").count() == 7
    with pytest.raises(PySparkException, match="table=entries shows the entries"):
        spark.read.format("rmqstore").option("subscribe", "T").load(str(node)).count()
