"""Records that were found and checked, on their way to becoming rows."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.records.soundness import Reasons


@dataclass(frozen=True, slots=True)
class Rows:
    """n records of one page with the queue position under which they are read.

    `topic` is one name, or string[n]; `queue_ids` int32[n]; `queue_offsets` int64[n]; `offsets` int64[n] in the
    commitlog; `sizes` int32[n] of whole records; `tags_codes` int64[n] or None where nobody asked; `reasons` int8[n],
    0 for sound; `inner_counts` int64[n], of inner batches, which are to be taken apart, the messages that their queue
    counts, of others 0; None where all are.
    """

    located: Located
    topic: str | pa.Array
    queue_ids: npt.NDArray[np.int32]
    queue_offsets: Ints
    offsets: Ints
    sizes: npt.NDArray[np.int32]
    reasons: Reasons
    tags_codes: Ints | None = None
    inner_counts: Ints | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def are_inner(self) -> Mask:
        """Which are inner batches: bool[n]."""
        return np.zeros(len(self), bool) if self.inner_counts is None else self.inner_counts > 0

    def take(self, rows: Mask | npt.NDArray[np.intp]) -> "Rows":
        """The same for some rows: a mask or their numbers."""
        numbers = np.flatnonzero(rows) if rows.dtype == bool else rows
        return replace(
            self,
            located=self.located.take(numbers),
            topic=self.topic if isinstance(self.topic, str) else self.topic.take(pa.array(numbers)),
            queue_ids=self.queue_ids[numbers],
            queue_offsets=self.queue_offsets[numbers],
            offsets=self.offsets[numbers],
            sizes=self.sizes[numbers],
            reasons=self.reasons[numbers],
            tags_codes=None if self.tags_codes is None else self.tags_codes[numbers],
            inner_counts=None if self.inner_counts is None else self.inner_counts[numbers],
        )
