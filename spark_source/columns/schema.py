"""Arrow to Spark, which is the only direction: the schema that a read shows, and the Arrow schema that its batches must
have.

Spark 4.2 and later refuse a batch whose names, order, types or nullability differ from the schema of the read; earlier
ones take the columns by position and swap values in silence.  So batches are shaped by the Spark schema that comes in.

Most reads convert nothing: what converts is imported where it does.
"""
# ruff: noqa: PLC0415

from collections.abc import Callable, Mapping, Sequence
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

from rmqstore.core.arguments import shown
from rmqstore.errors import Rejected
from rmqstore.snapshot.columns import COLUMNS, field_of, is_column, property_of

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


# The name of a column that is a field of bodies may have this in front of it.
FIELD_PREFIX = "body."
# Whatever is wrong with a message, its place is told; of a sound one all but `_MAY_BE_NULL` and single properties.
_NEVER_NULL = ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset")
_MAY_BE_NULL = ("tags", "keys", "bornTimestamp", "storeTimestamp", "tagsCode", "corruptReason")
# They tell which message it is whose property has no value of its column's type.
_PLACE = ("topic", "physicalOffset")


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The shape that Spark wants of a batch: `arrow` the exact schema, `conversions` by column where a type differs.

    Of the columns in `strict` every text has to be a value of their type; of others it is null where it is none.
    `sources`: the names of the columns that are read for those of another name.  `fields`: by column the field of
    bodies that are JSON; what is not as declared there is treated as `on_corrupt_record` says.  `checked`: the fields
    of which each has to be as declared where a row is left out otherwise, whichever columns are read.
    """

    arrow: pa.Schema
    conversions: dict[int, Conversion]
    strict: tuple[int, ...] = ()
    sources: dict[int, str] = field(default_factory=dict)
    fields: dict[int, str] = field(default_factory=dict)
    on_corrupt_record: str = "fail"
    checked: pa.Schema | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns to read, in order, each once."""
        own = [self.sources.get(place, name) for place, name in enumerate(self.arrow.names) if place not in self.fields]
        own += ["body"] if self.fields or self.checked is not None else []
        own += _PLACE if self.strict or (self.fields and self.on_corrupt_record == "fail") else []
        return tuple(dict.fromkeys(own))

    def of(self, names: Sequence[str]) -> "BatchShape":
        """The shape of some of the columns, in another order."""
        places = [self.arrow.get_field_index(name) for name in names]
        conversions = {at: self.conversions[place] for at, place in enumerate(places) if place in self.conversions}
        strict = tuple(at for at, place in enumerate(places) if place in self.strict)
        sources = {at: self.sources[place] for at, place in enumerate(places) if place in self.sources}
        fields = {at: self.fields[place] for at, place in enumerate(places) if place in self.fields}
        arrow = pa.schema([self.arrow.field(place) for place in places])
        return replace(self, arrow=arrow, conversions=conversions, strict=strict, sources=sources, fields=fields)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch`, whose columns are `self.columns` in rmqstore's types, in this shape; no copy where types agree.

        Raises Rejected for the first value of a strict column that has not its type, and for such a body.
        """
        if not (self.conversions or self.fields or self.checked) and batch.schema.equals(self.arrow):
            return batch
        found: Mapping[str, pa.Array] = {}
        if self.fields or self.checked is not None:
            batch, found = self._with_fields(batch)
        arrays = []
        for place, name in enumerate(self.arrow.names):
            array = found[name] if place in self.fields else batch.column(self.sources.get(place, name))
            arrays.append(self.conversions[place](array) if place in self.conversions else array)
        for place in self.strict:
            self._require_values(batch, place, arrays[place])
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _with_fields(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Mapping[str, pa.Array]]:
        """The batch as it goes on, and the columns that are fields of its bodies."""
        from spark_source.columns import json_bodies

        wanted = pa.schema([(name, self.arrow.field(place).type) for place, name in self.fields.items()])
        schema = wanted if self.checked is None else self.checked
        found = json_bodies.decoded(batch.column("body"), schema)
        columns = {self.arrow.names[place]: found.columns[name] for place, name in self.fields.items()}
        if found.reasons.null_count == len(batch):
            return batch, columns
        import pyarrow.compute as pc

        if self.on_corrupt_record == "fail":
            row = pc.index(found.reasons.is_valid(), True).as_py()
            topic, offset = (batch.column(name)[row].as_py() for name in _PLACE)
            raise Rejected(
                f"the message of {topic} at {offset} of the commitlog: {found.reasons[row].as_py()}; declare another "
                "type, or set onCorruptRecord=null for null in this column, or onCorruptRecord=skip to leave out "
                "such messages"
            )
        if self.on_corrupt_record == "skip":
            sound = found.reasons.is_null()
            return batch.filter(sound), {name: column.filter(sound) for name, column in columns.items()}
        if "corruptReason" in batch.schema.names:
            place = batch.schema.get_field_index("corruptReason")
            reasons = pc.coalesce(batch.column(place), found.reasons)
            batch = batch.set_column(place, batch.schema.field(place), reasons)
        return batch, columns

    def _require_values(self, batch: pa.RecordBatch, place: int, made: pa.Array) -> None:
        texts = batch.column(self.arrow.names[place])
        if made.null_count == texts.null_count:
            return
        import pyarrow.compute as pc

        row = pc.index(pc.and_not(made.is_null(), texts.is_null()), True).as_py()
        topic, offset = (batch.column(name)[row].as_py() for name in _PLACE)
        field = self.arrow.field(place)
        raise Rejected(
            f"{field.name} of the message of {topic} at {offset} of the commitlog is {shown(texts[row].as_py())}, no "
            f"{field.type}: declare the column as string, or set onCorruptRecord=null for null in this column"
        )


def shape_for(schema: StructType | pa.Schema, *, on_corrupt_record: str = "fail", is_json: bool = False) -> BatchShape:
    """The shape of the batches for `schema`, which may be the user's own: a part of the columns, in any order.

    An Arrow schema, as Sail gives it, is what its batches must have to the letter: instants in the zone of the session,
    say, which are the same instants.

    With `on_corrupt_record` "fail" a property that is no value of its column's type is an error, else null.  `is_json`:
    a column that no message has is a field of its body, and so is body.NAME.  Raises UnknownColumn for a name that no
    message has, Rejected for an empty schema or a type that a column cannot take.
    """
    if isinstance(schema, pa.Schema):
        given = from_arrow_schema(schema)
        return _as_given(shape_for(given, on_corrupt_record=on_corrupt_record, is_json=is_json), schema)
    if not schema.fields:
        raise Rejected("the schema has no column: name at least one, such as .schema('queueOffset long')")
    is_strict = on_corrupt_record == "fail"
    in_bodies = _in_bodies(schema) if is_json else {}
    fields, conversions, mistakes, strict, sources = [], {}, [], [], {}
    for place, wanted in enumerate(schema.fields):
        if place in in_bodies:
            kind, mistake = _field_as(wanted)
            fields.append(pa.field(wanted.name, kind))
            mistakes += mistake
            continue
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
    arrow, checked = pa.schema(fields), None
    if in_bodies and on_corrupt_record == "skip":
        checked = pa.schema([(name, arrow.field(place).type) for place, name in in_bodies.items()])
    return BatchShape(arrow, conversions, tuple(strict), sources, in_bodies, on_corrupt_record, checked)


def _in_bodies(schema: StructType) -> dict[int, str]:
    """The columns that are fields of bodies, with these fields' names."""
    found = {}
    for place, wanted in enumerate(schema.fields):
        name = wanted.name.removeprefix(FIELD_PREFIX)
        if name != wanted.name or not is_column(name):
            found[place] = name
    twice = {name for name in found.values() if list(found.values()).count(name) > 1}
    if twice:
        raise Rejected(f"the field {min(twice)} of bodies is declared twice: keep one of its columns")
    return found


def _field_as(wanted: StructField) -> tuple[pa.DataType, list[str]]:
    """The Arrow type of a field of bodies, and what is wrong with its declaration."""
    from spark_source.columns import json_bodies

    kind = json_bodies.arrow_type(wanted.dataType)
    if kind is None:
        shown_type = wanted.dataType.simpleString()
        return pa.null(), [
            f"field {wanted.name} of bodies cannot be read as {shown_type}: declare it {json_bodies.WORDS}"
        ]
    return kind, [] if wanted.nullable else [f"column {wanted.name} may be null: declare it without NOT NULL"]


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
