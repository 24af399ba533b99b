"""The columns of a DataFrame that is written: which ones there may be, their types, and the types that the store
gets."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from rmqstore.errors import Rejected
from rmqstore.snapshot.columns import COLUMNS, near_names, property_of
from spark_source.options.table import in_one_line

# --- Columns `property.NAME` of a DataFrame that is written: they become properties of each row.

PROPERTIES = "properties"
_PAIR = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
_LISTS = pa.list_(_PAIR)


def with_properties(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns with those of single properties merged into `properties`; a null is no property.

    Where the map has the name, too, the column goes before it.
    """
    named = {name: column for column in columns if (name := property_of(column)) is not None}
    if not named:
        return dict(columns)
    single = {name: columns[column].cast(pa.string()) for name, column in named.items()}
    kept = {column: array for column, array in columns.items() if column not in named.values()}
    return kept | {PROPERTIES: _merged(kept.get(PROPERTIES), single)}


def _merged(maps: pa.Array | None, single: Mapping[str, pa.Array]) -> pa.Array:
    """map<string, string>[n]."""
    (count,) = {len(column) for column in single.values()}
    rows, keys, values = [], [], []
    if maps is not None:
        lists = maps.cast(_LISTS)
        pairs, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
        titles, texts = (pc.struct_field(pairs, [place]) for place in range(2))
        mask = _replaced(titles, owners, single)
        rows, keys, values = [owners.filter(mask)], [titles.filter(mask)], [texts.filter(mask)]
    for name, column in single.items():
        there = column.is_valid()
        rows.append(pa.array(np.arange(count)).filter(there))
        values.append(column.filter(there))
        keys.append(pa.repeat(pa.scalar(name, pa.string()), len(values[-1])))
    owner = pa.concat_arrays([row.cast(pa.int64()) for row in rows]).to_numpy()
    order = pa.array(np.argsort(owner, kind="stable"))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=count)))).astype(np.int32)
    both = [pa.concat_arrays([part.cast(pa.string()) for part in parts]).take(order) for parts in (keys, values)]
    return pa.MapArray.from_arrays(pa.array(offsets), *both)


def _replaced(titles: pa.Array, owners: pa.Array, single: Mapping[str, pa.Array]) -> pa.Array:
    """bool, the pairs of the maps that no column goes before."""
    kept = pa.array(np.ones(len(titles), bool))
    for name, column in single.items():
        hidden = pc.and_(pc.equal(titles, name), column.is_valid().take(owners))
        kept = pc.and_(kept, pc.invert(pc.fill_null(hidden, False)))
    return kept


# ---

_INTEGERS: tuple[type[DataType], ...] = (IntegerType, ShortType, ByteType, LongType)


def _is_texts(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)


def _is_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


# Column -> the types that it may have, in words; a map and a list are looked into.
_WORDS = {
    "topic": "string",
    "body": "binary or string",
    "tags": "string",
    "keys": "string or array<string>",
    "properties": "map<string,string>",
    "queueId": "int",
    "flag": "int",
    "bornTimestamp": "timestamp, or long (milliseconds)",
    "delayLevel": "int",
}
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "body": (BinaryType, StringType),
    "tags": (StringType,),
    "keys": (StringType,),
    "properties": (),
    "queueId": _INTEGERS,
    "flag": _INTEGERS,
    "bornTimestamp": (TimestampType, LongType),
    "delayLevel": _INTEGERS,
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Checked columns; `topic` is that of all rows, which goes before a column of that name."""

    topic: str | None

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as the store takes it: with a topic, and with defaults where it says nothing.  Raises Rejected."""
        columns = with_properties(dict(zip(batch.schema.names, batch.columns, strict=True)))
        if self.topic is not None:
            columns["topic"] = pa.DictionaryArray.from_arrays(_zeros(batch.num_rows), [self.topic])
        for name, default in (("flag", 0), ("bornTimestamp", None)):
            column = columns.get(name)
            if column is not None and column.null_count:
                columns[name] = _millis(column) if default is None else column.fill_null(default)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _zeros(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])


def _millis(column: pa.Array) -> pa.Array:
    """A time in milliseconds, now where there is none."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return pc.fill_null(column, time.time_ns() // 1_000_000)


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """The columns of a DataFrame with this schema.  Raises Rejected for all that is wrong, in one line."""
    names = [field.name for field in schema.fields]
    mistakes = [_unknown(name) for name in names if name not in _TYPES and property_of(name) is None]
    doubled = {name: names.count(name) for name in names if names.count(name) > 1}
    mistakes += [f"column {name} is there {count} times" for name, count in doubled.items()]
    if "topic" not in names and topic is None:
        mistakes.append("no topic: give the option topic, or a column of that name")
    if "body" not in names:
        mistakes.append("no column body: name one, such as select(to_json(struct('*')).alias('body'))")
    for field in schema.fields:
        if not _may_be(field.name, field.dataType):
            words = _WORDS.get(field.name, "string")
            mistakes.append(f"column {field.name} is {field.dataType.simpleString()}: cast it to {words}")
    if mistakes:
        raise Rejected(in_one_line(mistakes))
    return SinkColumns(topic)


def _may_be(name: str, kind: DataType) -> bool:
    if (name == "keys" and _is_texts(kind)) or (name == "properties" and _is_map(kind)):
        return True
    if name in _TYPES:
        return isinstance(kind, _TYPES[name])
    return property_of(name) is None or isinstance(kind, StringType)


def _unknown(name: str) -> str:
    if name in COLUMNS:
        return f"column {name} is made by the store: drop it"
    near = ", ".join(near_names(name, _TYPES))
    hint = (
        f"did you mean {near}?"
        if near
        else f"name it property.{name}, or put it into body; there are {', '.join(_TYPES)}"
    )
    return f"no message has a column {name}: {hint}"
