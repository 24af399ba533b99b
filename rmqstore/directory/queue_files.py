"""The files of one consume queue: which entries are written, and reading runs of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore.errors import DataLost
from rmqstore.files import reading
from rmqstore.files.reading import OpenFile, StoredFile
from rmqstore.formats import names
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.layout import Layout
from rmqstore.formats.queue_entry import QUEUE_ENTRY, is_pre_blank, is_valid

SIMPLE = "SimpleCQ"
BATCH = "BatchCQ"
_DIRECTORIES = {SIMPLE: "consumequeue", BATCH: "batchconsumequeue"}
# Slots read at once where the next message is looked for.
_BLOCK_SLOTS = 4096
# As much of a small queue is read at once.
_HEAD_SIZE = 4096
_LAYOUTS: dict[str, Layout] = {SIMPLE: QUEUE_ENTRY, BATCH: BATCH_QUEUE_ENTRY}


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one queue as listed: `kind` is SimpleCQ (20-byte entries) or BatchCQ (46-byte units).

    A *slot* is the n-th entry of the files' address space.  In a SimpleCQ queue it is the queue offset.
    """

    root: str
    topic: str
    queue_id: int
    kind: str
    files: tuple[StoredFile, ...]

    @property
    def directory(self) -> str:
        """Where the files lie."""
        return reading.join(self.root, _DIRECTORIES[self.kind], self.topic, str(self.queue_id))

    @property
    def layout(self) -> Layout:
        """The format of one entry."""
        return _LAYOUTS[self.kind]

    def first_slot(self) -> int:
        """The first slot that the files have room for; 0 without files."""
        return -(-self.files[0].start // self.layout.size) if self.files else 0

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Entries of slots [first, last), structured array of the layout's dtype; zeros where no file covers a slot.

        Raises DataLost if a listed file is gone.
        """
        size = self.layout.size
        data = bytearray()
        for number, file in enumerate(self.files):
            end = file.end  # a file that is too long does not reach into the next one
            if number + 1 < len(self.files):
                end = min(end, self.files[number + 1].start)
            low, high = max(first, file.start // size), min(last, end // size)
            if low >= high:
                continue
            found = _read(self, file, low * size - file.start, (high - low) * size, (first, last))
            if low == first and len(found) == (last - first) * size:
                return np.frombuffer(found, self.layout.dtype)
            data = data.ljust((low - first) * size, b"\0") + found[: len(found) // size * size]
        return np.frombuffer(data.ljust((last - first) * size, b"\0"), self.layout.dtype)

    def written_end(self) -> int:
        """The slot behind the last written entry, those behind a hole that rise above it included; the first slot when
        nothing is written.

        Entries behind a hole may be left from before the queue was cut: `survey` holds them against their records.
        """
        end = self.unbroken_end()
        return next((int(slots[-1]) + 1 for slots, _ in self.behind(end)), end)

    def unbroken_end(self) -> int:
        """As `written_end`, in a queue whose files have no holes.

        Entries are appended, so within the last file that has any the written ones come first: found by halving.
        """
        for file in reversed(self.files):
            first = file.start // self.layout.size
            end = _unbroken_end(self, file)
            if end > first:
                return end
        return self.first_slot()

    def behind(self, end: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]]:
        """The entries at or behind slot `end` that hold messages and point behind the entry before `end`, with their
        slots: a file at a time, the newest first, none empty.

        Files are not read whole to find that there are none: see reading.seems_blank.  Raises DataLost as `read`.
        """
        size = self.layout.size
        before: int | None = None
        for file in reversed(self.files):
            first, last = max(file.start // size, end), file.end // size
            if first >= last:
                break
            if _seems_blank(self, file, first, last):
                continue
            if before is None:
                before = self._offset_before(end)
            entries = self.read(first, last)
            rows = np.flatnonzero(holds_message(self.kind, entries) & (entries["physical_offset"] > before))
            if len(rows):
                yield rows + first, entries[rows]

    def _offset_before(self, end: int) -> int:
        """Where in the log the entry before slot `end` points; -1 if it holds no message."""
        if end <= self.first_slot():
            return -1
        entry = self.read(end - 1, end)
        return int(entry["physical_offset"][0]) if holds_message(self.kind, entry)[0] else -1


def _unbroken_end(queue: QueueFiles, file: StoredFile) -> int:
    """The slot behind the last written entry of one file, by halving; the file's first slot when nothing is written."""
    size = queue.layout.size
    low, high = file.start // size, file.end // size
    try:
        with OpenFile(file.path) as source:
            while low < high:
                middle = (low + high) // 2
                data = source.read(middle * size - file.start, size)
                if len(data) == size and is_valid_entry(queue.kind, np.frombuffer(data, queue.layout.dtype))[0]:
                    low = middle + 1
                else:
                    high = middle
    except OSError as error:
        raise _lost(queue, file, (low, high), error) from None
    return low


def _seems_blank(queue: QueueFiles, file: StoredFile, first: int, last: int) -> bool:
    size = queue.layout.size
    try:
        with OpenFile(file.path) as source:
            return reading.seems_blank(source, first * size - file.start, last * size - file.start)
    except OSError as error:
        raise _lost(queue, file, (first, last), error) from None


def _read(queue: QueueFiles, file: StoredFile, position: int, size: int, wanted: tuple[int, int]) -> bytes:
    try:
        with OpenFile(file.path) as source:
            return source.read(position, size)
    except OSError as error:
        raise _lost(queue, file, wanted, error) from None


def _lost(queue: QueueFiles, file: StoredFile, wanted: tuple[int, int], error: OSError) -> DataLost:
    return DataLost(f"{queue.topic}/{queue.queue_id}", wanted, None, file.path, error.strerror or str(error))


def is_valid_entry(kind: str, entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Where an entry is written; a BatchCQ unit also needs a base offset and a count (docs/formats.md)."""
    valid = is_valid(entries)
    if kind == BATCH:
        valid &= (entries["base_queue_offset"] >= 0) & (entries["message_count"] > 0)
    return valid


def holds_message(kind: str, entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Where an entry stands for a message: written, and not filler before the first real one."""
    return is_valid_entry(kind, entries) & ~is_pre_blank(entries)


def find_queues(root: str) -> tuple[QueueFiles, ...]:
    """Every queue of a store whose directory has a readable name, by topic and queue id; those without files as well.

    Where a topic has queues of both kinds those of batches count, as for who writes: RocketMQ 4 makes plain ones of
    the same messages.
    """
    found: list[QueueFiles] = []
    for kind, room in _DIRECTORIES.items():
        for topic in reading.list_directories(reading.join(root, room)):
            found += queues_of(root, topic, kind)
    of_batches = {queue.topic for queue in found if queue.kind == BATCH and queue.unbroken_end() > queue.first_slot()}
    kept = [queue for queue in found if (queue.kind == BATCH) == (queue.topic in of_batches)]
    return tuple(sorted(kept, key=lambda queue: (queue.topic, queue.queue_id)))


def topic_directories(root: str) -> set[str]:
    """Names of all directories that may hold queues of a topic, of either kind."""
    return {name for room in _DIRECTORIES.values() for name in reading.list_names(reading.join(root, room))}


def queues_of(root: str, topic: str, kind: str) -> list[QueueFiles]:
    """The queues of one kind of a topic, in no order; none of a name that no topic has."""
    if not names.is_topic_name(topic):
        return []
    children = reading.list_directories(reading.join(root, _DIRECTORIES[kind], topic))
    numbers = (names.parse_queue_id(child) for child in children)
    return [open_queue(root, topic, queue_id, kind) for queue_id in numbers if queue_id is not None]


def open_queue(root: str, topic: str, queue_id: int, kind: str) -> QueueFiles:
    """The files of one queue as they are now."""
    directory = reading.join(root, _DIRECTORIES[kind], topic, str(queue_id))
    return QueueFiles(root, topic, queue_id, kind, reading.list_stored_files(directory, names.parse_start))


def small_content(queue: QueueFiles) -> bytes | None:
    """The slots of a queue that has one file with something at its beginning only, without the zeros after it, read in
    one go; None for any other queue, and where the file system cannot tell.  Raises DataLost if the file is gone.
    """
    if len(queue.files) != 1 or queue.files[0].start % queue.layout.size:
        return None
    file, size = queue.files[0], queue.layout.size
    slots = min(file.size, _HEAD_SIZE) // size
    try:
        with OpenFile(file.path) as source:
            if file.size > _HEAD_SIZE and source.next_data(_HEAD_SIZE) is not None:
                return None
            written = source.read(0, min(file.size, _HEAD_SIZE)).rstrip(b"\0")
    except OSError as error:
        first = queue.first_slot()
        raise _lost(queue, file, (first, first + slots), error) from None
    count = -(-len(written) // size)
    if count > slots:
        return None if file.size > _HEAD_SIZE else written[: slots * size]
    return written.ljust(count * size, b"\0")


def entries_between(queue: QueueFiles, slots: tuple[int, int], low: int, high: int) -> tuple[int, int]:
    """Of the slots [start, end) those, [first, last), whose entries point into [low, high) of the log, along which the
    offsets of a queue rise.
    """
    start, end = max(slots[0], queue.first_slot()), min(slots[1], queue.written_end())
    return first_behind(queue, start, end, low), first_behind(queue, start, end, high)


def first_behind(queue: QueueFiles, first: int, last: int, offset: int) -> int:
    """The first slot of [first, last) whose entry holds a message at or behind an offset of the log; `last` if none
    does.

    By halving: offsets rise along a queue.  Slots that are not written tell nothing: the next message behind them does.
    """
    found = last
    while first < last:
        middle = (first + last) // 2
        entry = queue.read(middle, middle + 1)
        if is_pre_blank(entry)[0]:
            first = middle + 1
            continue
        slot, place = _next_message(queue, middle, last) or (last, offset)
        if place < offset:
            first = slot + 1
        else:
            found, last = min(slot, found) if slot < last else found, middle
    return found


def _next_message(queue: QueueFiles, first: int, last: int) -> tuple[int, int] | None:
    """The first slot of [first, last) that holds a message, and where in the log that stands; None if none does."""
    step = 1
    while first < last:
        entries = queue.read(first, min(first + step, last))
        held = np.flatnonzero(holds_message(queue.kind, entries))
        if len(held):
            return first + int(held[0]), int(entries["physical_offset"][held[0]])
        first, step = first + len(entries), min(step * 16, _BLOCK_SLOTS)
    return None
