"""One stretch of a verified log with the facts that its checks share: sound records, their properties and hashes."""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import java_hash, sys_flag
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.property_columns import Pieces, split_pieces
from rmqstore.records.gather import binary_array, bytes_of
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch


class StretchFacts:
    """A stretch that covers log offsets [low, high); `after_break` tells that records before its first one are lost.

    Vectors called *sound* have one element for each sound record; `place_of[row]` is a row's element, -1 for a
    damaged one.
    """

    def __init__(self, stretch: Stretch, low: int, high: int, after_break: bool) -> None:
        self.stretch = stretch
        self.low, self.high, self.after_break = low, high, after_break
        self.rows: npt.NDArray[np.intp] = np.flatnonzero(stretch.reasons == Reason.SOUND)
        self.offsets: Ints = stretch.offsets[self.rows]
        self.place_of = np.full(len(stretch.offsets), -1, np.int64)
        self.place_of[self.rows] = np.arange(len(self.rows))

    @cached_property
    def located(self) -> Located:
        """The sound records."""
        return self.stretch.located.take(self.rows)

    @cached_property
    def _pieces(self) -> Pieces:
        located = self.located
        return split_pieces(*bytes_of(binary_array(located.page, located.properties_at, located.properties_size)))

    @cached_property
    def tag_hashes(self) -> Ints:
        """int64[sound], Java's hash of TAGS, 0 without."""
        starts, sizes = self._pieces.find(b"TAGS")
        return java_hash.string_hashes(self._pieces.data, starts, np.maximum(sizes, 0)).astype(np.int64)

    def property_values(self, name: bytes, places: npt.NDArray[np.intp]) -> pa.Array:
        """binary[n], one property of some sound records; null where absent."""
        starts, sizes = (values[places] for values in self._pieces.find(name))
        return binary_array(self._pieces.data, starts, sizes, sizes < 0)

    def index_keys(self) -> tuple[Ints, Ints]:
        """Every key that dispatch puts into the index: offsets int64[n] of the records, hashes int64[n] of topic#key.

        UNIQ_KEY, and KEYS cut at single spaces; rolled-back messages have none.
        """
        kind = self.located.flags & sys_flag.TRANSACTION_MASK
        places = np.flatnonzero(kind != sys_flag.ROLLBACK)
        unique = self.property_values(b"UNIQ_KEY", places)
        lists = pc.split_pattern(self.property_values(b"KEYS", places).fill_null(b""), b" ")
        keys = pa.concat_arrays([unique.drop_null(), lists.flatten()])
        owners = np.concatenate((places[~_nulls(unique)], places[pc.list_parent_indices(lists).to_numpy()]))
        wanted = np.flatnonzero(pc.binary_length(keys).to_numpy(zero_copy_only=False) > 0)
        if not len(wanted):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        owners = owners[wanted]
        located = self.located
        topics = binary_array(located.page, located.topic_at[owners], located.topic_size[owners])
        data, ends = bytes_of(pc.binary_join_element_wise(topics, keys.take(pa.array(wanted)), b"#"))
        hashes = np.abs(java_hash.string_hashes(data, ends[:-1], np.diff(ends)).astype(np.int64))
        hashes[hashes > np.iinfo(np.int32).max] = 0  # as java_hash.index_hash
        return self.offsets[owners], hashes

    def leads_to_damage(self, offsets: Ints) -> Mask:
        """Which offsets in [low, high) are those of damaged records, or lie in a broken place before the first one."""
        rows = self._rows_at(offsets)
        damaged = (rows >= 0) & (self.place_of[rows] < 0)
        return damaged | (offsets < self.stretch.offsets[0]) if self.after_break else damaged

    def starts_sound(self, offsets: Ints) -> npt.NDArray[np.intp]:
        """The sound record (its element) that begins at each offset, -1 where none does."""
        rows = self._rows_at(offsets)
        return np.where(rows >= 0, self.place_of[rows], -1)

    def _rows_at(self, offsets: Ints) -> npt.NDArray[np.intp]:
        starts = self.stretch.offsets
        rows = np.minimum(np.searchsorted(starts, offsets), len(starts) - 1)
        return np.where(starts[rows] == offsets, rows, -1)


def _nulls(values: pa.Array) -> Mask:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), bool)
