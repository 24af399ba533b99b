"""One consume queue as a recovery plan sees it: the files that can be used, and what is written in them."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqstore.formats import names
from rmqstore.formats.queue_entry import QUEUE_ENTRY, is_valid, read_entries
from rmqstore.log.recovery_disk import ListedFile, ReadableDisk

QueueKey = tuple[str, int]


@dataclass(slots=True)
class QueueView:
    """The files of one consume queue that can be used: entries of slots [`first`, `end`) are written.

    `bad_files` are in the way: empty, of a wrong length, behind a gap, or all zero.  A *slot* is a queue offset.
    """

    disk: ReadableDisk
    directory: str
    topic: str
    queue_id: int
    files: list[ListedFile]
    bad_files: list[tuple[ListedFile, str]] = field(default_factory=list)
    end: int = 0

    @property
    def key(self) -> QueueKey:
        """Topic and queue id."""
        return self.topic, self.queue_id

    @property
    def is_multi_dispatch(self) -> bool:
        """Whether it takes entries of other topics' records (LMQ): the log does not say simply which."""
        return self.topic.startswith(names.LMQ_PREFIX)

    @property
    def first(self) -> int:
        """The first slot that the files have room for; 0 without files."""
        return -(-self.files[0].start // QUEUE_ENTRY.size) if self.files else 0

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
        while self.files and (end := self._written_end(self.files[-1])) == self.files[-1].start // QUEUE_ENTRY.size:
            self.bad_files.append((self.files.pop(), "nothing is written in it"))
        self.end = end if self.files else 0

    def _written_end(self, file: ListedFile) -> int:
        """The slot behind the last entry of a file, by halving: entries are appended.  Its first slot if none is."""
        size = QUEUE_ENTRY.size
        low, high = file.start // size, file.end // size
        source = self.disk.open(file.path)
        try:
            while low < high:
                middle = (low + high) // 2
                entry = read_entries(source.read(middle * size - file.start, size))
                if len(entry) and is_valid(entry)[0]:
                    low = middle + 1
                else:
                    high = middle
        finally:
            source.close()
        return low

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Entries of slots [first, last) as far as they are written and in a file; structured, QUEUE_ENTRY.dtype."""
        size = QUEUE_ENTRY.size
        parts = []
        for file in self.files:
            low, high = max(first, file.start // size), min(last, file.end // size, self.end)
            if low < high:
                source = self.disk.open(file.path)
                try:
                    parts.append(source.read(low * size - file.start, (high - low) * size))
                finally:
                    source.close()
        return read_entries(b"".join(parts))

    def slot_at(self, offset: int) -> int:
        """The first slot whose message stands at or behind `offset` of the log, by halving; `end` if none does.

        A slot that is not written counts as behind: a power cut may leave such holes among the newest entries.
        """
        size = QUEUE_ENTRY.size
        for file in reversed(self.files):
            source = self.disk.open(file.path)
            try:
                low, high = file.start // size, min(file.end // size, self.end)
                first = low
                while low < high:
                    middle = high - 1 if high == self.end else (low + high) // 2
                    entry = read_entries(source.read(middle * size - file.start, size))
                    if is_valid(entry)[0] and int(entry["physical_offset"][0]) < offset:
                        low = middle + 1
                    else:
                        high = middle
                if low > first:
                    return low
            finally:
                source.close()
        return self.first
