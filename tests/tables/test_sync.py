"""Tables that `rmqstore sync` wrote, as Java's libraries read and go on with them."""

from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.lake import Sync, SyncRequest, TableSink, open_table
from rmqstore.lake.table_columns import TableColumns

COLUMNS = TableColumns("body,tags,bornTimestamp,properties,property.at")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with rmqstore.open_store(tmp_path / "store") as one:
        for number in range(40):
            message = rmqstore.Message(
                f"t{number % 2}", b"%d" % number, tags="a", properties={"at": f"p{number}"} if number % 3 else {}
            )
            one.put(message).raise_for_status()
    return tmp_path / "store"


def sync(store: Path, table: TableSink) -> int:
    return Sync(str(store), table, SyncRequest()).run().rows


def wanted(spark: Any, store: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.format("rmqstore").option("subscribePattern", ".*").option("columns", "*").load(str(store))
    picked = rows.selectExpr(
        "topic", "queueId", "queueOffset", "body", "storeTimestamp", "bornTimestamp", "properties", "properties['at']"
    )
    return sorted(map(tuple, picked.collect()), key=lambda row: row[:3])


def found(rows: Any) -> list[tuple[Any, ...]]:
    picked = rows.selectExpr(
        "topic", "queueId", "queueOffset", "body", "storeTimestamp", "bornTimestamp", "properties", "`property.at`"
    )
    return sorted(map(tuple, picked.collect()), key=lambda row: row[:3])


def test_spark_reads_a_delta_table_and_appends_to_it(spark: Any, store: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    assert sync(store, open_table("delta", place, columns=COLUMNS)) == 40
    rows = spark.read.format("delta").load(place)
    assert found(rows) == wanted(spark, store)
    assert rows.where("topic = 't1' and day = date(storeTimestamp) and queueOffset >= 15").count() == 5
    rows.limit(1).write.format("delta").mode("append").save(place)
    spark.sql(f"optimize delta.`{place}`")
    with rmqstore.open_store(store) as one:
        one.put(rmqstore.Message("t1", b"new")).raise_for_status()
    assert sync(store, open_table("delta", place)) == 1
    assert spark.read.format("delta").load(place).count() == 42
    spark.sql(f"restore table delta.`{place}` to version as of 1")
    assert sync(store, open_table("delta", place)) == 1
    assert found(spark.read.format("delta").load(place)) == wanted(spark, store)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"vacuum delta.`{place}` retain 0 hours")
    assert sync(store, open_table("delta", place)) == 0
    assert spark.read.format("delta").load(place).count() == 41


def test_spark_reads_an_iceberg_table(spark: Any, store: Path, tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    table = open_table("iceberg", "shop.orders", catalog=catalog, columns=COLUMNS)
    assert sync(store, table) == 40
    rows = spark.read.format("iceberg").load(_as_hadoop_table(table))
    assert found(rows) == wanted(spark, store)
    assert rows.where("topic = 't1' and storeTimestamp > timestamp'2020-01-01' and queueOffset >= 15").count() == 5


def _as_hadoop_table(table: TableSink) -> str:
    """The table with the names of metadata by which Spark finds a directory without a catalog."""
    place = str(table.location).removeprefix("file://")
    rooms = sorted((Path(place) / "metadata").glob("*.metadata.json"))
    (Path(place) / "metadata" / "v1.metadata.json").write_bytes(rooms[-1].read_bytes())
    (Path(place) / "metadata" / "version-hint.text").write_text("1")
    return place
