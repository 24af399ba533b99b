"""The share of each queue in one trigger: rows or bytes by the backlog of each, and none left out for long."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Java: KafkaSourceProvider, maxTriggerDelay.
DELAY_MS = 15 * 60 * 1000

Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """At most `rows_max` messages and `bytes_max` bytes of records a trigger; less than `rows_min` wait, `delay_ms` at
    most.  None: no limit.
    """

    rows_max: int | None = None
    rows_min: int | None = None
    bytes_max: int | None = None
    delay_ms: int = DELAY_MS

    @property
    def is_any(self) -> bool:
        """Whether there is anything to be held to."""
        return self.rows_max is not None or self.rows_min is not None or self.bytes_max is not None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The backlog of one queue: `count` messages of about `size` bytes in all.

    `sizes(n)` brings the bytes that each of the first n of them takes, in order, as blocks of int64.
    """

    count: int
    size: int
    sizes: Callable[[int], Iterator[Sizes]]


def shared_rows(counts: Sequence[int], limit: int, turn: int) -> list[int]:
    """How many of `counts` waiting messages each queue may take, `limit` in all.

    By proportion; what rounding leaves goes to one queue after the other from number `turn` on, so that even with fewer
    rows than queues each has its turn within as many triggers as there are queues.
    """
    total = sum(counts)
    if total <= limit:
        return list(counts)
    shares = [limit * count // total for count in counts]
    left = limit - sum(shares)
    for number in _rotated(len(counts), turn):
        if left and shares[number] < counts[number]:
            shares[number] += 1
            left -= 1
    return shares


def shared_bytes(waiting: Sequence[Waiting], limit: int, turn: int) -> list[int]:
    """How many messages each queue may take so that all together have at most `limit` bytes.

    The queue whose turn it is takes one message in any case, alone if that is bigger than the limit: nothing waits for
    ever.  The rest is shared by the bytes that wait, and what is left then goes to queues that can use it, from `turn`
    on.
    """
    order = [number for number in _rotated(len(waiting), turn) if waiting[number].count]
    cursors = [_Cursor(queue) for queue in waiting]
    if not order:
        return [0] * len(waiting)
    left = limit - cursors[order[0]].take_one()
    total = sum(waiting[number].size for number in order)
    if left > 0:
        room = left
        for number in order:
            left -= cursors[number].take(room * waiting[number].size // total if total else 0)
        for number in order:
            left -= cursors[number].take(left)
    return [cursor.count for cursor in cursors]


def _rotated(count: int, turn: int) -> Iterator[int]:
    return ((turn + place) % count for place in range(count))


class _Cursor:
    """Takes messages of one queue from the front; their sizes are read as far as needed."""

    def __init__(self, queue: Waiting) -> None:
        self.count = 0
        self._all = queue.count
        self._blocks = queue.sizes(queue.count)
        self._sums: Sizes = np.zeros(0, np.int64)  # of the block in hand, from the first message not taken

    def take_one(self) -> int:
        """Takes the next message; its bytes."""
        if not self._fill():
            return 0
        size = int(self._sums[0])
        self._advance(1)
        return size

    def take(self, room: int) -> int:
        """Takes messages of at most `room` bytes together; how many bytes they are."""
        taken = 0
        while self._fill():
            fit = int(np.searchsorted(self._sums, room - taken, side="right"))
            if not fit:
                break
            taken += int(self._sums[fit - 1])
            self._advance(fit)
        return taken

    def _fill(self) -> bool:
        while not len(self._sums) and self.count < self._all:
            block = next(self._blocks, None)
            if block is None:
                return False
            self._sums = np.cumsum(block, dtype=np.int64)
        return len(self._sums) > 0

    def _advance(self, count: int) -> None:
        self.count += count
        self._sums = self._sums[count:] - self._sums[count - 1]
