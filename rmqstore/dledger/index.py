"""The index of a DLedger log: a unit for each entry, at byte 32 n of its files for entry n."""

import threading
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rmqstore.directory.ledger.nodes import INDEX_ROOM, LedgerNode
from rmqstore.directory.listing import stored_files
from rmqstore.errors import StoreDamaged
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.files.sequence_listing import listed_sequence
from rmqstore.files.zeros import holds_nothing
from rmqstore.formats.dledger import ENTRY_HEAD, ENTRY_MAGICS, INDEX_UNIT

# So many bytes wait in memory at the most: a put does not write 32 bytes by themselves.
_PENDING_MAX = 1024 * 1024
_HINT = "move the index directory away: it is built again from the data"

Units = npt.NDArray[np.void]


class EntryIndex:
    """The units of entries [`first`, `end`), of which the newest may be in memory only until `flush`.

    `put`, `cut` and `forget` are for one thread at a time, `flush` and `read` for any.  After a crash the units that
    were not written are made again from the data.
    """

    def __init__(self, files: FileSequence) -> None:
        self.files = files
        self._pending = (0, bytearray())  # the first that waits, and the units from there on; replaced as a whole
        self._unsynced = 0  # from this byte on nothing is known to be synced
        self._lock = threading.RLock()  # held while the first is changed; nothing is synced under it

    @property
    def locks(self) -> tuple[threading.RLock, ...]:
        """The locks that `locks.let_go` may have to give back."""
        return self._lock, *self.files.locks

    @property
    def end(self) -> int:
        """The index of the next entry."""
        first, units = self._pending
        return first + len(units) // INDEX_UNIT.size

    @property
    def written(self) -> int:
        """Up to this entry the files have the units."""
        return self._pending[0]

    def is_whole_from(self, index: int) -> bool:
        """Whether its files, if there are any, follow each other, and have room for the unit of entry `index`."""
        starts, size = self.files.starts, self.files.file_size
        follow = all(after - before == size for before, after in pairwise(starts))
        return follow and (not starts or starts[0] <= index * INDEX_UNIT.size)

    def begin(self, end: int) -> None:
        """Says that the files hold what is before entry `end`, and nothing waits."""
        self._pending, self._unsynced = (end, bytearray()), end * INDEX_UNIT.size

    def put(self, index: int, units: bytes | memoryview) -> None:
        """Notes the units from entry `index` on, which follow each other; again does nothing.  Raises OSError."""
        with self._lock:
            first, waiting = self._pending
            at = (index - first) * INDEX_UNIT.size
            if not 0 <= at <= len(waiting):
                raise ValueError(f"units of entry {index}, where {self.end} comes next")
            waiting[at : at + len(units)] = units
            if len(waiting) >= _PENDING_MAX:
                self.write_out()

    def write_out(self) -> None:
        """Writes what waits to the files; not synced.  Raises OSError."""
        with self._lock:
            first, waiting = self._pending
            count = len(waiting) // INDEX_UNIT.size
            position, size = first * INDEX_UNIT.size, count * INDEX_UNIT.size
            self._write(position, bytes(waiting[:size]))
            self._pending = (first + count, waiting[size:])

    def flush(self) -> None:
        """Makes all units durable that are noted by now.  Raises OSError."""
        with self._lock:
            self.write_out()
            begin, end = self._unsynced, self._pending[0] * INDEX_UNIT.size
        if begin < end:
            self.files.sync(begin, end)
            self._unsynced = max(self._unsynced, end)

    def rewrite(self, index: int, units: Units) -> None:
        """Writes units that are missing in the files, or wrong there.  Raises OSError."""
        self._unsynced = min(self._unsynced, index * INDEX_UNIT.size)
        self._write(index * INDEX_UNIT.size, units.tobytes())

    def announce(self, index: int, unit: bytes) -> None:
        """Has a unit on the disk, without taking its entry for one that is there.  Raises OSError."""
        position = index * INDEX_UNIT.size
        self._write(position, unit)
        self.files.sync(position, position + len(unit))

    def read(self, index: int, count: int) -> Units:
        """The units from entry `index` on, INDEX_UNIT.dtype, at most `count`; fewer where the index ends.  Raises
        OSError."""
        first, waiting = self._pending
        parts = []
        if index < first:
            parts.append(self.files.read(index * INDEX_UNIT.size, min(count, first - index) * INDEX_UNIT.size))
        low = max(index - first, 0) * INDEX_UNIT.size
        parts.append(bytes(waiting[low : max(index + count - first, 0) * INDEX_UNIT.size]))
        data = b"".join(parts)
        return np.frombuffer(data[: len(data) // INDEX_UNIT.size * INDEX_UNIT.size], INDEX_UNIT.dtype)

    def number_from(self, place: int, end: int | None = None) -> int:
        """The first entry before `end` whose unit names `place` of the log or a later one, found by halving; `end`, by
        default that of the index, for none.  Raises OSError."""
        low, high = (
            self.files.starts[0] // INDEX_UNIT.size if self.files.starts else 0,
            self.end if end is None else end,
        )
        while low < high:
            middle = (low + high) // 2
            unit = self.read(middle, 1)
            if len(unit) and (unit["size"][0] <= 0 or unit["offset"][0] < place):
                low = middle + 1
            else:
                high = middle
        return low

    def is_unit(self, number: int, place: int | None = None) -> bool:
        """Whether the unit of an entry can be its own; where `place` is given, of an entry that stands there."""
        unit = self.read(number, 1)
        is_own = len(unit) == 1 and unit["index"][0] == number and unit["size"][0] >= ENTRY_HEAD.size
        return bool(is_own and unit["magic"][0] in ENTRY_MAGICS and place in (None, unit["offset"][0]))

    def cut(self, end: int) -> None:
        """Ends the index before entry `end`, durably: what stood after it cannot come back.  Raises OSError."""
        with self._lock:
            self.write_out()
            self.files.cut(end * INDEX_UNIT.size)
            self.begin(end)

    def forget(self, begin: int) -> list[str]:
        """Removes the files with nothing but units before entry `begin`, never the last; their paths.  Raises
        OSError."""
        starts = self.files.starts
        gone = [start for start in starts[:-1] if start + self.files.file_size <= begin * INDEX_UNIT.size]
        return self.files.remove_first(len(gone))

    def _write(self, position: int, data: bytes) -> None:
        size = self.files.file_size
        while data:
            start = position - position % size
            if not self.files.holds(position):
                self.files.add(start)
            room = start + size - position
            self.files.write(position, data[:room])
            position, data = position + len(data[:room]), data[room:]


def require_index(fs: FileSystem, node: LedgerNode) -> None:
    """Raises StoreDamaged for an index in files of several sizes, or of no unit's."""
    path = join(node.directory, INDEX_ROOM)
    listed = stored_files(fs, path)
    size = max((file.size for file in listed), default=INDEX_UNIT.size)
    if size % INDEX_UNIT.size:
        reason = f"the file has {size} bytes, which is not a multiple of {INDEX_UNIT.size}"
        raise StoreDamaged(listed[0].path, size, f"{reason}; {_HINT}")
    listed_sequence(fs, [path], size)


def opened_index(
    fs: FileSystem, handles: FileHandles, node: LedgerNode, file_size: int
) -> tuple[EntryIndex, list[str]]:
    """The index of a node, in files of the size that they have, and of `file_size` bytes where there are none; and
    sentences about what else stands there.  Raises StoreDamaged for files of several sizes, OSError.
    """
    fs.make_directories(join(node.directory, INDEX_ROOM))
    files = _files(fs, handles, node, file_size)
    warnings = files.load()
    return EntryIndex(files), warnings


def looked_at_index(fs: FileSystem, handles: FileHandles, node: LedgerNode, file_size: int) -> EntryIndex:
    """The same, without a change to the disk."""
    files = _files(fs, handles, node, file_size)
    files.load(repair=False)
    return EntryIndex(files)


def _files(fs: FileSystem, handles: FileHandles, node: LedgerNode, file_size: int) -> FileSequence:
    """The files of the index.

    A first file that is shorter and all zero was being made when the writer ended: it is no measure, and made again.
    """
    path = join(node.directory, INDEX_ROOM)
    require_index(fs, node)
    listed = stored_files(fs, path)
    size = max((file.size for file in listed), default=file_size)
    if len(listed) == 1 and size < file_size and holds_nothing(fs, listed[0]):
        size = file_size
    return FileSequence(fs, handles, [path], size, keep_open=True)
