"""Messages that stand in the commitlog and in no consume queue: found by walking, queue by queue.

A broker that was killed, or that is busy, has put them into the log and not yet into the queues; a store that lost its
queue files has all of them there.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqstore.formats import java_hash, names
from rmqstore.formats.inner_batch import inner_batch_rows, record_numbers
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.property_columns import split_pieces
from rmqstore.formats.queue_entry import QUEUE_ENTRY, scattered_entries
from rmqstore.snapshot.arrow_bytes import binary_array, bytes_of
from rmqstore.snapshot.queue_files import BATCH, SIMPLE, QueueFiles, first_behind, holds_message
from rmqstore.snapshot.soundness import Reason, is_dispatched_kind
from rmqstore.snapshot.walk import Stretch

QueueKey = tuple[str, int]
# Records of one queue in one stretch that may lie about their queue offset before it is given up to tell them apart.
_JUMPS_MAX = 256


@dataclass(slots=True)
class QueueRun:
    """Records of one queue in one stretch of the log, in log order; vectors of n.

    `counts` are the messages that each has in a batch queue, `are_inner` says which hold several, one by one; both are
    what the record says, as if its queue were one of batches.
    """

    key: QueueKey
    rows: npt.NDArray[np.intp]
    queue_offsets: Ints
    counts: Ints
    are_inner: Mask
    are_lies: Mask  # bool[n]: an inner batch whose INNER_BASE is another


def runs_by_queue(stretch: Stretch, with_wrong_crc: bool = False) -> Iterator[QueueRun]:
    """The sound records of a stretch that belong to consume queues, grouped by topic and queue id.

    `with_wrong_crc` adds those whose CRC is wrong: they still say which message of which queue they are.
    """
    located = stretch.located
    known = stretch.reasons == Reason.SOUND
    if with_wrong_crc:
        known |= (stretch.reasons == Reason.BODY_CRC) | (stretch.reasons == Reason.PROPERTY_CRC)
    usable = np.flatnonzero(known & is_dispatched_kind(located.flags))
    if not len(usable):
        return
    part = located.take(usable)
    topics = binary_array(part.page, part.topic_at, part.topic_size).dictionary_encode()
    queue_ids = part.head("queue_id").astype(np.int64)
    queue_offsets = part.head("queue_offset").astype(np.int64)
    grouping = np.asarray(topics.indices).astype(np.int64) << 32 | (queue_ids & 0xFFFFFFFF)
    order = np.argsort(grouping, kind="stable")
    cuts = np.flatnonzero(np.diff(grouping[order])) + 1
    numbers = record_numbers(part)
    are_inner = inner_batch_rows(part, numbers)
    are_lies = numbers.are_said & (numbers.bases != queue_offsets)
    counts = np.where(are_lies, 1, numbers.counts)
    for of_queue in np.split(order, cuts):
        topic = topics.dictionary[int(grouping[of_queue[0]] >> 32)].as_py().decode("utf-8", "replace")
        deleted_before = stretch.deleted_before.get(topic, 0)
        rows = of_queue[stretch.offsets[usable[of_queue]] >= deleted_before] if deleted_before else of_queue
        if len(rows):
            key = topic, int(queue_ids[rows[0]])
            yield QueueRun(key, usable[rows], queue_offsets[rows], counts[rows], are_inner[rows], are_lies[rows])


def missing_rows(run: QueueRun, stretch: Stretch, queue: QueueFiles | None) -> tuple[Mask, Mask]:
    """Which records of a run the queue's files do not hold, and whose place there another record holds: bool[n]
    twice.
    """
    nowhere = np.zeros(len(run.rows), bool)
    if queue is None or not queue.files:
        return ~nowhere, nowhere
    offsets = stretch.offsets[run.rows]
    if queue.kind == BATCH:
        return ~_has_unit(run, stretch, queue), nowhere
    entries = entries_at(queue, run.queue_offsets)
    held = holds_message(SIMPLE, entries)
    same = entries["physical_offset"] == offsets
    missing, taken = ~(held & same), held & ~same
    if run.are_inner.any():  # in a plain queue, as a replica may have it: not in its number's place
        elsewhere = ~np.isin(offsets, _entries_into(queue, offsets)["physical_offset"])
        missing, taken = np.where(run.are_inner, elsewhere, missing), taken & ~run.are_inner
    return missing, taken


def _entries_into(queue: QueueFiles, offsets: Ints) -> npt.NDArray[np.void]:
    """The entries of a queue that point from the first to the last of some places of the log, found by halving."""
    end = queue.written_end()
    low = first_behind(queue, queue.first_slot(), end, int(offsets[0]))
    entries = queue.read(low, first_behind(queue, low, end, int(offsets[-1]) + 1))
    return entries[holds_message(queue.kind, entries)]


def _has_unit(run: QueueRun, stretch: Stretch, queue: QueueFiles) -> Mask:
    """Which batches a unit points at that has their size and numbers."""
    offsets, sizes = stretch.offsets[run.rows], stretch.located.total_size[run.rows]
    units = _entries_into(queue, offsets)
    if not len(units):
        return np.zeros(len(offsets), bool)
    order = np.argsort(units["physical_offset"], kind="stable")
    places = units["physical_offset"][order].astype(np.int64)
    of = order[np.minimum(np.searchsorted(places, offsets), len(units) - 1)]
    same = (units["physical_offset"][of] == offsets) & (units["size"][of] == sizes)
    same &= units["base_queue_offset"][of] == run.queue_offsets
    return np.asarray(same & (units["message_count"][of] == run.counts))


def entries_at(queue: QueueFiles, queue_offsets: Ints) -> npt.NDArray[np.void]:
    """The entries of some queue offsets, zeros where the files have no room for one; offsets may be any number."""
    return scattered_entries(queue.read, queue.first_slot(), queue.files[-1].end // QUEUE_ENTRY.size, queue_offsets)


@dataclass(slots=True)
class Gap:
    """What the walk found of one queue: queue offsets [low, high) lie in the log in the records from `first_offset` to
    `last_offset`.  `kind` is that of the queue where it has no files.
    """

    kind: str
    low: int
    high: int
    first_offset: int
    last_offset: int
    message_count: int = 0
    byte_count: int = 0


@dataclass(slots=True)
class Census:
    """Undispatched messages by queue, and records whose queue offset cannot be true (offset in the log, why).

    `held` is the queue offset behind the last record that its queue's entry points at, by queue; `first_found` that of
    the first record without an entry, whether it can be true or not.
    """

    gaps: dict[QueueKey, Gap] = field(default_factory=dict)
    held: dict[QueueKey, int] = field(default_factory=dict)
    first_found: dict[QueueKey, int] = field(default_factory=dict)
    misplaced: list[tuple[int, str]] = field(default_factory=list)

    def add(
        self, stretch: Stretch, queues: Mapping[QueueKey, QueueFiles], ends: Mapping[QueueKey, int], gap_ok: bool
    ) -> None:
        """Counts one stretch.  `ends` are the queue offsets behind the last good entry of each queue; `gap_ok` tells
        that damage may have swallowed records, so that a jump in the queue offsets is to be expected."""
        for run in runs_by_queue(stretch, with_wrong_crc=True):
            missing, taken = missing_rows(run, stretch, queues.get(run.key))
            if _is_batch_queue(queues.get(run.key)):
                missing |= run.queue_offsets >= ends.get(run.key, 0)  # units that came since the ends were looked for
            rows = np.flatnonzero(missing)
            found = ~missing & ~run.are_inner
            if found.any() and not _is_batch_queue(queues.get(run.key)):
                self.held[run.key] = max(self.held.get(run.key, 0), int(run.queue_offsets[found].max()) + 1)
            if len(rows):
                # Entries that a live broker has written since the ends were looked for count as well.
                end = ends.get(run.key)
                end = max(end or 0, self.held[run.key]) if run.key in self.held else end
                if _is_batch_queue(queues.get(run.key)) or run.are_inner.any():
                    taken = taken | run.are_lies
                self._add_run(run, rows, taken[rows], stretch, end, gap_ok)

    def lone_records(self, until: int) -> dict[int, QueueKey]:
        """The undispatched messages up to place `until` in the log that are the only one of their queue, by place."""
        return {
            gap.first_offset: key
            for key, gap in self.gaps.items()
            if gap.first_offset == gap.last_offset and gap.last_offset <= until
        }

    def leave_out(self, key: QueueKey) -> None:
        """The one record found of a queue is not of this queue."""
        gap = self.gaps.pop(key)
        self.misplaced.append(_misplaced(gap.first_offset, gap.low, key))

    def _add_run(
        self, run: QueueRun, rows: npt.NDArray[np.intp], taken: Mask, stretch: Stretch, end: int | None, gap_ok: bool
    ) -> None:
        """Queue offsets of undispatched records rise along the log, without a jump above what is known of the queue."""
        low, high = run.queue_offsets[rows], run.queue_offsets[rows] + run.counts[rows]
        places = stretch.offsets[run.rows[rows]]
        self.first_found.setdefault(run.key, int(low[0]))
        gap = self.gaps.get(run.key)
        ceiling = 2**63 - 1 if gap_ok else end or 0
        if gap is None and end is None:
            ceiling = max(ceiling, int(low[0]))  # a queue whose older messages are gone begins anywhere
        wrong = taken | ~_in_order(low, high, taken, gap.high if gap else 0, ceiling)
        if not names.is_topic_name(run.key[0]):
            wrong[:] = True
        self.misplaced += [
            _misplaced(place, offset, run.key)
            for place, offset in zip(places[wrong].tolist(), low[wrong].tolist(), strict=True)
        ]
        good = ~wrong
        if not good.any():
            return
        sizes = stretch.located.total_size[run.rows[rows[good]]]
        if gap is None:
            gap = self.gaps[run.key] = Gap(SIMPLE, int(low[good][0]), 0, int(places[good][0]), 0)
        if run.are_inner[rows[good]].any():
            gap.kind = BATCH
        gap.low, gap.high = min(gap.low, int(low[good].min())), max(gap.high, int(high[good].max()))
        gap.last_offset = int(places[good][-1])
        gap.message_count += int(run.counts[rows[good]].sum())
        gap.byte_count += int(sizes.sum())


def _is_batch_queue(queue: QueueFiles | None) -> bool:
    return queue is not None and queue.kind == BATCH


def _misplaced(place: int, queue_offset: int, key: QueueKey) -> tuple[int, str]:
    return place, f"queue offset {queue_offset} contradicts queue {key[0]}/{key[1]}"


def _in_order(low: Ints, high: Ints, taken: Mask, reached: int, ceiling: int) -> Mask:
    """Which records of a queue continue it: none below what was reached, none that jumps above `ceiling` and the one
    before.

    A record that jumps is left out before the next is looked at, which continues where the one before the jump ended.
    """
    fits = ~taken
    for _ in range(_JUMPS_MAX):
        rows = np.flatnonzero(fits)
        before = np.maximum.accumulate(np.concatenate(([reached], high[rows][:-1])))
        jumps = np.flatnonzero((low[rows] > np.maximum(before, ceiling)) | (low[rows] < before))
        if not len(jumps):
            return fits
        fits[rows[jumps[0]]] = False
    return fits


def find_entries(
    stretches: Iterator[Stretch], ranges: Mapping[QueueKey, tuple[int, int]]
) -> dict[QueueKey, npt.NDArray[np.void]]:
    """Entries (FOUND_ENTRY) by queue for the records whose queue offsets lie in that queue's range [low, high).

    For inner batches queue_offset is the base, and every batch that reaches into the range is returned.
    """
    parts: dict[QueueKey, list[npt.NDArray[np.void]]] = {}
    for stretch in stretches:
        for run in runs_by_queue(stretch, with_wrong_crc=True):
            if run.key not in ranges:
                continue
            low, high = ranges[run.key]
            inside = (run.queue_offsets < high) & (run.queue_offsets + run.counts > low)
            if inside.any():
                found = _entries_of(run, inside, stretch)
                parts.setdefault(run.key, []).append(found)
    return {key: np.concatenate(found) for key, found in parts.items()}


def _entries_of(run: QueueRun, inside: Mask, stretch: Stretch) -> npt.NDArray[np.void]:
    rows = run.rows[inside]
    found = np.zeros(len(rows), FOUND_ENTRY)
    found["queue_offset"] = run.queue_offsets[inside]
    found["physical_offset"] = stretch.offsets[rows]
    found["size"] = stretch.located.total_size[rows]
    found["count"] = run.counts[inside]
    found["tags_code"] = tags_codes(stretch.located.take(rows), run.key[0])
    return found


# `count` is set for records that were found in the log and for batches: how many messages a record holds.
FOUND_ENTRY = np.dtype(
    [("queue_offset", "i8"), ("physical_offset", "i8"), ("size", "i4"), ("count", "i4"), ("tags_code", "i8")]
)


def tags_codes(located: Located, topic: str) -> Ints:
    """What dispatch would put into the entries: the hash of TAGS, or in the schedule topic the delivery time.

    The delivery time uses RocketMQ's default delay levels: a broker's own table is in its configuration, not in the
    store.
    """
    pieces = split_pieces(*bytes_of(binary_array(located.page, located.properties_at, located.properties_size)))
    starts, sizes = pieces.find(b"TAGS")
    codes = java_hash.string_hashes(pieces.data, starts, np.maximum(sizes, 0)).astype(np.int64)
    if topic != names.SCHEDULE_TOPIC:
        return codes
    starts, sizes = pieces.find(b"DELAY")
    times = located.store_timestamp()
    for row in np.flatnonzero(sizes > 0).tolist():
        text = pieces.data[starts[row] : starts[row] + sizes[row]].tobytes()
        level = int(text) if _LEVEL.fullmatch(text) else 0
        if level > 0:
            codes[row] = times[row] + DELAY_MS[min(level, len(DELAY_MS)) - 1]
    return codes


_LEVEL = re.compile(rb"[+-]?[0-9]{1,10}")  # as dispatch takes it; Java: Integer.parseInt

# messageDelayLevel: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
DELAY_MS = (
    1_000,
    5_000,
    10_000,
    30_000,
    *(60_000 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)


def is_multi_dispatch(topic: str) -> bool:
    """Whether a queue of this name takes entries of other topics' records (LMQ)."""
    return topic.startswith("%LMQ%")
