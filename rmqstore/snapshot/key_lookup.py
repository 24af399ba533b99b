"""Messages by key: the index files as RocketMQ searches them, and a walk over what they do not cover yet."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.files import reading
from rmqstore.files.reading import OpenFile, StoredFile
from rmqstore.formats import index, java_hash, names, sys_flag
from rmqstore.formats.message_columns import Mask, equal_bytes
from rmqstore.formats.property_columns import split_pieces
from rmqstore.snapshot.arrow_bytes import binary_array, bytes_of
from rmqstore.snapshot.extents import StoreExtent
from rmqstore.snapshot.soundness import Reason
from rmqstore.snapshot.walk import Stretch, WalkLimits, walk

# What one look-up returns at most; maxMsgsNumBatch of the broker configuration.
COUNT_MAX = 64
# All times, in ms.
EVER = (0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file with its inferred sizes; `slot_count` 0 for a file that holds nothing."""

    file: StoredFile
    header: index.IndexHeader
    slot_count: int
    item_count: int


def index_files(store: StoreExtent) -> list[IndexFile]:
    """The index files in order of creation."""
    found = []
    for file in reading.list_stored_files(reading.join(store.path, "index"), names.parse_index_name):
        with OpenFile(file.path) as source:
            data = source.pages(file.size, store.maps_index)
            header = index.read_header(data)
            if header is not None:
                found.append(IndexFile(file, header, *(index.infer_sizes(data) or (0, 0))))
    return found


def index_offsets(store: StoreExtent, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
    """Physical offsets of records whose key has the hash of `key`, newest first; at most `count_max`, at most 64.

    Only hashes are compared, as in RocketMQ (IndexService.queryOffset): the caller checks the key.  Records behind the
    last indexed one are found by walking the log.
    """
    count_max = min(count_max, COUNT_MAX)
    files = index_files(store)
    ends = {file.file.path: _newest_before(store, file) for file in files if file.slot_count}
    indexed_until = max(ends.values(), default=-1)
    walked = _walked_offsets(store, topic, key, (begin_ms, end_ms), indexed_until)
    found = [offset for offset in walked if offset > indexed_until][:count_max]
    key_hash = java_hash.index_hash(f"{topic}#{key}")
    for file in reversed(files):
        if len(found) >= count_max:
            break
        if file.slot_count and file.header.matches(begin_ms, end_ms):
            found += searched(store, file, key_hash, (begin_ms, end_ms), count_max - len(found))
        if 0 < file.header.begin_timestamp_ms < begin_ms:
            break
    last = [file for file in files if ends.get(file.file.path) == indexed_until]
    if indexed_until in walked and not _is_indexed(store, last, indexed_until, key_hash):
        # A kill between two keys of a record leaves it half indexed; RocketMQ indexes it again when it recovers.
        place = sum(offset > indexed_until for offset in found)
        found.insert(place, indexed_until)
    return found[:count_max]


def _is_indexed(store: StoreExtent, files: Sequence[IndexFile], offset: int, key_hash: int) -> bool:
    """Whether one of the files that know the record last has an item of it under a key's hash, whatever its time."""
    return any(offset in searched(store, file, key_hash, EVER, file.item_count) for file in files)


def _newest_before(store: StoreExtent, file: IndexFile) -> int:
    """The newest record before the log's end that has an item in the file; -1 if none has.

    A crash may have cut off records that were indexed: then the header speaks of a place that the log no longer has.
    """
    if file.header.end_offset < store.log_end:
        return file.header.end_offset
    with OpenFile(file.file.path) as source:
        data = source.pages(file.file.size, store.maps_index)
        offsets = index.read_items(data, file.slot_count)["physical_offset"][1:].astype(np.int64)
    return int(offsets[offsets < store.log_end].max(initial=-1))


def searched(
    store: StoreExtent, file: IndexFile, key_hash: int, times_ms: tuple[int, int], count_max: int
) -> list[int]:
    """`index.search` of one of the store's index files; `times_ms` are the first and the last."""
    with OpenFile(file.file.path) as source:
        data = source.pages(file.file.size, store.maps_index)
        return index.search(data, file.slot_count, file.item_count, key_hash, *times_ms, count_max)


def _walked_offsets(store: StoreExtent, topic: str, key: str, times: tuple[int, int], indexed_until: int) -> list[int]:
    """Offsets from the last indexed record on whose record has the key, newest first."""
    start = _walk_start(store, indexed_until)
    if start >= store.log_end or not key:
        return []  # nobody indexes an empty key
    found: list[int] = []
    with store.view("auto") as view:
        limits = WalkLimits(start, store.log_end, crc_from=store.log_end, known_end=store.log_end)
        for item in walk(view, limits):
            if isinstance(item, Stretch):
                found += _keyed(item, topic, key, times)
    return found[::-1]


def _walk_start(store: StoreExtent, indexed_until: int) -> int:
    """A record boundary at or before the last indexed record: that record itself, or the start of the log."""
    return max(indexed_until, store.log_start)


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


def query_offsets(store: StoreExtent, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
    """Physical offsets as RocketMQ's queryMessage reads them: rounds of index look-ups, each sorted ascending.

    The first round that finds something is the answer (DefaultMessageStore.queryMessage).
    """
    return sorted(index_offsets(store, topic, key, begin_ms, end_ms, count_max))
