"""The properties of many messages at once; the vector twin of `properties.parse_properties`.

Works on the property blocks laid end to end: `data` uint8[], block i at data[offsets[i]:offsets[i + 1]].
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.formats.message_columns import Bytes, Ints, Mask, Places, compare_bytes, gather_bytes

# --- Property blocks that differ only inside their values: same names, same order, values of equal length, as one
# program writes them.
#
# One look at all bytes tells; then the places found in the first block hold for all of them.

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


# ---

NAME_END = 0x01
VALUE_END = MARK_MAX


class PiecePlaces(NamedTuple):
    """Where names and values begin, and their sizes: int32[pieces] each."""

    name_start: Places
    name_size: Places
    value_start: Places
    value_size: Places


class Pieces:
    """The usable name-value pieces of n blocks in order; positions are in `data`, less than 2 GiB.

    `counts` is the number of pieces of each block, int64[n].  `width` is that number where every block has as many with
    names of the same sizes in the same order, as the messages of one program have; 0 where blocks differ.  `same_names`
    are the names of every block in their order, where `with_same_names` was asked and all blocks have the same.
    """

    def __init__(
        self, data: Bytes, counts: Ints, places: PiecePlaces | Callable[[], PiecePlaces], width: int = 0,
        same_names: tuple[bytes, ...] | None = None,
    ) -> None:  # fmt: skip
        self.data, self.counts, self.width, self.same_names = data, counts, width, same_names
        self._given = places

    @cached_property
    def places(self) -> PiecePlaces:
        """Those of all pieces."""
        return self._given if isinstance(self._given, PiecePlaces) else self._given()

    def rows(self) -> Ints:
        """The block of each piece."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def with_same_names(self) -> "Pieces":
        """The same with `same_names`: a look at all names, which pays where more than a few are asked for."""
        if self.same_names is not None:
            return self
        names: list[bytes] = []
        starts, sizes, *_ = self.places
        for column in range(self.width):
            start = int(starts[column])
            name = self.data[start : start + int(sizes[column])].tobytes()
            if not compare_bytes(self.data, starts[column :: self.width], name).all():
                return self
            names.append(name)
        return Pieces(self.data, self.counts, self.places, self.width, tuple(names) or None)

    def find(self, name: bytes) -> tuple[Places, Places]:
        """Start and size of the value of `name` in each block: int[blocks] twice, size -1 where absent; the last
        wins.
        """
        return self.find_all((name,))[name]

    def find_all(self, names: Sequence[bytes]) -> dict[bytes, tuple[Places, Places]]:
        """`find` for several names; those of one length share the search."""
        found = self._columns_of(names) if self.width else {}
        for size in {len(name) for name in names if name not in found}:
            candidates = np.flatnonzero(self.places.name_size == size)
            starts = self.places.name_start[candidates]
            for name in names:
                if len(name) == size and name not in found:
                    named = compare_bytes(self.data, starts, name)
                    found[name] = self._values_of(candidates if named.all() else candidates[named])
        return found

    def _columns_of(self, names: Sequence[bytes]) -> dict[bytes, tuple[Places, Places]]:
        """`find_all` where pieces form a grid: the names that one column holds in every row."""
        if self.same_names is not None:
            return {name: self._column_of(name, self.same_names) for name in names}
        found = {}
        starts, sizes, *_ = self.places
        for name in names:
            for column in reversed(np.flatnonzero(sizes[: self.width] == len(name)).tolist()):
                named = compare_bytes(self.data, starts[column :: self.width], name)
                if named.all():
                    found[name] = self._values_in(column)
                if named.any():
                    break
        return found

    def _column_of(self, name: bytes, names: tuple[bytes, ...]) -> tuple[Places, Places]:
        """`find` where every block has these names."""
        if name not in names:
            return np.zeros(len(self.counts), np.int64), np.full(len(self.counts), -1, np.int64)
        return self._values_in(len(names) - 1 - names[::-1].index(name))

    def _values_in(self, column: int) -> tuple[Places, Places]:
        """Start and size of the values in one column of the grid."""
        _, _, starts, sizes = self.places
        return starts[column :: self.width], sizes[column :: self.width]

    def _values_of(self, hits: npt.NDArray[np.intp]) -> tuple[Ints, Ints]:
        """The values of some pieces, by block."""
        places, ends = self.places, np.cumsum(self.counts)
        if len(hits) == len(ends) and ((hits < ends) & (hits >= ends - self.counts)).all():
            return places.value_start[hits].astype(np.int64), places.value_size[hits].astype(np.int64)  # one a block
        rows = np.searchsorted(ends, hits, side="right")
        starts = np.zeros(len(self.counts), np.int64)
        sizes = np.full(len(self.counts), -1, np.int64)
        starts[rows] = places.value_start[hits]
        sizes[rows] = places.value_size[hits]
        return starts, sizes

    def without_doubles(self) -> "Pieces":
        """The same with only the last piece of each name in a block, as a Java HashMap keeps them."""
        if self.same_names is not None and len(set(self.same_names)) == self.width:
            return self
        rows = self.rows()
        doubled = _doubled(self, rows)
        if not doubled.any():
            return self
        return self._kept(~doubled, rows)

    def _kept(self, keep: Mask, rows: Ints) -> "Pieces":
        counts = np.bincount(rows[keep], minlength=len(self.counts)).astype(np.int64)
        return Pieces(self.data, counts, PiecePlaces(*(each[keep] for each in self.places)))


class AlikePieces(Pieces):
    """The pieces of blocks that begin at `starts`, int32[n], and are alike; `first` are those of the first block."""

    def __init__(self, first: Pieces, starts: Places) -> None:
        width = int(first.counts[0])
        names = first.with_same_names().same_names
        made = partial(_in_all, first.places, starts)  # of no method: a cycle would keep the blocks for the collector
        super().__init__(first.data, np.full(len(starts), width), made, width, names)
        self._first, self._starts = first.places, starts

    def values(self) -> tuple[Bytes, list[int]]:
        """All values laid end to end, block by block: uint8[], and the sizes of one block's."""
        begin, count = int(self._starts[0]), len(self._starts)
        _, _, starts, sizes = self._first
        size = int(self._starts[1]) - begin
        blocks = self.data[begin : begin + size * count].reshape(count, size)
        parts = [blocks[:, at : at + wide] for at, wide in zip((starts - begin).tolist(), sizes.tolist(), strict=True)]
        return np.concatenate(parts, axis=1).ravel(), sizes.tolist()

    def _values_in(self, column: int) -> tuple[Places, Places]:
        shift = int(self._first.value_start[column]) - int(self._starts[0])
        return self._starts + np.int32(shift), np.full(len(self._starts), self._first.value_size[column])


def _in_all(first: PiecePlaces, starts: Places) -> PiecePlaces:
    """The places of the first block's pieces, in every block."""
    shifts, count = starts - starts[0], len(starts)
    name_sizes, value_sizes = (np.tile(sizes, count).astype(np.int32) for sizes in (first.name_size, first.value_size))
    name_starts, value_starts = everywhere(first.name_start, shifts), everywhere(first.value_start, shifts)
    return PiecePlaces(name_starts, name_sizes, value_starts, value_sizes)


def split_pieces(data: Bytes, block_offsets: Ints) -> Pieces:
    """Cuts blocks into pieces at 0x02 (the last piece may lack it) and each piece at its first 0x01.

    Pieces without a name or without a value are left out (MessageDecoder.string2messageProperties, 4.9.1 and later).
    """
    offsets: Places = block_offsets.astype(np.int32)
    return _split_alike(data, offsets) or _split_each(data, offsets)


def _split_alike(data: Bytes, offsets: Places) -> Pieces | None:
    """`split_pieces` where all blocks are alike."""
    size = one_size(offsets)
    if not size:
        return None
    first = _split_each(data, offsets[:2])
    begin = int(offsets[0])
    _, _, starts, sizes = first.places
    values = list(zip((starts - begin).tolist(), sizes.tolist(), strict=True))
    if not first.width or not are_alike(data[begin : offsets[-1]], size, values):
        return None
    return AlikePieces(first, offsets[:-1])


def _split_each(data: Bytes, offsets: Places) -> Pieces:
    """`split_pieces`, looking for the marks of every block."""
    used = data[: offsets[-1]]
    found = np.flatnonzero(used <= VALUE_END)
    kinds, marks = used[found], found.astype(np.int32)
    if _is_regular(data, offsets, kinds):
        name_ends: Places = marks[::2]
        ends: Places = marks[1::2]
        nexts: Places = ends + 1
        starts: Places = np.concatenate((offsets[:1], nexts[:-1])).astype(np.int32)[: len(nexts)]
    else:
        nexts = _piece_nexts(data, offsets, marks[kinds == VALUE_END])
        ends = (nexts - (data[nexts - 1] == VALUE_END)).astype(np.int32)
        starts = np.empty(len(nexts), np.int32)
        starts[1:] = nexts[:-1]
        block_firsts = np.searchsorted(nexts, offsets[:-1], side="right")
        filled = offsets[1:] > offsets[:-1]
        starts[block_firsts[filled]] = offsets[:-1][filled]
        name_ends = _first_name_end(marks[kinds == NAME_END], starts, ends)
    name_sizes, value_sizes = name_ends - starts, ends - name_ends - 1
    width = _same_width(nexts, offsets, name_sizes)
    counts = np.full(len(offsets) - 1, width) if width else np.diff(np.searchsorted(nexts, offsets, side="right"))
    pieces = Pieces(data, counts, PiecePlaces(starts, name_sizes, name_ends + 1, value_sizes), width)
    usable = (name_sizes > 0) & (value_sizes > 0)
    return pieces if usable.all() else pieces._kept(usable, pieces.rows())


def _is_regular(data: Bytes, offsets: Places, kinds: Bytes) -> bool:
    """Whether 0x01 and 0x02 alternate throughout and every block is closed, so that no piece needs a closer look.

    `kinds` are all bytes up to 0x02 in order.
    """
    if len(kinds) % 2 or not (kinds.view("<u2") == (VALUE_END << 8 | NAME_END)).all():
        return False
    filled = offsets[1:] > offsets[:-1]
    return bool((data[offsets[1:][filled] - 1] == VALUE_END).all())


def _same_width(nexts: Places, offsets: Places, name_sizes: Places) -> int:
    """How many pieces every block has, if as many each and with names of the same sizes in the same order; else 0."""
    blocks = len(offsets) - 1
    width = len(nexts) // blocks if blocks else 0
    if not width or width * blocks != len(nexts) or not np.array_equal(nexts[width - 1 :: width], offsets[1:]):
        return 0
    return width if (name_sizes.reshape(blocks, width) == name_sizes[:width]).all() else 0


def _piece_nexts(data: Bytes, offsets: Places, value_ends: Places) -> Places:
    """Where the next piece would begin after each, ascending: after every 0x02, and at the end of an unclosed block."""
    nexts = value_ends + 1
    block_ends = offsets[1:][np.diff(offsets) > 0]
    unclosed = block_ends[data[block_ends - 1] != VALUE_END]
    if len(unclosed):
        nexts = np.sort(np.concatenate((nexts, unclosed)))
    return nexts


def _first_name_end(marks: Places, starts: Places, ends: Places) -> Places:
    """Position of the first 0x01 of each piece, or its end where it has none."""
    if not len(marks):
        return ends
    following = np.searchsorted(marks, starts)
    found = marks[np.minimum(following, len(marks) - 1)]
    return np.where((following < len(marks)) & (found < ends), found, ends)


def _doubled(pieces: Pieces, rows: Ints) -> Mask:
    """Where a later piece of the same block has the same name."""
    starts, sizes, *_ = pieces.places
    doubled = np.zeros(len(rows), bool)
    for distance in range(1, int(pieces.counts.max(initial=0))):
        near = np.flatnonzero((sizes[:-distance] == sizes[distance:]) & (rows[:-distance] == rows[distance:]))
        for size in np.unique(sizes[near]):
            pairs = near[sizes[near] == size]
            first = gather_bytes(pieces.data, starts[pairs], int(size))
            second = gather_bytes(pieces.data, starts[pairs + distance], int(size))
            doubled[pairs[first == second]] = True
    return doubled
