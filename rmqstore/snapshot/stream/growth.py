"""A live store read on from where it was looked at last, without a survey."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import SIMPLE
from rmqstore.directory.walk import Break, WalkLimits, walk
from rmqstore.files.disk import StoredFile
from rmqstore.formats.names import NOWHERE, QueueKey, is_light_queue
from rmqstore.formats.record_chain import lacks_end
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

if TYPE_CHECKING:
    from rmqstore.records.queue_runs import QueueRun

# A store that grew by more is surveyed: queue entries tell faster than records what there is.
_GROWTH_BYTES_MAX = 16 * 1024 * 1024


def read_on(growth: "Growth", files: tuple[StoredFile, ...], *, is_partial: bool = False) -> StoreExtent | None:
    """The store with what is whole at or after the place where the growth begins.

    Where only a survey can tell what there is: None, or, if it may be `is_partial`, what was found before.  Raises
    DataLost.
    """
    store, start = growth.store, growth.start
    end = files[-1].end if files else 0
    with LogView(store.disk, files, 0, end, store.deleted_before, own_bases=store.own_bases) as view:
        if store.queue_layout != "file":  # in files their entries tell of growth
            view.light_from = store.light_from
        for item in walk(view, WalkLimits(start, view.end, crc_from=start)):
            if isinstance(item, Break):
                is_end = item.resume is None
            elif growth.take(item):
                continue
            else:
                is_end = False
            if not is_end and not is_partial:
                return None
            break
    return growth.result(files)


class Growth:
    """Queues of `store` that grow by the records of stretches of the log from `start` on, where a record begins and
    before which each is counted, as long as each record follows the one before it."""

    def __init__(self, store: StoreExtent, start: int, *, is_partial: bool = False) -> None:
        self.store, self.start = store, start
        self._is_partial = is_partial
        self._queues: dict[QueueKey, QueueExtent] = {}
        self._end = start
        self._is_torn = False
        self.begun_again: set[QueueKey] = set()  # queues that had messages: their topic was deleted and made again

    def take(self, stretch: Stretch) -> bool:
        """Counts the sound records up to the first that is not; False, and none counted, if that is not enough to know
        what there is.
        """
        if self._is_torn:
            return False  # something follows what is not whole
        reasons = stretch.reasons.copy()
        if lacks_end(stretch.located):
            reasons[-1] = Reason.NOT_WHOLE
        bad = np.flatnonzero(reasons != Reason.SOUND)
        if len(bad):
            self._is_torn = True
            if (reasons[bad[0] :] == Reason.SOUND).any() and not self._is_partial:
                return False
            good = np.arange(len(reasons)) < bad[0]
            stretch = replace(stretch, reasons=reasons).take(good)
        if not len(stretch.offsets):
            return True
        end = int(stretch.offsets[-1] + stretch.located.total_size[-1])
        from rmqstore.directory.undispatched import all_runs  # noqa: PLC0415  where a log grew

        grown = [self._grown(run, stretch) for run in all_runs(stretch)]
        known = [queue for queue in grown if queue is not None]
        if end - self.start > _GROWTH_BYTES_MAX or len(known) < len(grown):
            return False
        self._queues |= {queue.key: queue for queue in known}
        self._end = end
        return True

    def _grown(self, run: "QueueRun", stretch: Stretch) -> QueueExtent | None:
        """The queue of a run with its records; None if they do not follow what is known of it."""
        queue = self._queues.get(run.key) or self.store.queues.get(run.key)
        has_entries_alone = is_light_queue(run.key[0]) and stretch.light_from == NOWHERE
        if queue is None or run.are_inner.any() or queue.files.kind != SIMPLE or has_entries_alone:
            return None
        fresh = run.queue_offsets >= queue.max_offset
        uncounted = stretch.offsets[run.rows] >= self.store.log_end
        if (uncounted & ~fresh).any():
            if (run.queue_offsets[uncounted] == 0).any():
                self.begun_again.add(run.key)
            return None
        offsets = run.queue_offsets[fresh]
        end = queue.max_offset + len(offsets)
        if not np.array_equal(offsets, np.arange(queue.max_offset, end)):
            return None
        if not len(offsets):
            return queue
        low, high = queue.gap or (queue.max_offset, queue.max_offset)
        size = queue.gap_bytes + int(stretch.located.total_size[run.rows[fresh]].sum())
        return replace(queue, max_offset=end, gap=(low, max(high, end)), gap_bytes=size)

    def result(self, files: tuple[StoredFile, ...]) -> StoreExtent:
        """The grown store, the same object if it did not grow."""
        end = max(self._end, self.store.log_end)
        if end == self.store.log_end and not self._queues and len(files) == len(self.store.log_files):
            return self.store
        queues = {**self.store.queues, **self._queues}
        return replace(self.store, log_files=files, log_end=end, queues=queues, tail=None)
