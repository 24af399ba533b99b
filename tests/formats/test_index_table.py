"""Index files written in vectors: byte for byte what Java's one-by-one puts leave, whatever the slicing."""

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.formats import index
from rmqstore.formats.index import HEADER, ITEM, SLOT, file_size, read_header
from rmqstore.formats.index_table import find_offsets, key_hashes, preset_header, put_items, split_keys, text_hashes
from rmqstore.formats.java_hash import index_hash, string_hash
from rmqstore.formats.java_text import java_text

SLOT_COUNT, ITEM_COUNT = 7, 25
I32_MAX = 2**31 - 1
TIMES = st.one_of(st.integers(-5_000, 20_000), st.integers(0, 2**62), st.sampled_from([0, 1, I32_MAX * 1000 + 5_000]))
ITEMS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**40), TIMES), max_size=40)


def java_put(data: bytearray, key_hash: int, offset: int, store_ms: int) -> bool:
    """IndexFile.putKey on a file of SLOT_COUNT and ITEM_COUNT, step by step on the bytes."""
    begin_ms, _, begin_offset, _, used, count = HEADER.struct.unpack_from(data)
    count = max(count, 1)
    if count >= ITEM_COUNT:
        return False
    slot_at = HEADER.size + SLOT.size * (key_hash % SLOT_COUNT)
    (newest,) = struct.unpack_from(">i", data, slot_at)
    if newest <= 0 or newest > count:
        newest = 0
    difference = store_ms - begin_ms
    delay_s = difference // 1000 if difference >= 0 else -(-difference // 1000)
    if begin_ms <= 0:
        delay_s = 0
    elif delay_s > I32_MAX:
        delay_s = I32_MAX
    elif delay_s < 0:
        delay_s = 0
    ITEM.struct.pack_into(data, file_size(SLOT_COUNT, count), key_hash, offset, delay_s, newest)
    struct.pack_into(">i", data, slot_at, count)
    if count <= 1:
        begin_ms, begin_offset = store_ms, offset
    HEADER.struct.pack_into(data, 0, begin_ms, store_ms, begin_offset, offset, used + (newest == 0), count + 1)
    return True


def put(data: bytearray, items: list[tuple[int, int, int]]) -> int:
    columns = np.array(items, np.int64).reshape(-1, 3).T
    return put_items(memoryview(data), SLOT_COUNT, ITEM_COUNT, *(np.ascontiguousarray(column) for column in columns))


@st.composite
def starting_files(draw: st.DrawFn) -> bytearray:
    """A new file, one preset as after a full one, or one with a wild header and slots."""
    data = bytearray(file_size(SLOT_COUNT, ITEM_COUNT))
    kind = draw(st.sampled_from(["new", "preset", "wild"]))
    if kind == "preset":
        preset_header(data, draw(TIMES), draw(st.integers(-1, 2**40)))
    if kind == "wild":
        HEADER.struct.pack_into(data, 0, draw(TIMES), 0, 5, 6, draw(st.integers(0, 9)), draw(st.integers(-2, 30)))
        slots = draw(st.lists(st.integers(-3, 40), min_size=SLOT_COUNT, max_size=SLOT_COUNT))
        struct.pack_into(f">{SLOT_COUNT}i", data, HEADER.size, *slots)
    return data


@given(starting_files(), ITEMS, st.lists(st.integers(0, 40), max_size=6))
@settings(max_examples=100, deadline=None)
def test_any_slicing_writes_the_bytes_of_one_by_one_puts(start, items, cuts) -> None:
    expected, data = bytearray(start), bytearray(start)
    taken_by_java = sum(java_put(expected, *item) for item in items)
    bounds = sorted({0, *(min(cut, len(items)) for cut in cuts), len(items)})
    taken = sum(put(data, items[low:high]) for low, high in pairwise(bounds))
    assert taken == taken_by_java
    assert data == expected


def test_a_full_file_takes_nothing_more() -> None:
    data = bytearray(file_size(SLOT_COUNT, ITEM_COUNT))
    items = [(number % 3, number, 1000) for number in range(ITEM_COUNT + 5)]
    assert put(data, items) == ITEM_COUNT - 1
    before = bytes(data)
    assert put(data, items) == 0
    assert data == before
    header = read_header(bytes(data))
    assert header is not None
    assert (header.index_count, header.used_slot_count, header.end_offset) == (ITEM_COUNT, 3, ITEM_COUNT - 2)


def test_what_is_too_short_or_negative_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        put_items(bytearray(40), SLOT_COUNT, ITEM_COUNT, *[np.ones(1, np.int64)] * 3)
    with pytest.raises(ValueError, match="negative"):
        put(bytearray(file_size(SLOT_COUNT, ITEM_COUNT)), [(-1, 0, 0)])


def test_a_preset_header_leaves_out_what_is_not_known() -> None:
    data = bytearray(file_size(SLOT_COUNT, ITEM_COUNT))
    preset_header(data, 0, 0)
    assert not any(data)
    preset_header(data, 9, 0)
    assert HEADER.read(bytes(data)) | {"used_slot_count": 0} == {
        "begin_timestamp_ms": 9, "end_timestamp_ms": 9, "begin_offset": 0, "end_offset": 0,
        "used_slot_count": 0, "index_count": 0,
    }  # fmt: skip


@given(starting_files(), ITEMS, st.integers(0, 40), st.integers(-5_000, 20_000), st.integers(0, 2**62))
@settings(max_examples=60, deadline=None)
def test_find_answers_as_the_specification_on_sound_files(start, items, key_hash, begin_ms, end_ms) -> None:
    data = bytearray(len(start))
    put(data, items)
    for count_max in (0, 1, 3, 64):
        wanted = (begin_ms, end_ms)
        found = find_offsets(memoryview(data), SLOT_COUNT, ITEM_COUNT, key_hash, wanted, count_max)
        assert found == index.search(bytes(data), SLOT_COUNT, ITEM_COUNT, key_hash, *wanted, count_max)


def test_a_ring_of_items_ends_at_once() -> None:
    data = bytearray(file_size(SLOT_COUNT, ITEM_COUNT))
    put(data, [(1, number, 1000) for number in range(1, 6)])
    for item, previous in ((5, 4), (4, 5)):
        struct.pack_into(">i", data, file_size(SLOT_COUNT, item) + ITEM.offset["previous_item"], previous)
    assert find_offsets(data, SLOT_COUNT, ITEM_COUNT, 1, (0, 2**62), 64) == [5, 4]


@pytest.mark.parametrize("newest", [-1, 0, 6, 24, 26, 2**31 - 1])
@pytest.mark.parametrize("index_count", [-5, 0, 1, 3, 2**31 - 1])
def test_wild_slots_and_counts_stay_inside_the_file(newest: int, index_count: int) -> None:
    data = bytearray(file_size(SLOT_COUNT, ITEM_COUNT))
    put(data, [(1, number, 1000) for number in range(1, 6)])
    struct.pack_into(">i", data, HEADER.size + SLOT.size, newest)
    struct.pack_into(">i", data, HEADER.offset["index_count"], index_count)
    found = find_offsets(data, SLOT_COUNT, ITEM_COUNT, 1, (0, 2**62), 64)
    assert found == index.search(bytes(data), SLOT_COUNT, ITEM_COUNT, 1, 0, 2**62, 64)
    assert find_offsets(data[:60], SLOT_COUNT, ITEM_COUNT, 1, (0, 2**62), 64) == []


TEXTS = st.lists(
    st.one_of(st.binary(max_size=12), st.text(max_size=9).map(str.encode), st.just(b"uniform!")), max_size=9
)


@given(TEXTS, st.lists(st.text(max_size=6), min_size=9, max_size=9), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_hashes_are_those_of_single_texts(texts, prefixes, copies) -> None:
    texts = texts * copies
    data = np.frombuffer(b"".join(texts), np.uint8)
    sizes = np.array([len(text) for text in texts], np.int64)
    starts = np.cumsum(sizes) - sizes
    decoded = [java_text(text) for text in texts]
    assert text_hashes(data, starts, sizes).tolist() == [string_hash(text) for text in decoded]
    named = [prefixes[number % 9] for number in range(len(texts))]
    prefix_hashes = np.array([string_hash(prefix) for prefix in named], np.int64)
    expected = [index_hash(prefix + text) for prefix, text in zip(named, decoded, strict=True)]
    assert key_hashes(prefix_hashes, data, starts, sizes).tolist() == expected


@pytest.mark.parametrize("width", [3, 32, 260])
@pytest.mark.parametrize("step", [0, 1])
def test_hashes_of_many_texts(width: int, step: int) -> None:
    sizes = width - (np.arange(9_000, dtype=np.int64) % 3) * step
    starts = np.cumsum(sizes) - sizes
    data = (np.arange(int(sizes.sum())) * 7 % 90 + 33).astype(np.uint8)
    rows = [0, 1, 2, 8191, 8192, 8_999]
    texts = [data[starts[row] : starts[row] + sizes[row]].tobytes().decode() for row in rows]
    assert text_hashes(data, starts, sizes)[rows].tolist() == [string_hash(text) for text in texts]


@pytest.mark.parametrize("sizes", [(16, 32), (0, 16, 31), (-1, 24), (5, 300), tuple(range(1, 40))])
def test_hashes_of_many_texts_of_these_sizes(sizes: tuple[int, ...]) -> None:
    texts = [f"{row:0>{max(size, 0)}}"[: max(size, 0)] for row, size in enumerate(sizes * (12_000 // len(sizes)))]
    longest = max(sizes)
    texts = [f"ü{text[2:]}" if len(text) == longest and row % 97 == 0 else text for row, text in enumerate(texts)]
    encoded = [text.encode() for text in texts]
    told = np.array([len(each) or min(*sizes, 0) for each in encoded], np.int64)
    starts = np.cumsum([len(each) for each in encoded]) - [len(each) for each in encoded]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    assert text_hashes(data, starts, told).tolist() == [string_hash(text) for text in texts]


def test_the_hash_without_an_absolute_value_is_0() -> None:
    data = np.frombuffer(b"lubricants", np.uint8)
    prefix = np.array([string_hash("polygene")], np.int64)
    assert key_hashes(prefix, data, np.array([0]), np.array([10])).tolist() == [0]


@given(st.lists(st.tuples(st.text("xy ", max_size=9), st.text(" z", max_size=3)), max_size=9), st.data())
@settings(max_examples=60, deadline=None)
def test_keys_are_split_at_single_spaces(values, data) -> None:
    text, starts, sizes, expected = "", [], [], []
    for row, (value, between) in enumerate(values):
        is_absent = data.draw(st.booleans())
        starts.append(len(text))
        sizes.append(-1 if is_absent else len(value))
        expected += [] if is_absent else [(key, row) for key in value.split(" ") if key]
        text += value + between
    page = np.frombuffer(text.encode(), np.uint8)
    found = split_keys(page, np.array(starts, np.int64), np.array(sizes, np.int64))
    assert [
        (text[at : at + size], row) for at, size, row in zip(*(each.tolist() for each in found), strict=True)
    ] == expected
