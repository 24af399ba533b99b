"""Batch queues (topics with queue.type=BatchCQ): 46 bytes a batch, or a message that came alone, appended densely.

A *slot* is the n-th unit; queue offsets stand in the units.  Java: BatchConsumeQueue.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.engine.log.derived.expired import expired_starts
from rmqstore.errors import StoreDamaged
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import FileSystem, directory_of, join
from rmqstore.formats import names
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY, is_valid, read_batch_entries
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import BATCH_ROOM, QueueKey
from rmqstore.records.inner_batches import Rows, units_of
from rmqstore.records.vectors import Records

_UNIT = BATCH_QUEUE_ENTRY.size
_NOTHING = -1

Units = npt.NDArray[np.void]


class BatchQueue:
    """The queue of one topic and queue id.  One thread appends; reading goes on meanwhile in any thread."""

    __slots__ = ("_end", "_flushed", "_min", "files", "max_offset", "max_physical", "min_offset", "queue_id", "topic")

    def __init__(
        self, fs: FileSystem, handles: FileHandles, directory: str, topic: str, queue_id: int, file_size: int
    ) -> None:
        if file_size % _UNIT:
            raise ValueError(f"queue files of {file_size} bytes do not hold whole units")
        self.topic, self.queue_id = topic, queue_id
        self.files = FileSequence(fs, handles, [directory], file_size)
        self.max_physical = _NOTHING  # where the newest record that has a unit begins; -1 without
        self.min_offset = 0  # the first queue offset that can be read
        self.max_offset = 0  # the queue offset of the next message
        self._min = 0  # bytes, as the next two: the unit of `min_offset`
        self._end = 0
        self._flushed = 0

    @property
    def slots(self) -> tuple[int, int]:
        """The slots that can be read: the first, and the one after the last."""
        return self._min // _UNIT, self._end // _UNIT

    def load(self) -> list[str]:
        """Finds the files and where the units end; returns warnings.  Raises Corrupt for a file of a wrong length."""
        warnings = self.files.load()
        starts = self.files.starts
        number = len(starts) - 1
        while number > 0 and not self._is_written(starts[number] - _UNIT):
            number -= 1
        self._end = self._min = self.files.start
        if starts:
            low = starts[number]
            self._end = self._search(low, low + self.files.file_size, lambda unit: not is_valid(unit)[0])
        self._flushed = self._end
        self._settle()
        return warnings

    def append(self, units: Units) -> int:
        """Appends what the queue has not yet, BATCH_QUEUE_ENTRY.dtype[n] in the order of the log; returns how many.

        Left out: records at or before the newest indexed one, and queue offsets that the queue has already, which would
        hide those after them from a search.  Raises OSError from the disk.
        """
        chosen = units if _rises(units, self.max_physical, self.max_offset) else units[self._wanted(units)]
        if not len(chosen):
            return 0
        is_first = self._end == self.files.start
        self._write(chosen.tobytes())
        ((self.max_physical, base, count),) = _places(chosen[-1:])
        self.max_offset = base + count
        if is_first:
            self.min_offset = int(chosen["base_queue_offset"][0])
        return len(chosen)

    def _wanted(self, units: Units) -> list[int]:
        """The rows that the queue has not yet, one by one."""
        kept = []
        place, following = self.max_physical, self.max_offset
        for row, (offset, base, count) in enumerate(_places(units)):
            if offset > place and base >= following:
                kept.append(row)
                place, following = offset, base + count
        return kept

    def read(self, first: int, last: int) -> Units:
        """The units of slots [first, last), as far as they are written; none if `first` is not held."""
        low, high = first * _UNIT, min(last * _UNIT, self._end)
        if low < self.files.start or high <= low:
            return read_batch_entries(b"")
        return read_batch_entries(self.files.read(low, high - low))

    def slot_of(self, queue_offset: int) -> int:
        """The slot of the last unit that begins at or before a queue offset; that before the first where none does."""
        low, high = self.slots
        found = self._search(low * _UNIT, high * _UNIT, lambda unit: bool(unit["base_queue_offset"][0] > queue_offset))
        return found // _UNIT - 1

    def slot_at_time(self, store_ms: int) -> int:
        """The first slot whose batch was stored at or after a time."""
        low, high = self.slots
        found = self._search(low * _UNIT, high * _UNIT, lambda unit: bool(unit["store_timestamp"][0] >= store_ms))
        return found // _UNIT

    def correct_min(self, min_physical: int) -> None:
        """Moves `min_offset` up to the first batch whose record the log still holds, to `max_offset` if none is."""
        if self._min >= self._end:
            return
        low = max(self._min, self.files.start)
        self._min = self._search(low, self._end, lambda unit: bool(unit["physical_offset"][0] >= min_physical))
        slot = self._min // _UNIT
        first = self.read(slot, slot + 1)["base_queue_offset"].tolist()
        self.min_offset = first[0] if first else self.max_offset

    def expired(self, min_physical: int) -> list[int]:
        """Starts of the oldest files that hold only records before `min_physical` of the log, in order; never the file
        that holds the newest unit.
        """
        starts, size = self.files.starts, self.files.file_size
        return expired_starts(starts, size, self._end, min_physical, self._last_place)

    def _last_place(self, start: int) -> int:
        """Where the last record of the full file at `start` stands in the log."""
        return int(self._unit(start + self.files.file_size - _UNIT)["physical_offset"][0])

    def remove_expired(self, min_physical: int, count_max: int) -> list[str]:
        """Retires at most `count_max` of the `expired` files and returns their paths.  Raises OSError."""
        starts = self.expired(min_physical)[:count_max]
        if not starts:
            return []
        self.correct_min(min_physical)  # first, so that nobody is sent to a file that goes
        return self.files.remove_first(len(starts))

    def remove_all(self) -> None:
        """Removes all files, newest first and durably.  Raises OSError; the queue is what is left of it then."""
        try:
            self.files.cut(self.files.start)
        finally:
            self._end = min(self._end, self.files.end)
            self._flushed = min(self._flushed, self._end)
            self._settle()

    def flush(self) -> None:
        """Makes the units appended until now durable.  Raises OSError; do not retry."""
        end = self._end
        if self._flushed < end:
            self.files.sync(self._flushed, end)
            self._flushed = end

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            is_added = self._end >= self.files.end
            if is_added:
                self.files.add(self._end)
            room = self.files.file_size - self._end % self.files.file_size
            part = view[:room]
            try:
                self.files.write(self._end, part)
            except OSError:
                if is_added:
                    with suppress(OSError):
                        self.files.cut(self._end)  # no file that holds nothing is left
                self._settle()
                raise
            view = view[room:]
            self._end += len(part)

    def _settle(self) -> None:
        """Takes the bounds from the first and the last unit."""
        self.max_physical, self.min_offset, self.max_offset = _NOTHING, 0, 0
        self._min = max(self._min, self.files.start)
        if self._end > self.files.start:
            (place, base, count), (_, first, _) = _places(
                np.concatenate((self._unit(self._end - _UNIT), self._unit(min(self._min, self._end - _UNIT))))
            )
            self.max_physical, self.max_offset = place, base + count
            self.min_offset = first if self._min < self._end else self.max_offset

    def _is_written(self, position: int) -> bool:
        return bool(is_valid(self._unit(position))[0])

    def _unit(self, position: int) -> Units:
        data = self.files.read(position, _UNIT)
        if len(data) < _UNIT:
            raise StoreDamaged(
                self.files.path_of(position), position % self.files.file_size, "the file ends before a unit"
            )
        return read_batch_entries(data)

    def _search(self, low: int, high: int, holds: Callable[[Units], bool]) -> int:
        """The first position in [low, high) whose unit, and every one after it, `holds`; `high` if none does."""
        places = range(low, high, _UNIT)
        found = bisect_left(places, True, key=lambda position: holds(self._unit(position)))
        return low + found * _UNIT


class BatchQueues:
    """The queues below batchconsumequeue/ of the store at `root`; `log.queue_table` has one and hands on to it."""

    def __init__(self, fs: FileSystem, handles: FileHandles, root: str, file_size: int) -> None:
        self.refused_count = 0  # records whose topic or queue id names no directory
        self._fs = fs
        self._handles = handles
        self._root = join(root, BATCH_ROOM)
        self._file_size = file_size
        self._queues: dict[QueueKey, BatchQueue] = {}
        self._lock = threading.Lock()  # guards `_dirty`
        self._dirty: set[BatchQueue] = set()

    def load(self) -> list[str]:
        """Finds every queue and where it ends; returns warnings.  Raises Corrupt for files of a wrong size."""
        warnings = []
        for topic in self._fs.entries(self._root):
            for entry in self._fs.entries(join(self._root, topic.name)) if topic.is_directory else ():
                queue_id = names.parse_queue_id(entry.name)
                if queue_id is None or not entry.is_directory:
                    warnings.append(f"{join(self._root, topic.name, entry.name)}: no queue id, left as it is")
                else:
                    queue = self._queues[topic.name, queue_id] = self._make(topic.name, queue_id)
                    warnings += queue.load()
        return warnings

    def find(self, topic: str, queue_id: int) -> BatchQueue | None:
        """The queue, None if there is none."""
        return self._queues.get((topic, queue_id))

    def queues(self) -> list[BatchQueue]:
        """All queues."""
        return list(self._queues.values())

    def next_offsets(self) -> dict[QueueKey, int]:
        """The queue offset of the next message of every queue."""
        return {(queue.topic, queue.queue_id): queue.max_offset for queue in self.queues()}

    def dispatch(self, batch: Records, rows: Rows, codes: Ints) -> None:
        """Appends a unit for each of the n ≥ 1 records in `rows` that is not there yet; `codes` are the tags codes of
        all records.  Raises OSError.
        """
        for key, units in units_of(batch, rows, codes):
            queue = self._queue_of(*key)
            if queue is None:
                self.refused_count += len(units)
                continue
            with self._lock:
                self._dirty.add(queue)
            queue.append(units)

    def correct_min(self, min_physical: int) -> None:
        """Moves every queue's minimum up to where the log begins."""
        for queue in self.queues():
            queue.correct_min(min_physical)

    def flush(self) -> None:
        """Makes durable all that was dispatched until now.  Raises OSError; do not retry."""
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        for queue in dirty:
            queue.flush()

    def remove(self, queue: BatchQueue) -> None:
        """Removes a queue with its files, and its directories as far as nothing lies in them.  Raises OSError."""
        queue.remove_all()
        with self._lock:
            self._dirty.discard(queue)
        self._queues.pop((queue.topic, queue.queue_id), None)
        directory = queue.files.directories[0]
        with suppress(OSError):
            for path in (directory, directory_of(directory)):
                self._fs.remove_directory(path)
                self._fs.sync_directory(directory_of(path))

    def _make(self, topic: str, queue_id: int) -> BatchQueue:
        directory = join(self._root, topic, f"{queue_id:d}")
        return BatchQueue(self._fs, self._handles, directory, topic, queue_id, self._file_size)

    def _queue_of(self, topic: str, queue_id: int) -> BatchQueue | None:
        queue = self._queues.get((topic, queue_id))
        if queue is None and queue_id >= 0 and names.is_directory_name(topic):
            queue = self._queues[topic, queue_id] = self._make(topic, queue_id)
        return queue


def _rises(units: Units, place: int, after: int) -> bool:
    """Whether n ≥ 1 units rise: after `place` in the log, from queue offset `after` on, each after the one
    before.
    """
    places, bases = units["physical_offset"].astype(np.int64), units["base_queue_offset"].astype(np.int64)
    ends = bases + units["message_count"]
    return bool(
        places[0] > place and bases[0] >= after and (places[1:] > places[:-1]).all() and (bases[1:] >= ends[:-1]).all()
    )


class _Place(NamedTuple):
    """The fields of a unit: its record's offset in the log, its first message's queue offset, its count of messages."""

    offset: int
    base: int
    message_count: int


def _places(units: Units) -> list[_Place]:
    fields = ("physical_offset", "base_queue_offset", "message_count")
    return list(map(_Place._make, zip(*(units[name].tolist() for name in fields), strict=True)))
