"""When the first and the last message of a part of the commitlog were stored."""

from typing import NamedTuple

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import SIMPLE, first_behind
from rmqstore.directory.walk import WalkLimits, walk
from rmqstore.formats.names import is_light_queue
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.lookup.by_time import stored_time
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

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
