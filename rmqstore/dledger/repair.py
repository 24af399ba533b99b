"""The index of a member brought in line with its data after an opening: the data decide.

Unlike Java's, a repair of the newest units leaves those of older files alone, and makes them again where they are lost.
"""

from collections.abc import Sequence

import numpy as np

from rmqstore.directory.ledger.walk import EntryBreak
from rmqstore.dledger.index import EntryIndex, Units
from rmqstore.dledger.windows import EntryFiles
from rmqstore.errors import StoreDamaged
from rmqstore.formats.dledger import INDEX_UNIT
from rmqstore.records.batch import EntryHeads

_AT_ONCE = 64 * 1024


def repaired(index: EntryIndex, data: EntryFiles, newest: Sequence[EntryHeads]) -> int:
    """Has the index hold the units of all entries, and nothing after; how many units were wrong or missing.

    `newest` are the heads that the opening has read, the last entry's among them.  Raises OSError, StoreDamaged.
    """
    if not newest:
        index.cut(0)
        return 0
    changed, end = 0, int(newest[-1]["index"][-1]) + 1
    index.begin(end)
    if index.is_whole_from(int(newest[0]["index"][0])) and _has_older(index, data, newest[0][:1]):
        changed = sum(_rewritten(index, heads) for heads in newest)
    else:
        _require_whole(data)
        index.cut(0)
        index.begin(end)
        stretches = (found for found in data.walk(_first(data)) if not isinstance(found, EntryBreak))
        changed = sum(_rewritten(index, found.heads) for found in stretches)
    index.cut(end)
    return changed


def last_entry(heads: Sequence[EntryHeads]) -> tuple[int, int]:
    """Index and term of the last of some entries; -1 and 0 for none."""
    return (int(heads[-1]["index"][-1]), int(heads[-1]["term"][-1])) if heads else (-1, 0)


def units_of(heads: EntryHeads) -> Units:
    """The units of entries, INDEX_UNIT.dtype."""
    units = np.zeros(len(heads), INDEX_UNIT.dtype)
    for name in INDEX_UNIT.names:
        units[name] = heads[name]
    return units


def _first(data: EntryFiles) -> int:
    return max(data.begin, data.starts[0])


def _require_whole(data: EntryFiles) -> None:
    """Raises StoreDamaged where not all entries can be read, before anything is changed."""
    for found in data.walk(_first(data)):
        if isinstance(found, EntryBreak):
            path = data.files.path_of(found.offset)
            reason = f"{found.reason}; the index of entries is lost, and made again only from data that are whole"
            raise StoreDamaged(path, found.offset % data.files.file_size, reason)


def _has_older(index: EntryIndex, data: EntryFiles, first: EntryHeads) -> bool:
    """Whether of each file before the entry `first` the index has the first entry and the last one."""
    following = first
    for start in reversed(data.starts):
        if start >= first["offset"][0]:
            continue
        head = data.first_head(start)
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
