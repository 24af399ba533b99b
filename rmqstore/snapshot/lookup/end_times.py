"""When the oldest and the newest messages were stored: of each queue, and of a part of the commitlog."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import SIMPLE, first_behind
from rmqstore.directory.undispatched import all_runs
from rmqstore.directory.walk import WalkLimits, walk
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.lookup.by_time import stored_time
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

Times = tuple[int | None, int | None]


def queue_span_times(store: StoreExtent, keys: Collection[QueueKey] | None = None) -> dict[QueueKey, Times]:
    """(oldest, newest) store time in ms by topic and queue id, of `keys`, by default of all queues; None where no
    record can be read, or the queue is empty.

    Reads two entries a queue; only messages that are in no entry yet are walked, once for all queues.
    """
    with store.view("auto") as view:
        wanted = store.queues if keys is None else {key: store.queues[key] for key in keys}
        walked = _walked_times(store, view) if any(queue.gap for queue in wanted.values()) else {}
        times = {}
        for key, queue in wanted.items():
            oldest, newest = walked.get(key, (None, None)) if queue.gap else (None, None)
            if queue.entry_end > queue.entry_start:
                first, last = _entry_time(view, queue, queue.entry_start), _entry_time(view, queue, queue.entry_end - 1)
                oldest = min((time for time in (oldest, first) if time is not None), default=None)
                newest = max((time for time in (newest, last) if time is not None), default=None)
            times[key] = oldest, newest
    return times


def newest_time(store: StoreExtent, keys: Iterable[QueueKey]) -> int | None:
    """Store time in ms of the newest message of some queues; None where they have none that can be read.

    Reads one entry a queue and one record; messages that are in no entry yet are walked.  Raises DataLost, OSError.
    """
    queues = {key: store.queues[key] for key in keys}
    with store.view("auto") as view:
        last = [
            int(queue.files.read(queue.entry_end - 1, queue.entry_end)["physical_offset"][0])
            for queue in queues.values()
            if queue.entry_end > queue.entry_start
        ]
        found = [stored_time(view, max(last))] if last else []
        if any(queue.gap for queue in queues.values()):
            found += [newest for key, (_, newest) in _walked_times(store, view).items() if key in queues]
    return max((time for time in found if time is not None), default=None)


def _entry_time(view: LogView, queue: QueueExtent, slot: int) -> int | None:
    return stored_time(view, int(queue.files.read(slot, slot + 1)["physical_offset"][0]))


def _walked_times(store: StoreExtent, view: LogView) -> dict[QueueKey, Times]:
    found: dict[QueueKey, Times] = {}
    limits = WalkLimits(store.walk_from, store.log_end, crc_from=store.log_end, known_end=store.log_end)
    for stretch in walk(view, limits):
        if not isinstance(stretch, Stretch):
            continue
        for run in all_runs(stretch):
            stored = stretch.located.take(run.rows[[0, -1]]).store_timestamp().tolist()
            found[run.key] = found.get(run.key, (stored[0], None))[0], stored[1]
    return found


# Of so many queues, the biggest, the newest entry before a place is looked up; the walk goes on from there.
_QUEUES_ASKED = 16


class LogSpan(NamedTuple):
    """Store times in ms; None where no sound record is."""

    oldest_ms: int | None
    newest_ms: int | None


def log_times(store: StoreExtent) -> LogSpan:
    """Those of the first and the last record of the log.  Reads little: a record, entries, the log's last part."""
    held = [file for file in store.log_files if file.start < store.log_end]
    if not held:
        return LogSpan(None, None)
    with store.view("auto") as view:
        oldest = first_time(view, held[0].start)
        return LogSpan(oldest, last_time(store, view, held[-1].start, store.log_end))


def first_time(view: LogView, start: int) -> int | None:
    """Store time in ms of the record with which the log file that begins at `start` begins; None if it is none."""
    return stored_time(view, start + view.framing(start).gap)


def last_time(store: StoreExtent, view: LogView, start: int, end: int) -> int | None:
    """Store time in ms of the last sound record in [start, end) of the log, where `start` begins one."""
    asked = [queue for queue in store.queues.values() if queue.files.kind == SIMPLE]
    asked = [queue for queue in asked if not is_light_queue(queue.files.topic)]
    asked.sort(key=lambda queue: queue.entry_start - queue.entry_end)
    for queue in asked[:_QUEUES_ASKED]:
        start = max(start, _entry_before(queue, end))
    newest: int | None = None
    for item in walk(view, WalkLimits(start, end, crc_from=end, known_end=end)):
        if isinstance(item, Stretch):
            sound = np.flatnonzero(item.reasons == Reason.SOUND)
            if len(sound):
                newest = int(item.located.store_timestamp()[sound[-1]])
    return newest


def _entry_before(queue: QueueExtent, end: int) -> int:
    """Where in the log the last entry of a queue before `end` points; -1 if there is none."""
    if queue.entry_start >= queue.entry_end:
        return -1
    slot = first_behind(queue.files, queue.entry_start, queue.entry_end, end) - 1
    return int(queue.files.read(slot, slot + 1)["physical_offset"][0]) if slot >= queue.entry_start else -1
