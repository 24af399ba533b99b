"""The extension files of one consume queue: units that its entries point at, with the tags code, the store time and a
bitmap of the filters that match (Java: ConsumeQueueExt).

Java writes a unit for every record that is dispatched, a second one where its queue has the record already, and keeps
units that no entry points at; here a unit is written only with its entry, and units after the last entry's are cut.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.queue_extension import (
    ADDRESS_MAX,
    BLANK_SIZE,
    END_OF_FILE,
    EXTENSION_HEAD,
    UNIT_SIZE_MAX,
    address_to_offset,
    encode_unit,
    is_extension_address,
    offset_to_address,
    read_unit,
)

_UNIT = EXTENSION_HEAD.size
_END_MARK = END_OF_FILE.to_bytes(2, "big", signed=True)


class QueueExtension:
    """The units of one queue.  One thread puts, and only that thread or none cuts; any thread reads."""

    __slots__ = ("_flushed", "end", "files")

    def __init__(self, fs: FileSystem, handles: FileHandles, directory: str, file_size: int) -> None:
        self.files = FileSequence(fs, handles, [directory], file_size)
        self.end = 0  # where the next unit goes, if it fits
        self._flushed = 0

    def load(self, last: int | None) -> list[str]:
        """Finds the files; `last` is the last address that an entry has.  Returns warnings, raises Corrupt."""
        warnings = self.files.load()
        self.end = self._flushed = end_behind(last, self.files)
        return warnings

    def put(self, codes: Ints, store_ms: Ints, bitmaps: Sequence[bytes] | None = None) -> Ints:
        """Appends a unit for each code and returns their addresses, int64[n]; raises OSError from the disk.

        A unit that is too large for a file, or whose place no address can express, is left out: its code stays.
        """
        if bitmaps is not None and any(bitmaps):
            columns = zip(codes.tolist(), store_ms.tolist(), bitmaps, strict=True)
            return np.array([self._put_one(*each) for each in columns], np.int64)
        units = np.zeros(len(codes), EXTENSION_HEAD.dtype)
        units["unit_size"], units["tags_code"], units["store_timestamp"] = _UNIT, codes, store_ms
        addresses = np.empty(len(codes), np.int64)
        done = 0
        while done < len(codes):
            self._make_room(_UNIT)
            room = self.files.file_size - self.end % self.files.file_size - BLANK_SIZE
            count = min(room // _UNIT, len(codes) - done)
            addresses[done : done + count] = offset_to_address(self.end) + np.arange(count) * _UNIT
            self._write(units[done : done + count].tobytes())
            done += count
        return addresses

    def _put_one(self, code: int, store_ms: int, bitmap: bytes) -> int:
        size = _UNIT + len(bitmap)
        if size > min(UNIT_SIZE_MAX, self.files.file_size - BLANK_SIZE):
            return code
        self._make_room(size)
        address = offset_to_address(self.end)
        self._write(encode_unit(code, store_ms, bitmap))
        return address

    def _make_room(self, size: int) -> None:
        """Closes the last file where a unit does not fit, and begins the next."""
        file_size, position = self.files.file_size, self.end % self.files.file_size
        if position and size > file_size - position - BLANK_SIZE:
            if self.files.holds(self.end):
                self.files.write(self.end, _END_MARK)
            self.end += file_size - position
        if not self.files.holds(self.end):
            self.files.add(self.end - self.end % file_size)

    def _write(self, data: bytes) -> None:
        self.files.write(self.end, data)
        self.end += len(data)

    def resolve(self, codes: Ints) -> Ints:
        """Tags codes with those of units in place of addresses; an address that leads nowhere stays as it is."""
        rows = np.flatnonzero(codes <= ADDRESS_MAX)
        if not len(rows):
            return codes
        found = codes.copy()
        places = codes[rows] - np.int64(-(2**63))
        low, high = int(places.min()), int(places.max()) + _UNIT
        data = self.files.read(low, high - low) if high - low <= _UNIT * 64 * len(rows) else b""
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            unit = read_unit(data, place - low) if data else None
            unit = unit or read_unit(self.files.read(place, UNIT_SIZE_MAX), 0)
            if unit is not None:
                found[row] = unit.tags_code
        return found

    def remove_before(self, address: int) -> list[str]:
        """Retires the files that end before a unit, never the last one; returns their paths.

        `address` is that of the oldest entry that stays (Java: truncateByMinAddress).  Raises OSError.
        """
        if not is_extension_address(address):
            return []
        oldest = address_to_offset(address)
        starts = self.files.starts[:-1]
        count = sum(1 for start in starts if start + self.files.file_size <= oldest)
        return self.files.remove_first(count) if count else []

    def cut_behind(self, last: int | None) -> None:
        """Drops the units after the one at `last`, the last address that an entry has, durably.  Raises OSError."""
        end = end_behind(last, self.files)
        self.files.cut(end)
        self.end = end
        self._flushed = min(self._flushed, end)

    def retract(self, end: int) -> None:
        """Forgets units that were put last and that no entry came to point at."""
        self.end = end

    def flush(self) -> None:
        """Makes the units put until now durable.  Raises OSError; do not retry."""
        end = self.end
        if self._flushed < end:
            self.files.sync(self._flushed, end)
            self._flushed = end


def end_behind(address: int | None, files: FileSequence) -> int:
    """Where units go on after the one at `address`, the last that an entry points at; None: the first file's start.

    Where no whole unit stands there, in the next file: no later unit may come to stand where an entry points.
    """
    if address is None:
        return files.start
    offset = address_to_offset(address)
    unit = read_unit(files.read(offset, UNIT_SIZE_MAX), 0)
    if unit is not None:
        return offset + unit.size
    return offset - offset % files.file_size + files.file_size


def last_address(codes: npt.NDArray[np.signedinteger]) -> int | None:
    """The last extension address among tags codes."""
    rows = np.flatnonzero(codes <= ADDRESS_MAX)
    return int(codes[rows[-1]]) if len(rows) else None
