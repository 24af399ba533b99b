"""Arrow to Spark, which is the only direction: the schema that a read shows, and the Arrow schema that its batches must
have.

Spark 4.2 and later refuse a batch whose names, order, types or nullability differ from the schema of the read; earlier
ones take the columns by position and swap values in silence.  So batches are shaped by the Spark schema that comes in.

Most reads convert nothing: what converts is imported where it does.
"""
# ruff: noqa: PLC0415

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
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

from rmqstore.arguments import shown
from rmqstore.errors import Rejected
from rmqstore.snapshot.columns import COLUMNS, field_of, property_of

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
    return StructType([StructField(name, _SPARK_TYPES[field_of(name).type], nullable=True) for name in columns])


def to_long(array: pa.Array) -> pa.Array:
    """int32 -> int64."""
    return array.cast(pa.int64())


def to_text(array: pa.Array) -> pa.Array:
    """binary -> string over the same bytes, unchecked, which is what Spark's own cast of binary to string does."""
    import pyarrow.compute as pc

    return pc.cast(array, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))


# Types other than its own that a column can be read as.  A time as a long is another column, its stored number.
_ALSO: dict[tuple[pa.DataType, type[DataType]], tuple[pa.DataType, Conversion | None]] = {
    (_TIMESTAMP, LongType): (pa.int64(), None),
    (pa.int32(), LongType): (pa.int64(), to_long),
    (pa.binary(), StringType): (pa.string(), to_text),
}


# Whatever is wrong with a message, its place is told; of a sound one all but `_MAY_BE_NULL` and single properties.
_NEVER_NULL = ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset")
_MAY_BE_NULL = ("tags", "keys", "bornTimestamp", "storeTimestamp", "tagsCode", "corruptReason")
# They tell which message it is whose property has no value of its column's type.
_PLACE = ("topic", "physicalOffset")


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The shape that Spark wants of a batch: `arrow` the exact schema, `conversions` by column where a type differs.

    Of the columns in `strict` every text has to be a value of their type; of others it is null where it is none.
    `sources`: the names of the columns that are read for those of another name.
    """

    arrow: pa.Schema
    conversions: dict[int, Conversion]
    strict: tuple[int, ...] = ()
    sources: dict[int, str] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns to read, in order."""
        names = tuple(self.sources.get(place, name) for place, name in enumerate(self.arrow.names))
        return names + tuple(name for name in _PLACE if self.strict and name not in names)

    def of(self, names: Sequence[str]) -> "BatchShape":
        """The shape of some of the columns, in another order."""
        places = [self.arrow.get_field_index(name) for name in names]
        conversions = {at: self.conversions[place] for at, place in enumerate(places) if place in self.conversions}
        strict = tuple(at for at, place in enumerate(places) if place in self.strict)
        sources = {at: self.sources[place] for at, place in enumerate(places) if place in self.sources}
        return BatchShape(pa.schema([self.arrow.field(place) for place in places]), conversions, strict, sources)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch`, whose columns are `self.columns` in rmqstore's types, in this shape; no copy where types agree.

        Raises Rejected for the first value of a strict column that has not its type.
        """
        if not self.conversions and batch.schema.equals(self.arrow):
            return batch
        arrays = [
            self.conversions[place](array) if place in self.conversions else array
            for place, array in enumerate(batch.columns[: len(self.arrow)])
        ]
        for place in self.strict:
            self._require_values(batch, place, arrays[place])
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _require_values(self, batch: pa.RecordBatch, place: int, made: pa.Array) -> None:
        texts = batch.column(place)
        if made.null_count == texts.null_count:
            return
        import pyarrow.compute as pc

        row = pc.index(pc.and_not(made.is_null(), texts.is_null()), True).as_py()
        topic, offset = (batch.column(name)[row].as_py() for name in _PLACE)
        field = self.arrow.field(place)
        raise Rejected(
            f"{field.name} of the message of {topic} at {offset} of the commitlog is {shown(texts[row].as_py())}, no "
            f"{field.type}: read it as string, or set onCorruptRecord=null for null there"
        )


def shape_for(schema: StructType | pa.Schema, *, is_strict: bool = True) -> BatchShape:
    """The shape of the batches for `schema`, which may be the user's own: a part of the columns, in any order.

    An Arrow schema, as Sail gives it, is what its batches must have to the letter: instants in the zone of the session,
    say, which are the same instants.

    `is_strict`: a property that is no value of its column's type is an error, else null.  Raises UnknownColumn for a
    name that no message has, Rejected for an empty schema or a type that a column cannot take.
    """
    if isinstance(schema, pa.Schema):
        return _as_given(shape_for(from_arrow_schema(schema), is_strict=is_strict), schema)
    if not schema.fields:
        raise Rejected("the schema has no column: name at least one, such as .schema('queueOffset long')")
    fields, conversions, mistakes, strict, sources = [], {}, [], [], {}
    for place, wanted in enumerate(schema.fields):
        found = _type_for(field_of(wanted.name).type, wanted.dataType)
        if found is None and property_of(wanted.name) is not None:
            found = _property_as(wanted.dataType)
            strict += [place] if is_strict and found is not None else []
        if found is None:
            mistakes.append(_wrong_type(wanted))
            continue
        arrow_type, conversion = found
        if _is_time_as_long(wanted):
            sources[place] = f"{wanted.name}Ms"
        if not wanted.nullable and _may_be_null(wanted, is_strict=is_strict):
            mistakes.append(f"column {wanted.name} may be null: declare it without NOT NULL")
        fields.append(pa.field(wanted.name, arrow_type, nullable=wanted.nullable))
        if conversion is not None:
            conversions[place] = conversion
    if mistakes:
        raise Rejected("; ".join(mistakes))
    return BatchShape(pa.schema(fields), conversions, tuple(strict), sources)


def _is_time_as_long(wanted: StructField) -> bool:
    """Whether a column that is a timestamp is to be read as its stored number."""
    return field_of(wanted.name).type == _TIMESTAMP and isinstance(wanted.dataType, LongType)


def _may_be_null(wanted: StructField, *, is_strict: bool) -> bool:
    """Whether a column is null in some messages: Spark believes a NOT NULL, and counts none of them."""
    if not is_strict:
        return wanted.name not in _NEVER_NULL
    return property_of(wanted.name) is not None or (wanted.name in _MAY_BE_NULL and not _is_time_as_long(wanted))


def _as_given(shape: BatchShape, schema: pa.Schema) -> BatchShape:
    """The same columns in the types of an Arrow schema that differ only in how they are told."""
    conversions = dict(shape.conversions)
    for place, (ours, wanted) in enumerate(zip(shape.arrow, schema, strict=True)):
        if ours.type != wanted.type:
            conversions[place] = partial(_converted_and_cast, first=conversions.get(place), kind=wanted.type)
    return replace(shape, arrow=schema, conversions=conversions)


def _converted_and_cast(array: pa.Array, first: Conversion | None, kind: pa.DataType) -> pa.Array:
    return (array if first is None else first(array)).cast(kind)


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


def _property_as(wanted: DataType) -> tuple[pa.DataType, Conversion] | None:
    from spark_source.columns import property_types

    kind = property_types.arrow_type(wanted)
    return None if kind is None else (kind, partial(property_types.converted, kind=kind))


def _with_values_never_null(array: pa.Array) -> pa.Array:
    """A map whose values are declared not null; RocketMQ writes no property without a value."""
    return array.cast(pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)))


def _wrong_type(field: StructField) -> str:
    own = field_of(field.name).type
    if property_of(field.name) is not None:
        from spark_source.columns.property_types import WORDS

        wanted = f"{', '.join(WORDS[:-1])} or {WORDS[-1]}"
        return f"column {field.name} cannot be read as {field.dataType.simpleString()}: declare it {wanted}"
    names = [_SPARK_TYPES[own].simpleString()]
    names += [wanted.typeName() for source, wanted in _ALSO if source == own]
    return f"column {field.name} cannot be read as {field.dataType.simpleString()}: declare it {' or '.join(names)}"
