"""Columns of messages as `Store.put_columns` takes them, from JSON objects, plain lines and tables.

The JSON objects are those that `rmqstore cat -o json-lines` prints.  They are decoded by the standard library, one call
a line; everything after that is done column by column.
"""

import base64
import binascii
import json
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.cli.putting.chunks import Mistake
from rmqstore.engine.log.encode.column_values import property_texts, texts_of
from rmqstore.formats.names import NOT_SENDABLE_TOPICS
from rmqstore.formats.properties import DELAY, KEYS, TAGS
from rmqstore.snapshot.columns import COLUMNS, near_names, property_of

BODY_BASE64 = "bodyBase64"
# Fields of a message that a new one takes over, and the types that they have here.
_TAKEN: dict[str, pa.DataType] = {
    "topic": pa.string(), "body": pa.binary(), "tags": pa.string(), "keys": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()), "flag": pa.int32(), "queueId": pa.int32(),
    "reconsumeTimes": pa.int32(), "delayLevel": pa.int32(), "bornHost": pa.string(),
    "bornTimestamp": pa.timestamp("ms", "UTC"),
}  # fmt: skip
# Those that say where the message was, and how it was stored there: another place has its own.
_PASSED_OVER = frozenset(COLUMNS) - frozenset(_TAKEN) - {"propertiesText"}
_NUMBERS = ("flag", "reconsumeTimes")
_WORDS = {
    pa.string(): "a text", pa.int32(): "a whole number of 32 bits", pa.binary(): "a text or bytes",
    _TAKEN["properties"]: "an object of texts", _TAKEN["bornTimestamp"]: "a time such as 2026-11-25T09:00:00.000Z, "
        "or ms",
}  # fmt: skip
_DAMAGED = "was damaged when it was read, and has no body to put; leave it out"
_FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError)


class MessageWishes(NamedTuple):
    """MessageWishes for all messages, whatever stands in the input; None: what stands there."""

    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    queue_id: int | None = None
    keeps_queues: bool = False


def of_bodies(bodies: Sequence[bytes], wishes: MessageWishes) -> pa.RecordBatch:
    """Messages of bodies.  Raises Mistake."""
    return _finished({"body": pa.array(bodies, pa.binary())}, len(bodies), wishes)


def of_json(lines: Sequence[bytes], wishes: MessageWishes) -> pa.RecordBatch:
    """Messages of JSON objects, one a line.  Raises Mistake."""
    try:
        rows = [_decode(line) for line in b"\n".join(lines).decode("utf-8").split("\n")]
    except UnicodeDecodeError as error:
        raise Mistake(f"is not UTF-8 ({error.reason}){_packed(lines[0])}") from None
    except json.JSONDecodeError as error:
        raise Mistake(f"is not a JSON object ({error.msg}, at character {error.colno}){_packed(lines[0])}") from None
    except ValueError as error:
        raise Mistake(f"is not a JSON object ({error})") from None
    except RecursionError:
        raise Mistake("is nested too deeply") from None
    if {*map(type, rows)} != {dict}:
        raise Mistake("is not a JSON object; with --lines each line is a body")
    names = set[str]().union(*rows)
    _require_known(names, (*_TAKEN, *_PASSED_OVER, BODY_BASE64))
    if "corruptReason" in names and any(row.get("corruptReason") for row in rows):
        raise Mistake(_DAMAGED)
    columns: dict[str, pa.Array] = {"body": _bodies(rows, names)}
    if single := [name for name in names if property_of(name) is not None]:
        _gather_properties(rows, single)
        names |= {"properties"}
    for name in names & _TAKEN.keys() - {"body"}:
        columns[name] = _column(name, [row.get(name) for row in rows])
    return _finished(columns, len(rows), wishes)


def of_table(batch: pa.RecordBatch, wishes: MessageWishes) -> pa.RecordBatch:
    """Messages of rows that have the names of a message's columns.  Raises Mistake."""
    _require_known(batch.schema.names, (*_TAKEN, *_PASSED_OVER))
    if "body" not in batch.schema.names:
        raise Mistake("there is no column 'body'")
    if "corruptReason" in batch.schema.names and batch.column("corruptReason").null_count < batch.num_rows:
        raise Mistake(_DAMAGED)
    columns = {name: batch.column(name) for name in batch.schema.names if _is_taken(name)}
    _with_single_properties(columns, batch.num_rows)
    if columns["body"].null_count:
        raise Mistake("has no body")
    return _finished(columns, batch.num_rows, wishes)


def _is_taken(name: str) -> bool:
    return name in _TAKEN or property_of(name) is not None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON.  Of two members of one name one would be lost."""
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice[:100]!r} twice")
    return found


_decode = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object).decode


def _packed(line: bytes) -> str:
    """A hint where the bytes look like those of another kind of file."""
    if line.startswith(b"\x1f\x8b"):
        return "; it looks like gzip: zcat FILE | rmqstore put …"
    if line.startswith(b"PAR1"):
        return "; it looks like Parquet: --format parquet"
    return ""


def _require_known(names: Iterable[str], known: Sequence[str]) -> None:
    for name in sorted({name for name in names if property_of(name) is None} - {*known}):
        near = near_names(name, (*_TAKEN, BODY_BASE64))
        hint = f"did you mean {', '.join(near)}?" if near else f"the fields are {', '.join(sorted(_TAKEN))}, bodyBase64"
        raise Mistake(f"no field {name[:100]!r}; {hint}")


def _bodies(rows: Sequence[dict[str, Any]], names: set[str]) -> pa.Array:
    texts = [row.get("body") for row in rows]
    if BODY_BASE64 in names:
        for place, row in enumerate(rows):
            if row.get(BODY_BASE64) is not None:
                texts[place] = _from_base64(row)
        if any(type(text) is bytes for text in texts):
            texts = [text.encode() if type(text) is str else text for text in texts]
    if None in texts:
        raise Mistake("has no body")
    return _array("body", texts, pa.binary())


def _from_base64(row: dict[str, Any]) -> bytes:
    if row.get("body") is not None:
        raise Mistake("has both body and bodyBase64")
    try:
        return base64.b64decode(row[BODY_BASE64], validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise Mistake("bodyBase64 is not base64") from None


def _array(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_integer(kind) and not {*map(type, values)} <= {int, type(None)}:  # True would be 1
            raise TypeError
        return pa.array(values, kind)
    except _FAILURES:
        raise Mistake(f"{name}: expected {_WORDS[_TAKEN[name]]}") from None


def _column(name: str, values: list[Any]) -> pa.Array:
    """Values of JSON as a column, null where there is none."""
    kind = _TAKEN[name]
    if name == "keys":
        values = [_joined(each) if type(each) is list else each for each in values]
    if name == "properties":
        return _properties(values)
    if name != "bornTimestamp":
        return _array(name, values, kind)
    if any(value is not None and type(value) not in (str, int) for value in values):
        raise Mistake(f"{name}: expected {_WORDS[kind]}")
    texts = pa.array([value if type(value) is str else None for value in values], pa.string())
    try:
        numbers = pa.array([value if type(value) is int else None for value in values], pa.int64())
        return pc.coalesce(texts.cast(kind), numbers.cast(kind))
    except _FAILURES:
        raise Mistake(f"{name}: expected {_WORDS[kind]}") from None


def _gather_properties(rows: Sequence[dict[str, Any]], single: Sequence[str]) -> None:
    """Puts properties that have fields of their own where the others are."""
    for row in rows:
        found = {property_of(name): row[name] for name in single if name in row}
        if found and row.get("properties") is not None:
            raise Mistake(f"has both properties and property.{next(iter(found))}")
        if found:
            row["properties"] = found


def _joined(keys: list[Any]) -> Any:
    return " ".join(keys) if all(type(key) is str for key in keys) else keys


def _properties(values: Sequence[Any]) -> pa.Array:
    name = "properties"
    if not {*map(type, values)} <= {dict, type(None)}:
        raise Mistake(f"{name}: expected {_WORDS[_TAKEN[name]]}")
    each = [value or {} for value in values]
    sizes = pa.array([0, *map(len, each)], pa.int32())
    titles = _array(name, list(chain.from_iterable(each)), pa.string())
    texts = _array(name, list(chain.from_iterable(one.values() for one in each)), pa.string())
    return pa.MapArray.from_arrays(pc.cumulative_sum(sizes), titles, texts)


def _with_single_properties(columns: dict[str, pa.Array], count: int) -> None:
    """Makes one column of `property.NAME`, `property.OTHER`, …"""
    single = {name: columns.pop(name) for name in [*columns] if property_of(name) is not None}
    if not single:
        return
    if "properties" in columns:
        raise Mistake(f"has both properties and {next(iter(single))}")
    try:
        whole = pa.concat_arrays([column.cast(pa.string()) for column in single.values()])
    except _FAILURES:
        raise Mistake(f"property.NAME: expected {_WORDS[pa.string()]}") from None
    by_row = np.arange(len(single) * count).reshape(len(single), count).T.ravel()
    titles = pa.array([property_of(name) for name in single] * count, pa.string())
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * np.int32(len(single)))
    columns["properties"] = pa.MapArray.from_arrays(offsets, titles, whole.take(pa.array(by_row)))


def _require_said_once(columns: dict[str, pa.Array]) -> None:
    """Tags, keys and the delay level are properties as well: of two that differ one would be lost."""
    for name, own in (("tags", TAGS), ("keys", KEYS), ("delayLevel", DELAY)):
        if name not in columns or "properties" not in columns:
            continue
        outside, inside = _said(columns[name]), property_texts(columns["properties"], own)
        if outside is not None and inside is not None and pc.any(pc.not_equal(inside, outside)).as_py():
            raise Mistake(f"has both {name} and the property {own}, and they differ")


def _said(column: pa.Array) -> pa.Array | None:
    """The column as binary[n]; None for types that no message has."""
    plain = column.dictionary_decode() if _is_encoded_number(column.type) else column
    return plain.cast(pa.string()).cast(pa.binary()) if pa.types.is_integer(plain.type) else texts_of(plain)


def _is_encoded_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and pa.types.is_integer(kind.value_type))


def _require_sendable(topics: pa.Array) -> None:
    """As brokers refuse them: the store reads other things out of the messages of these topics."""
    for topic in pc.unique(topics).to_pylist():
        if topic in NOT_SENDABLE_TOPICS:
            raise Mistake(f"the topic {topic} is RocketMQ's own, and brokers take no messages for it; name another")


def _finished(columns: dict[str, pa.Array], count: int, wishes: MessageWishes) -> pa.RecordBatch:
    """The columns with what is wished, and without what is absent."""
    _require_said_once(columns)
    for name, wished in (("topic", wishes.topic), ("tags", wishes.tags), ("keys", wishes.keys)):
        if wished is not None:
            columns[name] = pa.repeat(pa.scalar(wished, pa.string()), count)
    if "topic" not in columns or columns["topic"].null_count:
        raise Mistake("has no topic; --topic names one for all")
    _require_sendable(columns["topic"])
    if wishes.queue_id is not None:
        columns["queueId"] = pa.repeat(pa.scalar(wishes.queue_id, pa.int32()), count)
    elif not wishes.keeps_queues:
        columns.pop("queueId", None)
    elif count and ("queueId" not in columns or columns["queueId"].null_count):
        raise Mistake("has no queueId, which --keep-queues asks for")
    for name in _NUMBERS:
        if name in columns and columns[name].null_count:
            columns[name] = columns[name].fill_null(0)
    born = columns.get("bornTimestamp")
    if born is not None and born.null_count:
        now = pa.scalar(time.time_ns() // 1_000_000, pa.int64())
        is_time = pa.types.is_timestamp(born.type)
        columns["bornTimestamp"] = born.fill_null(
            now.cast(pa.timestamp("ms", "UTC")).cast(born.type) if is_time else now
        )
    return pa.RecordBatch.from_pydict(columns)
