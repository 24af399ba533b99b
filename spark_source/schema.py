"""Arrow to Spark, which is the only direction: the schema that a read shows, and the Arrow schema that its batches must
have.

Spark 4.2 and later refuse a batch whose names, order, types or nullability differ from the schema of the read; earlier
ones take the columns by position and swap values in silence.  So batches are shaped by the Spark schema that comes in.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqstore.errors import Rejected, UnknownColumn
from rmqstore.snapshot.columns import COLUMNS, near_names

Conversion = Callable[[pa.Array], pa.Array]

_TIMESTAMP = COLUMNS["storeTimestamp"].type
_MAP = COLUMNS["properties"].type

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    _TIMESTAMP: TimestampType(),
    _MAP: MapType(StringType(), StringType()),
}


def spark_schema(columns: tuple[str, ...]) -> StructType:
    """The schema that Spark shows for `columns`, every field nullable."""
    return StructType([StructField(name, _SPARK_TYPES[COLUMNS[name].type], nullable=True) for name in columns])


def to_millis(array: pa.Array) -> pa.Array:
    """timestamp[us] -> int64 ms since 1970."""
    return array.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())


def to_long(array: pa.Array) -> pa.Array:
    """int32 -> int64."""
    return array.cast(pa.int64())


def to_text(array: pa.Array) -> pa.Array:
    """binary -> string over the same bytes, unchecked, which is what Spark's own cast of binary to string does."""
    return pc.cast(array, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))


# Types other than its own that a column can be read as.
_ALSO: dict[tuple[pa.DataType, type[DataType]], tuple[pa.DataType, Conversion]] = {
    (_TIMESTAMP, LongType): (pa.int64(), to_millis),
    (pa.int32(), LongType): (pa.int64(), to_long),
    (pa.binary(), StringType): (pa.string(), to_text),
}


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The shape that Spark wants of a batch: `arrow` the exact schema, `conversions` by column where a type differs."""

    arrow: pa.Schema
    conversions: dict[int, Conversion]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns to read, in order."""
        return tuple(self.arrow.names)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch`, whose columns are `self.columns` in rmqstore's types, in this shape; no copy where types agree."""
        if not self.conversions and batch.schema.equals(self.arrow):
            return batch
        arrays = [
            self.conversions[place](array) if place in self.conversions else array
            for place, array in enumerate(batch.columns)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def shape_for(schema: StructType) -> BatchShape:
    """The shape of the batches for `schema`, which may be the user's own: a part of the columns, in any order.

    Raises UnknownColumn for a name that no message has, Rejected for an empty schema or a type that a column cannot
    take.
    """
    if not schema.fields:
        raise Rejected("the schema has no column: name at least one, such as .schema('queueOffset long')")
    fields, conversions, mistakes = [], {}, []
    for place, field in enumerate(schema.fields):
        if field.name not in COLUMNS:
            raise UnknownColumn(field.name, near_names(field.name, COLUMNS))
        found = _type_for(COLUMNS[field.name].type, field.dataType)
        if found is None:
            mistakes.append(_wrong_type(field))
            continue
        arrow_type, conversion = found
        fields.append(pa.field(field.name, arrow_type, nullable=field.nullable))
        if conversion is not None:
            conversions[place] = conversion
    if mistakes:
        raise Rejected("; ".join(mistakes))
    return BatchShape(pa.schema(fields), conversions)


def _type_for(own: pa.DataType, wanted: DataType) -> tuple[pa.DataType, Conversion | None] | None:
    """The Arrow type of a column of type `own` read as `wanted`, and how to get there; None where there is no way."""
    if isinstance(wanted, MapType):
        texts = isinstance(wanted.keyType, StringType) and isinstance(wanted.valueType, StringType)
        if own != _MAP or not texts:
            return None
        value = pa.field("value", pa.string(), nullable=wanted.valueContainsNull)
        return (own, None) if wanted.valueContainsNull else (pa.map_(pa.string(), value), _with_values_never_null)
    if type(wanted) is type(_SPARK_TYPES[own]):
        return own, None
    return _ALSO.get((own, type(wanted)))


def _with_values_never_null(array: pa.Array) -> pa.Array:
    """A map whose values are declared not null; RocketMQ writes no property without a value."""
    return array.cast(pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)))


def _wrong_type(field: StructField) -> str:
    own = COLUMNS[field.name].type
    names = [_SPARK_TYPES[own].simpleString()]
    names += [wanted.typeName() for source, wanted in _ALSO if source == own]
    return f"column {field.name} cannot be read as {field.dataType.simpleString()}: declare it {' or '.join(names)}"
