"""Messages that are put together, made into records in vectors: the columns of `columns.encoded` from `Message`s.

The bytes are those of `record_frame.frame_of`, message by message.  What is told apart there for a single message is
told for all at once here: where one of them may need a closer look, the answer is None, and the caller looks at each.
Of 100 bytes with TAGS and KEYS a message costs 0.8 µs, and the vectors' calls 350 µs for any number.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rmqstore.core.message import Message
from rmqstore.engine.log.encode.binary_columns import data_of, marked_rows
from rmqstore.engine.log.encode.column_values import ColumnValues, measure, present
from rmqstore.engine.log.encode.columns import EncodedColumns, encoded
from rmqstore.engine.log.encode.record_frame import STORED_APART, TRANSIENT_PREFIX, RecordForm
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.host import encode_host
from rmqstore.formats.message_columns import Ints

# Bytes of bodies that are made into one array.
_BODIES_MAX = 64 * 1024 * 1024

_INTEGERS: dict[str, tuple[Callable[[Message], Any], type[np.signedinteger[Any]]]] = {
    "queueId": (attrgetter("queue_id"), np.int32),
    "flag": (attrgetter("flag"), np.int32),
    "sysFlag": (attrgetter("sys_flag"), np.int32),
    "reconsumeTimes": (attrgetter("reconsume_times"), np.int32),
    "preparedTransactionOffset": (attrgetter("prepared_transaction_offset"), np.int64),
}
_NOT_WAITING = f"{properties.WAIT}\x01false\x02"
_TEXT: set[type] = {str}
_TEXT_OR_NONE: set[type] = {str, type(None)}
_NUMBER_OR_NONE: set[type] = {int, type(None)}
_KEYS: set[type] = {str, tuple, list, type(None)}
_join_pair, _join_words = "\x01".join, properties.KEY_SEPARATOR.join

Apart = frozenset[str]


class MessageRows(NamedTuple):
    """Messages as records; `waits` says which of them ask to wait for the disk, None: all."""

    records: EncodedColumns
    waits: list[bool] | None


class _ToBeSeen(Exception):
    """A message that has to be looked at by itself."""


def message_rows(messages: Sequence[Message], form: RecordForm, now_ms: int, apart: Apart) -> MessageRows | None:
    """The records of messages; None where one of them may have to be refused, or has a property that decides where it
    goes: one of the names in `apart`, or one that is not simply stored.  `now_ms` as in `columns.record_blocks`.
    """
    try:
        return _rows_of(messages, form, now_ms, apart)
    except Exception:  # noqa: BLE001  _ToBeSeen; not a message; no value of a record; a field's own error
        return None


def _rows_of(messages: Sequence[Message], form: RecordForm, now_ms: int, apart: Apart) -> MessageRows:
    bodies = [*map(attrgetter("body"), messages)]
    _require({*map(type, bodies)} == {bytes} and sum(map(len, bodies)) <= _BODIES_MAX)
    topics = [*map(attrgetter("topic"), messages)]
    _require({*map(type, topics)} == _TEXT)
    places = {topic: place for place, topic in enumerate(dict.fromkeys(topics))}
    waits: list[bool] = [*map(attrgetter("wait_store_ok"), messages)]
    _require({*map(type, waits)} == {bool})
    more, names = _more_of(messages, waits, apart)
    hosts, host_numbers = _hosts_of(messages)
    values = ColumnValues(
        count=len(messages),
        topics=[*places],
        topic_numbers=np.fromiter(map(places.__getitem__, topics), np.int64, len(topics)),
        body=pa.array(bodies, pa.binary()),
        tags=_text_column([*map(attrgetter("tags"), messages)], _TEXT_OR_NONE),
        keys=_text_column(_keys_of(messages), _TEXT),
        more=more,
        numbers=_numbers_of(messages, now_ms),
        born_hosts=hosts,
        host_numbers=host_numbers,
        more_names=frozenset(name.encode() for name in names),
    )
    measure(values, form, lambda _, rows: _require(not rows.any()))
    return MessageRows(encoded(values, form, now_ms), None if all(waits) else waits)


def _require(is_plain: bool) -> None:
    if not is_plain:
        raise _ToBeSeen


def _numbers_of(messages: Sequence[Message], now_ms: int) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of integers that are not 0 throughout, and of the born times."""
    numbers: dict[str, np.ndarray[Any, Any]] = {}
    for name, (number_of, kind) in _INTEGERS.items():
        given = [*map(number_of, messages)]
        _require({*map(type, given)} == {int})
        if any(given):
            numbers[name] = _fitting(given, kind)
    _require(bool((numbers.get("queueId", np.zeros(1, np.int32)) >= 0).all()))
    _require(not (numbers.get("sysFlag", np.zeros(1, np.int32)) & sys_flag.INNER_BATCH).any())
    born = [*map(attrgetter("born_timestamp_ms"), messages)]
    kinds = {*map(type, born)}
    _require(kinds <= _NUMBER_OR_NONE)
    if int in kinds:
        numbers["bornTimestamp"] = _fitting([now_ms if each is None else each for each in born], np.int64)
    return numbers


def _fitting(given: Sequence[int], kind: type[np.signedinteger[Any]]) -> np.ndarray[Any, Any]:
    """Numbers in their field's size."""
    numbers = np.array(given, np.int64)
    limits = np.iinfo(kind)
    _require(bool(limits.min <= numbers.min() and numbers.max() <= limits.max))
    return numbers.astype(kind, copy=False)


def _text_column(texts: Sequence[str | None], kinds: set[type]) -> pa.Array | None:
    """Texts as UTF-8, null for none and for an empty one; None where there are none at all."""
    _require({*map(type, texts)} <= kinds)
    if not any(texts):
        return None
    column = present(_binary(texts))
    _require(column is None or not marked_rows(column).any())
    return column


def _binary(texts: Sequence[str | None]) -> pa.Array:
    column = pa.array(texts, pa.string())
    _require(isinstance(column, pa.Array))  # not cut, as more than 2 GiB are
    return column.view(pa.binary())


def _keys_of(messages: Sequence[Message]) -> list[str]:
    keys: list[Any] = [*map(attrgetter("keys"), messages)]
    kinds = {*map(type, keys)}
    _require(kinds <= _KEYS)
    return keys if kinds == _TEXT else [each if type(each) is str else _join_words(each or ()) for each in keys]


def _more_of(messages: Sequence[Message], waits: Sequence[bool], apart: Apart) -> tuple[pa.Array | None, set[str]]:
    """The other properties of each message as a record has them, None for none at all, and their names."""
    given = [*map(attrgetter("properties"), messages)]
    names: set[str] = set().union(*filter(None, given))
    _require(names.isdisjoint(STORED_APART) and names.isdisjoint(apart) and "" not in names)
    _require(not any(name.startswith(TRANSIENT_PREFIX) for name in names))
    is_waiting = all(waits)
    if not names and is_waiting:
        return None, names
    texts = [_block_of(each) if each else "" for each in given] if names else [""] * len(given)
    count = sum(map(len, filter(None, given)))
    if not is_waiting:
        texts = [text if waiting else _NOT_WAITING + text for text, waiting in zip(texts, waits, strict=True)]
        count += len(waits) - sum(waits)
    column = _binary(texts)
    data = data_of(column)
    # Each property has one of either mark by itself: more than that came from a name or a value.
    _require(np.count_nonzero(data == 1) == np.count_nonzero(data == 2) == count)
    return column, names


def _block_of(given: Any) -> str:
    return "\x02".join(map(_join_pair, given.items())) + "\x02"


def _hosts_of(messages: Sequence[Message]) -> tuple[list[bytes], Ints | None]:
    """Distinct born hosts as bytes, and which each message has: -1 for the store's own."""
    given = [*map(attrgetter("born_host"), messages)]
    kinds = {*map(type, given)}
    _require(kinds <= _TEXT_OR_NONE)
    if str not in kinds:
        return [], None
    places: dict[str | None, int] = {text: place for place, text in enumerate(_texts(given))}
    hosts = [encode_host(text) for text in places if text is not None]
    places[None] = -1
    return hosts, np.fromiter(map(places.__getitem__, given), np.int64, len(given))


def _texts(given: Iterable[str | None]) -> list[str]:
    return [text for text in dict.fromkeys(given) if text is not None]
