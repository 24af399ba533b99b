"""Rows sorted by physical offset (queue entries, index items), read block by block in step with a walk of the log."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.formats.message_columns import Ints, Mask

Rows = npt.NDArray[np.void]
END = int(np.iinfo(np.int64).max)


class Taken(NamedTuple):
    """n rows with their numbers and physical offsets, int64[n]; `rows` None where n is 0."""

    numbers: Ints
    offsets: Ints
    rows: Rows | None


class LogOrderedRows:
    """Rows [first, last) of a table with a field physical_offset, handed out in order up to a log offset.

    `read` gives rows of a range as a structured array.  `is_filler` marks rows that mean nothing and are passed over.
    Rows out of [0, log_end), and those that do not rise with their neighbours (`strictly`: equal does not rise), are
    not handed out; their numbers wait in `irregular` for the caller.  Memory: one block.
    """

    def __init__(
        self, read: Callable[[int, int], Rows], span: tuple[int, int], is_filler: Callable[[Rows], Mask],
        *, log_end: int, strictly: bool, block: int,
    ) -> None:  # fmt: skip
        self._read = read
        self._first, self._last = span
        self._is_filler = is_filler
        self._log_end = log_end
        self._strictly = strictly
        self._block = block
        self._highest = -1
        self._at = 0
        self._numbers = np.zeros(0, np.int64)
        self._offsets = np.zeros(0, np.int64)
        self._rows: Rows | None = None
        self.irregular: list[int] = []

    def next_offset(self) -> int:
        """The physical offset of the next row; END after the last."""
        while self._at == len(self._offsets):
            if not self._load():
                return END
        return int(self._offsets[self._at])

    def take_until(self, high: int) -> Taken:
        """Rows not taken yet that point below `high`."""
        taken: list[Taken] = []
        while self.next_offset() < high:
            stop = int(np.searchsorted(self._offsets, high))
            assert self._rows is not None
            part = slice(self._at, stop)
            taken.append(Taken(self._numbers[part], self._offsets[part], self._rows[part]))
            self._at = stop
        if not taken:
            return Taken(np.zeros(0, np.int64), np.zeros(0, np.int64), None)
        if len(taken) == 1:
            return taken[0]
        numbers, offsets, rows = zip(*taken, strict=True)
        return Taken(np.concatenate(numbers), np.concatenate(offsets), np.concatenate(rows))

    def _load(self) -> bool:
        if self._first >= self._last:
            return False
        stop = min(self._first + self._block, self._last)
        rows = self._read(self._first, stop)
        numbers = np.arange(self._first, self._first + len(rows), dtype=np.int64)
        self._first = stop
        real = ~self._is_filler(rows)
        offsets = rows["physical_offset"].astype(np.int64)
        good = real & self._in_order(offsets, real)
        self.irregular += numbers[real & ~good].tolist()
        self._numbers, self._offsets, self._rows, self._at = numbers[good], offsets[good], rows[good], 0
        if good.any():
            self._highest = int(self._offsets[-1])
        return True

    def _in_order(self, offsets: Ints, real: Mask) -> Mask:
        """Where a row fits between its neighbours.  A single row that juts out above the next is itself wrong."""
        good = (offsets >= 0) & (offsets < self._log_end) & real
        places = np.flatnonzero(good)
        values = offsets[places]
        if len(values) > 2:
            juts = np.zeros(len(values), bool)
            juts[1:-1] = (values[1:-1] > values[2:]) & (values[:-2] < values[2:])
            good[places[juts]] = False
            places, values = places[~juts], values[~juts]
        before = np.maximum.accumulate(np.concatenate(([self._highest], values[:-1]))) if len(values) else values
        good[places[values <= before if self._strictly else values < before]] = False
        return good
