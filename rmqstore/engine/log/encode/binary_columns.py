"""Binary arrays of Arrow as vectors: where their values lie, and what the pieces of a record need of them."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import properties
from rmqstore.formats.message_columns import Bytes, Ints, Mask

_MARKED = "[\\x01\\x02]"


def binary_scalar(data: bytes) -> pa.Scalar:
    """`data` as a value of Arrow; `pa.scalar` would bring in pandas, 0.2 s in each process that imports this."""
    ends = pa.py_buffer(np.array([0, len(data)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)])[0]


EMPTY = binary_scalar(b"")
NAME_END = binary_scalar(properties.NAME_END)
VALUE_END = binary_scalar(properties.VALUE_END)
KEY_SEPARATOR = binary_scalar(properties.KEY_SEPARATOR.encode())


def nulls(column: pa.Array) -> Mask:
    if not column.null_count:
        return np.zeros(len(column), bool)
    mask: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def sizes_of(column: pa.Array) -> Ints:
    """Bytes of each value of a binary array, int64[n]; of nulls whatever stands there."""
    return np.diff(offsets_of(column)).astype(np.int64)


def offsets_of(column: pa.Array) -> npt.NDArray[np.int32]:
    """The offsets of a binary array in its data, int32[n + 1]."""
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)


def data_of(column: pa.Array) -> Bytes:
    """The data that `offsets_of` speaks of."""
    buffer = column.buffers()[2]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def marked_rows(column: pa.Array) -> Mask:
    """Where a value holds 0x01 or 0x02; nulls do not."""
    none = np.zeros(len(column), bool)
    if not len(column):
        return none
    offsets = offsets_of(column)
    data = data_of(column)[offsets[0] : offsets[-1]]
    if not ((data == properties.NAME_END[0]) | (data == properties.VALUE_END[0])).any():
        return none
    marked: Mask = pc.match_substring_regex(column, _MARKED).fill_null(False).to_numpy(zero_copy_only=False)
    return marked
