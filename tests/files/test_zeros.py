"""Where a file holds anything but zeros, by any way of asking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.files import zeros
from rmqstore.files.zeros import is_zero, nonzero, seems_zero
from tests.crash.disks import MemoryDisk


@given(
    size=st.integers(0, 300),
    set_at=st.sets(st.integers(0, 299), max_size=4),
    bounds=st.tuples(st.integers(0, 320), st.integers(0, 320)),
    chunk=st.sampled_from([1, 7, 64, 1024]),
)
def test_all_ways_say_the_same(size: int, set_at: set[int], bounds: tuple[int, int], chunk: int) -> None:
    data = bytearray(size)
    for position in set_at:
        if position < size:
            data[position] = 1
    disk = MemoryDisk()
    disk.put_file("/file", bytes(data))
    file = disk.open("/file")
    start, end = bounds
    hits = [position for position in range(start, min(end, size)) if data[position]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zeros, "_CHUNK_SIZE", chunk)
        assert nonzero(file, start, end) == ((hits[0], hits[-1] + 1) if hits else None)
        first = nonzero(file, start, end, first_only=True)
        assert (first and first[0]) == (hits[0] if hits else None)
        assert is_zero(file, start, end) is (not hits)
        assert seems_zero(file, start, end) is (not hits)  # of so small a file all is read


def test_a_file_that_ends_early_is_zero_there() -> None:
    disk = MemoryDisk()
    disk.put_file("/file", bytes(10))
    file = disk.open("/file")
    assert is_zero(file, 0, 1 << 40)
    assert nonzero(file, 0, 1 << 40) is None
