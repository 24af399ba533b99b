"""Consume-queue entries."""

import pytest

from rmqstore.formats.queue_entry import (
    PRE_BLANK_SIZE,
    QUEUE_ENTRY,
    is_pre_blank,
    is_valid,
    read_entries,
)


def entry(physical_offset: int, size: int, tags_code: int = 0) -> bytes:
    return QUEUE_ENTRY.struct.pack(physical_offset, size, tags_code)


def test_entries_read_by_twenty_bytes() -> None:
    data = entry(2**40, 104, -1) + entry(0, 91, 7)
    entries = read_entries(data)
    assert QUEUE_ENTRY.size == 20
    assert entries.tolist() == [(2**40, 104, -1), (0, 91, 7)]


@pytest.mark.parametrize(("cut", "count"), [(0, 2), (1, 1), (19, 1), (20, 1), (21, 0), (40, 0)])
def test_a_cut_entry_is_left_out(cut: int, count: int) -> None:
    assert len(read_entries((entry(1, 2) + entry(3, 4))[: 40 - cut])) == count


@pytest.mark.parametrize(
    ("physical_offset", "size", "valid", "pre_blank"),
    [
        (0, 0, False, False),  # never written
        (0, 104, True, False),  # the first message of a store
        (5000, 104, True, False),
        (-1, 104, False, False),
        (5000, 0, False, False),
        (5000, -1, False, False),
        (0, PRE_BLANK_SIZE, True, True),
        (1, PRE_BLANK_SIZE, True, False),
        (0, PRE_BLANK_SIZE - 1, True, False),
    ],
)
def test_written_and_filler_entries(physical_offset: int, size: int, valid: bool, pre_blank: bool) -> None:
    entries = read_entries(entry(physical_offset, size))
    assert is_valid(entries).tolist() == [valid]
    assert is_pre_blank(entries).tolist() == [pre_blank]
