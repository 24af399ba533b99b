"""Odd numbers of queues in another store's log: queues that begin again, as their topic was deleted there and made
again, and records that leave some numbers out, which are in no log that was read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import Rows, rows_by_kind
from rmqstore.records.queue_numbers import distinct_queues


class BegunAgain(NamedTuple):
    """A queue that has messages, and begins with number 0 again at `offset` of the log.

    `is_doubted`: its next record, which has come as well, does not go on from there.
    """

    key: QueueKey
    offset: int
    is_doubted: bool


class _Numbered(NamedTuple):
    """The records of a batch, and those of their rows that belong to queues, with the first number of each."""

    records: RecordBatch
    rows: Rows
    firsts: Ints


def begun_again(
    batches: Iterable[RecordBatch], is_batch_topic: Callable[[str], bool], next_offsets: Mapping[QueueKey, int]
) -> BegunAgain | None:
    """The first queue of the batches that begins again though `next_offsets`, or the batches, have messages of it."""
    numbered = [_numbered(records, is_batch_topic) for records in batches]
    if not any((each.firsts == 0).any() for each in numbered):
        return None
    met = set[QueueKey]()  # in the batches before
    for number, (records, rows, firsts) in enumerate(numbered):
        if not len(rows):
            continue
        topics, topic_numbers = records.topics
        pairs, places = distinct_queues(topic_numbers[rows], records.queue_ids[rows])
        keys = [(topics[topic], queue_id) for topic, queue_id in pairs]
        first_rows = np.unique(places, return_index=True)[1]
        for at in np.flatnonzero(firsts == 0).tolist():  # few: one for each queue
            row, key = int(rows[at]), keys[int(places[at])]
            if key in met or at > first_rows[places[at]] or next_offsets.get(key, 0) > 0:
                rest = _Numbered(records, rows[at + 1 :], firsts[at + 1 :])
                following = (_first_number(key, each) for each in (rest, *numbered[number + 1 :]))
                # 1, or the count of a batch: the topic may have queues of another kind than it had.
                expected = (None, 0, 1, int(records.numbers.counts[row]))
                found = next((each for each in following if each is not None), None)
                return BegunAgain(key, int(records.offsets[row]), found not in expected)
        met.update(keys)
    return None


def _numbered(records: RecordBatch, is_batch_topic: Callable[[str], bool]) -> _Numbered:
    plain, of_batches = rows_by_kind(records, is_batch_topic)
    rows = np.sort(np.concatenate((plain, of_batches)))
    firsts = np.where(np.isin(rows, of_batches), records.numbers.bases[rows], records.queue_offsets[rows])
    return _Numbered(records, rows, firsts)


def _first_number(key: QueueKey, numbered: _Numbered) -> int | None:
    """The number of the first record of a queue; None where there is none."""
    records, rows, firsts = numbered
    topics, topic_numbers = records.topics
    if key[0] not in topics:
        return None
    own = (topic_numbers[rows] == topics.index(key[0])) & (records.queue_ids[rows] == key[1])
    return int(firsts[own][0]) if own.any() else None


class QueueBreak(NamedTuple):
    """The record at `offset` of the log has the number `found` of its queue, where `expected` comes next."""

    key: QueueKey
    offset: int
    found: int
    expected: int


def queue_breaks(
    batches: Iterable[RecordBatch], is_batch_topic: Callable[[str], bool], next_offsets: Mapping[QueueKey, int]
) -> Iterator[QueueBreak]:
    """The records of the batches, in the log's order, that do not go on from the one before in their plain queue.

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
        breaks = np.flatnonzero(found != expected)
        for at in breaks[np.argsort(order[breaks])].tolist():
            offset = int(records.offsets[rows[order[at]]])
            yield QueueBreak(keys[int(queue[at])], offset, int(found[at]), int(expected[at]))
        later.update(zip(keys, (found[np.append(firsts[1:], len(rows)) - 1] + 1).tolist(), strict=True))
