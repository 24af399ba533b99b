"""Sparing a second look at the log: where records begin, as queues say, and which records a first look has seen.

After a kill the recovery of 200,000 records of 100 bytes takes 230 ms of CPU with it and 310 without; 290 and 330 where
the queues lack them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rmqstore.config import StoreConfig
from rmqstore.directory.queue_kinds import QueueKinds
from rmqstore.directory.store_view import StoreView
from rmqstore.formats.delay_levels import LevelTables
from rmqstore.formats.message_columns import Ints
from rmqstore.records.batch import RecordBatch
from rmqstore.records.vectors import RecordVectors

# To ask more queues takes longer than to search; more places than this are too much memory.
_QUEUES_MAX = 256
_PLACES_MAX = 4 * 1024 * 1024
# Of 75 bytes each; the records after them are read a second time.
_RECORDS_MAX = 1024 * 1024
_NO_ITEMS = np.zeros(0, np.int64), np.zeros(0, np.int64)


class Seen(NamedTuple):
    """The records that a scan saw from its start on, so that recovery need not read them again.

    `places` int64[n], ascending, are where the first n of them stand; `records` are the first few whole, as
    queues and index take them, one after the other without a gap.
    """

    places: Ints
    records: tuple[RecordVectors, ...] = ()


NOTHING_SEEN = Seen(np.zeros(0, np.int64))


class SeenRecords:
    """Collects what a scan sees, as much as memory allows: the places, and with `keep` the records too."""

    def __init__(self, keep: Callable[[RecordBatch], RecordVectors | None] | None = None) -> None:
        self._keep = keep
        self._places = [NOTHING_SEEN.places]
        self._place_count = 0
        self._records: list[RecordVectors] = []
        self._record_count = 0

    def add(self, batch: RecordBatch) -> None:
        """Takes the next records of the log."""
        if self._place_count < _PLACES_MAX:
            self._places.append(batch.offsets)
            self._place_count += len(batch)
        if self._keep is None:
            return
        kept = self._keep(batch) if self._record_count < _RECORDS_MAX else None
        if kept is None:
            self._keep = None  # what is kept has no gaps
            return
        self._records.append(kept)
        self._record_count += len(kept)

    def all(self) -> Seen:
        """Everything that was collected."""
        return Seen(np.concatenate(self._places), tuple(self._records))


def records_to_keep(
    config: StoreConfig, kinds: QueueKinds, levels: LevelTables, indexes_tags: bool = False
) -> Callable[[RecordBatch], RecordVectors | None] | None:
    """A function that gives all that queues and index want to know of a batch, for `SeenRecords`.  Its answer None says
    that they need the records themselves; None instead of a function says so of all records.
    """
    if kinds.multi_dispatch or kinds.extension:
        return None
    wants_items = config.index_enabled

    def kept(batch: RecordBatch) -> RecordVectors | None:
        if batch.numbers.are_said.any() or (batch.numbers.counts != 1).any():
            return None
        return RecordVectors(
            end=batch.end, offsets=batch.offsets, sizes=batch.sizes, queue_ids=batch.queue_ids,
            queue_offsets=batch.queue_offsets, store_ms=batch.store_ms, queued=batch.queued, topics=batch.topics,
            codes=batch.tags_codes(levels), items=batch.index_items(indexes_tags) if wants_items else _NO_ITEMS,
        )  # fmt: skip

    return kept


def record_places(store: StoreView, start: int) -> Ints | None:
    """The offsets of the log from `start` on that entries of plain queues name, ascending, right or wrong; None where
    that is not worth asking.  Raises OSError.
    """
    queues = [queue for queue in store.queues.values() if queue.end > queue.first and not queue.is_light]
    if len(queues) > _QUEUES_MAX:
        return None
    slots = [(queue, queue.slot_at(start)) for queue in queues]
    if not 0 < sum(queue.end - first for queue, first in slots) <= _PLACES_MAX:
        return None
    parts = [queue.read(first, queue.end)["physical_offset"].astype(np.int64) for queue, first in slots]
    places: Ints = np.concatenate(parts)
    places.sort(kind="stable")  # of sorted runs, which that sort joins
    return places
