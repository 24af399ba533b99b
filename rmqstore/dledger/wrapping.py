"""Records put into entries: the heads in front of them, and their units of the index."""

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.dledger.index import EntryIndex
from rmqstore.formats import dledger
from rmqstore.formats.dledger import ENTRY_HEAD, INDEX_UNIT, Entry, encode_entry, index_unit
from rmqstore.formats.framing import WRAPPED
from rmqstore.formats.message_columns import Bytes, Ints
from rmqstore.formats.record_crc import masked_crc32, masked_crc32s
from rmqstore.records.batch import EntryHeads


class EntryForm:
    """Puts records into the entries that come next in a log; under the put lock, as all of it.

    `wrap` and `wrap_rows` give the bytes to append, `appended` says that they are in the log: before that the numbers
    stay those of the next entries.  `term` is that of all entries; they carry a CRC of their bodies if it `has_crc`.
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

    def wrap_rows(self, place: int, data: Bytes, starts: Ints) -> memoryview:
        """The entries of n ≥ 1 records that lie side by side in `data`, at `starts` int64[n + 1]; as `wrap`."""
        count, first = len(starts) - 1, self.index.end
        sizes = np.diff(starts)
        heads = np.zeros(count, ENTRY_HEAD.dtype)
        heads["magic"], heads["term"] = dledger.MAGIC_MESSAGE, self.term
        heads["size"], heads["body_size"] = sizes + self.gap, sizes
        heads["index"] = np.arange(first, first + count)
        heads["offset"] = place - self.gap + starts[:-1] - starts[0] + np.arange(count) * self.gap
        if self._has_crc:
            heads["body_crc"] = masked_crc32s(data, starts[:-1], sizes)
        units = np.zeros(count, INDEX_UNIT.dtype)
        for name in INDEX_UNIT.names:
            units[name] = heads[name]
        self._made = (first, units.tobytes())
        return memoryview(_joined(heads, data, starts))

    def appended(self) -> None:
        """Notes that what was wrapped last is in the log; once more does nothing.  Raises OSError."""
        self.index.put(*self._made)


def _joined(heads: EntryHeads, data: Bytes, starts: Ints) -> Bytes:
    """The heads, each with its record after it."""
    count = len(heads)
    places = np.arange(count + 1, dtype=np.int64) * ENTRY_HEAD.size
    fronts = pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(places), pa.py_buffer(heads)])
    offsets = np.ascontiguousarray(starts, np.int64)
    records = pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    whole = pc.binary_join_element_wise(fronts, records, pa.scalar(b"", pa.large_binary()))
    return np.frombuffer(whole.buffers()[2], np.uint8)[: int(heads["size"].sum())]
