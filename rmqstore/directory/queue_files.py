"""The files of one consume queue: which entries are written, and reading runs of them."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rmqstore.directory.listing import directories, stored_files
from rmqstore.errors import DataLost
from rmqstore.files.disk import ReadableDisk, StoredFile, join, read_part, reason_of
from rmqstore.files.zeros import seems_zero
from rmqstore.formats import batch_queue_entry, names
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.layout import Layout
from rmqstore.formats.names import BATCH_ROOM, PLAIN_ROOM, QueueKey
from rmqstore.formats.queue_entry import QUEUE_ENTRY, is_pre_blank, is_valid

SIMPLE = "SimpleCQ"
BATCH = "BatchCQ"
_DIRECTORIES = {SIMPLE: PLAIN_ROOM, BATCH: BATCH_ROOM}
# A file of up to this size is read whole to find the end of its entries: one read costs less than ten.
_READ_WHOLE_SIZE = 8 * 1024
# Slots read at once where the next message is looked for.
_BLOCK_SLOTS = 4096
# As much of a small queue is read at once.
_HEAD_SIZE = 4096
_WRITTEN = {SIMPLE: is_valid, BATCH: batch_queue_entry.is_valid}
_LAYOUTS: dict[str, Layout] = {SIMPLE: QUEUE_ENTRY, BATCH: BATCH_QUEUE_ENTRY}


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one queue as listed: `kind` is SimpleCQ (20-byte entries) or BatchCQ (46-byte units).

    A *slot* is the n-th entry of the files' address space.  In a SimpleCQ queue it is the queue offset.  The store's
    owner may take files away meanwhile: then methods raise DataLost, which names the slots.
    """

    root: str
    topic: str
    queue_id: int
    kind: str
    files: tuple[StoredFile, ...]
    disk: ReadableDisk = field(compare=False, repr=False)

    @property
    def directory(self) -> str:
        """Where the files lie."""
        return queue_directory(self.root, (self.topic, self.queue_id), self.kind)

    @property
    def layout(self) -> Layout:
        """The format of one entry."""
        return _LAYOUTS[self.kind]

    def first_slot(self) -> int:
        """The first slot that the files have room for; 0 without files."""
        return -(-self.files[0].start // self.layout.size) if self.files else 0

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Entries of slots [first, last), structured array of the layout's dtype; zeros where no file covers a slot."""
        size = self.layout.size
        data = bytearray()
        for number, file in enumerate(self.files):
            end = file.end  # a file that is too long does not reach into the next one
            if number + 1 < len(self.files):
                end = min(end, self.files[number + 1].start)
            low, high = max(first, file.start // size), min(last, end // size)
            if low >= high:
                continue
            found = self._part(file, low * size - file.start, (high - low) * size, (first, last))
            if low == first and len(found) == (last - first) * size:
                return np.frombuffer(found, self.layout.dtype)
            data = data.ljust((low - first) * size, b"\0") + found[: len(found) // size * size]
        return np.frombuffer(data.ljust((last - first) * size, b"\0"), self.layout.dtype)

    def written_end(self) -> int:
        """One past the slot number of the last written entry; the first slot when nothing is written.

        Entries after a hole of zeros count as well where their log offsets rise above those before it.  They may be
        left from before the queue was cut: `survey` holds them against their records.
        """
        end = self.unbroken_end()
        return next((int(slots[-1]) + 1 for slots, _ in self.written_after(end)), end)

    def unbroken_end(self) -> int:
        """As `written_end`, in a queue whose files have no holes.

        Entries are appended, so within the last file that has any the written ones come first: found by halving.
        """
        for file in reversed(self.files):
            end = self.end_in(file)
            if end > file.start // self.layout.size:
                return end
        return self.first_slot()

    def end_in(self, file: StoredFile) -> int:
        """The slot after the last written entry of one file, by halving; the file's first slot when nothing is
        written.
        """
        return self.end_and_head(file, 0)[0]

    def end_and_head(self, file: StoredFile, size_max: int) -> tuple[int, bytes]:
        """`end_in`, and what is written of the file up to there if that is at most `size_max` bytes, else b""."""
        size = self.layout.size
        first, end = file.start // size, file.end // size
        try:
            source = self.disk.open(file.path)
            try:
                if file.size <= _READ_WHOLE_SIZE and not file.start % size:
                    data = source.read(0, file.size)
                    written = self._written(data)
                    count = halved(0, len(written), written.__getitem__)
                    return first + count, data[: count * size] if count * size <= size_max else b""
                end = halved(first, end, lambda slot: any(self._written(source.read(slot * size - file.start, size))))
                written_size = end * size - file.start
                return end, source.read(0, written_size) if 0 < written_size <= size_max else b""
            finally:
                source.close()
        except OSError as error:
            raise self.lost(file, (first, end), error) from None

    def _written(self, data: bytes) -> list[bool]:
        """Which entries of a byte run are written; a cut last one is none."""
        entries = np.frombuffer(data, self.layout.dtype, len(data) // self.layout.size)
        written: list[bool] = _WRITTEN[self.kind](entries).tolist()
        return written

    def written_after(self, end: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]]:
        """The entries from slot `end` on that hold messages and point beyond the entry before `end`, with their slots:
        a file at a time, the newest first, none empty.

        Files are not read whole to find that there are none: see zeros.seems_zero.
        """
        size = self.layout.size
        before: int | None = None
        for file in reversed(self.files):
            first, last = max(file.start // size, end), file.end // size
            if first >= last:
                break
            if self._seems_blank(file, first, last):
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

    def _seems_blank(self, file: StoredFile, first: int, last: int) -> bool:
        size = self.layout.size
        try:
            source = self.disk.open(file.path)
            try:
                return seems_zero(source, first * size - file.start, last * size - file.start)
            finally:
                source.close()
        except OSError as error:
            raise self.lost(file, (first, last), error) from None

    def _part(self, file: StoredFile, position: int, size: int, wanted: tuple[int, int]) -> bytes:
        try:
            return read_part(self.disk, file.path, position, size)
        except OSError as error:
            raise self.lost(file, wanted, error) from None

    def lost(self, file: StoredFile, wanted: tuple[int, int], error: OSError) -> Exception:
        return DataLost(f"{self.topic}/{self.queue_id}", wanted, None, file.path, reason_of(error))


@dataclass(frozen=True, slots=True)
class OwnQueueFiles(QueueFiles):
    """The same for the owner of the store: it alone removes files, so an error of the disk is raised as it is."""

    def lost(self, file: StoredFile, wanted: tuple[int, int], error: OSError) -> Exception:
        del file, wanted
        return error


def halved(low: int, high: int, is_before: Callable[[int], bool]) -> int:
    """The first of the numbers [low, high) that `is_before` denies, as it then does all after it; `high` if none."""
    while low < high:
        middle = (low + high) // 2
        if is_before(middle):
            low = middle + 1
        else:
            high = middle
    return low


def is_valid_entry(kind: str, entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Where an entry is written; a BatchCQ unit also needs a base offset and a count (docs/formats.md)."""
    return _WRITTEN[kind](entries)


def holds_message(kind: str, entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Where an entry stands for a message: written, and not filler before the first real one."""
    return is_valid_entry(kind, entries) & ~is_pre_blank(entries)


class Slots(Protocol):
    """Whatever gives the entries of slots [first, last)."""

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Structured, one row a slot."""


def leading_blanks(slots: Slots, first: int, end: int) -> int:
    """How many of the written entries [first, end) only fill the room before the first real one, by halving."""
    return halved(first, end, lambda slot: bool(is_pre_blank(slots.read(slot, slot + 1))[0])) - first


def find_queues(disk: ReadableDisk, root: str, children: Collection[str] | None = None) -> tuple[QueueFiles, ...]:
    """Every queue of a store whose directory has a readable name, by topic and queue id; those without files as well.

    Where a topic has queues of both kinds those of batches count, as for the writer: RocketMQ 4 makes plain ones of
    the same messages.  `children`: the names in the root, where it was listed already.
    """
    found = [
        QueueFiles(root, topic, queue_id, kind, stored_files(disk, path), disk)
        for kind, room in _DIRECTORIES.items()
        if children is None or room in children
        for topic, queue_id, path in queue_directories(disk, root, kind)
    ]
    of_batches = {queue.topic for queue in found if queue.kind == BATCH and queue.unbroken_end() > queue.first_slot()}
    kept = [queue for queue in found if (queue.kind == BATCH) == (queue.topic in of_batches)]
    return tuple(sorted(kept, key=lambda queue: (queue.topic, queue.queue_id)))


def topic_directories(disk: ReadableDisk, root: str) -> set[str]:
    """Names of all directories that may hold queues of a topic, of either kind."""
    return {name for room in _DIRECTORIES.values() for name, _ in directories(disk, join(root, room))}


def queues_of(disk: ReadableDisk, root: str, topic: str, kind: str) -> list[QueueFiles]:
    """The queues of one kind of a topic, in no order; none of a name that no topic has."""
    if not names.is_directory_name(topic):
        return []
    listed = _topic_directory(disk, topic, join(root, _DIRECTORIES[kind], topic))
    return [
        QueueFiles(root, topic, queue_id, kind, stored_files(disk, path), disk) for _, queue_id, path in listed.queues
    ]


def queue_directory(root: str, key: QueueKey, kind: str) -> str:
    """Where the files of a queue lie."""
    return join(root, _DIRECTORIES[kind], key[0], str(key[1]))


class QueueDirectory(NamedTuple):
    """A directory of a queue, by its names."""

    topic: str
    queue_id: int
    path: str


class TopicDirectory(NamedTuple):
    """The queue directories of a topic.  `holds_queues_alone`: nothing else is there."""

    topic: str
    queues: list[QueueDirectory]
    holds_queues_alone: bool


def queue_directories(disk: ReadableDisk, root: str, kind: str) -> Iterator[QueueDirectory]:
    """Each directory of a queue."""
    for listed in listed_topics(disk, root, kind):
        yield from listed.queues


def listed_topics(disk: ReadableDisk, root: str, kind: str) -> Iterator[TopicDirectory]:
    """The directory of each topic: what a directory can be called, a topic may be."""
    for topic, directory in directories(disk, join(root, _DIRECTORIES[kind])):
        yield _topic_directory(disk, topic, directory)


def _topic_directory(disk: ReadableDisk, topic: str, directory: str) -> TopicDirectory:
    queues, holds_queues_alone = [], True
    for entry in disk.entries(directory):
        queue_id = names.parse_queue_id(entry.name) if entry.is_directory else None
        if queue_id is not None:
            queues.append(QueueDirectory(topic, queue_id, join(directory, entry.name)))
        holds_queues_alone &= queue_id is not None
    return TopicDirectory(topic, queues, holds_queues_alone)


def open_queue(disk: ReadableDisk, root: str, topic: str, queue_id: int, kind: str) -> QueueFiles:
    """The files of one queue as they are now."""
    files = stored_files(disk, queue_directory(root, (topic, queue_id), kind))
    return QueueFiles(root, topic, queue_id, kind, files, disk)


def small_content(queue: QueueFiles) -> bytes | None:
    """The slots of a queue that has one file with something at its beginning only, without the zeros after it, read in
    one go; None for any other queue.  Raises DataLost if the file is gone.
    """
    if len(queue.files) != 1 or queue.files[0].start % queue.layout.size:
        return None
    file, size = queue.files[0], queue.layout.size
    slots = min(file.size, _HEAD_SIZE) // size
    try:
        source = queue.disk.open(file.path)
        try:
            written = source.read(0, min(file.size, _HEAD_SIZE)).rstrip(b"\0")
            is_longer = len(written) > slots * size
            if file.size > _HEAD_SIZE and (is_longer or not seems_zero(source, _HEAD_SIZE, file.size)):
                return None
        finally:
            source.close()
    except OSError as error:
        first = queue.first_slot()
        raise queue.lost(file, (first, first + slots), error) from None
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
    """The first slot of [first, last) whose entry holds a message at or after an offset of the log; `last` if none
    does.

    By halving: offsets rise along a queue.  Slots that are not written tell nothing: the next message after them does.
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
