"""When the oldest and the newest message of each queue were stored."""

from collections.abc import Collection, Iterable

from rmqstore.directory.log_files import LogView
from rmqstore.directory.undispatched import all_runs
from rmqstore.directory.walk import WalkLimits, walk
from rmqstore.formats.names import QueueKey
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
