"""The batch queues along the scan of a recovery: which units stay, and what the queues hold then.

Units name their own queue offsets, so a hole in them shifts nothing; what counts is that each record has its unit.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.directory.log_coverage import is_deleted_topic, oldest_message, queue_rows
from rmqstore.directory.queue_files import BATCH, queue_directory
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.engine.log.recovery.outcome import has_rest
from rmqstore.engine.log.recovery.plan import PlannedFile, PlannedQueue
from rmqstore.formats import message
from rmqstore.formats.inner_batch import inner_batch_rows, numbers_said
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import units_of

# A queue that was made again begins with 0, or with 1 where its topic was deleted while a message was put.
_FIRST_BASE_MAX = 1
_FIELDS = ("physical_offset", "size", "base_queue_offset", "message_count")


class _Unit(NamedTuple):
    """The numbers of a unit: its record's offset in the log and size in bytes, its first queue offset, how many
    messages it has.
    """

    place: int
    size: int
    base: int
    message_count: int


@dataclass(slots=True)
class BatchTrack:
    """One queue along the scan: the units below slot `kept` stay, `next` is the queue offset after the records seen.

    `slot` is that of the unit which the next record should have; None once units are to be written again.  Records
    before `begin` of the log belong to an older queue of its name, and so do those before `oldest`, where its very
    first message stands; `restart` is the queue offset at which it begins again where no unit stays.  `opens` is where
    the first unit's record stands, where no unit is before the scan.
    """

    key: QueueKey
    kept: int
    slot: int | None
    next: int
    opens: int | None = None
    oldest: int = -1
    begin: int = 0
    restart: int | None = None
    first_missing: int | None = None
    has_hole: bool = False


@dataclass(slots=True)
class BatchScan:
    """Follows the records of batch queues in a scan of the log from `start` on; `compare` and `begins_with_log` as in
    QueueScan.  `claimed` are topics that no table names and that were taken for plain, with records of inner batches.
    """

    store: StoreView
    start: int
    compare: bool
    begins_with_log: bool
    tracks: dict[QueueKey, BatchTrack] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)

    def add(self, batch: RecordBatch) -> None:
        """Takes the next records of the log."""
        plain, rows = queue_rows(self.store, batch)
        self._claim(batch, plain)
        if not len(rows):
            return
        for key, units in units_of(batch, rows):
            track = self.tracks.get(key)
            if track is None:
                track = self.tracks[key] = self._track(key)
            self._take_all(track, units)

    def _claim(self, batch: RecordBatch, plain: npt.NDArray[np.intp]) -> None:
        """Notes topics of inner batches among those that nothing else says to have batch queues."""
        numbers = batch.numbers
        if not numbers.are_said.any():
            return
        inner = inner_batch_rows(batch.located, numbers)
        topics, topic_numbers = batch.topics
        known = self.store.known_topics or ()
        self.claimed |= {topics[number] for number in topic_numbers[plain[inner[plain]]].tolist()}.difference(known)

    def _take_all(self, track: BatchTrack, units: npt.NDArray[np.void]) -> None:
        """Takes the next units that a queue should have: runs at once, where one begins or ends by itself."""
        units = units[units["physical_offset"] >= track.oldest]
        columns = [units[name].tolist() for name in _FIELDS]
        bases = units["base_queue_offset"].astype(np.int64)
        ends = bases + units["message_count"]
        broken = np.flatnonzero(bases[1:] < ends[:-1]) + 1
        row = self._held(track, units, ends)
        while row < len(units):
            self._take(track, _Unit(*(column[row] for column in columns)))
            row += 1
            if track.slot is None and track.first_missing is not None and row < len(units) and bases[row] >= track.next:
                later = broken[np.searchsorted(broken, row, side="right") :]
                row = int(later[0]) if len(later) else len(units)
                track.next = int(ends[row - 1])

    def _held(self, track: BatchTrack, units: npt.NDArray[np.void], ends: Ints) -> int:
        """How many of the units, from the first on, the queue has in their places."""
        if track.slot is None:
            return 0
        present = self.store.batch_queues[track.key].read(track.slot, track.slot + len(units))
        same = np.ones(len(present), bool)
        for name in _FIELDS:
            same &= present[name] == units[name][: len(present)]
        count = int(np.argmin(same)) if not same.all() else len(present)
        if count:
            track.slot = track.kept = track.slot + count
            track.next = int(ends[count - 1])
        return count

    def finish(self) -> None:
        """Looks at the queues that had no record; then `tracks` is whole."""
        for key in self.store.batch_queues:
            if key not in self.tracks and (track := self._track(key)).has_hole:
                self.tracks[key] = track

    def kept_of(self, queue: QueueView, log_end: int) -> int:
        """The slot before which the units of a queue that has some stay."""
        track, kept = self.tracks.get(queue.key), queue.slot_at(log_end if self.compare else self.start)
        return min(kept, track.kept) if track is not None and track.slot is None else kept

    def _track(self, key: QueueKey) -> BatchTrack:
        queue = self.store.batch_queues.get(key)
        if queue is None or queue.end <= queue.first:
            return BatchTrack(key, 0, None, 0)
        kept = queue.slot_at(self.start)
        track = BatchTrack(key, kept, kept if self.compare else None, _end_of(queue, kept))
        if kept == queue.first:
            track.opens = _unit_at(queue, kept).place
            track.oldest = oldest_message(self.store.log, queue) if self.compare else -1
        else:
            track.has_hole = _is_contradicted(self.store, queue, kept - 1)
        return track

    def _take(self, track: BatchTrack, unit: _Unit) -> None:
        offset, _, base, count = unit
        if offset == track.opens:
            track.next = base  # the record's word, as the unit may be damaged
        if track.slot is not None:
            queue = self.store.batch_queues[track.key]
            if _unit_at(queue, track.slot) == unit:
                track.slot += 1
                track.kept = track.slot
                track.next = base + count
                return
            if track.slot == queue.first and offset < _unit_at(queue, track.slot).place and base < track.next:
                if _unit_at(queue, track.slot).base <= _FIRST_BASE_MAX:
                    return  # of an older queue of that name
                track.next = base  # the queue's first files are lost
            track.slot = None
        if base < track.next and self._is_taken_wrongly(track, base):
            track.kept, track.next = track.kept - 1, base
        elif base < track.next:
            if base:
                return  # the queue has these numbers already; what comes first has the place
            track.kept, track.begin, track.first_missing, track.next = 0, offset, None, 0
        elif base > track.next and track.first_missing is None and not self.begins_with_log:
            track.has_hole |= not is_deleted_topic(self.store, track.key[0])
        if track.first_missing is None:
            track.first_missing = offset
            track.restart = base
        track.next = base + count

    def _is_taken_wrongly(self, track: BatchTrack, base: int) -> bool:
        """Whether the last unit that stays has a record's number, and leads to no record that has it."""
        queue = self.store.batch_queues.get(track.key)
        if queue is None or track.first_missing is not None or track.kept <= queue.first:
            return False
        unit = _unit_at(queue, track.kept - 1)
        if unit.base != base:
            return False
        record = _record_of(self.store, queue, unit.place)
        return record is None or record.queue_offset != base


def _unit_at(queue: QueueView, slot: int) -> _Unit:
    units = queue.read(slot, slot + 1)
    if not len(units):
        return _Unit(-1, 0, 0, 0)
    place, size, _, _, base, message_count, _, _ = units[0].tolist()
    return _Unit(place, size, base, message_count)


def _is_contradicted(store: StoreView, queue: QueueView, slot: int) -> bool:
    """Whether the record that a unit points at has other numbers: then the unit is damaged, and has to be written
    again, as everything after it goes by it.
    """
    place, _, base, count = _unit_at(queue, slot)
    record = _record_of(store, queue, place)
    return record is not None and numbers_said(record, base, count) not in (None, (base, count))


def _record_of(store: StoreView, queue: QueueView, place: int) -> message.Record | None:
    """The record of a queue that stands at a place of the log; None if none does."""
    found = store.log.record_at(place) if place >= store.log.start else None
    if found is None:
        return None
    record = message.read_record(memoryview(found.located.page), int(found.located.starts[0]))
    if not isinstance(record, message.Record) or (record.topic.decode(errors="replace"), record.queue_id) != queue.key:
        return None
    return record


def _end_of(queue: QueueView, slot: int) -> int:
    """The queue offset after the units below a slot; that of the first one where there are none."""
    if slot > queue.first:
        last = _unit_at(queue, slot - 1)
        return last.base + last.message_count
    return _unit_at(queue, slot).base


def planned_batch_queues(store: StoreView, scan: BatchScan, log_end: int) -> tuple[PlannedQueue, ...]:
    """Every queue of batches that has files or records, by name: what stays of it, and what it holds then."""
    planned = []
    for key in sorted({*store.batch_queues, *scan.tracks}):
        queue, track = store.batch_queues.get(key), scan.tracks.get(key)
        if queue is None:
            assert track is not None
            directory = queue_directory(store.root, key, BATCH)
            planned.append(PlannedQueue(*key, directory, 0, None, track.begin, track.restart or 0, track.next))
            continue
        kept = scan.kept_of(queue, log_end)
        planned.append(_planned(store, queue, track, kept if kept > queue.first else None))
    return tuple(planned)


def _planned(store: StoreView, queue: QueueView, track: BatchTrack | None, keep: int | None) -> PlannedQueue:
    removed = tuple(PlannedFile(file.path, why) for file, why in queue.bad_files)
    following = _end_of(queue, keep) if keep is not None else 0
    low = following
    if keep is not None:
        slot = queue.slot_at(store.log.start)
        low = _unit_at(queue, slot).base if slot < keep else following
    if track is not None and track.first_missing is not None:
        following = track.next
        if keep is None:
            low = track.restart or 0
    must_cut = bool(queue.files) and (keep is None or queue.end > keep)
    must_cut = must_cut or (store.abort_present and keep is not None and has_rest(queue, keep))
    begin = 0 if track is None else track.begin
    return PlannedQueue(
        queue.topic, queue.queue_id, queue.directory, queue.end, keep, begin, low, following, removed, must_cut
    )
