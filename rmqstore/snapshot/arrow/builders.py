"""One column of a batch, each by its own small function."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import host, message, sys_flag
from rmqstore.formats.message_columns import Bytes, Ints, Mask, gather
from rmqstore.formats.property_columns import AlikePieces
from rmqstore.records.gather import (
    constant_text,
    hex_array,
    millis_to_timestamps,
    repeated_texts,
    text_array,
    text_of,
    texts_in_rows,
)
from rmqstore.snapshot.arrow.content import Content
from rmqstore.snapshot.columns import COLUMNS, property_of

# --- Host addresses of many records as Arrow text, and offset message ids, which begin with one.


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


# ---


def built(content: Content, column: str) -> pa.Array:
    name = property_of(column)
    return _BUILDERS[column](content) if name is None else content.property_text(name.encode())


def _topic(content: Content) -> pa.Array:
    topic = content.rows.topic
    return constant_text(topic, len(content)) if isinstance(topic, str) else topic


def _properties(content: Content) -> pa.Array:
    pieces = content.pieces().without_doubles()
    names = None if pieces.same_names is None else repeated_texts(pieces.same_names, len(content))
    if names is None:
        names = text_of(pieces.data, *pieces.places[:2], is_ascii=content.is_ascii())
    values = None
    if isinstance(pieces, AlikePieces) and content.is_ascii():
        values = texts_in_rows(*pieces.values())
    if values is None:
        values = text_of(pieces.data, *pieces.places[2:], is_ascii=content.is_ascii())
    offsets = np.concatenate(([0], np.cumsum(pieces.counts))).astype(np.int32)
    entries = pa.StructArray.from_arrays(
        [names, values], fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
    )
    kind = COLUMNS["properties"].type
    return pa.Array.from_buffers(kind, len(content), [None, pa.py_buffer(offsets)], children=[entries])


def _offset_msg_id(content: Content) -> pa.Array:
    located = content.rows.located
    v6 = content.is_v6(sys_flag.STORE_HOST_V6)
    return offset_id_array(located.page, located.store_host_at, v6, content.rows.offsets)


def _msg_id(content: Content) -> pa.Array:
    unique = content.property_text(b"UNIQ_KEY")
    return unique if unique.null_count == 0 else pc.coalesce(unique, _offset_msg_id(content))


def _born_host(content: Content) -> pa.Array:
    located = content.rows.located
    return host_array(located.page, located.starts + message.HEAD.size, content.is_v6(sys_flag.BORN_HOST_V6))


def _corrupt_reason(content: Content) -> pa.Array:
    failures = content.failures()
    return (
        pa.array([failures.get(row) for row in range(len(content))], pa.string())
        if failures
        else pa.nulls(len(content), pa.string())
    )


def _sys_flag(content: Content) -> pa.Array:
    """As stored, but for the bits that tell of a compression that `body` beside it does not have any more: a
    row that is stored again is stored as its flags say.
    """
    flags = content.rows.located.flags
    if content.request.decompress:
        flags = np.where(flags & sys_flag.COMPRESSED != 0, sys_flag.without_compression(flags), flags)
    return pa.array(flags, pa.int32())


def _tags_code(content: Content) -> pa.Array:
    codes = content.rows.tags_codes
    return pa.nulls(len(content), pa.int64()) if codes is None else pa.array(codes)


_BUILDERS: dict[str, Callable[[Content], pa.Array]] = {
    "topic": _topic,
    "brokerName": lambda content: constant_text(content.broker_name, len(content)),
    "queueId": lambda content: pa.array(content.rows.queue_ids, pa.int32()),
    "queueOffset": lambda content: pa.array(content.rows.queue_offsets),
    "tags": lambda content: content.property_text(b"TAGS"),
    "keys": lambda content: content.property_text(b"KEYS"),
    "body": lambda content: content.bodies(),
    "properties": _properties,
    "flag": lambda content: pa.array(
        content.rows.located.head("flag") if content.flag is None else content.flag, pa.int32()
    ),
    "sysFlag": _sys_flag,
    "bornTimestampMs": lambda content: pa.array(content.rows.located.head("born_timestamp").astype(np.int64)),
    "storeTimestampMs": lambda content: pa.array(content.rows.located.store_timestamp()),
    "bornTimestamp": lambda content: millis_to_timestamps(content.rows.located.head("born_timestamp").astype(np.int64)),
    "storeTimestamp": lambda content: millis_to_timestamps(content.rows.located.store_timestamp()),
    "bornHost": _born_host,
    "storeHost": lambda content: host_array(
        content.rows.located.page, content.rows.located.store_host_at, content.is_v6(sys_flag.STORE_HOST_V6)
    ),
    "msgId": _msg_id,
    "offsetMsgId": _offset_msg_id,
    "reconsumeTimes": lambda content: pa.array(content.rows.located.head("reconsume_times"), pa.int32()),
    "preparedTransactionOffset": lambda content: pa.array(content.rows.located.head("prepared_transaction_offset")),
    "physicalOffset": lambda content: pa.array(content.rows.offsets),
    "storeSize": lambda content: pa.array(content.rows.sizes, pa.int32()),
    "bodyCrc": lambda content: pa.array(content.rows.located.head("body_crc"), pa.int32()),
    "tagsCode": _tags_code,
    "corruptReason": _corrupt_reason,
    "propertiesText": lambda content: text_array(content.blocks()),
}
