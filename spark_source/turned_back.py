"""Queues that end before where a stream stands: the store was cut, made anew, or is a copy that lags behind.

Kafka's source goes on at the new end then, and reads once more what a lagging copy catches up with.  Here the store
times tell: what was stored after the queue was found shorter cannot have been read before, and what was stored until
then may have been.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from logging import Logger

from rmqstore.snapshot.extents import QueueExtent, StoreExtent
from rmqstore.snapshot.selection import Place
from rmqstore.snapshot.time_lookup import offset_at
from spark_source.stream_offsets import Offsets


@dataclass(slots=True)
class _Turn:
    """Since when a queue is known to be shorter, and which batch, from and to, went on in it."""

    since_ms: int
    batch: tuple[int, int] | None = None


class TurnedBack:
    """Remembers such queues while the stream runs; what it finds out it logs."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._turns: dict[Place, _Turn] = {}

    def begins(
        self, queues: Mapping[Place, tuple[StoreExtent, QueueExtent]], before: Offsets, noted: Offsets
    ) -> Offsets:
        """Where queues that ended before the stream's place are to be read on, for those that can be.

        `before` is where the stream stands, `noted` where the batch that brought it there began.  Raises DataLost if a
        file vanishes meanwhile.
        """
        found: Offsets = {}
        for place, offset in before.items():
            turn = self._turns.get(place)
            if turn is not None and turn.batch == (noted.get(place), offset):
                del self._turns[place]  # it has gone on
                turn = None
            if place not in queues or (turn is None and queues[place][1].max_offset >= offset):
                continue
            store, queue = queues[place]
            turn = turn or self._turned(place, queue, offset)
            low = offset_at(store, queue, turn.since_ms, "lower")
            if low < min(offset, queue.max_offset):
                found[place] = low
            elif queue.max_offset >= offset:
                del self._turns[place]  # a copy has caught up
        return found

    def note(self, lows: Offsets, ends: Offsets, begins: Offsets) -> None:
        """Takes note of a batch that is handed out."""
        for place, low in lows.items():
            if place in begins and place in self._turns:
                self._turns[place].batch = low, ends[place]
                self._log.warning("%s goes on at offset %d", _name(place), low)

    def _turned(self, place: Place, queue: QueueExtent, offset: int) -> _Turn:
        self._log.warning(
            "%s ends at offset %d, before %d where the stream stands: the store was cut or made anew; the stream goes "
            "on with what is stored there from now on, or from %d where that comes; a new checkpointLocation reads all",
            _name(place), queue.max_offset, offset, offset,
        )  # fmt: skip
        self._turns[place] = _Turn(int(time.time() * 1000))
        return self._turns[place]


def _name(place: Place) -> str:
    return f"{place[1]}/{place[2]} of {place[0]}"
