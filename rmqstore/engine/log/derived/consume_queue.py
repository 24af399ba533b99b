"""One consume queue: 20 bytes a message in files of one size, appended in the order of queue offsets.

Java: ConsumeQueue.  Its trap of files that hold nothing (a phantom entry, or a refused start) is closed from both
sides: such a file is taken for what it is, and none is left.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from rmqstore.engine.log.derived.expired import expired_starts
from rmqstore.engine.log.derived.known_queues import KnownQueue
from rmqstore.engine.log.derived.queue_extension import QueueExtension, last_address
from rmqstore.errors import StoreDamaged
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.message_columns import Ints, take_rows
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY, is_valid, read_entries

# A file after it would have to start beyond 64 bits.
_POSITION_MAX = 2**63 - 2**32
_UNIT = QUEUE_ENTRY.size
_PRE_BLANK = QUEUE_ENTRY.struct.pack(0, PRE_BLANK_SIZE, 0)
# The end is looked for by halving; what is left at last is read at once.
_NEAR_COUNT = 128
_FAR_COUNT = 4096  # entries that are read together where any of them may be wanted
_NOTHING = -1

Entry = tuple[int, int, int]
Entries = npt.NDArray[np.void]
Units = tuple[Ints, Sequence[bytes] | None]


class ConsumeQueue:
    """The queue of one topic and queue id.

    One thread appends; reading goes on meanwhile in any thread.  Nothing is created
    before the first entry is appended.
    """

    __slots__ = (
        "_end", "_file_size", "_flushed", "_head", "_last_places", "_min", "extension", "files", "max_physical",
        "queue_id", "topic",
    )  # fmt: skip

    def __init__(
        self, fs: FileSystem, handles: FileHandles, directory: str, topic: str, queue_id: int, file_size: int
    ) -> None:
        if file_size % _UNIT:
            raise ValueError(f"queue files of {file_size} bytes do not hold whole entries")
        self.topic, self.queue_id = topic, queue_id
        self.files = FileSequence(fs, handles, [directory], file_size)
        self.max_physical = _NOTHING  # end in the log of the newest record that has an entry; -1 without
        self.extension: QueueExtension | None = None  # set before `load`, where entries point at extension units
        self._file_size = file_size
        self._min = 0  # bytes, as the next two
        self._end = 0
        self._flushed = 0
        self._head: tuple[int, bytes] | None = None  # from `load` on, until it is asked for no more: position, entries
        self._last_places: dict[int, int] = {}  # by start of a full file: where its last record stands in the log

    @property
    def min_offset(self) -> int:
        """The first queue offset that can be read."""
        return self._min // _UNIT

    @property
    def max_offset(self) -> int:
        """The queue offset of the next message."""
        return self._end // _UNIT

    def load(self, known: KnownQueue | None = None) -> list[str]:
        """Finds the files and where the entries end; returns warnings.  Raises Corrupt for a file of a wrong length.

        Reads a few entries, of a small `known` queue none: they stand without a gap after a clean end or a recovery.
        """
        if known is None:
            warnings = self.files.load()
        else:
            warnings, self.files.starts, self._head = [], [*known.starts], known.head
        starts = self.files.starts
        number = len(starts) - 1
        while number > 0 and not _is_written(self._entry(starts[number] - _UNIT)):
            number -= 1
        self._end = self._written_end(starts[number]) if starts else 0
        self._settle()
        self._flushed = self._end
        self._min = self.files.start
        if self._end > self._min and _is_pre_blank(self._entry(self._min)):
            self._min = self._search(self._min, self._end, lambda entry: not _is_pre_blank(entry))
        if self.extension is not None:
            warnings += self.extension.load(self._last_address())
        return warnings

    def append_run(self, first_offset: int, data: memoryview, first_end: int, last_end: int) -> bool:
        """Appends the bytes of entries of consecutive queue offsets if they continue the queue; else does nothing.

        `first_end` and `last_end` are where the first and the last record end in the log.  Cheap, for the usual case;
        `append` takes all others.
        """
        position = first_offset * _UNIT
        if position != self._end or first_end <= self.max_physical or (self._end == self.files.start and position):
            return False
        if position > _POSITION_MAX:
            return False
        self._write(position, data)
        self.max_physical = last_end
        return True

    def append(self, queue_offsets: Ints, entries: Entries, units: Units | None = None) -> int:
        """Appends what the queue has not yet, in the order of the log; returns how many entries that were.

        int64[n] and QUEUE_ENTRY.dtype[n].  Left out: records that end at or before the newest indexed one, and queue
        offsets before the end (Java: putMessagePositionInfo, "built repeatedly").  An empty queue begins at the first
        queue offset, with pre-blank units before it in its file.  Raises Corrupt for a gap, where Java appends at the
        wrong place, and writes nothing then; OSError from the disk.  With `extension`, `units` are what goes there:
        store times, int64[n], and bitmaps.
        """
        ends = entries["physical_offset"].astype(np.int64) + entries["size"]
        before = np.maximum.accumulate(np.concatenate(([self.max_physical], ends[:-1])))
        rows = np.flatnonzero(ends > before)
        if not len(rows):
            return 0
        is_new = self._end == self.files.start
        position = int(queue_offsets[rows[0]]) * _UNIT if is_new else self._end
        if not 0 <= position <= _POSITION_MAX:
            reason = f"a record says queue offset {position // _UNIT}, which no queue file can hold"
            raise StoreDamaged("commitlog", int(entries["physical_offset"][rows[0]]), reason)
        rows = _following(self, queue_offsets, rows, position // _UNIT)
        if not len(rows):
            return 0
        chosen = take_rows(np.ascontiguousarray(entries), rows)
        if self.extension is not None and units is not None:
            self._write_extended(self.extension, position, chosen, rows, units)
        elif is_new:
            self._begin(position, memoryview(chosen.view(np.uint8)))
        else:
            self._write(position, memoryview(chosen.view(np.uint8)))
        self.max_physical = int(ends[rows[-1]])
        return len(rows)

    def read(self, first: int, last: int) -> Entries:
        """The entries of queue offsets [first, last), as far as they are written; none if `first` is not held."""
        low, high = first * _UNIT, min(last * _UNIT, self._end)
        if low < self.files.start or high <= low:
            return read_entries(b"")
        return read_entries(self.files.read(low, high - low))

    def tags_codes(self, entries: Entries) -> Ints:
        """The third field of entries, int64[n], with the tags code of its unit in place of an extension address."""
        codes: Ints = entries["tags_code"].astype(np.int64)
        return codes if self.extension is None else self.extension.resolve(codes)

    def correct_min(self, min_physical: int) -> None:
        """Moves `min_offset` up to the first entry whose record the log still holds; to `max_offset` if none is left.

        Java 5: correctMinOffset, but over all files, and pre-blank units are never the minimum.
        """
        end = self._end
        low = max(self._min, self.files.start)

        def is_held(position: int) -> bool:
            data = self._bytes_at(position)
            if len(data) < _UNIT:
                return False  # the topic is being removed
            offset, size, _ = QUEUE_ENTRY.struct.unpack(data)
            return bool(offset >= min_physical) and size != PRE_BLANK_SIZE

        if low < end and not is_held(end - _UNIT):  # the usual case for queues in which nothing happens
            self._min = end
        elif low < end:
            places = range(low, end, _UNIT)
            self._min = low if is_held(low) else low + bisect_left(places, True, key=is_held) * _UNIT
        self._head = None

    def expired(self, min_physical: int) -> list[int]:
        """Starts of the oldest files that hold only records before `min_physical` of the log, in order.

        Reads one entry a file, and no file twice.  Raises OSError.
        """
        return expired_starts(self.files.starts, self._file_size, self._end, min_physical, self._last_place)

    def remove_expired(self, min_physical: int, count_max: int) -> list[str]:
        """Retires at most `count_max` of the `expired` files and returns their paths; one thread at a time.

        Durable file by file; readers go on, and so does appending.  Raises OSError.
        """
        starts = self.expired(min_physical)[:count_max]
        if not starts:
            return []
        self._min = max(self._min, starts[-1] + self._file_size)  # first, so that nobody is sent to a file that goes
        removed = self.files.remove_first(len(starts))
        for start in starts:
            self._last_places.pop(start, None)
        if self.extension is not None:
            oldest = self.read(self._min // _UNIT, self._min // _UNIT + 1)["tags_code"].tolist()
            removed += self.extension.remove_before(oldest[0]) if oldest else []
        return removed

    def remove_all(self) -> None:
        """Removes all files, newest first and durably, so that what a crash leaves has no hole; no appending meanwhile.

        Raises OSError; the queue is what is left of it then.
        """
        try:
            self.files.cut(self.files.start)
            if self.extension is not None:
                self.extension.cut_behind(None)
        finally:
            self._last_places.clear()
            self._end = min(self._end, self.files.end)
            self._flushed, self._min = min(self._flushed, self._end), min(self._min, self._end)
            self._settle()

    def flush(self) -> None:
        """Makes the entries appended until now durable.  Raises OSError; do not retry."""
        end = self._end
        if self.extension is not None:
            self.extension.flush()  # first: no entry on the disk points at a unit that is not there
        if self._flushed < end:
            self.files.sync(self._flushed, end)
            self._flushed = end

    def _write_extended(
        self, extension: QueueExtension, position: int, entries: Entries, rows: npt.NDArray[np.intp], units: Units
    ) -> None:
        """Puts the units of entries, then the entries with their addresses."""
        store_ms, bitmaps = units
        mark, before = extension.end, self._end
        chosen = None if bitmaps is None else [bitmaps[row] for row in rows.tolist()]
        entries = entries.copy()
        try:
            entries["tags_code"] = extension.put(entries["tags_code"].astype(np.int64), store_ms[rows], chosen)
            if self._end == self.files.start:
                self._begin(position, memoryview(entries.view(np.uint8)))
            else:
                self._write(position, memoryview(entries.view(np.uint8)))
        except OSError:
            if self._end == before:
                extension.retract(mark)
            raise

    def _last_address(self) -> int | None:
        """The last extension address in the queue's entries."""
        high = self._end
        while high > self.files.start:
            low = max(high - _FAR_COUNT * _UNIT, self.files.start)
            address = last_address(read_entries(self.files.read(low, high - low))["tags_code"])
            if address is not None:
                return address
            high = low
        return None

    def _begin(self, position: int, data: memoryview) -> None:
        """The first entries of an empty queue, which may be at any queue offset."""
        self.files.cut(self.files.start)  # files that hold nothing
        fill = position % self._file_size
        self._min = position
        self._end = self._flushed = position - fill
        # In one write with the first entries, so that no crash leaves a queue of pre-blank units alone.
        self._write(position - fill, memoryview(_PRE_BLANK * (fill // _UNIT) + data) if fill else data)

    def _write(self, position: int, data: memoryview) -> None:
        self._head = None
        written = 0
        while written < len(data):
            is_added = position >= self.files.end
            if is_added:
                self.files.add(position - position % self._file_size)
            room = self._file_size - position % self._file_size
            part = data[written : written + room]
            try:
                self.files.write(position, part)
            except OSError:
                if is_added:
                    with suppress(OSError):
                        self.files.cut(position)  # no file that holds nothing is left
                raise
            written += len(part)
            position += len(part)
            self._end = position

    def _bytes_at(self, position: int) -> bytes:
        """One entry; fewer bytes where the file ends before it."""
        head = self._head
        if head is not None and 0 <= (at := position - head[0]) <= len(head[1]) - _UNIT:
            return head[1][at : at + _UNIT]
        return self.files.read(position, _UNIT)

    def _entry(self, position: int) -> Entry:
        data = self._bytes_at(position)
        if len(data) < _UNIT:
            raise StoreDamaged(
                self.files.path_of(position), position % self._file_size, "the file ends before an entry"
            )
        offset, size, code = QUEUE_ENTRY.struct.unpack(data)
        return offset, size, code

    def _written_end(self, start: int) -> int:
        """Where the entries of the file at `start` end."""
        known = self._head
        data = self.files.read(start, min(_NEAR_COUNT * _UNIT, self._file_size)) if known is None else known[1]
        head = is_valid(read_entries(data))
        if known is not None or not head.all():
            size = len(data) if head.all() else int(np.argmin(head)) * _UNIT
            self._head = start, data[:size]
            return start + size
        return self._search(start + len(head) * _UNIT, start + self._file_size, lambda entry: not _is_written(entry))

    def _search(self, low: int, high: int, holds: Callable[[Entry], bool]) -> int:
        """The first position in [low, high) whose entry, and every one after it, `holds`; `high` if none does."""
        places = range(low, high, _UNIT)
        found = bisect_left(places, True, key=lambda position: holds(self._entry(position)))
        return low + found * _UNIT

    def _last_place(self, start: int) -> int | None:
        """Where the last record of the full file at `start` stands in the log; None if its entry cannot be read."""
        place = self._last_places.get(start)
        if place is None:
            data = self.files.read_once(start + self._file_size - _UNIT, _UNIT)
            if len(data) == _UNIT and _is_written(entry := QUEUE_ENTRY.struct.unpack(data)):
                place = self._last_places[start] = entry[0]
        return place

    def _settle(self) -> None:
        """Sets `max_physical`, how far the log is indexed, from the last entry."""
        self.max_physical = _NOTHING
        if self._end > self.files.start:
            offset, size, _ = entry = self._entry(self._end - _UNIT)
            if not _is_pre_blank(entry):
                self.max_physical = offset + size


def _following(
    queue: ConsumeQueue, queue_offsets: Ints, rows: npt.NDArray[np.intp], following: int
) -> npt.NDArray[np.intp]:
    """Those of `rows` whose queue offsets continue the queue at `following` without a gap.  Raises Corrupt."""
    wanted = queue_offsets[rows]
    if wanted[0] == following and (np.diff(wanted) == 1).all():
        return rows
    kept = []
    for row, queue_offset in zip(rows.tolist(), wanted.tolist(), strict=True):
        if queue_offset > following:
            place = f"{queue.topic}/{queue.queue_id}: the record of queue offset {queue_offset} follows"
            reason = f"{place} that of {following - 1}; those between are missing in the log"
            raise StoreDamaged(queue.files.directories[0], following * _UNIT, reason)
        if queue_offset == following:
            kept.append(row)
            following += 1
    return np.array(kept, np.intp)


def _is_written(entry: Entry) -> bool:
    return entry[0] >= 0 and entry[1] > 0


def _is_pre_blank(entry: Entry) -> bool:
    return entry[0] == 0 and entry[1] == PRE_BLANK_SIZE
