"""Records whose number in their queue leaves some out: those between are in no log that was read."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from rmqstore.formats.names import QueueKey
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import rows_by_kind
from rmqstore.records.queue_numbers import distinct_queues


class QueueJump(NamedTuple):
    """The record at `offset` of the log has the number `found` of its queue, and `expected` comes next there."""

    key: QueueKey
    offset: int
    found: int
    expected: int


def first_jump(
    batches: Iterable[RecordBatch], is_batch_topic: Callable[[str], bool], next_offsets: Mapping[QueueKey, int]
) -> QueueJump | None:
    """The first record of the batches, in the log's order, that leaves numbers of its plain queue out.

    `next_offsets` says which number comes next in queues that have messages; others may begin with any.
    """
    later: dict[QueueKey, int] = {}  # the same after the batches before
    for records in batches:
        rows, _ = rows_by_kind(records, is_batch_topic)
        if not len(rows):
            continue
        topics, topic_numbers = records.topics
        pairs, places = distinct_queues(topic_numbers[rows], records.queue_ids[rows])
        keys = [(topics[topic], queue_id) for topic, queue_id in pairs]
        order = np.argsort(places, kind="stable")
        found, queue = records.queue_offsets[rows][order], places[order]
        expected = np.empty(len(rows), np.int64)
        expected[1:] = found[:-1] + 1
        firsts = np.flatnonzero(np.diff(queue, prepend=-1))
        known = (later.get(key) or next_offsets.get(key, 0) for key in keys)
        expected[firsts] = [
            following or number for following, number in zip(known, found[firsts].tolist(), strict=True)
        ]
        jumps = order[found > expected]
        if len(jumps):
            at = int(jumps.min())
            place = int(np.flatnonzero(order == at)[0])
            return QueueJump(
                keys[int(places[at])], int(records.offsets[rows[at]]), int(found[place]), int(expected[place])
            )
        later.update(zip(keys, (found[np.append(firsts[1:], len(rows)) - 1] + 1).tolist(), strict=True))
    return None
