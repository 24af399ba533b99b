"""The source in Sail, which speaks Spark Connect without a JVM: the rows of every readable golden store."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rmqstore
from tests.golden.cases import BROKER_CASES, READ_CASES
from tests.golden.rows import differences, plain_rows
from tests.snapshot.small_store import SmallStore

StoreOf = Callable[[str], Path]
EVERYTHING = {"subscribePattern": ".*", "includeSystemTopics": "true", "columns": "*", "onCorruptRecord": "null"}


@pytest.mark.parametrize("case", [*READ_CASES, *BROKER_CASES])
def test_rows_are_those_of_a_scan(case: str, store_of: StoreOf, sail: SparkSession) -> None:
    found = sail.read.format("rmqstore").options(**EVERYTHING).load(str(store_of(case))).toArrow()
    scanned = rmqstore.open_snapshot(store_of(case)).scan(
        pattern=".*", include_system_topics=True, columns="*", on_corrupt_record="null"
    )
    assert differences(plain_rows(found), plain_rows(scanned.read_all())) == []


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    made = SmallStore()
    for number in range(20):
        properties = {"amount": str(number), "TAGS": "paid" if number % 2 else "sent", "KEYS": f"o-{number}"}
        made.add("orders", number % 3, body=b"%d" % number, properties=properties)
    made.write(root)
    return root


def test_counts_and_columns(sail: SparkSession, orders: Path) -> None:
    rows = sail.read.format("rmqstore").option("subscribe", "orders").load(str(orders))
    assert rows.count() == 20
    assert rows.where("tags = 'paid'").selectExpr("sum(cast(cast(body AS string) AS int)) s").first().s == 100
    grouped = {row.queueId: row["count"] for row in rows.groupBy("queueId").count().collect()}
    assert grouped == {0: 7, 1: 7, 2: 6}


def test_filters_are_pushed(sail: SparkSession, orders: Path) -> None:
    rows = sail.read.format("rmqstore").options(subscribe="orders", pushdown="true").load(str(orders))
    assert [bytes(row.body) for row in rows.where("keys = 'o-7'").select("body").collect()] == [b"7"]
    assert (
        rows.where("tags = 'paid' AND queueOffset >= 2").count()
        == rows.where("queueOffset >= 2 AND tags = 'paid'").count()
        == 7
    )


def test_a_schema_of_the_user_and_typed_properties(sail: SparkSession, orders: Path) -> None:
    schema = "storeTimestamp long, `property.amount` int, body string"
    rows = sail.read.format("rmqstore").option("subscribe", "orders").schema(schema).load(str(orders)).collect()
    assert sorted(row["property.amount"] for row in rows) == list(range(20))
    assert {row.body for row in rows} == {str(number) for number in range(20)}


def test_tables(sail: SparkSession, orders: Path) -> None:
    queues = sail.read.format("rmqstore").option("table", "queues").load(str(orders))
    assert sum(row.messages for row in queues.collect()) == 20


def test_mistakes_are_told(sail: SparkSession, orders: Path) -> None:
    with pytest.raises(Exception, match=r"no topic 'order' in .*: did you mean orders"):
        sail.read.format("rmqstore").option("subscribe", "order").load(str(orders)).collect()
