"""Single properties as columns in Spark: read, typed, streamed, in SQL, and written."""

import math
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_source.columns import property_types
from tests.snapshot.small_store import SmallStore
from tests.spark_source.advice import advice_of

pytestmark = pytest.mark.spark

AMOUNTS = ["12", None, "-7", " 5 ", "9223372036854775807"]
TEXTS = [
    "1", " 12 ", "+7", "-3", "1.5", "1e3", "abc", "", "9223372036854775807", "9223372036854775808", "300",
    "2147483648", None, "NaN", "Infinity", "-inf", "true", "F", "yes", "0x1", "1e400", "1_000", ".5", "5.", "1L",
    "9" * 38, "9" * 39, "0.005", "-0.005", "1e-40", "128", "-129", "1 2", "1\u00a0", "tRuE", "n", "2.5", "-2.5",
    "1d", "1F", "-.5D", "1e5f", "+NaN", "-NaN", "1\x00", "\x1f1", "\x7f1", "0" * 50 + "1",
    "-" + "0" * 50 + "7", "d", "f1", "0" * 60,
]  # fmt: skip
KINDS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "decimal(10,2)", "decimal(38,0)")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    made = SmallStore()
    for number, amount in enumerate(AMOUNTS):
        named = {"orderId": f"o-{number}", "a b.c": "x"}
        made.add("orders", body=b"%d" % number, properties=named if amount is None else named | {"amount": amount})
    made.write(root)
    return root


def load(spark: SparkSession, store: Path, schema: str | None = None, **options: str):
    reader = spark.read.format("rmqstore").options(subscribe="orders", **options)
    return (reader if schema is None else reader.schema(schema)).load(str(store))


def test_columns_by_option_and_in_sql(spark, store):
    rows = load(spark, store, columns="body,property.orderId,property.amount,property.absent")
    assert rows.columns == ["body", "property.orderId", "property.amount", "property.absent"]
    assert [tuple(row)[1:] for row in rows.collect()] == [(f"o-{n}", a, None) for n, a in enumerate(AMOUNTS)]
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW single (`property.orderId` string, `property.a b.c` string, "
        f"`property.amount` bigint) USING rmqstore OPTIONS (path '{store}', subscribe 'orders')"
    )
    found = spark.sql("SELECT sum(`property.amount`) AS total, min(`property.a b.c`) AS x FROM single "
                      "WHERE `property.orderId` < 'o-3'").first()  # fmt: skip
    assert (found.total, found.x) == (5, "x")


def test_typed_columns(spark, store):
    rows = load(spark, store, "`property.amount` bigint, queueOffset long, `property.orderId` string").collect()
    wanted = [None if amount is None else int(amount) for amount in AMOUNTS]
    assert [tuple(row) for row in rows] == [(value, n, f"o-{n}") for n, value in enumerate(wanted)]


@pytest.mark.parametrize("words", ["null", "skip"])
def test_what_is_no_such_value_is_null_where_that_is_asked_for(spark, store, words):
    rows = load(spark, store, "`property.orderId` int, `property.amount` int", onCorruptRecord=words).collect()
    assert [tuple(row) for row in rows] == [(None, 12), (None, None), (None, -7), (None, 5), (None, None)]


def test_else_it_is_an_error_that_names_message_and_value(spark, store):
    advice = advice_of(lambda: load(spark, store, "body binary, `property.orderId` int").collect())
    assert "property.orderId of the message of orders at 0 of the commitlog is 'o-0', no int32" in advice
    assert "onCorruptRecord=null" in advice


def test_types_that_a_property_cannot_be(spark, store):
    with pytest.raises(PySparkException, match=r"property.amount cannot be read as array<string>: declare it string"):
        load(spark, store, "`property.amount` array<string>").collect()


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_sparks_try_cast(spark, kind):
    frame = spark.createDataFrame([(text,) for text in TEXTS], "text string").selectExpr(f"try_cast(text AS {kind}) v")
    wanted = [row.v for row in frame.collect()]
    made = property_types.converted(pa.array(TEXTS, pa.string()), property_types.arrow_type(frame.schema["v"].dataType))
    different = [
        (text, ours, theirs)
        for text, ours, theirs in zip(TEXTS, made.to_pylist(), wanted, strict=True)
        if ours != theirs and not (isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours + theirs))
    ]
    assert different == []


@pytest.mark.deep
def test_a_stream_has_them(spark, store, tmp_path):
    stream = spark.readStream.format("rmqstore").options(
        subscribe="orders", startingOffsets="earliest", columns="queueOffset,property.orderId"
    )
    query = (
        stream.load(str(store)).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True).start(str(tmp_path / "out"))
    )  # fmt: skip
    query.awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("queueOffset").collect()
    assert [tuple(row) for row in rows] == [(n, f"o-{n}") for n in range(len(AMOUNTS))]


def test_the_text_of_all_properties_makes_the_map(spark, store):
    rows = load(spark, store, columns="properties,propertiesText")
    made = rows.select("properties", f.expr("str_to_map(propertiesText, '\x02', '\x01')").alias("made")).collect()
    assert [{name: text for name, text in row.made.items() if name} for row in made] == [row.properties for row in made]


def test_the_sink_takes_them(spark, tmp_path):
    rows = spark.range(0, 4, 1, 1).select(
        f.col("id").cast("string").alias("body"),
        f.create_map(f.lit("a"), f.lit("of the map"), f.lit("b"), f.lit("y")).alias("properties"),
        f.when(f.col("id") % 2 == 0, f.concat(f.lit("n"), "id")).alias("property.a"),
        f.lit("z").alias("property.c d"),
    )
    rows.write.format("rmqstore").option("topic", "t").mode("append").save(str(tmp_path / "s"))
    found = spark.read.format("rmqstore").options(subscribe="t", columns="body,properties").load(str(tmp_path / "s"))
    said = {
        bytes(row.body).decode(): {k: v for k, v in row.properties.items() if len(k) <= 3} for row in found.collect()
    }
    assert said == {str(n): {"a": "of the map" if n % 2 else f"n{n}", "b": "y", "c d": "z"} for n in range(4)}
