"""The commitlog as a reader has it: in pages that numpy can look into, mapped where its disk and its owner allow it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rmqstore.directory.log_space import LogSpace
from rmqstore.errors import DataLost
from rmqstore.files.disk import ReadableDisk, ReadableFile, StoredFile, directory_of, join, reason_of, shrunk
from rmqstore.formats.deleted_topics import DeletedBefore
from rmqstore.formats.inner_batch import NO_TOPIC, OwnBases
from rmqstore.formats.message_columns import Bytes, Ints
from rmqstore.formats.names import LOG_ROOM, NOWHERE

# Pages of a mapping are given back to the system in strides of this size.
_DROP_STRIDE = 32 * 1024 * 1024
# Where a range holds at least this share (1 in n) of wanted bytes, all its pages are brought in at once.
_DENSE = 16


@dataclass(frozen=True, slots=True)
class Gathered:
    """Records of rows `rows` (a slice of what was asked) lying in `page` at `positions`; `file` says where from.

    `page[positions[i]]` is byte `offsets[i]` of the log.  `lost` marks that the file is gone or ends before them.
    `gap`: so many bytes in front of each are the head of its entry, and in the page as well if the file has them.
    """

    rows: slice
    page: Bytes
    positions: Ints
    file: StoredFile | None
    lost: str = ""
    gap: int = 0


class LogView(LogSpace):
    """A fixed list of commitlog files, as long as listed, on a disk that their owner may change meanwhile.

    `mapped_below`: files that end at or below this offset are mapped, the others read with pread (a file that somebody
    may truncate must not be mapped).  `end`: no byte from this offset on is looked at.  `deleted_before`: by topic,
    before which offset its records are in no queue.  `own_bases`, and `light_from`: as of Stretch.
    Where a file is gone, `window`, `read` and what is made of them raise DataLost, which names bytes of the log.
    """

    def __init__(
        self, disk: ReadableDisk, files: Sequence[StoredFile], mapped_below: int, end: int,
        deleted_before: DeletedBefore | None = None, *, own_bases: OwnBases = NO_TOPIC,
    ) -> None:  # fmt: skip
        super().__init__(disk, files, end=end)
        self.own_bases, self.light_from = own_bases, NOWHERE
        self.mapped_below = mapped_below if disk.can_map else 0
        self.deleted_before = deleted_before or {}
        self._start_column = np.array([file.start for file in files], np.int64)
        self._end_column = np.array([file.end for file in files], np.int64)
        self._touched: dict[int, int] = {}
        self._unmappable: set[int] = set()

    @property
    def has_holes(self) -> bool:
        """Whether files are missing between others."""
        return any(before.end < after.start for before, after in pairwise(self.files))

    def room(self, root: str) -> str:
        """The directory of its newest file, for words about files that are gone; below `root` if it has none."""
        return directory_of(self.files[-1].path) if self.files else join(root, LOG_ROOM)

    def gaps(self, offsets: Ints) -> Ints:
        """The bytes between the record in front of each of those that begin at `offsets`, and it: int64[n]."""
        if not any(file.is_wrapped for file in self.files):
            return np.zeros(len(offsets), np.int64)
        column = np.array([0, *(self.framing(file.start).gap for file in self.files)], np.int64)
        found: Ints = column[np.searchsorted(self._start_column, offsets, side="right")]
        return found

    def is_mapped(self, number: int) -> bool:
        """Whether that file is read through a mapping."""
        return self.files[number].end <= self.mapped_below and number not in self._unmappable

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from `offset` on that one file holds up to the end, at most `size`; empty where no file does."""
        if self.file_number(offset) is None or offset >= self.end:
            return b""
        page, position = self.window(offset, size)
        return page[position : position + size].tobytes()

    def window(self, offset: int, size: int) -> tuple[Bytes, int]:
        """A page that holds the bytes from `offset` on, at most `size` of them, and the position of `offset` in it.

        The page ends where the file or the readable log ends.  Raises DataLost, which names bytes of the log, if the
        file is gone or shorter than listed.
        """
        number = self.file_number(offset)
        assert number is not None, offset
        file = self.files[number]
        end = min(self.readable_end(number), offset + size)
        try:
            mapped = self._mapped(number, end - file.start)
            if mapped is not None:
                self._give_back(number, offset - file.start)
                return mapped, offset - file.start
            data = self.opened(file).read(offset - file.start, end - offset)
            if len(data) < end - offset:
                raise shrunk(file.path, end - file.start)
        except OSError as error:
            raise DataLost("commitlog", (offset, end), None, file.path, reason_of(error)) from None
        return np.frombuffer(data, np.uint8), 0

    def require_whole(self, offset: int) -> None:
        """Looks again whether the mapped file that holds `offset` is as long as listed, before a page of it is read
        further: its owner may have cut it meanwhile.  Raises DataLost, which names bytes of the log, if it is not.
        """
        number = self.file_number(offset)
        if number is None or not self.is_mapped(number):
            return
        file, end = self.files[number], self.readable_end(number)
        try:
            self._mapped(number, end - file.start)
        except OSError as error:
            raise DataLost("commitlog", (offset, end), None, file.path, reason_of(error)) from None

    def gather(self, offsets: Ints, sizes: Ints) -> Iterator[Gathered]:
        """Pages for records at `offsets` (int64[n]) of `sizes` bytes, in order, a run of rows in one file at a time.

        Rows whose offset no file holds, or whose file is gone, come with an empty page and `lost` saying why.
        """
        if not len(offsets):
            return
        only = self.file_number(int(offsets.min()))
        if only is not None and int(offsets.max()) < self.files[only].end:
            yield self._gather_run(only, slice(0, len(offsets)), offsets, sizes)
            return
        numbers = np.searchsorted(self._start_column, offsets, side="right") - 1
        if len(self._end_column):
            numbers[offsets >= self._end_column[numbers]] = -1
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(offsets)], strict=True):
            yield self._gather_run(int(numbers[first]), slice(first, last), offsets[first:last], sizes[first:last])

    def _gather_run(self, number: int, rows: slice, offsets: Ints, sizes: Ints) -> Gathered:
        nothing = np.zeros(0, np.uint8)
        if number < 0:
            return Gathered(rows, nothing, offsets, None, "no commitlog file holds them any more")
        file = self.files[number]
        gap = self.framing(file.start).gap
        try:
            source = self.opened(file)
            size = self.readable_end(number) - file.start
            page = self._mapped(number, size)
            if page is not None:
                self._give_back(number, int(offsets[0]) - file.start)
                low, high = int(offsets.min()) - file.start, int(offsets.max() + sizes[-1]) - file.start
                if 0 <= low < high <= size and high - low <= _DENSE * int(sizes.sum()):
                    source.prefault(low, high - low)
                return Gathered(rows, page, offsets - file.start, file, gap=gap)
            lead = np.minimum(offsets - file.start, gap)
            begins = offsets - file.start - lead
            page, positions = _read_clustered(source, begins, sizes + lead, (size, self.disk.read_gap))
            return Gathered(rows, page, positions + lead, file, gap=gap)
        except OSError as error:
            return Gathered(rows, nothing, offsets, file, reason_of(error))

    def _mapped(self, number: int, size: int) -> Bytes | None:
        """The first bytes of a file that is mapped; None for one that is read.  Raises OSError."""
        if not self.is_mapped(number):
            return None
        mapped = self.opened(self.files[number]).map_bytes(size)
        if mapped is None:
            self._unmappable.add(number)
            return None
        return np.frombuffer(mapped, np.uint8)[:size]

    def _give_back(self, number: int, position: int) -> None:
        """Drops the pages that a reader moving forward has passed, so that memory stays bounded by the stride."""
        touched = self._touched.setdefault(number, position)
        if position < touched:
            self._touched[number] = position
        elif position - touched >= _DROP_STRIDE:
            self.opened(self.files[number]).drop(touched, position - touched)
            self._touched[number] = position


def _read_clustered(source: ReadableFile, positions: Ints, sizes: Ints, bounds: tuple[int, int]) -> tuple[Bytes, Ints]:
    """One page with all the wanted ranges, those that lie near each other fetched by one read, and the new positions.

    `bounds` are where the file ends, and how far apart ranges may lie to be near.  Positions or sizes outside the file
    come out as they are, beyond the page's end: `locate` calls them unsound.  Raises OSError (ESTALE) if the file now
    ends within one of the ranges inside.
    """
    end, gap = bounds
    inside = (positions >= 0) & (sizes > 0) & (sizes <= end - positions)
    where = np.full(len(positions), np.iinfo(np.int64).max // 2, np.int64)
    rows = np.flatnonzero(inside)
    if not len(rows):
        return np.zeros(0, np.uint8), where
    order = rows[np.argsort(positions[rows], kind="stable")]
    starts = positions[order]
    reach = np.maximum.accumulate(starts + sizes[order])
    cuts = np.flatnonzero(starts[1:] - reach[:-1] > gap) + 1
    firsts = np.concatenate(([0], cuts))
    lasts = np.concatenate((cuts, [len(order)])) - 1
    ranges = list(zip(starts[firsts].tolist(), reach[lasts].tolist(), strict=True))
    parts = source.read_ranges(ranges)
    base = 0
    for first, last, (low, high), part in zip(firsts.tolist(), lasts.tolist(), ranges, parts, strict=True):
        if len(part) < high - low:
            raise shrunk(source.path, high)
        where[order[first : last + 1]] = starts[first : last + 1] - low + base
        base += high - low
    return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8), where
