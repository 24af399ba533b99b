"""Messages by key: the index files as RocketMQ searches them, and a walk over what they do not cover yet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.errors import NotNow
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
_TRIES = 4


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file with its inferred sizes; `slot_count` 0 for a file that holds nothing."""

    file: StoredFile
    header: index.IndexHeader
    slot_count: int
    item_count: int


@contextmanager
def opened_index(file: StoredFile) -> Iterator[OpenFile]:
    """An index file, open.  Raises NotNow if it is removed or cut meanwhile: a recovery writes it again, a broker
    deletes it with its messages.
    """
    try:
        with OpenFile(file.path) as source:
            yield source
    except OSError as error:
        raise NotNow(f"{file.path}: {error.strerror or error}; the index changes just now: ask again") from None


def index_files(store: StoreExtent) -> list[IndexFile]:
    """The index files in order of creation; one that vanishes meanwhile is left out.  Raises NotNow."""
    found = []
    for file in reading.list_stored_files(reading.join(store.path, "index"), names.parse_index_name):
        if not reading.exists(file.path):
            continue
        with opened_index(file) as source:
            data = source.map_bytes(file.size)[: file.size]
            header = index.read_header(data)
            if header is not None:
                found.append(IndexFile(file, header, *(index.infer_sizes(data) or (0, 0))))
    return found


def index_offsets(store: StoreExtent, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
    """Physical offsets of records whose key has the hash of `key`, newest first; at most `count_max`, at most 64.

    Only hashes are compared, as in RocketMQ (IndexService.queryOffset): the caller checks the key.  Records behind the
    last indexed one are found by walking the log.  Raises NotNow where the index changes again and again meanwhile.
    """
    for _ in range(_TRIES - 1):
        # What a file that is gone knew, the others do not: from the beginning, with those that are there now.
        with suppress(NotNow):
            return _index_offsets(store, topic, key, begin_ms, end_ms, count_max)
    return _index_offsets(store, topic, key, begin_ms, end_ms, count_max)


def _index_offsets(store: StoreExtent, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
    count_max = min(count_max, COUNT_MAX)
    files = index_files(store)
    ends = {file.file.path: _newest_before(file, store.log_end) for file in files if file.slot_count}
    indexed_until = max(ends.values(), default=-1)
    walked = _walked_offsets(store, topic, key, (begin_ms, end_ms), indexed_until)
    found = [offset for offset in walked if offset > indexed_until][:count_max]
    key_hash = java_hash.index_hash(f"{topic}#{key}")
    for file in reversed(files):
        if len(found) >= count_max:
            break
        if file.slot_count and file.header.matches(begin_ms, end_ms):
            found += _searched(file, key_hash, begin_ms, end_ms, count_max - len(found))
        if 0 < file.header.begin_timestamp_ms < begin_ms:
            break
    last = [file for file in files if ends.get(file.file.path) == indexed_until]
    if indexed_until in walked and not _is_indexed(last, indexed_until, key_hash):
        # A kill between two keys of a record leaves it half indexed; RocketMQ indexes it again when it recovers.
        place = sum(offset > indexed_until for offset in found)
        found.insert(place, indexed_until)
    return found[:count_max]


def _is_indexed(files: Sequence[IndexFile], offset: int, key_hash: int) -> bool:
    """Whether one of the files that know the record last has an item of it under a key's hash, whatever its time."""
    return any(offset in _searched(file, key_hash, 0, 2**63 - 1, file.item_count) for file in files)


def _newest_before(file: IndexFile, log_end: int) -> int:
    """The newest record before the log's end that has an item in the file; -1 if none has.

    A crash may have cut off records that were indexed: then the header speaks of a place that the log no longer has.
    """
    if file.header.end_offset < log_end:
        return file.header.end_offset
    with opened_index(file.file) as source:
        data = source.map_bytes(file.file.size)[: file.file.size]
        offsets = index.read_items(data, file.slot_count)["physical_offset"][1:].astype(np.int64)
    return int(offsets[offsets < log_end].max(initial=-1))


def _searched(file: IndexFile, key_hash: int, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
    with opened_index(file.file) as source:
        data = source.map_bytes(file.file.size)[: file.file.size]
        return index.search(data, file.slot_count, file.item_count, key_hash, begin_ms, end_ms, count_max)


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
