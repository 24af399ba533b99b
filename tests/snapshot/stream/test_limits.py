"""Sharing out a trigger: within the limit, by proportion, and nobody waits for ever."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.snapshot.stream.limits import Waiting, shared_bytes, shared_rows


def waiting(sizes: list[int], block: int = 3) -> Waiting:
    def blocks(count: int):
        for first in range(0, count, block):
            yield np.array(sizes[first : min(first + block, count)], np.int64)

    return Waiting(len(sizes), sum(sizes), blocks)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.integers(1, 2000), st.integers(0, 50))
def test_rows_keep_the_limit_and_use_it(counts, limit, turn):
    shares = shared_rows(counts, limit, turn)
    assert sum(shares) == min(limit, sum(counts))
    for share, count in zip(shares, counts, strict=True):
        assert 0 <= share <= count
        assert share >= limit * count // max(sum(counts), limit)


def test_rows_fewer_than_queues_reach_every_queue_within_as_many_turns():
    counts = [1_000_000, 1, 1, 1, 1]
    reached = [shared_rows(counts, 2, turn) for turn in range(len(counts))]
    assert all(any(shares[number] for shares in reached) for number in range(len(counts)))


@given(
    st.lists(st.lists(st.integers(1, 50), max_size=20), min_size=1, max_size=6),  # a record is never empty
    st.integers(1, 400),
    st.integers(0, 20),
)
def test_bytes_keep_the_limit_use_it_and_always_go_on(queues, limit, turn):
    counts = shared_bytes([waiting(sizes) for sizes in queues], limit, turn)
    taken = sum(sum(sizes[:count]) for sizes, count in zip(queues, counts, strict=True))
    assert any(counts) == any(queues)
    assert taken <= limit or sum(counts) == 1
    following = [sizes[count] for sizes, count in zip(queues, counts, strict=True) if count < len(sizes)]
    assert not following or taken + min(following) > limit


def test_bytes_are_shared_by_what_waits():
    counts = shared_bytes([waiting([10] * 90), waiting([10] * 10)], 500, 0)
    assert sum(counts) == 50
    assert 44 <= counts[0] <= 46


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_message_bigger_than_its_share_or_than_the_limit_has_its_turn(size):
    queues = [[10] * 1000, [10] * 1000, [size]]
    got = [shared_bytes([waiting(sizes) for sizes in queues], 120, turn)[2] for turn in range(len(queues))]
    assert 1 in got


def test_sizes_are_read_no_further_than_needed():
    read = []

    def sizes(count: int):
        for first in itertools.count(0, 1000):
            read.append(first)
            yield np.full(1000, 100, np.int64)

    assert shared_bytes([Waiting(10**9, 10**11, sizes)], 250_000, 0) == [2500]
    assert len(read) == 3
