"""Stores in DLedger mode, through Spark: batch, stream and the entries of a node."""

import base64
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import rmqstore
from rmqstore.snapshot import ledger_entries
from tests.golden.cases import read_json, unpack_folder
from tests.golden.nodes import CASES, unpacked
from tests.snapshot.small_ledger import small_ledger

pytestmark = pytest.mark.spark
GOLDEN = Path(__file__).parents[1] / "golden"
STORE = GOLDEN / "broker" / "broker-dledger-killed-5.3.3"


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_entries_of_each_node_by_itself(spark, case, tmp_path):
    node, expected = unpacked(case, tmp_path), read_json(case, "expected")
    frame = spark.read.format("rmqstore").option("table", "entries").option("columns", "*").load(str(node))
    rows = frame.toArrow()
    assert rows.cast(ledger_entries(node, "*").schema).equals(ledger_entries(node, "*"))
    assert [tuple(row[name] for name in ("index", "term", "position", "size", "body")) for row in rows.to_pylist()] == [
        (one["index"], one["term"], one["pos"], one["size"], base64.b64decode(one["body"]))
        for one in expected["entries"]
    ]


def test_entries_that_may_be_revoked_are_told(spark, tmp_path):
    node = unpacked(GOLDEN / "ledger" / "three-uncommitted-tail", tmp_path)
    entries = spark.read.format("rmqstore").option("table", "entries")
    assert entries.load(str(node)).where("NOT isCommitted").count() == 7
    with pytest.raises(PySparkException, match="table=entries shows the entries"):
        spark.read.format("rmqstore").option("subscribe", "T").load(str(node)).count()
