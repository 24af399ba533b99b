"""Single properties as other types than text: what Spark's try_cast of the text says, column by column."""

import decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
)

_TYPES: dict[type[DataType], pa.DataType] = {
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    BooleanType: pa.bool_(),
}
#: The types that a property can be read as, in words.
WORDS = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
# Control characters and the blank, which Java takes off numbers; Spark itself takes off one more.
_BLANKS = "".join(map(chr, range(0x21)))
_WHOLE = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"
_FLOAT = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[dDfF]?$"
_WORDS_OF_FLOATS = {
    "nan": "nan", "+nan": "nan", "-nan": "nan", "inf": "inf", "+inf": "inf", "infinity": "inf", "+infinity": "inf",
    "-inf": "-inf", "-infinity": "-inf",
}  # fmt: skip
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
# Room for all digits of a decimal before it is rounded as Spark does.
_EXACT = pa.decimal256(76, 38)
# Exponents have four digits at most.
_EVERY_DIGIT = decimal.Context(prec=25_000, rounding=decimal.ROUND_HALF_UP)


def arrow_type(wanted: DataType) -> pa.DataType | None:
    """The Arrow type of a property that is read as `wanted`; None where it cannot be."""
    if isinstance(wanted, DecimalType):
        return pa.decimal128(wanted.precision, wanted.scale)
    return _TYPES.get(type(wanted))


def converted(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """`kind`[n] of string[n]: null for a text that is no such value, and for one that does not fit."""
    is_javas = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    trimmed = pc.utf8_trim(texts, characters=_BLANKS if is_javas else _BLANKS + "\x7f")
    if pa.types.is_boolean(kind):
        return _booleans(trimmed)
    if pa.types.is_floating(kind):
        return _floats(trimmed, kind)
    return _exact(trimmed, kind, _WHOLE if pa.types.is_integer(kind) else _NUMBER)


def _booleans(texts: pa.Array) -> pa.Array:
    lower = pc.ascii_lower(texts)
    is_true = pc.is_in(lower, pa.array(_TRUE))
    return pc.if_else(pc.or_(is_true, pc.is_in(lower, pa.array(_FALSE))), is_true, pa.scalar(None, pa.bool_()))


def _floats(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    lower = pc.ascii_lower(texts)
    words = pc.index_in(lower, pa.array(list(_WORDS_OF_FLOATS)))
    named = pa.array(list(_WORDS_OF_FLOATS.values())).take(words)
    numbers = pc.coalesce(
        named,
        _where(pc.match_substring_regex(texts, _FLOAT), pc.replace_substring_regex(texts, r"([0-9.])[dDfF]$", r"\1")),
    )
    return numbers.cast(pa.float64()).cast(kind, safe=False)


def _exact(texts: pa.Array, kind: pa.DataType, pattern: str) -> pa.Array:
    """Integers and decimals: all digits count, and what is too large is null."""
    numbers = _where(pc.match_substring_regex(texts, pattern), texts)
    numbers = pc.replace_substring_regex(numbers, r"^\+", "")
    numbers = pc.replace_substring_regex(numbers, r"^(-?)0+([0-9])", r"\1\2")
    try:
        return _fitting(numbers, kind)
    except pa.ArrowInvalid:  # one that is too large, which Arrow names and does not pass over
        return pa.array([_one(text, kind) for text in numbers.to_pylist()], kind)


def _fitting(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(kind):
        return numbers.cast(kind)
    exact = numbers.cast(_EXACT)
    return pc.round(exact, ndigits=kind.scale, round_mode="half_towards_infinity").cast(kind)


def _one(text: str | None, kind: pa.DataType) -> object:
    if text is not None and pa.types.is_decimal(kind):
        with decimal.localcontext(_EVERY_DIGIT):
            value = decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-kind.scale))
            return value if abs(value) < decimal.Decimal(10) ** (kind.precision - kind.scale) else None
    try:
        return pa.array([text], pa.string()).cast(kind)[0].as_py()
    except pa.ArrowInvalid:
        return None


def _where(mask: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(mask, texts, pa.scalar(None, pa.string()))
