"""One table gives the struct, the dtype and the offsets, and they agree."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.layout import Layout

KINDS = {"i1": 1, "i2": 2, "i4": 4, "i8": 8}
SAMPLE = Layout(("kind", "i1"), ("size", "i2"), ("offset", "i8"), ("count", "i4"))


def test_the_table_says_where_each_field_lies() -> None:
    assert SAMPLE.size == 15
    assert SAMPLE.names == ("kind", "size", "offset", "count")
    assert SAMPLE.offset == {"kind": 0, "size": 1, "offset": 3, "count": 11}
    assert SAMPLE.kind == {"kind": "i1", "size": "i2", "offset": "i8", "count": "i4"}


def test_fields_are_big_endian_signed_and_unpadded() -> None:
    data = bytes.fromhex("ff0102800000000000000000000007")
    assert SAMPLE.read(data) == {"kind": -1, "size": 0x0102, "offset": -(2**63), "count": 7}


def test_read_begins_at_its_position() -> None:
    data = b"\xee" * 5 + bytes(14) + b"\x09"
    assert SAMPLE.read(data, 5)["count"] == 9


@pytest.mark.parametrize("position", [0, 1, 15])
def test_a_buffer_that_ends_before_the_fields_is_refused(position: int) -> None:
    with pytest.raises(struct.error):
        SAMPLE.read(bytes(14 + (position > 0)), position)


@pytest.mark.parametrize("kind", ["u4", "i3", "f8", ""])
def test_other_kinds_are_no_layout(kind: str) -> None:
    with pytest.raises((KeyError, TypeError)):
        Layout(("field", kind))


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12), st.data())
def test_scalar_and_vector_codec_agree(kinds: list[str], data: st.DataObject) -> None:
    layout = Layout(*((f"f{number}", kind) for number, kind in enumerate(kinds)))
    row = data.draw(st.binary(min_size=layout.size, max_size=layout.size))
    fields = layout.read(row)
    (vector,) = np.frombuffer(row, layout.dtype)
    assert {name: int(vector[name]) for name in layout.names} == fields
    assert layout.size == sum(KINDS[kind] for kind in kinds)
    for name, kind in layout.fields:
        at = layout.offset[name]
        assert fields[name] == int.from_bytes(row[at : at + KINDS[kind]], "big", signed=True)
