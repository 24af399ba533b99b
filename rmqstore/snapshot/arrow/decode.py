"""Checked records to record batches: only the columns that were asked for."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
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
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.snapshot.arrow.bodies import Body, compressed_rows, unpacked_runs
from rmqstore.snapshot.arrow.content import RUN_BYTES_MAX, Content
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.columns import COLUMNS, field_of, property_of
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.split import Span

# --- One column of a batch, each by its own small function.

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


# ---

# Columns that the position of a row answers, so that a row with a damaged record has them too.
_POSITION_COLUMNS = frozenset(
    ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "storeSize", "tagsCode")
)


class Decoder:
    """Makes record batches of one request for one store.  Holds no state between batches; any thread."""

    def __init__(
        self,
        request: ScanRequest,
        broker_name: str,
        is_shown: Callable[[int, str], bool],
        is_whole: Callable[[int], bool],
    ) -> None:
        """`is_shown` says whether a record at an offset of the log whose body cannot be had becomes a row, or raises;
        `is_whole` says whether the file that holds an offset may be read on; it is asked between two batches of the
        same rows.
        """
        self.request = request
        self.schema = pa.schema([field_of(name) for name in request.columns])
        self._broker_name = broker_name
        self._tags = pa.array(request.tags, pa.string()) if request.tags else None
        self._keys, self._ids = request.keys, request.offset_ids
        self._is_shown = is_shown
        self._is_whole = is_whole

    def batches(self, rows: Rows, clip: tuple[int, int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order: filtered by tags and keys, inner batches taken apart, damaged rows kept with nulls.

        One batch, or as many as keep the bodies of each, decompressed, within the request's `batch_bytes`; a larger
        body makes a batch of its own.  Rows that the request's onCorruptRecord leaves out are gone from `rows` already.
        `clip` keeps queue offsets [first, end) of what inner batches hold.  Raises what `is_shown` does.
        """
        if not self._packed(rows).any():
            yield self._batch(rows, clip, ())
            return
        rows = self._without_unwanted(rows)
        first, run_bytes = 0, min(self.request.batch_bytes, RUN_BYTES_MAX)
        for last, bodies in unpacked_runs(rows.located, self._packed(rows), self.request.body_bytes_max, run_bytes):
            yield self._batch(rows.take(np.arange(first, last)), clip, bodies)
            first = last
            if first < len(rows) and not self._is_whole(int(rows.offsets[first])):
                return  # the reader of that batch took its time

    def _batch(self, rows: Rows, clip: tuple[int, int] | None, bodies: Sequence[Body]) -> pa.RecordBatch:
        """One batch of rows; `bodies` are those of its `_packed` rows."""
        damaged = rows.reasons != Reason.SOUND
        if not damaged.any():
            return self._made(self._sound_content(rows, clip, bodies))
        sound = self._sound_content(rows.take(~damaged), clip, bodies) if not damaged.all() else None
        flagged = self._damaged_batch(rows.take(damaged))
        if sound is None:
            return flagged
        both = pa.Table.from_batches([self._made(sound), flagged]).combine_chunks().to_batches()[0]
        places = np.concatenate((np.flatnonzero(~damaged)[sound.numbers], np.flatnonzero(damaged)))
        return both.take(pa.array(np.argsort(places, kind="stable")))

    def _packed(self, rows: Rows) -> Mask:
        """Which rows have a compressed body that has to be unpacked: for a column, or to take an inner batch apart."""
        packed = compressed_rows(rows.located)
        packed &= rows.reasons == Reason.SOUND
        if not self.request.unpacks_bodies:
            packed &= rows.are_inner
        return packed

    def _without_unwanted(self, rows: Rows) -> Rows:
        """The rows without those whose tags or keys nobody asked for: their bodies need not be unpacked."""
        if self._tags is None and not self._keys:
            return rows
        told = rows.reasons == Reason.SOUND
        told &= ~rows.are_inner
        keep = self._matching(Content(rows.take(told), self._broker_name, self.request))
        assert keep is not None
        wanted = np.ones(len(rows), bool)
        wanted[told] = keep
        return rows.take(wanted)

    def entry_batch(self, span: Span, entries: npt.NDArray[np.void]) -> pa.RecordBatch:
        """The batch of columns that queue entries (undispatched.FOUND_ENTRY) answer without the commitlog."""
        count = len(entries)
        made = {
            "topic": lambda: constant_text(span.topic, count),
            "brokerName": lambda: constant_text(self._broker_name, count),
            "queueId": lambda: pa.repeat(pa.scalar(span.queue_id, pa.int32()), count),
            "queueOffset": lambda: pa.array(entries["queue_offset"]),
            "physicalOffset": lambda: pa.array(entries["physical_offset"]),
            "storeSize": lambda: pa.array(entries["size"], pa.int32()),
            "tagsCode": lambda: pa.array(entries["tags_code"]),
        }
        return pa.RecordBatch.from_arrays([made[name]() for name in self.request.columns], schema=self.schema)

    def _damaged_batch(self, rows: Rows) -> pa.RecordBatch:
        reasons = pa.array([TEXT[Reason(reason)] for reason in rows.reasons.tolist()], pa.string())
        content = Content(rows, self._broker_name, self.request)
        columns = [
            reasons if name == "corruptReason"
            else built(content, name) if name in _POSITION_COLUMNS
            else pa.nulls(len(rows), field_of(name).type)
            for name in self.request.columns
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _made(self, content: "Content") -> pa.RecordBatch:
        columns = [built(content, name) for name in self.request.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _sound_content(
        self, rows: Rows, clip: tuple[int, int] | None, bodies: Sequence[Body]
    ) -> "Content":  # fmt: skip
        content = Content(rows, self._broker_name, self.request)
        has_inner = rows.are_inner.any()
        if bodies or has_inner:
            content.put_bodies(self._packed(rows), bodies)
        if has_inner:
            content = content.unpacked()
            if clip is not None:
                places = content.rows.queue_offsets
                content = content.take((places >= clip[0]) & (places < clip[1]))
        keep = self._matching(content)
        if keep is not None and not keep.all():
            content = content.take(keep)
        if content.hides_messages or "body" in self.request.columns or "corruptReason" in self.request.columns:
            content = self._settled(content)
        return content

    def _settled(self, content: "Content") -> "Content":
        """Bodies that cannot be decompressed, dealt with as the user wishes."""
        failures = content.failures()
        if not failures:
            return content
        row, reason = next(iter(failures.items()))
        if self._is_shown(int(content.rows.offsets[row]), f"body: {reason}"):
            return content
        keep = np.ones(len(content), bool)
        keep[list(failures)] = False
        return content.take(keep)

    def _matching(self, content: "Content") -> Mask | None:
        """Rows with one of the wanted tags and one of the wanted keys; None when nothing is filtered."""
        keep: Mask | None = None
        if self._tags is not None:
            keep = pc.fill_null(pc.is_in(content.property_text(b"TAGS"), self._tags), False).to_numpy(False)
        if self._keys:
            keyed = self._has_key(content)
            keep = keyed if keep is None else keep & keyed
        return keep

    def _has_key(self, content: "Content") -> Mask:
        """Where UNIQ_KEY is one of the keys, or KEYS, cut at spaces, holds one, as RocketMQ indexes them; or where the
        offset message id is one."""
        unique = pc.fill_null(pc.is_in(content.property_text(b"UNIQ_KEY"), pa.array(self._keys, pa.string())), False)
        padded = pc.binary_join_element_wise("", content.property_text(b"KEYS"), "", " ")
        found: Mask = unique.to_numpy(False)
        for key in self._keys:
            found = found | pc.fill_null(pc.match_substring(padded, f" {key} "), False).to_numpy(False)
        if self._ids and np.isin(content.rows.offsets, [*self._ids.values()]).any():
            found = found | pc.is_in(built(content, "offsetMsgId"), pa.array(self._ids, pa.string())).to_numpy(False)
        return found
