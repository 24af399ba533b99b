"""One stretch of a verified log with the facts that its checks share: sound records, their properties and hashes."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore.formats import sys_flag
from rmqstore.formats.index_table import key_hashes, split_keys, text_hashes
from rmqstore.formats.java_text import java_text
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.properties import KEYS, UNIQUE_KEY
from rmqstore.formats.property_columns import Pieces, split_pieces
from rmqstore.records.batch import prefix_hash, tags_prefix_hash
from rmqstore.records.gather import binary_array, bytes_of
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch

_UNIQUE_KEY, _KEYS = UNIQUE_KEY.encode(), KEYS.encode()


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
        return text_hashes(self._pieces.data, starts, np.maximum(sizes, 0)).astype(np.int64)

    def property_values(self, name: bytes, places: npt.NDArray[np.intp]) -> pa.Array:
        """binary[n], one property of some sound records; null where absent."""
        starts, sizes = (values[places] for values in self._pieces.find(name))
        return binary_array(self._pieces.data, starts, sizes, sizes < 0)

    def index_tags(self) -> tuple[Ints, Ints]:
        """Tags, indexed since RocketMQ 5.4: offsets int64[n] of the records, hashes int64[n] of topic#T#TAGS."""
        starts, sizes = self._pieces.find(b"TAGS")
        tagged = np.flatnonzero((sizes > 0) & ~self._rolled_back)
        hashes = self._topic_hashes(tags_prefix_hash)[tagged]
        return self.offsets[tagged], key_hashes(hashes, self._pieces.data, starts[tagged], sizes[tagged])

    @property
    def _rolled_back(self) -> Mask:
        rolled_back: Mask = self.located.flags & sys_flag.TRANSACTION_MASK == sys_flag.ROLLBACK
        return rolled_back

    def index_keys(self) -> tuple[Ints, Ints]:
        """Every key that dispatch puts into the index: offsets int64[n] of the records, hashes int64[n] of topic#key.

        UNIQ_KEY, and KEYS cut at single spaces; rolled-back messages have none.
        """
        pieces = self._pieces
        found = pieces.find_all((_UNIQUE_KEY, _KEYS))
        unique_starts, unique_sizes = found[_UNIQUE_KEY]
        with_unique = np.flatnonzero(unique_sizes > 0)
        split = split_keys(pieces.data, *found[_KEYS])
        starts: Ints = np.concatenate((unique_starts[with_unique], split.starts))
        sizes: Ints = np.concatenate((unique_sizes[with_unique], split.sizes))
        owners = np.concatenate((with_unique, split.rows))
        rolled_back = self._rolled_back
        if rolled_back.any():
            kept = ~rolled_back[owners]
            starts, sizes, owners = starts[kept], sizes[kept], owners[kept]
        if not len(owners):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return self.offsets[owners], key_hashes(self._topic_hashes(prefix_hash)[owners], pieces.data, starts, sizes)

    def _topic_hashes(self, prefix: Callable[[str], int]) -> Ints:
        """int64[sound], the hash that `prefix` gives each record's topic."""
        located = self.located
        topics = binary_array(located.page, located.topic_at, located.topic_size).dictionary_encode()
        of_each = np.array([prefix(java_text(topic)) for topic in topics.dictionary.to_pylist()], np.int64)
        found: Ints = of_each[np.from_dlpack(topics.indices)]
        return found

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
