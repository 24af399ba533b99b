"""Units of a batch consume queue."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY, is_valid, read_batch_entries

UNIT = (0x0102030405060708, 300, -5, 1700000000000, 40, 7, -1, 0)
DATA = struct.pack(">qiqqqhii", *UNIT)


def test_a_unit_is_46_bytes_in_java_s_order() -> None:
    assert len(DATA) == BATCH_QUEUE_ENTRY.size == 46
    assert BATCH_QUEUE_ENTRY.struct.unpack(DATA) == UNIT
    assert BATCH_QUEUE_ENTRY.offset["base_queue_offset"] == 28
    assert BATCH_QUEUE_ENTRY.offset["message_count"] == 36
    assert BATCH_QUEUE_ENTRY.offset["compacted_offset"] == 38


@given(st.integers(0, 3 * 46))
def test_a_cut_unit_is_left_out(size: int) -> None:
    entries = read_batch_entries((DATA * 3)[:size])
    assert [entry.item() for entry in entries] == [UNIT] * (size // 46)


def test_a_unit_needs_a_place_a_size_a_base_and_messages() -> None:
    changes = [{}, {"physical_offset": -1}, {"size": 0}, {"base_queue_offset": -1}, {"message_count": 0}]
    entries = read_batch_entries(DATA * len(changes)).copy()
    for entry, change in zip(entries, changes, strict=True):
        for name, value in change.items():
            entry[name] = value
    assert is_valid(entries).tolist() == [True, False, False, False, False]
    assert not is_valid(read_batch_entries(bytes(46))).any()
