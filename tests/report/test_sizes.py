"""Sizes in bins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.report.sizes import BIN_COUNT, SIZE_MAX, bars_of, bins_of, summary_of

SIZES = st.lists(st.integers(0, SIZE_MAX), min_size=1, max_size=200)


def counts_of(sizes: list[int]) -> np.ndarray:
    return np.bincount(bins_of(np.array(sizes, np.int64)), minlength=BIN_COUNT).astype(np.int64)


@given(SIZES)
def test_a_quantile_is_at_most_a_sixteenth_too_large(sizes: list[int]) -> None:
    found = summary_of(counts_of(sizes), sum(sizes), max(sizes))
    assert found is not None
    for share, told in ((0.5, found.median), (0.99, found.high)):
        exact = sorted(sizes)[int(np.ceil(len(sizes) * share)) - 1]
        assert exact <= told <= exact + exact / 16
    assert (found.message_count, found.total, found.largest) == (len(sizes), sum(sizes), max(sizes))


@given(SIZES)
def test_bars_hold_all_sizes_each_where_it_belongs(sizes: list[int]) -> None:
    bars = bars_of(counts_of(sizes))
    assert [bar.message_count for bar in bars] == [sum(bar.above < size <= bar.up_to for size in sizes) for bar in bars]
    assert sum(bar.message_count for bar in bars) == len(sizes)
    assert all(bar.up_to + 1 == 2 ** (bar.up_to.bit_length()) for bar in bars)


@pytest.mark.parametrize("size", [0, 15, 16, 17, 31, 32, SIZE_MAX])
def test_the_ends_of_bins(size: int) -> None:
    assert 0 <= int(bins_of(np.array([size]))[0]) < BIN_COUNT
    assert summary_of(counts_of([size]), size, size) == (1, size, size, size, size)


def test_no_message_has_no_summary() -> None:
    assert summary_of(np.zeros(BIN_COUNT, np.int64), 0, 0) is None
    assert bars_of(np.zeros(BIN_COUNT, np.int64)) == []
