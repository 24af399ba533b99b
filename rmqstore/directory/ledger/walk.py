"""Walking a DLedger node's data files entry by entry, a window at a time, whatever the entries hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rmqstore.formats import dledger
from rmqstore.formats.dledger import ENTRY_HEAD, EntryBlank, NoEntry
from rmqstore.formats.message_columns import Bytes, Ints, Mask, gather, gather_rows
from rmqstore.formats.record_chain import WINDOW_SIZE
from rmqstore.formats.record_crc import masked_crc32s

# --- Many entries of DLedger's at once; agrees with the scalar codec in `dledger`, which is the specification.

_PLACE = np.dtype(">i8")
_PLACE_AT = ENTRY_HEAD.offset["offset"]


def entry_heads(page: Bytes, starts: Ints) -> npt.NDArray[np.void]:
    """The heads at byte `starts` of a page: ENTRY_HEAD.dtype[n] (copy).  Each lies wholly in the page."""
    return gather_rows(page, starts, ENTRY_HEAD.dtype)


def entry_chain(page: Bytes, position: int, base: int) -> Ints:
    """Starts of the whole entries that follow each other from `position` on, where byte 0 of the page is byte `base` of
    the log: int64[n].  Ends before one that the page cuts, a blank, or anything that is no entry of its place.
    """
    starts = named_places(page, position, base)
    if not len(starts) or starts[0] != position:
        return starts[:0]
    ends = starts + gather(page, starts + ENTRY_HEAD.offset["size"], "i4")
    linked = ends[:-1] == starts[1:]
    if linked.all():
        return starts
    kept, row = [], 0
    while row < len(starts):  # a body may hold what looks like an entry: the chain goes on by size
        stop = row + 1 + int(np.argmin(np.append(linked[row:], False)))
        kept.append(starts[row:stop])
        row = int(np.searchsorted(starts, ends[stop - 1]))
        if row == len(starts) or starts[row] != ends[stop - 1]:
            break
    return np.concatenate(kept)


def named_places(page: Bytes, position: int, base: int) -> Ints:
    """Where from `position` on whole entries stand that name their own place: int64[n], ascending; may be in the middle
    of a body.
    """
    found = []
    for shift in range(min(_PLACE.itemsize, max(len(page) - position - ENTRY_HEAD.size + 1, 0))):
        first = position + shift + _PLACE_AT
        count = (len(page) - first) // _PLACE.itemsize
        said = np.frombuffer(page, _PLACE, count, first)
        places = np.arange(base + position + shift, base + len(page), _PLACE.itemsize)[:count]
        found.append(np.flatnonzero(said == places) * _PLACE.itemsize + position + shift)
    starts = np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
    starts = starts[starts <= len(page) - ENTRY_HEAD.size]
    heads = entry_heads(page, starts)
    sizes = heads["size"].astype(np.int64)
    whole = np.isin(heads["magic"], dledger.ENTRY_MAGICS) & (heads["body_size"] == sizes - ENTRY_HEAD.size)
    whole &= (sizes >= ENTRY_HEAD.size) & (starts + sizes <= len(page))
    found_whole: Ints = starts[whole]
    return found_whole


# ---

WRONG_BODY = "the CRC of the entry's body is wrong"


@dataclass(frozen=True, slots=True)
class EntryStretch:
    """Entries that follow each other: `offsets` int64[n] in the log, `starts` int64[n] in `page`, and their heads."""

    offsets: Ints
    page: Bytes
    starts: Ints
    heads: npt.NDArray[np.void]

    @property
    def end(self) -> int:
        """Where in the log the last entry ends."""
        return int(self.offsets[-1] + self.heads["size"][-1])

    def out_of_order(self, index: int, term: int) -> Mask:
        """Which entries do not follow the one before, bool[n]; in front of the first is entry `index` of `term`, or -1
        for none."""
        own, terms = self.heads["index"].astype(np.int64), self.heads["term"].astype(np.int64)
        before = np.concatenate(([index], own[:-1]))
        found: Mask = (own != before + 1) & (before >= 0)
        found |= terms < np.concatenate(([term], terms[:-1]))
        return found

    def wrong_bodies(self) -> Mask:
        """Which entries have a CRC that contradicts their body, bool[n]; RocketMQ writes none."""
        found = np.zeros(len(self.heads), bool)
        rows = np.flatnonzero(self.heads["body_crc"] != 0)
        sizes = self.heads["body_size"][rows].astype(np.int64)
        found[rows] = (
            masked_crc32s(self.page, self.starts[rows] + ENTRY_HEAD.size, sizes) != self.heads["body_crc"][rows]
        )
        return found


@dataclass(frozen=True, slots=True)
class EntryBreak:
    """No entry stands at `offset`, for `reason`; the next one that names its own place is at `resume`, None if none
    follows.  `is_empty`: nothing was written there."""

    offset: int
    reason: str
    resume: int | None
    is_empty: bool = False


class EntrySpace(Protocol):
    """A log as a walk asks it; `LogView` is one."""

    def file_number(self, offset: int) -> int | None:
        """Which file has the byte at `offset`; None if none has."""

    def next_start(self, offset: int) -> int | None:
        """Where the first file that starts above `offset` starts; None if there is none."""

    def readable_end(self, number: int) -> int:
        """Offset past the last byte of that file that may be looked at."""

    def window(self, offset: int, size: int) -> tuple[Bytes, int]:
        """Bytes with those from `offset` on that one file holds, at least `size` if it has them, and where `offset` is
        among them."""


def walk_entries(log: EntrySpace, start: int, stop: int) -> Iterator[EntryStretch | EntryBreak]:
    """Everything in [start, stop) of the log, in order; `start` is where an entry or a file begins.  Only files that
    are wrapped are looked at.  Raises DataLost if a file is gone.
    """
    offset: int | None = start
    while offset is not None and offset < stop:
        number = log.file_number(offset)
        if number is None:
            resume = log.next_start(offset)
            yield EntryBreak(offset, "data files are missing", resume)
            offset = resume
            continue
        page, position = _page(log, offset)
        base = offset - position
        standing = dledger.read_entry(memoryview(page), position)
        if isinstance(standing, EntryBlank):
            offset = log.next_start(offset)
            continue
        starts = entry_chain(page, position, base)
        starts = starts[starts < stop - base]
        if len(starts):
            stretch = EntryStretch(starts + base, page, starts, entry_heads(page, starts))
            yield stretch
            offset = stretch.end
            continue
        is_empty = isinstance(standing, NoEntry) and standing.is_empty
        reason = standing.reason if isinstance(standing, NoEntry) else "the entry names another place"
        resume = _next_entry(log, offset, stop)
        yield EntryBreak(offset, reason, resume, is_empty)
        offset = resume


def _page(log: EntrySpace, offset: int) -> tuple[Bytes, int]:
    """A window from `offset` on, at least as large as the entry there, and the position of `offset` in it."""
    page, position = log.window(offset, WINDOW_SIZE)
    if len(page) - position >= ENTRY_HEAD.size:
        size = ENTRY_HEAD.read(memoryview(page), position)["size"]
        number = log.file_number(offset)
        assert number is not None
        if len(page) - position < size <= log.readable_end(number) - offset:
            page, position = log.window(offset, size)
    return page, position


def _next_entry(log: EntrySpace, offset: int, stop: int) -> int | None:
    """The next place behind a break at which an entry names its own place; of a file of which nothing more is written
    only its beginning is looked at.
    """
    offset += 1
    while offset < stop:
        number = log.file_number(offset)
        if number is None or log.readable_end(number) - offset < ENTRY_HEAD.size:
            following = log.next_start(offset)
            if following is None:
                return None
            offset = following
            continue
        page, position = log.window(offset, WINDOW_SIZE)
        found = named_places(page, position, offset - position)
        if len(found):
            return int(found[0]) + offset - position
        seen = len(page) - position
        if not page[position:].any():
            following = log.next_start(offset)
            if following is None:
                return None
            offset = following
        else:
            offset += max(seen - WINDOW_SIZE // 2, 1) if seen == WINDOW_SIZE else seen
    return None
