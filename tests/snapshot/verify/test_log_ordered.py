"""Rows that rise by physical offset come out in order and in full; the others are named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.snapshot.verify.log_ordered import END, LogOrderedRows

pytestmark = pytest.mark.stores

LOG_END = 10_000


def rising(offsets: list[int], block: int, strictly: bool = True) -> LogOrderedRows:
    rows = np.zeros(len(offsets), QUEUE_ENTRY.dtype)
    rows["physical_offset"] = offsets
    return LogOrderedRows(
        lambda first, last: rows[first:last], (0, len(rows)), lambda part: np.zeros(len(part), bool),
        log_end=LOG_END, strictly=strictly, block=block,
    )  # fmt: skip


@given(st.sets(st.integers(0, LOG_END - 1)), st.integers(1, 9), st.lists(st.integers(0, LOG_END)))
def test_sound_rows_come_out_once_in_order(offsets: set[int], block: int, stops: list[int]) -> None:
    wanted = sorted(offsets)
    rows = rising(wanted, block)
    taken: list[int] = []
    for stop in [*sorted(stops), END]:
        numbers, places, _ = rows.take_until(stop)
        assert all(place < stop for place in places.tolist())
        assert [wanted[number] for number in numbers.tolist()] == places.tolist()
        taken += places.tolist()
    assert taken == wanted
    assert rows.irregular == []
    assert rows.next_offset() == END


@given(st.lists(st.integers(-5, LOG_END + 5), max_size=30), st.integers(1, 9), st.booleans())
def test_every_row_is_taken_or_irregular(offsets: list[int], block: int, strictly: bool) -> None:
    rows = rising(offsets, block, strictly)
    numbers, places, _ = rows.take_until(END)
    assert sorted([*numbers.tolist(), *rows.irregular]) == list(range(len(offsets)))
    steps = np.diff(places)
    assert (steps > 0).all() if strictly else (steps >= 0).all()


def test_a_row_that_juts_out_is_the_wrong_one() -> None:
    rows = rising([10, 20, 9_000, 40, 50], 100)
    _, places, _ = rows.take_until(END)
    assert places.tolist() == [10, 20, 40, 50]
    assert rows.irregular == [2]
