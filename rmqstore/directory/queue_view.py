"""One queue as a recovery plan sees it: the files that can be used, and what is written in them."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from rmqstore.directory.queue_files import BATCH, QueueFiles, is_valid_entry, leading_blanks
from rmqstore.files.disk import StoredFile
from rmqstore.formats import names
from rmqstore.formats.layout import Layout
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY, is_pre_blank

# By it a pre-blank entry is known.
_PRE_BLANK = QUEUE_ENTRY.struct.pack(0, PRE_BLANK_SIZE, 0)[: QUEUE_ENTRY.offset["tags_code"]]
# What is written of a queue is kept up to this size: a plan asks a queue some ten times, and there may be 100,000.
_KEPT_SIZE = 1024


@dataclass(slots=True)
class QueueView:
    """The files of one queue that can be used, `queue`: entries of slots [`first`, `end`) are written.

    `bad_files` are in the way: empty, of a wrong length, after a gap, or all zero.  `is_broken`: in some of them
    something is written.
    """

    queue: QueueFiles
    bad_files: list[tuple[StoredFile, str]] = field(default_factory=list)
    end: int = 0
    is_broken: bool = False
    has_strays: bool = False  # something that is no file of it lies in its directory
    _kept: bytes | None = None  # what is written in its only file

    @property
    def directory(self) -> str:
        """Where the files lie."""
        return self.queue.directory

    @property
    def topic(self) -> str:
        """Its topic."""
        return self.queue.topic

    @property
    def queue_id(self) -> int:
        """Its number in the topic."""
        return self.queue.queue_id

    @property
    def key(self) -> QueueKey:
        """Topic and queue id."""
        return self.queue.topic, self.queue.queue_id

    @property
    def is_batch(self) -> bool:
        """Whether its entries are units of batches: then a slot is no queue offset."""
        return self.queue.kind == BATCH

    @property
    def is_light(self) -> bool:
        """Whether it takes entries of other topics' records (LMQ): the log does not say simply which."""
        return names.is_light_queue(self.queue.topic)

    @property
    def layout(self) -> Layout:
        """The format of an entry."""
        return self.queue.layout

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """The files that can be used."""
        return self.queue.files

    @property
    def first(self) -> int:
        """The first slot that the files have room for; 0 without files."""
        return self.queue.first_slot()

    @property
    def kept(self) -> bytes | None:
        """All that is written of a small queue in one file, None of any other."""
        return self._kept

    def settle(self, file_size: int) -> None:
        """Sets aside what RocketMQ stumbles over, and finds the end of what is written."""
        files = list(self.queue.files)
        for number, file in enumerate(files):
            reason = ""
            if file.size != file_size:
                reason = f"{file.size} bytes instead of {file_size}"
            elif number and file.start != files[number - 1].start + file_size:
                reason = "the file before it is missing"
            elif number and not self._is_full(files[number - 1]):
                reason = "the file before it is not full"
            if reason:
                self.bad_files += [(file, reason)] + [(later, "after such a file") for later in files[number + 1 :]]
                self.is_broken = any(self._has_entries(each) for each in files[number:])
                del files[number:]
                break
        end, head = 0, b""
        while files:
            end, head = self.queue.end_and_head(files[-1], _KEPT_SIZE)
            if end > files[-1].start // self.layout.size:
                break
            self.bad_files.append((files.pop(), "nothing is written in it"))
        self.end = end if files else 0
        if len(files) != len(self.queue.files):
            self.queue = replace(self.queue, files=tuple(files))
        self._kept = head if len(files) == 1 and head and not files[0].start % self.layout.size else None

    def _is_full(self, file: StoredFile) -> bool:
        last = file.end // self.layout.size
        return bool(is_valid_entry(self.queue.kind, self.queue.read(last - 1, last)).all())

    def _has_entries(self, file: StoredFile) -> bool:
        return self.queue.end_in(file) > file.start // self.layout.size

    def set_aside(self, reason: str) -> None:
        """Lets none of its files count."""
        self.bad_files += [(file, reason) for file in self.files]
        self.queue, self.end, self._kept = replace(self.queue, files=()), 0, None

    def give_up(self, slot: int, reason: str) -> None:
        """Lets wrong entries not count: those from `slot` on.  Where a file begins with them, and it is not the last,
        it goes with those in front: later ones are the queue's own.
        """
        if slot >= self.end:
            return
        start = slot * self.layout.size
        goes = [file for file in self.files if file.start >= start]
        if len(goes) > 1 and goes[0].start == start:
            goes = [file for file in self.files if file.start <= start]
        else:
            self.end, self._kept = slot if goes != list(self.files) else 0, None
        self.bad_files += [(file, reason) for file in goes]
        self.queue = replace(self.queue, files=tuple(file for file in self.files if file not in goes))

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Entries of slots [first, last) as far as they are written and in a file; structured, the layout's dtype."""
        low, high = max(first, self.first), min(last, self.end)
        if low >= high:
            return np.zeros(0, self.layout.dtype)
        if self._kept is None:
            return self.queue.read(low, high)
        size, start = self.layout.size, self.files[0].start
        return self._entries(self._kept[low * size - start : high * size - start])

    def slot_at(self, offset: int) -> int:
        """The first slot whose message stands at or after `offset` of the log, by halving; `end` if none does.

        A slot that is not written counts as after it: a power cut may leave such holes among the newest entries, and
        what follows a hole is written again.  (A reader, which writes nothing, goes on past it:
        `queue_files.first_behind`.)
        """
        if offset <= 0:
            return self.first  # nothing stands before the log
        if self._kept is not None:
            return self._kept_slot_at(self._kept, offset)
        size = self.layout.size
        for file in reversed(self.files):
            source = self.queue.disk.open(file.path)
            try:
                low, high = file.start // size, min(file.end // size, self.end)
                first = low
                while low < high:
                    middle = high - 1 if high == self.end else (low + high) // 2
                    entry = self._entries(source.read(middle * size - file.start, size))
                    if is_valid_entry(self.queue.kind, entry)[0] and int(entry["physical_offset"][0]) < offset:
                        low = middle + 1
                    else:
                        high = middle
                if low > first:
                    return low
            finally:
                source.close()
        return self.first

    def leading_blanks(self) -> int:
        """How many of the entries only fill the room before the first real one; none where the very first is real."""
        if self._kept is not None:
            is_filled = self._kept.startswith(_PRE_BLANK)
        else:
            is_filled = bool(is_pre_blank(self.read(self.first, self.first + 1)).any())
        return leading_blanks(self, self.first, self.end) if is_filled else 0

    def _kept_slot_at(self, kept: bytes, offset: int) -> int:
        """`slot_at` by what is kept."""
        if not self.is_batch:
            return self.first + _slot_at(kept, offset)
        entries = self._entries(kept)
        is_older = is_valid_entry(self.queue.kind, entries) & (entries["physical_offset"] < offset)
        low, high = 0, len(entries)
        while low < high:
            middle = high - 1 if high == len(entries) else (low + high) // 2
            low, high = (middle + 1, high) if is_older[middle] else (low, middle)
        return self.first + low

    def _entries(self, data: bytes) -> npt.NDArray[np.void]:
        """The entries of a byte run; a cut last one is left out."""
        layout = self.layout
        return np.frombuffer(data, layout.dtype, count=len(data) // layout.size)


def _slot_at(kept: bytes, offset: int) -> int:
    """`slot_at` among the plain entries of a byte run: without vectors, which cost more than a few entries."""
    size = QUEUE_ENTRY.size
    count = len(kept) // size
    low, high = 0, count
    while low < high:
        middle = high - 1 if high == count else (low + high) // 2
        place, record_size, _ = QUEUE_ENTRY.struct.unpack_from(kept, middle * size)
        low, high = (middle + 1, high) if 0 <= place < offset and record_size > 0 else (low, middle)
    return low
