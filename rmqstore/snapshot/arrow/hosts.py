"""Host addresses of many records as Arrow text, and offset message ids, which begin with one."""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import host, message
from rmqstore.formats.message_columns import Bytes, Ints, Mask, gather
from rmqstore.records.gather import hex_array


@cache
def _octets() -> pa.Array:
    """The numbers 0 to 255 as text; not made at import, where pyarrow would bring in pandas with its first array."""
    return pa.array([str(value) for value in range(256)])


def host_array(page: Bytes, positions: Ints, is_v6: Mask) -> pa.Array:
    """string[n] such as "203.0.113.9:10911" or "[2001:db8::1]:10911" from the host fields at `positions`."""
    if not is_v6.any():
        return _v4_array(page, positions)
    v6_rows = np.flatnonzero(is_v6)
    raw = page[positions[v6_rows, None] + np.arange(message.HOST_V6.size)]
    unique, inverse = np.unique(raw, axis=0, return_inverse=True)
    names = pa.array([host.decode_host(row.tobytes(), 0, message.HOST_V6.size) for row in unique])
    v4_rows = np.flatnonzero(~is_v6)
    both = pa.concat_arrays([names.take(pa.array(inverse.reshape(-1))), _v4_array(page, positions[v4_rows])])
    order = np.empty(len(positions), np.int64)
    order[v6_rows] = np.arange(len(v6_rows))
    order[v4_rows] = len(v6_rows) + np.arange(len(v4_rows))
    return both.take(pa.array(order))


def _v4_array(page: Bytes, positions: Ints) -> pa.Array:
    octets = [_octets().take(pa.array(page[positions + place].astype(np.int32))) for place in range(4)]
    port = pa.array(gather(page, positions + message.HOST_V4.offset["port"], "i4")).cast(pa.string())
    return pc.binary_join_element_wise(pc.binary_join_element_wise(*octets, "."), port, ":")


def offset_id_array(page: Bytes, positions: Ints, is_v6: Mask, offsets: Ints) -> pa.Array:
    """string[n], the broker's message ids: address, port and physical offset in upper-case hex, 32 or 56 digits."""
    place = offsets.astype(">i8").view(np.uint8).reshape(len(offsets), 8)
    if not is_v6.any():
        hosts = page[positions[:, None] + np.arange(message.HOST_V4.size)]
        return hex_array(np.concatenate((hosts, place), axis=1))
    parts, order = [], np.empty(len(positions), np.int64)
    filled = 0
    for rows, size in ((np.flatnonzero(~is_v6), message.HOST_V4.size), (np.flatnonzero(is_v6), message.HOST_V6.size)):
        hosts = page[positions[rows, None] + np.arange(size)]
        parts.append(hex_array(np.concatenate((hosts, place[rows]), axis=1)))
        order[rows] = filled + np.arange(len(rows))
        filled += len(rows)
    return pa.concat_arrays(parts).take(pa.array(order))
