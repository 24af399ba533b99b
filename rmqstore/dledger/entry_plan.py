"""Where a node's data end, looked at before anything is changed; the data decide, not the index."""

from typing import NamedTuple

import numpy as np

from rmqstore.directory.ledger.walk import EntryBreak, EntryStretch
from rmqstore.directory.log_space import LogSpace
from rmqstore.dledger.index import EntryIndex
from rmqstore.dledger.windows import EntryFiles
from rmqstore.engine.log.recovery.log_end import has_lost_sector
from rmqstore.errors import StoreDamaged
from rmqstore.files.disk import StoredFile
from rmqstore.files.file_sequence import FileSequence
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.dledger import ENTRY_HEAD, INDEX_UNIT, is_entry
from rmqstore.formats.message_columns import Mask
from rmqstore.formats.record_crc import masked_crc32s
from rmqstore.records.batch import EntryHeads

_FILE_COUNT = 3  # Java: DLedgerMmapFileStore.recover
_HINT = (
    "another node may have the damaged entries; on_middle_damage='cut' deletes everything from the damage on, "
    "undamaged entries too, as DLedger does"
)


class EntryPlan(NamedTuple):
    """The data go from byte `begin` of the log, where the first entry stands, to `end`; of the newest entries, the last
    among them, `heads` are the heads.  `reason` says why they end there.
    """

    begin: int
    end: int
    heads: tuple[EntryHeads, ...]
    reason: str


def plan_entries(fs: FileSystem, files: FileSequence, index: EntryIndex, *, must_refuse: bool) -> EntryPlan:
    """Reads the newest files, and older ones as long as none of them begins as the index says.

    A place without an entry in front of others is where a power cut tore the newest ones, whose sectors were not
    written; else it is damage, for which this raises StoreDamaged if it `must_refuse`.  Raises OSError.
    """
    begin = _begin(files, index)
    if begin is None:
        return EntryPlan(files.start, files.start, (), "the data files hold no entry")
    data = EntryFiles(files, begin, files.end)
    starts = data.starts
    number = max(len(starts) - _FILE_COUNT, 0)
    while number and not _is_known(index, data.head_at(max(starts[number], data.begin))):
        number -= 1
    while True:
        plan = _walked(fs, data, max(starts[number], begin), must_refuse)
        if plan.heads or not number:
            return plan
        number -= 1


def _begin(files: FileSequence, index: EntryIndex) -> int | None:
    """Where the first entry stands; None where there is none.

    Where a member was cut off from its log and began again in the middle of a file, only the index tells: Java comes
    up empty then.
    """
    if not files.starts:
        return None
    if is_entry(files.read(files.start, ENTRY_HEAD.size), files.start):
        return files.start
    for start in index.files.starts[:1]:
        data = index.files.read(start, index.files.file_size)
        units = np.frombuffer(data[: len(data) // INDEX_UNIT.size * INDEX_UNIT.size], INDEX_UNIT.dtype)
        for unit in units[units["size"] > 0][:1]:
            offset = int(unit["offset"])
            if files.start < offset < files.start + files.file_size and is_entry(
                files.read(offset, ENTRY_HEAD.size), offset
            ):
                return offset
    return files.start


def _is_known(index: EntryIndex, head: EntryHeads) -> bool:
    """Whether the index has the entry as its head says it."""
    if not len(head):
        return False
    unit = index.files.read(int(head["index"][0]) * INDEX_UNIT.size, INDEX_UNIT.size)
    found = np.frombuffer(unit, INDEX_UNIT.dtype) if len(unit) == INDEX_UNIT.size else None
    return found is not None and all(found[name][0] == head[name][0] for name in INDEX_UNIT.names)


def _walked(fs: FileSystem, data: EntryFiles, start: int, must_refuse: bool) -> EntryPlan:
    heads: list[EntryHeads] = []
    end, last_index, last_term = start, -1, -1
    for found in data.walk(start):
        if isinstance(found, EntryBreak):
            if found.resume is None:
                end = found.offset if found.is_empty or not heads else end
                return EntryPlan(data.begin, end, tuple(heads), found.reason)
            return _ended(fs, data, EntryPlan(data.begin, end, tuple(heads), found.reason), found.resume, must_refuse)
        sound = _sound(found, last_index, last_term)
        count = len(sound) if sound.all() else int(np.argmin(sound))
        if count:
            heads.append(found.heads[:count])
            end = int(found.offsets[count - 1] + found.heads["size"][count - 1])
            last_index, last_term = int(heads[-1]["index"][-1]), int(heads[-1]["term"][-1])
        if count < len(sound):
            reason = f"entry {int(found.heads['index'][count])} does not follow, or its body is damaged"
            resume = int(found.offsets[count])
            return _ended(fs, data, EntryPlan(data.begin, end, tuple(heads), reason), resume, must_refuse)
    return EntryPlan(data.begin, data.end if heads else end, tuple(heads), "the last file is full")


def _ended(fs: FileSystem, data: EntryFiles, plan: EntryPlan, resume: int, must_refuse: bool) -> EntryPlan:
    """The end in front of entries that do not count.  Raises StoreDamaged unless a power cut explains them."""
    size = data.files.file_size
    space = LogSpace(fs, [StoredFile(data.files.path_of(start), start, size, 0) for start in data.files.starts], size)
    try:
        is_tear = resume > plan.end and has_lost_sector(space, plan.end, resume)
    finally:
        space.close()
    if must_refuse and not is_tear:
        path = data.files.path_of(plan.end)
        reason = f"{plan.reason}, but another entry follows at offset {resume} of the log; {_HINT}"
        raise StoreDamaged(path, plan.end % size, reason)
    return plan


def _sound(found: EntryStretch, last_index: int, last_term: int) -> Mask:
    """Which entries follow the one before, and have the body that they say."""
    index, term = found.heads["index"].astype(np.int64), found.heads["term"].astype(np.int64)
    before = np.concatenate(([last_index if last_index >= 0 else index[0] - 1], index[:-1]))
    sound: Mask = (index == before + 1) & (term >= np.concatenate(([last_term], term[:-1]))) & (index >= 0)
    said = np.flatnonzero(found.heads["body_crc"] != 0)
    if len(said):
        starts, sizes = found.starts[said] + ENTRY_HEAD.size, found.heads["body_size"][said].astype(np.int64)
        sound[said] &= masked_crc32s(found.page, starts, sizes) == found.heads["body_crc"][said]
    return sound
