"""Ranges of queue offsets made smaller by what is known of the wanted rows: never a row less than was meant.

Bounds are closed intervals of whole numbers; what a condition cannot rule out stays in, so that the caller checks the
rows themselves, unless `is_exact` says that a column's condition is answered wholly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rmqstore.directory.queue_files import SIMPLE, first_behind
from rmqstore.snapshot.lookup import by_time
from rmqstore.snapshot.request import QueueRange
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

_LEAST, _MOST = -(2**63), 2**63 - 1
# Store times rise along a queue but where the broker's clock was set back: a row is missed only by a larger step.
CLOCK_STEP_MS = 600_000


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` to `high`, both included."""

    low: int = _LEAST
    high: int = _MOST

    @property
    def is_open(self) -> bool:
        """Whether it leaves nothing out."""
        return (self.low, self.high) == (_LEAST, _MOST)

    def within(self, low: int = _LEAST, high: int = _MOST) -> "Interval":
        """The part that both allow; empty when `low` lies above `high`."""
        return Interval(max(self.low, low), min(self.high, high))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowConditions:
    """Conditions that every wanted row fulfils; None and open intervals leave everything in.

    `names` holds the allowed values of topic and brokerName, `prefixes` beginnings of them that are all required,
    `queue_ids` the allowed ids; times are storeTimestamp in ms.
    """

    names: dict[str, frozenset[str]] = field(default_factory=dict)
    prefixes: tuple[tuple[str, str], ...] = ()
    queue_ids: frozenset[int] | None = None
    queue_id: Interval = Interval()
    queue_offset: Interval = Interval()
    physical_offset: Interval = Interval()
    store_time_ms: Interval = Interval()

    def allows(self, wanted: QueueRange) -> bool:
        """Whether the queue of a range can hold such rows."""
        named = {"topic": wanted.topic, "brokerName": wanted.broker}
        return (
            all(named[column] in allowed for column, allowed in self.names.items())
            and all(named[column].startswith(beginning) for column, beginning in self.prefixes)
            and (self.queue_ids is None or wanted.queue_id in self.queue_ids)
            and self.queue_id.low <= wanted.queue_id <= self.queue_id.high
        )


def prune_ranges(
    stores: Sequence[StoreExtent], ranges: Sequence[QueueRange], conditions: RowConditions
) -> tuple[QueueRange, ...]:
    """The ranges without what cannot fulfil `conditions`, empty ones left out; reads a few entries and times a queue.

    Names, ids and queue offsets are answered wholly; physical offsets and store times up to the rows next to the
    bounds, and in queues of inner batches not at all.
    """
    by_name = {store.broker_name: store for store in stores}
    kept = []
    for wanted in ranges:
        if not conditions.allows(wanted):
            continue
        store = by_name[wanted.broker]
        queue = store.queues[wanted.topic, wanted.queue_id]
        offsets = conditions.queue_offset
        low, high = max(wanted.start, offsets.low), min(wanted.end, min(offsets.high, _MOST - 1) + 1)
        for narrowed in (_by_place, _by_time):
            if low < high:
                low, high = narrowed(store, queue, (low, high), conditions)
        if low < high:
            kept.append(replace(wanted, start=low, end=high))
    return tuple(kept)


def _by_place(
    _: StoreExtent, queue: QueueExtent, bounds: tuple[int, int], conditions: RowConditions
) -> tuple[int, int]:
    """Queue offsets whose records can lie within the physical offsets: these rise along a queue."""
    wanted, (low, high) = conditions.physical_offset, bounds
    if wanted.is_open or queue.files.kind != SIMPLE:
        return bounds
    first, last = max(low, queue.entry_start), min(high, queue.entry_end)
    if first >= last:
        return bounds
    if wanted.low > 0:
        start = first_behind(queue.files, first, last, wanted.low)
        # What no entry tells of may lie anywhere after the entries before it.
        low = max(low, min(start, queue.gap[0]) if queue.gap else start)
    if wanted.high < _MOST:
        end = first_behind(queue.files, first, last, wanted.high + 1)
        high = end if end < last else high
    return low, high


def _by_time(
    store: StoreExtent, queue: QueueExtent, bounds: tuple[int, int], conditions: RowConditions
) -> tuple[int, int]:
    """Queue offsets whose messages can have been stored within the times."""
    wanted, (low, high) = conditions.store_time_ms, bounds
    if wanted.low > CLOCK_STEP_MS:
        low = max(low, by_time.offset_at(store, queue, wanted.low - CLOCK_STEP_MS, "lower"))
    if wanted.high < _MOST - CLOCK_STEP_MS:
        high = min(high, by_time.offset_at(store, queue, wanted.high + 1 + CLOCK_STEP_MS, "lower"))
    return low, high
