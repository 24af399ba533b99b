"""One queue as a recovery plan sees it: the files that can be used, and what is written in them."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqstore.directory.disk import ListedFile, ReadableDisk
from rmqstore.formats import batch_queue_entry, names, queue_entry
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.layout import Layout
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_entry import QUEUE_ENTRY

# What is written of a queue is kept up to this size: a plan asks a queue some ten times, and there may be 100,000.
_KEPT_SIZE = 1024


@dataclass(slots=True)
class QueueView:
    """The files of one queue that can be used: entries of slots [`first`, `end`) are written.

    `bad_files` are in the way: empty, of a wrong length, behind a gap, or all zero.  A *slot* is a queue offset, but in
    a queue of batches (`is_batch`) the number of a unit.
    """

    disk: ReadableDisk
    directory: str
    topic: str
    queue_id: int
    files: list[ListedFile]
    bad_files: list[tuple[ListedFile, str]] = field(default_factory=list)
    end: int = 0
    is_batch: bool = False
    _kept: bytes | None = None  # what is written in its only file

    @property
    def layout(self) -> Layout:
        """The format of an entry."""
        return BATCH_QUEUE_ENTRY if self.is_batch else QUEUE_ENTRY

    @property
    def key(self) -> QueueKey:
        """Topic and queue id."""
        return self.topic, self.queue_id

    @property
    def is_light(self) -> bool:
        """Whether it takes entries of other topics' records (LMQ): the log does not say simply which."""
        return names.is_light_queue(self.topic)

    @property
    def first(self) -> int:
        """The first slot that the files have room for; 0 without files."""
        return -(-self.files[0].start // self.layout.size) if self.files else 0

    def settle(self, file_size: int) -> None:
        """Sets aside what RocketMQ stumbles over, and finds the end of what is written."""
        for number, file in enumerate(self.files):
            broken = file.size != file_size
            apart = number > 0 and file.start != self.files[number - 1].start + file_size
            if broken or apart:
                reason = f"{file.size} bytes instead of {file_size}" if broken else "the file before it is missing"
                self.bad_files += [(file, reason)] + [
                    (later, "behind such a file") for later in self.files[number + 1 :]
                ]
                del self.files[number:]
                break
        while self.files and (end := self._written_end(self.files[-1])) == self.files[-1].start // self.layout.size:
            self.bad_files.append((self.files.pop(), "nothing is written in it"))
        self.end = end if self.files else 0
        self._keep()

    def set_aside(self, reason: str) -> None:
        """Lets none of its files count."""
        self.bad_files += [(file, reason) for file in self.files]
        self.files, self.end, self._kept = [], 0, None

    def _keep(self) -> None:
        """Keeps what is written of a small queue."""
        if len(self.files) != 1 or self.files[0].start % self.layout.size:
            return
        size = self.end * self.layout.size - self.files[0].start
        if size <= _KEPT_SIZE:
            self._kept = self._read_file(self.files[0], 0, size)

    def _read_file(self, file: ListedFile, position: int, size: int) -> bytes:
        if self._kept is not None:
            return self._kept[position : position + size]
        source = self.disk.open(file.path)
        try:
            return source.read(position, size)
        finally:
            source.close()

    def _written_end(self, file: ListedFile) -> int:
        """The slot behind the last entry of a file, by halving: entries are appended.  Its first slot if none is."""
        size = self.layout.size
        low, high = file.start // size, file.end // size
        source = self.disk.open(file.path)
        try:
            while low < high:
                middle = (low + high) // 2
                entry = self._entries(source.read(middle * size - file.start, size))
                if len(entry) and self._is_valid(entry)[0]:
                    low = middle + 1
                else:
                    high = middle
        finally:
            source.close()
        return low

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Entries of slots [first, last) as far as they are written and in a file; structured, QUEUE_ENTRY.dtype."""
        size = self.layout.size
        parts = []
        for file in self.files:
            low, high = max(first, file.start // size), min(last, file.end // size, self.end)
            if low < high:
                parts.append(self._read_file(file, low * size - file.start, (high - low) * size))
        return self._entries(b"".join(parts))

    def slot_at(self, offset: int) -> int:
        """The first slot whose message stands at or behind `offset` of the log, by halving; `end` if none does.

        A slot that is not written counts as behind: a power cut may leave such holes among the newest entries.
        """
        if self._kept is not None:
            return self._kept_slot_at(self._kept, offset)
        size = self.layout.size
        for file in reversed(self.files):
            source = self.disk.open(file.path)
            try:
                low, high = file.start // size, min(file.end // size, self.end)
                first = low
                while low < high:
                    middle = high - 1 if high == self.end else (low + high) // 2
                    entry = self._entries(source.read(middle * size - file.start, size))
                    if self._is_valid(entry)[0] and int(entry["physical_offset"][0]) < offset:
                        low = middle + 1
                    else:
                        high = middle
                if low > first:
                    return low
            finally:
                source.close()
        return self.first

    def _kept_slot_at(self, kept: bytes, offset: int) -> int:
        """`slot_at` by what is kept."""
        entries = self._entries(kept)
        is_older = self._is_valid(entries) & (entries["physical_offset"] < offset)
        low, high = 0, len(entries)
        while low < high:
            middle = high - 1 if high == len(entries) else (low + high) // 2
            low, high = (middle + 1, high) if is_older[middle] else (low, middle)
        return self.first + low

    def _entries(self, data: bytes) -> npt.NDArray[np.void]:
        """The entries of a byte run; a cut last one is left out."""
        layout = self.layout
        return np.frombuffer(data, layout.dtype, count=len(data) // layout.size)

    def _is_valid(self, entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        return batch_queue_entry.is_valid(entries) if self.is_batch else queue_entry.is_valid(entries)
