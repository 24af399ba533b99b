"""The properties of many messages at once; the vector twin of `properties.parse_properties`.

Works on the property blocks laid end to end: `data` uint8[], block i at data[offsets[i]:offsets[i + 1]].
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore.formats.message_columns import Bytes, Ints, Mask, gather_bytes

NAME_END = 0x01
VALUE_END = 0x02


@dataclass(frozen=True, slots=True)
class Pieces:
    """The usable name-value pieces of n blocks in order: int64[pieces] each; positions are in `data`."""

    data: Bytes
    block_count: int
    row: Ints
    name_start: Ints
    name_size: Ints
    value_start: Ints
    value_size: Ints

    def find(self, name: bytes) -> tuple[Ints, Ints]:
        """Start and size of the value of `name` in each block: int64[blocks] twice, size -1 where absent; the last wins."""
        starts = np.zeros(self.block_count, np.int64)
        sizes = np.full(self.block_count, -1, np.int64)
        candidates = np.flatnonzero(self.name_size == len(name))
        if len(candidates):
            named = gather_bytes(self.data, self.name_start[candidates], len(name)) == name
            hits = candidates[named]
            starts[self.row[hits]] = self.value_start[hits]
            sizes[self.row[hits]] = self.value_size[hits]
        return starts, sizes

    def without_doubles(self) -> "Pieces":
        """The same with only the last piece of each name in a block, as a Java HashMap keeps them."""
        doubled = _doubled(self)
        if not doubled.any():
            return self
        keep = ~doubled
        return Pieces(
            self.data, self.block_count, self.row[keep], self.name_start[keep], self.name_size[keep],
            self.value_start[keep], self.value_size[keep],
        )  # fmt: skip


def split_pieces(data: Bytes, offsets: Ints) -> Pieces:
    """Cuts blocks into pieces at 0x02 (the last piece may lack it) and each piece at its first 0x01.

    Pieces without a name or without a value are left out (MessageDecoder.string2messageProperties, 4.9.1 and later).
    """
    block_count = len(offsets) - 1
    nexts = _piece_nexts(data, offsets)
    ends = nexts - (data[nexts - 1] == VALUE_END)
    counts = np.diff(np.searchsorted(nexts, offsets, side="right"))
    row = np.repeat(np.arange(block_count, dtype=np.int64), counts)
    starts = np.empty(len(nexts), np.int64)
    starts[1:] = nexts[:-1]
    filled = np.flatnonzero(counts)
    starts[(np.cumsum(counts) - counts)[filled]] = offsets[:-1][filled]
    name_ends = _first_name_end(data, starts, ends)
    usable = (name_ends > starts) & (name_ends < ends - 1)
    if not usable.all():
        row, starts, ends, name_ends = row[usable], starts[usable], ends[usable], name_ends[usable]
    return Pieces(data, block_count, row, starts, name_ends - starts, name_ends + 1, ends - name_ends - 1)


def _piece_nexts(data: Bytes, offsets: Ints) -> Ints:
    """Where the next piece would begin after each piece, ascending: behind every 0x02, and the end of an unclosed block."""
    nexts = np.flatnonzero(data[: offsets[-1]] == VALUE_END).astype(np.int64) + 1
    block_ends = offsets[1:][np.diff(offsets) > 0]
    unclosed = block_ends[data[block_ends - 1] != VALUE_END]
    if len(unclosed):
        nexts = np.insert(nexts, np.searchsorted(nexts, unclosed), unclosed)
    return nexts


def _first_name_end(data: Bytes, starts: Ints, ends: Ints) -> Ints:
    """Position of the first 0x01 of each piece, or its end where it has none."""
    marks = np.flatnonzero(data == NAME_END).astype(np.int64)
    if len(marks) == len(starts) and ((marks >= starts) & (marks < ends)).all():
        return marks  # one in each piece: the ordinary case
    if not len(marks):
        return ends
    following = np.searchsorted(marks, starts)
    found = marks[np.minimum(following, len(marks) - 1)]
    return np.where((following < len(marks)) & (found < ends), found, ends)


def _doubled(pieces: Pieces) -> Mask:
    """Where a later piece of the same block has the same name."""
    doubled = np.zeros(len(pieces.row), bool)
    if not len(pieces.row):
        return doubled
    widest = int(np.bincount(pieces.row).max())
    for distance in range(1, widest):
        near = np.flatnonzero(
            (pieces.row[:-distance] == pieces.row[distance:])
            & (pieces.name_size[:-distance] == pieces.name_size[distance:])
        )
        for size in np.unique(pieces.name_size[near]):
            pairs = near[pieces.name_size[near] == size]
            first = gather_bytes(pieces.data, pieces.name_start[pairs], int(size))
            second = gather_bytes(pieces.data, pieces.name_start[pairs + distance], int(size))
            doubled[pairs[first == second]] = True
    return doubled
