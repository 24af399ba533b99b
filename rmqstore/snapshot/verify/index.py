"""Index files: slots and chains in themselves, items against the keys of the records that they point at."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rmqstore.directory.index_files import IndexFile, index_files, index_pages
from rmqstore.errors import Corrupt, Rejected
from rmqstore.files.disk import ReadableDisk, join
from rmqstore.files.zeros import is_blank
from rmqstore.formats import index, names
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.snapshot.finding import DAMAGE, NOTE, Finding, Tally, log_place
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.verify.log_ordered import END, LogOrderedRows, Rows
from rmqstore.snapshot.verify.stretch_facts import StretchFacts

_BLOCK = 64 * 1024
# Java: MessageRocksDBStorage.LAST_OFFSET_PY.
_LAST_OFFSET = b"lastOffsetPy"


class IndexCheck:
    """Follows the walk of a log with the index files: `file_findings`, `check` for each stretch, then `findings`."""

    def __init__(self, store: StoreExtent) -> None:
        self._store = store
        self._tally = Tally()
        self._files = _with_sizes(index_files(store.disk, store.path, store.maps_index))
        usable = [file for file in self._files if file.slot_count]
        self._items = [_Items(store.disk, file, store.log_end) for file in usable]
        self._begin = min((file.header.begin_offset for file in usable), default=END)
        self._end = max((file.header.end_offset for file in usable), default=-1)
        self._keyed_count = 0
        self.file_ends_ms = [file.header.end_timestamp_ms for file in usable]

    def file_findings(self) -> Iterator[Finding]:
        """Findings about the files by themselves."""
        for number, file in enumerate(self._files):
            is_growing = self._store.is_live and number == len(self._files) - 1
            if file.slot_count:
                yield from _structure(self._store.disk, file, is_growing)
            elif file.header.index_count > 1:
                yield Finding(file.file.path, 0, "the header fits no number of slots: its counts or offsets are wrong")
            elif not is_blank(self._store.disk, file.file.path, index.HEADER.size, file.file.size):
                yield Finding(file.file.path, 0, "the header says that the file is empty, but it holds items")

    def check(self, stretch: StretchFacts) -> None:
        """Compares the keys of a stretch with the items that point into it; equal items count once."""
        offsets, hashes = stretch.index_keys()
        self._keyed_count += len(offsets)
        start = int(stretch.stretch.offsets[0])
        wanted = _pairs(offsets, hashes, start)
        sought = np.sort(np.concatenate((wanted, _pairs(*stretch.index_tags(), start))))  # of tags some have items
        held = [wanted[:0]]
        for items in self._items:
            numbers, places, rows = items.rows.take_until(stretch.high)
            self._irregular(items)
            inside = places >= stretch.low
            if rows is None or not inside.any():
                continue  # items before the log begins are left to expire
            numbers, places, rows = numbers[inside], places[inside], rows[inside]
            pairs = _pairs(np.maximum(places, start), rows["key_hash"].astype(np.int64), start)
            held.append(pairs[places >= start])
            self._strangers(items, numbers, places, (places < start) | ~_among(pairs, sought), stretch)
        missing = ~_among(wanted, np.sort(np.concatenate(held)))
        if missing.any() and self._items:
            self._missing(offsets[missing])

    def findings(self) -> Iterator[Finding]:
        """Findings of the comparison with the log."""
        for items in self._items:
            numbers, _, _ = items.rows.take_until(END)
            self._at_items(items, numbers, "the item points at no record")
            self._irregular(items)
        checkpoint = self._store.checkpoint
        if not self._files and self._keyed_count:
            existed = checkpoint is not None and checkpoint.index_timestamp_ms > 0
            reason = "no index files, while the checkpoint knows of one" if existed else "no index files"
            yield Finding(join(self._store.path, "index"), 0, reason, DAMAGE if existed else NOTE)
        yield from self._tally.findings()

    def _strangers(self, items: "_Items", numbers: Ints, places: Ints, strange: Mask, stretch: StretchFacts) -> None:
        if not strange.any():
            return
        numbers, places = numbers[strange], places[strange]
        lost = stretch.leads_to_damage(places)
        self._at_items(items, numbers[lost], "the item leads to a damaged place of the commitlog", NOTE)
        at_record = stretch.starts_sound(places) >= 0
        self._at_items(items, numbers[~lost & ~at_record], "the item points at no record")
        self._at_items(items, numbers[~lost & at_record], "the item's hash is that of none of the record's keys")

    def _missing(self, offsets: Ints) -> None:
        elsewhere = offsets <= self._rocksdb_end
        self._at_log(offsets[elsewhere], "keys are in RocksDB's index, and not in these files", NOTE)
        offsets = offsets[~elsewhere]
        older, newer = offsets < self._begin, offsets > self._end
        self._at_log(offsets[older], "keys older than the first index file are not indexed", NOTE)
        self._at_log(offsets[newer], "keys are not indexed yet", NOTE if self._store.is_live else DAMAGE)
        severity = NOTE if self._store.lock_held else DAMAGE
        self._at_log(offsets[~older & ~newer], "keys have no index item although later ones have", severity)

    @cached_property
    def _rocksdb_end(self) -> int:
        """The last offset of the log that is in RocksDB's index (indexRocksDBEnable, since 5.4); -1 without one, or
        where nobody can read it.
        """
        path = join(self._store.path, names.ROCKSDB_ROOM)
        if not self._store.disk.exists(join(path, "CURRENT")):
            return -1
        from rmqstore.files import rocksdb  # noqa: PLC0415  few brokers index there

        with suppress(Corrupt, Rejected):
            value = rocksdb.read_value(path, "default", _LAST_OFFSET)
            return -1 if value is None or len(value) != 8 else int.from_bytes(value, "big", signed=True)
        return -1

    def _irregular(self, items: "_Items") -> None:
        numbers = np.array(items.rows.irregular, np.int64)
        items.rows.irregular.clear()
        if len(numbers):
            beyond = items.read(int(numbers[0]), int(numbers[0]) + 1)["physical_offset"][0] >= self._store.log_end
            # What a recovery cut off the log stays in the index.
            text = "the item points past the end of the commitlog" if beyond else "the item's offset is out of order"
            self._at_items(items, numbers, text, NOTE if beyond else DAMAGE)

    def _at_items(self, items: "_Items", numbers: Ints, reason: str, severity: str = DAMAGE) -> None:
        if len(numbers):
            position = index.file_size(items.file.slot_count, int(numbers[0]))
            self._tally.add(items.file.file.path, position, reason, severity, len(numbers))

    def _at_log(self, offsets: Ints, reason: str, severity: str) -> None:
        if len(offsets):
            path, position = log_place(self._store.log_files, int(offsets[0]))
            self._tally.add(path, position, reason, severity, len(offsets))


class _Items:
    """The items of one file in the order in which they were put, from number 1 on."""

    def __init__(self, disk: ReadableDisk, file: IndexFile, log_end: int) -> None:
        self.file = file
        self._disk = disk
        last = min(file.header.index_count, file.item_count)
        self.rows = LogOrderedRows(
            self.read, (1, last), lambda rows: np.zeros(len(rows), bool),
            log_end=log_end, strictly=False, block=_BLOCK,
        )  # fmt: skip

    def read(self, first: int, last: int) -> Rows:
        """Items [first, last)."""
        start = index.file_size(self.file.slot_count, first)
        with index_pages(self._disk, self.file.file, is_mapped=False) as pages:
            data = pages[start : start + (last - first) * index.ITEM.size]
        return np.frombuffer(data, index.ITEM.dtype, len(data) // index.ITEM.size)


def _with_sizes(files: list[IndexFile]) -> list[IndexFile]:
    """The same; a file whose slot count cannot be told takes it from one of the same length (one setting for all)."""
    known = {file.file.size: (file.slot_count, file.item_count) for file in files if file.slot_count}
    return [
        replace(file, slot_count=known[file.file.size][0], item_count=known[file.file.size][1])
        if not file.slot_count and file.header.index_count > 1 and file.file.size in known
        else file
        for file in files
    ]


def _structure(disk: ReadableDisk, file: IndexFile, is_growing: bool) -> Iterator[Finding]:
    """Slots in range and of their items' hash, chains that descend and lose no item, the header's counts: place by
    place what `formats.index_table.finds_all` answers in one word.

    The newest file of a store that is not closed may be ahead of its header.
    """
    count = min(file.header.index_count, file.item_count)
    items = _Items(disk, file, END)
    with index_pages(disk, file.file, is_mapped=False) as pages:
        data = pages[index.HEADER.size : index.HEADER.size + file.slot_count * index.SLOT.size]
    slots = np.frombuffer(data, index.SLOT_NUMBER).astype(np.int64)
    hashes = np.zeros(count, np.int64)
    for first in range(1, count, _BLOCK):
        rows = items.read(first, min(first + _BLOCK, count))
        hashes[first : first + len(rows)] = rows["key_hash"]
    if not is_growing:
        yield from _anchors(file, items, count)
    used = np.flatnonzero(slots)
    newest = slots[used]
    inside = (newest > 0) & (newest < count)
    fits = inside & (hashes[np.where(inside, newest, 0)] % file.slot_count == used)
    excused = (newest >= count) & is_growing
    stray = index.HEADER.size + used[~fits & ~excused] * index.SLOT.size
    yield from _at(file, stray, "the slot leads to no item of its own")
    reached = np.zeros(count, bool)
    reached[newest[fits]] = True
    wrong, head_count = _follow(file, items, hashes, reached)
    start = index.file_size(file.slot_count, 0)
    yield from _at(file, start + wrong * index.ITEM.size, "the item's chain does not descend")
    lost = np.flatnonzero(~reached[1:]) + 1
    if not is_growing:
        yield from _at(file, start + lost * index.ITEM.size, "the item is in no chain, so no query finds it")
        if head_count != file.header.used_slot_count:
            reason = f"the header counts {file.header.used_slot_count} slots in use, the items {head_count}"
            yield Finding(file.file.path, index.HEADER.offset["used_slot_count"], reason)


def _anchors(file: IndexFile, items: _Items, count: int) -> Iterator[Finding]:
    """The header's offsets are those of the first and the last item."""
    for name, number in (("begin_offset", 1), ("end_offset", count - 1)):
        says, stands = getattr(file.header, name), int(items.read(number, number + 1)["physical_offset"][0])
        if says != stands:
            yield Finding(file.file.path, index.HEADER.offset[name], f"{name} is {says}, that item's offset {stands}")


def _follow(file: IndexFile, items: _Items, hashes: Ints, reached: Mask) -> tuple[Ints, int]:
    """Numbers of the items that lead elsewhere than down their own chain, how many chains end; fills in `reached`."""
    wrong: list[npt.NDArray[np.intp]] = []
    head_count = 0
    for first in range(1, len(hashes), _BLOCK):
        rows = items.read(first, min(first + _BLOCK, len(hashes)))
        numbers = np.arange(first, first + len(rows))
        before = rows["previous_item"].astype(np.int64)
        inside = (before > 0) & (before < numbers)
        own = hashes[numbers] % file.slot_count
        follows = inside & (hashes[np.where(inside, before, 0)] % file.slot_count == own)
        sound = (hashes[numbers] >= 0) & (rows["delay_s"] >= 0) & (follows | (before == 0))
        reached[before[follows]] = True
        head_count += int((before == 0).sum())
        wrong.append(numbers[~sound])
    return (np.concatenate(wrong) if wrong else np.zeros(0, np.int64)), head_count


def _at(file: IndexFile, positions: Ints, reason: str) -> Iterator[Finding]:
    tally = Tally()
    if len(positions):
        tally.add(file.file.path, int(positions[0]), reason, count=len(positions))
    return tally.findings()


def _among(values: Ints, known: Ints) -> Mask:
    """bool[n], which values are among those that are known, sorted; soon done where they are just those."""
    if len(values) == len(known) and np.array_equal(np.sort(values), known):
        return np.ones(len(values), bool)
    if not len(known):
        return np.zeros(len(values), bool)
    found: Mask = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found


def _pairs(offsets: Ints, hashes: Ints, low: int) -> Ints:
    """One number for offset and hash: a stretch is shorter than 2 GiB, a hash has 31 bits."""
    return (offsets - low) << 31 | hashes
