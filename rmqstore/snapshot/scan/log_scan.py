"""Reading the commitlog from front to back: each record once, kept when it is a message of a wanted queue."""

import itertools
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.directory.config_files import readers_levels
from rmqstore.directory.deleted_queues import without_deleted
from rmqstore.directory.extension_files import contradicted, holds_tag_hashes, resolve_extensions
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import QueueFiles, entries_between, holds_message, open_queue
from rmqstore.directory.undispatched import FOUND_ENTRY, entries_at, missing_rows
from rmqstore.directory.walk import Break, WalkLimits, walk
from rmqstore.errors import DataLost
from rmqstore.formats.delay_levels import LevelTables
from rmqstore.formats.inner_batch import inner_batch_rows, record_numbers
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_extension import is_extension_address
from rmqstore.records.dispatch_rules import is_dispatched, tags_codes
from rmqstore.records.gather import binary_array, text_array
from rmqstore.records.queue_runs import QueueRun, runs_by_queue
from rmqstore.records.soundness import TEXT, Reason, mark
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.scan.checked_rows import BatchSizes, Checked
from rmqstore.snapshot.scan.damage_policy import DamagePolicy
from rmqstore.snapshot.scan.entry_source import EntrySource, batch_topics
from rmqstore.snapshot.scan.store_retry import StoreRetry
from rmqstore.snapshot.split import Span, Split

# --- The rows of a walked part of the log, queue by queue, held against the ranges that they are of.
#
# A read by a queue's entries shows where one is missing. A walk of the log does not: that a queue's files or the end
# of the log are others than when the snapshot was opened shows in the numbers only.

_NO_ENTRY = "its entries there are gone since the snapshot was opened"
_NO_RECORD = "the commitlog holds no record of them any more"


@dataclass(slots=True)
class WalkCount:
    """The records of each queue that a walk met.  `matched` counts the messages that entries lead to.

    `gone` are queue offsets, from the first to the last, of records whose entries the snapshot saw and that have none
    any more; `missing` the first that no record was met of, between others.  `ended_at` is where the log ends, before
    the end that the snapshot saw.
    """

    split: Split
    look: StoreRetry
    matched: Counter[QueueKey] = field(default_factory=Counter)
    gone: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    missing: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    ended_at: int | None = None
    is_damaged: bool = False
    _reached: dict[QueueKey, int] = field(default_factory=dict)
    _known: dict[QueueKey, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for span, (low, high) in zip(self.split.spans, self.split.known, strict=self.split.has_queues):
            if low < high:
                self._known.setdefault(span.key, []).append((low, high))

    def knew(self, key: QueueKey, queue_offsets: Ints) -> Mask:
        """Which messages of a queue (int64[n]) had an entry when the snapshot was opened."""
        known = np.zeros(len(queue_offsets), bool)
        for low, high in self._known.get(key, []):
            known |= (queue_offsets >= low) & (queue_offsets < high)
        return known

    def add(self, run: QueueRun, found: Mask, unanswered: Mask, ranges: list[tuple[int, int]]) -> None:
        """Counts the records of a run that are rows; those that are `unanswered` have no entry."""
        rows = np.flatnonzero(unanswered)
        if len(rows):
            self._add_gone(run.key, run.queue_offsets[rows], self._known.get(run.key, []))
        lows = run.queue_offsets[found]
        if not len(lows) or run.are_inner.any():
            return
        reached = np.concatenate(([self._reached.get(run.key, lows[0])], lows[:-1] + 1))
        self._reached[run.key] = int(lows[-1]) + 1
        for row in np.flatnonzero(lows > reached).tolist() if run.key not in self.missing else ():
            lost = (int(reached[row]), int(lows[row]))
            if any(max(low, lost[0]) < min(high, lost[1]) for low, high in ranges):
                self.missing[run.key] = lost
                break

    def _add_gone(self, key: QueueKey, offsets: Ints, known: list[tuple[int, int]]) -> None:
        for low, high in known:
            lost = offsets[(offsets >= low) & (offsets < high)]
            if len(lost):
                first, last = self.gone.get(key, (int(lost[0]), 0))
                self.gone[key] = min(first, int(lost.min())), max(last, int(lost.max()) + 1)

    def require_all(self, spans: list[Span], is_damage_told: bool, room: str) -> None:
        """Raises DataLost if messages of a queue were not met that the snapshot saw, StoreChanging as StoreRetry.

        `is_damage_told`: damage is an error of its own, so that it explains nothing here.  `room`: where the
        log stands.
        """
        key, look = spans[0].key, self.look
        queue, first, end = look.asked(lambda: _held(open_queue(look.queue_disk, self.split.path, *spans[0][:3])))
        for low, high in self._known.get(key, []):
            if first > low or end < high:
                lost = self.look.lost_of(key, low, high)
                if lost is not None:
                    self.gone.setdefault(key, lost)
        name = f"{key[0]}/{key[1]}"
        if key in self.gone:
            raise DataLost(name, self.gone[key], None, queue.directory, _NO_ENTRY)
        if self.is_damaged and not is_damage_told:
            return
        if key in self.missing:
            raise DataLost(name, self.missing[key], None, room, _NO_RECORD)
        if self.ended_at is not None:
            lost = (self.ended_at, self.split.log_end)
            raise DataLost(f"commitlog of {name}", lost, None, room, _NO_RECORD)


class _Held(NamedTuple):
    """A queue whose files begin with slot `first`, and whose written entries end before slot `end`."""

    queue: QueueFiles
    first: int
    end: int


def _held(queue: QueueFiles) -> _Held:
    return _Held(queue, queue.first_slot(), queue.written_end())


# ---

# --- Which records that a walk of the commitlog meets are messages of their queues, by what the queues' entries say.


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a queue about the records of a run, bool[n] each: its entries name them; they stand where messages
    may have no entry yet, and have none; they stand before that, and have none.  `codes` are their tags codes,
    int64[n], where these are asked for: of those without an entry what dispatch would put there.
    """

    dispatched: Mask
    undispatched: Mask
    unanswered: Mask
    codes: Ints | None


class WalkedQueues:
    """The queues of a walk, listed again after each look at the store.

    Where CRCs are checked, from `crc_from` on, a record whose TAGS contradict its entry is not named by it.
    Delivery times are by the delay levels `levels`.
    """

    def __init__(
        self, view: LogView, count: WalkCount, request: ScanRequest, crc_from: int, levels: LevelTables
    ) -> None:
        self._levels = levels
        self._count, self._look, self._split = count, count.look, count.split
        self._view = view
        self._kinds = {span.key: span.kind for span in self._split.spans}
        place, spans = (self._split.disk, self._split.path), self._split.spans
        self._tags_from = {span.key: crc_from for span in spans if holds_tag_hashes(*place, span.key, span.kind)}
        self._wants_codes = "tagsCode" in request.columns
        self._queues: dict[QueueKey, QueueFiles] = {}
        self._looks_known = self._look.count

    def answers(self, run: QueueRun, stretch: Stretch, wanted: Mask) -> Answers:
        """The answers for a run.  Where a wanted record lacks the entry that the snapshot saw, the store is looked at
        again: its queue may be being rebuilt.  Raises StoreChanging as StoreRetry.
        """
        wanted = wanted & self._count.knew(run.key, run.queue_offsets)
        for attempt in itertools.count():
            found = self._look.asked(lambda: self._read(run, stretch))
            lacking = run.queue_offsets[found.unanswered & wanted]
            if not len(lacking) or self._look.is_lost(run.key, lacking, attempt):
                return found
        raise AssertionError

    def _read(self, run: QueueRun, stretch: Stretch) -> Answers:
        queue = self._queue(run.key)
        missing, taken = missing_rows(run, stretch, queue)
        if taken.any():
            taken &= ~self._is_of_later(run, queue)
        without, is_late = missing & ~taken, stretch.offsets[run.rows] >= self._look.walk_from
        dispatched, codes = ~missing, None
        is_checked = int(stretch.offsets[-1]) >= self._tags_from.get(run.key, self._split.log_end)
        if queue.files and dispatched.any() and is_checked:
            dispatched &= ~self._contradicted(run, stretch, queue)
        if self._wants_codes:
            codes = self._codes(run, stretch, queue)
        return Answers(dispatched, without & is_late, without & ~is_late, codes)

    def _queue(self, key: QueueKey) -> QueueFiles:
        if self._looks_known != self._look.count:
            self._looks_known = self._look.count
            self._queues.clear()
        if key not in self._queues:
            queue = open_queue(self._look.queue_disk, self._split.path, *key, self._kinds[key])
            deleted = self._view.deleted_before
            self._queues[key] = without_deleted(queue, deleted, self._view) if deleted else queue
        return self._queues[key]

    def _is_of_later(self, run: QueueRun, queue: QueueFiles) -> Mask:
        """Whose place is held by an entry from after the snapshot: the topic was deleted, and is there again."""
        return np.asarray(entries_at(queue, run.queue_offsets)["physical_offset"] >= self._split.log_end)

    def _contradicted(self, run: QueueRun, stretch: Stretch, queue: QueueFiles) -> Mask:
        """Which records that are checked have other tags than their entries say."""
        entries, offsets = entries_at(queue, run.queue_offsets), stretch.offsets[run.rows]
        other = contradicted(stretch.located.take(run.rows), entries["tags_code"])
        # An entry that went since the run was read says nothing.
        own = holds_message(queue.kind, entries) & (entries["physical_offset"] == offsets)
        return np.asarray(other & own & (offsets >= self._tags_from[run.key]))

    def _codes(self, run: QueueRun, stretch: Stretch, queue: QueueFiles) -> Ints:
        """The codes that the entries hold, and those that dispatch would put there for records without one."""
        codes = tags_codes(stretch.located.take(run.rows), run.key[0], self._levels)
        if not queue.files:
            return codes
        entries = entries_at(queue, run.queue_offsets)
        own = holds_message(queue.kind, entries) & (entries["physical_offset"] == stretch.offsets[run.rows])
        found = np.zeros(len(run.rows), FOUND_ENTRY)
        found["tags_code"] = entries["tags_code"]
        if is_extension_address(int(found["tags_code"].min(initial=0))):
            resolve_extensions(self._split.disk, self._split.path, run.key, found)
        return np.where(own, found["tags_code"], codes)


# ---


class LogSource:
    """The messages of a split's spans in its part of the log, in log order.

    A record is a message of its queue when the queue's entry points at it, or when no entry holds its place yet.  What
    was met is counted and compared with the entries, for a record with a damaged topic or queue id looks like another
    queue's.
    """

    def __init__(self, split: Split, request: ScanRequest, view: LogView, policy: DamagePolicy) -> None:
        assert split.log_range is not None
        self._split, self._request, self._view, self._policy = split, request, view, policy
        self._range = split.log_range
        self._sizes = BatchSizes(request)
        self._count = WalkCount(split, StoreRetry(split))
        self._wanted = _wanted(split.spans)

    def rows(self) -> Iterator[Checked]:
        """The rows of the split, then those of damaged records that only entries tell of.

        Raises Corrupt at damage and DataLost for messages that are gone, as the policy says; StoreChanging where queues
        do not come to rest.
        """
        for rows in self._walked():
            first = 0
            ends = np.cumsum(rows.sizes, dtype=np.int64)
            while first < len(rows):
                if first and not self.is_whole(int(rows.offsets[first])):
                    break  # the reader of the last batch took its time: the walk meets the next file
                last = self._sizes.end_of(ends, first)
                yield from self._clipped(rows.take(np.arange(first, last)))
                first = last
        if self._split.has_queues:
            by_key: dict[QueueKey, list[Span]] = {}
            for span in self._split.spans:
                by_key.setdefault(span.key, []).append(span)
            for key in sorted(by_key):
                yield from self._unmatched(by_key[key])
            for own in by_key.values() if self._policy.fails_on_loss else ():  # damage is told before loss
                self._count.require_all(own, self._policy.fails_on_damage, self._view.room(self._split.path))

    def _clipped(self, rows: Rows) -> Iterator[Checked]:
        """The rows; an inner batch that reaches beyond its span comes by itself, clipped to it.  Where there are queue
        files, an entry of theirs is for all that its record holds."""
        if self._split.has_queues:
            yield Checked(rows)
            return
        first = 0
        for row in np.flatnonzero(rows.are_inner & (rows.reasons == Reason.SOUND)).tolist():
            assert rows.inner_counts is not None
            topic = rows.topic if isinstance(rows.topic, str) else rows.topic[row].as_py()
            start = int(rows.queue_offsets[row])
            end = start + int(rows.inner_counts[row])
            spans = self._wanted[topic, int(rows.queue_ids[row])]
            spans = [span for span in spans if span[0] < end and span[1] > start]
            if len(spans) == 1 and spans[0][0] <= start and end <= spans[0][1]:
                continue
            if first < row:
                yield Checked(rows.take(np.arange(first, row)))
            yield from (Checked(rows.take(np.array([row])), span) for span in spans)
            first = row + 1
        if first < len(rows):
            yield Checked(rows.take(np.arange(first, len(rows))))

    def is_whole(self, offset: int) -> bool:
        """Whether the file that holds `offset` may be read on.  Raises DataLost if not, unless the scan goes on."""
        try:
            self._view.require_whole(offset)
        except DataLost as lost:
            self._lose(lost.wanted, lost.path, lost.reason)
            return False
        return True

    def _walked(self) -> Iterator[Rows]:
        """The rows of the walk, a stretch at a time."""
        split, request, (low, high) = self._split, self._request, self._range
        crc_from = {"always": low, "never": high, "auto": split.crc_from}[request.verify_crc]
        wanted = self._wanted
        wants_codes = "tagsCode" in request.columns
        levels = readers_levels(split.disk, split.path) if wants_codes else ()
        queues = WalkedQueues(self._view, self._count, request, crc_from, levels) if split.has_queues else None
        topics = pa.array(sorted({span.topic.encode() for span in split.spans}), pa.binary())
        of_batches = batch_topics(split)
        limits = WalkLimits(low, high, crc_from, known_end=high, past_gone=True)
        for item in walk(self._view, limits):
            if isinstance(item, Break):
                self._report(item)
                continue
            mark(item.reasons, item.offsets == split.torn_at, Reason.NO_END)
            self._count.is_damaged |= bool((item.reasons != Reason.SOUND).any())
            codes = np.zeros(len(item.offsets), np.int64) if wants_codes else None
            if queues is None and codes is not None:
                _fill_in(codes, item, wanted, levels)
            keep = _chosen(item, wanted, queues, codes, self._count)
            keep |= self._damaged(item, topics) & (item.offsets >= split.walk_from)
            if keep.any():
                yield _rows(item, np.flatnonzero(keep), codes, of_batches)

    def _damaged(self, stretch: Stretch, topics: pa.Array) -> Mask:
        """Damaged records that concern the split: an error, or flagged rows, or left out.

        Rows that queue entries lead to are flagged by `_unmatched`, so only those from `walk_from` on are kept.
        """
        bad = (stretch.reasons != Reason.SOUND) & is_dispatched(stretch.located.flags)
        bad |= stretch.reasons == Reason.NOT_WHOLE
        nothing = np.zeros(len(bad), bool)
        if not bad.any() or not (self._policy.fails_on_damage or self._policy.shows_damage):
            return nothing
        located = stretch.located
        for row in np.flatnonzero(bad).tolist():
            reason = Reason(int(stretch.reasons[row]))
            if reason is not Reason.NOT_WHOLE:
                name = binary_array(located.page, located.topic_at[row : row + 1], located.topic_size[row : row + 1])
                if name[0] not in topics:
                    continue
            is_shown = self._policy.is_shown(int(stretch.offsets[row]), TEXT[reason])
            nothing[row] = is_shown and reason is not Reason.NOT_WHOLE
        return nothing

    def _report(self, found: Break) -> None:
        """A place where no record stands although sound ones follow, a file that is gone, or the end of a log that
        reached further once.
        """
        if found.is_missing:
            path = found.path or self._view.room(self._split.path)
            self._lose((found.offset, found.resume or self._view.end), path, found.reason)
        elif found.resume is not None:
            self._policy.is_shown(found.offset, found.reason)
        elif self._range[1] == self._split.log_end:
            self._count.ended_at = found.offset
            return
        self._count.is_damaged = True

    def _lose(self, gone: tuple[int, int], path: str, reason: str) -> None:
        """Raises DataLost if messages of the split stood in the bytes `gone`, [first, end), of the log, unless the scan
        goes on without them.

        The queues' entries say which; of those without an entry only the place in the log is known.
        """
        if not self._policy.tells_loss(reason):
            return
        split = self._split
        low, high = max(gone[0], self._range[0]), min(gone[1], self._range[1])
        if split.has_queues:
            look = self._count.look
            queues = look.asked(
                lambda: {span: open_queue(look.queue_disk, split.path, *span[:3]) for span in split.spans}
            )
            slots = {span: entries_between(queue, (span.start, span.end), low, high) for span, queue in queues.items()}
            lost = [span for span, (first, last) in slots.items() if first < last]
            if lost:
                self._policy.lose(_named(lost), slots[lost[0]], path, reason)
            if high <= split.walk_from:
                return
        self._policy.lose(f"commitlog of {_named(split.spans)}", (low, high), path, reason)

    def _unmatched(self, spans: list[Span]) -> Iterator[Checked]:
        """The damaged records of a queue's spans: entries point at them in this part of the log, and no sound record
        answered.

        Counting comes first, by halving; only a queue whose count differs is read again, entry by entry.
        """
        parts = self._count.look.asked(lambda: self._entry_parts(spans))
        if sum(last - first for _, (first, last) in parts) <= self._count.matched[spans[0].key]:
            return
        for span, (first, last) in parts:
            for rows in self._by_entries.checked(span.part(first, last), self._split.spans.index(spans[0])):
                bad = rows.reasons != Reason.SOUND
                if bad.any():
                    self._count.is_damaged = True
                    yield Checked(rows.take(bad))

    @cached_property
    def _by_entries(self) -> EntrySource:
        return EntrySource(self._split, self._request, self._view, self._policy, self._count.look)

    def _entry_parts(self, spans: list[Span]) -> list[tuple[Span, tuple[int, int]]]:
        """For each span of a queue the slots whose entries point into the split's part of the log."""
        low, high = self._range
        queue = open_queue(self._count.look.queue_disk, self._split.path, *spans[0][:3])
        parts = [(span, entries_between(queue, (span.start, span.end), low, high)) for span in spans]
        if low <= self._view.start:  # entries that are gone before the first one as well
            parts = [(span, (min(max(span.start, queue.first_slot()), last), last)) for span, (_, last) in parts]
        return parts


def _wanted(spans: tuple[Span, ...]) -> Mapping[QueueKey, list[tuple[int, int]]]:
    wanted: dict[QueueKey, list[tuple[int, int]]] = {}
    for topic, queue_id, _, start, end in spans:
        wanted.setdefault((topic, queue_id), []).append((start, end))
    return wanted


def _chosen(
    stretch: Stretch,
    wanted: Mapping[QueueKey, list[tuple[int, int]]],
    queues: WalkedQueues | None,
    codes: Ints | None,
    count: WalkCount,
) -> npt.NDArray[np.bool_]:
    """Which sound records of a stretch are messages of the wanted ranges; fills in their tags codes where asked."""
    keep = np.zeros(len(stretch.offsets), bool)
    for run in runs_by_queue(stretch):
        ranges = wanted.get(run.key)
        if ranges is None:
            continue
        inside = np.zeros(len(run.rows), bool)
        for low, high in ranges:
            inside |= (run.queue_offsets < high) & (run.queue_offsets + run.counts > low)
        if not inside.any():
            continue
        if queues is not None:
            answers = queues.answers(run, stretch, inside)
            count.matched[run.key] += int((inside & answers.dispatched).sum())
            unanswered = answers.unanswered & inside
            inside &= answers.dispatched | answers.undispatched
            count.add(run, inside, unanswered, ranges)
            if codes is not None and answers.codes is not None:
                codes[run.rows] = answers.codes
        keep[run.rows[inside]] = True
    return keep


def _fill_in(codes: Ints, stretch: Stretch, wanted: Container[QueueKey], levels: LevelTables) -> None:
    """Puts the codes there that dispatch would give the records of wanted queues in a stretch."""
    for run in runs_by_queue(stretch):
        if run.key in wanted:
            codes[run.rows] = tags_codes(stretch.located.take(run.rows), run.key[0], levels)


def _named(spans: Sequence[Span]) -> str:
    """`orders/0`, `orders/0 and 1 more queue`, `orders/0 and 2 more queues`."""
    keys = list(dict.fromkeys(f"{span.topic}/{span.queue_id}" for span in spans))
    more = len(keys) - 1
    return keys[0] + (f" and {more} more queue{'s' if more > 1 else ''}" if more else "")


def _rows(stretch: Stretch, numbers: npt.NDArray[np.intp], codes: Ints | None, of_batches: Container[bytes]) -> Rows:
    located = stretch.located.take(numbers)
    names = text_array(binary_array(located.page, located.topic_at, located.topic_size))
    is_single = pc.all(pc.equal(names, names[0])).as_py()
    said = record_numbers(located, own_bases=stretch.own_bases, batch_topics=of_batches)
    return Rows(
        located,
        names[0].as_py() if is_single else names,
        located.head("queue_id").astype(np.int32),
        located.head("queue_offset").astype(np.int64),
        stretch.offsets[numbers],
        located.total_size.astype(np.int32),
        stretch.reasons[numbers],
        None if codes is None else codes[numbers],
        np.where(inner_batch_rows(located, said), said.counts, 0),
    )
