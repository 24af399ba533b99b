"""Keys by the index files: ranges of queue offsets about the messages that the index leads to.

The index is believed for the part of the log from its first item to its last; the rest is read as it is.  A broker that
ran for a while with messageIndexEnable=false leaves a hole inside a file that nothing shows: scanMode=queue reads
everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rmqstore.directory.index_files import IndexFile, finds_all, index_files
from rmqstore.directory.queue_files import SIMPLE, first_behind
from rmqstore.errors import NotNow
from rmqstore.formats import java_hash, message
from rmqstore.formats.message_columns import Ints, gather
from rmqstore.formats.names import is_light_queue
from rmqstore.snapshot.lookup.by_key import EVER, searched
from rmqstore.snapshot.request import QueueRange, ScanRequest
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

# Found messages nearer than this are read with those between them: a range of its own costs more.
_GAP_ENTRIES = 64
# From so many ranges a store on, planning them costs more than reading everything between.
_RANGES_MAX = 2048
_FOUND_MAX = 100_000


def prune_by_keys(store: StoreExtent, ranges: Sequence[QueueRange], request: ScanRequest) -> Sequence[QueueRange]:
    """The ranges of one store without most of what has none of the request's keys; the same where no key is asked for,
    where no index helps, and where damage is to be seen (verify_crc always, damaged records as rows).
    """
    asked = request.keys and request.scan_mode == "auto" and request.verify_crc != "always"
    if not asked or request.on_corrupt_record == "null" or store.queue_layout != "file":
        return ranges
    try:
        return _pruned(store.opened_by(request.access), ranges, request)
    except NotNow:  # the index changes just now: everything will do as well
        return ranges


def _pruned(store: StoreExtent, ranges: Sequence[QueueRange], request: ScanRequest) -> Sequence[QueueRange]:
    covered = _covered(store)
    if not covered:
        return ranges
    by_topic = {wanted.topic for wanted in ranges if _is_indexed(store, wanted)}
    hashes = [java_hash.index_hash(f"{topic}#{key}") for topic in sorted(by_topic) for key in request.keys]
    named = np.array(list(request.offset_ids.values()), np.int64)
    found = np.union1d(_found(store, covered, sorted(set(hashes))), named)
    if len(found) > _FOUND_MAX:
        return ranges
    places = _messages_at(store, found)
    if places is None:
        return ranges
    pruned: list[QueueRange] = []
    for wanted in ranges:
        if wanted.topic in by_topic and _is_indexed(store, wanted):
            pruned += _pieces(store, wanted, covered, places)
        else:
            pruned.append(wanted)
    return pruned if len(pruned) <= max(_RANGES_MAX, len(ranges)) else ranges


@dataclass(frozen=True, slots=True)
class _Covered:
    """One index file and the part of the log, [low, high), of which it knows every message with a key."""

    file: IndexFile
    low: int
    high: int


def _covered(store: StoreExtent) -> list[_Covered]:
    """The part that each file knows: from its first record up to before its last, which a kill may have left half
    indexed, or in the next file.  Files that contradict themselves or the log, and those that RocketMQ would not keep
    after a crash (IndexService.load), know nothing.
    """
    flushed_ms = store.checkpoint.index_timestamp_ms if store.checkpoint else 0
    is_crashed = store.abort_present and not store.lock_held
    covered = []
    for file in index_files(store.disk, store.path, store.maps_index):
        header = file.header
        low, high = max(header.begin_offset, store.log_start), min(header.end_offset, store.walk_from)
        is_cut_off = header.end_offset >= store.log_end  # what was written there later is not indexed
        is_torn = is_crashed and header.end_timestamp_ms > flushed_ms
        is_known = low < high and file.slot_count and not is_cut_off and not is_torn
        if is_known and finds_all(store.disk, file, store.maps_index):
            covered.append(_Covered(file, low, high))
    return covered


def _is_indexed(store: StoreExtent, wanted: QueueRange) -> bool:
    """Whether an index has the messages of a queue under the queue's own topic, one item a key at least."""
    queue = store.queues[wanted.topic, wanted.queue_id]
    return queue.files.kind == SIMPLE and not is_light_queue(wanted.topic)


def _found(store: StoreExtent, covered: Sequence[_Covered], hashes: Sequence[int]) -> Ints:
    """Where in the log the records with one of the hashes stand; rising, once each."""
    found: list[int] = []
    for part in covered:
        for key_hash in hashes:
            found += searched(store, part.file, key_hash, EVER, _FOUND_MAX + 1)
    return np.unique(np.array(found, np.int64))


def _messages_at(store: StoreExtent, offsets: Ints) -> dict[int, Ints] | None:
    """Queue offsets, as the records at `offsets` say, by queue id; of another topic some may be, which does no harm.
    None where some cannot be read: a read of the rows tells, as it is asked to.
    """
    inside = offsets[(offsets >= store.log_start) & (offsets + message.HEAD.size <= store.log_end)]
    ids, queue_offsets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with store.view("pread") as view:
        for gathered in view.gather(inside, np.full(len(inside), message.HEAD.size, np.int64)):
            if gathered.lost:
                return None
            fits = gathered.positions + message.HEAD.size <= len(gathered.page)
            at = gathered.positions[fits]
            ids.append(gather(gathered.page, at + message.HEAD.offset["queue_id"], "i4").astype(np.int64))
            queue_offsets.append(gather(gathered.page, at + message.HEAD.offset["queue_offset"], "i8").astype(np.int64))
    all_ids, all_offsets = np.concatenate(ids), np.concatenate(queue_offsets)
    return {number: np.unique(all_offsets[all_ids == number]) for number in np.unique(all_ids).tolist()}


def _pieces(
    store: StoreExtent, wanted: QueueRange, covered: Sequence[_Covered], places: dict[int, Ints]
) -> list[QueueRange]:
    """The parts of a range that no index covers, and those about the messages that it found, neighbours joined."""
    queue: QueueExtent = store.queues[wanted.topic, wanted.queue_id]
    first = max(wanted.start, queue.entry_start)
    last = min(wanted.end, queue.entry_end, queue.gap[0] if queue.gap else wanted.end)
    found = places.get(wanted.queue_id, np.zeros(0, np.int64))
    spans: list[tuple[int, int]] = []
    reached = wanted.start
    for part in covered if first < last else ():
        start = max(first_behind(queue.files, first, last, part.low), reached)
        end = first_behind(queue.files, first, last, part.high)
        if start >= end:
            continue
        spans.append((reached, start))
        hits = found[(found >= start) & (found < end)]
        spans += ((offset, offset + 1) for offset in hits.tolist())
        reached = end
    spans.append((reached, wanted.end))
    joined: list[tuple[int, int]] = []
    for low, high in spans:
        if low >= high:
            continue
        if joined and low - joined[-1][1] <= _GAP_ENTRIES:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return [replace(wanted, start=low, end=high) for low, high in joined]
