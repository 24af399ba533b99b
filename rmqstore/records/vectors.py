"""Consecutive records of the log as queues and index need them: vectors, without the records' bytes."""

from dataclasses import dataclass

import numpy as np

from rmqstore.formats.inner_batch import RecordNumbers
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.records.batch import RecordBatch


@dataclass(frozen=True, slots=True, eq=False)
class RecordVectors:
    """n ≥ 1 records in log order as far as the last one's `end`; names and meanings are those of `RecordBatch`.

    int64[n] unless said otherwise; `queued` bool[n]; `topics` the names that occur and the number of each record's
    among them; `codes` what `tags_codes` answers, `items` what `index_items` does.  None of them is an inner batch.
    Not to be changed.
    """

    end: int
    offsets: Ints
    sizes: Ints
    queue_ids: Ints
    queue_offsets: Ints
    store_ms: Ints
    queued: Mask
    topics: tuple[list[str], Ints]
    codes: Ints
    items: tuple[Ints, Ints]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def numbers(self) -> RecordNumbers:
        """Which numbers each record has if its queue is a batch queue."""
        return RecordNumbers(self.queue_offsets, np.ones(len(self), np.int64), np.zeros(len(self), bool))

    def tags_codes(self, _levels: object) -> Ints:
        """The third field of each record's queue entry."""
        return self.codes

    def index_items(self, _with_tags: bool = False) -> tuple[Ints, Ints]:
        """Row and key hash of each index item, in the order of the puts; with tags or without, as they were made."""
        return self.items

    def take(self, rows: Ints) -> "RecordVectors":
        """The same for some rows, ascending; `end` stays."""
        places = np.searchsorted(rows, self.items[0])
        kept = rows[np.minimum(places, len(rows) - 1)] == self.items[0]
        names, numbers = self.topics
        return RecordVectors(
            self.end, self.offsets[rows], self.sizes[rows], self.queue_ids[rows], self.queue_offsets[rows],
            self.store_ms[rows], self.queued[rows], (names, numbers[rows]), self.codes[rows],
            (places[kept], self.items[1][kept]),
        )  # fmt: skip


# What queues and index are filled from.
Records = RecordBatch | RecordVectors
