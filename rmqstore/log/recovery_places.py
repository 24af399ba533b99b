"""Where records begin, as queues say or a scan has seen: who looks there first needs not search the log for them."""

import numpy as np

from rmqstore.formats.message_columns import Ints
from rmqstore.log.recovery_view import StoreView

# To ask more queues takes longer than to search; more places than this are too much memory.
_QUEUES_MAX = 256
_PLACES_MAX = 4 * 1024 * 1024


class SeenPlaces:
    """Where a scan found records: the first so many."""

    def __init__(self) -> None:
        self._parts = [np.zeros(0, np.int64)]
        self._count = 0

    def add(self, offsets: Ints) -> None:
        """Takes the next ones, ascending."""
        if self._count < _PLACES_MAX:
            self._parts.append(offsets)
            self._count += len(offsets)

    def all(self) -> Ints:
        """Those taken, int64[n]."""
        return np.concatenate(self._parts)


def told_places(store: StoreView, start: int) -> Ints | None:
    """The offsets of the log from `start` on that entries of plain queues name, ascending, right or wrong; None where
    that is not worth asking.  Raises OSError.
    """
    queues = [queue for queue in store.queues.values() if queue.end > queue.first and not queue.is_multi_dispatch]
    if len(queues) > _QUEUES_MAX:
        return None
    slots = [(queue, queue.slot_at(start)) for queue in queues]
    if not 0 < sum(queue.end - first for queue, first in slots) <= _PLACES_MAX:
        return None
    parts = [queue.read(first, queue.end)["physical_offset"].astype(np.int64) for queue, first in slots]
    places: Ints = np.concatenate(parts)
    places.sort(kind="stable")  # of sorted runs, which that sort joins
    return places
