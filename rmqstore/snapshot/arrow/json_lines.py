"""Messages as objects of JSON, in vectors, as json.dumps(…, ensure_ascii=False) writes them.

Properties are an object, times ISO 8601 with milliseconds and Z, or milliseconds since 1970 where the year has not
four digits; `body` stands as text where it is UTF-8, else in
base64 as "bodyBase64"; `corruptReason` stands at the end where there is one.
"""

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats.message_columns import Ints
from rmqstore.records.gather import are_texts, bytes_of, is_ascii

_DAMAGE = "corruptReason"
# The years 0 to 9999.
_FIRST_MS, _LAST_MS = -62_167_219_200_000, 253_402_300_799_999
_encode = json.JSONEncoder(ensure_ascii=False).encode
# How JSON writes the bytes that no string of it holds as they are; the backslash first, as the others bring some.
_ESCAPES = {byte: json.dumps(chr(byte))[1:-1] for byte in (ord("\\"), ord('"'), *range(32))}


def json_lines(batch: pa.RecordBatch, end: str = "\n") -> pa.Array:
    """string[n], a JSON object for each row with its columns in order, corruptReason last, and `end` after it."""
    pieces: list[pa.Array | str] = ["{"]
    for name in batch.schema.names:
        if name != _DAMAGE:
            pieces += [", "] if len(pieces) > 1 else []
            column = batch.column(name)
            pieces += [_bodies(column)] if name == "body" else [f"{_encode(name)}: ", _values(column)]
    if _DAMAGE in batch.schema.names:
        reasons = batch.column(_DAMAGE)
        head = f"{', ' if len(pieces) > 1 else ''}{_encode(_DAMAGE)}: "
        pieces.append(pc.if_else(reasons.is_valid(), pc.binary_join_element_wise(head, _texts(reasons), ""), ""))
    return pc.binary_join_element_wise(*pieces, f"}}{end}", "")


def _values(column: pa.Array) -> pa.Array:
    """string[n], the values as JSON."""
    if pa.types.is_map(column.type):
        return _objects(column)
    if pa.types.is_timestamp(column.type):
        return _times(column)
    if pa.types.is_string(column.type):
        return _texts(column)
    return pc.fill_null(column.cast(pa.string()), "null")


def _texts(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_join_element_wise('"', _escaped(column), '"', ""), "null")


def _escaped(column: pa.Array) -> pa.Array:
    """The texts as they stand between quotes; a pass for each kind of byte that is there and has to be escaped."""
    data, offsets = bytes_of(column)
    found = np.bincount(data[offsets[0] : offsets[-1]], minlength=256) > 0
    for byte, escape in _ESCAPES.items():
        if found[byte]:
            column = pc.replace_substring(column, chr(byte), escape)
    return column


def _times(column: pa.Array) -> pa.Array:
    """Of any year: a damaged time may lie outside of Python's calendar."""
    millis = pc.fill_null(column.cast(pa.int64()), 0).to_numpy() // 1000
    shown = pa.array(np.datetime_as_string(millis.view("M8[ms]")), pa.string())
    quoted = pc.binary_join_element_wise('"', shown, 'Z"', "")
    is_told = pa.array((millis >= _FIRST_MS) & (millis <= _LAST_MS))
    if not pc.all(is_told).as_py():  # ISO 8601 has years of four digits
        quoted = pc.if_else(is_told, quoted, pa.array(millis).cast(pa.string()))
    return pc.if_else(column.is_valid(), quoted, "null")


def _objects(column: pa.MapArray) -> pa.Array:
    """Each map as an object."""
    data, offsets = bytes_of(column.keys)
    is_plain = is_ascii(data[offsets[0] : offsets[-1]])
    if not is_plain and pc.any(pc.match_substring(column.keys, "\ufffd")).as_py():  # of no UTF-8: some may be equal now
        return pa.array([_encode(dict(pairs or ())) for pairs in column.to_pylist()], pa.string())
    fields = pc.binary_join_element_wise(_texts(column.keys), _texts(column.items), ": ")
    inside = pc.binary_join(pa.ListArray.from_arrays(column.offsets, fields), ", ")
    return pc.binary_join_element_wise("{", pc.fill_null(inside, ""), "}", "")


def _bodies(column: pa.Array) -> pa.Array:
    """string[n]: "body": … or "bodyBase64": … for each body."""
    try:
        return _text_bodies(column.cast(pa.string()))
    except pa.ArrowInvalid:
        is_text = are_texts(column)
    nothing = pa.scalar(b"", pa.binary())
    texts = _text_bodies(pc.if_else(pa.array(is_text), column, nothing).cast(pa.string()))
    coded = _base64(pc.if_else(pa.array(is_text), nothing, pc.fill_null(column, b"")))
    return pc.if_else(pa.array(is_text), texts, pc.binary_join_element_wise('"bodyBase64": "', coded, '"', ""))


def _text_bodies(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"body": ', _texts(column), "")


def _base64(column: pa.Array) -> pa.Array:
    """string[n] from binary[n] without nulls: all values are coded in one call, each on a multiple of three bytes."""
    data, offsets = bytes_of(column)
    sizes = np.diff(offsets)
    groups = -(-sizes // 3)
    starts = np.concatenate(([0], np.cumsum(groups)))
    room = np.zeros(int(starts[-1]) * 3, np.uint8)
    room[_spread(starts[:-1] * 3, sizes)] = data[offsets[0] : offsets[-1]]
    coded = np.frombuffer(base64.b64encode(room.tobytes()), np.uint8).copy()
    ends = starts[1:] * 4
    coded[ends[sizes % 3 != 0] - 1] = ord("=")
    coded[ends[sizes % 3 == 1] - 2] = ord("=")
    kept = (starts * 4).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(column), [None, pa.py_buffer(kept), pa.py_buffer(coded)])


def _spread(starts: Ints, sizes: Ints) -> Ints:
    """The places starts[i], starts[i] + 1 … of each of the sizes, one after the other."""
    before = np.cumsum(sizes) - sizes
    places: Ints = np.arange(int(sizes.sum()), dtype=np.int64) + np.repeat(starts - before, sizes)
    return places
