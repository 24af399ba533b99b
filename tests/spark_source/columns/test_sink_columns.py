"""The columns of a DataFrame that is written: all mistakes in one line, and what the store is given."""

import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import types

from rmqstore.errors import Rejected
from spark_source.sink import sink_columns

KINDS: dict[str, types.DataType] = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "smallint": types.ShortType(),
    "bigint": types.LongType(),
    "double": types.DoubleType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "array<string>": types.ArrayType(types.StringType()),
    "array<int>": types.ArrayType(types.IntegerType()),
    "map<string;string>": types.MapType(types.StringType(), types.StringType()),
    "map<string;int>": types.MapType(types.StringType(), types.IntegerType()),
}


def schema(text: str) -> types.StructType:
    """Columns from "name type, ..."; Spark's own parser wants a session."""
    pairs = [column.split() for column in text.split(", ")]
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in pairs])


EVERYTHING = (
    "topic string, body binary, tags string, keys array<string>, properties map<string;string>, queueId int, "
    "flag smallint, bornTimestamp timestamp, delayLevel int"
)


@pytest.mark.parametrize(
    ("columns", "topic"),
    [(EVERYTHING, None), ("body string", "t"), ("body binary, keys string, bornTimestamp bigint, queueId bigint", "t")],
)
def test_right_columns(columns, topic):
    assert sink_columns(schema(columns), topic).topic == topic


@pytest.mark.parametrize(
    ("columns", "advice"),
    [
        ("body binary", "no topic: give the option topic, or a column of that name"),
        ("topic string", "no column body"),
        ("topic string, body binary, tag string", "no message has a column tag: did you mean tags"),
        ("topic string, body binary, queueOffset bigint", "the store sets column queueOffset: drop it"),
        ("topic string, body binary, zebra int", "name it property.zebra, or put it into body"),
        ("topic string, body binary, property.n int", "column property.n is int: cast it to string"),
        ("topic string, body int", "column body is int: cast it to binary or string"),
        (
            "topic string, body binary, properties map<string;int>",
            "column properties is map<string,int>: cast it to map",
        ),
        ("topic string, body binary, keys array<int>", "column keys is array<int>: cast it to string or array<string>"),
        ("topic string, body binary, bornTimestamp timestamp_ntz", "cast it to timestamp, or long (milliseconds)"),
        ("topic string, body binary, queueId double", "column queueId is double: cast it to int"),
        ("tags int, flag string, x int", "5 mistakes: (1) "),
    ],
)
def test_mistakes(columns, advice):
    with pytest.raises(Rejected) as caught:
        sink_columns(schema(columns), None)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_that_is_there_twice():
    twice = types.StructType(schema("topic string, body binary").fields + schema("body binary").fields)
    with pytest.raises(Rejected, match="there are 2 columns body"):
        sink_columns(twice, None)


def test_the_topic_of_the_option_goes_before_the_column():
    batch = pa.record_batch({"topic": ["a", None], "body": [b"1", b"2"]})
    fitted = sink_columns(schema("topic string, body binary"), "orders").fit(batch)
    assert fitted["topic"].to_pylist() == ["orders", "orders"]
    assert sink_columns(schema("topic string, body binary"), None).fit(batch)["topic"].to_pylist() == ["a", None]
    assert sink_columns(schema("body binary"), "t").fit(batch.slice(0, 0).select(["body"])).num_rows == 0


def test_what_is_null_has_its_default(monkeypatch):
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "body": [b"1", b"2"],
            "flag": pa.array([None, 3], pa.int16()),
            "bornTimestamp": pa.array([None, moment], pa.timestamp("us", "Asia/Shanghai")),
        }
    )
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    fitted = sink_columns(schema("body binary, flag smallint, bornTimestamp timestamp"), "t").fit(batch)
    assert fitted["flag"].to_pylist() == [0, 3]
    now, given = fitted["bornTimestamp"].to_pylist()
    assert given == moment.timestamp() * 1000
    assert now == 1_700_000_000_123


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_a_property_may_come_in_every_form_of_text(kind):
    texts = pa.array(["v", None], kind)
    maps = pa.array([[("b", "1")], None], pa.map_(pa.large_string(), pa.large_string()))
    batch = pa.record_batch({"body": [b"1", b"2"], "property.a": texts, "properties": maps})
    fitted = sink_columns(schema("body binary, property.a string, properties map<string;string>"), "t").fit(batch)
    assert fitted["properties"].to_pylist() == [[("b", "1"), ("a", "v")], []]
