"""Messages as JSON objects: the fields of a batch are written column by column, and only bodies row by row."""

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.cli.output import escaped
from rmqstore.records.gather import bytes_of, is_ascii

_encode = json.JSONEncoder(ensure_ascii=False).encode
# Bytes that no JSON string holds as they are.
_ESCAPED = np.isin(np.arange(256), [*range(32), ord('"'), ord("\\")])
_AT_THE_END = ("body", "corruptReason")


def json_objects(batch: pa.RecordBatch) -> list[str]:
    """The rows of a batch, each as json.dumps(…, ensure_ascii=False) writes an object of its columns in order, with
    what could steer a terminal escaped.

    Properties are an object, times ISO 8601 with milliseconds and Z.  At the end stand `body`, as "bodyBase64" where
    it is not UTF-8, and `corruptReason` where there is one; the batch must have these two columns.
    """
    parts: list[pa.Array | str] = []
    for name in batch.schema.names:
        if name not in _AT_THE_END:
            parts += [f"{_encode(name)}: ", _values(batch.column(name)), ", "]
    heads = pc.binary_join_element_wise("{", *parts, "").to_pylist() if batch.num_rows else []
    bodies = (_body_field(body) for body in batch.column("body").to_pylist())
    reasons = batch.column("corruptReason")
    if reasons.null_count == batch.num_rows:
        return [escaped(f"{head}{body}}}") for head, body in zip(heads, bodies, strict=True)]
    ends = ["}" if reason is None else f', "corruptReason": {_encode(reason)}}}' for reason in reasons.to_pylist()]
    return [escaped(f"{head}{body}{end}") for head, body, end in zip(heads, bodies, ends, strict=True)]


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
    data, offsets = bytes_of(column)
    if _ESCAPED[data[offsets[0] : offsets[-1]]].any():
        texts = ["null" if text is None else _encode(text) for text in column.to_pylist()]
        return pa.array(texts, pa.string())
    return pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), "null")


def _times(column: pa.Array) -> pa.Array:
    """Of any year: a damaged time may lie outside of Python's calendar."""
    millis = pc.fill_null(column.cast(pa.int64()), 0).to_numpy() // 1000
    shown = pa.array(np.datetime_as_string(millis.view("M8[ms]")), pa.string())
    times = pc.binary_join_element_wise('"', shown, 'Z"', "")
    return pc.if_else(column.is_valid(), times, "null")


def _objects(column: pa.MapArray) -> pa.Array:
    data, offsets = bytes_of(column.keys)
    if not is_ascii(data[offsets[0] : offsets[-1]]):  # names that are no UTF-8 may have become equal
        return pa.array([_encode(dict(pairs or ())) for pairs in column.to_pylist()], pa.string())
    fields = pc.binary_join_element_wise(_texts(column.keys), _texts(column.items), ": ")
    inside = pc.binary_join(pa.ListArray.from_arrays(column.offsets, fields), ", ")
    return pc.binary_join_element_wise("{", inside, "}", "")


def _body_field(body: bytes | None) -> str:
    if body is None:
        return '"body": null'
    try:
        return f'"body": {_encode(body.decode("utf-8"))}'
    except UnicodeDecodeError:
        return f'"bodyBase64": "{base64.b64encode(body).decode("ascii")}"'
