"""Bytes of a page become Arrow values: the same as one by one in a plain loop."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.java_text import java_text
from rmqstore.records.gather import (
    binary_array,
    bytes_of,
    constant_text,
    hex_array,
    is_ascii,
    joined_bytes,
    millis_to_timestamps,
    repeated_texts,
    text_array,
    text_of,
)

I64_MAX = 2**63 - 1
LIMIT_MS = I64_MAX // 1000
# Inline views hold up to 12 bytes; 64 is where values of one size stop being gathered as blocks.
SIZES = st.sampled_from([0, 1, 3, 11, 12, 13, 14, 40, 64, 65])
UTF8 = st.sampled_from([b"abc", "é".encode(), "€".encode(), b"\xff", b"\xed\xa0\x80", b"\xc3", b"\0", b"\xf0\x9f"])


@st.composite
def pages(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]], list[bool]]:
    """A page, ranges within it (some at its very end), and which of them are absent."""
    page = draw(st.binary(max_size=120) | st.lists(UTF8, max_size=40).map(b"".join))
    uniform = draw(st.none() | SIZES)
    ranges = []
    for _ in range(draw(st.integers(0, 8))):
        size = min(draw(SIZES) if uniform is None else uniform, len(page))
        at_end = draw(st.booleans())
        ranges.append((len(page) - size if at_end else draw(st.integers(0, len(page) - size)), size))
    return page, ranges, draw(st.lists(st.booleans(), min_size=len(ranges), max_size=len(ranges)))


def columns(page: bytes, ranges: list[tuple[int, int]], kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    starts, sizes = np.array([r[0] for r in ranges], kind), np.array([r[1] for r in ranges], kind)
    return np.frombuffer(page, np.uint8), starts, sizes


@given(pages(), st.sampled_from(["i4", "i8"]))
def test_binary_array_copies_each_range(drawn: tuple[bytes, list[tuple[int, int]], list[bool]], kind: str) -> None:
    page, ranges, absent = drawn
    values = [page[at : at + size] for at, size in ranges]
    found = binary_array(*columns(page, ranges, kind))
    found.validate(full=True)
    assert found.type == pa.binary()
    assert found.to_pylist() == values
    with_nulls = binary_array(*columns(page, ranges, kind), np.array(absent, bool))
    with_nulls.validate(full=True)
    assert with_nulls.to_pylist() == [None if a else v for v, a in zip(values, absent, strict=True)]


@given(pages())
def test_text_of_replaces_what_is_no_utf8_as_java_does(drawn: tuple[bytes, list[tuple[int, int]], list[bool]]) -> None:
    page, ranges, absent = drawn
    found = text_of(*columns(page, ranges, "i8"), np.array(absent, bool))
    found.validate(full=True)
    assert found.type == pa.string()
    assert found.to_pylist() == [
        None if a else java_text(page[at : at + size]) for (at, size), a in zip(ranges, absent, strict=True)
    ]


@given(pages())
def test_plain_ascii_needs_no_look(drawn: tuple[bytes, list[tuple[int, int]], list[bool]]) -> None:
    page, ranges, absent = drawn
    page = bytes(byte & 0x7F for byte in page)
    data = columns(page, ranges, "i8")
    assert is_ascii(data[0])
    assert text_of(*data, np.array(absent, bool), is_ascii=True).equals(text_of(*data, np.array(absent, bool)))


def test_absent_rows_may_lie_anywhere() -> None:
    page = np.frombuffer(b"abcdef", np.uint8)
    found = binary_array(page, np.array([0, 10**6]), np.array([3, -1]), np.array([False, True]))
    assert found.to_pylist() == [b"abc", None]


@pytest.mark.parametrize("size", [0, 1, 12, 13, 64, 65])
@pytest.mark.parametrize("count", [1, 3])
def test_uniform_sizes_up_to_the_last_byte(size: int, count: int) -> None:
    page = bytes(range(size * count))
    ranges = [(size * number, size) for number in range(count)]
    assert binary_array(*columns(page, ranges, "i8")).to_pylist() == [page[at : at + n] for at, n in ranges]


def test_invalid_utf8_is_counted_as_java_counts_it() -> None:
    values = pa.array([b"ok", None, b"\xed\xa0\x80x", b"\xff\xff"], pa.binary())
    assert text_array(values).to_pylist() == ["ok", None, "\ufffdx", "\ufffd\ufffd"]


@given(st.lists(st.binary(max_size=9), max_size=6), st.integers(0, 6))
def test_bytes_of_gives_data_and_offsets_of_slices_too(values: list[bytes], first: int) -> None:
    data, offsets = bytes_of(pa.array(values, pa.binary()).slice(first))
    assert offsets.dtype == np.int64
    found = [data[low:high].tobytes() for low, high in itertools.pairwise(offsets)]
    assert found == values[first:]


@pytest.mark.parametrize(
    ("millis", "micros"),
    [
        (0, 0),
        (1_700_000_000_000, 1_700_000_000_000_000),
        (-1, -1000),
        (LIMIT_MS, LIMIT_MS * 1000),
        (-LIMIT_MS, -LIMIT_MS * 1000),
        (LIMIT_MS + 1, None),
        (-LIMIT_MS - 1, None),
        (I64_MAX, None),
        (-I64_MAX - 1, None),
    ],
)
def test_times_that_do_not_fit_are_null(millis: int, micros: int | None) -> None:
    found = millis_to_timestamps(np.array([5, millis], np.int64))
    assert found.type == pa.timestamp("us", tz="UTC")
    assert found.cast(pa.int64()).to_pylist() == [5000, micros]


@given(st.integers(1, 9).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1)))
def test_hex_is_upper_case(rows: list[bytes]) -> None:
    found = hex_array(np.array([list(row) for row in rows], np.uint8))
    found.validate(full=True)
    assert found.to_pylist() == [row.hex().upper() for row in rows]


def test_is_ascii_ends_at_127() -> None:
    assert is_ascii(np.zeros(0, np.uint8))
    assert is_ascii(np.array([0, 127], np.uint8))
    assert not is_ascii(np.array([0, 128], np.uint8))


def test_constant_text_may_be_null() -> None:
    assert constant_text("a", 2).to_pylist() == ["a", "a"]
    assert constant_text(None, 2).to_pylist() == [None, None]
    assert constant_text(None, 2).type == pa.string()


def test_texts_are_repeated_row_after_row() -> None:
    repeated = repeated_texts((b"TAGS", b"k", b"x" * 20), 3)
    assert repeated is not None
    repeated.validate(full=True)
    assert repeated.to_pylist() == ["TAGS", "k", "x" * 20] * 3
    assert repeated_texts((b"TAGS", "\u00dc".encode()), 3) is None
    assert repeated_texts((b"x" * 2**20,), 2**11) is None  # Arrow's offsets have 32 bits


@pytest.mark.parametrize("sizes", [[5] * 100, [0] * 100, [20, 30] * 50, [3, 30] * 50, [100] * 100, [0, 70] * 40, [9]])
def test_joined_bytes_lays_slices_end_to_end(sizes: list[int]) -> None:
    page = (np.arange(20_000) % 251).astype(np.uint8)
    positions = np.arange(len(sizes), dtype=np.int64) * 150
    data, offsets = joined_bytes(page, positions, np.array(sizes, np.int64))
    expected = [page[at : at + size].tobytes() for at, size in zip(positions.tolist(), sizes, strict=True)]
    assert data.tobytes() == b"".join(expected)
    assert offsets.tolist() == np.cumsum([0, *sizes]).tolist()
