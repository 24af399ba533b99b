"""Where records follow each other in a page of the commitlog, found in bulk by their magic and their sizes."""

import numpy as np
import numpy.typing as npt

from rmqstore.formats import message
from rmqstore.formats.message_columns import Bytes, Ints, Located, Mask, gather

_MAGIC_BYTES = message.MAGIC_V1.to_bytes(4, "big", signed=True)
_MAGIC_BYTES_V2_LAST = message.MAGIC_V2.to_bytes(4, "big", signed=True)[3]
# The magic's first two bytes, and its second and third, as an aligned pair of bytes reads.
_PAIR = np.dtype("<u2")
_FIRST_TWO, _MIDDLE_TWO = (int.from_bytes(_MAGIC_BYTES[at : at + 2], "little") for at in (0, 1))
_WORD_SIZE = 8
_BLOCK_COUNT = 64 * 1024

# Why a record does not count of which `lacks_end` is true.
NO_END = "its last bytes were not written"

# Of a log's bytes so many are looked at, at once.
WINDOW_SIZE = 4 * 1024 * 1024


def claimed_size(data: bytes | Bytes, position: int) -> int | None:
    """The size that a record at `position` claims, if its magic is one; None for anything else."""
    if len(data) - position < message.BLANK.size:
        return None
    size, magic = message.BLANK.struct.unpack_from(data, position)
    if magic not in message.MESSAGE_MAGICS or size < message.RECORD_SIZE_MIN:
        return None
    return int(size)


def magic_positions(page: Bytes, start: int) -> Ints:
    """Where the magic of a message stands from `start` on; may be in the middle of a body."""
    room = max(len(page) - 3, start)
    first = start + (page.ctypes.data + start) % _PAIR.itemsize  # pairs that lie right in memory: fast to compare
    pairs = page[first : first + (len(page) - first) // _PAIR.itemsize * _PAIR.itemsize].view(_PAIR)
    hits = _true_rows(_are_of_magic(pairs)) * _PAIR.itemsize + first
    hits -= page[hits] == _MAGIC_BYTES[1]
    hits = hits[(hits >= start) & (hits < room)]
    last = page[hits + 3]
    whole = (page[hits] == _MAGIC_BYTES[0]) & (page[hits + 1] == _MAGIC_BYTES[1]) & (page[hits + 2] == _MAGIC_BYTES[2])
    found: Ints = hits[whole & ((last == _MAGIC_BYTES[3]) | (last == _MAGIC_BYTES_V2_LAST))]
    return found


def _are_of_magic(pairs: npt.NDArray[np.uint16]) -> Mask:
    """Which pairs are a magic's first two bytes, as where it begins on a pair, or its middle two.

    Block by block, as fresh memory for the steps between costs more than they do.
    """
    mask = np.empty(len(pairs), bool)
    other = np.empty(min(len(pairs), _BLOCK_COUNT), bool)
    for low in range(0, len(pairs), _BLOCK_COUNT):
        block = pairs[low : low + _BLOCK_COUNT]
        part = mask[low : low + len(block)]
        np.equal(block, _FIRST_TWO, out=part)
        np.equal(block, _MIDDLE_TWO, out=other[: len(block)])
        part |= other[: len(block)]
    return mask


def _true_rows(mask: Mask) -> Ints:
    """`flatnonzero` of a mask in which few are true: words of eight are looked at first, at twice the speed."""
    whole = len(mask) // _WORD_SIZE * _WORD_SIZE
    words = np.flatnonzero(mask[:whole].view(np.uint64) != 0)
    word, byte = np.nonzero(mask[:whole].reshape(-1, _WORD_SIZE)[words])
    return np.concatenate((words[word] * _WORD_SIZE + byte, np.flatnonzero(mask[whole:]) + whole))


def chain(page: Bytes, position: int, places: Ints | None = None, *, gap: int = 0) -> Ints:
    """Starts of the whole records that follow each other from `position` on, by size and magic alone; int64[n].

    Ends before a record that the page cuts, a blank, or anything that is no record.  `places`, ascending, are where
    records are said to begin: as far as that is right, nothing is searched, and not every byte is looked at.  `gap`
    bytes stand between the end of one and the next.
    """
    if places is None or not len(told := _told(page, position, places, gap)):
        return _searched(page, position, gap)
    end = int(told[-1]) + int(gather(page, told[-1:], "i4")[0])
    return np.concatenate((told, _searched(page, end + gap, gap)))


def _told(page: Bytes, position: int, places: Ints, gap: int) -> Ints:
    """Those of the places that are the chain from `position` on, up to the first that is not."""
    inside = places[(places >= position) & (places <= len(page) - message.BLANK.size)]
    if not len(inside):
        return inside
    sizes = gather(page, inside, "i4").astype(np.int64)
    magic = gather(page, inside + message.HEAD.offset["magic"], "i4")
    ends = inside + sizes
    right = (magic == message.MAGIC_V1) | (magic == message.MAGIC_V2)
    right &= (sizes >= message.RECORD_SIZE_MIN) & (ends <= len(page))
    right[1:] &= inside[1:] == ends[:-1] + gap
    right[0] &= inside[0] == position
    return inside if right.all() else inside[: int(np.argmin(right))]


def _searched(page: Bytes, position: int, gap: int) -> Ints:
    """The chain from `position` on.

    Candidates are found by their magic in bulk; where the next candidate is not the next record (a magic inside a
    body) the chain goes on by size.
    """
    starts = magic_positions(page, position + 4) - message.HEAD.offset["magic"]
    if not len(starts) or starts[0] != position:
        return np.zeros(0, np.int64)
    sizes = gather(page, starts, "i4").astype(np.int64)
    nexts = starts + sizes + gap
    bad = (sizes < message.RECORD_SIZE_MIN) | (nexts > len(page) + gap)
    linked = np.concatenate((nexts[:-1] == starts[1:], [False])) & ~bad
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
        following = int(np.searchsorted(starts, nexts[last]))
        if following >= len(starts) or starts[following] != nexts[last]:
            break
        at = following
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def lacks_end(located: Located) -> bool:
    """Whether the last of some records ends in a byte that was never written, though its body and sizes are right.

    No CRC covers properties and topic.  Neither has a reason to end in a NUL: properties end in 0x02, or in their last
    value where brokers 4.9.1 to 5.1 wrote them.  It counts for the last record of a log alone.
    """
    if not located.sound[-1]:
        return False
    if located.properties_size[-1]:
        return not located.page[int(located.properties_at[-1] + located.properties_size[-1]) - 1]
    return bool(located.topic_size[-1]) and not located.page[int(located.topic_at[-1] + located.topic_size[-1]) - 1]
