"""Where records follow each other in a page of the commitlog, found in bulk by their magic and their sizes."""

import numpy as np

from rmqstore.formats import message
from rmqstore.formats.message_columns import Bytes, Ints, gather

_MAGIC_BYTES = message.MAGIC_V1.to_bytes(4, "big", signed=True)
_MAGIC_BYTES_V2_LAST = message.MAGIC_V2.to_bytes(4, "big", signed=True)[3]


def magic_positions(page: Bytes, start: int) -> Ints:
    """Where the magic of a message stands from `start` on; may be in the middle of a body."""
    first, second, third, fourth = _MAGIC_BYTES
    hits = np.flatnonzero(page[start : max(len(page) - 3, start)] == first) + start
    hits = hits[(page[hits + 1] == second) & (page[hits + 2] == third)]
    last = page[hits + 3]
    found: Ints = hits[(last == fourth) | (last == _MAGIC_BYTES_V2_LAST)]
    return found


def chain(page: Bytes, position: int) -> Ints:
    """Starts of the whole records that follow each other from `position` on, by size and magic alone; int64[n].

    Candidates are found by their magic in bulk; where the next candidate is not the next record (a magic inside a
    body) the chain goes on by size.  Ends before a record that the page cuts, a blank, or anything that is no record.
    """
    starts = magic_positions(page, position + 4) - message.HEAD.offset["magic"]
    if not len(starts) or starts[0] != position:
        return np.zeros(0, np.int64)
    sizes = gather(page, starts, "i4").astype(np.int64)
    ends = starts + sizes
    bad = (sizes < message.RECORD_SIZE_MIN) | (ends > len(page))
    linked = np.concatenate((ends[:-1] == starts[1:], [False])) & ~bad
    breaks = np.flatnonzero(~linked)
    kept: list[Ints] = []
    at = 0
    while True:
        last = int(breaks[np.searchsorted(breaks, at)])
        stop = last if bad[last] else last + 1
        if stop > at:
            kept.append(starts[at:stop])
        if bad[last]:
            break
        following = int(np.searchsorted(starts, ends[last]))
        if following >= len(starts) or starts[following] != ends[last]:
            break
        at = following
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)
