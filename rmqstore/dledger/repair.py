"""The index of a member brought in line with its data after an opening: the data decide.

Unlike Java's, a repair of the newest units leaves those of older files alone, and makes them again where they are lost.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rmqstore.dledger.index import EntryIndex, Units
from rmqstore.errors import StoreDamaged
from rmqstore.files.file_sequence import FileSequence
from rmqstore.formats import message
from rmqstore.formats.dledger import ENTRY_HEAD, INDEX_UNIT, is_entry
from rmqstore.formats.framing import Framing
from rmqstore.records.batch import EntryHeads, RecordBatch
from rmqstore.records.read_batches import read_batches

_AT_ONCE = 64 * 1024


class LedgerPart:
    """The part of a log whose records stand in entries: from `divider` on, as far as `end`."""

    def __init__(self, log: FileSequence, divider: int, end: int, framing: Callable[[int], Framing]) -> None:
        self.log, self.divider, self.end = log, divider, end
        self._framing = framing

    @property
    def starts(self) -> list[int]:
        """Where its files start that hold something."""
        return [start for start in self.log.starts if self.divider <= start < self.end]

    def first_head(self, start: int) -> Units:
        """The head of the entry with which the file at `start` begins: ENTRY_HEAD.dtype[1], or none."""
        data = self.log.read(start, ENTRY_HEAD.size)
        return np.frombuffer(data if is_entry(data, start) else b"", ENTRY_HEAD.dtype)

    def heads(self, start: int) -> Iterator[EntryHeads]:
        """The heads of all entries from the one at `start` on.  Raises StoreDamaged where the data end too early."""
        for item in read_batches(self.log.read, start, self.end, self.log.file_size, framing=self._framing):
            if isinstance(item, message.Torn):
                path = self.log.path_of(item.position)
                reason = (
                    f"{item.reason}; the index of entries is lost, and is made again from the data only where these"
                )
                raise StoreDamaged(path, item.position % self.log.file_size, f"{reason} are whole")
            if isinstance(item, RecordBatch) and item.heads is not None:
                yield item.heads


def repaired(index: EntryIndex, part: LedgerPart, newest: Sequence[EntryHeads]) -> int:
    """Has the index hold the units of all entries, and nothing after; how many units were wrong or missing.

    `newest` are the heads that the opening has read, the last entry's among them.  Raises OSError, StoreDamaged.
    """
    if not newest:
        index.cut(0)
        return 0
    changed, end = 0, int(newest[-1]["index"][-1]) + 1
    index.begin(end)
    if _has_older(index, part, newest[0][:1]):
        changed = sum(_rewritten(index, heads) for heads in newest)
    else:
        index.cut(0)
        index.begin(end)
        changed = sum(_rewritten(index, heads) for heads in part.heads(part.starts[0]))
    index.cut(end)
    return changed


def units_of(heads: EntryHeads) -> Units:
    """The units of entries, INDEX_UNIT.dtype."""
    units = np.zeros(len(heads), INDEX_UNIT.dtype)
    for name in INDEX_UNIT.names:
        units[name] = heads[name]
    return units


def _has_older(index: EntryIndex, part: LedgerPart, first: EntryHeads) -> bool:
    """Whether of each file before the entry `first` the index has the first entry and the last one."""
    following = first
    for start in reversed(part.starts):
        if start >= first["offset"][0]:
            continue
        head = part.first_head(start)
        last = index.read(int(following["index"][0]) - 1, 1)
        is_last = len(last) == 1 and last["index"][0] == following["index"][0] - 1 and last["offset"][0] >= start
        if not len(head) or not is_last or not np.array_equal(index.read(int(head["index"][0]), 1), units_of(head)):
            return False
        following = head
    return True


def _rewritten(index: EntryIndex, heads: EntryHeads) -> int:
    """Writes those units of some entries that are missing or wrong; how many."""
    wanted = units_of(heads)
    first = int(wanted["index"][0])
    held = index.read(first, len(wanted))
    same = np.zeros(len(wanted), bool)
    same[: len(held)] = held == wanted[: len(held)]
    if same.all():
        return 0
    low = int(np.argmin(same))
    for begin in range(low, len(wanted), _AT_ONCE):
        index.rewrite(first + begin, wanted[begin : begin + _AT_ONCE])
    return int((~same).sum())
