"""Messages that stand in several queues: light queues (LMQ), whose names INNER_MULTI_DISPATCH lists.

A put gives the message the next queue offset of each in INNER_MULTI_QUEUE_OFFSET; dispatch writes an entry of the same
record to each.  Java: LmqDispatch, MultiDispatchUtils and ConsumeQueue.multiDispatchLmqQueue of 5.3.x.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import names
from rmqstore.formats.message_columns import Ints, Located
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, parse_properties
from rmqstore.formats.property_columns import split_pieces
from rmqstore.records.batch import FEW_COUNT, RecordBatch
from rmqstore.records.gather import binary_array, bytes_of
from rmqstore.records.queue_runs import QueueRun, are_after_deletion, usable_rows
from rmqstore.records.stretch import Stretch

SEPARATOR = ","
LIGHT_QUEUE_ID = 0
_NAMES = tuple(name.encode() for name in (MULTI_DISPATCH, MULTI_QUEUE_OFFSET))
_HAS_LIST = re.compile(_NAMES[1])
_OFFSET = re.compile(r"[0-9]{1,18}")


class _Listed(NamedTuple):
    """Names that records list: the record of each, int64[n], the name, binary[n], and the queue offset, int64[n]."""

    rows: Ints
    queues: pa.Array
    offsets: Ints


class _Split(NamedTuple):
    """The pieces between the commas of n texts, binary[m]; of each text where they begin and how many they are,
    without empty ones at its end, int64[n] twice.
    """

    pieces: pa.Array
    firsts: Ints
    counts: Ints


def may_dispatch(topic: str) -> bool:
    """Whether messages of a topic can be in further queues (Java: MixAll.topicAllowsLMQ)."""
    return not topic.startswith((names.RETRY_PREFIX, names.SYSTEM_PREFIX)) and topic != names.SCHEDULE_TOPIC


def split_names(text: str) -> list[str]:
    """The names of a list, as Java splits it: empty ones at the end are none."""
    pieces = text.split(SEPARATOR)
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def light_places(properties: Mapping[str, str], queue_id: int) -> Iterator[tuple[QueueKey, int]]:
    """The further queues that a record with these properties and this queue id stands in, with its queue offsets there.

    Left out are names that can be no directory, and those without a number; all, if there are more offsets than names.
    Java 5.3.x writes empty pieces for names that are not light, and splitting drops those at the end.
    """
    listed = split_names(properties.get(MULTI_DISPATCH, "").strip() and properties[MULTI_DISPATCH])
    offsets = split_names(properties.get(MULTI_QUEUE_OFFSET, ""))
    if len(listed) < len(offsets):
        return
    for name, text in zip(listed, offsets, strict=False):
        if _OFFSET.fullmatch(text) and names.is_directory_name(name):
            yield (name, LIGHT_QUEUE_ID if is_light_queue(name) else queue_id), int(text)


def in_log_order(batch: RecordBatch) -> Iterable[RecordBatch]:
    """The batch; record by record if some were put to a light queue's own topic: others may list that queue, and its
    entries follow each other as the records do.
    """
    if not any(map(is_light_queue, batch.topics[0])):
        return (batch,)
    return (batch.take(np.array([row])) for row in range(len(batch)))


def names_light_queues(batch: RecordBatch) -> bool:
    """Whether a record of the batch stands in a light queue besides."""
    return _may_have_lists(batch.located, 0, -1) and any(is_light_queue(topic) for topic, _ in light_entries(batch))


def _may_have_lists(located: Located, first: int, last: int) -> bool:
    """Whether the name of a list of queues stands anywhere from one record to another; the page may be a whole file."""
    end = int(located.starts[last] + located.total_size[last])
    return _HAS_LIST.search(memoryview(located.page[int(located.starts[first]) : end])) is not None


def light_entries(batch: RecordBatch) -> dict[QueueKey, tuple[Ints, Ints]]:
    """The further queues that records of a batch belong to: rows of the batch and queue offsets, int64[n] twice.

    Left out are a record's own queue, and what `light_places` leaves out.
    """
    found: defaultdict[QueueKey, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    topics, numbers = batch.topics
    for row in _rows_with_lists(batch):
        own = topics[int(numbers[row])], int(batch.queue_ids[row])
        for key, queue_offset in light_places(parse_properties(_block(batch, row)), own[1]):
            if key == own:
                continue  # it has its place there
            rows, offsets = found[key]
            if not rows or rows[-1] != row:
                rows.append(row)
                offsets.append(queue_offset)
    return {key: (np.array(rows, np.int64), np.array(offsets, np.int64)) for key, (rows, offsets) in found.items()}


def light_runs(stretch: Stretch, *, with_wrong_crc: bool = False) -> Iterator[QueueRun]:
    """The light queues in which records of a stretch stand besides, as far as records say it: those that `light_places`
    tells of each, in vectors.
    """
    usable = usable_rows(stretch, with_wrong_crc=with_wrong_crc)
    usable = usable[stretch.offsets[usable] >= stretch.light_from]
    if not len(usable) or not _may_have_lists(stretch.located, usable[0], usable[-1]):
        return
    part = stretch.located.take(usable)
    owners, listed, offsets = _listed_places(part)
    topics = binary_array(part.page, part.topic_at, part.topic_size).take(pa.array(owners))
    codes, of = listed.dictionary_encode(), topics.dictionary_encode()
    queues = [name.decode("utf-8", "replace") for name in codes.dictionary.to_pylist()]
    are_light = np.array([names.is_light_queue(queue) and names.is_directory_name(queue) for queue in queues], bool)
    may = np.array([may_dispatch(topic.decode("utf-8", "replace")) for topic in of.dictionary.to_pylist()], bool)
    code, own_ids = np.asarray(codes.indices, np.int64), part.head("queue_id")[owners]
    is_own = np.asarray(pc.equal(topics, listed), bool) & (own_ids == LIGHT_QUEUE_ID)
    places = np.flatnonzero(are_light[code] & may[np.asarray(of.indices, np.int64)] & ~is_own)
    order = np.argsort(code[places], kind="stable")
    cuts = np.flatnonzero(np.diff(code[places][order])) + 1
    for of_queue in np.split(places[order], cuts) if len(places) else ():
        key = queues[code[of_queue[0]]], LIGHT_QUEUE_ID
        rows, firsts = np.unique(owners[of_queue], return_index=True)  # a record has one place in each
        kept = are_after_deletion(stretch, key, usable[rows])
        numbers, nothing = offsets[of_queue[firsts[kept]]], np.zeros(int(kept.sum()), bool)
        if len(numbers):
            yield QueueRun(key, usable[rows[kept]], numbers, np.ones_like(numbers), nothing, nothing)


def _listed_places(part: Located) -> _Listed:
    """The names that records list and that have a queue offset."""
    pieces = split_pieces(*bytes_of(binary_array(part.page, part.properties_at, part.properties_size)))
    columns = pieces.find_all(_NAMES)
    texts = [binary_array(pieces.data, columns[name][0], np.maximum(columns[name][1], 0)) for name in _NAMES]
    texts[0] = pc.if_else(pc.match_substring_regex(texts[0], r"^\s*$"), b"", texts[0])
    listed, given = map(_split, texts)
    counts = np.where(listed.counts >= given.counts, given.counts, 0)
    owners = np.repeat(np.arange(len(counts)), counts)
    steps = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = given.pieces.take(pa.array(given.firsts[owners] + steps))
    queues = listed.pieces.take(pa.array(listed.firsts[owners] + steps))
    is_number = pc.match_substring_regex(numbers, "^[0-9]{1,18}$")
    offsets = np.asarray(numbers.filter(is_number).cast(pa.string()).cast(pa.int64()), np.int64)
    return _Listed(owners[np.asarray(is_number, bool)], queues.filter(is_number), offsets)


def _split(texts: pa.Array) -> _Split:
    lists = pc.split_pattern(texts, b",")
    edges = np.asarray(lists.offsets, np.int64)
    filled = np.flatnonzero(np.asarray(pc.binary_length(lists.values), np.int64))
    ends = np.concatenate(([0], filled + 1))[np.searchsorted(filled, edges[1:])]
    return _Split(lists.values, edges[:-1], np.maximum(ends - edges[:-1], 0))


def _rows_with_lists(batch: RecordBatch) -> list[int]:
    """The records that belong to queues and have both lists."""
    if len(batch) <= FEW_COUNT:
        blocks = [_block(batch, row) for row in range(len(batch))]
        has_both = np.array([all(name in block for name in _NAMES) for block in blocks])
    else:
        columns = batch.pieces.find_all(_NAMES)
        has_both = (columns[_NAMES[0]][1] > 0) & (columns[_NAMES[1]][1] > 0)
    if not has_both.any():
        return []
    topics, numbers = batch.topics
    may = np.array([may_dispatch(topic) for topic in topics])
    rows: list[int] = np.flatnonzero(has_both & batch.queued & may[numbers]).tolist()
    return rows


def _block(batch: RecordBatch, row: int) -> bytes:
    """The properties of one record."""
    at = int(batch.located.properties_at[row])
    return batch.located.page[at : at + int(batch.located.properties_size[row])].tobytes()
