"""Messages that go into several queues: light queues (LMQ), whose names INNER_MULTI_DISPATCH lists.

A put gives the message the next queue offset of each in INNER_MULTI_QUEUE_OFFSET; dispatch writes an entry of the same
record to each.  Java: LmqDispatch, MultiDispatchUtils and ConsumeQueue.multiDispatchLmqQueue of 5.3.x.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from rmqstore.formats import names
from rmqstore.formats.late_frame import LateFrame, late_frame_of
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, WAIT, parse_properties
from rmqstore.formats.record_frame import RecordForm
from rmqstore.log.record_batch import RecordBatch
from rmqstore.message import Message, PutStatus

QueueKey = tuple[str, int]
SEPARATOR = ","
LIGHT_QUEUE_ID = 0
_NAMES = tuple(name.encode() for name in (MULTI_DISPATCH, MULTI_QUEUE_OFFSET))
_OFFSET = re.compile(r"[0-9]{1,18}")
_FEW_COUNT = 48


def is_light_message(message: Message) -> bool:
    """Whether a put of the message gives it places in light queues as well."""
    return bool((message.properties.get(MULTI_DISPATCH) or "").strip()) and may_dispatch(message.topic)


def may_dispatch(topic: str) -> bool:
    """Whether messages of a topic can be in further queues (Java: MixAll.topicAllowsLMQ)."""
    return not topic.startswith((names.RETRY_PREFIX, names.SYSTEM_PREFIX)) and topic != names.SCHEDULE_TOPIC


def split_names(text: str) -> list[str]:
    """The names of a list, as Java splits it: empty ones at the end are none."""
    pieces = text.split(SEPARATOR)
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


class LightQueues:
    """Gives out the queue offsets of light queues, under the put lock: `next_offsets` is the store's table.

    At most `count_max` light queues; the message that needs one more is refused.  `_light` are those that there are.
    """

    def __init__(self, next_offsets: Mapping[QueueKey, int], count_max: int) -> None:
        self._next_offsets = next_offsets
        self._count_max = count_max
        self._light = {topic for topic, _ in next_offsets if _is_light(topic)}

    def frame_of(self, message: Message, form: RecordForm, now_ms: int) -> LateFrame | PutStatus:
        """The record of a message for light queues; `offsets_of` gives the value that it lacks.

        WAIT is not stored.  The whole record must be no larger than a body may be, as in Java.
        """
        kept = {name: value for name, value in message.properties.items() if name != WAIT}
        stored = replace(message, properties=kept, wait_store_ok=True)
        return late_frame_of(stored, MULTI_QUEUE_OFFSET, form, now_ms, form.message_size_max)

    def offsets_of(self, message: Message) -> str | PutStatus:
        """INNER_MULTI_QUEUE_OFFSET for a message that is appended next: empty pieces for names that are not light."""
        listed = split_names(message.properties[MULTI_DISPATCH])
        if len(self._light) + len(set(filter(_is_light, listed)) - self._light) > self._count_max:
            return PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        offsets = self._next_offsets
        pieces = [str(offsets.get((name, LIGHT_QUEUE_ID), 0)) if _is_light(name) else "" for name in listed]
        return SEPARATOR.join(pieces)

    def moved(self, message: Message) -> dict[QueueKey, int]:
        """The next offsets of its light queues, once the message is appended.  A name that is listed twice has one
        entry, so one number (in Java two, and a hole in the queue).
        """
        light = set(filter(_is_light, split_names(message.properties[MULTI_DISPATCH])))
        self._light |= light
        return {(name, LIGHT_QUEUE_ID): self._next_offsets.get((name, LIGHT_QUEUE_ID), 0) + 1 for name in light}


def _is_light(name: str) -> bool:
    return name.startswith(names.LMQ_PREFIX)


def further_entries(batch: RecordBatch) -> dict[QueueKey, tuple[Ints, Ints]]:
    """The further queues that records of a batch belong to: rows of the batch and queue offsets, int64[n] twice.

    Left out are a record's own queue, names that can be no directory, those without a number, and records with more
    offsets than names.
    """
    found: defaultdict[QueueKey, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    topics, numbers = batch.topics
    for row in _rows_with_lists(batch):
        own = topics[int(numbers[row])], int(batch.queue_ids[row])
        for key, queue_offset in _places(batch, row):
            if key == own:
                continue  # it has its place there
            rows, offsets = found[key]
            if not rows or rows[-1] != row:
                rows.append(row)
                offsets.append(queue_offset)
    return {key: (np.array(rows, np.int64), np.array(offsets, np.int64)) for key, (rows, offsets) in found.items()}


def _rows_with_lists(batch: RecordBatch) -> list[int]:
    """The records that belong to queues and have both lists."""
    if len(batch) <= _FEW_COUNT:
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


def _places(batch: RecordBatch, row: int) -> Iterator[tuple[QueueKey, int]]:
    values = parse_properties(_block(batch, row))
    listed = split_names(values.get(MULTI_DISPATCH, "").strip() and values[MULTI_DISPATCH])
    offsets = split_names(values.get(MULTI_QUEUE_OFFSET, ""))
    if len(listed) < len(offsets):
        return
    # Java 5.3.x writes empty pieces for names that are not light, and splitting drops those at the end.
    for name, text in zip(listed, offsets, strict=False):
        if _OFFSET.fullmatch(text) and names.is_directory_name(name):
            yield (name, LIGHT_QUEUE_ID if _is_light(name) else int(batch.queue_ids[row])), int(text)


def _block(batch: RecordBatch, row: int) -> bytes:
    """The properties of one record."""
    at = int(batch.located.properties_at[row])
    return batch.located.page[at : at + int(batch.located.properties_size[row])].tobytes()
