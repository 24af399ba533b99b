"""The commitlog as one address space over its files, read in pages that numpy can look into."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from rmqstore.errors import Corrupt, DataLost
from rmqstore.files.reading import OpenFile, StoredFile, shrunk
from rmqstore.formats import message
from rmqstore.formats.message_columns import Bytes, Ints

# Records nearer than this are fetched by one read; a disk reads about as much at once anyway.
_READ_GAP = 32 * 1024
# Pages of a mapping are given back to the system in strides of this size.
_DROP_STRIDE = 32 * 1024 * 1024
_OPEN_FILES_MAX = 64
# Where a range holds at least this share (1 in n) of wanted bytes, all its pages are brought in at once.
_DENSE = 16


@dataclass(frozen=True, slots=True)
class Gathered:
    """Records of rows `rows` (a slice of what was asked) lying in `page` at `positions`; `file` says where from.

    `page[positions[i]]` is byte `offsets[i]` of the log.  `lost` marks that the file is gone or ends before them.
    """

    rows: slice
    page: Bytes
    positions: Ints
    file: StoredFile | None
    lost: str = ""


class LogView:
    """Reads a fixed list of commitlog files; opens at most 64 at a time.  Not for several threads at once.

    `mapped_below`: files that end at or below this offset are mapped, the others read with pread (a file that somebody
    may truncate must not be mapped).  `end`: nothing at or behind this offset is looked at.  `deleted_before`: by
    topic, before which offset its records are in no queue.
    """

    def __init__(
        self, files: Sequence[StoredFile], mapped_below: int, end: int, deleted_before: Mapping[str, int] | None = None
    ) -> None:
        self.files = tuple(files)
        self.mapped_below = mapped_below
        self.end = end
        self.deleted_before = deleted_before or {}
        self._starts = np.array([file.start for file in files], np.int64)
        self._ends = np.array([file.end for file in files], np.int64)
        self._open: dict[int, OpenFile] = {}
        self._touched: dict[int, int] = {}
        self._unmappable: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; pages handed out stay valid."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    @property
    def start(self) -> int:
        """The first offset that the files hold; 0 without files."""
        return self.files[0].start if self.files else 0

    def file_number(self, offset: int) -> int | None:
        """Which file holds the byte at `offset`; None if none does."""
        number = int(np.searchsorted(self._starts, offset, side="right")) - 1
        if number < 0 or offset >= self.files[number].end:
            return None
        return number

    def next_start(self, offset: int) -> int | None:
        """Where the first file that starts above `offset` starts; None if there is none."""
        number = int(np.searchsorted(self._starts, offset, side="right"))
        return self.files[number].start if number < len(self.files) else None

    def is_mapped(self, number: int) -> bool:
        """Whether that file is read through a mapping."""
        return self.files[number].end <= self.mapped_below and number not in self._unmappable

    def readable_end(self, number: int) -> int:
        """Offset behind the last byte of that file that may be looked at."""
        return min(self.files[number].end, self.end)

    def opened(self, number: int) -> OpenFile:
        """The open file of that number.  Raises OSError as the system gives it: FileNotFoundError when it was
        deleted.
        """
        if number not in self._open:
            if len(self._open) >= _OPEN_FILES_MAX:
                self._open.pop(next(iter(self._open))).close()
            self._open[number] = OpenFile(self.files[number].path)
        return self._open[number]

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
            data = self.opened(number).read(offset - file.start, end - offset)
            if len(data) < end - offset:
                raise shrunk(file.path, end - file.start)
        except OSError as error:
            raise DataLost("commitlog", (offset, end), None, file.path, error.strerror or str(error)) from None
        return np.frombuffer(data, np.uint8), 0

    def whole_record(self, offset: int, size: int) -> message.Record | None:
        """The record of `size` bytes that stands at `offset` and names that place; None if none does.  Both may be any
        number: no more is read than a record has.  Raises DataLost as `window`.
        """
        number = self.file_number(offset)
        if number is None or not message.BLANK.size <= size <= self.readable_end(number) - offset:
            return None
        page, position = self.window(offset, message.BLANK.size)
        if message.BLANK.struct.unpack_from(page, position)[0] != size:
            return None
        page, position = self.window(offset, size)
        record = message.read_record(page[position : position + size].tobytes(), 0)
        if not isinstance(record, message.Record) or record.size != size or record.physical_offset != offset:
            return None
        return record

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
            raise DataLost("commitlog", (offset, end), None, file.path, error.strerror or str(error)) from None

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
        numbers = np.searchsorted(self._starts, offsets, side="right") - 1
        if len(self._ends):
            numbers[offsets >= self._ends[numbers]] = -1
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(offsets)], strict=True):
            yield self._gather_run(int(numbers[first]), slice(first, last), offsets[first:last], sizes[first:last])

    def _gather_run(self, number: int, rows: slice, offsets: Ints, sizes: Ints) -> Gathered:
        nothing = np.zeros(0, np.uint8)
        if number < 0:
            return Gathered(rows, nothing, offsets, None, "no commitlog file holds them any more")
        file = self.files[number]
        try:
            source = self.opened(number)
            size = self.readable_end(number) - file.start
            page = self._mapped(number, size)
            if page is not None:
                self._give_back(number, int(offsets[0]) - file.start)
                low, high = int(offsets.min()) - file.start, int(offsets.max() + sizes[-1]) - file.start
                if 0 <= low < high <= size and high - low <= _DENSE * int(sizes.sum()):
                    source.prefault(low, high - low)
                return Gathered(rows, page, offsets - file.start, file)
            page, positions = _read_clustered(source, offsets - file.start, sizes, size)
            return Gathered(rows, page, positions, file)
        except OSError as error:
            return Gathered(rows, nothing, offsets, file, error.strerror or str(error))

    def _mapped(self, number: int, size: int) -> Bytes | None:
        """The first bytes of a file that is mapped; None for one that is read.  Raises OSError."""
        if not self.is_mapped(number):
            return None
        mapped = self.opened(number).map_if_possible(size)
        if mapped is None:
            self._unmappable.add(number)
            return None
        return np.frombuffer(mapped, np.uint8)[:size]

    def _give_back(self, number: int, position: int) -> None:
        """Drops the pages behind a reader that moves forward, so that memory stays bounded by the stride."""
        touched = self._touched.setdefault(number, position)
        if position < touched:
            self._touched[number] = position
        elif position - touched >= _DROP_STRIDE:
            self._open[number].drop(touched, position - touched)
            self._touched[number] = position


def _read_clustered(source: OpenFile, positions: Ints, sizes: Ints, end: int) -> tuple[Bytes, Ints]:
    """One page with all the wanted ranges, those that lie near each other fetched by one read, and the new positions.

    Positions or sizes outside the file come out as they are, beyond the page's end: `locate` calls them unsound.
    Raises OSError (ESTALE) if the file now ends within one of the ranges inside.
    """
    inside = (positions >= 0) & (sizes > 0) & (sizes <= end - positions)
    where = np.full(len(positions), np.iinfo(np.int64).max // 2, np.int64)
    rows = np.flatnonzero(inside)
    if not len(rows):
        return np.zeros(0, np.uint8), where
    order = rows[np.argsort(positions[rows], kind="stable")]
    starts = positions[order]
    reach = np.maximum.accumulate(starts + sizes[order])
    cuts = np.flatnonzero(starts[1:] - reach[:-1] > _READ_GAP) + 1
    firsts = np.concatenate(([0], cuts))
    lasts = np.concatenate((cuts, [len(order)])) - 1
    parts, base = [], 0
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        low, high = int(starts[first]), int(reach[last])
        data = source.read(low, high - low)
        if len(data) < high - low:
            raise shrunk(source.path, high)
        where[order[first : last + 1]] = starts[first : last + 1] - low + base
        parts.append(data)
        base += high - low
    return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8), where


def corrupt_at(files: Sequence[StoredFile], offset: int, reason: str) -> Corrupt:
    """The error for bytes at `offset` of the log, named by file and position."""
    holder = next((file for file in reversed(files) if file.start <= offset), None)
    if holder is None:
        return Corrupt("commitlog", offset, reason)
    return Corrupt(holder.path, offset - holder.start, reason)
