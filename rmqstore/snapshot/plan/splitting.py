"""From ranges of queue offsets to splits, which tasks read."""

import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from rmqstore.directory.queue_files import SIMPLE, QueueFiles, first_behind
from rmqstore.errors import DataLost, Rejected
from rmqstore.formats.names import is_light_queue
from rmqstore.snapshot.request import QueueRange, ScanRequest, SplitBudget
from rmqstore.snapshot.split import Span, Split
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

# One task for so many merged queues at most, so that a split stays small to pickle.
_MERGED_RANGES_MAX = 64
# Of queues without one entry more: each split walks the log for them, and all of a store may have lost theirs.
_WALKED_RANGES_MAX = 4096
# From this share of the stretch of the log that they lie in on, several queues are read together in the log's order:
# each page once, not once a queue.
_TOGETHER_SHARE_MIN = 0.25
_SAMPLE_ENTRIES = 64
# Whatever is asked for, a walk is not cut finer than by pages of the disk, nor into more stretches than any cluster
# runs tasks: planning them would take longer than reading.
_STRETCH_MIN = 4096
_STRETCHES_MAX = 128 * 1024
# Entries read at once where record starts are looked up.
_BLOCK_ENTRIES = 4096


def plan_splits(
    store: StoreExtent, ranges: Sequence[QueueRange], request: ScanRequest, budget: SplitBudget
) -> list[Split]:
    """Cuts the ranges of one store into splits, in the order of the ranges; empty ranges make none.

    Raises Rejected for a budget that a read straight through the log cannot keep.
    """
    spans = [_Weighted.of(store, span) for span in ranges if span.start < span.end]
    if not spans:
        return []
    if request.scan_mode == "commitlog" or not store.has_entries:
        _require_bytes_alone(store, budget)
        is_walked = [_is_walkable(span.span) or _is_walked(store, span.span) for span in spans]
        walked = list(itertools.compress(spans, is_walked))
        splits = _log_splits(store, walked, budget) if walked else []
        others = [span for span, walks in zip(spans, is_walked, strict=True) if not walks]
        return splits + _queue_splits(store, others, budget)
    in_log_order = request.scan_mode == "auto" and not request.needs_entries_only
    joined = [span for span in spans if in_log_order and _is_walkable(span.span)]
    if not 1 < len(joined) <= _MERGED_RANGES_MAX or budget.max_records or not budget.merge:
        return _queue_splits(store, spans, budget)
    splits = _splits_together(store, joined, budget)
    if not splits:
        return _queue_splits(store, spans, budget)
    splits += _queue_splits(store, [span for span in spans if span not in joined], budget)
    # The messages may lie close together in a part of the stretch, which equal parts of it do not cut finely enough.
    return splits if len(splits) >= budget.min_partitions else _queue_splits(store, spans, budget)


def _splits_together(store: StoreExtent, spans: Sequence["_Weighted"], budget: SplitBudget) -> list[Split]:
    """All queues together where that saves reading; none where it does not, or where a queue file went meanwhile:
    a reader of the rows looks at the store again.
    """
    with suppress(DataLost):
        low, high = _stretch_of(store, spans)
        if sum(span.size for span in spans) >= _TOGETHER_SHARE_MIN * (high - low):
            return _joined_splits(store, spans, budget, (low, high))
    return []


def _require_bytes_alone(store: StoreExtent, budget: SplitBudget) -> None:
    """Raises Rejected for limits by messages and by queues: the log is cut by bytes, for all queues at once."""
    if budget.max_records or not budget.merge:
        asked = "max_records" if budget.max_records else "merge=False"
        why = "scan_mode='commitlog'" if store.has_entries else f"the {store.queue_layout} queues of {store.path}"
        raise Rejected(
            f"{asked} does not go with {why}: the commitlog is cut by bytes, for all queues together; "
            "use max_bytes or min_partitions"
        )


def _joined_splits(
    store: StoreExtent, spans: Sequence["_Weighted"], budget: SplitBudget, stretch: tuple[int, int]
) -> list[Split]:
    """All queues together, cut by parts of the log: what an entry points at decides in which split it falls."""
    total = sum(span.size for span in spans)
    count = max(-(-total // budget.max_bytes), min(budget.min_partitions, sum(span.count for span in spans)), 1)
    low, high = stretch
    edges = [low + (high - low) * place // count for place in range(1, count)]
    cuts = [_slots_at(store, span.span, edges) for span in spans]
    splits = []
    for place in range(count):
        parts = [
            span.span.part(slots[place], slots[place + 1]) for span, slots in zip(spans, cuts, strict=True)
            if slots[place] < slots[place + 1]
        ]  # fmt: skip
        if parts:
            splits.append(store.split(parts, together=len(parts) > 1))
    return splits


def _stretch_of(store: StoreExtent, spans: Sequence["_Weighted"]) -> tuple[int, int]:
    """Where in the log the messages of the spans lie, as far as the entries at their ends tell: from, to."""
    lows, highs = zip(*(_ends_of(store, span.span) for span in spans), strict=True)
    return min(lows), max(min(lows), *highs)


def _ends_of(store: StoreExtent, span: Span) -> tuple[int, int]:
    """Where in the log the span's first message begins and its last one ends; messages without an entry may lie
    anywhere up to the end.
    """
    queue = store.queues[span.key]
    first, last_end = max(queue.entry_start, span.start), min(queue.entry_end, span.end)
    if first >= last_end:
        return (store.log_start if queue.gap else store.log_end), store.log_end
    if last_end - first <= _SAMPLE_ENTRIES:
        entries = queue.files.read(first, last_end)  # one file is opened, where two reads open it twice
        low, last = entries[0], entries[-1]
    else:
        low, last = (queue.files.read(slot, slot + 1)[0] for slot in (first, last_end - 1))
    end = store.log_end if last_end < span.end else int(last["physical_offset"]) + int(last["size"])
    return int(low["physical_offset"]), min(end, store.log_end)


def _slots_at(store: StoreExtent, span: Span, edges: Sequence[int]) -> list[int]:
    """The span's queue offsets cut at offsets of the log; what no entry tells falls into the last part."""
    queue = store.queues[span.key]
    low, high = max(span.start, queue.entry_start), min(span.end, queue.entry_end)
    slots = [span.start]
    for edge in edges:
        slot = first_behind(queue.files, low, high, edge) if low < high else span.start
        slots.append(max(slots[-1], min(slot, span.end)))
    return [*slots, span.end]


def _is_walkable(span: Span) -> bool:
    """Whether the log alone tells a queue's messages: light queues and inner batches are addressed by their entries."""
    return span.kind == SIMPLE and not is_light_queue(span.topic)


def _is_walked(store: StoreExtent, span: Span) -> bool:
    """Whether a queue of a store without queue files is read along the log: a light queue is not, as its messages are
    of other topics.
    """
    return not store.has_entries and not is_light_queue(span.topic)


def _queue_splits(store: StoreExtent, spans: Sequence["_Weighted"], budget: SplitBudget) -> list[Split]:
    total = sum(span.size for span in spans)
    pieces = [piece for span in spans for piece in _cut(span, total, budget)]
    groups = _merged(pieces, budget) if budget.merge else [[piece] for piece in pieces]
    return [store.split([piece.span for piece in group]) for group in groups]


@dataclass(frozen=True, slots=True)
class _Weighted:
    """A span with its messages and about their bytes; `group_max` spans like it may stand in one split."""

    span: Span
    count: int
    size: int
    group_max: int = _MERGED_RANGES_MAX

    @classmethod
    def of(cls, store: StoreExtent, wanted: QueueRange) -> "_Weighted":
        queue = store.queues[wanted.topic, wanted.queue_id]
        count = wanted.end - wanted.start
        span = queue.span(wanted.start, wanted.end)
        group_max = _WALKED_RANGES_MAX if queue.entry_start >= queue.entry_end else _MERGED_RANGES_MAX
        return cls(span, count, int(count * _mean_size(queue, wanted.start, wanted.end)), group_max)

    def part(self, low: int, high: int) -> "_Weighted":
        count = high - low
        size = self.size * count // max(self.count, 1)
        return _Weighted(self.span.part(low, high), count, size, self.group_max)


def _mean_size(queue: QueueExtent, start: int, end: int) -> float:
    """Bytes a message: known from the survey, or by a sample of entries at both ends and in the middle of the range."""
    if queue.mean_size and not queue.gap:
        return queue.mean_size
    files: QueueFiles = queue.files
    sizes: list[int] = []
    low, high = max(queue.entry_start, start), min(queue.entry_end, end)
    if files.kind != SIMPLE:
        low, high = queue.entry_start, queue.entry_end
    if high > low:
        for place in {low, (low + high) // 2, max(high - _SAMPLE_ENTRIES, low)}:
            with suppress(DataLost):  # a file went: a read of the rows tells, as it is asked to
                entries = files.read(place, min(place + _SAMPLE_ENTRIES, high))
                sizes += [size for size in entries["size"].tolist() if 0 < size < 2**30]
    if queue.gap and not sizes:
        return queue.gap_bytes / max(queue.gap[1] - queue.gap[0], 1)
    return sum(sizes) / len(sizes) if sizes else 256.0


def _cut(span: _Weighted, total: int, budget: SplitBudget) -> list[_Weighted]:
    """Equal slices of one queue, as many as the limits and the wanted number of partitions of `total` bytes ask for."""
    pieces = -(-span.size // budget.max_bytes)
    if budget.max_records:
        pieces = max(pieces, -(-span.count // budget.max_records))
    if budget.min_partitions:
        fair = -(-budget.min_partitions * span.size // max(total, 1))
        pieces = max(pieces, fair)
    pieces = max(1, min(pieces, span.count))
    start = span.span.start
    edges = [start + span.count * place // pieces for place in range(pieces + 1)]
    return [span.part(low, high) for low, high in itertools.pairwise(edges)]


def _merged(pieces: Sequence[_Weighted], budget: SplitBudget) -> list[list[_Weighted]]:
    """Neighbours put together until a group is full by bytes, records or number of queues."""
    room = budget.max_bytes
    if budget.min_partitions:
        total = sum(piece.size for piece in pieces)
        room = min(room, max(-(-total // budget.min_partitions), 1))
    groups: list[list[_Weighted]] = []
    size = count = 0
    for piece in pieces:
        full = not groups or size + piece.size > room or len(groups[-1]) >= piece.group_max
        if full or (budget.max_records and count + piece.count > budget.max_records):
            groups.append([])
            size = count = 0
        groups[-1].append(piece)
        size, count = size + piece.size, count + piece.count
    return groups


def _log_splits(store: StoreExtent, spans: Sequence[_Weighted], budget: SplitBudget) -> list[Split]:
    """Parts of the commitlog of about the byte limit, cut where a queue entry or a file says that a record begins."""
    whole = tuple(span.span for span in spans)
    size = store.log_end - store.log_start
    wanted = max(budget.max_bytes, _STRETCH_MIN)
    if budget.min_partitions:
        wanted = min(wanted, size // budget.min_partitions)
    wanted = max(wanted, size // _STRETCHES_MAX, 1)
    starts = _RecordStarts(store, spans)
    edges = [store.log_start]
    for file in store.log_files:
        for place in range(file.start, min(file.end, store.log_end), wanted):
            edge = file.start if place == file.start else starts.at_or_after(place)
            if edge is not None and edges[-1] < edge < store.log_end and (edge - edges[-1] >= wanted // 2):
                edges.append(edge)
    edges.append(store.log_end)
    return [store.split(whole, (low, high)) for low, high in itertools.pairwise(edges) if low < high]


class _RecordStarts:
    """Where records begin, as far as the biggest queue's entries tell; a block of them is held.

    Ask for places in rising order.
    """

    def __init__(self, store: StoreExtent, spans: Sequence[_Weighted]) -> None:
        biggest = max(spans, key=lambda span: span.size).span
        queue = store.queues[biggest.key]
        self._files = queue.files
        self._walk_from = store.walk_from
        self._slot = queue.entry_start
        self._end = queue.entry_end if queue.files.kind == SIMPLE else queue.entry_start
        self._block = np.zeros(0, np.int64)

    def at_or_after(self, place: int) -> int | None:
        """A record start at or after `place`; None if no entry knows of one, or the queue is being cut."""
        if place >= self._walk_from:
            return None
        try:
            return self._at_or_after(place)
        except DataLost:  # a queue file went: the log is cut more coarsely
            return None

    def _at_or_after(self, place: int) -> int | None:
        if not len(self._block) or self._block[-1] < place:
            low, high = self._slot, self._end
            while low < high:
                middle = (low + high) // 2
                if int(self._files.read(middle, middle + 1)["physical_offset"][0]) < place:
                    low = middle + 1
                else:
                    high = middle
            self._slot = low
            if low >= self._end:
                return None
            entries = self._files.read(low, min(low + _BLOCK_ENTRIES, self._end))
            self._block = entries["physical_offset"].astype(np.int64)
        known = self._block[self._block >= place]  # of entries that went since the search nothing is left but zeros
        return int(known[0]) if len(known) else None
