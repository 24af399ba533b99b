"""Sizes of messages counted in bins, so that quantiles need no list of all sizes."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# Bins between a power of two and the next one: a quantile is at most a sixteenth too large.
_STEPS = 16
_STEP_BITS = 4
_SIZE_BITS = 31
SIZE_MAX = (1 << _SIZE_BITS) - 1
BIN_COUNT = _STEPS + (_SIZE_BITS - _STEP_BITS) * _STEPS
# The shares of messages that are told.
_MEDIAN, _HIGH = 0.5, 0.99


class SizeSummary(NamedTuple):
    """Stored sizes of messages in bytes: half of them are at most `median`, 99 % at most `high`, by their bins."""

    message_count: int
    total: int
    median: int
    high: int
    largest: int


def bins_of(sizes: Ints) -> Ints:
    """int64[n], the bin of each size; sizes are 0 to SIZE_MAX."""
    power = np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - 1  # of the highest bit; exact below 2^53
    shift = np.maximum(power - _STEP_BITS, 0)
    return np.where(sizes < _STEPS, sizes, (sizes >> shift) + shift * _STEPS)


def _upper_ends() -> Ints:
    """int64[BIN_COUNT], the largest size of each bin."""
    number = np.arange(BIN_COUNT, dtype=np.int64)
    shift = np.maximum(number // _STEPS - 1, 0)
    return np.where(number < _STEPS, number, ((number - shift * _STEPS + 1) << shift) - 1)


_UPPER_ENDS = _upper_ends()


def summary_of(counts: Ints, total: int, largest: int) -> SizeSummary | None:
    """The summary of the messages in int64[BIN_COUNT] `counts`; None without messages."""
    count = int(counts.sum())
    if not count:
        return None
    sums = np.cumsum(counts)
    places = np.searchsorted(sums, [np.ceil(count * _MEDIAN), np.ceil(count * _HIGH)])
    median, high = (min(int(_UPPER_ENDS[place]), largest) for place in places)
    return SizeSummary(count, total, median, high, largest)


class SizeBar(NamedTuple):
    """So many messages are larger than `above` bytes and at most `up_to`."""

    above: int
    up_to: int
    message_count: int


def bars_of(counts: Ints) -> list[SizeBar]:
    """Counts between powers of two, from the smallest that occurs to the largest."""
    by_power = np.concatenate([[counts[:_STEPS].sum()], counts[_STEPS:].reshape(-1, _STEPS).sum(axis=1)])
    used = np.flatnonzero(by_power)
    if not len(used):
        return []
    ends = [int(_UPPER_ENDS[(power + 1) * _STEPS - 1]) for power in range(len(by_power))]
    return [
        SizeBar(ends[power - 1] if power else -1, ends[power], int(by_power[power]))
        for power in range(used[0], used[-1] + 1)
    ]
