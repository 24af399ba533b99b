"""The entries of queue ranges, from the queue files where they have them, else from the undispatched part of the
log.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore.directory.batch_units import settled, slots_around
from rmqstore.directory.config_files import readers_levels
from rmqstore.directory.deleted_queues import without_deleted
from rmqstore.directory.extension_files import resolve_extensions
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import BATCH, QueueFiles, holds_message, open_queue
from rmqstore.directory.undispatched import FOUND_ENTRY, find_entries
from rmqstore.directory.walk import Break, WalkLimits, walk
from rmqstore.formats.message_columns import Ints, take_rows
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_entry import is_pre_blank
from rmqstore.formats.queue_extension import is_extension_address
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.scan.store_retry import StoreRetry
from rmqstore.snapshot.split import Span, Split

_BLOCK_ENTRIES = 64 * 1024
_NO_SLOT = -2  # beside no slot


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries of one span in order: `entries` has FOUND_ENTRY.dtype; `holes` are the queue offsets nobody knows of."""

    span: Span
    entries: npt.NDArray[np.void]
    holes: Ints


class EntryReader:
    """Reads the entries of a split's spans.  The log is walked only when a queue file has a hole, and once again after
    each look at the store that the hole made necessary.
    """

    def __init__(self, split: Split, view: LogView, look: StoreRetry | None = None) -> None:
        self._split = split
        self._view = view
        self._look = look or StoreRetry(split)
        self._looks_known = self._look.count
        self._queues: dict[tuple[str, int, str], QueueFiles] = {}
        self._found: Mapping[QueueKey, npt.NDArray[np.void]] | None = None
        self.is_damaged = False  # the walk met a place where records may be lost: holes are no wonder then
        self.gone: Break | None = None  # the first place of the walk that no file holds any more

    def runs(self, span: Span, block: int = _BLOCK_ENTRIES) -> Iterator[EntryRun]:
        """The span's entries, at most `block` at a time.

        Where entries are missing and the store was changed meanwhile, the store is looked at again, so that only lost
        messages are holes.  Raises StoreChanging if the queue does not come to rest, DataLost if a log file vanishes.
        """
        _, _, kind, start, end = span
        step = end - start if kind == BATCH else min(block, _BLOCK_ENTRIES)
        low = start
        while low < end:
            run = self._found_run(span, low, min(low + step, end))
            yield run
            low = min(low + step, end)
            if len(run.holes) and kind != BATCH:
                low = self._next_entry(span, low)

    def _next_entry(self, span: Span, low: int) -> int:
        """Where to go on from `low` after a hole was told: a record that lies about its place can make a queue seem
        longer than any, and nobody could step through all the numbers that are not there.
        """
        if low < self._queue(span).written_end():
            return low
        offsets = self._undispatched(span.key)["queue_offset"]
        return int(offsets[offsets >= low].min(initial=span.end))

    def _found_run(self, span: Span, low: int, high: int) -> EntryRun:
        key = span.key
        for attempt in itertools.count():
            run = self._look.asked(lambda: self._run(span, low, high))
            if not len(run.holes) or self._look.is_lost(key, run.holes, attempt):
                return run
        raise AssertionError

    def _run(self, span: Span, low: int, high: int) -> EntryRun:
        queue = self._queue(span)
        return self._batch_run(span, queue) if span.kind == BATCH else self._simple_run(span, queue, low, high)

    def _queue(self, span: Span) -> QueueFiles:
        """The queue's files as they were listed after the last look; what was found in the log before it goes."""
        if self._looks_known != self._look.count:
            self._looks_known, self._found = self._look.count, None
            self._queues.clear()
        key = span[:3]
        if key not in self._queues:
            queue, deleted = open_queue(self._look.queue_disk, self._split.path, *key), self._view.deleted_before
            self._queues[key] = without_deleted(queue, deleted, self._view) if deleted else queue
        return self._queues[key]

    def _simple_run(self, span: Span, queue: QueueFiles, low: int, high: int) -> EntryRun:
        raw = queue.read(low, high)
        entries = np.empty(high - low, FOUND_ENTRY)
        entries["queue_offset"] = np.arange(low, high)
        for name in ("physical_offset", "size", "tags_code"):
            entries[name] = raw[name]
        ends = entries["physical_offset"] + entries["size"]
        good = holds_message(queue.kind, raw) & (ends <= self._split.log_end)
        if is_extension_address(int(entries["tags_code"].min(initial=0))):
            resolve_extensions(self._split.disk, self._split.path, span.key, entries)
        if good.all():
            return EntryRun(span, entries, np.zeros(0, np.int64))
        found = self._undispatched(span.key)
        inside = found[(found["queue_offset"] >= low) & (found["queue_offset"] < high)]
        places = inside["queue_offset"] - low
        fresh = ~good[places]
        entries[places[fresh]] = inside[fresh]
        good[places[fresh]] = True
        holes = entries["queue_offset"][~good & ~is_pre_blank(raw)]
        return EntryRun(span, take_rows(entries, good), holes)

    def _batch_run(self, span: Span, queue: QueueFiles) -> EntryRun:
        start, end = span[3:]
        slots, entries = self._batches(queue, *slots_around(queue, start, end))
        holes = _uncovered(entries, slots, start, end)
        if len(holes):  # a damaged unit may have led the search astray
            slots, entries = self._batches(queue, queue.first_slot(), queue.written_end())
            holes = _uncovered(entries, slots, start, end)
        if len(holes):
            found = self._undispatched(span.key)
            found = found[~np.isin(found["physical_offset"], entries["physical_offset"])]
            entries, slots = np.concatenate((entries, found)), np.concatenate((slots, np.full(len(found), _NO_SLOT)))
            holes = _uncovered(entries, slots, start, end)
        ends = entries["queue_offset"] + entries["count"]
        entries = entries[(entries["queue_offset"] < end) & (ends > start)]
        return EntryRun(span, entries[np.argsort(entries["queue_offset"], kind="stable")], holes)

    def _batches(self, queue: QueueFiles, first: int, last: int) -> tuple[Ints, npt.NDArray[np.void]]:
        """The slots of [first, last) that stand for batches of the log as planned, and FOUND_ENTRY of each."""
        rows, units = settled(queue, queue.read(first, last), self._view)
        whole = units["physical_offset"] + units["size"] <= self._split.log_end
        return rows[whole] + first, _entries_of(units[whole])

    def _undispatched(self, key: QueueKey) -> npt.NDArray[np.void]:
        if self._found is None:
            split = self._split
            ranges = {span.key: (span.start, span.end) for span in split.spans}
            for topic, queue_id, _, start, end in split.spans:
                low, high = ranges[topic, queue_id]
                ranges[topic, queue_id] = min(low, start), max(high, end)
            start = self._look.walk_from
            limits = WalkLimits(start, split.log_end, crc_from=start, known_end=split.log_end, past_gone=True)
            self._found = {}
            if start < split.log_end:
                levels = readers_levels(split.disk, split.path)
                self._found = find_entries(self._stretches(limits), ranges, levels)
        return self._found.get(key, np.zeros(0, FOUND_ENTRY))

    def _stretches(self, limits: WalkLimits) -> Iterator[Stretch]:
        for item in walk(self._view, limits):
            if isinstance(item, Stretch):
                self.is_damaged |= bool((item.reasons != Reason.SOUND).any())
                yield item
            elif item.is_missing:
                self.gone = self.gone or item
            else:
                self.is_damaged = True


def _entries_of(units: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """FOUND_ENTRY of units of a batch queue."""
    entries = np.empty(len(units), FOUND_ENTRY)
    entries["queue_offset"], entries["count"] = units["base_queue_offset"], units["message_count"]
    for name in ("physical_offset", "size", "tags_code"):
        entries[name] = units[name]
    return entries


def _uncovered(batches: npt.NDArray[np.void], slots: Ints, start: int, end: int) -> Ints:
    """The queue offsets of [start, end) that no batch has, int64[m]; `batches` (FOUND_ENTRY, n) are in any order.

    Between units that stand side by side (`slots` int64[n]) there is none: a message got no unit (in RocketMQ one with
    an INNER_NUM below 0), and a reader that follows the units passes over its number.
    """
    order = np.argsort(batches["queue_offset"], kind="stable")
    bases, slots = batches["queue_offset"][order], slots[order]
    reached = np.concatenate(([start], np.maximum.accumulate(bases + batches["count"][order])))
    lows, highs = np.maximum(reached, start), np.minimum(np.concatenate((bases, [end])), end)
    lost = lows < highs
    lost[1:-1] &= slots[1:] != slots[:-1] + 1
    parts = [np.arange(low, high) for low, high in zip(lows[lost].tolist(), highs[lost].tolist(), strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *parts])
