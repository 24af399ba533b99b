"""From scattered bytes of a page to Arrow arrays, in one gather and without a Python object per row."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore.formats.message_columns import Bytes, Ints, Mask, gather_bytes

# Arrow's binary view: 16 bytes a value; up to 12 bytes of data stand in the view itself.
_VIEW = np.dtype([("size", "<i4"), ("prefix", "<i4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE_SIZE = 12


def binary_array(page: Bytes, positions: Ints, sizes: Ints, absent: Mask | None = None) -> pa.Array:
    """binary[n] of the `sizes[i]` bytes at `positions[i]`, null where `absent`; positions + sizes lie in the page.

    The page holds less than 2 GiB.  The views point into the page and one cast copies what they point at.
    """
    count = len(positions)
    if absent is not None:
        sizes = np.where(absent, 0, sizes)
    views = np.zeros(count, _VIEW)
    views["size"] = sizes
    views["offset"] = positions
    small = sizes <= _INLINE_SIZE
    if small.any():
        rows = np.flatnonzero(small)
        views.view(np.uint8).reshape(count, _VIEW.itemsize)[rows, 4:] = _inline(page, positions[rows], sizes[rows])
    validity = None if absent is None or not absent.any() else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(page)]
    return pa.Array.from_buffers(pa.binary_view(), count, buffers).cast(pa.binary())


def _inline(page: Bytes, positions: Ints, sizes: Ints) -> Bytes:
    """The bytes of short values padded with zeros to 12: uint8[n, 12]."""
    room = len(page) - _INLINE_SIZE
    near_end = positions > room
    if room < 0 or near_end.any():
        padded = np.concatenate((page[max(room, 0) :], np.zeros(_INLINE_SIZE, np.uint8)))
        data = np.empty((len(positions), _INLINE_SIZE), np.uint8)
        tail = positions[near_end] - max(room, 0)
        data[near_end] = padded[np.clip(tail, 0, len(padded) - _INLINE_SIZE)[:, None] + np.arange(_INLINE_SIZE)]
        if not near_end.all():
            data[~near_end] = _rows_of(gather_bytes(page, positions[~near_end], _INLINE_SIZE))
    else:
        data = _rows_of(gather_bytes(page, positions, _INLINE_SIZE))
    data[np.arange(_INLINE_SIZE) >= sizes[:, None]] = 0
    return data


def _rows_of(values: npt.NDArray[np.bytes_]) -> Bytes:
    return values.view(np.uint8).reshape(len(values), _INLINE_SIZE)


def text_array(values: pa.Array) -> pa.Array:
    """string[n] from binary[n] of UTF-8; what is not valid is replaced as Java's String does, by U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string()
        )


def bytes_of(values: pa.Array) -> tuple[Bytes, Ints]:
    """The data and the offsets int64[n + 1] of a binary array without nulls, as `property_columns` takes them."""
    buffers = values.buffers()
    offsets = np.frombuffer(buffers[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    data = np.zeros(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    return data, offsets


def constant_text(text: str | None, count: int) -> pa.Array:
    """string[n] of one value."""
    return pa.repeat(pa.scalar(text, pa.string()), count)


def millis_to_timestamps(millis: Ints) -> pa.Array:
    """timestamp[us, UTC][n] from ms since the epoch; null where the microseconds do not fit 64 bits."""
    limit = np.iinfo(np.int64).max // 1000
    out_of_range = (millis > limit) | (millis < -limit)
    micros = np.where(out_of_range, 0, millis) * 1000
    array = pa.array(micros, pa.int64(), mask=out_of_range if out_of_range.any() else None)
    return array.cast(pa.timestamp("us", tz="UTC"))


_HEX_PAIRS = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), "S2")


def hex_array(rows: Bytes) -> pa.Array:
    """string[n], upper-case hex of the rows of uint8[n, size]."""
    count, size = rows.shape
    digits = _HEX_PAIRS[rows]
    offsets = np.arange(count + 1, dtype=np.int32) * (2 * size)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
