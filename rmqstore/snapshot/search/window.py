"""A window of time, by which messages are chosen row by row."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from rmqstore.core.arguments import milliseconds, word
from rmqstore.errors import Rejected
from rmqstore.formats.message_columns import Mask
from rmqstore.snapshot.plan.range_pruning import CLOCK_STEP_MS, Interval, RowConditions

TimeColumn = Literal["storeTimestamp", "bornTimestamp"]
WINDOW_COLUMNS: tuple[TimeColumn, ...] = ("storeTimestamp", "bornTimestamp")


@dataclass(frozen=True, slots=True)
class Window:
    """Times from `since_ms` up to before `until_ms`; None is open.  Raises Rejected for one in which no time lies."""

    since_ms: int | None = None
    until_ms: int | None = None
    column: TimeColumn = "storeTimestamp"

    def __post_init__(self) -> None:
        word("column", self.column, WINDOW_COLUMNS)
        for name in ("since_ms", "until_ms"):
            if getattr(self, name) is not None:
                milliseconds(name, getattr(self, name))
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise Rejected(
                f"the beginning, {_shown(self.since_ms)}, is not before the end, {_shown(self.until_ms)}: no message "
                "lies between them; change the two"
            )

    @property
    def is_open(self) -> bool:
        """Whether every message lies in it."""
        return self.since_ms is None and self.until_ms is None

    @property
    def conditions(self) -> RowConditions:
        """The part of it that store times tell: ranges can be left out by them, as far as they go."""
        if self.column != "storeTimestamp" or self.is_open:
            return RowConditions()
        low = {} if self.since_ms is None else {"low": self.since_ms}
        high = {} if self.until_ms is None else {"high": self.until_ms - 1}
        return RowConditions(store_time_ms=Interval(**low, **high))

    @property
    def first_look_ms(self) -> int | None:
        """The store time from which a queue has to be read, should clocks have been set back; None: from the first."""
        if self.column != "storeTimestamp" or self.since_ms is None or self.since_ms <= CLOCK_STEP_MS:
            return None
        return self.since_ms - CLOCK_STEP_MS

    @property
    def last_look_ms(self) -> int | None:
        """The store time up to which it has to be read; None: to the last."""
        if self.column != "storeTimestamp" or self.until_ms is None or self.until_ms > 2**62:
            return None
        return self.until_ms + CLOCK_STEP_MS

    def holds(self, batch: pa.RecordBatch) -> Mask:
        """bool[n]: which rows lie in it; the batch has its column.  A row without a time lies in no window but the
        open one.
        """
        if self.is_open:
            return np.ones(batch.num_rows, bool)
        column = batch.column(self.column)
        times = column.cast(pa.int64()).fill_null(0).to_numpy() // 1000
        inside = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
        if self.since_ms is not None:
            inside = inside & (times >= self.since_ms)
        if self.until_ms is not None:
            inside = inside & (times < self.until_ms)
        return inside


def _shown(at_ms: int) -> str:
    """A time of any year."""
    return f"{np.datetime64(at_ms, 'ms')}Z"


ALWAYS = Window()
