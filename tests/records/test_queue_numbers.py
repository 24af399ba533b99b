"""Distinct queues by a table and by sorting: the same answer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.records.inner_batches import distinct_queues

pytestmark = pytest.mark.stores

IDS = st.sampled_from([0, 1, 2, 3, 900, 2**31 - 1, -1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1) |
       st.lists(st.tuples(st.integers(0, 2**20), IDS), min_size=1))  # fmt: skip
def test_each_row_has_the_number_of_its_queue(rows: list[tuple[int, int]]) -> None:
    topics, ids = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    queues, numbers = distinct_queues(topics, ids)
    assert queues == sorted(set(rows))
    assert [queues[number] for number in numbers.tolist()] == rows
