"""Rows put in bulk whose queue entries and index items are known from their columns, so that nobody reads the log for
them.

What `KnownBatch` says is what a `RecordBatch` of the same records reads out of the log.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore.formats import names, sys_flag
from rmqstore.formats.index_table import key_hashes, split_keys, text_hashes
from rmqstore.formats.message_columns import Bytes, Ints, Mask
from rmqstore.formats.sink_files import BlockItems
from rmqstore.log.binary_columns import data_of, offsets_of
from rmqstore.log.column_values import ColumnValues
from rmqstore.log.record_batch import DISPATCHED_NAMES, RecordBatch, prefix_hash

QueueKey = tuple[str, int]
_SPECIAL = sys_flag.TRANSACTION_MASK | sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP


class KnownRows:
    """n rows that each take a number in a queue: `starts` int64[n + 1] where each record begins, `queues` the distinct
    queues, `queue_numbers` int64[n] which a row goes to, `ranks` int64[n] how many of that queue are before it.
    """

    def __init__(
        self, starts: Ints, queues: list[QueueKey], places: tuple[Ints, Ints], items: Callable[[], BlockItems]
    ) -> None:
        self.starts, self.queues = starts, queues
        self.queue_numbers, self.ranks = places
        self._made = items

    @cached_property
    def items(self) -> BlockItems:
        """What their properties give."""
        return self._made()


class FreshBlock(NamedTuple):
    """Rows [first, last) of `load()` as they were appended: from `offset` to `end` in the log, at `store_ms`.

    `bases` int64[] is by queue what makes a rank a queue offset.  `load` raises StoreError, OSError where the rows are
    not to be had any more; `held_count` of them are in memory until then.
    """

    offset: int
    end: int
    first: int
    last: int
    bases: Ints
    store_ms: int
    held_count: int
    load: Callable[[], KnownRows]

    def batch(self) -> "KnownBatch":
        """The records for dispatch.  Raises as `load`."""
        return KnownBatch(self, self.load())


class KnownBatch:
    """n ≥ 1 records in log order, as `record_batch.RecordBatch` without their bytes; its names and meanings."""

    def __init__(self, block: FreshBlock, known: KnownRows) -> None:
        rows = slice(block.first, block.last)
        bounds = known.starts[block.first : block.last + 1]
        self._queues = known.queues
        self._numbers = known.queue_numbers[rows]
        codes, item_rows, hashes = known.items
        low, high = np.searchsorted(item_rows, (block.first, block.last)).tolist()
        self._codes = codes[rows]
        self._items = item_rows[low:high] - block.first, hashes[low:high]
        self.end = block.end
        self.offsets: Ints = bounds[:-1] + (block.offset - int(bounds[0]))
        self.sizes: Ints = np.diff(bounds)
        self.queue_offsets: Ints = known.ranks[rows] + block.bases[self._numbers]
        self.store_ms: Ints = np.full(len(self.offsets), block.store_ms)

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def queue_ids(self) -> Ints:
        """queueId of each record."""
        return np.array([queue_id for _, queue_id in self._queues], np.int64)[self._numbers]

    @property
    def sys_flags(self) -> npt.NDArray[np.int32]:
        """Of no flag that dispatch asks for."""
        return np.zeros(len(self), np.int32)

    @property
    def queued(self) -> Mask:
        """All belong to a consume queue."""
        return np.ones(len(self), bool)

    @cached_property
    def topics(self) -> tuple[list[str], Ints]:
        """The topics that occur, and the number of each record's in that list."""
        known: dict[str, int] = {}
        numbers = np.array([known.setdefault(topic, len(known)) for topic, _ in self._queues], np.int64)
        return list(known), numbers[self._numbers]

    def tags_codes(self, _delay_ms: object) -> Ints:
        """The third field of each record's queue entry; none waits for a delay level."""
        return self._codes

    def index_items(self) -> tuple[Ints, Ints]:
        """Row and key hash of each index item, in the order of the puts."""
        return self._items


# What queues and index are filled from.
Records = RecordBatch | KnownBatch


def known_items(values: ColumnValues) -> Callable[[], BlockItems] | None:
    """What makes the `BlockItems` of rows, from copies of their tags and keys; None where the log has to be read: for
    rows of transactions, those that wait for a delay, and where the further properties have something to say.
    """
    flags = values.numbers.get("sysFlag")
    if values.more_names & DISPATCHED_NAMES or (flags is not None and (flags & _SPECIAL).any()):
        return None
    if not all(topic.isascii() and topic != names.SCHEDULE_TOPIC for topic in values.topics):
        return None
    tags, keys = _copied(values.tags), _copied(values.keys)
    topics, topic_numbers, count = values.topics, values.topic_numbers, values.count

    def made() -> BlockItems:
        codes = text_hashes(*tags).astype(np.int64) if tags is not None else np.zeros(count, np.int64)
        if keys is None:
            return BlockItems(codes, np.zeros(0, np.int64), np.zeros(0, np.int64))
        starts, sizes, rows = split_keys(*keys)
        prefixes = np.array([prefix_hash(topic) for topic in topics], np.int64)
        return BlockItems(codes, rows, key_hashes(prefixes[topic_numbers[rows]], keys[0], starts, sizes))

    return made


def _copied(column: pa.Array | None) -> tuple[Bytes, Ints, Ints] | None:
    """The bytes of a binary column, where each value begins in them and its size (0: null), all of its own."""
    if column is None:
        return None
    offsets = offsets_of(column).astype(np.int64)
    data = data_of(column)[offsets[0] : offsets[-1]].copy()
    sizes = np.diff(offsets)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return data, offsets[:-1] - offsets[0], sizes
