"""Bodies that are JSON: each row is what its own body says, as Spark's from_json has it."""

import json
import math
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqstore import Message, open_store
from rmqstore.errors import Rejected
from spark_source.columns.json_bodies import decoded
from spark_source.columns.schema import BatchShape, shape_for

FIELDS = pa.schema([
    ("i", pa.int32()), ("l", pa.int64()), ("h", pa.int16()), ("d", pa.float64()), ("f", pa.float32()),
    ("s", pa.string()), ("b", pa.bool_()), ("o", pa.struct([("x", pa.int32()), ("t", pa.string())])),
    ("a", pa.list_(pa.field("element", pa.int32()))),
    ("z", pa.list_(pa.field("element", pa.struct([("x", pa.int32())])))),
    ("n", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.string()))))),
])  # fmt: skip
# Bodies beside what Spark 4.3's from_json says of one field each, with allowSingleQuotes=false.
SAID: tuple[tuple[str, str, Any], ...] = (
    ('{"i": 7}', "i", 7),
    ('{"i": 1.0}', "i", None),
    ('{"i": 1e2}', "i", None),
    ('{"i": "7"}', "i", None),
    ('{"i": 2147483648}', "i", None),
    ('{"i": 1, "i": 2}', "i", 2),
    ('{"I": 1}', "i", None),
    ('{"i": 1} x', "i", 1),
    ('{"i": 1}{"i": 2}', "i", 1),
    ('[{"i": 1}]', "i", None),
    ('[{"i": 1}, {"i": 2}]', "i", None),
    ("", "i", None),
    ("  ", "i", None),
    ("null", "i", None),
    ("5", "i", None),
    ('{"i": 1', "i", None),
    ('{"i": 01}', "i", None),
    ('\ufeff{"i": 1}', "i", None),
    ('{"d": 1}', "d", 1.0),
    ('{"d": 1e400}', "d", math.inf),
    ('{"d": -Infinity}', "d", -math.inf),
    ('{"d": "-INF"}', "d", -math.inf),
    ('{"d": "INF"}', "d", None),
    ('{"d": "1"}', "d", None),
    ('{"f": 0.1}', "f", 0.10000000149011612),
    ('{"s": 1}', "s", "1"),
    ('{"s": 1.50}', "s", "1.5"),
    ('{"s": 1e5}', "s", "100000.0"),
    ('{"s": 1e22}', "s", "1.0E22"),
    ('{"s": 0.00025}', "s", "2.5E-4"),
    ('{"s": NaN}', "s", '"NaN"'),
    ('{"s": [1, 2.0 ,{"a" : null}]}', "s", '[1,2.0,{"a":null}]'),
    ('{"s": true}', "s", "true"),
    ('{"s": "\\ud83d\\ude00"}', "s", "\U0001f600"),
    ('{"s": "\\ud800"}', "s", "?"),
    ('{"b": "true"}', "b", None),
    ('{"o": {"x": "q", "t": 1}}', "o", {"x": None, "t": "1"}),
    ('{"o": []}', "o", None),
    ('{"a": [null, 1]}', "a", [None, 1]),
    ('{"a": [1, "x"]}', "a", None),
    ('{"a": {}}', "a", None),
    ('{"z": [{"x": 1}, {"x": "q"}]}', "z", [{"x": 1}, {"x": None}]),
    ('{"z": [{"x": 1}, 5]}', "z", None),
)


def struct(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


def binary(*bodies: str | None) -> pa.Array:
    return pa.array([None if body is None else body.encode() for body in bodies], pa.binary())


def rows(bodies: pa.Array, fields: pa.Schema = FIELDS) -> list[dict[str, Any]]:
    found = decoded(bodies, fields)
    assert {len(column) for column in found.columns.values()} == {len(bodies)}
    return pa.table(found.columns).to_pylist()


def alike(one: Any, other: Any) -> bool:
    """The same value, NaN the same as NaN."""
    return json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize(("body", "name", "wanted"), SAID)
def test_a_field_is_what_from_json_says(body: str, name: str, wanted: Any) -> None:
    """Alone, and among bodies that Arrow's parser takes."""
    assert alike(rows(binary(body))[0][name], wanted)
    many = rows(binary(*['{"i": 4}'] * 700, body, *['{"i": 6}'] * 700))
    assert alike(many[700][name], wanted)
    assert [row["i"] for row in many[:700] + many[701:]] == [4] * 700 + [6] * 700


@pytest.mark.spark
def test_spark_says_so(spark: SparkSession) -> None:
    schema = from_arrow_schema(FIELDS)
    frame = spark.createDataFrame([(at, body) for at, (body, _, _) in enumerate(SAID)], "at int, body string")
    said = frame.select("at", f.from_json("body", schema, {"allowSingleQuotes": "false"}).alias("r")).orderBy("at")
    found = [row["r"].asDict(True) if row["r"] is not None else {} for row in said.collect()]
    assert [body for (body, name, wanted), row in zip(SAID, found, strict=True)
            if not alike(row.get(name), wanted)] == []  # fmt: skip


@pytest.mark.parametrize(
    "bodies",
    [
        ['{"i": 1,', '"l": 2}', '{"i": 5}{"i": 6}'],  # together they are three rows
        ['{"i": 1', "}", '{"i": 2}'],
        ['{"s": "x}', '{y", "i": 3}', '{"i": 2}{"i": 4}'],
        ['{"o": {"x": 1}', '{"x": 2}}', '{"i": 2}{"i": 4}'],
        ['{"a": [{}', '{"i": 1}', "]}"],
        ['{"i": 1}\n{"i": 2}', "", '{"i": 3}'],
        ['{"i": 1}}', '{{"i": 2}', '{"i": 3}'],
        ["[" * 100_000, '{"i": 2}', '{"s": ' + "[" * 100_000 + "}"],
    ],
)
def test_no_body_moves_another_one(bodies: list[str]) -> None:
    """Whatever stands beside it, a body says what it says alone."""
    alone = [rows(binary(body))[0] for body in bodies]
    assert rows(binary(*bodies)) == alone
    good = [f'{{"i": {number}}}' for number in range(2000)]
    mixed = rows(binary(*good[:1000], *bodies, *good[1000:]))
    assert mixed[1000 : 1000 + len(bodies)] == alone
    assert [row["i"] for row in mixed[:1000] + mixed[1000 + len(bodies) :]] == list(range(2000))


def test_bytes_that_are_no_text_and_bodies_that_are_not_there() -> None:
    bodies = pa.array([b'{"s": "a\xff", "i": 1}', None, b'{"s": "b", "i": 2}', b"\xff"], pa.binary())
    assert [(row["s"], row["i"]) for row in rows(bodies)] == [("a\ufffd", 1), (None, None), ("b", 2), (None, None)]
    assert rows(bodies[:0]) == []


_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5), st.just("NaN")
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ilhdfsboaznxt"), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([*FIELDS.names, "more"]), _VALUES, max_size=6), max_size=12), st.data())
def test_many_bodies_are_what_each_is_alone(objects: list[dict[str, Any]], data: st.DataObject) -> None:
    texts = [json.dumps(each, ensure_ascii=False, indent=data.draw(st.sampled_from([None, 1]))) for each in objects]
    cuts = [data.draw(st.integers(0, len(text))) if data.draw(st.integers(0, 9)) == 0 else len(text) for text in texts]
    bodies = [text[:cut].encode(errors="surrogatepass") for text, cut in zip(texts, cuts, strict=True)]
    together = rows(pa.array(bodies * 50, pa.binary()))
    alone = [rows(pa.array([body], pa.binary()))[0] for body in bodies]
    assert alike(together, alone * 50)


def test_the_reason_names_the_field_and_its_value() -> None:
    found = decoded(binary('{"o": {"x": "q"}}', '{"i": 1}', "[", '{"a": [1, "x"]}', "5"), FIELDS)
    assert found.reasons.to_pylist()[:2] == ['the body\'s field o.x is "q", not int32', None]
    assert found.reasons.to_pylist()[2].startswith("the body is not JSON: ")
    assert found.reasons.to_pylist()[3:] == [
        "the body's field a[1] is \"x\", not int32", "the body is JSON, but not an object",
    ]  # fmt: skip


# --- as columns of a read


def shape(*fields: tuple[str, DataType], **options: str) -> BatchShape:
    return shape_for(struct(*fields), is_json=True, **options)


def batch(shape: BatchShape, *bodies: str) -> pa.RecordBatch:
    """A batch of the columns that a shape reads."""
    own = {
        "topic": pa.array(["T"] * len(bodies)), "physicalOffset": pa.array(range(len(bodies)), pa.int64()),
        "queueOffset": pa.array(range(len(bodies)), pa.int64()), "body": binary(*bodies),
        "corruptReason": pa.nulls(len(bodies), pa.string()),
    }  # fmt: skip
    return pa.RecordBatch.from_pydict({name: own[name] for name in shape.columns})


def test_a_batch_has_the_schema_that_spark_wants() -> None:
    own = struct(("queueOffset", LongType()), ("body.topic", StringType()), ("topic", StringType()))
    schema = StructType([*own.fields, *from_arrow_schema(FIELDS).fields])
    made = shape_for(schema, is_json=True)
    fitted = made.fit(batch(made, '{"i": 1, "topic": "own", "z": [{"x": 1}]}', "{}"))
    assert fitted.schema.equals(to_arrow_schema(schema))
    assert fitted["body.topic"].to_pylist() == ["own", None]
    assert fitted["topic"].to_pylist() == ["T", "T"]
    part = made.of(["i", "queueOffset"])
    assert part.fit(batch(part, '{"i": 1}')).to_pylist() == [{"i": 1, "queueOffset": 0}]


def test_what_is_not_as_declared_is_refused_left_out_or_null() -> None:
    bodies = ('{"i": 1, "s": "a"}', '{"i": "x", "s": "b"}', '{"s": "c"}')
    columns = (("queueOffset", LongType()), ("i", IntegerType()), ("s", StringType()), ("corruptReason", StringType()))
    strict = shape(*columns)
    with pytest.raises(Rejected, match=r"message of T at 1 of the commitlog: the body's field i is \"x\", not int32; "):
        strict.fit(batch(strict, *bodies))
    left_out = shape(*columns, on_corrupt_record="skip")
    assert left_out.fit(batch(left_out, *bodies))["s"].to_pylist() == ["a", "c"]
    pruned = left_out.of(["s"])  # the same rows, whichever columns are read
    assert pruned.fit(batch(pruned, *bodies))["s"].to_pylist() == ["a", "c"]
    told = shape(*columns, on_corrupt_record="null")
    fitted = told.fit(batch(told, *bodies))
    assert fitted["i"].to_pylist() == [1, None, None]
    assert fitted["s"].to_pylist() == ["a", "b", "c"]
    assert fitted["corruptReason"].to_pylist() == [None, 'the body\'s field i is "x", not int32', None]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (MapType(StringType(), StringType()), "map<string,string>: declare it string, boolean"),
        (TimestampType(), "timestamp"),
        (ByteType(), "tinyint"),
        (DecimalType(9, 2), r"decimal\(9,2\)"),
        (BinaryType(), "binary"),
        (ArrayType(DateType()), "array<date>"),
        (struct(("x", IntegerType()), ("x", IntegerType())), "struct<x:int,x:int>"),
    ],
)
def test_a_type_that_bodies_cannot_have_is_refused(kind: DataType, said: str) -> None:
    with pytest.raises(Rejected, match=f"field m of bodies cannot be read as {said}"):
        shape(("m", kind))


def test_a_declaration_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(Rejected, match="column i may be null: declare it without NOT NULL"):
        shape_for(StructType([StructField("i", IntegerType(), False)]), is_json=True)
    with pytest.raises(Rejected, match="the field i of bodies is declared twice"):
        shape(("i", IntegerType()), ("body.i", IntegerType()))


@pytest.mark.spark
def test_fields_of_bodies_are_columns_in_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance = random.Random(1)
    root = tmp_path_factory.mktemp("json")
    objects = [{"id": at, "price": at / 4, "user": {"name": f"u{at}"}, "more": chance.random()} for at in range(500)]
    with open_store(root) as store:
        for at, each in enumerate(objects):
            store.put(Message("orders", json.dumps(each).encode(), queue_id=at % 2))
        store.put(Message("odd", b'{"id": "x"}'))
    read = spark.read.format("rmqstore").option("bodyFormat", "json")
    frame = read.option("subscribe", "orders").schema("id long, price double, user struct<name: string>, topic string")
    frame = frame.load(str(root))
    found = [row.asDict(True) for row in frame.orderBy("id").collect()]
    assert found == [{**{name: each[name] for name in ("id", "price", "user")}, "topic": "orders"} for each in objects]
    assert frame.where("price > 100").count() == sum(each["price"] > 100 for each in objects)
    for options, said in (
        ({}, "not int64; declare another type"),
        ({"decompress": "false"}, "does not go with decompress"),
    ):
        with pytest.raises(Exception, match=said):
            read.options(subscribe="odd", **options).schema("id long").load(str(root)).collect()
    with pytest.raises(Exception, match="bodyFormat=json needs a schema with the fields"):
        spark.read.format("rmqstore").options(bodyFormat="json", subscribe="odd").load(str(root))
