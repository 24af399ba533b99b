"""The index files of a recovery plan: which of them can be trusted, and how far they cover the log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rmqstore.directory.layouts import is_since_5_4
from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.store_view import StoreView
from rmqstore.files.disk import ReadableDisk, read_part
from rmqstore.files.filesystem import join
from rmqstore.files.zeros import is_zero
from rmqstore.formats import index, index_table, names
from rmqstore.formats.index import HEADER, ITEM, IndexHeader
from rmqstore.formats.names import INDEX_ROOM
from rmqstore.records.batch import RecordBatch, tags_item_hash
from rmqstore.records.read_batches import read_batches

# Files up to this size are read whole to find their sizes; nothing bigger than Java's default is met in practice.
_READ_SIZE_MAX = 1024 * 1024 * 1024
# Slots and items are looked through in as many bytes of index files, from the newest on.
_CHECKED_SIZE = 64 * 1024 * 1024
# So many of the last items, and of their records, are asked whether tags are indexed.
_ASKED_ITEMS, _ASKED_RECORDS = 256, 16
# Records at the start of a log file that are asked whether they have keys.
_SAMPLE_SIZE = 64 * 1024


Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class IndexView:
    """One index file: `header` None where the file is too short for one; counts are 0 where nothing tells them.

    `fault` says what is wrong with it by itself, empty when nothing is; `is_checked`: all of it was looked through.
    """

    path: str
    name: str
    size: int
    header: IndexHeader | None
    slot_count: int = 0
    item_count: int = 0
    fault: str = ""
    is_checked: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no item is in it yet."""
        return self.header is not None and self.header.index_count <= 1 and not self.fault

    @property
    def is_full(self) -> bool:
        """Whether it takes no more items; only then RocketMQ's checkpoint answers for it."""
        return self.header is not None and 0 < self.item_count <= self.header.index_count


@dataclass(frozen=True, slots=True)
class IndexRules:
    """When a file must go.  `flushed_ms` is the checkpoint's index time, None after a clean exit; files that reach
    `trusted_end` of the log or beyond are written again.  `with_tags`: tags are indexed as well."""

    flushed_ms: int | None
    trusted_end: int
    with_tags: bool = False


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The files that stay, those that go (newest first, with the reason), and what must be indexed again.

    `covered` is the newest record that the kept files know (-1: none).  `needed_from`: records from there on were only
    in files that go; None if there were none.  `with_tags`: tags are indexed as well.
    """

    kept: tuple[IndexView, ...]
    deleted: tuple[tuple[IndexView, str], ...]
    covered: int
    needed_from: int | None
    with_tags: bool


def index_views(disk: ReadableDisk, root: str, usual: tuple[int, int]) -> tuple[IndexView, ...]:
    """The index files in the order of the log, each looked at by itself; `usual` are the slot and item counts of the
    configuration, tried first for files of just that length."""
    directory = join(root, INDEX_ROOM)
    entries = [
        entry
        for entry in disk.entries(directory)
        if not entry.is_directory and names.parse_index_name(entry.name) is not None
    ]
    paths = [(entry, join(directory, entry.name)) for entry in entries]
    bare = [IndexView(path, entry.name, entry.size, _header(disk, path)) for entry, path in paths]
    views: list[IndexView] = []
    budget = _CHECKED_SIZE
    known: dict[int, tuple[int, int]] = {index.file_size(*usual): usual}
    for view in sorted(bare, key=lambda view: index.log_order(view.header, int(view.name)), reverse=True):
        check = view.size <= budget
        budget -= view.size if check else 0
        views.append(_looked_at(disk, view, known, check))
    return tuple(reversed(views))


def _header(disk: ReadableDisk, path: str) -> IndexHeader | None:
    return index.read_header(read_part(disk, path, 0, HEADER.size))


def _looked_at(disk: ReadableDisk, view: IndexView, known: dict[int, tuple[int, int]], check: bool) -> IndexView:
    """`view` with its counts and what is wrong; `check`: slots and items are looked through."""
    header = view.header
    if header is None:
        return replace(view, fault="it is too short for a header")
    file = disk.open(view.path)
    try:
        counts = known.get(view.size, (0, 0))
        if header.index_count <= 1:
            fault = "" if is_zero(file, HEADER.size, view.size) else "its header says that it is empty, and it is not"
            return replace(view, slot_count=counts[0], item_count=counts[1], fault=fault)
        data = b""
        if not counts[0] or not _is_anchored(file.read, header, counts):
            data = file.read(0, view.size) if view.size <= _READ_SIZE_MAX else b""
            inferred = index.infer_sizes(data) if data else None
            if inferred is None:
                return replace(view, fault="its header does not fit its items")
            counts = inferred
        known.setdefault(view.size, counts)
        fault = _fault(data or file.read(0, view.size), header, counts) if check else ""
        return replace(view, slot_count=counts[0], item_count=counts[1], fault=fault, is_checked=check)
    finally:
        file.close()


def _is_anchored(read: Read, header: IndexHeader, counts: tuple[int, int]) -> bool:
    """Whether the first and the last item stand where the header says, with these counts."""
    slot_count, item_count = counts
    if header.index_count > item_count:
        return False
    for number, offset in ((1, header.begin_offset), (header.index_count - 1, header.end_offset)):
        data = read(index.file_size(slot_count, number), ITEM.size)
        if len(data) < ITEM.size or ITEM.read(data)["physical_offset"] != offset:
            return False
    return True


def _fault(data: bytes, header: IndexHeader, counts: tuple[int, int]) -> str:
    """The fault of a file that has items; empty for none: all items can be found, and nothing else is in it."""
    slot_count, item_count = counts
    if header.index_count > item_count or not index_table.finds_all(data, slot_count):
        return "its slots and its items do not fit each other"
    items = index.read_items(data, slot_count)[1 : header.index_count]
    if (items["physical_offset"][0], items["physical_offset"][-1]) != (header.begin_offset, header.end_offset):
        return "its header does not fit its items"
    if int((items["previous_item"] == 0).sum()) != header.used_slot_count:
        return "its header counts other slots"
    rest = data[index.file_size(slot_count, header.index_count) :]
    return "" if rest.count(0) == len(rest) else "something stands after its items"


def choose(views: Sequence[IndexView], rules: IndexRules) -> IndexChoice:
    """Which files stay.  Every file after one that goes, goes as well: items are written in the order of the log."""
    covered, first_bad = -1, len(views)
    for number, view in enumerate(views):
        if _reason(view, rules, number == len(views) - 1):
            first_bad = number
            break
        if view.header is not None and not view.is_empty:
            covered = max(covered, view.header.end_offset)
    gone = views[first_bad:]
    deleted = [(view, _reason(view, rules, view is views[-1]) or "it follows one that goes") for view in gone]
    kept, needed_from = tuple(views[:first_bad]), _needed_from(gone, covered)
    return IndexChoice(kept, tuple(reversed(deleted)), covered, needed_from, rules.with_tags)


def _needed_from(gone: Sequence[IndexView], covered: int) -> int | None:
    """Where the records begin that only those files knew."""
    lost = [view for view in gone if not view.is_empty]
    if not lost:
        return None
    first = lost[0]
    sane = first.header is not None and not first.fault and first.header.begin_offset >= covered
    return first.header.begin_offset if sane and first.header is not None else max(covered, 0)


def _reason(view: IndexView, rules: IndexRules, is_last: bool) -> str:
    if view.fault or view.header is None:
        return view.fault
    after_crash = rules.flushed_ms is not None
    if view.is_empty:
        return "nothing is in it yet" if after_crash else ""
    if rules.flushed_ms is not None and view.header.end_timestamp_ms > rules.flushed_ms:
        return "it is newer than the checkpoint"
    if after_crash and not view.is_full and not (view.is_checked and is_last):
        return "it was being written when the store ended"
    if view.header.end_offset >= rules.trusted_end:
        return "it reaches beyond the part that stays"
    return ""


def indexes_tags(store: StoreView, views: Sequence[IndexView], told: bool | None) -> bool:
    """Whether tags are indexed, as since RocketMQ 5.4: as `told`, else as the index has it, else as the broker did."""
    found = _has_tag_items(store.disk, store.log, views) if told is None else told
    return is_since_5_4(store.disk, store.root) if found is None else found


def _has_tag_items(disk: ReadableDisk, log: LogSpace, views: Sequence[IndexView]) -> bool | None:
    """Whether the newest records with tags have items for them; None where no record tells."""
    for view in reversed(views):
        if view.header is None or view.fault or view.is_empty:
            continue
        items = _last_items(disk, view, _ASKED_ITEMS)
        places = np.unique(items["physical_offset"])[::-1]
        # The items of the newest one may stand in two files, or have been cut by a crash.
        asked = [*places[1:_ASKED_RECORDS].tolist(), int(places[0])]
        for place in asked:
            record = log.record(place)
            wanted = None if record is None else tags_item_hash(record)
            if wanted is not None:
                return bool((items["key_hash"][items["physical_offset"] == place] == wanted).any())
    return None


def has_keys(log: LogSpace, offset: int, with_tags: bool) -> bool:
    """Whether some of the first records from `offset` on, where one begins, have a key to be indexed."""
    walk = read_batches(log.read, offset, log.end, log.file_size, window_size=_SAMPLE_SIZE, framing=log.framing)
    found = next(walk, None)
    return isinstance(found, RecordBatch) and len(found.index_items(with_tags)[0]) > 0


def index_warnings(log: LogSpace, choice: IndexChoice) -> list[str]:
    """The warning about an oldest file that is lost: the first records of the log have keys, and no file has them."""
    begins = [view.header.begin_offset for view in choice.kept if view.header and not view.is_empty]
    if not begins or begins[0] <= log.start:
        return []
    walk = read_batches(log.read, log.start, begins[0], log.file_size, window_size=_SAMPLE_SIZE, framing=log.framing)
    found = next(walk, None)
    if not isinstance(found, RecordBatch) or not len(found.index_items(choice.with_tags)[0]):
        return []
    told = (
        f"{choice.kept[0].path}: no older index file is there, and messages before byte {begins[0]} of the log have "
        "keys: `Store.query` does not find them; remove index/ while the store is closed, and the next opening builds "
        "it again"
    )
    return [told]


def partial_record(disk: ReadableDisk, log: LogSpace, choice: IndexChoice) -> tuple[int, int] | None:
    """The newest indexed record and how many of its items the kept files have, where they are not all; else None.

    A file may become full in the middle of a record: the others of its keys are in the next one, which may go.
    """
    covered = choice.covered
    first = log.record_at(covered)
    if first is None:
        return None
    wanted = int((first.index_items(choice.with_tags)[0] == 0).sum())
    held = 0
    for view in reversed(choice.kept):
        if view.header is not None and not view.is_empty and view.header.end_offset == covered:
            found = _trailing(disk, view, covered, wanted)
            held += found
            if found < view.header.index_count - 1:
                break
    return (covered, held) if held < wanted else None


def _trailing(disk: ReadableDisk, view: IndexView, offset: int, count_max: int) -> int:
    """How many of the last items of a file lead to `offset`, counted up to `count_max`."""
    items = _last_items(disk, view, count_max)
    others = np.flatnonzero(items["physical_offset"] != offset)
    return len(items) - (int(others[-1]) + 1 if len(others) else 0)


def _last_items(disk: ReadableDisk, view: IndexView, count_max: int) -> npt.NDArray[np.void]:
    """The last items of a file that has some, in their order."""
    assert view.header is not None
    count = min(view.header.index_count - 1, count_max)
    file = disk.open(view.path)
    try:
        start = index.file_size(view.slot_count, view.header.index_count - count)
        return np.frombuffer(file.read(start, count * ITEM.size), ITEM.dtype)
    finally:
        file.close()
