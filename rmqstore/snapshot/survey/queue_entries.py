"""The entries of all queues of a store as a survey asks for them.

Small queues, which a store may have by the hundred thousand, are read once and judged in vectors over queues; all
others file by file, as far as somebody asks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import sound_end
from rmqstore.directory.queue_files import SIMPLE, QueueFiles, first_behind, holds_message, small_content
from rmqstore.formats.message_columns import Ints, take_rows
from rmqstore.formats.names import NOWHERE, QueueKey, is_light_queue
from rmqstore.formats.queue_entry import read_entries

# Queues whose files are read before their entries are looked at together.
_BLOCK_QUEUES = 4096
# Entries of small queues that are held in memory, 12 bytes each; where a store has more, the rest is read by file.
_HELD_ENTRIES_MAX = 8 * 1024 * 1024
# Where entries say that records begin beyond, sums with their sizes may not fit 64 bits.
_OFFSET_MAX = 2**62
_NEVER = 2**63 - 1


class EntryBlock(NamedTuple):
    """Message entries that point at or after some offset of the log: offsets int64[n], sizes int32[n], n > 0.

    `is_joined`: of many queues, by offset; else of one queue, in its order.
    """

    offsets: Ints
    sizes: npt.NDArray[np.int32]
    is_light: bool
    is_joined: bool


@dataclass(frozen=True, slots=True)
class SmallQueues:
    """Plain queues with one file whose entries stand at its beginning, without a hole, and point ever further into the
    log.  Those of queue i are rows [edges[i], edges[i + 1]) of `offsets` and `sizes`; the first is slot `firsts[i]`.
    """

    queues: Sequence[QueueFiles]
    firsts: Ints
    edges: Ints
    offsets: Ints
    sizes: npt.NDArray[np.int32]

    @classmethod
    def of(cls, queues: Iterable[QueueFiles]) -> "SmallQueues":
        """Those of `queues` that are small.  Raises DataLost if a file is gone."""
        parts, held, left = [_NONE], 0, iter(queues)
        while held < _HELD_ENTRIES_MAX and (block := list(islice(left, _BLOCK_QUEUES))):
            part = _read_block(block)
            parts.append(part)
            held += len(part.offsets)
        starts = np.cumsum([0, *(len(part.offsets) for part in parts)])
        return cls(
            [queue for part in parts for queue in part.queues],
            np.concatenate([part.firsts for part in parts]),
            np.concatenate([part.edges[:-1] + start for part, start in zip(parts, starts[:-1], strict=True)]
                           + [starts[-1:]]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.sizes for part in parts]),
        )  # fmt: skip

    @property
    def ends(self) -> Ints:
        """The slot after each queue's last entry, int64[n]."""
        return self.firsts + np.diff(self.edges)

    @property
    def are_light(self) -> npt.NDArray[np.bool_]:
        """Whose entries lead to records of other queues, bool[n]."""
        return np.fromiter((is_light_queue(queue.topic) for queue in self.queues), bool, len(self.queues))


_NONE = SmallQueues((), np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))


def _read_block(queues: Sequence[QueueFiles]) -> SmallQueues:
    """Those of `queues` that are small, their files read one after the other."""
    found = [(queue, data) for queue in queues if queue.kind == SIMPLE and (data := small_content(queue)) is not None]
    if not found:
        return _NONE
    entries = read_entries(b"".join(data for _, data in found))
    counts = np.array([len(data) for _, data in found], np.int64) // entries.itemsize
    edges = np.concatenate(([0], np.cumsum(counts)))
    offsets = entries["physical_offset"].astype(np.int64)
    good = holds_message(SIMPLE, entries) & (offsets <= _OFFSET_MAX)
    follows = np.ones(len(entries), bool)
    follows[1:] = offsets[1:] > offsets[:-1]
    follows[edges[:-1][counts > 0]] = True
    bad_before = np.concatenate(([0], np.cumsum(~(good & follows))))
    is_small = bad_before[edges[1:]] == bad_before[edges[:-1]]
    kept = np.repeat(is_small, counts)
    return SmallQueues(
        [queue for (queue, _), small in zip(found, is_small.tolist(), strict=True) if small],
        np.array([queue.first_slot() for queue, _ in found], np.int64)[is_small],
        np.concatenate(([0], np.cumsum(counts[is_small]))),
        offsets[kept],
        entries["size"][kept].astype(np.int32),
    )


@dataclass(slots=True)
class QueueEntries:
    """Queues with the slot at which the entries of each end that count (`ends`; `plain_ends` are those of plain queues
    that have any); `others` are the queues that are not small.

    Whatever is asked of a queue that is not small raises DataLost if one of its files is gone.
    """

    queues: Mapping[QueueKey, QueueFiles]
    small: SmallQueues
    ends: dict[QueueKey, int] = field(default_factory=dict)
    plain_ends: dict[QueueKey, int] = field(default_factory=dict)
    others: dict[QueueKey, QueueFiles] = field(default_factory=dict)

    @classmethod
    def of(cls, queues: Mapping[QueueKey, QueueFiles], view: LogView) -> "QueueEntries":
        """The entries of `queues` as they are now.  Raises DataLost."""
        small = SmallQueues.of(queues.values())
        ends = {
            (queue.topic, queue.queue_id): end for queue, end in zip(small.queues, small.ends.tolist(), strict=True)
        }
        others = {key: queue for key, queue in queues.items() if key not in ends}
        ends |= {key: sound_end(queue, view) for key, queue in others.items()}
        plain = {key: end for key, end in ends.items() if end > 0 and queues[key].kind == SIMPLE}
        return cls(queues, small, ends, plain, others)

    def first_known(self, log_start: int) -> int:
        """The lowest offset of the log at or after its start that an entry points at; the highest number if none
        does.
        """
        inside = self.small.offsets[self.small.offsets >= log_start]
        lowest = int(inside.min()) if len(inside) else _NEVER
        for key, queue in self.others.items():
            if lowest == log_start:
                break
            slot = first_kept(queue, queue.first_slot(), self.ends[key], log_start)
            if slot < self.ends[key]:
                lowest = min(lowest, int(queue.read(slot, slot + 1)["physical_offset"][0]))
        return lowest

    def pointing_from(self, offset: int) -> Iterator[EntryBlock]:
        """The message entries that point at or after `offset` of the log."""
        small, inside = self.small, self.small.offsets >= offset
        light = np.repeat(small.are_light, np.diff(small.edges))
        for is_light in (False, True):
            rows = np.flatnonzero(inside & (light == is_light))
            if len(rows):
                rows = rows[np.argsort(small.offsets[rows], kind="stable")]
                yield EntryBlock(small.offsets[rows], small.sizes[rows], is_light, is_joined=True)
        for key, queue in self.others.items():
            for entries in _entries_from(queue, offset, self.ends[key]):
                places = entries["physical_offset"].astype(np.int64)
                yield EntryBlock(places, entries["size"].astype(np.int32), is_light_queue(queue.topic), is_joined=False)

    def pointing_at(self, places: Collection[int]) -> set[int]:
        """Those of the places of the log that an entry points at; entries of light queues, which point at records of
        others, are not asked.
        """
        wanted = np.array(sorted(places), np.int64)
        found = np.zeros(len(wanted), bool)
        for block in self.pointing_from(int(wanted[0])) if len(wanted) else ():
            if not block.is_light:
                at = np.minimum(wanted.searchsorted(block.offsets), len(wanted) - 1)
                found[at[wanted[at] == block.offsets]] = True
        return set(wanted[found].tolist())

    def listed_end(self) -> int:
        """Where in the log the last record ends that an entry points at which counts; 0 if there is none."""
        small = self.small
        ends = [int((small.offsets + small.sizes).max(initial=0))]
        for key, queue in self.others.items():
            end = self.ends[key]
            newest = queue.read(end - 1, end) if end > queue.first_slot() else ()
            ends += [int(entry["physical_offset"]) + int(entry["size"]) for entry in newest]
        return max(ends)

    def light_from(self, *, may_lag: bool) -> int:
        """From where on in the log records tell which light queues they are in: from the last that an entry points at
        which counts, for a kill may come between its entries; from the beginning on, where no plain queue has one, as
        light queues are among these.  Nowhere, where no queue is light or none `may_lag`.
        """
        if not self.plain_ends:
            return 0
        if not may_lag or not any(map(is_light_queue, {topic for topic, _ in self.queues})):
            return NOWHERE
        last = int(self.small.offsets.max(initial=0))
        for key, queue in self.others.items():
            end = self.ends[key]
            newest = queue.read(end - 1, end) if end > queue.first_slot() else ()
            last = max([last, *(int(entry["physical_offset"]) for entry in newest)])
        return last

    def reach(self) -> int | None:
        """The highest offset of the log that the last entry of a queue says that its record ends before; None where
        nothing is written.
        """
        small = self.small
        counts = np.diff(small.edges)
        last = small.edges[1:][counts > 0] - 1
        ends = (small.offsets[last] + small.sizes[last]).tolist()
        ends += small.firsts[(counts == 0) & (small.firsts > 0)][:1].tolist() and [0]
        for queue in self.others.values():
            end = queue.written_end()
            if end:
                newest = queue.read(end - 1, end)[0]
                ends.append(int(newest["physical_offset"]) + int(newest["size"]))
        return max(ends, default=None)


def in_order(block: EntryBlock) -> EntryBlock:
    """The entries of a queue that point further than all those before them.  Others are damaged: in a sum over the log
    they would stand for the record that they should point at.
    """
    offsets = block.offsets
    if block.is_joined or (offsets[1:] > offsets[:-1]).all():
        return block
    highest = np.maximum.accumulate(offsets)
    rises = np.concatenate(([True], offsets[1:] > highest[:-1]))
    return block._replace(offsets=offsets[rises], sizes=block.sizes[rises])


def first_kept(queue: QueueFiles, first: int, end: int, log_start: int) -> int:
    """The first slot whose message the log still holds (Java: correctMinOffset); `end` if none does."""
    if first < end:
        entry = queue.read(first, first + 1)
        if holds_message(queue.kind, entry)[0] and int(entry["physical_offset"][0]) >= log_start:
            return first
    return first_behind(queue, first, end, log_start)


def _entries_from(queue: QueueFiles, physical_offset: int, end: int) -> Sequence[np.ndarray]:
    """Blocks of the queue's message entries that point at or after `physical_offset`, newest block first."""
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
