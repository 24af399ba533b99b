"""From scattered bytes of a page to Arrow arrays, in one gather and without a Python object per row."""

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore.formats.java_text import java_text
from rmqstore.formats.message_columns import Bytes, Ints, Mask, Places, gather_bytes

_INLINE_SIZE = 12
# Arrow's binary view: 16 bytes a value; up to 12 bytes of data stand in the view itself.
_VIEW = np.dtype([("size", "<i4"), ("data", f"V{_INLINE_SIZE}")])
_REFERENCE = np.dtype([("size", "<i4"), ("prefix", "<i4"), ("buffer", "<i4"), ("offset", "<i4")])
INSTANT = pa.timestamp("us", tz="UTC")
MILLIS_MAX = np.iinfo(np.int64).max // 1000
# Byte masks that keep the first 0 … 12 bytes of a value.
_KEPT = np.array([[255] * size + [0] * (_INLINE_SIZE - size) for size in range(_INLINE_SIZE + 1)], np.uint8)
_OFFSET_MAX = 2**31 - 1
# UTF-8: how many bytes a character has that begins with a byte, 0 for a byte that begins none; and between what its
# second byte lies.
_LEAD_SIZES = np.zeros(256, np.uint8)
_LEAD_SIZES[:0x80], _LEAD_SIZES[0xC2:0xE0], _LEAD_SIZES[0xE0:0xF0], _LEAD_SIZES[0xF0:0xF5] = 1, 2, 3, 4
_SECOND_LEAST, _SECOND_MOST = np.full(256, 0x80, np.uint8), np.full(256, 0xBF, np.uint8)
_SECOND_LEAST[[0xE0, 0xF0]], _SECOND_MOST[[0xED, 0xF4]] = (0xA0, 0x90), (0x9F, 0x8F)
_IS_BOUNDED = np.isin(np.arange(256), (0xE0, 0xF0, 0xED, 0xF4))
# Values of one size are copied as one block each up to this size; for larger ones the cast of views is faster
# (measured).
_UNIFORM_SIZE_MAX = 64
# Fewer values than this are joined one by one; Arrow's gather has its price.
_JOINED_COUNT_MAX = 64


def binary_array(page: Bytes, positions: Places, sizes: Places, absent: Mask | None = None) -> pa.Array:
    """binary[n] of the `sizes[i]` bytes at `positions[i]`, null where `absent`; positions + sizes lie in the page.

    The page holds less than 2 GiB.
    """
    return _gathered(page, positions, sizes, absent, (pa.binary_view(), pa.binary()))


def text_of(
    page: Bytes, positions: Places, sizes: Places, absent: Mask | None = None, is_ascii: bool = False
) -> pa.Array:
    """string[n], as `binary_array`; `is_ascii` says that no byte of the values is above 127, which saves looking."""
    if is_ascii:
        return _gathered(page, positions, sizes, absent, (pa.string_view(), pa.string()))
    return text_array(binary_array(page, positions, sizes, absent))


def _gathered(
    page: Bytes, positions: Places, sizes: Places, absent: Mask | None, kinds: tuple[pa.DataType, pa.DataType]
) -> pa.Array:
    """Values of one size come in one gather; others as views into the page, of which one cast copies what they point
    at.
    """
    count = len(positions)
    if absent is not None and not absent.any():
        absent = None
    if absent is None and count and 0 < sizes[0] <= _UNIFORM_SIZE_MAX and (sizes == sizes[0]).all():
        size = int(sizes[0])
        data = gather_bytes(page, positions, size)
        offsets = np.arange(count + 1, dtype=np.int32) * size
        return pa.Array.from_buffers(kinds[1], count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    validity = None
    if absent is not None:
        sizes = np.where(absent, 0, sizes)
        positions = np.where(absent, 0, positions)
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    views = np.zeros(count, _REFERENCE)
    views["size"] = sizes
    views["offset"] = positions
    small = sizes <= _INLINE_SIZE
    if small.all():
        views.view(_VIEW)["data"] = _inline(page, positions, sizes)
    elif small.any():
        rows = np.flatnonzero(small)
        views.view(_VIEW)["data"][rows] = _inline(page, positions[rows], sizes[rows])
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(page)]
    return pa.Array.from_buffers(kinds[0], count, buffers).cast(kinds[1])


def _inline(page: Bytes, positions: Places, sizes: Places) -> npt.NDArray[np.void]:
    """The bytes of short values padded with zeros to 12: V12[n]."""
    room = len(page) - _INLINE_SIZE
    near_end = positions > room
    if not near_end.any():
        return _cut(gather_bytes(page, positions, _INLINE_SIZE), sizes)
    base = max(room, 0)
    padded = np.concatenate((page[base:], np.zeros(_INLINE_SIZE, np.uint8)))
    data = np.zeros(len(positions), f"V{_INLINE_SIZE}")
    data[near_end] = _cut(gather_bytes(padded, positions[near_end] - base, _INLINE_SIZE), sizes[near_end])
    if not near_end.all():
        data[~near_end] = _cut(gather_bytes(page, positions[~near_end], _INLINE_SIZE), sizes[~near_end])
    return data


def _cut(data: npt.NDArray[np.bytes_], sizes: Places) -> npt.NDArray[np.void]:
    """The values with the bytes after their ends set to zero."""
    masks = _KEPT.view(f"V{_INLINE_SIZE}")[:, 0][sizes]
    return (data.view(np.uint8) & masks.view(np.uint8)).view(f"V{_INLINE_SIZE}")


def text_array(values: pa.Array) -> pa.Array:
    """string[n] from binary[n] of UTF-8; what is not valid is replaced as Java's String does, by U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else java_text(value) for value in values.to_pylist()], pa.string())


def is_ascii(data: Bytes) -> bool:
    """Whether no byte is above 127."""
    return not len(data) or int(data.max()) < 128


def are_texts(values: pa.Array) -> Mask:
    """bool[n]: which values of a binary array are UTF-8 as they stand; null is, being nothing."""
    data, offsets = bytes_of(values)
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    right, sizes = np.ones(len(values), bool), _LEAD_SIZES[data]
    for back in (1, 2, 3):  # values that end in the middle of a character
        rows = np.flatnonzero(np.diff(offsets) >= back)
        rows = rows[sizes[offsets[rows + 1] - back] > back]
        right[rows] = False
        sizes[offsets[rows + 1] - back] = 1
    is_inside = data & 0xC0 == 0x80
    follows = np.zeros(len(data), bool)
    for step in (1, 2, 3):
        follows[step:] |= sizes[:-step] > step
    is_wrong = (follows != is_inside) | ((sizes == 0) & ~is_inside)
    bounded = np.flatnonzero(_IS_BOUNDED[data] & (sizes > 1))
    second = data[bounded + 1]
    is_wrong[bounded[(second < _SECOND_LEAST[data[bounded]]) | (second > _SECOND_MOST[data[bounded]])]] = True
    counts = np.concatenate(([0], np.cumsum(is_wrong, dtype=np.int32)))[offsets]
    return np.asarray(right & (counts[1:] == counts[:-1]), bool)


def bytes_of(values: pa.Array) -> tuple[Bytes, Ints]:
    """The data and the offsets int64[n + 1] of a binary array without nulls, as `property_columns` takes them."""
    buffers = values.buffers()
    offsets = np.frombuffer(buffers[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    data = np.zeros(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    return data, offsets


@functools.lru_cache(maxsize=16)
def constant_text(text: str | None, count: int) -> pa.Array:
    """string[n] of one value; the same array for the same question, as batch after batch asks it."""
    return pa.repeat(pa.scalar(text, pa.string()), count)


@functools.lru_cache(maxsize=1)  # it may be as large as a batch
def repeated_texts(texts: tuple[bytes, ...], count: int) -> pa.Array | None:
    """string[len(texts) * n] of these texts `count` times over; None where one of them is not ASCII, or they are more
    than an array holds.  The same array for the same question, as batch after batch asks it.
    """
    row = b"".join(texts)
    if not row.isascii() or len(row) * count > _OFFSET_MAX:
        return None
    return texts_in_rows(np.tile(np.frombuffer(row, np.uint8), count), [len(text) for text in texts])


def texts_in_rows(data: Bytes, sizes: Sequence[int]) -> pa.Array | None:
    """string[len(sizes) * rows] of ASCII texts laid end to end, rows of texts of these sizes (not all 0); None where
    they are more than an array holds.
    """
    count = len(data) // sum(sizes)
    if len(data) > _OFFSET_MAX:
        return None
    offsets = np.zeros(len(sizes) * count + 1, np.int32)
    ends = offsets[1:].reshape(count, len(sizes))
    np.add(np.arange(count)[:, None] * sum(sizes), np.cumsum(sizes), out=ends, casting="unsafe")
    return pa.Array.from_buffers(pa.string(), len(sizes) * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def millis_to_timestamps(millis: Ints) -> pa.Array:
    """timestamp[us, UTC][n] from ms since the epoch; null where the microseconds do not fit 64 bits."""
    if not len(millis) or (int(millis.max()) <= MILLIS_MAX and int(millis.min()) >= -MILLIS_MAX):
        return pa.array(millis * 1000).view(INSTANT)
    out_of_range = (millis > MILLIS_MAX) | (millis < -MILLIS_MAX)
    return pa.array(np.where(out_of_range, 0, millis) * 1000, mask=out_of_range).view(INSTANT)


_HEX_PAIRS = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), "S2")


def hex_array(rows: Bytes) -> pa.Array:
    """string[n], upper-case hex of the rows of uint8[n, size]."""
    count, size = rows.shape
    digits = _HEX_PAIRS[rows]
    offsets = np.arange(count + 1, dtype=np.int32) * (2 * size)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])


def joined_bytes(page: Bytes, positions: Ints, sizes: Ints) -> tuple[Bytes, Ints]:
    """n slices of a page laid end to end: uint8[nbytes], int64[n] twice → uint8[sum], int64[n + 1] where each begins.

    The page holds less than 2 GiB, and every slice lies in it.
    """
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if not offsets[-1]:
        return np.zeros(0, np.uint8), offsets
    if len(sizes) <= _JOINED_COUNT_MAX:
        view = memoryview(np.ascontiguousarray(page))
        bounds = zip(positions.tolist(), (positions + sizes).tolist(), strict=True)
        return np.frombuffer(b"".join([view[begin:end] for begin, end in bounds]), np.uint8), offsets
    return np.frombuffer(binary_array(page, positions, sizes).buffers()[2], np.uint8), offsets
