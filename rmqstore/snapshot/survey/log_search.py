"""Where the log ends, what is damaged before it, and which messages no queue knows, found by a walk of its end.

Offsets of the log, as they usually lie; a walk begins where entries say that a record does:

    |- expired -|---- not looked at ----|------- walked once more ------|---- in no queue yet ----|- zeros, leftovers -
                ^           ^           ^                               ^                         ^
              view.start  start       check_from                    covered                    log_end
                                                                  (walk_from)

start       where RocketMQ's recovery would begin, or earlier: no entry that points before it is looked at.
covered     up to here the entries of all queues account for every byte.  It becomes `walk_from`: messages without an
            entry are looked for from here on.  It may lie past log_end, where entries claim what the log has not.
check_from  a record boundary at least 1 MiB before `covered`, `start` at the least: a power cut tears the newest pages,
            dispatched or not.  Where nothing sound follows it the look back becomes longer.
known_end   the highest place that an entry points at; zeros before it are no end of the log.  Mostly that of the last
            record before `covered`; beyond log_end where records are lost, or were cut off.
log_end     the end of the last sound record.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.directory.log_files import LogView
from rmqstore.directory.log_space import OTHER_BYTES
from rmqstore.directory.queue_ends import batch_end, lost_unit
from rmqstore.directory.queue_files import BATCH
from rmqstore.directory.walk import Break, WalkLimits, marking_torn_end, walk
from rmqstore.files.disk import StoredFile
from rmqstore.formats import message
from rmqstore.formats.checkpoint import Checkpoint
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey
from rmqstore.records.gather import binary_array
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.survey.census import Census, FirstFound
from rmqstore.snapshot.survey.extents import Damage
from rmqstore.snapshot.survey.queue_entries import QueueEntries, in_order
from rmqstore.snapshot.survey.truncated_tail import WriterTraces, end_entries, was_stored

# --- Up to which offset the consume queues know the log: entries added up and held against it, no record is read.
#
# For a reader, which has to say where the records without an entry begin, in any number of files, in bounded memory.
# A recovery asks of one file after the other whether anything in it lacks its entry: `log_coverage.py`.

_BUCKET_SIZE = 1024 * 1024
# Of 32 bytes each.  A log of more than 1 TiB, or a sparse file that says it is, has larger buckets.
_BUCKETS_MAX = 1024 * 1024


class Covered(NamedTuple):
    """Queue entries account for every byte of the log before `until`, and for no record from there on.  `restart` is
    the last known place before it, or the first one.  A record, a blank or a file begins at both.
    """

    until: int
    restart: int


class Coverage:
    """Adds up queue entries by stretches of the log, to find the first record that no queue knows without reading
    records.

    The log of `files` is cut into buckets of 1 MiB, larger ones where there were too many; in a bucket that is wholly
    dispatched the entries lie end to end. Memory is bounded by the number of buckets.
    """

    def __init__(self, files: Sequence[StoredFile]) -> None:
        bucket_size = _BUCKET_SIZE
        while sum(file.size for file in files) > _BUCKETS_MAX * bucket_size:
            bucket_size *= 2
        starts = [np.arange(file.start, file.end, bucket_size) for file in files]
        self._bucket_starts = np.concatenate(starts) if starts else np.zeros(0, np.int64)
        count = len(self._bucket_starts)
        self._sum = np.zeros(count, np.int64)
        self._low = np.full(count, np.iinfo(np.int64).max)
        self._high = np.zeros(count, np.int64)
        self._file_starts = {file.start for file in files}

    def add(self, offsets: Ints, sizes: npt.NDArray[np.integer]) -> None:
        """Counts entries (each message once): int64[n] physical offsets, sizes in bytes."""
        if not len(self._bucket_starts):
            return
        known = offsets >= self._bucket_starts[0]
        if not known.all():
            offsets, sizes = offsets[known], sizes[known]
        if not len(offsets):
            return
        sizes = sizes.astype(np.int64)
        if not (offsets[1:] > offsets[:-1]).all():  # damaged entries: offsets rise along a queue
            order = np.argsort(offsets, kind="stable")
            offsets, sizes = offsets[order], sizes[order]
        first = int(np.searchsorted(self._bucket_starts, offsets[0], side="right")) - 1
        last = int(np.searchsorted(self._bucket_starts, offsets[-1], side="right"))
        edges = np.searchsorted(offsets, self._bucket_starts[first + 1 : last])
        firsts = np.concatenate(([0], edges))
        lasts = np.concatenate((edges, [len(offsets)])) - 1
        held = lasts >= firsts
        buckets = np.arange(first, last)[held]
        firsts, lasts = firsts[held], lasts[held]
        self._sum[buckets] += np.add.reduceat(sizes, firsts)
        self._low[buckets] = np.minimum(self._low[buckets], offsets[firsts])
        self._high[buckets] = np.maximum(self._high[buckets], offsets[lasts] + sizes[lasts])

    def covered_until(self, back: int, is_blank: Callable[[int], bool]) -> Covered:
        """How far the entries account for every byte of the log, and where to begin for a look back of at least
        `back` bytes.  `is_blank` is asked what stands where the entries of a file end: anything but a blank is a
        record that no queue knows.
        """
        expected = int(self._bucket_starts[0]) if len(self._bucket_starts) else 0
        boundaries = [expected]
        # Buckets after the last one that an entry points into say nothing.
        used = np.flatnonzero(self._sum)[-1:] + 1
        for number, start in enumerate(self._bucket_starts[: used.sum()].tolist()):
            if start in self._file_starts and start > expected:
                if not is_blank(expected):
                    break
                expected = start
            if self._sum[number] == 0:
                continue
            if self._low[number] != expected and len(boundaries) > 1:
                boundaries.pop()  # where the last one ends may be what a damaged entry says
                expected = boundaries[-1]
                break
            if self._low[number] != expected or self._high[number] - self._low[number] != self._sum[number]:
                break
            expected = int(self._high[number])
            boundaries.append(expected)
        earlier = [place for place in boundaries if place <= expected - back]
        return Covered(expected, earlier[-1] if earlier else boundaries[0])


# ---

# The newest dispatched records are looked at again when a store is opened: a power cut tears the newest pages.
_LOOK_BACK_SIZE = 1024 * 1024
_EMPTY_FILE = "the commitlog file that begins here is empty, and others follow it"
_NO_RECORD = "not one sound record is in the log, and queue entries tell of some"
# The largest message that a broker takes by default: as much may be left blank at the end of a file.
_REST_MAX = 4 * 1024 * 1024
_LOST_UNIT = "no sound record stands here, where the first unit of a batch queue leads"
NO_FILE = "the commitlog file after this place is missing or empty, and messages were in it"


class WalkEnd(NamedTuple):
    """The end of a walk of the log from some offset on: `log_end` is the offset, in bytes, after the last sound record.

    `newest_ms` is that record's store time.  `chain_end` is the place at `log_end` if something stands there, `tail`
    the same if that is not just zeros; each `damage` has sound records after it.
    """

    log_end: int
    newest_ms: int
    chain_end: Damage | None
    tail: Damage | None
    damage: tuple[Damage, ...]
    census: Census


class Found(NamedTuple):
    """A search's result; the offsets are those of the module's line."""

    walk_from: int
    known_end: int
    end: WalkEnd


_NOTHING = WalkEnd(0, 0, None, None, (), Census())


def search(view: LogView, start: int, entries: QueueEntries) -> Found:
    """Looks at the log from `start` on, or from further back where queues end before the first message that was found
    of them.  Raises DataLost.
    """
    if not view.files:
        return Found(0, 0, _NOTHING)
    found = _search_from(view, start, entries)
    earlier = _start_of_lags(view, start, entries, found.end.census.first_found)
    return _search_from(view, earlier, entries) if earlier < start else found


def settle_end(view: LogView, entries: QueueEntries, found: Found, words: WriterTraces) -> Found:
    """The search's result with what stands at the end called a damage if it was stored; the log then goes on as far as
    queue entries lead.  Raises DataLost.
    """
    walk_from, known_end, end = found
    damage = [*end.damage, *_lost_files(view, entries, found)]
    if words.is_clean:
        damage += _lost_units(view, entries, end.log_end)
    place, log_end = end.chain_end, end.log_end
    if _ends_without_file(view, place):
        if _has_lost_file(view, found, words, has_entries=entries.listed_end() > 0):
            damage.append(damage_at(view, log_end, NO_FILE))
            walk_from = min(walk_from, log_end)
    elif place is not None and (end.tail is not None or max(known_end, words.committed_end - 1) >= place.offset):
        begin = _record_begin(view, place.offset)
        at_end = end_entries(entries, view, begin)
        is_whole = place.reason in (TEXT[Reason.PROPERTY_CRC], TEXT[Reason.NO_END])
        if was_stored(view, begin, end.newest_ms, words, at_end, is_whole=is_whole):
            damage.append(place)
            if at_end.reach is not None:  # else no row leads there, and nobody may read on as if nothing was missing
                log_end = walk_from = place.offset if at_end.reach == begin else at_end.reach
    return Found(walk_from, known_end, end._replace(damage=tuple(damage), log_end=log_end))


def _ends_without_file(view: LogView, place: Damage | None) -> bool:
    """Whether the walk ended where the file that holds what follows is not there; `place`: what stands at the end."""
    if place is not None:
        return view.file_number(place.offset) is None
    return bool(view.files) and view.end >= view.files[-1].end


def _has_lost_file(view: LogView, found: Found, words: WriterTraces, *, has_entries: bool) -> bool:
    """Whether messages were in a file after the log's end, which is not there, as a recovery judges.

    A file after that one says so, for files are made in their order; or queue entries lead there, or the checkpoint
    tells a place after the last file, which may end with a blank.  After a crash these two alone do not say that those
    messages were on the disk; the checkpoint's time does.  Where no queue has an entry, it tells alone.
    """
    end = found.end
    known, log_end = words.checkpoint or Checkpoint(), end.log_end
    if log_end < words.committed_end or end.chain_end is not None:
        return True
    if not log_end > 0:
        return False
    told = known.logics_physical_offset >= view.end or (words.is_clean and known.confirm_offset > view.end)
    is_later = known.physic_timestamp_ms > end.newest_ms
    if (words.is_clean or is_later) and (told or found.known_end >= log_end):
        return True
    return is_later and not has_entries


def _record_begin(view: LogView, offset: int) -> int:
    """Where the record begins that stands at `offset`, or in an entry that does; a damage may be of either."""
    framing = view.framing(offset)
    if not framing.gap or view.file_number(offset) is None or offset >= view.end:
        return offset + framing.gap
    page, position = view.window(offset, message.BLANK.size)
    return offset + framing.record_position(page, position) - position


def damage_at(view: LogView, offset: int, reason: str, topic: str | None = None) -> Damage:
    """A damage at an offset of the log, with its file."""
    number = view.file_number(offset)
    if number is None:
        return Damage("commitlog", offset, reason, offset, topic)
    file = view.files[number]
    return Damage(file.path, offset - file.start, reason, offset, topic)


def _search_from(view: LogView, start: int, entries: QueueEntries) -> Found:
    known_end, coverage = _coverage(view, start, entries)
    look_back = _LOOK_BACK_SIZE
    covered, check_from = coverage.covered_until(look_back, lambda offset: _is_blank(view, offset))
    walk_from = covered
    if entries.plain_ends and view.light_from <= view.start:  # records alone tell of light queues
        walk_from = check_from = view.start
    elif start <= view.light_from <= known_end < covered:  # the last record may lack entries of light queues
        walk_from = known_end - int(view.gaps(np.array([known_end]))[0])
    while True:
        end = _walk(view, check_from, Found(walk_from, known_end, _NOTHING), entries)
        if end.log_end > check_from or check_from <= start:
            break
        look_back *= 8  # nothing sound in the last stretch: the tear reaches further back
        covered, check_from = coverage.covered_until(look_back, lambda offset: _is_blank(view, offset))
    if covered > end.log_end > check_from:
        # Entries that claim more than the log holds may do so because their sizes are damaged.
        walk_from = check_from
        end = _walk(view, check_from, Found(walk_from, known_end, _NOTHING), entries)
    return Found(min(walk_from, end.log_end), known_end, end)


def _start_of_lags(view: LogView, start: int, entries: QueueEntries, first_found: Mapping[QueueKey, FirstFound]) -> int:
    """Where the search has to begin for queues whose entries end before the first message that was found of them: at
    the file of the last entry, for what follows it may be there.  `start` where none does.

    RocketMQ's recovery does not look there: it gives such messages the queue offsets that are free.
    """
    earliest = start
    for key, (low, *_) in first_found.items() if start > view.start else ():
        queue, end = entries.queues.get(key), entries.ends.get(key, 0)
        reached = batch_end(queue, end, view) if queue is not None and queue.kind == BATCH else end
        if low > reached:
            known = queue.read(end - 1, end)["physical_offset"][0] if queue is not None and reached else 0
            begins = view.deleted_before.get(key[0], 0), view.deleted_before.get(key, 0)
            number = view.file_number(max(int(known), *begins))
            earliest = min(earliest, view.start if number is None else view.files[number].start)
    return earliest


def _coverage(view: LogView, start: int, entries: QueueEntries) -> tuple[int, Coverage]:
    """The known end, and what the queues know of the log from `start` on.  Entries of light queues point at records of
    others, and cover nothing.
    """
    known_end = 0
    coverage = Coverage([file for file in view.files if file.start >= start])
    for block in entries.pointing_from(start):
        known_end = max(known_end, int(block.offsets[-1]))
        if not block.is_light:
            good = in_order(block)
            gaps = view.gaps(good.offsets)
            coverage.add(good.offsets - gaps, good.sizes + gaps)
    return known_end, coverage


def _is_blank(view: LogView, offset: int) -> bool:
    if view.file_number(offset) is None:
        return True
    page, position = view.window(offset, message.BLANK.size)
    return isinstance(view.framing(offset).standing(memoryview(page), position), message.Blank)


def _walk(view: LogView, start: int, known: Found, entries: QueueEntries) -> WalkEnd:
    """Walks from `start` to the end.  Damage counts only when something sound follows it; else it is the torn tail, as
    is a last record without its end.
    """
    log_end, newest_ms, census = start, 0, Census()
    damage: list[Damage] = []
    pending: list[Damage] = []
    items = walk(view, WalkLimits(start, view.end, crc_from=start, known_end=known.known_end))
    for item in marking_torn_end(items):
        if isinstance(item, Break):
            pending.append(damage_at(view, item.offset, item.reason))
            continue
        last = item.last_sound
        if last >= 0:
            damage += pending
            pending = []
        for row in np.flatnonzero(item.reasons != Reason.SOUND).tolist():
            (damage if row < last else pending).append(_damage_of(view, item, row))
        if last >= 0:
            log_end = int(item.offsets[last] + item.located.total_size[last])
            newest_ms = int(item.located.store_timestamp()[last])
            _count(item, (known.walk_from, log_end), census, entries, gap_ok=bool(damage))
    _leave_out_claimed(census, entries, known.known_end)
    damage += [damage_at(view, offset, reason) for offset, reason in census.misplaced]
    chain_end = pending[0] if pending else None
    tail = chain_end if chain_end is not None and chain_end.reason != message.NO_DATA else None
    return WalkEnd(log_end, newest_ms, chain_end, tail, tuple(damage), census)


def _count(
    stretch: Stretch, within: tuple[int, int], census: Census, entries: QueueEntries, *, gap_ok: bool
) -> None:  # fmt: skip
    """Adds the records of a stretch that begin in [low, high) of the log to the census."""
    low, high = within
    if int(stretch.offsets[-1]) >= low:
        inside = (stretch.offsets >= low) & (stretch.offsets < high)
        part = stretch if inside.all() else stretch.take(inside)
        census.add(part, entries.queues, entries.plain_ends, gap_ok)


def _leave_out_claimed(census: Census, entries: QueueEntries, known_end: int) -> None:
    """Takes out a queue of a single record, if an entry of another queue points at that record: the record is of the
    other queue, and its own queue id is damaged.
    """
    lone = census.lone_records(known_end)
    for place in sorted(entries.pointing_at(lone)):
        key = lone[place]
        kind = entries.queues[key].kind if key in entries.queues else census.gaps[key].kind
        if kind != BATCH:  # there the record's own numbers tell, it has them twice
            census.leave_out(key)


def _damage_of(view: LogView, stretch: Stretch, row: int) -> Damage:
    reason = Reason(int(stretch.reasons[row]))
    topic = None
    if reason not in (Reason.NOT_WHOLE, Reason.NO_END):
        located = stretch.located
        name = binary_array(located.page, located.topic_at[row : row + 1], located.topic_size[row : row + 1])
        topic = name[0].as_py().decode("utf-8", "replace")
    return damage_at(view, int(stretch.offsets[row]), TEXT[reason], topic)


def _lost_files(view: LogView, entries: QueueEntries, found: Found) -> Iterable[Damage]:
    """A damage for each empty file that others follow, and for each from the log's end on that has bytes of another
    place; or one if entries lead to the log's beginning and past it, and not one sound record is there.
    """
    files, end = view.files, found.end
    lost = [Damage(file.path, 0, _EMPTY_FILE, file.start) for file in files if not file.size]
    for file in (each for each in files if each.start >= end.log_end):
        place = view.other_place(file)
        if place is not None:
            lost.append(Damage(file.path, 0, OTHER_BYTES.format(place=place), file.start))
    if files and end.log_end <= view.start and not end.damage and _is_missed(view, entries, found.known_end):
        lost.append(damage_at(view, view.start, _NO_RECORD))
    return [replace(damage, is_reached=False) for damage in lost]


def _is_missed(view: LogView, entries: QueueEntries, known_end: int) -> bool:
    """Whether queue entries tell of records in a log that has none: where it begins or later, or so far before it that
    more is missing than the rest of a file that has expired.
    """
    if known_end > view.start:
        return True
    reach = entries.reach()
    missing = 0 if reach is None else view.start - reach
    return missing > min(_REST_MAX, view.files[0].size // 2)


def _lost_units(view: LogView, entries: QueueEntries, log_end: int) -> Iterable[Damage]:
    """A damage where a batch queue's first unit leads to a place before the end at which no record stands that could be
    its own, nor another's: the last writer, which closed the store, has written one there.
    """
    for key, queue in entries.others.items():
        place = lost_unit(queue, entries.ends[key], view) if queue.kind == BATCH else None
        if place is not None and place < log_end:
            yield replace(damage_at(view, place, _LOST_UNIT, key[0]), is_reached=False)
