"""Index files: the search rule for rule, and the sizes that a file does not say."""

import struct
import tarfile
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.formats import names
from rmqstore.formats.index import (
    DEFAULT_ITEM_COUNT,
    DEFAULT_SLOT_COUNT,
    HEADER,
    ITEM,
    SLOT,
    IndexHeader,
    file_size,
    infer_sizes,
    read_header,
    read_items,
    read_slots,
    search,
)
from rmqstore.formats.java_hash import index_hash
from tests.formats.index_writer import START_MS, IndexWriter, written
from tests.golden.cases import FOLDERS, STORE_CASES, load_expected

FOREVER = 2**62


def found(index: IndexWriter, key: str, begin_ms: int = 0, end_ms: int = FOREVER, count_max: int = 64) -> list[int]:
    data = bytes(index.data)
    return search(data, index.slot_count, index.item_count, index_hash(key), begin_ms, end_ms, count_max)


def test_sizes_of_a_default_file() -> None:
    assert file_size(DEFAULT_SLOT_COUNT, DEFAULT_ITEM_COUNT) == 420_000_040


def test_the_newest_comes_first_and_other_keys_of_the_slot_are_passed() -> None:
    index = written(2, 20, ["t#a", "t#b", "t#c", "t#a", "t#d", "t#a"])
    assert found(index, "t#a") == [500, 300, 0]
    assert found(index, "t#a", count_max=2) == [500, 300]
    assert found(index, "t#a", count_max=0) == []
    assert found(index, "t#none") == []


def test_times_count_in_whole_seconds_from_the_first_item() -> None:
    index = written(1, 20, ["t#a"] * 5)  # put after 0, 0.7, 1.4, 2.1, 2.8 seconds: 0, 0, 1, 2, 2
    assert found(index, "t#a", START_MS + 1000, START_MS + 1999) == [200]
    assert found(index, "t#a", START_MS + 2000, START_MS + 2000) == [400, 300]
    assert found(index, "t#a", START_MS + 2001, FOREVER) == []
    assert found(index, "t#a", 0, START_MS) == [100, 0]


def test_the_walk_stops_behind_the_begin_time() -> None:
    index = written(1, 20, ["t#a"] * 4, step_ms=1000)
    # The item before `begin` hides an older one that (a clock went back) lies inside.
    struct.pack_into(">i", index.data, file_size(1, 2) + ITEM.offset["delay_s"], 0)
    assert found(index, "t#a", START_MS + 1, FOREVER) == [300, 200]
    assert found(index, "t#a", START_MS, FOREVER) == [300, 200, 100, 0]


@pytest.mark.parametrize(
    ("layout", "name", "value", "expected"),
    [
        (ITEM, "delay_s", -1, [300]),
        (ITEM, "previous_item", 0, [300, 200]),
        (ITEM, "previous_item", -1, [300, 200]),
        (ITEM, "previous_item", 3, [300, 200]),  # itself
        (ITEM, "previous_item", 6, [300, 200]),  # beyond index_count
        (ITEM, "key_hash", 1, [300, 100, 0]),
        (ITEM, "previous_item", 4, [300, 200, 300, 200, 300]),  # a ring: five steps for an index_count of five
        (SLOT, "newest_item", 0, []),
        (SLOT, "newest_item", -4, []),
        (SLOT, "newest_item", 6, []),
        (SLOT, "newest_item", 2, [100, 0]),
    ],
)
def test_wild_values_end_the_walk(layout, name: str, value: int, expected: list[int]) -> None:
    index = written(1, 20, ["t#a"] * 4)
    at = (HEADER.size if layout is SLOT else file_size(1, 3)) + layout.offset[name]
    struct.pack_into(">i", index.data, at, value)
    assert found(index, "t#a") == expected


@pytest.mark.parametrize("index_count", [-5, 0, 1])
def test_a_file_without_items_holds_nothing(index_count: int) -> None:
    index = written(1, 20, ["t#a"])
    struct.pack_into(">i", index.data, HEADER.offset["index_count"], index_count)
    header = read_header(bytes(index.data))
    assert header is not None
    assert header.index_count == 1
    assert found(index, "t#a") == []
    assert infer_sizes(bytes(index.data)) is None


def test_a_cut_file_answers_with_what_it_has() -> None:
    index = written(1, 20, ["t#a"] * 4)
    for size in range(len(index.data)):
        offsets = search(bytes(index.data[:size]), 1, 20, index_hash("t#a"), 0, FOREVER, 64)
        assert offsets == ([300, 200, 100, 0] if size >= file_size(1, 5) else [])


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "matches"),
    [
        (0, 99, False),
        (0, 100, True),
        (150, 160, True),
        (200, 300, True),
        (201, 300, False),
        (0, 300, True),
        (99, 201, True),
    ],
)
def test_a_file_matches_times_that_touch_it(begin_ms: int, end_ms: int, matches: bool) -> None:
    assert IndexHeader(100, 200, 0, 0, 0, 2).matches(begin_ms, end_ms) is matches


KEYS = st.lists(st.sampled_from([f"t#{number}" for number in range(25)]), max_size=60)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(62, 80), KEYS)
def test_search_finds_what_was_put(slot_count: int, item_count: int, keys: list[str]) -> None:
    index = written(slot_count, item_count, keys)
    for key in {*keys, "t#other"}:
        assert found(index, key) == [100 * n for n in reversed(range(len(keys))) if keys[n] == key]
    items = read_items(bytes(index.data), slot_count)
    assert items["key_hash"].tolist()[1:] == [index_hash(key) for key in keys]
    assert read_slots(bytes(index.data), slot_count).max() <= len(keys)


@settings(deadline=None)
@given(st.binary(max_size=400), st.integers(1, 30), st.integers(0, 50), st.integers(0, 2**31 - 1))
def test_any_bytes_are_searched_without_an_error(data: bytes, slots: int, items: int, key_hash: int) -> None:
    header = HEADER.struct.pack(START_MS, START_MS, 0, 100, 1, 40) + data
    assert len(search(data, slots, items, key_hash, 0, FOREVER, 64)) <= 64
    assert len(search(header, slots, items, key_hash, 0, FOREVER, 64)) <= 64
    for file in (data, header):
        sizes = infer_sizes(file)
        assert sizes is None or file_size(*sizes) == len(file)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 700), st.integers(3, 300), st.integers(1, 299), st.integers(0, 2**40), st.sampled_from([0, 1, 90]),
    st.integers(1, 50),
)  # fmt: skip
def test_sizes_are_inferred(slots: int, items: int, count: int, first: int, step: int, spread: int) -> None:
    index = IndexWriter(slots, items)
    for number in range(min(count, items - 1)):
        index.put(f"topic#{number % spread}", first + step * (number // 2), START_MS + number)
    assert infer_sizes(bytes(index.data)) == (slots, items)


def test_sizes_are_inferred_between_the_two_header_writes_of_a_put() -> None:
    index = written(30, 40, [f"t#{number % 7}" for number in range(20)])
    struct.pack_into(">q", index.data, HEADER.offset["end_offset"], 1800)
    assert infer_sizes(bytes(index.data)) == (30, 40)


def test_sizes_are_inferred_with_a_quarter_of_the_slots_wild() -> None:
    index = written(100, 300, [f"t#{number % 90}" for number in range(250)])
    for slot in range(0, 100, 4):
        struct.pack_into(">i", index.data, HEADER.size + SLOT.size * slot, (slot * 0x01010101 + 0x7654321) % 2**31)
    assert infer_sizes(bytes(index.data)) == (100, 300)


def test_sizes_of_a_header_over_zeros_are_unknown() -> None:
    index = written(30, 40, ["t#a", "t#b", "t#c"])
    index.data[HEADER.size :] = bytes(len(index.data) - HEADER.size)
    assert infer_sizes(bytes(index.data)) is None


@pytest.mark.parametrize("case", STORE_CASES)
def test_sizes_of_real_files_are_inferred(case: str) -> None:
    config = load_expected(case)["config"]
    with tarfile.open(FOLDERS[case] / "store.tar.gz") as archive:
        files = [member for member in archive if member.isfile() and PurePosixPath(member.name).parent.name == "index"]
        for member in files:
            stream = archive.extractfile(member)
            assert stream is not None
            data = stream.read()
            header = read_header(data)
            if names.parse_index_name(PurePosixPath(member.name).name) and header and header.index_count > 1:
                assert infer_sizes(data) == (config["maxHashSlotNum"], config["maxIndexNum"]), member.name
