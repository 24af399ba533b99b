"""Messages that stand in several queues: light queues (LMQ), whose names INNER_MULTI_DISPATCH lists.

A put gives the message the next queue offset of each in INNER_MULTI_QUEUE_OFFSET; dispatch writes an entry of the same
record to each.  Java: LmqDispatch, MultiDispatchUtils and ConsumeQueue.multiDispatchLmqQueue of 5.3.x.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from rmqstore.formats import names
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, parse_properties
from rmqstore.records.batch import FEW_COUNT, RecordBatch

SEPARATOR = ","
LIGHT_QUEUE_ID = 0
_NAMES = tuple(name.encode() for name in (MULTI_DISPATCH, MULTI_QUEUE_OFFSET))
_OFFSET = re.compile(r"[0-9]{1,18}")


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
