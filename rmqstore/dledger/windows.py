"""The entries in a writer's data files, one after the other, whatever they hold."""

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from rmqstore.directory.ledger.walk import EntryBreak, EntryStretch, walk_entries
from rmqstore.files.file_sequence import FileSequence
from rmqstore.formats.dledger import ENTRY_HEAD, is_entry
from rmqstore.formats.message_columns import Bytes
from rmqstore.records.batch import EntryHeads


class EntryFiles:
    """The data files of a member from `begin` on, where an entry or a file begins, as far as `end`."""

    def __init__(self, files: FileSequence, begin: int, end: int) -> None:
        self.files, self.begin, self.end = files, begin, end

    @property
    def starts(self) -> list[int]:
        """Where its files start that hold something."""
        return [start for start in self.files.starts if self.begin - self.files.file_size < start < self.end]

    def walk(self, start: int) -> Iterator[EntryStretch | EntryBreak]:
        """Everything from `start` on, as `walk_entries` has it.  Raises OSError."""
        return walk_entries(self, start, self.end)

    def head_at(self, place: int) -> EntryHeads:
        """The head of the entry at `place`: ENTRY_HEAD.dtype[1], or none."""
        data = self.files.read(place, ENTRY_HEAD.size)
        return np.frombuffer(data if is_entry(data, place) else b"", ENTRY_HEAD.dtype)

    # --- what a walk asks

    def file_number(self, offset: int) -> int | None:
        """Which file has the byte at `offset`; None if none has."""
        starts = self.files.starts
        number = bisect_right(starts, offset) - 1
        return number if number >= 0 and offset < starts[number] + self.files.file_size else None

    def next_start(self, offset: int) -> int | None:
        """Where the first file that starts above `offset` starts; None if there is none."""
        starts = self.files.starts
        number = bisect_right(starts, offset)
        return starts[number] if number < len(starts) else None

    def readable_end(self, number: int) -> int:
        """Offset past the last byte of that file that may be looked at."""
        return min(self.files.starts[number] + self.files.file_size, self.end)

    def window(self, offset: int, size: int) -> tuple[Bytes, int]:
        """Bytes from `offset` on that one file holds, at most `size`, and the position of `offset` among them."""
        number = self.file_number(offset)
        room = 0 if number is None else self.readable_end(number) - offset
        return np.frombuffer(self.files.read(offset, min(size, room)), np.uint8), 0
