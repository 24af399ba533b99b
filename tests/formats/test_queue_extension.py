"""Extension units and their addresses."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.queue_extension import (
    ExtensionUnit,
    address_to_offset,
    is_extension_address,
    offset_to_address,
    read_unit,
)

UNIT = struct.pack(">hqqh", 23, -7, 1700000000000, 3) + b"\x80\x01\xff"


@pytest.mark.parametrize(
    ("tags_code", "is_address"),
    [(-(2**63), True), (-(2**31) - 1, True), (-(2**31), False), (0, False), (2598919, False), (1700000000000, False)],
)
def test_addresses_lie_below_all_tag_hashes(tags_code: int, is_address: bool) -> None:
    assert is_extension_address(tags_code) is is_address


@pytest.mark.parametrize(("offset", "address"), [(0, -(2**63)), (9223372034707292159, -(2**31) - 1)])
def test_an_address_is_the_offset_counted_from_the_least_number(offset: int, address: int) -> None:
    assert offset_to_address(offset) == address
    assert address_to_offset(address) == offset


@pytest.mark.parametrize("offset", [-1, 9223372034707292160])
def test_offsets_without_an_address_are_refused(offset: int) -> None:
    with pytest.raises(ValueError, match="no extension address"):
        offset_to_address(offset)


def test_a_unit_reads() -> None:
    unit = ExtensionUnit(23, -7, 1700000000000, b"\x80\x01\xff")
    assert read_unit(b"abc" + UNIT + b"d", 3) == unit
    assert read_unit(UNIT[:-3].replace(b"\0\x17", b"\0\x14", 1)[:18] + b"\0\0", 0) == ExtensionUnit(
        20, -7, 1700000000000, b""
    )


@pytest.mark.parametrize("size", range(len(UNIT)))
def test_a_cut_unit_is_none(size: int) -> None:
    assert read_unit(UNIT[:size], 0) is None


@pytest.mark.parametrize("head", [b"\xff\xff", b"\0\0", b"\0\x16", b"\0\x18", b"\x7f\xff"])
def test_end_marks_and_sizes_that_contradict_are_none(head: bytes) -> None:
    assert read_unit(head + UNIT[2:], 0) is None


@given(st.binary(max_size=60), st.integers(-5, 70))
def test_any_bytes_are_a_unit_or_none(data: bytes, position: int) -> None:
    unit = read_unit(data, position)
    assert unit is None or (unit.size == 20 + len(unit.bitmap) and position + unit.size <= len(data))
