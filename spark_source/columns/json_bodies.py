"""Bodies that are JSON objects, with their fields as columns: what Spark's from_json says of them, column by column.

Arrow's own parser takes all bodies of a batch at once.  It refuses the batch for a single value that is not of its
type: then halves of it are tried, and few rows at a time go through Python's parser, which is the specification.
"""

import decimal
import json
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

_TYPES: dict[type[DataType], pa.DataType] = {
    StringType: pa.string(),
    BooleanType: pa.bool_(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
}
#: The types that a field can be read as, in words.
WORDS = "string, boolean, smallint, int, bigint, float, double, or arrays and structs of these"
# So many rows, and bytes of bodies, are parsed at once; so few are not halved any more.
_ROWS_MAX, _ROWS_LEAST = 8192, 512
_BYTES_MAX = 64 * 1024 * 1024
_WORDS_OF_FLOATS = {
    "NaN": "nan", "+INF": "inf", "+Infinity": "inf", "Infinity": "inf", "-INF": "-inf", "-Infinity": "-inf",
}  # fmt: skip


class Decoded(NamedTuple):
    """The fields as columns, and per row why it is not as it was declared, null where it is: string[n]."""

    columns: dict[str, pa.Array]
    reasons: pa.Array


class Number(str):
    """A number as it is written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)


def arrow_type(wanted: DataType) -> pa.DataType | None:
    """The Arrow type of a field that is read as `wanted`; None where it cannot be."""
    if isinstance(wanted, ArrayType):
        item = arrow_type(wanted.elementType)
        return None if item is None or not wanted.containsNull else pa.list_(pa.field("element", item))
    if isinstance(wanted, StructType):
        kinds = [(each.name, arrow_type(each.dataType), each.nullable) for each in wanted.fields]
        names = {name for name, _, _ in kinds}
        if not kinds or len(names) < len(kinds) or any(kind is None or not nullable for _, kind, nullable in kinds):
            return None
        return pa.struct([pa.field(name, kind) for name, kind, _ in kinds])
    return _TYPES.get(type(wanted))


def decoded(bodies: pa.Array, fields: pa.Schema) -> Decoded:
    """The fields of bodies, binary[n] with null for one that cannot be had.  A body that is empty has no fields, and is
    as sound as null.
    """
    tables, reasons = [], []
    for low, high in _parts(bodies):
        for table, why in _tables(bodies.slice(low, high - low), fields):
            tables.append(table.cast(fields))
            reasons.append(why)
    whole = pa.concat_tables([fields.empty_table(), *tables])
    columns = {name: whole.column(name).combine_chunks() for name in fields.names}
    return Decoded(columns, pa.concat_arrays([pa.array([], pa.string()), *reasons]))


def _parts(bodies: pa.Array) -> Iterator[tuple[int, int]]:
    """Rows from, to, of parts that are parsed at once."""
    sizes = np.cumsum(pc.fill_null(pc.binary_length(bodies), 0).to_numpy().astype(np.int64))
    cuts = [0]
    while cuts[-1] < len(bodies):
        begun = int(sizes[cuts[-1] - 1]) if cuts[-1] else 0
        enough = int(np.searchsorted(sizes, begun + _BYTES_MAX, side="right"))
        cuts.append(max(cuts[-1] + 1, min(enough, cuts[-1] + _ROWS_MAX, len(bodies))))
    return pairwise(cuts)


def _tables(bodies: pa.Array, fields: pa.Schema) -> Iterator[tuple[pa.Table, pa.Array]]:
    """The bodies as tables, in their order: all at once, or in halves where some are not as declared."""
    table = _parsed(bodies, fields)
    if table is not None:
        yield table, pa.nulls(len(bodies), pa.string())
    elif len(bodies) <= _ROWS_LEAST:
        rows = [_row(body, fields) for body in bodies.to_pylist()]
        yield pa.Table.from_pylist([row for row, _ in rows], fields), pa.array([why for _, why in rows], pa.string())
    else:
        half = len(bodies) // 2
        yield from _tables(bodies.slice(0, half), fields)
        yield from _tables(bodies.slice(half), fields)


def _parsed(bodies: pa.Array, fields: pa.Schema) -> pa.Table | None:
    """All bodies by Arrow's parser; None where one of them is not what was declared.

    Each is a row: it ends with a brace, and the next one begins with a brace, which can follow no other within JSON; a
    line that ends within a text is an error.  So no two make one row, and two rows of one body are counted.
    """
    try:
        texts = pc.ascii_trim_whitespace(pc.fill_null(bodies.cast(pa.string()), ""))
        is_empty = pc.equal(pc.binary_length(texts), 0)
        is_braced = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
        if not pc.all(pc.or_(is_empty, is_braced)).as_py():
            return None
        texts = pc.if_else(is_empty, "{}", texts)
        lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
        found = pyarrow.json.read_json(
            pa.BufferReader(lines.buffers()[2]),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(1 << 20, 2 * lines.nbytes)),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=_parsed_as(fields), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    return found.select(fields.names) if found.num_rows == len(bodies) else None


def _parsed_as(fields: pa.Schema) -> pa.Schema:
    """Floats are parsed as doubles and rounded, as Java does."""
    return pa.schema([(field.name, _as_double(field.type)) for field in fields])


def _as_double(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_as_double(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_double(field.type)) for field in kind])
    return pa.float64() if pa.types.is_float32(kind) else kind


# --- a row at a time


def _row(body: bytes | None, fields: pa.Schema) -> tuple[dict[str, Any], str | None]:
    """The fields of one body, and why they are not as declared."""
    text = b"" if body is None else body.strip(_JAVA_BLANKS)
    if not text:
        return {}, None
    try:
        said, _ = _DECODER.raw_decode(text.decode(errors="replace"))
    except (ValueError, RecursionError) as mistake:
        return {}, f"the body is not JSON: {mistake}"
    if said is None:
        return {}, None
    if not isinstance(said, dict):
        return {}, "the body is JSON, but not an object"
    wrong: list[str] = []
    row = {field.name: _value(said.get(field.name), field.type, field.name, wrong) for field in fields}
    return row, f"the body's field {wrong[0]}" if wrong else None


_JAVA_BLANKS = bytes(range(0x21))


def _value(said: Any, kind: pa.DataType, name: str, wrong: list[str]) -> Any:
    """A value as the type has it; null, and noted in `wrong`, where it is none.  An array with an item that is none is
    null, one of structs with such a field is not.
    """
    if said is None:
        return None
    if pa.types.is_struct(kind) and isinstance(said, dict):
        return {field.name: _value(said.get(field.name), field.type, f"{name}.{field.name}", wrong) for field in kind}
    if pa.types.is_list(kind) and isinstance(said, list):
        items = [_value(each, kind.value_type, f"{name}[{place}]", wrong) for place, each in enumerate(said)]
        return None if any(item is None is not each for item, each in zip(items, said, strict=True)) else items
    if pa.types.is_string(kind):
        return (said if type(said) is str else _text(said)).encode(errors="replace").decode()
    value = _plain(said, kind)
    if value is None:
        wrong.append(f"{name} is {_text(said)[:80]}, not {kind}")
    return value


def _plain(said: Any, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return said if isinstance(said, bool) else None
    if pa.types.is_floating(kind):
        word = said if isinstance(said, Number) else _WORDS_OF_FLOATS.get(said) if isinstance(said, str) else None
        return None if word is None else _rounded(float(word), kind)
    if pa.types.is_integer(kind) and isinstance(said, Number) and said.lstrip("-").isdecimal():
        bits = kind.bit_width - 1
        return int(said) if -(1 << bits) <= int(said) < 1 << bits else None
    return None


def _rounded(value: float, kind: pa.DataType) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) if pa.types.is_float32(kind) else value


def _text(said: Any) -> str:
    """The JSON of a value, without blanks."""
    if type(said) is str:
        return json.dumps(said, ensure_ascii=False)
    if isinstance(said, Number):
        return str(int(said)) if said.lstrip("-").isdecimal() else _javas(float(said))
    if isinstance(said, Mapping):
        return "{" + ",".join(f"{_text(str(name))}:{_text(each)}" for name, each in said.items()) + "}"
    return "[" + ",".join(map(_text, said)) + "]" if isinstance(said, list) else json.dumps(said)


def _javas(value: float) -> str:
    """A number as Java's Double.toString has it, in quotes where JSON has no such number."""
    if not math.isfinite(value):
        return {"nan": '"NaN"', "inf": '"Infinity"'}.get(str(value), '"-Infinity"')
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    exact = decimal.Decimal(repr(value)).normalize()
    sign, places, _ = exact.as_tuple()
    text = "".join(map(str, places))
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{exact.adjusted()}"
