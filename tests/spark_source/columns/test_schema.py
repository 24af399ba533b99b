"""From Arrow to Spark: names, types, a user's own schema, and batches that fit it exactly."""

import pickle
import re
from datetime import UTC, datetime
from inspect import signature

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rmqstore.errors import Rejected, UnknownColumn
from rmqstore.snapshot.columns import COLUMNS, schema_of
from spark_source.columns.schema import shape_for, spark_schema


def struct(*fields: tuple) -> StructType:
    """A nullable schema of (name, type) pairs."""
    return StructType([StructField(name, kind, True) for name, kind in fields])


def sparks_own(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark derives and, from 4.2 on, wants of every batch; 4.0 knows only UTC."""
    zoned = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zoned)


def one_row(*columns: str) -> pa.RecordBatch:
    """A batch in rmqstore's own types: one row of values, one of nulls."""
    value = {
        "body": b"\xff\x00body",
        "bornTimestamp": datetime(2024, 5, 1, 0, 0, 0, 123000, tzinfo=UTC),
        "properties": [("KEYS", "o-1")],
        "queueId": 3,
        "queueOffset": 2**40,
    }
    schema = schema_of(columns)
    return pa.RecordBatch.from_pylist([{name: value[name] for name in columns}, dict.fromkeys(columns)], schema=schema)


def test_every_column_has_the_spark_type_of_its_arrow_type():
    schema = spark_schema(tuple(COLUMNS))
    # Spark's own conversion is the judge, since it decides which batches are taken.
    assert sparks_own(schema).equals(schema_of(list(COLUMNS)))
    assert schema["properties"].dataType == MapType(StringType(), StringType())
    assert schema["storeTimestamp"].dataType == TimestampType()
    assert all(field.nullable for field in schema)


def test_an_own_batch_passes_as_it_is():
    shape = shape_for(spark_schema(("queueOffset", "body", "properties")))
    batch = one_row("queueOffset", "body", "properties")
    assert shape.fit(batch) is batch


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("bornTimestamp", TimestampType(), datetime(2024, 5, 1, 0, 0, 0, 123000, tzinfo=UTC)),
        ("queueId", LongType(), 3),
        ("queueId", IntegerType(), 3),
        ("body", BinaryType(), b"\xff\x00body"),
        ("properties", MapType(StringType(), StringType()), [("KEYS", "o-1")]),
        ("properties", MapType(StringType(), StringType(), valueContainsNull=False), [("KEYS", "o-1")]),
    ],
)
def test_a_column_is_read_as_a_compatible_type(name, kind, value):
    schema = struct((name, kind))
    batch = shape_for(schema).fit(one_row(name))
    assert batch.schema.equals(sparks_own(schema))
    assert batch.column(0).to_pylist() == [value, None]
    batch.validate(full=True)


def test_a_body_read_as_text_keeps_its_bytes_even_if_they_are_no_utf8():
    batch = shape_for(struct(("body", StringType()))).fit(one_row("body"))
    assert batch.schema == pa.schema([("body", pa.string())])
    assert batch.column(0).cast(pa.binary()).to_pylist() == [b"\xff\x00body", None]


def test_a_user_schema_prunes_and_orders():
    shape = shape_for(struct(("body", BinaryType()), ("queueId", IntegerType())))
    assert shape.columns == ("body", "queueId")
    assert pickle.loads(pickle.dumps(shape)) == shape


def test_a_time_as_a_long_is_the_stored_number():
    schema = struct(("storeTimestamp", LongType()), ("tags", StringType()), ("bornTimestamp", LongType()))
    shape = shape_for(schema)
    assert shape.columns == ("storeTimestampMs", "tags", "bornTimestampMs")
    assert shape.of(["bornTimestamp", "tags"]).columns == ("bornTimestampMs", "tags")
    names = ("storeTimestampMs", "tags", "bornTimestampMs")
    batch = shape.fit(pa.RecordBatch.from_arrays([[1], ["a"], [-(2**63)]], schema=schema_of(names)))
    assert batch.schema.equals(sparks_own(schema))
    assert batch.to_pylist() == [{"storeTimestamp": 1, "tags": "a", "bornTimestamp": -(2**63)}]


@pytest.mark.parametrize("name", ["tags", "keys", "property.a", "bornTimestamp", "corruptReason"])
def test_not_null_is_refused_where_a_message_may_have_none(name):
    kind = TimestampType() if name == "bornTimestamp" else StringType()
    with pytest.raises(Rejected, match=f"column {re.escape(name)} may be null: declare it without NOT NULL"):
        shape_for(StructType([StructField(name, kind, nullable=False)]))


@pytest.mark.parametrize(("name", "kind"), [("body", BinaryType()), ("flag", IntegerType()), ("msgId", StringType())])
def test_not_null_is_refused_of_what_a_damaged_message_lacks(name, kind):
    schema = StructType([StructField(name, kind, nullable=False)])
    assert not shape_for(schema).arrow.field(name).nullable
    with pytest.raises(Rejected, match=f"column {name} may be null"):
        shape_for(schema, on_corrupt_record="null")


def test_not_null_is_kept_as_declared():
    shape = shape_for(StructType([StructField("queueId", IntegerType(), nullable=False)]))
    assert not shape.arrow.field("queueId").nullable


@pytest.mark.parametrize(
    ("schema", "error", "advice"),
    [
        (struct(), Rejected, "the schema has no column: name at least one"),
        (struct(("bodi", BinaryType())), UnknownColumn, "no column 'bodi': did you mean body"),
        (struct(("queueoffset", LongType())), UnknownColumn, "did you mean queueOffset"),
        (struct(("topic", LongType())), Rejected, "column topic cannot be read as bigint: declare it string"),
        (struct(("queueId", ShortType())), Rejected, "declare it int or long"),
        (struct(("storeTimestamp", TimestampNTZType())), Rejected, "declare it timestamp or long"),
        (struct(("body", IntegerType())), Rejected, "declare it binary or string"),
        (struct(("properties", StringType())), Rejected, "declare it map<string,string>"),
        (struct(("properties", MapType(StringType(), LongType()))), Rejected, "declare it map<string,string>"),
        (struct(("tags", MapType(StringType(), StringType()))), Rejected, "declare it string"),
        (
            struct(("topic", LongType()), ("tags", LongType())),
            Rejected,
            "column topic cannot be read as bigint: declare",
        ),
    ],
)
def test_a_schema_that_no_message_has_is_refused_with_advice(schema, error, advice):
    with pytest.raises(error, match=re.escape(advice)):
        shape_for(schema)
