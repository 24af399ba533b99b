"""Opening a store directory: one look at files, queues and the newest part of the log makes a StoreExtent."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from rmqstore.directory.coverage import Coverage
from rmqstore.directory.deleted_queues import deleted_before, without_deleted
from rmqstore.directory.layouts import is_rocksdb, load_checkpoint
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import batch_begin, batch_end, lost_unit, sound_end, unwritten_before
from rmqstore.directory.queue_files import (
    BATCH,
    QueueFiles,
    find_queues,
    first_behind,
    holds_message,
    is_valid_entry,
)
from rmqstore.directory.walk import Break, WalkLimits, walk
from rmqstore.errors import DataLost, StoreChanging, StoreError
from rmqstore.files import reading
from rmqstore.files.disk import tells_of_change
from rmqstore.formats import message
from rmqstore.formats.message_columns import take_rows
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.sink_files import INTENT_FILE, JSON_SIZE_MAX, SINK_DIRECTORY, BatchIntent
from rmqstore.records.gather import binary_array
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.survey import extents
from rmqstore.snapshot.survey.census import Census
from rmqstore.snapshot.survey.extents import Damage, QueueExtent, StoreExtent
from rmqstore.snapshot.survey.footprint import Footprint
from rmqstore.snapshot.survey.torn_end import LastWords, claim_of, was_stored

# After a clean stop only the CRCs of the newest part are checked on reading; RocketMQ checks its three newest files.
_CHECKED_SIZE = 16 * 1024 * 1024
# The newest dispatched records are looked at again when a store is opened: a power cut tears the newest pages.
_LOOK_BACK_SIZE = 1024 * 1024
_TAIL_ENTRIES = 1024
_EMPTY_FILE = "the commitlog file that begins here is empty, and others follow it"
_NO_RECORD = "not one sound record is in the log, and queue entries tell of some"
# The largest message that a broker takes by default: as much may be left blank at the end of a file.
_REST_MAX = 4 * 1024 * 1024
_LOST_UNIT = "no sound record stands here, where the first unit of a batch queue leads"
_NO_FILE = "the commitlog file that begins there is missing or empty, and queue entries point into it"
# Looks in a row at a store that changes; that it happens so often means that it is not about to end.
_LOOKS_MAX = 8


def batch_start(root: str) -> int:
    """Where a batch begins that a sink is just adding, or could not end: all of it may be cut off again, so that nobody
    is to see it yet.  The highest number without one.
    """
    start = 2**63 - 1
    directory = reading.join(root, SINK_DIRECTORY)
    for writer in reading.list_directories(directory):
        data = reading.read_small_file(reading.join(directory, writer, INTENT_FILE), JSON_SIZE_MAX)
        if data is not None:
            with suppress(ValueError):
                start = min(start, BatchIntent.from_json(data).start)
    return start


def survey(
    path: str, broker_name: str | None = None, access: Access = "auto", extra_logs: tuple[str, ...] = ()
) -> StoreExtent:
    """What the store at `path` holds now; `extra_logs` are commitlog directories elsewhere that belong to it.

    A store that changes otherwise than by growing while it is looked at is looked at again.
    Raises NotAStore, UnsupportedLayout; DataLost, StoreChanging if it goes on changing.
    """
    root = reading.canonical_path(path)
    seen, changed = None, ""
    for remaining in reversed(range(_LOOKS_MAX)):
        before = Footprint.of(root, extra_logs)
        try:
            found = _look(before, broker_name, access)
            changed = before.changed(found) or ("a batch began" if batch_start(root) < found.log_end else "")
        except (DataLost, FileNotFoundError, StoreChanging) as gone:
            if remaining:
                continue  # a file vanished meanwhile: its owner deletes old ones
            raise changing(root, gone) from None
        if not changed or (found == seen and batch_start(root) >= found.log_end):
            return found
        seen = found
    raise StoreChanging(root, changed)


def changing(root: str, error: DataLost | FileNotFoundError | StoreChanging) -> StoreError:
    """What to say of a file that vanished or was cut while it was looked at: StoreChanging; a file that is there and
    cannot be read is told as it is.
    """
    if isinstance(error, StoreChanging) or (isinstance(error, DataLost) and not tells_of_change(error.reason)):
        return error
    path = error.path if isinstance(error, DataLost) else error.filename
    return StoreChanging(root, f"the file {path} went or was cut")


def _look(before: Footprint, broker_name: str | None, access: Access) -> StoreExtent:
    """What a store holds that had this footprint a moment ago.  Raises as `survey` at anything that vanishes."""
    root, log_files = before.root, before.log_files
    extents.refuse_unread_layouts(root, log_files)
    checkpoint = load_checkpoint(root)
    abort_present, lock_held = before.is_abort_there, before.is_locked
    rocksdb = is_rocksdb(root)
    queues = {(queue.topic, queue.queue_id): queue for queue in (() if rocksdb else find_queues(root))}
    is_still = not abort_present and not lock_held
    end = min(log_files[-1].end, batch_start(root)) if log_files else 0
    mapped = end if access == "mmap" or (is_still and access == "auto") else 0
    deleted = deleted_before(root, queues.values())
    queues = {key: without_deleted(queue, deleted) for key, queue in queues.items()}
    with LogView(log_files, mapped, end, deleted) as view:
        start = extents.recovery_start(view, checkpoint, abort_present)
        entry_ends = {key: sound_end(queue, view) for key, queue in queues.items()}
        if _first_known(queues, entry_ends, view.start) > view.start:
            start = view.start  # no queue knows the oldest messages: the files that did are lost
        found = _Search(view, start, queues, entry_ends)
        found.run()
        found.settle_end(LastWords(is_still, checkpoint))
        queue_extents = _queue_extents(queues, entry_ends, found)
    crc_from = start if abort_present else max(start, found.log_end - _CHECKED_SIZE)
    return StoreExtent(
        path=root,
        broker_name=broker_name or extents.stored_broker_name(root),
        log_files=log_files,
        queues=queue_extents,
        version_line=extents.version_line(root, checkpoint),
        checkpoint=checkpoint,
        abort_present=abort_present,
        lock_held=lock_held,
        log_end=found.log_end,
        walk_from=found.walk_from,
        crc_from=crc_from,
        damage=tuple(found.damage),
        tail=found.tail,
        queue_layout="RocksDB" if rocksdb else "file",
        extra_logs=before.extra_logs,
        deleted_before=deleted,
        access=access,
    )


@dataclass(slots=True)
class _Search:
    """Finds the end of the log, what is damaged before it, and what no queue knows."""

    view: LogView
    start: int
    queues: Mapping[QueueKey, QueueFiles]
    entry_ends: Mapping[QueueKey, int]
    log_end: int = 0
    walk_from: int = 0
    known_end: int = 0
    newest_ms: int = 0
    chain_end: Damage | None = None
    damage: list[Damage] = field(default_factory=list)
    tail: Damage | None = None
    census: Census = field(default_factory=Census)

    def run(self) -> None:
        if not self.view.files:
            return
        self._find()
        start = self._start_of_lags()
        if start < self.start:
            self.start = start
            self._find()

    def _start_of_lags(self) -> int:
        """Where the search has to begin for queues whose entries end before the first message that was found of them:
        at the file of the last entry, for what follows it may be there.  The start as it is where none does.

        RocketMQ's recovery does not look there: it gives such messages the queue offsets that are free.
        """
        start = self.start
        for key, low in self.census.first_found.items() if start > self.view.start else ():
            queue, end = self.queues.get(key), self.entry_ends.get(key, 0)
            reached = batch_end(queue, end, self.view) if queue is not None and queue.kind == BATCH else end
            if low > reached:
                known = queue.read(end - 1, end)["physical_offset"][0] if queue is not None and reached else 0
                number = self.view.file_number(max(int(known), self.view.deleted_before.get(key[0], 0)))
                start = min(start, self.view.start if number is None else self.view.files[number].start)
        return start

    def _find(self) -> None:
        covered, check_from = self._coverage()
        self.walk_from = covered
        look_back = _LOOK_BACK_SIZE
        while True:
            self._walk(check_from)
            if self.log_end > check_from or check_from <= self.start:
                break
            look_back *= 8  # nothing sound in the last stretch: the tear reaches further back
            covered, check_from = self._coverage(look_back)
        if covered > self.log_end > check_from:
            # Entries that claim more than the log holds may do so because their sizes are damaged.
            self.walk_from = check_from
            self._walk(check_from)
        self.walk_from = min(self.walk_from, self.log_end)

    def settle_end(self, words: LastWords) -> None:
        """Calls it damage if what stands at the end was stored; the log then goes on as far as queue entries lead."""
        self._tell_lost_files()
        if words.is_clean:
            self._tell_lost_units()
        found = self.chain_end
        if found is None:
            if words.is_clean and words.checkpoint is not None and self.known_end >= self.log_end > 0:
                self.damage.append(self._damage(self.log_end, _NO_FILE))
                self.walk_from = min(self.walk_from, self.log_end)
            return
        if self.tail is None and self.known_end < found.offset:
            return
        claim = claim_of(self.queues, self.entry_ends, self.view, found.offset)
        is_whole = found.reason == TEXT[Reason.PROPERTY_CRC]
        if not was_stored(self.view, found.offset, self.newest_ms, words, claim, is_whole=is_whole):
            return
        self.damage.append(found)
        if claim.reach is not None:  # else no row leads there, and nobody may read on as if nothing was missing
            self.log_end = self.walk_from = claim.reach

    def _tell_lost_files(self) -> None:
        """Calls it damage if a file is empty that others follow, or if entries lead behind the log's beginning and not
        one sound record is there.
        """
        files = self.view.files
        empty = [Damage(file.path, 0, _EMPTY_FILE, file.start) for file in files if not file.size]
        if files and self.log_end <= self.view.start and not self.damage and self._is_missed():
            empty.append(self._damage(self.view.start, _NO_RECORD))
        self.damage += [replace(damage, is_reached=False) for damage in empty]

    def _is_missed(self) -> bool:
        """Whether queue entries tell of records in a log that has none: where it begins or behind, or so far before it
        that more is missing than the rest of a file that has expired.
        """
        if self.known_end > self.view.start:
            return True
        newest = [queue.read(end - 1, end)[0] for queue in self.queues.values() if (end := queue.written_end())]
        reach = max((int(entry["physical_offset"]) + int(entry["size"]) for entry in newest), default=self.view.start)
        return self.view.start - reach > min(_REST_MAX, self.view.files[0].size // 2)

    def _tell_lost_units(self) -> None:
        """Calls it damage if a batch queue's first unit leads to a place before the end where no record stands that
        could be its own, nor another's: who closed the store has written one there.
        """
        for key, queue in self.queues.items():
            place = lost_unit(queue, self.entry_ends[key], self.view) if queue.kind == BATCH else None
            if place is not None and place < self.log_end:
                self.damage.append(replace(self._damage(place, _LOST_UNIT, key[0]), is_reached=False))

    def _coverage(self, behind: int = _LOOK_BACK_SIZE) -> tuple[int, int]:
        files = [file for file in self.view.files if file.start >= self.start]
        coverage = Coverage(files)
        for key, queue in self.queues.items():
            for entries in _entries_from(queue, self.start, self.entry_ends[key]):
                self.known_end = max(self.known_end, int(entries["physical_offset"][-1]))
                if not is_light_queue(queue.topic):
                    good = _rising(entries)
                    coverage.add(good["physical_offset"].astype(np.int64), good["size"].astype(np.int64))
        return coverage.covered_until(behind, self._is_blank)

    def _is_blank(self, offset: int) -> bool:
        if self.view.file_number(offset) is None:
            return True
        page, position = self.view.window(offset, message.BLANK.size)
        return isinstance(message.read_record(memoryview(page), position), message.Blank)

    def _walk(self, start: int) -> None:
        """Walks from `start` to the end.  Damage counts only when something sound follows it; else it is the torn
        tail.
        """
        self.log_end, self.damage, self.tail, self.census = start, [], None, Census()
        self.newest_ms = 0
        pending: list[Damage] = []
        limits = WalkLimits(start, self.view.end, crc_from=start, known_end=self.known_end)
        for item in walk(self.view, limits):
            if isinstance(item, Break):
                pending.append(self._damage(item.offset, item.reason))
                continue
            sound = np.flatnonzero(item.reasons == Reason.SOUND)
            bad = np.flatnonzero(item.reasons != Reason.SOUND)
            last = int(sound[-1]) if len(sound) else -1
            self.damage += pending if len(sound) else []
            pending = [] if len(sound) else pending
            for row in bad.tolist():
                (self.damage if row < last else pending).append(self._damage_of(item, row))
            if len(sound):
                self.log_end = int(item.offsets[last] + item.located.total_size[last])
                self.newest_ms = int(item.located.store_timestamp()[last])
                self._count(item)
        self.chain_end = pending[0] if pending else None
        self.tail = pending[0] if pending and pending[0].reason != message.NO_DATA else None
        self._leave_out_claimed()
        self.damage += [self._damage(offset, reason) for offset, reason in self.census.misplaced]

    def _count(self, stretch: Stretch) -> None:
        if int(stretch.offsets[-1]) >= self.walk_from:
            behind = (stretch.offsets >= self.walk_from) & (stretch.offsets < self.log_end)
            part = stretch if behind.all() else stretch.take(behind)
            self.census.add(part, self.queues, self._ends(), bool(self.damage))

    def _leave_out_claimed(self) -> None:
        """A record that stands alone in its queue, and that an entry of another queue points at, is that queue's: what
        it says of its own queue is damaged.  Entries of light queues point at records of others, and tell nothing.
        """
        lone = self.census.lone_records(self.known_end)
        places = np.array(sorted(lone), np.int64)
        claimed = np.zeros(len(places), bool)
        for key, queue in self.queues.items():
            if len(places) and not is_light_queue(queue.topic):
                for entries in _entries_from(queue, int(places[0]), self.entry_ends[key]):
                    pointed = entries["physical_offset"].astype(np.int64)
                    at = np.minimum(places.searchsorted(pointed), len(places) - 1)
                    claimed[at[places[at] == pointed]] = True
        for place in places[claimed].tolist():
            if self._kind_of(lone[place]) != BATCH:  # there the record's own numbers tell, it has them twice
                self.census.leave_out(lone[place])

    def _kind_of(self, key: QueueKey) -> str:
        return self.queues[key].kind if key in self.queues else self.census.gaps[key].kind

    def _ends(self) -> Mapping[QueueKey, int]:
        return {key: end for key, end in self.entry_ends.items() if end > 0 and self.queues[key].kind != BATCH}

    def _damage_of(self, stretch: Stretch, row: int) -> Damage:
        reason = Reason(int(stretch.reasons[row]))
        topic = None
        if reason is not Reason.NOT_WHOLE:
            located = stretch.located
            name = binary_array(located.page, located.topic_at[row : row + 1], located.topic_size[row : row + 1])
            topic = name[0].as_py().decode("utf-8", "replace")
        return self._damage(int(stretch.offsets[row]), TEXT[reason], topic)

    def _damage(self, offset: int, reason: str, topic: str | None = None) -> Damage:
        number = self.view.file_number(offset)
        if number is None:
            return Damage("commitlog", offset, reason, offset, topic)
        file = self.view.files[number]
        return Damage(file.path, offset - file.start, reason, offset, topic)


def _entries_from(queue: QueueFiles, physical_offset: int, end: int) -> Sequence[np.ndarray]:
    """Blocks of the queue's message entries that point at or behind `physical_offset`, newest block first."""
    blocks = []
    step = 4096
    high = end
    while high > queue.first_slot():
        low = max(high - step, queue.first_slot())
        entries = queue.read(low, high)
        good = holds_message(queue.kind, entries)
        inside = good & (entries["physical_offset"] >= physical_offset)
        if inside.any():
            blocks.append(entries if inside.all() else take_rows(entries, inside))
        if (inside != good).any() or not good.any():
            break
        high, step = low, min(step * 4, 64 * 1024)
    return blocks


def _rising(entries: np.ndarray) -> np.ndarray:
    """The entries that point behind all those before them.  Others are damaged: in a sum over the log they would stand
    for the record that they should point at.
    """
    offsets = entries["physical_offset"].astype(np.int64)
    if (offsets[1:] > offsets[:-1]).all():
        return entries
    highest = np.maximum.accumulate(offsets)
    rises = np.concatenate(([True], offsets[1:] > highest[:-1]))
    return take_rows(entries, rises)


def _queue_extents(
    queues: Mapping[QueueKey, QueueFiles], ends: Mapping[QueueKey, int], found: _Search
) -> dict[QueueKey, QueueExtent]:
    """Bounds of every queue: its good entries joined with what the walk found."""
    held = found.census.held
    result = {
        key: _entry_extent(queue, (ends[key], held.get(key, 0)), found.log_end, found.view)
        for key, queue in queues.items()
    }
    root = ""
    for queue in queues.values():
        root = queue.root
    for key, gap in found.census.gaps.items():
        known = result.get(key)
        if known is None or known.max_offset == known.min_offset == known.entry_end == 0:
            files = QueueFiles(root or _root_of(found.view), key[0], key[1], gap.kind, ())
            files = queues.get(key, files)
            known = QueueExtent(files, gap.low, gap.high, 0, 0, None)
        low = min(known.min_offset, gap.low) if known.max_offset > known.min_offset else gap.low
        result[key] = QueueExtent(
            known.files, low, max(known.max_offset, gap.high), known.entry_start, known.entry_end,
            (gap.low, gap.high), gap.byte_count,
        )  # fmt: skip
    return dict(sorted(result.items()))


def _first_known(queues: Mapping[QueueKey, QueueFiles], ends: Mapping[QueueKey, int], log_start: int) -> int:
    """The lowest offset of the log at or behind its start that an entry points at; the highest number if none does."""
    lowest = 2**63 - 1
    for key, queue in queues.items():
        slot = _first_kept(queue, queue.first_slot(), ends[key], log_start)
        if slot < ends[key]:
            lowest = min(lowest, int(queue.read(slot, slot + 1)["physical_offset"][0]))
            if lowest == log_start:
                break
    return lowest


def _root_of(view: LogView) -> str:
    return reading.join(view.files[0].path, "..", "..") if view.files else ""


def _entry_extent(queue: QueueFiles, ends: tuple[int, int], log_end: int, view: LogView) -> QueueExtent:
    """Bounds by the entries alone.  Entries at the end that point behind the log, or back, are not counted.

    `ends` are the end of the entries, and the end of those that the walk found records for: these count.
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
    start = _first_kept(queue, first, end, view.start)
    bound = batch_end(queue, end, view) if queue.kind == BATCH else end
    if start >= end:
        return QueueExtent(queue, bound, bound, end, end, None)
    if queue.kind == BATCH:
        return QueueExtent(queue, min(batch_begin(queue, start, end, view), bound), bound, start, end, None)
    low = start
    if start > first and int(queue.read(start, start + 1)["physical_offset"][0]) > view.start:
        low = unwritten_before(queue, start)  # RocketMQ leaves no zeros there: entries that are gone
    return QueueExtent(queue, low, end, start, end, None)


def _first_kept(queue: QueueFiles, first: int, end: int, log_start: int) -> int:
    """The first slot whose message the log still holds (Java: correctMinOffset); `end` if none does."""
    if first < end:
        entry = queue.read(first, first + 1)
        if holds_message(queue.kind, entry)[0] and int(entry["physical_offset"][0]) >= log_start:
            return first
    return first_behind(queue, first, end, log_start)
