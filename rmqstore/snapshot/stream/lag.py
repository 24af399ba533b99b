"""Messages between two queue offsets: bytes message by message, what of them is lost, how far a reader is behind."""

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmqstore.directory.queue_files import BATCH, SIMPLE, first_behind
from rmqstore.errors import DataLost, StoreChanging
from rmqstore.formats.message_columns import Ints
from rmqstore.snapshot.lookup.by_time import stored_time
from rmqstore.snapshot.request import Place
from rmqstore.snapshot.stream.offsets import METRICS
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

_BLOCK_ENTRIES = 4096
_SAMPLE_ENTRIES = 64
_MEAN_SIZE = 256.0

Queues = Mapping[Place, tuple[StoreExtent, QueueExtent]]


@dataclass(frozen=True, slots=True)
class LostRange:
    """Queue offsets [low, high) that were asked for and are not there.  `is_other_log`: their queue ends before them,
    and so is another one, or not all of the one, that they were known of."""

    low: int
    high: int
    path: str
    reason: str
    is_other_log: bool = False


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a reader is behind: messages, about how many bytes of records, and ms between the store times of the
    oldest message that it has not read and the newest.
    """

    messages: int = 0
    size: int = 0
    ms: int = 0


def message_sizes(store: StoreExtent, queue: QueueExtent, start: int, end: int) -> Iterator[Ints]:
    """The bytes of the record of each message of [start, end), in order, in blocks: int64[n].

    An offset without a message takes none; an inner batch counts where its first wanted message stands.  Entries of
    the log alone are found by walking it.  Raises DataLost if a file of the log vanishes meanwhile, StoreChanging where
    the queue does not come to rest.
    """
    from rmqstore.snapshot.scan.entry_runs import EntryReader  # noqa: PLC0415  where bytes are counted

    with store.view("auto") as view:
        split = store.split([queue.span(start, end)])
        if queue.files.kind == BATCH:
            for run in EntryReader(split, view).runs(split.spans[0]):
                places = np.maximum(run.entries["queue_offset"], start) - start
                sizes = np.zeros(end - start, np.int64)
                inside = places < end - start
                np.add.at(sizes, places[inside], run.entries["size"][inside])
                yield sizes
            return
        reader = EntryReader(split, view)
        for low in range(start, end, _BLOCK_ENTRIES):
            high = min(low + _BLOCK_ENTRIES, end)
            sizes = np.zeros(high - low, np.int64)
            for run in reader.runs(queue.span(low, high)):
                sizes[run.entries["queue_offset"] - low] = run.entries["size"]
            yield sizes


def about_bytes(queue: QueueExtent, start: int, end: int) -> int:
    """About how many bytes of records [start, end) has, by a sample of entries at both ends and in the middle."""
    files = queue.files
    low, high = max(queue.entry_start, start), min(queue.entry_end, end)
    if files.kind != SIMPLE:
        low, high = queue.entry_start, queue.entry_end
    sizes: list[int] = []
    for place in sorted({low, (low + high) // 2, max(high - _SAMPLE_ENTRIES, low)}) if high > low else ():
        entries = files.read(place, min(place + _SAMPLE_ENTRIES, high))
        sizes += [size for size in entries["size"].tolist() if 0 < size < 2**30]
    if sizes:
        mean = sum(sizes) / len(sizes)
    elif queue.gap and queue.gap[1] > queue.gap[0]:
        mean = queue.gap_bytes / (queue.gap[1] - queue.gap[0])
    else:
        mean = _MEAN_SIZE
    return int(mean * max(end - start, 0))


def lost_ranges(store: StoreExtent, queue: QueueExtent, start: int, end: int) -> list[LostRange]:
    """The parts of [start, end) that the store does not hold, in order: older than its oldest message, in a commitlog
    file that is missing between others, after its newest message.
    """
    if start >= end:
        return []
    path = queue.files.directory
    low, high = min(max(start, queue.min_offset), end), max(min(end, queue.max_offset), start)
    lost = []
    if start < low:
        lost.append(LostRange(start, low, path, "older messages were deleted before the stream had read them"))
    if low < high:
        lost += _in_missing_files(store, queue, low, high)
    if high < end:
        reason = "the queue ends before where the stream had been: the store was cut or made again"
        lost.append(LostRange(max(high, low), end, path, reason, is_other_log=True))
    return lost


def _in_missing_files(store: StoreExtent, queue: QueueExtent, start: int, end: int) -> list[LostRange]:
    low, high = max(start, queue.entry_start), min(end, queue.entry_end)
    lost: list[LostRange] = []
    if queue.files.kind != SIMPLE or low >= high:
        return lost
    for file, following in itertools.pairwise(store.log_files):
        if file.end < following.start:
            first = first_behind(queue.files, low, high, file.end)
            last = first_behind(queue.files, low, high, following.start)
            if first < last:
                lost.append(LostRange(first, last, file.path, "the commitlog file after this one is missing"))
    return lost


def lag_behind(queues: Queues, positions: Mapping[Place, int]) -> Lag:
    """How far a reader that stands at `positions` is behind the ends of `queues`; others it reads from the beginning.

    Where files vanish while this looks, what can be seen counts.
    """
    messages = size = 0
    oldest: dict[str, tuple[int, StoreExtent]] = {}
    newest: dict[str, tuple[int, StoreExtent]] = {}
    for place, (store, queue) in queues.items():
        position = max(positions.get(place, 0), queue.min_offset)
        if position >= queue.max_offset:
            continue
        messages += queue.max_offset - position
        try:
            size += about_bytes(queue, position, queue.max_offset)
            first = _log_offset(store, queue, position)
            last = _log_offset(store, queue, queue.max_offset - 1)
        except (DataLost, StoreChanging):
            continue
        if first is not None and first < oldest.get(store.path, (first + 1, store))[0]:
            oldest[store.path] = first, store
        if last is not None and last > newest.get(store.path, (-1, store))[0]:
            newest[store.path] = last, store
    # Offsets of one log rise with time, so that one record a store answers for all of its queues.
    times = [_time_of(*found) for found in oldest.values()], [_time_of(*found) for found in newest.values()]
    began = [time_ms for time_ms in times[0] if time_ms is not None]
    ended = [time_ms for time_ms in times[1] if time_ms is not None]
    return Lag(messages, size, max(max(ended) - min(began), 0) if began and ended else 0)


def _log_offset(store: StoreExtent, queue: QueueExtent, queue_offset: int) -> int | None:
    """Where in the log a message stands."""
    if queue.files.kind == SIMPLE and queue.entry_start <= queue_offset < queue.entry_end:
        entry = queue.files.read(queue_offset, queue_offset + 1)
        return int(entry["physical_offset"][0]) if entry["size"][0] > 0 else None
    from rmqstore.snapshot.scan.entry_runs import EntryReader  # noqa: PLC0415  where the queue has no entry

    split = store.split([queue.span(queue_offset, queue_offset + 1)])
    with store.view("auto") as view:
        for run in EntryReader(split, view).runs(split.spans[0]):
            if len(run.entries):
                return int(run.entries["physical_offset"][0])
    return None


def _time_of(offset: int, store: StoreExtent) -> int | None:
    try:
        with store.view("auto") as view:
            return stored_time(view, offset)
    except DataLost:
        return None


# Of several streams' lags these are added up.
_SUMS = ("lagMessages", "lagBytes", "skippedMessages")


def stream_lag(progress: Any) -> dict[str, int] | None:
    """How far a stream was behind after a batch: `lagMessages`, `lagBytes`, `lagMs` (between the store times of the
    oldest message that was not read and the newest), and `skippedMessages` of this run.

    `progress` is a StreamingQueryProgress, as `query.lastProgress`, the JSON of one, or what is parsed of it.  Several
    sources of stores are added up; of `lagMs` the largest counts.  None where the progress does not tell: no batch yet,
    the first batch after a restart, which the run before has planned, and PySpark before 4.2.
    """
    told = progress if isinstance(progress, Mapping | str | None) else progress.json
    parsed = json.loads(told) if isinstance(told, str) else told or {}
    ends = [_parsed(source.get("latestOffset")) for source in parsed.get("sources", ())]
    lags = [end[METRICS] for end in ends if isinstance(end, Mapping) and METRICS in end]
    if not lags:
        return None
    return {"lagMs": max(lag["lagMs"] for lag in lags)} | {name: sum(lag[name] for lag in lags) for name in _SUMS}


def _parsed(offset: Any) -> Any:
    """An offset of any source, which need not be JSON."""
    with suppress(ValueError):
        return json.loads(offset) if isinstance(offset, str) else offset
    return None
