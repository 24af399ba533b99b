"""The records of a stretch that belong to consume queues, queue by queue."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore.formats.inner_batch import inner_batch_rows, record_numbers
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import QueueKey
from rmqstore.records.dispatch_rules import is_dispatched
from rmqstore.records.gather import binary_array
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch


@dataclass(slots=True)
class QueueRun:
    """Records of one queue in one stretch of the log, in log order; vectors of n.

    `counts` are the messages that each has in a batch queue, `are_inner` says which hold several, one by one; both are
    what the record says, as if its queue were one of batches.
    """

    key: QueueKey
    rows: npt.NDArray[np.intp]
    queue_offsets: Ints
    counts: Ints
    are_inner: Mask
    are_lies: Mask  # bool[n]: an inner batch whose INNER_BASE is another


def runs_by_queue(stretch: Stretch, with_wrong_crc: bool = False) -> Iterator[QueueRun]:
    """The sound records of a stretch that belong to consume queues, grouped by topic and queue id.

    `with_wrong_crc` adds those whose CRC is wrong: they still say which message of which queue they are.
    """
    usable = usable_rows(stretch, with_wrong_crc=with_wrong_crc)
    if not len(usable):
        return
    part = stretch.located.take(usable)
    topics = binary_array(part.page, part.topic_at, part.topic_size).dictionary_encode()
    queue_ids = part.head("queue_id").astype(np.int64)
    queue_offsets = part.head("queue_offset").astype(np.int64)
    grouping = np.from_dlpack(topics.indices).astype(np.int64) << 32 | (queue_ids & 0xFFFFFFFF)
    order = np.argsort(grouping, kind="stable")
    cuts = np.flatnonzero(np.diff(grouping[order])) + 1
    numbers = record_numbers(part, own_bases=stretch.own_bases)
    are_inner = inner_batch_rows(part, numbers)
    are_lies = numbers.are_said & (numbers.bases != queue_offsets)
    counts = np.where(are_lies, 1, numbers.counts)
    for of_queue in np.split(order, cuts):
        topic = topics.dictionary[int(grouping[of_queue[0]] >> 32)].as_py().decode("utf-8", "replace")
        key = topic, int(queue_ids[of_queue[0]])
        rows = of_queue[are_after_deletion(stretch, key, usable[of_queue])]
        if len(rows):
            yield QueueRun(key, usable[rows], queue_offsets[rows], counts[rows], are_inner[rows], are_lies[rows])


def usable_rows(stretch: Stretch, *, with_wrong_crc: bool) -> npt.NDArray[np.intp]:
    """The records of a stretch that belong to consume queues, as `runs_by_queue` says."""
    known = stretch.reasons == Reason.SOUND
    if with_wrong_crc:
        known |= (stretch.reasons == Reason.BODY_CRC) | (stretch.reasons == Reason.PROPERTY_CRC)
    return np.flatnonzero(known & is_dispatched(stretch.located.flags))


def are_after_deletion(stretch: Stretch, key: QueueKey, rows: npt.NDArray[np.intp]) -> Mask:
    """Which records of a queue are in it yet."""
    begin = max(stretch.deleted_before.get(key[0], 0), stretch.deleted_before.get(key, 0))
    return np.asarray(stretch.offsets[rows] >= begin)
