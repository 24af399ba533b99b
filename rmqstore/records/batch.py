"""Records that follow each other in the log, as vectors: each is made when it is first asked for."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.formats import names, sys_flag
from rmqstore.formats.delay_levels import LevelTables
from rmqstore.formats.index_table import index_hashes, key_hashes, merged, split_keys, text_hashes
from rmqstore.formats.inner_batch import RecordNumbers, record_numbers
from rmqstore.formats.java_hash import index_hash, string_hash
from rmqstore.formats.java_text import java_text
from rmqstore.formats.message import Record
from rmqstore.formats.message_columns import Bytes, Ints, Located, Mask, Places, equal_bytes
from rmqstore.formats.properties import DELAY, KEY_SEPARATOR, KEYS, NAME_END, TAGS, UNIQUE_KEY, VALUE_END
from rmqstore.formats.property_columns import Pieces, split_pieces
from rmqstore.records.dispatch_rules import is_dispatched, set_delivery_times
from rmqstore.records.gather import joined_bytes

_TAGS, _KEYS, _UNIQUE_KEY, _DELAY = _NAMES = tuple(name.encode() for name in (TAGS, KEYS, UNIQUE_KEY, DELAY))
# The properties that queues and index are filled from.
DISPATCHED_NAMES = frozenset(_NAMES)
_SEPARATOR = KEY_SEPARATOR.encode()
# It stands before the tags in the text that is hashed for the index (Java: MessageConst.INDEX_TAG_TYPE).
TAGS_PREFIX = "T#"
_TAGS_MARK = TAGS_PREFIX.encode()
# Up to so many records are looked at one by one: about 3 µs each, where the vectors' calls take 300 µs for any number.
FEW_COUNT = 48


class _KeySlices(NamedTuple):
    """m keys as slices of `data`: start, size and row of each, int64[m]."""

    data: Bytes
    starts: Ints
    sizes: Ints
    rows: Ints


EntryHeads = npt.NDArray[np.void]


@dataclass(eq=False)
class RecordBatch:
    """n ≥ 1 whole records in log order, one after the other, as far as the last one's `end` in the log.

    `offsets` int64[n] in the log; `located` says where their parts lie in its page, a copy that stays valid.  All
    vectors have one row a record; they are made when first asked for and kept, so they are not to be changed.
    `heads`: those of the entries around the records, where they stand in entries and a walk from entry to entry met
    them; ENTRY_HEAD.dtype[n], or one less where it began with a record.
    """

    offsets: Ints
    located: Located
    end: int
    heads: EntryHeads | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, rows: npt.NDArray[np.intp]) -> "RecordBatch":
        """The same for some rows, ascending; `end` stays."""
        taken = RecordBatch(self.offsets[rows], self.located.take(rows), self.end)
        if self.heads is not None:
            before = len(self) - len(self.heads)  # 1 where the first record has none
            taken.heads = self.heads[rows[rows >= before] - before]
        return taken

    @cached_property
    def sizes(self) -> Ints:
        """Bytes of each record."""
        return self.located.total_size

    @cached_property
    def queue_ids(self) -> Ints:
        """queueId of each record."""
        return self.located.head("queue_id").astype(np.int64)

    @cached_property
    def queue_offsets(self) -> Ints:
        """queueOffset of each record."""
        return self.located.head("queue_offset").astype(np.int64, copy=False)

    @cached_property
    def store_ms(self) -> Ints:
        """storeTimestamp of each record."""
        return self.located.store_timestamp()

    @property
    def sys_flags(self) -> npt.NDArray[np.int32]:
        """sysFlag of each record."""
        return self.located.flags

    @cached_property
    def queued(self) -> Mask:
        """Which records belong to a consume queue: of no transaction or committed."""
        return is_dispatched(self.sys_flags)

    @cached_property
    def numbers(self) -> RecordNumbers:
        """Which numbers each record has if its queue is a batch queue."""
        return record_numbers(self.located, in_entries=self.heads is not None)

    @cached_property
    def topics(self) -> tuple[list[str], Ints]:
        """The topics that occur, and the number of each record's in that list."""
        part = self.located
        if part.topic:
            return [_text(part.topic)], np.zeros(len(self), np.int64)
        if len(self) > FEW_COUNT:
            first = self.topic_bytes(0)
            if equal_bytes(part.page, part.topic_at, part.topic_size, first).all():
                return [_text(first)], np.zeros(len(self), np.int64)
            found = self._topics_by_hash()
            if found is not None:
                return found
        numbers: dict[bytes, int] = {}
        each = [numbers.setdefault(topic, len(numbers)) for topic in self._values(part.topic_at, part.topic_size)]
        return [_text(topic) for topic in numbers], np.array(each, np.int64)

    def topic_bytes(self, row: int) -> bytes:
        """The topic of one record, as it stands there."""
        at = int(self.located.topic_at[row])
        return self.located.page[at : at + int(self.located.topic_size[row])].tobytes()

    def _values(self, positions: Ints, sizes: Ints) -> list[bytes]:
        """Slices of the page, one by one."""
        view = memoryview(self.located.page)
        bounds = zip(positions.tolist(), (positions + sizes).tolist(), strict=True)
        return [bytes(view[begin:end]) for begin, end in bounds]

    def _topics_by_hash(self) -> tuple[list[str], Ints] | None:
        """`topics` of many rows; None where two topics have one hash."""
        part = self.located
        hashes = text_hashes(part.page, part.topic_at, part.topic_size)
        values, firsts, numbers = np.unique(hashes, return_index=True, return_inverse=True)
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=len(values)))
        topics = [self.topic_bytes(row) for row in firsts.tolist()]
        for topic, rows in zip(topics, np.split(order, ends[:-1]), strict=True):
            if not equal_bytes(part.page, part.topic_at[rows], part.topic_size[rows], topic).all():
                return None
        return [_text(topic) for topic in topics], numbers.astype(np.int64, copy=False)

    @cached_property
    def pieces(self) -> Pieces:
        """The properties of the records, cut into names and values."""
        part = self.located
        return split_pieces(*joined_bytes(part.page, part.properties_at, part.properties_size))

    @cached_property
    def _found(self) -> dict[bytes, tuple[Places, Places]]:
        return self.pieces.find_all(_NAMES)

    @cached_property
    def _few(self) -> list[dict[bytes, bytes]] | None:
        """The properties that dispatch asks for, record by record; None when there are many records."""
        if len(self) > FEW_COUNT:
            return None
        blocks = self._values(self.located.properties_at, self.located.properties_size)
        return [dispatched_properties(block) for block in blocks]

    def tags_codes(self, levels: LevelTables) -> Ints:
        """The third field of each record's queue entry: the hash of TAGS, 0 without; in SCHEDULE_TOPIC_XXXX, for a
        delay level above 0, the delivery time.
        """
        few = self._few
        if few is not None:
            codes = np.array([tags_hash(values.get(_TAGS, b"")) for values in few], np.int64)
        else:
            codes = text_hashes(self.pieces.data, *self._found[_TAGS]).astype(np.int64)
        topics, numbers = self.topics
        if names.SCHEDULE_TOPIC not in topics:
            return codes
        is_delayed = numbers == topics.index(names.SCHEDULE_TOPIC)
        set_delivery_times(codes, self.pieces, (self.offsets, self.store_ms), levels, is_delayed)
        return codes

    def index_items(self, with_tags: bool = False) -> tuple[Ints, Ints]:
        """The items for the index, in the order of the puts: row and key hash of each item, int64[m] twice.

        A record's UNIQ_KEY first, then its KEYS one by one, and `with_tags` its TAGS, as since RocketMQ 5.4; a rolled
        back record has none (IndexService.buildIndex).
        """
        if self._few is not None:
            return self._items_of_few(self._few, with_tags)
        data, starts, sizes, rows = self._keys()
        rolled_back = self.sys_flags & sys_flag.TRANSACTION_MASK == sys_flag.ROLLBACK
        if rolled_back.any():
            kept = ~rolled_back[rows]
            starts, sizes, rows = starts[kept], sizes[kept], rows[kept]
        topics, numbers = self.topics
        prefixes = np.array([prefix_hash(topic) for topic in topics], np.int64)
        hashes = key_hashes(prefixes[numbers[rows]], data, starts, sizes)
        if not with_tags:
            return rows, hashes
        tagged = np.flatnonzero((self._found[_TAGS][1] > 0) & ~rolled_back)
        tag_starts, tag_sizes = (values[tagged] for values in self._found[_TAGS])
        prefixes = np.array([tags_prefix_hash(topic) for topic in topics], np.int64)
        of_tags = key_hashes(prefixes[numbers[tagged]], data, tag_starts, tag_sizes)
        return with_tags_after(rows, hashes, tagged, of_tags)

    def _items_of_few(self, few: list[dict[bytes, bytes]], with_tags: bool) -> tuple[Ints, Ints]:
        """`index_items` of few records: each topic#key is hashed as one text."""
        rows: list[int] = []
        texts: list[bytes] = []
        kinds = (self.sys_flags & sys_flag.TRANSACTION_MASK).tolist()
        topics = self._values(self.located.topic_at, self.located.topic_size)
        for row, (values, kind, topic) in enumerate(zip(few, kinds, topics, strict=True)):
            keys = [key for key in values.get(_KEYS, b"").split(_SEPARATOR) if key]
            if unique := values.get(_UNIQUE_KEY):
                keys.insert(0, unique)
            if with_tags and (tags := values.get(_TAGS)):
                keys.append(_TAGS_MARK + tags)
            if kind != sys_flag.ROLLBACK:
                texts += [b"%b#%b" % (topic, key) for key in keys]
                rows += [row] * len(keys)
        sizes = np.array(list(map(len, texts)), np.int64)
        hashes = text_hashes(np.frombuffer(b"".join(texts), np.uint8), np.cumsum(sizes) - sizes, sizes)
        return np.array(rows, np.int64), index_hashes(hashes)

    def _keys(self) -> _KeySlices:
        """All keys, in the order of the puts."""
        data = self.pieces.data
        unique_starts, unique_sizes = self._found[_UNIQUE_KEY]
        starts, sizes, rows = split_keys(data, *self._found[_KEYS])
        has_unique = unique_sizes > 0
        row_count = len(self)
        if has_unique.any():
            first_rows = np.flatnonzero(has_unique)
            counts = np.bincount(rows, minlength=row_count) + has_unique
            begins = np.cumsum(counts) - counts
            # Keys of a row stand after its unique key: each is moved on by the unique keys up to its row.
            key_places = np.arange(len(rows)) + np.cumsum(has_unique)[rows]
            total = len(rows) + len(first_rows)
            starts = merged(total, begins[first_rows], unique_starts[first_rows], key_places, starts)
            sizes = merged(total, begins[first_rows], unique_sizes[first_rows], key_places, sizes)
            rows = merged(total, begins[first_rows], first_rows, key_places, rows)
        return _KeySlices(data, starts, sizes, rows)


def with_tags_after(rows: Ints, hashes: Ints, tagged: Ints, of_tags: Ints) -> tuple[Ints, Ints]:
    """Rows and hashes of index items, those of tags after the keys of their rows; rows are ascending."""
    places = np.searchsorted(rows, tagged, side="right")
    return np.insert(rows, places, tagged), np.insert(hashes, places, of_tags)


def dispatched_properties(block: bytes) -> dict[bytes, bytes]:
    """Of a record's properties those that dispatch asks for."""
    values = {}
    for piece in block.split(VALUE_END):
        name, _, value = piece.partition(NAME_END)
        if value and name in _NAMES:
            values[name] = value
    return values


def tags_item_hash(record: Record) -> int | None:
    """The key hash of the last item that `RecordBatch.index_items` with tags has for a record; None where that is no
    item of its tags.
    """
    tags = dispatched_properties(record.properties).get(_TAGS)
    if not tags or record.sys_flag & sys_flag.TRANSACTION_MASK == sys_flag.ROLLBACK:
        return None
    return index_hash(f"{_text(record.topic)}#{TAGS_PREFIX}{java_text(tags)}")


@lru_cache(maxsize=4096)
def _text(topic: bytes) -> str:
    return java_text(topic)


@lru_cache(maxsize=4096)
def tags_hash(tags: bytes) -> int:
    """The tags code in the queue entry of a record with these TAGS; 0 for none."""
    return string_hash(java_text(tags))


@lru_cache(maxsize=4096)
def prefix_hash(topic: str) -> int:
    """The hash of what stands before each key of a topic."""
    return string_hash(f"{topic}#")


@lru_cache(maxsize=4096)
def tags_prefix_hash(topic: str) -> int:
    """The hash of what stands before the tags of a topic's messages."""
    return string_hash(f"{topic}#{TAGS_PREFIX}")
