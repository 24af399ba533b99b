"""Property blocks that differ only inside their values: same names, same order, values of equal length, as one program
writes them.

One look at all bytes tells; then the places found in the first block hold for all of them.
"""

from collections.abc import Sequence

import numpy as np

from rmqstore.formats.message_columns import Bytes, Places

# Bytes up to this one end a name or a value.
MARK_MAX = 0x02
# Bytes that are compared together: what stays in the nearest caches.
_PART_SIZE = 128 * 1024

Slices = Sequence[tuple[int, int]]


def one_size(offsets: Places) -> int:
    """The size of all blocks, if they have the same; 0 where not, or where there is no second one."""
    sizes = np.diff(offsets)
    return int(sizes[0]) if len(sizes) > 1 and (sizes == sizes[0]).all() else 0


def are_alike(blocks: Bytes, size: int, values: Slices) -> bool:
    """Whether all blocks of `size` bytes, laid end to end, equal the first one outside of its `values` (place and size
    in the block), and have their marks at the same places inside of them.
    """
    caps = np.full(size, 0xFF, np.uint8)
    for start, value_size in values:
        caps[start : start + value_size] = MARK_MAX + 1  # what is no mark may differ
    count = max(_PART_SIZE // size, 1)
    caps = np.tile(caps, count + 1)
    for start in range(0, len(blocks), count * size):
        part = blocks[max(start - size, 0) : start + count * size]  # with the block before
        kinds = np.minimum(part, caps[: len(part)])
        if not np.array_equal(kinds[size:], kinds[:-size]):
            return False
    return True


def everywhere(places: Places, starts: Places) -> Places:
    """Places in a block, in all blocks that begin at `starts`: int32[blocks * places], block by block."""
    found: Places = (starts.astype(np.int32)[:, None] + places.astype(np.int32)).ravel()
    return found
