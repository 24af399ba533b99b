"""The columns of an Arrow table as messages, checked: the first half of `columns.record_blocks`.

All mistakes of a table are found at once: those of its columns and types, then those of its rows.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.core.arguments import shown
from rmqstore.engine.log.encode.binary_columns import EMPTY, KEY_SEPARATOR, marked_rows, nulls, sizes_of
from rmqstore.engine.log.encode.property_values import OtherColumns, Refuse, other_properties, rows_with
from rmqstore.engine.log.encode.record_frame import PROPERTIES_SIZE_MAX, RecordForm
from rmqstore.errors import Rejected, WrongRows
from rmqstore.formats import message as layouts
from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.delay_levels import clamped
from rmqstore.formats.host import SIZE_V6, encode_host
from rmqstore.formats.inner_batch import is_misused
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.record_crc import PROPERTY_CRC_SIZE

_PAIR = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


_INTEGERS = {
    "queueId": pa.int32(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
}
REQUIRED = ("topic", "body")
NAMES = (*REQUIRED, "tags", "keys", "properties", *_INTEGERS, "bornTimestamp", "bornHost", "delayLevel")

# Of the default levels.
DELAY_LEVEL_COUNT = 18
_QUEUE_MASK = 2**32 - 1
# So many topics that may not be stored are told by name.
_NAMED_TOPICS = 8
_IS_BATCH = f"sysFlag 0x80 or {properties.INNER_COUNT} says that it is a batch, but a row is one message"


@dataclass(slots=True)
class ColumnValues:
    """n messages as columns; arrays are binary[n] without nulls unless said otherwise.

    `topics` are the distinct names, `topic_numbers` int64[n] say which a row has.  `tags` and `keys` are None where no
    row has any; null: that row has none.  `more` are the other properties, laid out as in a record; None for none.
    `more_names` are the names that the table gives them.
    `numbers` are the columns of integers that the table has.  `born_hosts` are the distinct hosts as in a record, and
    `host_numbers` int64[n] which a row has; None: all are the store's.  Sizes are int64[n], of records with everything.
    """

    count: int
    topics: list[str]
    topic_numbers: Ints
    body: pa.Array
    tags: pa.Array | None
    keys: pa.Array | None
    more: pa.Array | None
    numbers: dict[str, npt.NDArray[np.signedinteger]]
    born_hosts: list[bytes]
    host_numbers: Ints | None
    more_names: frozenset[bytes] = frozenset()
    properties_sizes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    record_sizes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


def read_columns(
    batch: pa.RecordBatch, form: RecordForm, first_row: int = 0, level_count: int = DELAY_LEVEL_COUNT
) -> ColumnValues:
    """The messages of a batch.  Raises Rejected: for all wrong columns in one, else for all wrong rows in one.

    Rows are named by their numbers, the first being `first_row`.  Those with a delay level come as they wait, the level
    being `level_count` at most.
    """
    arrays = _typed_columns(batch)
    count = batch.num_rows
    wrong: dict[str, list[int]] = {}

    def refuse(reason: str, rows: Mask) -> None:
        if rows.any():
            wrong[reason] = (np.flatnonzero(rows) + first_row).tolist()

    levels = _levels_of(arrays, count, level_count, refuse)
    values = _values_of(arrays, count, levels > 0, refuse)
    if levels.any():
        _delay(values, levels, level_count, (form, refuse))
    measure(values, form, refuse)
    if wrong:
        raise WrongRows(wrong)
    return values


def _typed_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns by name, each in the type that the rest works on."""
    mistakes = [f"{name}: no such column" for name in batch.schema.names if name not in NAMES]
    mistakes += [f"{name}: missing" for name in REQUIRED if name not in batch.schema.names]
    mistakes += [f"{name}: twice" for name in NAMES if batch.schema.names.count(name) > 1]
    arrays = {}
    for name in NAMES if not mistakes else set(NAMES) & set(batch.schema.names):
        if batch.schema.names.count(name) != 1:
            continue
        column = batch.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        wanted = _wanted_type(name, kind)
        if wanted is None:
            mistakes.append(f"{name}: {column.type}, expected {_WORDS.get(name, 'integers')}")
            continue
        try:
            if name == "topic" and kind is not column.type and _is_compact(column):
                arrays[name] = column.cast(pa.dictionary(pa.int32(), wanted))
                continue
            plain = column if kind is column.type else decoded(column)
            arrays[name] = plain if plain.type == wanted else _cast(plain, wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            mistakes.append(f"{name}: {str(error).splitlines()[0]}")
    if mistakes:
        raise Rejected(f"{'; '.join(sorted(mistakes))}; the columns of a message are {', '.join(NAMES)}")
    return arrays


def decoded(column: pa.DictionaryArray) -> pa.Array:
    """The values of a dictionary's numbers; Arrow itself does not decode one of views."""
    kind = column.type.value_type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        plain = pa.string() if pa.types.is_string_view(kind) else pa.binary()
        return column.dictionary.cast(plain).take(column.indices)
    return column.dictionary_decode()


def _is_compact(column: pa.DictionaryArray) -> bool:
    """Whether a column can stay as it is: no two numbers of its dictionary mean the same and none means null, and it
    has no more entries than there are rows.
    """
    dictionary = column.dictionary
    if dictionary.null_count or len(dictionary) > len(column):
        return False
    return len(dictionary.unique()) == len(dictionary)


_WORDS = {
    "topic": "text",
    "body": "bytes or text",
    "tags": "text",
    "keys": "text with spaces between the keys, or a list of texts",
    "properties": "a map from text to text, or a list of structs of two texts",
    "bornTimestamp": "a timestamp, or milliseconds as integers",
    "bornHost": "text like 203.0.113.9:10911",
}


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if wanted == _PAIR and not pa.types.is_map(column.type):  # fields keep their names, whatever they are
        titles = [column.type.value_type.field(place).name for place in range(2)]
        return column.cast(pa.list_(pa.struct([(title, pa.binary()) for title in titles])))
    # Times finer than a millisecond are cut, numbers that do not fit are refused.
    return column.cast(wanted, safe=not pa.types.is_timestamp(wanted))


def _wanted_type(name: str, kind: pa.DataType) -> pa.DataType | None:
    """The type that a column of this name and type is cast to; None for a type that it may not have."""
    if name in _INTEGERS:
        return _INTEGERS[name] if pa.types.is_integer(kind) else None
    if name == "delayLevel":
        return pa.int32() if pa.types.is_integer(kind) else None
    if name == "bornTimestamp":
        if pa.types.is_timestamp(kind):
            return pa.timestamp("ms", kind.tz)
        return pa.int64() if pa.types.is_integer(kind) else None
    if name == "properties":
        return _PAIR if _is_map_of_text(kind) else None
    if name == "keys" and is_list_of_text(kind):
        return pa.list_(pa.binary())
    return pa.binary() if is_text(kind) or (name == "body" and _is_bytes(kind)) else None


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's for text, or a dictionary of it, which may not be one of views."""
    if pa.types.is_dictionary(kind):
        return bool(pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list_of_text(kind: pa.DataType) -> bool:
    """Whether a type is a list of text.  Views of lists are none: Arrow's cast of them makes broken lists."""
    return _is_list(kind) and is_text(kind.value_type)


def texts_of(column: pa.Array) -> pa.Array | None:
    """The column as binary[n], lists with spaces between their elements; None for other types than text."""
    if pa.types.is_dictionary(column.type):
        column = decoded(column)
    if is_list_of_text(column.type):
        return pc.binary_join(column.cast(pa.list_(pa.binary())), KEY_SEPARATOR)
    return column.cast(pa.binary()) if is_text(column.type) else None


def property_texts(column: pa.Array, name: str) -> pa.Array | None:
    """The property of a name in each row of a column of maps, the last of several: binary[n], null where there is none;
    None for types that `read_columns` refuses.
    """
    if not _is_map_of_text(column.type):
        return None
    try:
        column = _cast(column, _PAIR)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    pairs = pc.list_flatten(column)
    is_it = pc.equal(pc.struct_field(pairs, [0]), name.encode()).fill_null(False)
    places = np.flatnonzero(is_it.to_numpy(zero_copy_only=False))
    found = np.full(len(column), -1)
    found[pc.list_parent_indices(column).to_numpy(zero_copy_only=False)[places]] = places  # the last wins
    return pc.struct_field(pairs, [1]).take(pa.array(found, mask=found < 0))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def _is_map_of_text(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return is_text(kind.key_type) and is_text(kind.item_type)
    if not _is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    return pair.num_fields == 2 and all(is_text(pair.field(place).type) for place in range(2))


def _values_of(arrays: dict[str, pa.Array], count: int, delayed: Mask, refuse: Refuse) -> ColumnValues:
    topics = arrays["topic"].dictionary_encode()
    refuse("topic is null", nulls(arrays["topic"]))
    refuse("body is null", nulls(arrays["body"]))
    numbers = {}
    for name in (*_INTEGERS, "bornTimestamp"):
        if name in arrays:
            refuse(f"{name} is null", nulls(arrays[name]))
            column = arrays[name].cast(pa.int64()) if name == "bornTimestamp" else arrays[name]
            numbers[name] = column.fill_null(0).to_numpy(zero_copy_only=False)
    if "queueId" in numbers:
        refuse("queueId is negative", numbers["queueId"] < 0)
    tags, keys = present(arrays.get("tags")), present(_joined_keys(arrays.get("keys"), refuse))
    for name, column in (("tags", tags), ("keys", keys)):
        if column is not None:
            refuse(f"{name} hold a separator (0x01, 0x02)", marked_rows(column))
    hosts, host_numbers = _hosts_of(arrays.get("bornHost"), refuse)
    topic_names = [name.decode(errors="replace") for name in topics.dictionary.to_pylist()]
    topic_numbers = topics.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    scheduled = _rows_of_topic(topic_names, topic_numbers, names.SCHEDULE_TOPIC)
    given = arrays.get("properties")
    more, more_names = other_properties(given, OtherColumns(tags, keys, delayed, scheduled), refuse)
    says_count = np.zeros(count, bool)
    if properties.INNER_COUNT.encode() in more_names:
        says_count = rows_with(given, properties.INNER_COUNT)
    is_batch = numbers.get("sysFlag", np.zeros(count, np.int32)) & sys_flag.INNER_BATCH != 0
    refuse(_IS_BATCH, np.asarray(is_misused(is_batch, says_count, np.zeros(count, bool))))
    return ColumnValues(
        count=count,
        topics=topic_names,
        topic_numbers=topic_numbers,
        body=arrays["body"].fill_null(b"") if arrays["body"].null_count else arrays["body"],
        tags=tags,
        keys=keys,
        more=more,
        numbers=numbers,
        born_hosts=hosts,
        host_numbers=host_numbers,
        more_names=more_names,
    )


def _rows_of_topic(topics: list[str], numbers: Ints, sought: str) -> Mask:
    """Which rows have a topic."""
    is_sought: Mask = np.array([topic == sought for topic in topics] or [False])[numbers]
    return is_sought


def present(column: pa.Array | None) -> pa.Array | None:
    """The column with null for empty text, as neither is stored; None where nothing is left."""
    if column is None or column.null_count == len(column):
        return None
    sizes = sizes_of(column)
    if sizes.all():
        return column
    left: pa.Array = pc.if_else(pa.array(sizes > 0), column, pa.scalar(None, column.type))
    return None if left.null_count == len(left) else left


def _joined_keys(column: pa.Array | None, refuse: Refuse) -> pa.Array | None:
    """KEYS of each row: lists with spaces between their elements."""
    if column is None or not pa.types.is_list(column.type):
        return column
    joined = pc.binary_join(column, KEY_SEPARATOR)
    refuse("keys hold a null", nulls(joined) & ~nulls(column))
    return joined


def _hosts_of(column: pa.Array | None, refuse: Refuse) -> tuple[list[bytes], Ints | None]:
    """Distinct born hosts as bytes, and which each row has: -1 for the store's own."""
    if column is None or column.null_count == len(column):
        return [], None
    distinct = column.dictionary_encode()
    numbers = distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    hosts = []
    for number, text in enumerate(distinct.dictionary.to_pylist()):
        try:
            hosts.append(encode_host(text.decode()))
        except ValueError:
            hosts.append(bytes(SIZE_V6))
            refuse(f"bornHost {text.decode(errors='replace')!r} is no host", numbers == number)
    return hosts, numbers


def _levels_of(arrays: dict[str, pa.Array], count: int, level_count: int, refuse: Refuse) -> Ints:
    """The delay level of each row, 0 for none."""
    column = arrays.get("delayLevel")
    if column is None:
        return np.zeros(count, np.int64)
    levels: Ints = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    refuse("delayLevel is negative", levels < 0)
    if not level_count:
        refuse("delayLevel, but the store has no delay levels", levels > 0)
    return levels


def _delay(values: ColumnValues, levels: Ints, level_count: int, limits: tuple[RecordForm, Refuse]) -> None:
    """Has the rows with a level go to the schedule topic, as broker.delay.DelayLevels has single messages; those that
    do not wait (prepared, rolled back, or there already) only get the property.
    """
    form, refuse = limits
    _refuse_topics(values, form, refuse, levels > 0)
    kinds = values.numbers.get("sysFlag", np.zeros(1, np.int32)) & sys_flag.TRANSACTION_MASK
    is_there = _rows_of_topic(values.topics, values.topic_numbers, names.SCHEDULE_TOPIC)
    waits = (levels > 0) & ((kinds == sys_flag.NOT_TRANSACTIONAL) | (kinds == sys_flag.COMMIT)) & ~is_there
    levels = np.where(waits, clamped(levels, level_count), levels)
    queue_ids = values.numbers.get("queueId", np.zeros(values.count, np.int32)).astype(np.int64)
    # Each level in each queue is one text; -1 is no queue to come back to.
    reals, real_numbers = np.unique(
        np.where(waits, values.topic_numbers << 32 | queue_ids & _QUEUE_MASK, -1), return_inverse=True
    )
    pairs, numbers = np.unique(levels << 32 | real_numbers, return_inverse=True)
    texts = [_delay_properties(pair >> 32, values.topics, int(reals[pair & _QUEUE_MASK])) for pair in pairs.tolist()]
    own = pa.array(texts, pa.binary()).take(pa.array(numbers))
    values.more = own if values.more is None else pc.binary_join_element_wise(values.more, own, EMPTY)
    values.numbers["queueId"] = np.where(waits, levels - 1, queue_ids).astype(np.int32)
    values.topic_numbers = np.where(waits, len(values.topics), values.topic_numbers)
    values.topics = [*values.topics, names.SCHEDULE_TOPIC]


def _refuse_topics(values: ColumnValues, form: RecordForm, refuse: Refuse, among: Mask) -> None:
    """Refuses the rows `among` all whose topic may not be stored; the first few topics by name."""
    illegal = [number for number, topic in enumerate(values.topics) if form.topic_bytes(topic) is None]
    if not illegal:
        return
    for number in illegal[:_NAMED_TOPICS]:
        refuse(f"topic {shown(values.topics[number])} may not be stored", among & (values.topic_numbers == number))
    refuse("other topics may not be stored", among & np.isin(values.topic_numbers, illegal[_NAMED_TOPICS:]))


def _delay_properties(level: int, topics: list[str], real: int) -> bytes:
    """The bytes that follow the other properties of a row; nothing for level 0."""
    own = {properties.DELAY: str(level)} if level > 0 else {}
    if real >= 0:
        own |= {properties.REAL_TOPIC: topics[real >> 32], properties.REAL_QUEUE_ID: str(real & _QUEUE_MASK)}
    return properties.encode_properties(own)


def measure(values: ColumnValues, form: RecordForm, refuse: Refuse) -> None:
    """Fills in the sizes, and refuses rows beyond the limits of a record."""
    texts = [form.topic_bytes(topic) for topic in values.topics]
    _refuse_topics(values, form, refuse, np.ones(values.count, bool))
    topic_sizes = np.array([len(text or b"") for text in texts] or [0], np.int64)[values.topic_numbers]
    body_sizes = sizes_of(values.body)
    sizes = np.full(values.count, len(form.more_properties) + (PROPERTY_CRC_SIZE if form.property_crc else 0), np.int64)
    for name, column in ((properties.TAGS, values.tags), (properties.KEYS, values.keys)):
        if column is not None:
            whole = sizes_of(column) + len(name) + 2
            sizes += np.where(nulls(column), 0, whole) if column.null_count else whole
    if values.more is not None:
        sizes += sizes_of(values.more)
    refuse(f"body of more than {form.message_size_max} bytes", body_sizes > form.message_size_max)
    refuse(f"properties of more than {PROPERTIES_SIZE_MAX} bytes", sizes > PROPERTIES_SIZE_MAX)
    hosts = np.array([*map(len, values.born_hosts), len(form.store_host)], np.int64)  # the last: -1
    born_sizes = hosts[-1] if values.host_numbers is None else hosts[values.host_numbers]
    fixed = layouts.FRONT_V4.size - 2 * layouts.HOST_V4.size + layouts.PROPERTIES_SIZE.size + len(form.store_host)
    values.properties_sizes = sizes
    values.record_sizes = fixed + born_sizes + body_sizes + topic_sizes + sizes
    refuse(f"record of more than {form.record_size_max} bytes", values.record_sizes > form.record_size_max)
