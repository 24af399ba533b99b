"""The properties of many messages at once; the vector twin of `properties.parse_properties`.

Works on the property blocks laid end to end: `data` uint8[], block i at data[offsets[i]:offsets[i + 1]].
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rmqstore.formats.message_columns import Bytes, Ints, Mask, Places, compare_bytes, gather_bytes

NAME_END = 0x01
VALUE_END = 0x02


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The usable name-value pieces of n blocks in order: int32[pieces] each; positions are in `data`, less than 2 GiB.

    `counts` is the number of pieces of each block, int64[n].  `width` is that number where every block has as many with
    names of the same sizes in the same order, as the messages of one program have; 0 where blocks differ.  `same_names`
    are the names of every block in their order, where `with_same_names` was asked and all blocks have the same.
    """

    data: Bytes
    counts: Ints
    name_start: Places
    name_size: Places
    value_start: Places
    value_size: Places
    width: int = 0
    same_names: tuple[bytes, ...] | None = None

    def rows(self) -> Ints:
        """The block of each piece."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def with_same_names(self) -> "Pieces":
        """The same with `same_names`: a look at all names, for who asks for more than a few of them."""
        names: list[bytes] = []
        for column in range(self.width):
            start = int(self.name_start[column])
            name = self.data[start : start + int(self.name_size[column])].tobytes()
            if not compare_bytes(self.data, self.name_start[column :: self.width], name).all():
                return self
            names.append(name)
        return replace(self, same_names=tuple(names) or None)

    def find(self, name: bytes) -> tuple[Places, Places]:
        """Start and size of the value of `name` in each block: int[blocks] twice, size -1 where absent; the last
        wins.
        """
        return self.find_all((name,))[name]

    def find_all(self, names: Sequence[bytes]) -> dict[bytes, tuple[Places, Places]]:
        """`find` for several names; those of one length share the search."""
        found = self._columns_of(names) if self.width else {}
        for size in {len(name) for name in names if name not in found}:
            candidates = np.flatnonzero(self.name_size == size)
            starts = self.name_start[candidates]
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
        for name in names:
            for column in reversed(np.flatnonzero(self.name_size[: self.width] == len(name)).tolist()):
                named = compare_bytes(self.data, self.name_start[column :: self.width], name)
                if named.all():
                    found[name] = (self.value_start[column :: self.width], self.value_size[column :: self.width])
                if named.any():
                    break
        return found

    def _column_of(self, name: bytes, names: tuple[bytes, ...]) -> tuple[Places, Places]:
        """`find` where every block has these names."""
        if name not in names:
            return np.zeros(len(self.counts), np.int64), np.full(len(self.counts), -1, np.int64)
        column = len(names) - 1 - names[::-1].index(name)
        return self.value_start[column :: self.width], self.value_size[column :: self.width]

    def _values_of(self, hits: npt.NDArray[np.intp]) -> tuple[Ints, Ints]:
        """The values of some pieces, by block."""
        behind = np.cumsum(self.counts)
        if len(hits) == len(behind) and ((hits < behind) & (hits >= behind - self.counts)).all():
            return self.value_start[hits].astype(np.int64), self.value_size[hits].astype(np.int64)  # one in each block
        rows = np.searchsorted(behind, hits, side="right")
        starts = np.zeros(len(self.counts), np.int64)
        sizes = np.full(len(self.counts), -1, np.int64)
        starts[rows] = self.value_start[hits]
        sizes[rows] = self.value_size[hits]
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
        return Pieces(
            self.data,
            counts,
            self.name_start[keep],
            self.name_size[keep],
            self.value_start[keep],
            self.value_size[keep],
        )


def split_pieces(data: Bytes, block_offsets: Ints) -> Pieces:
    """Cuts blocks into pieces at 0x02 (the last piece may lack it) and each piece at its first 0x01.

    Pieces without a name or without a value are left out (MessageDecoder.string2messageProperties, 4.9.1 and later).
    """
    used = data[: block_offsets[-1]]
    found = np.flatnonzero(used <= VALUE_END)
    kinds, marks = used[found], found.astype(np.int32)
    offsets: Places = block_offsets.astype(np.int32)
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
    pieces = Pieces(data, counts, starts, name_sizes, name_ends + 1, value_sizes, width)
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
    """Where the next piece would begin after each piece, ascending: behind every 0x02, and the end of an unclosed
    block.
    """
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
    doubled = np.zeros(len(rows), bool)
    for distance in range(1, int(pieces.counts.max(initial=0))):
        near = np.flatnonzero(
            (pieces.name_size[:-distance] == pieces.name_size[distance:]) & (rows[:-distance] == rows[distance:])
        )
        for size in np.unique(pieces.name_size[near]):
            pairs = near[pieces.name_size[near] == size]
            first = gather_bytes(pieces.data, pieces.name_start[pairs], int(size))
            second = gather_bytes(pieces.data, pieces.name_start[pairs + distance], int(size))
            doubled[pairs[first == second]] = True
    return doubled
