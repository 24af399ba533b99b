"""Body CRC, CRC property, and the CRCs of many slices at once."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.formats.properties import encode_properties
from rmqstore.formats.record_crc import (
    crc_digits,
    masked_crc32,
    masked_crc32s,
    property_crc,
    property_crcs_hold,
    verify_property_crc,
)


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0), (b"hello", 907060870), (b"hello world", 222957957), (b"a" * 100, 795900516), (b"0123456789", 646236102)],
)
def test_the_sign_bit_is_cleared(data: bytes, value: int) -> None:
    assert masked_crc32(data) == value


@pytest.mark.parametrize(
    ("value", "digits"),
    [(222957957, b"7597592220"), (1234, b"4321000000"), (0, b"0000000000"), (2**31 - 1, b"7463847412")],
)
def test_digits_come_least_significant_first(value: int, digits: bytes) -> None:
    assert crc_digits(value) == digits


def test_a_record_with_its_crc_verifies_and_every_flipped_byte_shows() -> None:
    record = bytes(range(90)) + encode_properties({"TAGS": "A"})
    record += property_crc(record)
    assert verify_property_crc(record) is True
    assert verify_property_crc(memoryview(record)) is True
    for position in range(len(record)):
        damaged = bytearray(record)
        damaged[position] ^= 0x10
        assert verify_property_crc(bytes(damaged)) is False


@pytest.mark.parametrize("places", [(-20, -19), (-20, -1), (-13, -12), (-20, -8)])
def test_what_only_resembles_the_property_is_another_one(places: tuple[int, int]) -> None:
    record = bytearray(bytes(range(90)) + property_crc(bytes(range(90))))
    for place in places:  # two bytes of the name, or one and a digit
        record[place] ^= 1
    assert verify_property_crc(bytes(record)) is None
    page, size = np.frombuffer(bytes(record), np.uint8), np.array([len(record)])
    assert property_crcs_hold(page, np.zeros(1, np.int64), size, np.array([20])).all()


@pytest.mark.parametrize("record", [b"", b"x" * 19, b"x" * 200, encode_properties({"__CRC32#": "12"})])
def test_a_record_without_the_property_says_so(record: bytes) -> None:
    assert verify_property_crc(record) is None


SLICES = st.lists(st.tuples(st.integers(0, 700), st.integers(0, 300)), max_size=120)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), SLICES, st.integers(0, 7))
def test_many_slices_agree_with_single_ones(seed: int, slices: list[tuple[int, int]], skew: int) -> None:
    page = np.random.default_rng(seed).integers(0, 256, 1000 + skew, np.uint8)[skew:]  # at any alignment in memory
    starts = np.array([start for start, _ in slices], np.int64)
    sizes = np.array([size for _, size in slices], np.int64)
    expected = [zlib.crc32(page[start : start + size].tobytes()) & 0x7FFFFFFF for start, size in slices]
    assert masked_crc32s(page, starts, sizes).tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 63, 64, 5000])
@pytest.mark.parametrize("size_max", [1, 4, 192, 400])
def test_the_lockstep_and_the_single_path_agree(count: int, size_max: int) -> None:
    random = np.random.default_rng(count + size_max)
    page = random.integers(0, 256, 4096, np.uint8)
    sizes = random.integers(0, size_max + 1, count)
    starts = random.integers(0, len(page) - size_max, count)
    starts[: count // 2] = len(page) - sizes[: count // 2]  # up to the last byte
    expected = [masked_crc32(page[start : start + size].tobytes()) for start, size in zip(starts, sizes, strict=True)]
    assert masked_crc32s(page, starts, sizes).tolist() == expected


def test_a_read_only_page_and_an_empty_page_are_fine() -> None:
    page = np.frombuffer(b"hello" * 100, np.uint8)
    starts = np.arange(100, dtype=np.int64) * 5
    assert set(masked_crc32s(page, starts, np.full(100, 5)).tolist()) == {907060870}
    assert masked_crc32s(page[:0], np.zeros(100, np.int64), np.zeros(100, np.int64)).tolist() == [0] * 100


@pytest.mark.parametrize(("start", "size"), [(-1, 2), (0, 11), (11, 0), (0, -1), (2**62, 1), (5, 2**63 - 1)])
def test_a_slice_outside_the_page_is_an_error(start: int, size: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        masked_crc32s(np.zeros(10, np.uint8), np.array([start]), np.array([size]))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.binary(max_size=60), st.booleans(), st.integers(-1, 90)), min_size=1, max_size=80))
def test_many_crc_properties_agree_with_single_ones(parts: list[tuple[bytes, bool, int]]) -> None:
    records = []
    for body, with_crc, flip in parts:
        record = bytearray(b"head" * 5 + body)
        record += property_crc(bytes(record)) if with_crc else b""
        if 0 <= flip < len(record):
            record[flip] ^= 0x81
        records.append(bytes(record))
    sizes = np.array([len(record) for record in records], np.int64)
    page = np.frombuffer(b"".join(records), np.uint8)
    holds = property_crcs_hold(page, np.cumsum(sizes) - sizes, sizes, np.full(len(records), 20))
    assert holds.tolist() == [verify_property_crc(record) is not False for record in records]
    assert property_crcs_hold(page, np.cumsum(sizes) - sizes, sizes, np.full(len(records), 19)).all()
