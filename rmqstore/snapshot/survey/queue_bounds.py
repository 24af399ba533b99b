"""The bounds of every queue as RocketMQ answers them: its entries that count, joined with what only the log holds."""

from collections.abc import Iterator, Mapping

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import batch_begin, batch_end, unwritten_before
from rmqstore.directory.queue_files import BATCH, QueueFiles, is_valid_entry
from rmqstore.errors import StoreChanging
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey
from rmqstore.snapshot.survey.census import Census
from rmqstore.snapshot.survey.extents import QueueExtent
from rmqstore.snapshot.survey.queue_entries import QueueEntries, SmallQueues, first_kept

_TAIL_ENTRIES = 1024


def queue_extents(
    root: str, entries: QueueEntries, census: Census, log_end: int, view: LogView
) -> dict[QueueKey, QueueExtent]:
    """All queues by topic and queue id, those without files too.  Entries at the end that point past the log's end, or
    back, do not count, but those that the walk found records for (`census.held`) do.  Raises DataLost, StoreChanging.
    """
    held = census.held
    result = dict(_small_extents(entries.small, held, log_end, view.start))
    for key, queue in entries.queues.items():
        if key not in result:
            result[key] = _entry_extent(queue, (entries.ends[key], held.get(key, 0)), log_end, view)
    for key, gap in census.gaps.items():
        known = result.get(key)
        if known is None or known.max_offset == known.min_offset == known.entry_end == 0:
            files = entries.queues.get(key, QueueFiles(root, key[0], key[1], gap.kind, (), view.disk))
            known = QueueExtent(files, gap.low, gap.high, 0, 0, None)
        low = min(known.min_offset, gap.low) if known.max_offset > known.min_offset else gap.low
        result[key] = QueueExtent(
            known.files, low, max(known.max_offset, gap.high), known.entry_start, known.entry_end,
            (gap.low, gap.high), gap.byte_count, known.mean_size,
        )  # fmt: skip
    return dict(sorted(result.items()))


def _small_extents(
    small: SmallQueues, held: Mapping[QueueKey, int], log_end: int, log_start: int
) -> Iterator[tuple[QueueKey, QueueExtent]]:
    """The bounds of small queues, but for those that grew since they were read."""
    rows = np.arange(len(small.offsets))
    kept = small.offsets >= log_start
    is_whole = small.offsets + small.sizes <= log_end
    firsts = small.edges[:-1]
    ends = _highest(np.where(is_whole, rows + 1, 0), small.edges, firsts)
    starts = firsts + _sums(~kept, small.edges)
    sizes, counts = _sums(small.sizes, small.edges), np.maximum(np.diff(small.edges), 1)
    slots = [small.firsts + part - firsts for part in (starts, ends)]
    numbers = zip(*(each.tolist() for each in (*slots, small.ends, sizes / counts)), strict=True)
    for queue, (first_kept_slot, last_good, read_end, mean_size) in zip(small.queues, numbers, strict=True):
        key = queue.topic, queue.queue_id
        if held.get(key, 0) <= read_end:
            end = max(last_good, held.get(key, 0))
            start = min(first_kept_slot, end)
            yield key, QueueExtent(queue, start, end, start, end, None, 0, mean_size)


def _sums(values: np.ndarray, edges: Ints) -> Ints:
    """The sum of each part of `values` that `edges` cut."""
    sums = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    return np.asarray(sums[edges[1:]] - sums[edges[:-1]])


def _highest(values: Ints, edges: Ints, least: Ints) -> Ints:
    """The highest of each part of `values` that `edges` cut, not below `least`."""
    result = least.copy()
    filled = edges[1:] > edges[:-1]
    if filled.any():
        result[filled] = np.maximum(np.maximum.reduceat(values, edges[:-1][filled]), least[filled])
    return result


def _entry_extent(queue: QueueFiles, ends: tuple[int, int], log_end: int, view: LogView) -> QueueExtent:
    """Bounds by the entries alone: `ends` are the end of the entries, and the end of those that the walk found records
    for.
    """
    first = queue.first_slot()
    end, held = max(ends), ends[1]
    while end > first:
        low = max(end - _TAIL_ENTRIES, first)
        entries = queue.read(low, end)
        offsets = entries["physical_offset"].astype(np.int64)
        good = is_valid_entry(queue.kind, entries)
        if low < ends[0] <= end and not good[ends[0] - 1 - low]:
            raise StoreChanging(queue.directory, "its last entry went")
        good &= offsets + entries["size"] <= log_end
        rising = np.maximum.accumulate(np.where(good, offsets, -1))
        good[1:] &= offsets[1:] > rising[:-1]
        bad_tail = int(np.argmax(good[::-1])) if good.any() else len(good)
        end -= bad_tail
        if good.any():
            break
    end = max(end, held)
    start = first_kept(queue, first, end, view.start)
    bound = batch_end(queue, end, view) if queue.kind == BATCH else end
    if start >= end:
        return QueueExtent(queue, bound, bound, end, end, None)
    if queue.kind == BATCH:
        return QueueExtent(queue, min(batch_begin(queue, start, end, view), bound), bound, start, end, None)
    low = start
    if start > first and int(queue.read(start, start + 1)["physical_offset"][0]) > view.start:
        low = unwritten_before(queue, start)  # RocketMQ leaves no zeros there: entries that are gone
    return QueueExtent(queue, low, end, start, end, None)
