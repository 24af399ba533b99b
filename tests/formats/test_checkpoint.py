"""The checkpoint file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.checkpoint import CHECKPOINT, FILE_SIZE, Checkpoint, encode_checkpoint, read_checkpoint

I64 = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(Checkpoint, I64, I64, I64, I64, I64))
def test_a_checkpoint_reads_back(checkpoint: Checkpoint) -> None:
    data = encode_checkpoint(checkpoint)
    assert len(data) == FILE_SIZE
    assert read_checkpoint(data) == checkpoint


def test_fields_stand_where_java_puts_them() -> None:
    data = bytes.fromhex("0000018BCFE56800 0000018BCFE56801 0000018BCFE56802 0000000000000003 0000000000000004")
    first_ms = 1700000000000
    assert read_checkpoint(data) == Checkpoint(first_ms, first_ms + 1, first_ms + 2, 3, 4)


@pytest.mark.parametrize("size", range(CHECKPOINT.size))
def test_what_a_short_file_lacks_is_zero(size: int) -> None:
    assert read_checkpoint(b"\xff" * size) == read_checkpoint((b"\xff" * size).ljust(FILE_SIZE, b"\0"))


@pytest.mark.parametrize(
    ("checkpoint", "min_ms"),
    [
        (Checkpoint(10_000, 9_000, 20_000), 6_000),
        (Checkpoint(10_000, 9_000, 5_000), 6_000),
        (Checkpoint(10_000, 2_000, 5_000), 0),
        (Checkpoint(), 0),
        (Checkpoint(-5, 9_000), 0),
    ],
)
def test_the_sure_time_is_three_seconds_before_the_older(checkpoint: Checkpoint, min_ms: int) -> None:
    assert checkpoint.min_timestamp_ms == min_ms
