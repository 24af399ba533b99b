"""The index of a member brought in line with its data after an opening: the data decide.

Unlike Java's, a repair of the newest units leaves those of older files alone, and makes them again where they are lost.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rmqstore.directory.ledger.walk import EntryBreak, EntryStretch
from rmqstore.dledger.index import EntryIndex, Units
from rmqstore.dledger.windows import EntryFiles
from rmqstore.errors import StoreDamaged
from rmqstore.files.file_sequence import FileSequence
from rmqstore.formats.dledger import INDEX_UNIT
from rmqstore.records.batch import EntryHeads

_AT_ONCE = 64 * 1024


def repaired(index: EntryIndex, data: EntryFiles, newest: Sequence[EntryHeads]) -> int:
    """Has the index hold the units of all entries, and nothing after; how many units were wrong or missing.

    `newest` are the heads that the opening has read, the last entry's among them.  Raises OSError, and StoreDamaged as
    `require_repairable`.
    """
    if not newest:
        index.cut(0)
        return 0
    changed, end = 0, int(newest[-1]["index"][-1]) + 1
    index.begin(end)
    if _is_kept(index, data, newest):
        changed = sum(_rewritten(index, heads) for heads in newest)
    else:
        _require_whole(data)
        index.cut(0)
        index.begin(end)
        stretches = (found for found in data.walk(_first(data)) if not isinstance(found, EntryBreak))
        changed = sum(_rewritten(index, found.heads) for found in stretches)
    index.cut(end)
    return changed


def require_repairable(index: EntryIndex, data: EntryFiles, newest: Sequence[EntryHeads]) -> None:
    """Raises StoreDamaged where `repaired` could not do its work; changes nothing."""
    if newest:
        index.begin(int(newest[-1]["index"][-1]) + 1)
        if not _is_kept(index, data, newest):
            _require_whole(data)


def require_no_hole(files: FileSequence, begin: int, *, may_lack: bool) -> None:
    """Raises StoreDamaged where a file of data from `begin` of the log on is missing between others, unless it
    `may_lack`: no writer leaves that, and DLedger does not start."""
    starts = [start for start in files.starts if start >= begin]
    for start, after in pairwise(starts):
        if after - start != files.file_size and not may_lack:
            hint = "on_middle_damage='cut' continues with the remaining entries"
            reason = f"no data file holds bytes {start + files.file_size} to {after} of the log; {hint}"
            raise StoreDamaged(files.path_of(after), 0, reason)


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
    """Raises StoreDamaged where not all entries can be read, one after the other."""
    last, term = -1, 0
    for found in data.walk(_first(data)):
        offset, reason = (found.offset, found.reason) if isinstance(found, EntryBreak) else (0, "")
        if isinstance(found, EntryStretch):
            wrong = found.out_of_order(last, term)
            if wrong.any():
                offset, reason = int(found.offsets[np.argmax(wrong)]), "the entry does not follow the previous entry"
            last, term = int(found.heads["index"][-1]), int(found.heads["term"][-1])
        if reason:
            path = data.files.path_of(offset)
            reason += "; the index of entries is lost, and can be built again only from undamaged data"
            raise StoreDamaged(path, offset % data.files.file_size, reason)


def _is_kept(index: EntryIndex, data: EntryFiles, newest: Sequence[EntryHeads]) -> bool:
    """Whether the index has the units of the entries before `newest`: of each file those of the first entry and of the
    last one.  Of a file whose first head is damaged the second one tells.
    """
    following = int(newest[0]["index"][0])
    if not index.is_whole_from(following):
        return False
    for start in reversed(data.starts):
        place = max(start, data.begin)
        if start >= newest[0]["offset"][0]:
            continue
        number = index.number_from(place, following)
        if not index.is_unit(number, place) or number >= following or not index.is_unit(following - 1):
            return False
        if not any(_says(data, unit) for unit in np.split(index.read(number, min(2, following - number)), [1])):
            return False
        following = number
    return True


def _says(data: EntryFiles, unit: Units) -> bool:
    """Whether the entry of a unit, INDEX_UNIT.dtype[1] or none, stands in the data."""
    head = data.head_at(int(unit["offset"][0])) if len(unit) else unit
    return bool(len(head)) and np.array_equal(units_of(head), unit)


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
