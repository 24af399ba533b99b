"""The rows of a walked part of the log, queue by queue, held against the ranges that they are of.

A read by a queue's entries shows where one is missing.  A walk of the log does not: that a queue's files or the end
of the log are others than when the snapshot was opened shows in the numbers only.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqstore.directory.queue_files import QueueFiles, open_queue
from rmqstore.errors import DataLost
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import QueueKey
from rmqstore.records.queue_runs import QueueRun
from rmqstore.snapshot.scan.second_look import SecondLook
from rmqstore.snapshot.split import Span, Split

_NO_ENTRY = "its entries there are gone since the snapshot was opened"
_NO_RECORD = "the commitlog holds no record of them any more"


@dataclass(slots=True)
class WalkCount:
    """The records of each queue that a walk met.  `matched` counts the messages that entries lead to.

    `gone` are queue offsets, from the first to the last, of records whose entries the snapshot saw and that have none
    any more; `missing` the first that no record was met of, between others.  `ended_at` is where the log ends, before
    the end that the snapshot saw.
    """

    split: Split
    look: SecondLook
    matched: Counter[QueueKey] = field(default_factory=Counter)
    gone: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    missing: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    ended_at: int | None = None
    is_damaged: bool = False
    _reached: dict[QueueKey, int] = field(default_factory=dict)
    _known: dict[QueueKey, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for span, (low, high) in zip(self.split.spans, self.split.known, strict=self.split.has_queues):
            if low < high:
                self._known.setdefault(span.key, []).append((low, high))

    def knew(self, key: QueueKey, queue_offsets: Ints) -> Mask:
        """Which messages of a queue (int64[n]) had an entry when the snapshot was opened."""
        known = np.zeros(len(queue_offsets), bool)
        for low, high in self._known.get(key, []):
            known |= (queue_offsets >= low) & (queue_offsets < high)
        return known

    def add(self, run: QueueRun, found: Mask, unanswered: Mask, ranges: list[tuple[int, int]]) -> None:
        """Counts the records of a run that are rows; those that are `unanswered` have no entry."""
        rows = np.flatnonzero(unanswered)
        if len(rows):
            self._add_gone(run.key, run.queue_offsets[rows], self._known.get(run.key, []))
        lows = run.queue_offsets[found]
        if not len(lows) or run.are_inner.any():
            return
        reached = np.concatenate(([self._reached.get(run.key, lows[0])], lows[:-1] + 1))
        self._reached[run.key] = int(lows[-1]) + 1
        for row in np.flatnonzero(lows > reached).tolist() if run.key not in self.missing else ():
            lost = (int(reached[row]), int(lows[row]))
            if any(max(low, lost[0]) < min(high, lost[1]) for low, high in ranges):
                self.missing[run.key] = lost
                break

    def _add_gone(self, key: QueueKey, offsets: Ints, known: list[tuple[int, int]]) -> None:
        for low, high in known:
            lost = offsets[(offsets >= low) & (offsets < high)]
            if len(lost):
                first, last = self.gone.get(key, (int(lost[0]), 0))
                self.gone[key] = min(first, int(lost.min())), max(last, int(lost.max()) + 1)

    def require_all(self, spans: list[Span], is_damage_told: bool, room: str) -> None:
        """Raises DataLost if messages of a queue were not met that the snapshot saw, StoreChanging as SecondLook.

        `is_damage_told`: damage is an error of its own, so that it explains nothing here.  `room`: where the
        log stands.
        """
        disk, root = self.split.disk, self.split.path
        key = spans[0].key
        queue, first, end = self.look.asked(lambda: _held(open_queue(disk, root, *spans[0][:3])))
        for low, high in self._known.get(key, []):
            if first > low or end < high:
                lost = self.look.lost_of(key, low, high)
                if lost is not None:
                    self.gone.setdefault(key, lost)
        name = f"{key[0]}/{key[1]}"
        if key in self.gone:
            raise DataLost(name, self.gone[key], None, queue.directory, _NO_ENTRY)
        if self.is_damaged and not is_damage_told:
            return
        if key in self.missing:
            raise DataLost(name, self.missing[key], None, room, _NO_RECORD)
        if self.ended_at is not None:
            lost = (self.ended_at, self.split.log_end)
            raise DataLost(f"commitlog of {name}", lost, None, room, _NO_RECORD)


class _Held(NamedTuple):
    """A queue whose files begin with slot `first`, and whose written entries end before slot `end`."""

    queue: QueueFiles
    first: int
    end: int


def _held(queue: QueueFiles) -> _Held:
    return _Held(queue, queue.first_slot(), queue.written_end())
