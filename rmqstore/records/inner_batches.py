"""Inner batches: several messages of one queue in one record, for topics with queue.type=BatchCQ.

Made of the messages of a put, found again among the records of the log, and taken apart for those who read.  Java:
SendMessageProcessor.sendBatchMessage, BatchConsumeQueue, MessageDecoder.decodeMessage.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.message_columns import Ints, take_rows
from rmqstore.formats.names import QueueKey
from rmqstore.records.vectors import Records

Rows = npt.NDArray[np.intp]
Units = npt.NDArray[np.void]


def rows_by_kind(batch: Records, is_batch_topic: Callable[[str], bool]) -> tuple[Rows, Rows]:
    """The records that belong to queues: those whose topic has plain queues, and those whose topic has batch queues.

    The topic decides, as in RocketMQ, and not what a record says of itself.
    """
    topics, numbers = batch.topics
    of_batches = [is_batch_topic(topic) for topic in topics]
    nothing = np.zeros(0, np.intp)
    if not any(of_batches):
        return np.flatnonzero(batch.queued), nothing
    if all(of_batches):
        return nothing, np.flatnonzero(batch.queued)
    whole = np.array(of_batches)[numbers]
    return np.flatnonzero(batch.queued & ~whole), np.flatnonzero(batch.queued & whole)


def units_of(batch: Records, rows: Rows, codes: Ints | None = None) -> Iterator[tuple[QueueKey, Units]]:
    """The units of n ≥ 1 records of batch queues, BATCH_QUEUE_ENTRY.dtype, queue by queue, each in the order of the
    log; `codes` are all records' tags codes, 0 without.
    """
    units = np.zeros(len(rows), BATCH_QUEUE_ENTRY.dtype)
    units["physical_offset"], units["size"] = batch.offsets[rows], batch.sizes[rows]
    units["tags_code"], units["store_timestamp"] = 0 if codes is None else codes[rows], batch.store_ms[rows]
    units["base_queue_offset"], units["message_count"] = batch.numbers.bases[rows], batch.numbers.counts[rows]
    units["compacted_offset"] = -1
    topics, topic_numbers = batch.topics
    pairs, places = distinct_queues(topic_numbers[rows], batch.queue_ids[rows])
    order = np.argsort(places, kind="stable")
    cuts = np.flatnonzero(np.diff(places[order])) + 1
    for (topic, queue_id), group in zip(pairs, np.split(order, cuts), strict=True):
        yield (topics[topic], queue_id), take_rows(units, group)


# More cells than this for each row are not worth a table.
_CELLS_PER_ROW, _CELLS_MIN = 16, 1024


def distinct_queues(topic_numbers: Ints, queue_ids: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """The pairs of topic number and queue id that occur in n ≥ 1 rows, ascending, and which of them each row has:
    int64[n].  Topic numbers are at least 0; queue ids fit 32 bits, and may come from a hostile record.
    """
    span = int(queue_ids.max()) + 1
    cells = span * (int(topic_numbers.max()) + 1)
    if int(queue_ids.min()) < 0 or cells > _CELLS_PER_ROW * len(queue_ids) + _CELLS_MIN:
        pairs, numbers = np.unique(topic_numbers << 32 | (queue_ids + 2**31), return_inverse=True)
        return [(pair >> 32, (pair & 0xFFFFFFFF) - 2**31) for pair in pairs.tolist()], numbers.astype(np.int64)
    keys = topic_numbers * span + queue_ids
    present = np.flatnonzero(np.bincount(keys, minlength=cells))
    places = np.zeros(cells, np.int64)
    places[present] = np.arange(len(present))
    return [divmod(key, span) for key in present.tolist()], places[keys]
