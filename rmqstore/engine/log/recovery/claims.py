"""Records that a queue's entry points at although they say that they are of another queue, or elsewhere in it.

No CRC of a body covers queue id and queue offset.  A record that lies about them would bring its message twice, or move
it, when the queues are written again by what the log says.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqstore.directory.queue_files import halved
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.engine.log.recovery.batch_tracks import BatchScan
from rmqstore.engine.log.recovery.queue_tracks import SECOND_NUMBERS_MAX, QueueScan
from rmqstore.formats.message_columns import Located
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_entry import is_pre_blank, is_valid
from rmqstore.records.batch import RecordBatch
from rmqstore.records.light_queues import light_entries

# A store that has more records without entries has lost queues, and these tell nothing.
_CANDIDATES_MAX = 1024
# Queue files that are looked at though nothing of them was met: two records each, wherever these stand.
_FILES_MAX = 256


@dataclass(frozen=True, slots=True)
class Claim:
    """The entry in `slot` of the queue `claimant` points at the record at `offset`, which says that it is queue offset
    `says` of `key`.

    `is_proven`: the entry is right, as the exit was clean, or as the records of that queue lack just this one.  After a
    crash an entry alone proves nothing: RocketMQ's recovery cuts queues without erasing what follows the cut.
    """

    offset: int
    key: QueueKey
    says: int
    claimant: QueueKey
    slot: int
    is_proven: bool

    @property
    def reason(self) -> str:
        """The claim as a sentence."""
        said, other = (f"{topic}/{queue_id}" for topic, queue_id in (self.key, self.claimant))
        place = "another place in it" if said == other else said
        return f"the record says that it is of {place}, and queue offset {self.slot} of {other} points at it"


def claims(scan: QueueScan) -> list[Claim]:
    """All claims that a finished scan shows, rising by the records' offsets."""
    found = _after_crash(scan)
    if scan.compare:
        named = _named(scan)
        found = (claim for claim in _after_clean_exit(scan) if not _holds_another_queue(scan, claim, named))
    return sorted(found, key=lambda claim: claim.offset)


class Stray(NamedTuple):
    """The entry in `slot` of a queue stays, and leads to `offset` of the log, where no record stands that says so.

    `found`: the record of another queue that does stand there, if the queue's file is that queue's; `is_certain`: two
    entries of that file say so.  `is_back`: a file of a batch queue leads where an earlier file does; its `slot` is the
    queue offset that the unit says.
    """

    key: QueueKey
    slot: int
    offset: int
    found: str = ""
    is_certain: bool = False
    is_back: bool = False

    @property
    def reason(self) -> str:
        """The finding as a sentence."""
        name = f"{self.key[0]}/{self.key[1]}"
        if self.is_back:
            return f"a file of {name} leads to queue offset {self.slot} of it a second time"
        if self.found:
            return f"queue offset {self.slot} of {name} leads to {self.found}, as if {name} had that queue's file"
        return f"queue offset {self.slot} of {name} leads here, and no record says that it is that one"


def strays(scan: QueueScan, batches: BatchScan, log_end: int) -> Iterator[Stray]:
    """An entry for each queue of a store that was closed of which entries stay that lead into what was read, and to no
    record of the queue's: the log has other bytes there than it had.

    Looked for where fewer records were met than entries stay; a record of a topic that has another kind of queue by
    now, or was deleted, says what its entry says.  Before these, entries of a file that is another queue's.
    """
    yield from _in_other_files(scan, [*_unread(scan), *_batch_parts(batches, log_end)])
    if not scan.compare:
        return
    named = _named(scan)
    for claim in _after_clean_exit(scan):
        if _holds_another_queue(scan, claim, named):
            found = f"queue offset {claim.says} of {claim.key[0]}/{claim.key[1]}"
            yield Stray(claim.claimant, claim.slot, claim.offset, found)
    for queue in _plain(scan):
        track = scan.tracks.get(queue.key)
        low, high = queue.slot_at(scan.start), min(queue.slot_at(log_end), _kept(scan, queue))
        if high - low > (0 if track is None else track.matched):
            slots = np.unique(np.linspace(low, high - 1, min(high - low, _CANDIDATES_MAX)).astype(np.int64))
            yield from itertools.islice(_leading_nowhere(scan, queue, slots.tolist()), 1)


def set_aside(store: StoreView, found: Iterable[Stray]) -> None:
    """Lets entries that are certainly another queue's not count in the store."""
    for stray in found:
        if stray.is_certain:
            store.queues[stray.key].give_up(stray.slot, stray.reason)


def _kept(scan: QueueScan, queue: QueueView) -> int:
    """The slot before which entries stay."""
    track = scan.tracks.get(queue.key)
    return queue.end if track is None else track.kept or 0


class _Part(NamedTuple):
    """Slots [low, high) of a queue, in one of its files."""

    queue: QueueView
    low: int
    high: int


def _in_other_files(scan: QueueScan, parts: Sequence[_Part]) -> Iterator[Stray]:
    """The first entry in each of the parts whose file is another queue's: where two in a row lead to whole records that
    say so, at the beginning or the end of the file.  Of batch queues also the first unit of a file that leads back.

    Of many files some are looked at, spread over all.
    """
    for number in np.unique(np.linspace(0, len(parts) - 1, min(len(parts), _FILES_MAX)).astype(np.int64)).tolist():
        queue, low, high = parts[number]
        with suppress(OSError):  # what cannot be read tells nothing, and nothing but this asks for it
            if queue.is_batch and _leads_back(scan, queue, low):
                yield Stray(queue.key, _number_at(queue, low), _place_at(queue, low), is_back=True)
            elif (wrong := _first_denied(scan, queue, low, high)) is not None:
                yield _of_another(scan, queue, wrong)


def _of_another(scan: QueueScan, queue: QueueView, slot: int) -> Stray:
    record = _record_of(scan, queue, slot)
    assert record is not None
    (topic, queue_id), says = _name_of(record)
    found = f"queue offset {says} of {topic}/{queue_id}"
    number, place = _number_at(queue, slot), int(record.offsets[0])
    return Stray(queue.key, number, place, found, is_certain=not queue.is_batch)


def _unread(scan: QueueScan) -> Iterator[_Part]:
    """Of each file of a queue the slots that stay and that no record of the scan was held against."""
    for queue in scan.store.queues.values():
        if queue.end > queue.first:
            yield from _parts(queue, min(_kept(scan, queue), queue.slot_at(scan.start)))


def _batch_parts(scan: BatchScan, log_end: int) -> Iterator[_Part]:
    """Of each file of a batch queue the slots that stay."""
    for queue in scan.store.batch_queues.values():
        if queue.end > queue.first:
            yield from _parts(queue, scan.kept_of(queue, log_end))


def _parts(queue: QueueView, end: int) -> Iterator[_Part]:
    """The slots before `end`, file by file, where there are two or more."""
    size = queue.layout.size
    for file in queue.files:
        low, high = file.start // size, min(file.end // size, end)
        if high - low > 1:
            yield _Part(queue, low, high)


def _leads_back(scan: QueueScan, queue: QueueView, slot: int) -> bool:
    """Whether the entries in a slot and the next one lead to places of the log that are not after that of the entry
    before, which is right.  So one damaged entry, of the three, says nothing: it is written again from its record.
    """
    if slot <= queue.first or not all(
        0 <= _place_at(queue, each) <= _place_at(queue, slot - 1) for each in (slot, slot + 1)
    ):
        return False
    before = _record_of(scan, queue, slot - 1)
    return before is not None and _is_own(before, queue, slot - 1)


def _place_at(queue: QueueView, slot: int) -> int:
    entry = _entry(queue, slot)
    return -1 if entry is None else entry.offset


def _number_at(queue: QueueView, slot: int) -> int:
    """The queue offset that the entry in a slot is of."""
    return int(queue.read(slot, slot + 1)["base_queue_offset"][0]) if queue.is_batch else slot


def _may_be_denied(scan: QueueScan, queue: QueueView, slot: int) -> bool:
    """Whether `_denied` may say so, by a look that costs little."""
    entry = _entry(queue, slot)
    record = None if entry is None else scan.store.log.whole_record(entry.offset, entry.size)
    if record is None or queue.is_light:
        return record is not None
    own = queue.topic.encode(), queue.queue_id, _number_at(queue, slot)
    return (record.topic, record.queue_id, record.queue_offset) != own


def _first_denied(scan: QueueScan, queue: QueueView, low: int, high: int) -> int | None:
    """The first of the slots [low, high) that leads to another queue's record, where the first two do or the last two;
    by halving.  RocketMQ's recovery leaves entries after the end that it finds, and these are wrong once the log goes
    on there.
    """
    if not any(_may_be_denied(scan, queue, slot) for slot in (low, high - 1)):
        return None
    if _denied(scan, queue, low) and _denied(scan, queue, low + 1):
        return low
    if _denied(scan, queue, high - 2) and _denied(scan, queue, high - 1):
        return halved(low, high - 2, lambda slot: not _denied(scan, queue, slot))
    return None


def is_known(store: StoreView, located: Located, offset: int) -> bool:
    """Whether a queue entry points at the one record in `located`, which stands at `offset`."""
    record = RecordBatch(np.array([offset]), located, offset)
    key = (record.topics[0][0], int(record.queue_ids[0]))
    if store.is_batch_topic(key[0]):
        whole = store.batch_queues.get(key)
        slot = 0 if whole is None else whole.slot_at(offset)
        return whole is not None and offset in whole.read(slot, slot + 1)["physical_offset"]
    queue = store.queues.get(key)
    slot = int(record.queue_offsets[0])
    if queue is None or not queue.first <= slot < queue.end:
        return False
    return int(queue.read(slot, slot + 1)["physical_offset"][0]) == offset


def _leading_nowhere(scan: QueueScan, queue: QueueView, slots: Iterable[int]) -> Iterator[Stray]:
    for slot in slots:
        entry = _entry(queue, slot)
        if entry is None:
            continue
        record = scan.store.log.record_at(entry.offset)
        if record is None or not _is_own(record, queue, slot):
            yield Stray(queue.key, slot, entry.offset)


class _Entry(NamedTuple):
    offset: int
    size: int


def _entry(queue: QueueView, slot: int) -> _Entry | None:
    """The entry in a slot, if it is of a message."""
    entry = queue.read(slot, slot + 1) if queue.first <= slot < queue.end else queue.read(0, 0)
    if not is_valid(entry).any() or is_pre_blank(entry).any():
        return None
    return _Entry(int(entry["physical_offset"][0]), int(entry["size"][0]))


def _holds_another_queue(scan: QueueScan, claim: Claim, named: Mapping["_Name", int]) -> bool:
    """Whether not the record of a claim lies, but a queue has a file of another queue, or of another place in it.  So
    it is where

    - the queue that the record names has it, or has another queue's record in its place;
    - another record, of those that are `named`, says that it is the one which the claim's entry should lead to;
    - the entries beside the claim's lead to the records beside its record.
    """
    told, queue = scan.store.queues.get(claim.key), scan.store.queues[claim.claimant]
    entry = None if told is None else _entry(told, claim.says)
    if told is not None and entry is not None and (entry.offset == claim.offset or _denied(scan, told, claim.says)):
        return True
    if named.get(_Name(claim.claimant, claim.slot), claim.offset) != claim.offset:
        return True
    beside = [_record_of(scan, queue, claim.slot + step) for step in (-1, 1)]
    wanted = [_Name(claim.key, claim.says + step) for step in (-1, 1)]
    return any(record is not None and _name_of(record) == name for record, name in zip(beside, wanted, strict=True))


def _denied(scan: QueueScan, queue: QueueView, slot: int) -> bool:
    record = _record_of(scan, queue, slot)
    return record is not None and not _is_own(record, queue, slot)


def _record_of(scan: QueueScan, queue: QueueView, slot: int) -> RecordBatch | None:
    """The whole record that the entry in a slot points at."""
    entry = _entry(queue, slot)
    return None if entry is None else scan.store.log.record_at(entry.offset)


class _Name(NamedTuple):
    key: QueueKey
    queue_offset: int


def _name_of(record: RecordBatch) -> _Name:
    """The message that a record says it is."""
    return _Name((record.topics[0][0], int(record.queue_ids[0])), int(record.queue_offsets[0]))


def _is_own(record: RecordBatch, queue: QueueView, slot: int) -> bool:
    return _name_of(record) == _Name(queue.key, _number_at(queue, slot)) or queue.key in light_entries(record)


def _plain(scan: QueueScan) -> Iterator[QueueView]:
    """Queues whose entries point at their own records."""
    queues = scan.store.queues.values()
    return (each for each in queues if not each.is_light and not each.is_batch and each.end > each.first)


def _after_clean_exit(scan: QueueScan) -> Iterator[Claim]:
    """Records that their queues lack: they would be dispatched, and none is claimed in a store that was closed.  Nor
    is one whose number its queue has given to another record.
    """
    lacking = _lacking(scan)
    if not 0 < len(lacking) <= _CANDIDATES_MAX:
        return
    for queue in _plain(scan):
        for offset in lacking:
            yield from _claim(scan, queue, queue.slot_at(offset), is_proven=True, among={offset})


def _lacking(scan: QueueScan) -> list[int]:
    """Where records stand that their queues lack: of each queue the first, and few whose numbers other ones have."""
    lacking = [track.first_missing for track in scan.tracks.values() if track.first_missing is not None]
    return lacking + (scan.seconds if len(scan.seconds) <= SECOND_NUMBERS_MAX else [])


def _named(scan: QueueScan) -> dict["_Name", int]:
    """The places of the records that their queues lack, by what they say they are."""
    lacking = _lacking(scan)
    records = [(scan.store.log.record_at(offset), offset) for offset in lacking if len(lacking) <= _CANDIDATES_MAX]
    return {_name_of(record): offset for record, offset in records if record is not None}


def _after_crash(scan: QueueScan) -> Iterator[Claim]:
    """Records that a queue lacks: of those that may only seem so, such as stand alone in another queue."""
    alone = {
        track.first_missing
        for track in scan.tracks.values()
        if track.first_missing is not None and track.restart is not None and track.message_count == 1
    }
    jumps = {found.key: found.says for found in scan.contradictions}
    for queue in _plain(scan):
        for slot, is_proven in _lacked(scan, queue, jumps.get(queue.key)):
            if is_proven or alone:
                yield from _claim(scan, queue, slot, is_proven=is_proven, among=None if is_proven else alone)


def _lacked(scan: QueueScan, queue: QueueView, goes_on_at: int | None) -> Iterator[tuple[int, bool]]:
    """Slots whose records the scan did not meet, and whether those around them show that they are missing.

    `goes_on_at` is the queue offset of a record that does not continue the queue.
    """
    track = scan.tracks.get(queue.key)
    if track is None:
        yield queue.end - 1, False
        return
    if track.next is not None and track.next < queue.end:
        yield track.next, goes_on_at == track.next + 1
    if track.restart:
        yield track.restart - 1, scan.begins_with_log and scan.store.log.start == 0


def _claim(
    scan: QueueScan, queue: QueueView, slot: int, *, is_proven: bool, among: Collection[int] | None
) -> Iterator[Claim]:
    """The claim that a slot's entry makes, if it points at a whole record, one of `among` if given, that denies it."""
    entry = _entry(queue, slot)
    if entry is None:
        return
    record = scan.store.log.record_at(entry.offset) if among is None or entry.offset in among else None
    if record is None or int(record.sizes[0]) != entry.size:
        return
    if not _is_own(record, queue, slot):
        yield Claim(entry.offset, *_name_of(record), queue.key, slot, is_proven)
