"""The commitlog's files as one address space, on whatever disk they lie."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rmqstore.files.disk import ReadableDisk, ReadableFile, StoredFile
from rmqstore.formats import message
from rmqstore.formats.framing import BARE, WRAPPED, Framing
from rmqstore.formats.record_chain import claimed_size
from rmqstore.formats.record_crc import masked_crc32

if TYPE_CHECKING:
    from rmqstore.records.batch import RecordBatch

# Why a file does not count, as `LogSpace.other_place` finds it.
OTHER_BYTES = "the sound record at the beginning of this file names offset {place} of the log as its place"
_OPEN_FILES_MAX = 64
# A larger record at the beginning of a file is not read for what it says of its place.
_LOOKED_AT_MAX = 64 * 1024 * 1024
_I64_MAX = 2**63 - 1


class LogSpace:
    """A fixed list of commitlog files, rising by `start`; opens at most 64 at a time.  Not for several threads at once.

    `file_size` is what a whole file has: each has room for as many bytes, though it may be cut short before; 0: no more
    room than it has bytes.  `end`: no byte from this offset on is looked at; None: where the last file's room ends.
    Raises OSError as the disk gives it.
    """

    def __init__(
        self, disk: ReadableDisk, files: Sequence[StoredFile], file_size: int = 0, end: int | None = None
    ) -> None:
        self.disk = disk
        self.files = tuple(files)
        self.file_size = file_size
        self._starts = [file.start for file in self.files]
        self.end = end if end is not None else self._room_end(len(self.files) - 1) if files else 0
        self._open: dict[str, ReadableFile] = {}

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
        """Which file has room for the byte at `offset`; None if none does.  Of two that overlap it is the later one."""
        number = bisect_right(self._starts, offset) - 1
        return number if number >= 0 and offset < self._room_end(number) else None

    def file_at(self, offset: int) -> StoredFile | None:
        """The file that has room for the byte at `offset`; None if none does."""
        number = self.file_number(offset)
        return None if number is None else self.files[number]

    def next_file(self, offset: int) -> StoredFile | None:
        """The first file that starts above `offset`; None if there is none."""
        number = bisect_right(self._starts, offset)
        return self.files[number] if number < len(self.files) else None

    def next_start(self, offset: int) -> int | None:
        """Where the first file that starts above `offset` starts; None if there is none."""
        following = self.next_file(offset)
        return None if following is None else following.start

    def framing(self, offset: int) -> Framing:
        """How the records stand in the file that has room for the byte at `offset`."""
        file = self.file_at(offset)
        return WRAPPED if file is not None and file.is_wrapped else BARE

    @property
    def divider(self) -> int | None:
        """Where the files begin in which records stand in entries; None where there are none."""
        return next((file.start for file in self.files if file.is_wrapped), None)

    def boundary(self, place: int) -> int:
        """Where the entry of the record at `place` begins, or the record itself where records stand in none."""
        return place - self.framing(place).gap

    def _room_end(self, number: int) -> int:
        file = self.files[number]
        return file.start + (self.file_size or file.size)

    def readable_end(self, number: int) -> int:
        """Offset past the last byte of that file that may be looked at."""
        return min(self._room_end(number), self.end)

    def opened(self, file: StoredFile) -> ReadableFile:
        """The file, open.  Raises FileNotFoundError when it was deleted."""
        found = self._open.get(file.path)
        if found is None:
            if len(self._open) >= _OPEN_FILES_MAX:
                self._open.pop(next(iter(self._open))).close()
            found = self._open[file.path] = self.disk.open(file.path)
        return found

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from `offset` on that one file holds, at most `size`; empty where no file does."""
        file = self.file_at(offset)
        return b"" if file is None else self.opened(file).read(offset - file.start, size)

    def record_at(self, offset: int) -> "RecordBatch | None":
        """The record that stands at `offset`, alone in a batch; None if no whole one does that names this place."""
        from rmqstore.records.batch import RecordBatch  # noqa: PLC0415  single records are asked for by writers
        from rmqstore.records.read_batches import read_batches  # noqa: PLC0415  the same

        number = self.file_number(offset)
        if number is None:
            return None
        stop = self.readable_end(number)
        walk = read_batches(
            self.read, offset, stop, _I64_MAX, window_size=self.framing(offset).window, framing=self.framing
        )
        found = next(walk, None)
        return found if isinstance(found, RecordBatch) else None

    def other_place(self, file: StoredFile) -> int | None:
        """The offset that the sound record at the beginning of a file names, where it is another: the file has another
        one's name, or another one's bytes.  None elsewhere.
        """
        source, gap = self.opened(file), WRAPPED.gap if file.is_wrapped else 0
        head = source.read(gap, message.HEAD.size)
        if len(head) < message.HEAD.size:
            return None
        fields = message.HEAD.read(head)
        if fields["magic"] not in message.MESSAGE_MAGICS or fields["physical_offset"] == file.start + gap:
            return None
        size = min(max(fields["total_size"], 0), file.size)
        record = message.read_record(source.read(gap, size), 0) if size <= _LOOKED_AT_MAX else None
        if not isinstance(record, message.Record) or masked_crc32(record.body) != record.body_crc:
            return None
        is_own = record.physical_offset == file.start + gap  # it was just being written when its head was read
        return None if is_own else record.physical_offset

    def record(self, offset: int) -> message.Record | None:
        """The record to which `offset` leads; None if no whole one stands there that names its place.

        For single values: `record_at` gives what batches have, and costs ten times as much.
        """
        framing = self.framing(offset)
        data = self.read(offset, framing.window)
        begin = framing.record_position(data, 0)
        size = claimed_size(data, begin)
        return None if size is None else self.whole_record(offset + begin, size)

    def whole_record(self, offset: int, size: int) -> message.Record | None:
        """The record of `size` bytes that stands at `offset` and names that place; None if none does.  Both may be any
        number: no more is read than a record has.
        """
        number = self.file_number(offset)
        if number is None or not message.BLANK.size <= size <= self.readable_end(number) - offset:
            return None
        head = self.read(offset, message.BLANK.size)
        if len(head) < message.BLANK.size or message.BLANK.struct.unpack(head)[0] != size:
            return None
        record = message.read_record(self.read(offset, size), 0)
        if not isinstance(record, message.Record) or record.size != size or record.physical_offset != offset:
            return None
        return record
