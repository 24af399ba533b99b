"""The consume queues along the scan of a recovery: which entries stay, and where records contradict each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.directory.log_coverage import first_entry, is_deleted_topic, oldest_message, queue_rows
from rmqstore.directory.queue_files import leading_blanks
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.engine.log.recovery.queue_states import Contradiction, QueueTrack, Run, ScanFacts, State
from rmqstore.formats import names
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_entry import QUEUE_ENTRY, is_pre_blank, is_valid, read_entries, scattered_entries
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import Rows, distinct_queues
from rmqstore.records.light_queues import in_log_order, light_entries, names_light_queues

# More records with numbers that other ones have tell nothing: RocketMQ makes many of them at a time.
SECOND_NUMBERS_MAX = 64
# Records that are looked at together: with thousands of queues each look has its price.
_BLOCK_COUNT = 128 * 1024


@dataclass(slots=True)
class QueueScan:
    """Follows the records of a scan of the log from `start` on, queue by queue.

    With `compare`, a record that its queue's entry points at is held, and what follows the first that is not is to be
    written again; without, all entries from `start` on are.  `begins_with_log`: the scan does, so
    that nothing older can be found.  Give it batches, then `finish`.
    """

    store: StoreView
    start: int
    compare: bool
    begins_with_log: bool
    tracks: dict[QueueKey, QueueTrack] = field(default_factory=dict)
    contradictions: list[Contradiction] = field(default_factory=list)
    unfit_topics: set[str] = field(default_factory=set)  # no queue can have these names
    seconds: list[int] = field(default_factory=list)  # where records stand whose numbers other ones have
    names_light: bool = False  # whether records name light queues, which all are lost, with all other entries
    _blocks: list[tuple[Ints, Ints, Ints, Ints]] = field(default_factory=list)
    _block_count: int = 0
    _numbers: dict[QueueKey, int] = field(default_factory=dict)
    _keys: list[QueueKey] = field(default_factory=list)

    @property
    def _facts(self) -> ScanFacts:
        return ScanFacts(self.compare, self.begins_with_log, self.begins_with_log and self.store.log.start == 0)

    @property
    def _may_lack_light(self) -> bool:
        """Whether records alone tell of light queues, as to a reader: nothing has an entry."""
        return not self.store.kinds.multi_dispatch and not any(queue.end for queue in self.store.queues.values())

    @property
    def restarts(self) -> dict[QueueKey, int]:
        """The queues whose first message, by their files and its record, stands behind older records of theirs, with
        its place in the log.
        """
        tracks = self.tracks.items()
        return {key: track.made_again_at for key, track in tracks if track.made_again_at is not None}

    @property
    def repeating(self) -> list[QueueKey]:
        """The queues of which some records say numbers that older ones have."""
        return [key for key, track in self.tracks.items() if track.repeats]

    def add(self, batch: RecordBatch) -> None:
        """Takes the next records of the log."""
        if self._may_lack_light and not self.names_light:
            self.names_light = names_light_queues(batch)
        for part in in_log_order(batch) if self.store.kinds.multi_dispatch else (batch,):
            self._add(part)
        if self._block_count >= _BLOCK_COUNT:
            self._look()

    def _add(self, batch: RecordBatch) -> None:
        plain, whole = queue_rows(self.store, batch)
        for row in (each for rows in (plain, whole) for each in rows[batch.queue_ids[rows] < 0][:1].tolist()):
            key = batch.topics[0][batch.topics[1][row]], int(batch.queue_ids[row])
            lie = Contradiction(int(batch.offsets[row]), key, int(batch.queue_offsets[row]), 0, is_lie=True)
            self.contradictions.append(lie)
        rows = self._fit(batch, plain[batch.queue_ids[plain] >= 0])
        if len(rows):
            topics, topic_numbers = batch.topics
            pairs, places = distinct_queues(topic_numbers[rows], batch.queue_ids[rows])
            numbers = np.array([self._number_of((topics[topic], queue_id)) for topic, queue_id in pairs], np.int64)
            self._blocks.append((numbers[places], batch.queue_offsets[rows], batch.offsets[rows], batch.sizes[rows]))
            self._block_count += len(rows)
        if self.store.kinds.multi_dispatch:
            for key, listed in light_entries(batch).items():
                kept = batch.offsets[listed[0]] >= self.store.deleted_before.get(key[0], 0)
                places, queue_offsets = (column[kept] for column in listed)
                if not len(places):
                    continue
                numbers = np.full(len(places), self._number_of(key))
                self._blocks.append((numbers, queue_offsets, batch.offsets[places], batch.sizes[places]))
                self._block_count += len(places)

    def finish(self) -> None:
        """Takes in what is left; then `tracks` and `contradictions` are whole."""
        self._look()
        for track in self.tracks.values():
            self._cut_strange(track)
            self.contradictions += track.finish(self._facts)
            if (left := track.left_out) and not self._is_backed(track):
                self.contradictions += track.doubt_entries(left, self._facts)
        self.contradictions.sort(key=lambda found: found.offset)

    def _cut_strange(self, track: QueueTrack) -> None:
        """Entries after that of the last record go, where they lead to older records: a file of theirs is not the
        queue's, or stands at another place in it.
        """
        if track.rewriting or track.newest is None:
            return
        queue, (slot, place) = self.store.queues[track.key], track.newest
        if slot + 1 < queue.end:
            entries = _entries_at(queue, np.array([slot + 1, queue.end - 1]))
            if (entries["physical_offset"] < place).any():
                track.cut(slot + 1)

    def _is_backed(self, track: QueueTrack) -> bool:
        """Whether the last entry that stays of a queue leads to its own record."""
        assert track.kept is not None
        last = track.kept - 1
        place = int(_entries_at(self.store.queues[track.key], np.array([last]))["physical_offset"][0])
        record = self.store.log.record_at(place)
        if record is None:
            return False
        said = record.topics[0][0], int(record.queue_ids[0]), int(record.queue_offsets[0])
        return said == (*track.key, last) or track.key in light_entries(record)

    def _fit(self, batch: RecordBatch, rows: Rows) -> Rows:
        """The rows whose topics can have queues; the others' are noted."""
        topics, numbers = batch.topics
        unfit = [number for number, topic in enumerate(topics) if not names.is_directory_name(topic)]
        if not unfit:
            return rows
        self.unfit_topics.update(topics[number] for number in unfit)
        return rows[~np.isin(numbers[rows], unfit)]

    def _number_of(self, key: QueueKey) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return self._numbers[key]

    def _look(self) -> None:
        """Goes through the records collected, queue by queue, in runs of consecutive queue offsets."""
        if not self._blocks:
            return
        numbers, says, offsets, sizes = (np.concatenate(column) for column in zip(*self._blocks, strict=True))
        self._blocks, self._block_count = [], 0
        # numpy sorts 16 bits by radix
        order = np.argsort(numbers.astype(np.uint16) if len(self._keys) < 2**16 else numbers, kind="stable")
        numbers, says, offsets, sizes = (column[order] for column in (numbers, says, offsets, sizes))
        firsts = np.concatenate(([0], np.flatnonzero(np.diff(numbers)) + 1))
        keys = [self._keys[number] for number in numbers[firsts].tolist()]
        held = self._held_in_memory(keys, firsts, says, offsets, sizes)
        bounds = [*firsts.tolist(), len(says)]
        for key, low, high, is_held in zip(keys, bounds, bounds[1:], held, strict=False):
            track = self.tracks.get(key)
            if track is None:
                track = self.tracks[key] = self._track(key, (int(says[low]), int(offsets[low]), int(sizes[low])))
            if is_held and not track.rewriting:
                track.match(high - low, int(says[high - 1]), int(offsets[high - 1]))
                continue
            rows = slice(low, high)
            first = low + self._held_until(track, says[rows], offsets[rows], sizes[rows])
            for start, stop in _runs(says[first:high]):
                run = Run(int(offsets[first + start]), int(says[first + start]), stop - start)
                run = run._replace(is_known=self._begins_with(key, run))
                lacks = self._may_lack_older(track, run)
                self.contradictions += track.follow(run, self._facts, may_lack_older=lacks)

    def _held_in_memory(
        self, keys: Sequence[QueueKey], firsts: npt.NDArray[np.intp], says: Ints, offsets: Ints, sizes: Ints
    ) -> list[bool]:
        """For each queue whether its entries point at all records of it, so that none is missing: by what is kept of
        small queues, all of them at once.  The records of `keys[n]` are the rows from `firsts[n]` on.
        """
        views = [self.store.queues.get(key) for key in keys]
        kept = [view.kept or b"" if view is not None else b"" for view in views]
        entries = read_entries(b"".join(kept))
        counts = np.array([len(each) for each in kept]) // QUEUE_ENTRY.size
        lengths = np.diff(firsts, append=len(says))
        slots = says - np.repeat([0 if view is None else view.first for view in views], lengths)
        rows = np.flatnonzero((slots >= 0) & (slots < np.repeat(counts, lengths)))
        found = entries[(slots + np.repeat(np.cumsum(counts) - counts, lengths))[rows]]
        held = np.zeros(len(says), bool)
        held[rows] = (found["physical_offset"] == offsets[rows]) & (found["size"] == sizes[rows])
        answers: list[bool] = np.logical_and.reduceat(held, firsts).tolist()
        return answers

    def _track(self, key: QueueKey, record: tuple[int, int, int]) -> QueueTrack:
        """`record` is the first that is met of it: its queue offset, its place, its size."""
        queue = self.store.queues.get(key)
        if queue is None or queue.end <= queue.first:
            return QueueTrack(key, None, None, rewriting=True)
        kept = queue.end if self.compare else _kept_before(queue, self.start, record)
        if self.begins_with_log and kept < record[0] and kept <= queue.slot_at(self.store.log.start):
            kept = queue.first  # all that stays is older than the log, and what came between went with it
        known = kept if kept > queue.first else None
        return QueueTrack(key, known, known, rewriting=not self.compare or known is None)

    def _held_until(self, track: QueueTrack, says: Ints, offsets: Ints, sizes: Ints) -> int:
        """The first row that is to be written again: `kept` then ends before it.  All rows if the entries are right."""
        if track.rewriting:
            return 0
        queue = self.store.queues[track.key]
        older = says[offsets < first_entry(queue)[0]]
        oldest = oldest_message(self.store.log, queue, int(older.max())) if len(older) else -1
        if offsets[0] < oldest:
            track.made_again_at = track.begin = oldest
        found = _compared(queue, (says, offsets, sizes), oldest, self.store.log.start)
        if len(self.seconds) <= SECOND_NUMBERS_MAX:
            self.seconds += offsets[found.seconds[: SECOND_NUMBERS_MAX + 1]].tolist()
        missing = np.flatnonzero(found.missing)
        if len(found.seconds):
            row = int(found.seconds[0])
            track.left = track.left or Run(int(offsets[row]), int(says[row]), 1)
        matched = np.flatnonzero(found.matched[: missing[0] if len(missing) else None])
        if len(matched):
            track.match(len(matched), int(says[matched[-1]]), int(offsets[matched[-1]]))
        if not len(missing):
            return len(says)
        first = int(missing[0])
        kept = min(int(says[first]), queue.end)
        before = _entries_at(queue, np.array([kept - 1]))["physical_offset"][0]
        is_wrong = before >= offsets[first]  # its entries are those of other places in it
        track.cut(kept if kept > queue.first and not is_wrong else None)
        return first

    def _begins_with(self, key: QueueKey, run: Run) -> bool:
        """Whether the files of a queue begin with that record: it was the first one before a crash, too."""
        queue = self.store.queues.get(key)
        return queue is not None and queue.end > queue.first and first_entry(queue) == (run.offset, run.says)

    def _may_lack_older(self, track: QueueTrack, run: Run) -> bool:
        """Whether records that come before the first one met of a queue may stand where the scan did not look."""
        is_first = track.state is State.EMPTY and run.says > 0
        return is_first and not self.begins_with_log and not is_deleted_topic(self.store, track.key[0])


def _kept_before(queue: QueueView, start: int, record: tuple[int, int, int]) -> int:
    """The slot up to which the entries of a queue stay, where the log is written into it again from `start` on; and
    `record` is the first one.  It tells what is wrong with entries of later numbers in front of it: its own entry
    points at it, and a file that is another one's comes after that; or they only fill room.
    """
    kept = queue.slot_at(start)
    says, offset, size = record
    if kept <= says:
        return kept
    entry = _entries_at(queue, np.array([says]))
    if int(entry["physical_offset"][0]) == offset and int(entry["size"][0]) == size:
        return says
    return kept if leading_blanks(queue, queue.first, kept) < kept - queue.first else queue.first


def _runs(says: Ints) -> Iterator[tuple[int, int]]:
    """First and last row of each run of consecutive numbers."""
    if not len(says):
        return iter(())
    breaks = np.flatnonzero(np.diff(says) != 1) + 1
    return zip([0, *breaks.tolist()], [*breaks.tolist(), len(says)], strict=True)


class _Compared(NamedTuple):
    """Records of a queue beside its entries: which an entry points at, bool[n]; which entries neither point at nor
    explain, bool[n]; and the rows of those that have a number of another record.
    """

    matched: Mask
    missing: Mask
    seconds: npt.NDArray[np.intp]


def _compared(queue: QueueView, records: tuple[Ints, Ints, Ints], oldest: int, log_start: int) -> _Compared:
    """The records of a queue (what they say, their offsets and sizes) beside its entries, in a log from `log_start` on.

    Explained are records older than the queue, which begins at `oldest` (its topic was deleted and made again), and a
    queue offset that another, earlier record has, in its place among its neighbours, or had before the queue's first.
    """
    says, offsets, sizes = records
    entries = _entries_at(queue, says)
    places = entries["physical_offset"].astype(np.int64)
    missing: Mask = (places != offsets) | (entries["size"] != sizes)
    matched = ~missing
    if not missing.any():
        return _Compared(matched, missing, np.zeros(0, np.intp))
    rows = np.flatnonzero(missing)
    blank = ~is_valid(entries[rows]) | is_pre_blank(entries[rows])
    older = offsets[rows] < oldest
    neighbours = [_entries_at(queue, says[rows] + step)["physical_offset"].astype(np.int64) for step in (-1, 1)]
    last = says[rows] + 1 >= queue.end
    rising = (places[rows] > neighbours[0]) & (last | (places[rows] < neighbours[1]))
    first_slot = queue.first + leading_blanks(queue, queue.first, queue.end)
    first_place = _entries_at(queue, np.array([first_slot]))["physical_offset"].astype(np.int64)
    is_past = (first_slot < queue.end) & (says[rows] > 0) & (says[rows] < first_slot) & (first_place < offsets[rows])
    second = (~blank & (places[rows] < offsets[rows]) & rising) | is_past
    second &= ~older
    expired = second & (np.where(is_past, first_place, places[rows]) < log_start)
    second[_fitting(queue, (says[rows], offsets[rows]), second, expired)] = False
    missing[rows[older | second]] = False
    return _Compared(matched, missing, rows[second])


def _fitting(queue: QueueView, records: tuple[Ints, Ints], second: Mask, expired: Mask) -> Mask:
    """Which records (what they say, and their offsets), of those that are a `second` one by an entry which leads in
    front of the log, the `expired`, are the right ones all the same: they go on, number by number, to a record that has
    no entry, or whose entry leads to a later place, or to the queue's end.
    """
    says, offsets = records
    goes_on = np.append((np.diff(says) == 1) & (np.diff(offsets) > 0), False)
    following = _entries_at(queue, says + 1)["physical_offset"].astype(np.int64)
    fits = np.where(goes_on, ~np.append(second[1:], False), (following > offsets) | (says + 1 >= queue.end))
    ends = np.flatnonzero(~(goes_on & np.append(expired[1:], False)))  # the last of a run tells for all of it
    last = ends[np.searchsorted(ends, np.arange(len(says)))]
    found: Mask = expired & fits[last]
    return found


def _entries_at(queue: QueueView, slots: Ints) -> npt.NDArray[np.void]:
    """The entries of some slots, zeros for those that are not written; slots may be any number."""
    return scattered_entries(queue.read, queue.first, queue.end, slots)
