"""Messages by key: the index files as RocketMQ searches them, and a walk over what they do not cover yet."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.directory.index_files import IndexFile, finds_all, index_files, index_pages
from rmqstore.directory.walk import WalkLimits, walk
from rmqstore.errors import NotNow
from rmqstore.formats import index, java_hash, sys_flag
from rmqstore.formats.message_columns import Mask, equal_bytes
from rmqstore.formats.property_columns import split_pieces
from rmqstore.records.gather import binary_array, bytes_of
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.survey.extents import StoreExtent

# The most that one look-up returns; maxMsgsNumBatch of the broker configuration.
COUNT_MAX = 64
_TRIES = 4
# All times, in ms.
EVER = (0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class _Question:
    """A key of a topic, and the store times that are meant, both ends included; what an index has at `stop` of the log
    and after it is not.
    """

    topic: str
    key: str
    begin_ms: int
    end_ms: int
    stop: int

    def in_index(self, store: StoreExtent, file: IndexFile, count_max: int) -> list[int]:
        """Offsets by the hash alone, newest first."""
        key_hash = java_hash.index_hash(f"{self.topic}#{self.key}")
        has_grown = file.header.end_offset >= self.stop
        found = searched(
            store, file, key_hash, (self.begin_ms, self.end_ms), file.item_count if has_grown else count_max
        )
        return [offset for offset in found if offset < self.stop][:count_max]

    def in_log(self, store: StoreExtent, first: int, last: int) -> list[int]:
        """Offsets of the sound records from `first`, where one begins, to `last` that have the key, newest first."""
        start, stop = max(first, store.log_start), min(last + 1, store.log_end)
        if start >= stop or not self.key:
            return []  # nobody indexes an empty key
        found: list[int] = []
        with store.view("auto") as view:
            for item in walk(view, WalkLimits(start, stop, crc_from=store.log_end, known_end=store.log_end)):
                if isinstance(item, Stretch):
                    found += _keyed(item, self.topic, self.key, (self.begin_ms, self.end_ms))
        return [offset for offset in found[::-1] if offset <= last]


def index_offsets(store: StoreExtent, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
    """Physical offsets of records whose key has the hash of `key`, newest first; at most `count_max`, at most 64.

    Only hashes are compared, as in RocketMQ (IndexService.queryOffset): the caller checks the key.  Records after the
    last indexed one are found by walking the log, and so are those of index files that are damaged: their chains lose
    messages, and a search does not notice.  Raises NotNow where the index changes again and again meanwhile.
    """
    return _found(store, _Question(topic, key, begin_ms, end_ms, 2**63 - 1), min(count_max, COUNT_MAX))


def _found(store: StoreExtent, asked: _Question, count_max: int) -> list[int]:
    for _ in range(_TRIES - 1):
        # What a file that is gone knew, the others do not: from the beginning, with those that are there now.
        with suppress(NotNow):
            return _index_offsets(store, asked, count_max)
    return _index_offsets(store, asked, count_max)


def _index_offsets(store: StoreExtent, asked: _Question, count_max: int) -> list[int]:
    files = index_files(store.disk, store.path, store.maps_index)
    found: list[int] = []
    newer = store.log_end  # from there on the log has been asked
    for number, file in reversed(list(enumerate(files))):
        if len(found) >= count_max:
            break
        if not finds_all(store.disk, file, store.maps_index):
            continue  # nobody knows which part of the log it had
        newest = _newest_before(store, file)
        if newest < 0:
            continue  # it was begun after the end of this snapshot
        found += index.unanswered(_between(store, asked, files, newest, newer), found, -1)
        if file.header.matches(asked.begin_ms, asked.end_ms):
            shared = newer if newer == file.header.end_offset else -1
            found += index.unanswered(asked.in_index(store, file, count_max), found, shared)
        newer = min(newer, file.header.begin_offset)
        if number and not any(older.header.end_timestamp_ms >= asked.begin_ms for older in files[:number]):
            break
    else:
        if newer > store.log_start:  # the oldest file is damaged, or lost
            found += index.unanswered(_between(store, asked, files, -1, newer), found, -1)
    return found[:count_max]


def _between(store: StoreExtent, asked: _Question, files: Sequence[IndexFile], older: int, newer: int) -> list[int]:
    """Offsets by the log from the last record `older` of one index file to the first, `newer`, of another.

    These two may be half indexed, by a kill between two keys of a record or because a file was full: what an index has
    of them is not told twice, and the first record of a file belongs to what is before it.
    """
    walked = asked.in_log(store, older, newer)
    if not walked:
        return []
    forever = replace(asked, begin_ms=EVER[0], end_ms=EVER[1])
    known = {
        offset
        for offset in (older, newer)
        for file in files
        if file.header.begin_offset <= offset <= file.header.end_offset
        and finds_all(store.disk, file, store.maps_index)
        if offset in forever.in_index(store, file, file.item_count)
    }
    return [offset for offset in walked if offset not in known]


def _newest_before(store: StoreExtent, file: IndexFile) -> int:
    """The newest record before the log's end that has an item in the file; -1 if none has.

    A crash may have cut off records that were indexed: then the header speaks of a place that the log no longer has.
    """
    if file.header.end_offset < store.log_end:
        return file.header.end_offset
    with index_pages(store.disk, file.file, store.maps_index) as data:
        offsets = index.read_items(data, file.slot_count)["physical_offset"][1:].astype(np.int64)
    return int(offsets[offsets < store.log_end].max(initial=-1))


def searched(
    store: StoreExtent, file: IndexFile, key_hash: int, times_ms: tuple[int, int], count_max: int
) -> list[int]:
    """`index.search` of one of the store's index files; `times_ms` are the first and the last."""
    with index_pages(store.disk, file.file, store.maps_index) as data:
        return index.search(data, file.slot_count, file.item_count, key_hash, *times_ms, count_max)


def _keyed(stretch: Stretch, topic: str, key: str, times: tuple[int, int]) -> list[int]:
    """Offsets of the sound records of a topic and time that have the key, once for each time that they have it."""
    located = stretch.located
    kind = located.flags & sys_flag.TRANSACTION_MASK
    rows = np.flatnonzero((stretch.reasons == Reason.SOUND) & (kind != sys_flag.ROLLBACK))
    rows = rows[equal_bytes(located.page, located.topic_at[rows], located.topic_size[rows], topic.encode())]
    stored = located.store_timestamp()[rows]
    rows = rows[(stored >= times[0]) & (stored <= times[1])]
    part = located.take(rows)
    pieces = split_pieces(*bytes_of(binary_array(part.page, part.properties_at, part.properties_size)))
    values = pieces.find_all((b"UNIQ_KEY", b"KEYS"))
    wanted = pa.scalar(key.encode(), pa.binary())
    unique, keys = (
        binary_array(pieces.data, starts, sizes, sizes < 0) for starts, sizes in (values[b"UNIQ_KEY"], values[b"KEYS"])
    )
    lists = pc.split_pattern(keys, b" ")
    owners = pc.list_parent_indices(lists).to_numpy()[_true(pc.equal(lists.flatten(), wanted))]
    counts = np.bincount(owners, minlength=len(rows)) + _true(pc.equal(unique, wanted))
    found: list[int] = np.repeat(stretch.offsets[rows], counts).tolist()
    return found


def _true(answers: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(answers, False).to_numpy(zero_copy_only=False), bool)


def query_offsets(
    store: StoreExtent, topic: str, key: str, times_ms: tuple[int, int], count_max: int,
    is_others: Callable[[int], bool],
) -> list[int]:  # fmt: skip
    """Physical offsets as RocketMQ's queryMessage reads them, ascending, at most 64.  Records of other keys with the
    same hash take nobody's place, nor does what came after the snapshot was opened.
    """
    asked = _Question(topic, key, *times_ms, store.log_end)
    return sorted(index.of_one_key(partial(_found, store, asked), is_others, min(count_max, COUNT_MAX)))
