"""Putting many items at once into an index file, and finding some: the vector twin of Java's IndexFile.putKey.

The bytes of a file do not tell whether its items came one by one or in vectors of any length.  `index` holds the
layout, the scalar reader, and what a file is.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.core.arguments import I32_MAX
from rmqstore.formats.index import (
    HEADER,
    ITEM,
    SLOT,
    IndexHeader,
    Pages,
    file_size,
    put_count,
    read_run,
    read_slots,
)
from rmqstore.formats.java_hash import lockstep_hashes, other_hashes, powers
from rmqstore.formats.message_columns import Bytes, Ints, Places, gather_bytes
from rmqstore.formats.properties import KEY_SEPARATOR

_MASK = 0xFFFFFFFF
_SEPARATOR = ord(KEY_SEPARATOR)
# Texts of few bytes in all are hashed as one padded matrix: twenty numpy calls, whatever their length.
_MATRIX_SIZE_MAX = 32 * 1024
# Texts of one size go block by block, which stays in the second-level cache.
_BLOCK_COUNT = 8192
# Texts of few sizes, as unique keys beside keys are, go size by size: 33 ns a text of 16 or 32 bytes where the call for
# each character takes 75, as long as there are about so many of each size.
_GROUPED_COUNT_MIN = 256
_GROUPED_WIDTH_MAX = 256
# An array of numbers that repeats a row keeps the last: numpy assigns in order.  Rows are tied to their slots by
# sorting slot << _ROW_BITS | row.
_ROW_BITS = 31
# Items looked at at once where a whole file is checked: what they need stays in the second-level cache.
_CHECKED_COUNT = 64 * 1024

View = memoryview | Bytes


def put_items(view: View, slot_count: int, item_count: int, hashes: Ints, offsets: Ints, store_ms: Ints) -> int:
    """Puts items until the file is full; returns how many it took, from the first on.

    `view` is the whole file, writable, at least `file_size(slot_count, item_count)` bytes; the three int64[n] are the
    key hashes (0 … 2**31 - 1, `java_hash.index_hash`), the commitlog offsets and the store times of the items in the
    order of the log.  A wrong count or slot that a damaged file holds is treated as Java treats it.

    A reader of the mapping meanwhile always finds a searchable file: items are written before the count that makes
    them known, then the slots, then the header's end, which says how far everything is indexed.  Raises ValueError for
    a view that is too short and for a hash below 0.
    """
    page = np.frombuffer(view, np.uint8)
    if len(page) < file_size(slot_count, item_count):
        raise ValueError(f"an index file of {len(page)} bytes has no room for {slot_count} slots, {item_count} items")
    header = np.frombuffer(page, HEADER.dtype, 1)
    count = max(int(header["index_count"][0]), 1)
    taken = min(len(hashes), item_count - count)
    if taken <= 0:
        return 0
    hashes, offsets, store_ms = hashes[:taken], offsets[:taken], store_ms[:taken]
    if int(hashes.min()) < 0:
        raise ValueError("a key hash is never negative")
    slots = np.frombuffer(page, SLOT.dtype, slot_count, HEADER.size)["newest_item"]
    chains = _link(slots, hashes % slot_count, count)

    items = np.frombuffer(page, ITEM.dtype, taken, file_size(slot_count, count))
    items["key_hash"] = hashes
    items["physical_offset"] = offsets
    items["delay_s"] = _delays(store_ms, int(header["begin_timestamp_ms"][0]), count)
    items["previous_item"] = chains.previous
    if count <= 1:
        header["begin_timestamp_ms"], header["begin_offset"] = store_ms[0], offsets[0]
    header["used_slot_count"] += chains.new_count
    header["index_count"] = count + taken
    slots[chains.touched] = chains.newest
    header["end_timestamp_ms"], header["end_offset"] = store_ms[-1], offsets[-1]
    return taken


class _Chains(NamedTuple):
    """How n new items hang in their chains: the slots touched, the newest item of each of these, the previous item of
    every new one, int64[n], and how many found an empty slot."""

    touched: Ints
    newest: Ints
    previous: Ints
    new_count: int


def _link(slots: npt.NDArray[np.int32], wanted: Ints, count: int) -> _Chains:
    """The chains of items that want these slots, in their order; `count` is the number of the first."""
    taken = len(wanted)
    order = wanted << _ROW_BITS | np.arange(taken)
    order.sort()
    rows = order & ((1 << _ROW_BITS) - 1)
    order >>= _ROW_BITS
    is_first = np.ones(taken, bool)
    np.not_equal(order[1:], order[:-1], out=is_first[1:])
    numbers = rows + count
    before = np.empty(taken, np.int64)
    before[1:] = numbers[:-1]
    firsts = np.flatnonzero(is_first)
    touched = order[firsts]
    stored = slots[touched].astype(np.int64)
    stored[(stored < 0) | (stored > numbers[firsts])] = 0  # Java: invalidIndex, and a slot beyond the count
    before[firsts] = stored
    previous = np.empty(taken, np.int64)
    previous[rows] = before
    lasts = np.append(firsts[1:], taken) - 1
    return _Chains(touched, numbers[lasts], previous, int(np.count_nonzero(stored == 0)))


def _delays(store_ms: Ints, begin_ms: int, count: int) -> Ints:
    """Whole seconds since the header's begin, 0 … 2**31 - 1; the first item of a file counts from the preset begin."""
    delays: Ints = np.zeros(len(store_ms), np.int64)
    if begin_ms > 0:
        delays = (store_ms - begin_ms) // 1000
    if count <= 1:
        first_ms = int(store_ms[0])
        delays[1:] = (store_ms[1:] - first_ms) // 1000 if first_ms > 0 else 0
    return delays.clip(0, I32_MAX, out=delays)


def finds_all(data: Pages, slot_count: int) -> bool:
    """Whether a search finds every item that the header counts: slots, chains and places in the log are as if the items
    had been put one by one.

    Damage of a slot or an item, or a crash between the pages of a file, makes the chains lose items, which nothing else
    tells: a search cannot know of what it does not come across.  Takes 4 bytes a slot.
    """
    count = put_count(data, slot_count)
    slots = np.zeros(slot_count, np.int32)
    place = -1
    for first in range(1, count, _CHECKED_COUNT):
        rows = read_run(data, slot_count, first, min(_CHECKED_COUNT, count - first))
        hashes, places = rows["key_hash"].astype(np.int64), rows["physical_offset"].astype(np.int64)
        if int(hashes.min()) < 0 or int(rows["delay_s"].min()) < 0 or int(places[0]) < place:
            return False
        chains = _link(slots, hashes % slot_count, first)
        if not np.array_equal(chains.previous, rows["previous_item"]) or (places[1:] < places[:-1]).any():
            return False
        slots[chains.touched] = chains.newest
        place = int(places[-1])
    return count > 1 and np.array_equal(slots, read_slots(data, slot_count))


def preset_header(view: View, end_timestamp_ms: int, end_offset: int) -> None:
    """Begins an empty file where the file before it ended, as far as that is known (Java: the constructor of
    IndexFile).
    """
    header = np.frombuffer(view, HEADER.dtype, 1)
    if end_offset > 0:
        header["begin_offset"] = header["end_offset"] = end_offset
    if end_timestamp_ms > 0:
        header["begin_timestamp_ms"] = header["end_timestamp_ms"] = end_timestamp_ms


def find_offsets(
    view: View, slot_count: int, item_count: int, key_hash: int, times_ms: tuple[int, int], count_max: int
) -> list[int]:
    """`index.search` of a file that is being written, and a stop at a chain that does not go back.

    Physical offsets of the items with `key_hash` put in the closed range `times_ms`, newest first, at most
    `count_max`.  The slot is read before the count, so that an item put meanwhile never hides the older ones; every
    step must lead to an older item, so that a ring in a damaged file ends at once.
    """
    data = memoryview(view)
    if slot_count < 1 or len(data) < file_size(slot_count, 0):
        return []
    offsets: list[int] = []
    begin_ms, end_ms = times_ms
    (number,) = SLOT.struct.unpack_from(data, HEADER.size + SLOT.size * (key_hash % slot_count))
    header = IndexHeader(*HEADER.struct.unpack_from(data))
    room = min(item_count, (len(data) - file_size(slot_count, 0)) // ITEM.size)
    while 0 < number < min(room, header.index_count + 1) and len(offsets) < count_max and header.index_count > 1:
        item_hash, physical_offset, delay_s, previous = ITEM.struct.unpack_from(data, file_size(slot_count, number))
        put_ms = header.begin_timestamp_ms + delay_s * 1000
        if delay_s < 0:
            break
        if item_hash == key_hash and begin_ms <= put_ms <= end_ms:
            offsets.append(physical_offset)
        if previous >= number or put_ms < begin_ms:
            break
        number = previous
    return offsets


def text_hashes(data: Bytes, starts: Places, sizes: Places) -> npt.NDArray[np.int32]:
    """`java_hash.string_hashes` for few or uniform texts, without its call for each character; int32[n].

    Bounds and meaning are the same.
    """
    hashes, others = _ascii_hashes(data, starts, sizes)
    if len(others):
        hashes[others], _ = other_hashes(data, starts[others], sizes[others])
    return hashes.view(np.int32)


def _ascii_hashes(data: Bytes, starts: Places, sizes: Places) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.intp]]:
    """The hashes of ASCII texts, uint32[n], and the rows of others, whose values mean nothing."""
    width = int(sizes.max(initial=0))
    if not width:
        return np.zeros(len(starts), np.uint32), np.empty(0, np.intp)
    uniform = int(sizes.min()) == width
    if not uniform and len(starts) * width > _MATRIX_SIZE_MAX:
        by_size = _of_few_sizes(data, starts, sizes)
        return by_size or lockstep_hashes(data, starts.astype(np.int64), sizes.astype(np.int64))
    hashes = np.empty(len(starts), np.uint32)
    others = []
    weights = powers(width)[width - 1 :: -1]
    for first in range(0, len(starts), _BLOCK_COUNT):
        rows = slice(first, first + _BLOCK_COUNT)
        if uniform:
            texts = gather_bytes(data, starts[rows], width).view(np.uint8).reshape(-1, width)
        else:
            texts = _right_aligned(data, starts[rows].astype(np.int64), sizes[rows], width)
        np.einsum("ij,j->i", texts.astype(np.uint32), weights, out=hashes[rows])
        if texts.max() >= 0x80:
            others.append(first + np.flatnonzero(texts.max(axis=1) >= 0x80))
    return hashes, np.concatenate(others) if others else np.empty(0, np.intp)


def _of_few_sizes(
    data: Bytes, starts: Places, sizes: Places
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.intp]] | None:
    """`_ascii_hashes`, one size at a time; None where there are too many sizes for that to pay."""
    if int(sizes.max()) > _GROUPED_WIDTH_MAX:
        return None
    present = np.flatnonzero(np.bincount(np.maximum(sizes, 0)))
    if len(present) * _GROUPED_COUNT_MIN > len(sizes):
        return None
    hashes = np.zeros(len(sizes), np.uint32)
    others = [np.empty(0, np.intp)]
    for size in present[present > 0].tolist():
        rows = np.flatnonzero(sizes == size)
        hashes[rows], found = _ascii_hashes(data, starts[rows], sizes[rows])
        others.append(rows[found])
    return hashes, np.concatenate(others)


def _right_aligned(data: Bytes, starts: Ints, sizes: Places, width: int) -> npt.NDArray[np.uint8]:
    """The texts as rows of a matrix uint8[n, width], zeros to their left."""
    columns = np.arange(width)
    skipped = (width - np.maximum(sizes, 0))[:, None]
    texts: npt.NDArray[np.uint8] = data[np.maximum(starts[:, None] + columns - skipped, 0)]
    texts[columns < skipped] = 0
    return texts


def key_hashes(prefix_hashes: Ints, data: Bytes, starts: Places, sizes: Places) -> Ints:
    """`java_hash.index_hash` of a prefix and a key, int64[n], 0 … 2**31 - 1.

    `prefix_hashes` int64[n] are the string hashes of the prefixes (`topic#`), the keys are UTF-8 slices of `data`.
    """
    hashes, others = _ascii_hashes(data, starts, sizes)
    unit_counts = np.maximum(sizes, 0)
    if len(others):
        hashes[others], unit_counts[others] = other_hashes(data, starts[others], sizes[others])
    values = hashes.astype(np.int64)
    values += (prefix_hashes & _MASK) * powers(int(sizes.max(initial=0)) + 1)[unit_counts].astype(np.int64) & _MASK
    return index_hashes((values & _MASK).astype(np.uint32).view(np.int32))


def index_hashes(of_texts: npt.NDArray[np.int32]) -> Ints:
    """The key hashes that string hashes int32[n] make: `java_hash.index_hash`, int64[n]."""
    hashes = np.abs(of_texts.astype(np.int64))
    hashes[hashes > I32_MAX] = 0
    return hashes


def merged(total: int, first_places: Ints, first: Places, second_places: Ints, second: Places) -> Ints:
    """int64[total] with the values of `first` and of `second` at the places given for each, which fill it."""
    values = np.empty(total, np.int64)
    values[first_places] = first
    values[second_places] = second
    return values


class KeyPieces(NamedTuple):
    """Where the single keys begin, how long they are, and which value each is of: int64[pieces] three times."""

    starts: Ints
    sizes: Ints
    rows: Ints


def split_keys(data: Bytes, starts: Places, sizes: Places) -> KeyPieces:
    """The pieces between single spaces, but for empty ones, of n values that lie in ascending order in `data` (size -1:
    absent).
    """
    rows = np.flatnonzero(sizes > 0)
    low: Ints = starts[rows].astype(np.int64)
    high = low + sizes[rows]
    if not len(rows):
        return KeyPieces(low, high, rows)
    spaces = np.flatnonzero(data == _SEPARATOR)
    if len(spaces):
        values = np.searchsorted(low, spaces, side="right") - 1
        inside = (values >= 0) & (spaces < high[values])
        spaces, values = spaces[inside], values[inside]
    if not len(spaces):
        return KeyPieces(low, high - low, rows)
    # Values do not overlap, so the k-th begin in order belongs to the k-th end in order.
    before = np.arange(len(rows)) + np.searchsorted(spaces, low)
    after = np.arange(len(spaces)) + values + 1
    total = len(rows) + len(spaces)
    owners = merged(total, before, rows, after, rows[values])
    begins = merged(total, before, low, after, spaces + 1)
    ends = merged(total, after - 1, spaces, np.append(before[1:], total) - 1, high)
    kept = ends > begins
    return KeyPieces(begins[kept], (ends - begins)[kept], owners[kept])
