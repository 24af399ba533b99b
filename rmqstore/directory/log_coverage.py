"""Whether the consume queues know all that one log file holds: entries laid end to end beside it.

For a recovery, which reads what no entry points at: it may belong to no queue.  A reader looks for the first place that
no entry knows, in all files at once: `Coverage` of `log_search.py`.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rmqstore.directory.deleted_topics import without_deleted
from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_ends import FIRST_MAX
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.files.disk import StoredFile
from rmqstore.formats import message, names
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_entry import is_pre_blank, is_valid
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import Rows, rows_by_kind
from rmqstore.records.read_batches import read_batches

# Records that no entry points at are read to see whether they belong to a queue at all; more of them than this and the
# file is read anyway.
_READ_SIZE_MAX = 64 * 1024 * 1024


def is_covered(store: StoreView, file: StoredFile) -> bool:
    """Whether every record of a log file that belongs to a consume queue has its entry.

    Records of a topic that was deleted are none: it is not in the broker's configuration and has no directory, or its
    present queue begins after them.
    """
    if file.size != store.log.file_size:
        return False
    end = file.start + file.size
    offsets, sizes = _entries(store, file.start, end)
    gap = store.log.framing(file.start).gap
    offsets, sizes = offsets - gap, sizes + gap
    if len(offsets) and (offsets[0] < file.start or (offsets[1:] < (offsets + sizes)[:-1]).any()):
        return False
    ends = np.concatenate(([file.start], offsets + sizes))
    begins = np.concatenate((offsets, [end]))
    gaps = np.flatnonzero(begins > ends)
    if int((begins - ends)[gaps].sum()) > _READ_SIZE_MAX and len(gaps) > 1:
        return False
    places = zip(ends[gaps].tolist(), begins[gaps].tolist(), strict=True)
    return all(_is_explained(store, low, high) for low, high in places)


def _entries(store: StoreView, start: int, end: int) -> tuple[Ints, Ints]:
    """Offset and size of every record in [start, end) that an entry points at, in the order of the log."""
    parts = []
    for queue in store.queues.values():
        if not queue.is_light:
            low, high = queue.slot_at(start), queue.slot_at(end)
            if low < high:
                entries = queue.read(low, high)
                parts.append(entries[is_valid(entries) & ~is_pre_blank(entries)])
    parts += [queue.read(queue.slot_at(start), queue.slot_at(end)) for queue in store.batch_queues.values()]
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.concatenate([part["physical_offset"].astype(np.int64) for part in parts])
    sizes = np.concatenate([part["size"].astype(np.int64) for part in parts])
    order = np.argsort(offsets, kind="stable")
    return offsets[order], sizes[order]


def _is_explained(store: StoreView, low: int, high: int) -> bool:
    """Whether [low, high) of the log, which no entry points at, holds nothing that belongs to a queue."""
    log = store.log
    if high - low > _READ_SIZE_MAX:
        return False
    for item in read_batches(log.read, low, high, log.file_size, framing=log.framing):
        if isinstance(item, RecordBatch):
            by_kind = queue_rows(store, item)
            for rows, queues in zip(by_kind, (store.queues, store.batch_queues), strict=True):
                newest = _newest_by_queue(item, rows)
                if not all(_belongs_nowhere(store, queues.get(key), key, record) for key, record in newest):
                    return False
        elif isinstance(item, message.Torn):
            return False
    return True


def queue_rows(store: StoreView, batch: RecordBatch) -> tuple[Rows, Rows]:
    """The records of a batch that belong to plain queues, and to batch queues; none that a topic had when it was
    deleted.
    """
    plain, whole = rows_by_kind(batch, store.is_batch_topic)
    return without_deleted(batch, plain, store.deleted_before), without_deleted(batch, whole, store.deleted_before)


def _newest_by_queue(batch: RecordBatch, rows: npt.NDArray[np.intp]) -> Iterator[tuple[QueueKey, tuple[int, int]]]:
    """Each queue that some records of a batch belong to, with place and queue offset of the last of them."""
    topics, numbers = batch.topics
    newest: dict[QueueKey, tuple[int, int]] = {}
    for row in rows.tolist():
        place = int(batch.offsets[row]), int(batch.queue_offsets[row])
        newest[topics[int(numbers[row])], int(batch.queue_ids[row])] = place
    return iter(newest.items())


def _belongs_nowhere(store: StoreView, queue: QueueView | None, key: QueueKey, record: tuple[int, int]) -> bool:
    offset, number = record
    if queue is not None and queue.end > queue.first:
        return offset < oldest_message(store.log, queue, number)
    return is_deleted_topic(store, key[0])


def is_deleted_topic(store: StoreView, topic: str) -> bool:
    """Whether a topic is neither in the broker's configuration, where there is one, nor among the queue files."""
    if store.known_topics is None or topic in store.known_topics or names.is_light_queue(topic):
        return False  # light queues are in no configuration
    return not store.has_files(topic)


def oldest_message(log: LogSpace, queue: QueueView, highest: int = 0) -> int:
    """Place in the log of a queue's very first message, where an entry leads there and its queue offset is 0, or one of
    those up to `highest`, which an older record has; else -1.

    What stands in front of it and says to be of that queue is of an older one: its topic was deleted and made again.
    RocketMQ counts on, to 1 as a rule, where that happens while the last message is put.
    """
    offset, number = first_entry(queue)
    if offset < 0 or number > max(highest, 0):
        return -1
    record = log.record_at(offset)
    if record is None or record.topics[0][0] != queue.topic or int(record.queue_ids[0]) != queue.queue_id:
        return -1
    return offset if int(record.queue_offsets[0]) == number else -1


def first_entry(queue: QueueView) -> tuple[int, int]:
    """The place that the first entry of a queue names which begins with its files, and its queue offset; -1 twice for
    another queue.
    """
    entries = queue.read(0, FIRST_MAX)
    real = np.flatnonzero(~is_pre_blank(entries))
    if queue.first or not len(real):
        return -1, -1
    return int(entries["physical_offset"][real[0]]), int(real[0])
