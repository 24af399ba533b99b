"""Records put into entries: the heads in front of them, and their units of the index."""

import threading
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from itertools import repeat

import numpy as np

from rmqstore.dledger.index import EntryIndex
from rmqstore.dledger.repair import units_of
from rmqstore.engine.log.encode.columns import scatter
from rmqstore.formats import dledger
from rmqstore.formats.dledger import ENTRY_HEAD, INDEX_UNIT, Entry, encode_entry, index_unit
from rmqstore.formats.framing import WRAPPED
from rmqstore.formats.message_columns import Bytes, Ints
from rmqstore.formats.record_crc import CRC_MASK, crc32, masked_crc32, masked_crc32s

# --- The CRCs of the bodies of entries that lie side by side, as they are put.

# Of more bytes on average a slice costs less than the copy of one.
_READ_SIZE_MAX = 700
_POLYNOMIAL, _HIGHEST = 0xEDB88320, 0x80000000
_WORD = 0xFFFFFFFF


def body_crcs(data: Bytes, starts: Ints, gap: int) -> Ints:
    """`masked_crc32` of the bodies of n ≥ 1 entries side by side whose heads, `gap` bytes, are still zero:
    uint8[nbytes], int64[n + 1] → int64[n].

    Short ones are taken one after the other as out of a file, which spares a slice for each: 125 ns for 300 bytes where
    `masked_crc32s` takes 185.  The zeros are fed as well, to a register that is that of a beginning after them.
    """
    if starts[-1] - starts[0] > _READ_SIZE_MAX * (len(starts) - 1):
        return masked_crc32s(data, starts[:-1] + gap, np.diff(starts) - gap)
    read = BytesIO(memoryview(data)[int(starts[0]) : int(starts[-1])]).read
    found = map(crc32, map(read, np.diff(starts).tolist()), repeat(_before_zeros(gap)))
    return np.fromiter(found, np.int64, len(starts) - 1) & CRC_MASK


@cache
def _before_zeros(count: int) -> int:
    """The CRC that is 0, that of nothing, after `count` zero bytes more: its bits taken back one by one."""
    register = _WORD
    for _ in range(8 * count):
        register = ((register ^ _POLYNOMIAL) << 1 | 1) & _WORD if register & _HIGHEST else register << 1
    return register ^ _WORD


# ---


class EntryForm:
    """Puts records into the entries that come next in a log; under the put lock, as all of it.

    `wrap` gives the bytes to append, or `fill_heads` completes them, `appended` says that they are in the log: before
    that the numbers stay those of the next entries.  `term` is that of all entries; they carry a CRC of their bodies if
    it `has_crc`.
    """

    gap = WRAPPED.gap

    def __init__(self, index: EntryIndex, term: int, *, has_crc: bool = True) -> None:
        self.index, self.term, self._has_crc = index, term, has_crc
        self._made: tuple[int, bytes] = (index.end, b"")  # the units of what was wrapped last, and the first's entry

    @property
    def locks(self) -> tuple[threading.RLock, ...]:
        """The locks that `locks.let_go` may have to give back."""
        return self.index.locks

    def wrap(self, place: int, records: Sequence[bytes | bytearray | memoryview]) -> bytes:
        """The entries of a few records of which the first stands at `place` of the log."""
        parts: list[bytes | bytearray | memoryview] = []
        units, begin, first = [], place - self.gap, self.index.end
        for number, record in enumerate(records, start=first):
            size, crc = len(record) + self.gap, masked_crc32(memoryview(record)) if self._has_crc else 0
            parts.append(
                ENTRY_HEAD.struct.pack(
                    dledger.MAGIC_MESSAGE,
                    size,
                    number,
                    self.term,
                    begin,
                    0,
                    0,
                    crc,
                    len(record),
                )
            )
            parts.append(record)
            units.append(INDEX_UNIT.struct.pack(dledger.MAGIC_MESSAGE, begin, size, number, self.term))
            begin += size
        self._made = (first, b"".join(units))
        return b"".join(parts)

    def taken(self, entry: Entry) -> bytes:
        """The bytes of an entry of another log, to be appended as it is."""
        self._made = (entry.index, index_unit(entry))
        return encode_entry(entry)

    def fill_heads(self, place: int, data: Bytes, starts: Ints) -> None:
        """Makes entries of n ≥ 1 records of which the first goes to `place` of the log: `data` has `gap` bytes of room
        in front of each, at `starts` int64[n + 1], and the last ends where those do.  Otherwise as `wrap`.
        """
        count, first = len(starts) - 1, self.index.end
        heads = np.zeros(count, ENTRY_HEAD.dtype)
        heads["magic"], heads["term"] = dledger.MAGIC_MESSAGE, self.term
        sizes = np.diff(starts)
        heads["size"], heads["body_size"] = sizes, sizes - self.gap
        heads["index"] = np.arange(first, first + count)
        heads["offset"] = starts[:-1] + (place - self.gap - int(starts[0]))
        if self._has_crc:
            scatter(data, starts[:-1], np.zeros(1, f"V{self.gap}"))  # a head from before, where a put is tried again
            heads["body_crc"] = body_crcs(data, starts, self.gap)
        scatter(data, starts[:-1], heads.view(f"V{self.gap}"))
        self._made = (first, units_of(heads).tobytes())

    def appended(self) -> None:
        """Notes that what was wrapped last is in the log; once more does nothing.  Raises OSError."""
        self.index.put(*self._made)
