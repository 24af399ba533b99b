"""Java's String.hashCode, from which tags codes and index keys are made.

h = Σ c(i)·31^(n-1-i) over the UTF-16 code units, modulo 2**32, read as a signed 32-bit integer.
"""

import functools

import numpy as np
import numpy.typing as npt

from rmqstore.formats.java_text import java_text
from rmqstore.formats.message_columns import Bytes, Places

# Longer rows leave the lockstep: one long key among short tags would cost a numpy round for each of its bytes.
_LOCKSTEP_SIZE_MAX = 256
# Texts of other letters are decoded together, as many as stay in the second-level cache.
_DECODED_COUNT = 1024
# UTF-8 begins a character of four bytes, which are two code units, with this byte or one above.
_FIRST_OF_FOUR = 0xF0


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


def string_hashes(data: Bytes, starts: Places, sizes: Places) -> npt.NDArray[np.int32]:
    """`string_hash` of n UTF-8 slices: uint8[nbytes], int[n], int[n] → int32[n] in the order of the slices.

    Slices lie inside `data` (IndexError otherwise, for a negative start unspecified); sizes ≤ 0 are empty text.
    """
    values, others = lockstep_hashes(data, starts, sizes)
    if len(others):
        values[others], _ = other_hashes(data, starts[others], sizes[others])
    return values.view(np.int32)


def lockstep_hashes(data: Bytes, starts: Places, sizes: Places) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.intp]]:
    """`string_hashes` of short ASCII slices, character by character over all of them: uint32[n], and the rows that are
    something else, whose values mean nothing."""
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
    seen[:long_count] = 0x80
    hashes = np.empty(len(starts), np.uint32)
    hashes[by_size] = values
    return hashes, by_size[seen >= 0x80]


def other_hashes(data: Bytes, starts: Places, sizes: Places) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """`string_hash` of n UTF-8 slices of any letters, uint32[n], and how many UTF-16 code units each has, int64[n].

    Each slice has at least a byte, and lies inside `data`: IndexError otherwise.
    """
    hashes, counts = np.empty(len(starts), np.uint32), np.empty(len(starts), np.int64)
    view = memoryview(data)
    for first in range(0, len(starts), _DECODED_COUNT):
        rows = slice(first, first + _DECODED_COUNT)
        texts = [view[at : at + size] for at, size in zip(starts[rows].tolist(), sizes[rows].tolist(), strict=True)]
        if [*map(len, texts)] != sizes[rows].tolist() or not all(texts):
            raise IndexError("a text is empty, or does not lie inside the data")
        units, counts[rows] = _code_units(texts)
        ends = np.cumsum(counts[rows])
        weights = powers(int(counts[rows].max()))[np.repeat(ends, counts[rows]) - 1 - np.arange(len(units))]
        hashes[rows] = np.add.reduceat(units * weights, ends - counts[rows])
    return hashes, counts


def _code_units(texts: list[memoryview]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The UTF-16 code units of all texts, one text after the other, and how many each has."""
    joined = b"".join(texts)
    found = np.frombuffer(joined, np.uint8)
    sizes = np.array([*map(len, texts)], np.int64)
    starts = np.cumsum(sizes) - sizes
    continues = (found & 0xC0) == 0x80
    text = None if continues[starts].any() else _strictly_decoded(joined)
    if text is None:
        malformed = [java_text(bytes(each)) for each in texts]
        text = "".join(malformed)
        counts = np.array([len(each.encode("utf-16-le")) // 2 for each in malformed], np.int64)
    else:
        counts = np.add.reduceat((~continues).astype(np.int64) + (found >= _FIRST_OF_FOUR), starts)
    return np.frombuffer(text.encode("utf-16-le"), "<u2").astype(np.uint32), counts


def _strictly_decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@functools.lru_cache(maxsize=64)
def powers(count: int) -> npt.NDArray[np.uint32]:
    """31**0 … 31**(count - 1) modulo 2**32."""
    found = np.full(max(count, 1), 31, np.uint32)
    found[0] = 1
    return np.multiply.accumulate(found, dtype=np.uint32)
