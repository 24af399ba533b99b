"""The further properties of rows, from a column of maps: the bytes that stand for them in each record."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.engine.log.encode.binary_columns import (
    EMPTY,
    NAME_END,
    VALUE_END,
    data_of,
    marked_rows,
    nulls,
    offsets_of,
    sizes_of,
)
from rmqstore.engine.log.encode.record_frame import TRANSIENT_PREFIX
from rmqstore.formats import properties
from rmqstore.formats.delay_levels import asked_level
from rmqstore.formats.message_columns import Ints, Mask

# What asks for a delivery at any time (timer messages of 5.x); a delay level wins over it.
TIMER_REQUESTS = frozenset(("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"))
# Properties that a message which waits for its delay level does not keep as they were.
REPLACED_BY_DELAY = TIMER_REQUESTS | {properties.DELAY, properties.REAL_TOPIC, properties.REAL_QUEUE_ID}
# Names of properties that a row may have in other columns, or that are not stored.
_OF_COLUMNS = frozenset(
    name.encode()
    for name in (properties.TAGS, properties.KEYS, properties.CRC32, properties.INNER_COUNT, *REPLACED_BY_DELAY)
)
_TRANSIENT = TRANSIENT_PREFIX.encode()
_OFFSET_MAX = 2**31 - 1

Refuse = Callable[[str, Mask], None]


@dataclass(frozen=True, slots=True)
class OtherColumns:
    """The values of rows in their other columns: TAGS and KEYS (None: no row has any; null: that row has none), and,
    bool[n] each, whether they wait for a delay level, and go to the schedule topic.
    """

    tags: pa.Array | None
    keys: pa.Array | None
    delayed: Mask
    scheduled: Mask


def other_properties(
    column: pa.Array | None, own: OtherColumns, refuse: Refuse
) -> tuple[pa.Array | None, frozenset[bytes]]:
    """The further properties of each row as a record has them, without those that are absent (a null value) or not
    stored, and their names.  What is not stored is not refused either.
    """
    if column is None or column.null_count == len(column):
        return None, frozenset()
    if (repeated := _repeated_properties(column)) is not None:
        return repeated
    pairs = pc.list_flatten(column)
    counts = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    row_firsts = np.concatenate(([0], np.cumsum(counts)))
    titles, values = pc.struct_field(pairs, [0]), pc.struct_field(pairs, [1])
    rows = np.repeat(np.arange(len(column)), counts)
    distinct = titles.dictionary_encode()
    dropped = nulls(values) | _dropped(distinct, rows, own)
    is_delay = _is_named(distinct, properties.DELAY)
    for reason, wrong in (
        ("a property has no name", nulls(titles) | (sizes_of(titles) == 0)),
        ("a property holds a separator (0x01, 0x02)", marked_rows(titles) | marked_rows(values)),
        ("DELAY of a message in the schedule topic is no number", _no_levels(values, is_delay & own.scheduled[rows])),
    ):
        refuse(reason, _any_of(rows, wrong & ~dropped, len(column)))
    if dropped.any():
        titles = pc.if_else(pa.array(~dropped), titles, pa.scalar(None, titles.type))
    texts = pc.binary_join_element_wise(titles, NAME_END, values, VALUE_END, EMPTY)
    if dropped.any():
        texts = texts.fill_null(b"")
    if not len(texts):
        return None, frozenset()
    offsets = offsets_of(texts)[row_firsts]
    more = pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(offsets), texts.buffers()[2]])
    return more, frozenset(distinct.dictionary.to_pylist())


def rows_with(column: pa.Array, name: str) -> Mask:
    """Which rows of a column of maps have a property of this name, with a value: bool[n]."""
    pairs = pc.list_flatten(column)
    named = pc.and_(pc.equal(pc.struct_field(pairs, [0]), name.encode()), pc.is_valid(pc.struct_field(pairs, [1])))
    rows = pc.list_parent_indices(column).filter(named)
    return np.isin(np.arange(len(column)), rows.to_numpy(zero_copy_only=False))


def _repeated_properties(column: pa.Array) -> tuple[pa.Array, frozenset[bytes]] | None:
    """`other_properties` where all rows have the same, and none that depends on the row's other columns or is wrong;
    None elsewhere.  A sixth of the price.
    """
    width = len(column[0]) if len(column) and not column.null_count else 0
    pairs = pc.list_flatten(column)
    titles, values = (pc.struct_field(pairs, [place]) for place in range(2))
    if not width or len(pairs) != width * len(column) or titles.null_count or values.null_count:
        return None
    if not (pc.list_value_length(column).to_numpy() == width).all():
        return None
    if not (_repeats(titles, width) and _repeats(values, width)):
        return None
    names, texts = titles[:width].to_pylist(), values[:width].to_pylist()
    if not all(names) or not _OF_COLUMNS.isdisjoint(names) or any(name.startswith(_TRANSIENT) for name in names):
        return None
    if any(mark in text for text in (*names, *texts) for mark in (properties.NAME_END, properties.VALUE_END)):
        return None
    row = b"".join(
        name + properties.NAME_END + text + properties.VALUE_END for name, text in zip(names, texts, strict=True)
    )
    if len(row) * len(column) > _OFFSET_MAX:
        return None
    data = np.tile(np.frombuffer(row, np.uint8), len(column))
    offsets = np.arange(len(column) + 1, dtype=np.int32) * np.int32(len(row))
    more = pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return more, frozenset(names)


def _repeats(column: pa.Array, width: int) -> bool:
    """Whether a binary array without nulls is its first `width` values over and over."""
    offsets = offsets_of(column)
    size = int(offsets[width] - offsets[0])
    if not (offsets[width:] - offsets[:-width] == size).all():
        return False
    data = data_of(column)[offsets[0] : offsets[-1]]
    return bool((data[size:] == data[: len(data) - size]).all())


def _any_of(rows: Ints, wrong: Mask, count: int) -> Mask:
    found = np.zeros(count, bool)
    found[rows[wrong]] = True
    return found


def _numbers_of(distinct: pa.DictionaryArray) -> Ints:
    """Which of the distinct names each piece has; -1 for none."""
    numbers: Ints = distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return numbers


def _is_named(distinct: pa.DictionaryArray, name: str) -> Mask:
    """Which pieces, of these names, have this one."""
    names = distinct.dictionary.to_pylist()
    named: Mask = _numbers_of(distinct) == (names.index(name.encode()) if name.encode() in names else len(names))
    return named


def _no_levels(values: pa.Array, asked: Mask) -> Mask:
    """Which of the pieces asked about have a value that is no number."""
    if not asked.any():
        return asked
    texts = values.filter(pa.array(asked)).drop_null().unique().to_pylist()
    wrong = [text for text in texts if asked_level(text.decode(errors="replace")) is None]
    found: Mask = pc.is_in(values, value_set=pa.array(wrong, pa.binary())).to_numpy(zero_copy_only=False)
    return asked & found


def _dropped(distinct: pa.DictionaryArray, rows: Ints, own: OtherColumns) -> Mask:
    """Which pieces, of these names, are not stored: those that never are, TAGS, KEYS and delay where the row has them
    in its own columns."""
    numbers = _numbers_of(distinct)
    dropped = np.zeros(len(numbers), bool)
    for number, name in enumerate(distinct.dictionary.to_pylist()):
        if name == properties.CRC32.encode() or name.startswith(_TRANSIENT):
            dropped |= numbers == number
        if name.decode(errors="replace") in REPLACED_BY_DELAY:
            dropped |= (numbers == number) & own.delayed[rows]
        for own_name, own_column in ((properties.TAGS, own.tags), (properties.KEYS, own.keys)):
            if name == own_name.encode() and own_column is not None:
                dropped |= (numbers == number) & ~nulls(own_column)[rows]
    return dropped
