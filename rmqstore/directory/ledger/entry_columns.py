"""Many entries of DLedger's at once; agrees with the scalar codec in `dledger`, which is the specification."""

import numpy as np
import numpy.typing as npt

from rmqstore.formats import dledger
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.formats.message_columns import Bytes, Ints, gather, gather_rows

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
