"""`option("table", …)`: the tables beside the messages, by SQL."""

import json
import shutil

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import rmqstore
from rmqstore.errors import Rejected
from rmqstore.snapshot.tables import tables
from rmqstore.snapshot.tables.tables import SCHEMAS
from spark_source.tables import parse_table
from tests.spark_source.advice import advice_in

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark, store):
    def loaded(name, **options):
        return spark.read.format("rmqstore").options(table=name, **options).load(str(store))

    return loaded


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_table_is_that_of_the_snapshot(table, store, name):
    frame = table(name, columns="*")
    expected = rmqstore.open_snapshot(store).table(name, "*")
    assert frame.columns == expected.column_names
    rows = frame.toArrow().cast(expected.schema)
    assert rows.equals(expected)
    assert (rows.num_rows > 0) == (name != "entries")  # its log is an ordinary one


def test_the_query_of_each_table_answers(spark, table):
    """Those of the docstring, which people copy."""
    lines = (tables.__doc__ or "").splitlines()
    queries = [line.split(" -- ")[0].strip() for line in lines if line.strip().startswith("SELECT")]
    assert len(queries) == len(SCHEMAS)
    for name in SCHEMAS:
        table(name).createOrReplaceTempView(name)
    answers = {query.split(" FROM ")[1].split()[0]: spark.sql(query).collect() for query in queries}
    assert answers.keys() == SCHEMAS.keys()
    assert {row[0]: row[1] for row in answers["queues"]}["G101Normal"] == 1370
    assert answers["groups"][0]["group"] == "g_slow_G101"
    assert sum(row[1] for row in answers["delayed"]) == 13
    assert len(answers["files"]) == 5


def test_a_schema_of_ones_own_names_the_columns(spark, store):
    reader = spark.read.format("rmqstore").option("table", "queues")
    frame = reader.schema("messages long, topic string").load(str(store))
    assert frame.columns == ["messages", "topic"]
    assert frame.where("topic = 'G101Normal'").groupBy().sum().first()[0] == 1370


def test_messages_is_the_default_table(load, table):
    assert table("messages", subscribe="G101Normal").count() == load().count()


def test_several_stores_and_a_view(spark, store, tmp_path):
    copy = shutil.copytree(store, tmp_path / "copy")
    stores = json.dumps({"a": str(store), "b": str(copy)})
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW q USING rmqstore OPTIONS (table 'queues', stores '{stores}')")
    rows = spark.sql("SELECT brokerName, sum(messages) AS n FROM q GROUP BY brokerName ORDER BY 1").collect()
    assert [row.brokerName for row in rows] == ["a", "b"]
    assert rows[0].n == rows[1].n


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"table": "queue"}, "write messages, queues, topics, groups, files, transactions, delayed"),
        ({"table": "queues", "subscribe": "a"}, "option 'subscribe' does not go with table=queues"),
        ({"table": "queues", "columns": "topics"}, "no column 'topics': did you mean topic"),
        ({"table": "queues", "access": "fast"}, "access='fast': write auto, mmap or pread"),
    ],
)
def test_wrong_options_are_told_at_load(spark, store, options, advice):
    with pytest.raises(PySparkException) as caught:
        spark.read.format("rmqstore").options(**options).load(str(store))
    assert advice in advice_in(caught.value)


@pytest.mark.parametrize(
    ("schema", "advice"),
    [
        ("topik string", "no column 'topik': did you mean topic"),
        ("messages int", "column messages of queues: declare it bigint"),
    ],
)
def test_a_schema_that_a_table_does_not_have(spark, store, schema, advice):
    frame = spark.read.format("rmqstore").option("table", "queues").schema(schema).load(str(store))
    with pytest.raises(PySparkException) as caught:
        frame.count()
    assert advice in advice_in(caught.value)


def test_options_are_checked_without_spark():
    assert parse_table({"path": "/x"}) is None
    assert parse_table({"path": "/x", "Table": " Messages "}) is None
    assert parse_table({"paths": '["/x", "/y"]', "table": "files"}).stores == ("/x", "/y")
    with pytest.raises(Rejected, match="no store: name its directory"):
        parse_table({"table": "files"})
    with pytest.raises(Rejected, match="the schema has no column"):
        parse_table({"path": "/x", "table": "files"}).with_schema(StructType([]))
