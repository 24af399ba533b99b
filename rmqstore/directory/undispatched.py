"""Records of the log held against a queue's files: which of them no entry points at, and the entries that they lack."""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from rmqstore.directory.queue_files import BATCH, SIMPLE, QueueFiles, first_behind, holds_message
from rmqstore.formats.delay_levels import LevelTables
from rmqstore.formats.inner_batch import NO_TOPIC
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.queue_entry import QUEUE_ENTRY, scattered_entries
from rmqstore.records.dispatch_rules import tags_codes
from rmqstore.records.queue_runs import QueueRun, runs_by_queue
from rmqstore.records.stretch import Stretch

# `count` is set for records that were found in the log and for batches: how many messages a record holds.
FOUND_ENTRY = np.dtype(
    [("queue_offset", "i8"), ("physical_offset", "i8"), ("size", "i4"), ("count", "i4"), ("tags_code", "i8")]
)


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
    counts = units["message_count"][of]
    is_counted = counts == run.counts
    if stretch.own_bases is not NO_TOPIC:  # in DLedger mode RocketMQ counts a batch as one message
        is_counted |= counts == 1
    return np.asarray(same & is_counted)


def entries_at(queue: QueueFiles, queue_offsets: Ints) -> npt.NDArray[np.void]:
    """The entries of some queue offsets, zeros where the files have no room for one; offsets may be any number."""
    return scattered_entries(queue.read, queue.first_slot(), queue.files[-1].end // QUEUE_ENTRY.size, queue_offsets)


def find_entries(
    stretches: Iterator[Stretch], ranges: Mapping[QueueKey, tuple[int, int]], levels: LevelTables
) -> dict[QueueKey, npt.NDArray[np.void]]:
    """Entries (FOUND_ENTRY) by queue for the records whose queue offsets lie in that queue's range [low, high).

    Delivery times are by the delay levels `levels`.
    For inner batches queue_offset is the base, and every batch that reaches into the range is returned.
    """
    parts: dict[QueueKey, list[npt.NDArray[np.void]]] = {}
    has_light = any(is_light_queue(topic) for topic, _ in ranges)
    for stretch in stretches:
        for run in (all_runs if has_light else runs_by_queue)(stretch, with_wrong_crc=True):
            if run.key not in ranges:
                continue
            low, high = ranges[run.key]
            inside = (run.queue_offsets < high) & (run.queue_offsets + run.counts > low)
            if inside.any():
                found = _entries_of(run, inside, stretch, levels)
                parts.setdefault(run.key, []).append(found)
    return {key: np.concatenate(found) for key, found in parts.items()}


def all_runs(stretch: Stretch, *, with_wrong_crc: bool = False) -> Iterator[QueueRun]:
    """As `runs_by_queue`; also the light queues in which records say that they stand besides."""
    runs = runs_by_queue(stretch, with_wrong_crc)
    if not len(stretch.offsets) or stretch.end <= stretch.light_from:
        yield from runs
        return
    from rmqstore.records.light_queues import light_runs  # noqa: PLC0415  few stores have them

    light = {run.key: run for run in light_runs(stretch, with_wrong_crc=with_wrong_crc)}
    for run in runs:
        other = light.pop(run.key, None)  # a light queue that messages were put to as well
        yield run if other is None else _joined(run, other)
    yield from light.values()


def _joined(one: QueueRun, other: QueueRun) -> QueueRun:
    """The records of two runs of a queue in log order."""
    order = np.argsort(np.concatenate((one.rows, other.rows)), kind="stable")
    names = ("rows", "queue_offsets", "counts", "are_inner", "are_lies")
    return QueueRun(one.key, *(np.concatenate((getattr(one, name), getattr(other, name)))[order] for name in names))


def _entries_of(run: QueueRun, inside: Mask, stretch: Stretch, levels: LevelTables) -> npt.NDArray[np.void]:
    rows = run.rows[inside]
    found = np.zeros(len(rows), FOUND_ENTRY)
    found["queue_offset"] = run.queue_offsets[inside]
    found["physical_offset"] = stretch.offsets[rows]
    found["size"] = stretch.located.total_size[rows]
    found["count"] = run.counts[inside]
    found["tags_code"] = tags_codes(stretch.located.take(rows), run.key[0], levels)
    return found
