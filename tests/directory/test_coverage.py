"""How far the consume queues know the log, by sums alone."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.files.disk import StoredFile
from rmqstore.snapshot.survey import log_search as coverage_room
from rmqstore.snapshot.survey.log_search import Coverage

pytestmark = pytest.mark.stores

MIB = 1024 * 1024
FILE_SIZE = 4 * MIB


def files(count: int, first: int = 0) -> list[StoredFile]:
    return [StoredFile(f"f{number}", first + number * FILE_SIZE, FILE_SIZE, 0) for number in range(count)]


def laid_out(sizes: list[int], first: int = 0) -> tuple[list[int], list[int]]:
    """Offsets of records of these sizes, file by file, and where each file's records end."""
    offsets, ends, place = [], [], first
    for size in sizes:
        if (place - first) % FILE_SIZE + size > FILE_SIZE:
            ends.append(place)
            place += FILE_SIZE - (place - first) % FILE_SIZE
        offsets.append(place)
        place += size
    return offsets, [*ends, place]


def coverage_of(count: int, offsets: list[int], sizes: list[int], first: int = 0) -> Coverage:
    coverage = Coverage(files(count, first))
    coverage.add(np.array(offsets, np.int64), np.array(sizes, np.int32))
    return coverage


SIZES = st.lists(st.sampled_from([100, 5000, 300_000, 900_000, 1_500_000]), min_size=1, max_size=25)


@given(SIZES, st.data(), st.sampled_from([0, 3 * FILE_SIZE]), st.sampled_from([1, 5, coverage_room._BUCKETS_MAX]))
def test_it_never_reaches_over_a_record_that_no_queue_knows(
    sizes: list[int], data: st.DataObject, first: int, buckets_max: int
) -> None:
    offsets, ends = laid_out(sizes, first)
    lost = data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3))
    known = [row for row in range(len(sizes)) if row not in lost]
    order = data.draw(st.permutations(known))
    with patch.object(coverage_room, "_BUCKETS_MAX", buckets_max):
        coverage = coverage_of(len(ends) + 1, [offsets[row] for row in order], [sizes[row] for row in order], first)
    behind = data.draw(st.sampled_from([0, 1, MIB, 3 * MIB]))
    blanks = set(ends) - ({offsets[min(lost)]} if lost else set())
    reached, earlier = coverage.covered_until(behind, lambda offset: offset in blanks)
    starts = {first, *offsets, *ends}
    assert {reached, earlier} <= starts
    assert first <= earlier <= max(reached - behind, first)
    if lost:
        assert reached <= offsets[min(lost)]
    else:
        assert reached == offsets[-1] + sizes[-1]


def test_a_hole_ends_it_at_the_last_whole_stretch() -> None:
    sizes = [MIB // 4] * 16
    offsets, _ = laid_out(sizes)
    del offsets[10], sizes[10]
    assert coverage_of(1, offsets, sizes).covered_until(0, lambda _: True) == (2 * MIB, 2 * MIB)


def test_the_end_of_a_file_must_be_a_blank() -> None:
    offsets, sizes = [0, FILE_SIZE], [1000, 1000]
    asked: list[int] = []

    def is_blank(offset: int) -> bool:
        asked.append(offset)
        return False

    assert coverage_of(2, offsets, sizes).covered_until(0, is_blank) == (1000, 1000)
    assert asked == [1000]
    assert coverage_of(2, offsets, sizes).covered_until(0, lambda _: True) == (FILE_SIZE + 1000, FILE_SIZE + 1000)


def test_what_lies_before_the_files_is_not_counted() -> None:
    coverage = coverage_of(1, [5, 100, FILE_SIZE], [95, 100, 300], first=FILE_SIZE)
    assert coverage.covered_until(0, lambda _: True) == (FILE_SIZE + 300, FILE_SIZE + 300)


def test_several_queues_add_up() -> None:
    coverage = Coverage(files(1))
    coverage.add(np.array([0, 200]), np.array([100, 100], np.int32))
    assert coverage.covered_until(0, lambda _: True) == (0, 0)
    coverage.add(np.array([100]), np.array([100], np.int32))
    assert coverage.covered_until(0, lambda _: True) == (300, 300)


def test_no_files_nothing_covered() -> None:
    coverage = Coverage([])
    coverage.add(np.array([5]), np.array([10], np.int32))
    assert coverage.covered_until(0, lambda _: True) == (0, 0)


def test_empty_files_are_not_covered() -> None:
    assert coverage_of(3, [0], [100]).covered_until(0, lambda _: True) == (100, 100)


def test_a_sparse_log_takes_no_memory_for_what_it_has_not() -> None:
    coverage = Coverage([StoredFile("f", 0, 2**43)])
    coverage.add(np.array([0, 100]), np.array([100, 100], np.int32))
    assert coverage.covered_until(0, lambda _: True) == (200, 200)
    assert sum(held.nbytes for held in vars(coverage).values() if isinstance(held, np.ndarray)) <= 32 * MIB
