"""Checked rows on their way from one of the three sources to the decoder, and how many make a batch."""

from typing import NamedTuple

import numpy as np

from rmqstore.formats.message_columns import Ints
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.request import ScanRequest

_FIRST_ROWS = 256
_GROWTH = 4


class Checked(NamedTuple):
    """Rows of about a batch; what inner batches among them hold is clipped to the queue offsets `clip`, [first, end),
    if that is given.
    """

    rows: Rows
    clip: tuple[int, int] | None = None


class BatchSizes:
    """The sizes of a scan's batches: small ones first, so that something is there soon, then by rows and bytes."""

    def __init__(self, request: ScanRequest) -> None:
        self._rows_max, self._bytes_max = request.batch_rows, request.batch_bytes
        self.rows_next = min(_FIRST_ROWS, request.batch_rows)

    def end_of(self, ends: Ints, first: int) -> int:
        """Where a batch that begins at row `first` ends, the row sizes summed up in `ends`; at least one row."""
        before = int(ends[first - 1]) if first else 0
        fit = int(np.searchsorted(ends, before + self._bytes_max, side="right"))
        last = min(fit, first + self.rows_next, len(ends))
        self.rows_next = min(self.rows_next * _GROWTH, self._rows_max)
        return max(last, first + 1)
