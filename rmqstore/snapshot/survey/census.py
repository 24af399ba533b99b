"""Messages that stand in the commitlog and in no consume queue: found by walking, queue by queue.

A broker that was killed, or that is busy, has put them into the log and not yet into the queues; a store that lost its
queue files has all of them there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.directory.queue_files import BATCH, SIMPLE, QueueFiles
from rmqstore.formats import names
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import QueueKey
from rmqstore.records.stretch import Stretch

if TYPE_CHECKING:
    from rmqstore.records.queue_runs import QueueRun

# Records of one queue in one stretch that may lie about their queue offset before it is given up to tell them apart.
_JUMPS_MAX = 256


@dataclass(slots=True)
class Gap:
    """A queue's messages that the walk found: queue offsets [low, high) lie in the log in the records from
    `first_offset` to `last_offset`.  `kind` is that of the queue where it has no files.
    """

    kind: str
    low: int
    high: int
    first_offset: int
    last_offset: int
    message_count: int = 0
    byte_count: int = 0


class FirstFound(NamedTuple):
    """The first record of a queue without an entry: its queue offset, and its place in the log.

    `highest` is the highest queue offset of those in front of the first record that has its entry.
    """

    queue_offset: int
    place: int
    highest: int


@dataclass(slots=True)
class Census:
    """Undispatched messages by queue, and records whose queue offset cannot be true (offset in the log, why).

    `held` is the queue offset after the last record that its queue's entry points at, by queue; `first_found` the first
    record without an entry, whether what it says can be true or not; `restarts` where queues that have no entries
    begin with 0 and 1 after older records of theirs.
    """

    gaps: dict[QueueKey, Gap] = field(default_factory=dict)
    held: dict[QueueKey, int] = field(default_factory=dict)
    first_found: dict[QueueKey, FirstFound] = field(default_factory=dict)
    misplaced: list[tuple[int, str]] = field(default_factory=list)
    restarts: dict[QueueKey, int] = field(default_factory=dict)

    def add(
        self, stretch: Stretch, queues: Mapping[QueueKey, QueueFiles], ends: Mapping[QueueKey, int], gap_ok: bool
    ) -> None:
        """Counts one stretch.  `ends` are the queue offsets after the last good entry of each queue; `gap_ok` tells
        that damage may have swallowed records, so that a jump in the queue offsets is to be expected."""
        from rmqstore.directory.undispatched import all_runs, missing_rows  # noqa: PLC0415  where the log has more

        for run in all_runs(stretch, with_wrong_crc=True):
            missing, taken = missing_rows(run, stretch, queues.get(run.key))
            if _is_batch_queue(queues.get(run.key)):
                missing |= run.queue_offsets >= ends.get(run.key, 0)  # units that came since the ends were looked for
            rows = np.flatnonzero(missing)
            self._note_first(run, missing, stretch)
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
        """The undispatched messages up to place `until` in the log that are the only one of their queue, by place.  A
        light queue's record is another's, too.
        """
        return {
            gap.first_offset: key
            for key, gap in self.gaps.items()
            if gap.first_offset == gap.last_offset and gap.last_offset <= until and not names.is_light_queue(key[0])
        }

    def leave_out(self, key: QueueKey) -> None:
        """The one record found of a queue is not of this queue."""
        gap = self.gaps.pop(key)
        self.misplaced.append(_misplaced(gap.first_offset, gap.low, key))

    def _add_run(
        self, run: "QueueRun", rows: npt.NDArray[np.intp], taken: Mask, stretch: Stretch, end: int | None, gap_ok: bool
    ) -> None:
        """Queue offsets of undispatched records rise along the log, without a jump above what is known of the queue."""
        low, high = run.queue_offsets[rows], run.queue_offsets[rows] + run.counts[rows]
        places = stretch.offsets[run.rows[rows]]
        gap = self.gaps.get(run.key)
        if not end:
            self._note_beginnings(run.key, low, places, is_first=gap is None)
        ceiling = 2**63 - 1 if gap_ok else end or 0
        if gap is None and end is None:
            ceiling = max(ceiling, int(low[0]))  # a queue whose older messages are gone begins anywhere
        wrong = taken | ~_in_order(low, high, taken, gap.high if gap else 0, ceiling)
        if not names.is_directory_name(run.key[0]) or run.key[1] < 0:
            wrong[:] = True
        if end is None or not names.is_light_queue(run.key[0]):  # else entries in front of it may be lost
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

    def _note_first(self, run: "QueueRun", missing: Mask, stretch: Stretch) -> None:
        """Notes the first record of a queue without an entry, and how high those in front of the first entry go."""
        if not missing.any():
            return
        in_front = 0 if run.key in self.held else len(missing) if missing.all() else int(np.argmin(missing))
        row = int(np.argmax(missing))
        first = FirstFound(int(run.queue_offsets[row]), int(stretch.offsets[run.rows[row]]), -1)
        known = self.first_found.setdefault(run.key, first)
        highest = int(run.queue_offsets[:in_front].max(initial=known.highest))
        self.first_found[run.key] = known._replace(highest=highest)

    def _note_beginnings(self, key: QueueKey, low: Ints, places: Ints, *, is_first: bool) -> None:
        """A single record that says 0 may be damaged; two in a row are a queue whose topic was made again."""
        begins = np.flatnonzero((low[:-1] == 0) & (low[1:] == 1))
        if len(begins) and (begins[-1] or not is_first):
            self.restarts[key] = int(places[begins[-1]])


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
