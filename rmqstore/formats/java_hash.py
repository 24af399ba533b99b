"""Java's String.hashCode, from which tags codes and index keys are made.

h = Σ c(i)·31^(n-1-i) over the UTF-16 code units, modulo 2**32, read as a signed 32-bit integer.
"""

import numpy as np
import numpy.typing as npt

from rmqstore.formats.java_text import java_text

# Longer rows leave the lockstep: one long key among short tags would cost a numpy round for each of its bytes.
_LOCKSTEP_SIZE_MAX = 256


def string_hash(text: str) -> int:
    """`text.hashCode()` of Java: signed 32 bits, 0 for the empty text.  Lone surrogates count as they stand."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def index_hash(key: str) -> int:
    """The key hash of an index item, 0 … 2**31 - 1; `key` is `topic#key`.

    Java: IndexFile.indexKeyHashMethod, the absolute value, 0 for -2**31, which has none in 32 bits.
    """
    value = abs(string_hash(key))
    return value if value < 1 << 31 else 0


def string_hashes(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32] | npt.NDArray[np.int64],
) -> npt.NDArray[np.int32]:
    """`string_hash` of n UTF-8 slices: uint8[nbytes], int[n], int[n] → int32[n] in the order of the slices.

    Short ASCII slices go in lockstep, character by character over all of them; others one by one.  Slices lie inside
    `data` (IndexError otherwise, for a negative start unspecified); sizes ≤ 0 are empty text.
    """
    by_size = np.argsort(-sizes, kind="stable")
    starts_sorted, sizes_sorted = starts[by_size], sizes[by_size]
    long_count = int(np.searchsorted(-sizes_sorted, -_LOCKSTEP_SIZE_MAX, side="left"))
    values = np.zeros(len(starts), np.uint32)
    seen = np.zeros(len(starts), np.uint8)
    size_max = int(sizes_sorted[long_count]) if long_count < len(starts) else 0
    # counts[k]: how many rows have a character at position k, the long ones included
    counts = np.searchsorted(-sizes_sorted, -np.arange(size_max), side="left")
    for position, count in enumerate(counts.tolist()):
        rows = slice(long_count, count)
        units = data[starts_sorted[rows] + position]
        seen[rows] |= units
        values[rows] *= np.uint32(31)
        values[rows] += units
    for row in (*range(long_count), *np.flatnonzero(seen >= 0x80).tolist()):
        start = int(starts_sorted[row])
        text = java_text(data[start : start + int(sizes_sorted[row])].tobytes())
        values[row] = string_hash(text) & 0xFFFFFFFF
    hashes = np.empty(len(starts), np.int32)
    hashes[by_size] = values.view(np.int32)
    return hashes
