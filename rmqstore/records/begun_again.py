"""Queues that begin with number 0 again in another store's log: their topic was deleted there, and made again."""

from collections.abc import Callable, Iterable, Mapping
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
