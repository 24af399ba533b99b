"""Checked records to record batches: only the columns that were asked for, each by its own small function."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import message, sys_flag
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.property_columns import AlikePieces, Pieces, split_pieces
from rmqstore.records.gather import (
    binary_array,
    bytes_of,
    constant_text,
    is_ascii,
    millis_to_timestamps,
    repeated_texts,
    text_of,
    texts_in_rows,
)
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.snapshot.arrow.bodies import Body, body_array, compressed_rows, unpacked_runs
from rmqstore.snapshot.arrow.hosts import host_array, offset_id_array
from rmqstore.snapshot.arrow.inner_batches import unpack
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.columns import COLUMNS
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.split import Span

# Columns that the position of a row answers, so that a row with a damaged record has them too.
_POSITION_COLUMNS = frozenset(
    ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "storeSize", "tagsCode")
)
# What 32 bit of a binary array reach, with room for one body more.
_RUN_BYTES_MAX = 1024 * 1024 * 1024


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
        self.schema = pa.schema([COLUMNS[name] for name in request.columns])
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
        first, run_bytes = 0, min(self.request.batch_bytes, _RUN_BYTES_MAX)
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
        keep = self._matching(_Content(rows.take(told), self._broker_name, self.request))
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
        content = _Content(rows, self._broker_name, self.request)
        columns = [
            reasons if name == "corruptReason"
            else _BUILDERS[name](content) if name in _POSITION_COLUMNS
            else pa.nulls(len(rows), COLUMNS[name].type)
            for name in self.request.columns
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _made(self, content: "_Content") -> pa.RecordBatch:
        columns = [_BUILDERS[name](content) for name in self.request.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _sound_content(
        self, rows: Rows, clip: tuple[int, int] | None, bodies: Sequence[Body]
    ) -> "_Content":  # fmt: skip
        content = _Content(rows, self._broker_name, self.request)
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

    def _settled(self, content: "_Content") -> "_Content":
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

    def _matching(self, content: "_Content") -> Mask | None:
        """Rows with one of the wanted tags and one of the wanted keys; None when nothing is filtered."""
        keep: Mask | None = None
        if self._tags is not None:
            keep = pc.fill_null(pc.is_in(content.property_text(b"TAGS"), self._tags), False).to_numpy(False)
        if self._keys:
            keyed = self._has_key(content)
            keep = keyed if keep is None else keep & keyed
        return keep

    def _has_key(self, content: "_Content") -> Mask:
        """Where UNIQ_KEY is one of the keys, or KEYS, cut at spaces, holds one, as RocketMQ indexes them; or where the
        offset message id is one."""
        unique = pc.fill_null(pc.is_in(content.property_text(b"UNIQ_KEY"), pa.array(self._keys, pa.string())), False)
        padded = pc.binary_join_element_wise("", content.property_text(b"KEYS"), "", " ")
        found: Mask = unique.to_numpy(False)
        for key in self._keys:
            found = found | pc.fill_null(pc.match_substring(padded, f" {key} "), False).to_numpy(False)
        if self._ids and np.isin(content.rows.offsets, [*self._ids.values()]).any():
            found = found | pc.is_in(_offset_msg_id(content), pa.array(self._ids, pa.string())).to_numpy(False)
        return found


class _Content:
    """Rows with what was taken from them so far, so that no field is read twice for two columns."""

    def __init__(self, rows: Rows, broker_name: str, request: ScanRequest) -> None:
        self.rows = rows
        self.broker_name = broker_name
        self.request = request
        self._pieces: Pieces | None = None
        self._is_ascii = False
        self._blocks: pa.Array | None = None
        self._values: dict[bytes, pa.Array] = {}
        self._bodies: pa.Array | None = None
        self._failures: dict[int, str] = {}
        self.flag: Ints | None = None
        self.numbers = np.arange(len(rows))  # the row, of those that it began with, that each row comes from

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def hides_messages(self) -> bool:
        """Whether one of the rows is a batch that could not be taken apart, so that it stands for several."""
        return bool(self.rows.are_inner[list(self._failures)].any())

    def take(self, keep: Mask) -> "_Content":
        taken = _Content(self.rows.take(keep), self.broker_name, self.request)
        mask = pa.array(keep)
        taken._values = {name: values.filter(mask) for name, values in self._values.items()}
        if self._blocks is not None:
            taken._blocks = self._blocks.filter(mask)
        if self._bodies is not None:
            taken._bodies = self._bodies.filter(mask)
        taken.flag = None if self.flag is None else self.flag[keep]
        taken.numbers = self.numbers[keep]
        rows = np.flatnonzero(keep).tolist() if self._failures else []
        taken._failures = {place: self._failures[row] for place, row in enumerate(rows) if row in self._failures}
        return taken

    def unpacked(self) -> "_Content":
        """One row for each message of an inner batch; bodies, properties and flags are then the messages' own."""
        bodies, failures = self.bodies(), self._failures
        inner = unpack(self.rows, bodies, self.blocks())
        result = _Content(inner.rows, self.broker_name, self.request)
        result._bodies, result._blocks, result.flag = inner.bodies, inner.properties, inner.flags
        result.numbers = self.numbers[inner.sources]
        result._failures = {place: failures[row] for place, row in enumerate(inner.sources) if row in failures}
        result._failures |= dict.fromkeys(inner.broken, TEXT[Reason.INNER_BATCH])
        return result

    def blocks(self) -> pa.Array:
        """binary[n], the property blocks."""
        if self._blocks is None:
            located = self.rows.located
            self._blocks = binary_array(located.page, located.properties_at, located.properties_size)
        return self._blocks

    def pieces(self) -> Pieces:
        if self._pieces is None:
            data, offsets = bytes_of(self.blocks())
            pieces = split_pieces(data, offsets)
            self._pieces = pieces.with_same_names() if "properties" in self.request.columns else pieces
            self._is_ascii = is_ascii(data[: offsets[-1]])
        return self._pieces

    def is_ascii(self) -> bool:
        """Whether all property blocks are plain ASCII."""
        self.pieces()
        return self._is_ascii

    def property_text(self, name: bytes) -> pa.Array:
        """string[n], one property, null where absent."""
        if name not in self._values:
            pieces = self.pieces()
            together = {b"TAGS", b"KEYS"}  # names of one length are found by one search
            is_pair = name in together and {"tags", "keys"}.issubset(self.request.columns)
            for other, (starts, sizes) in pieces.find_all(sorted(together) if is_pair else [name]).items():
                self._values.setdefault(other, text_of(pieces.data, starts, sizes, sizes < 0, self._is_ascii))
        return self._values[name]

    def bodies(self) -> pa.Array:
        """binary[n]; without `put_bodies` those that are compressed are unpacked here, all of them."""
        if self._bodies is None:
            located, packed = self.rows.located, compressed_rows(self.rows.located) & self.request.decompress
            runs = unpacked_runs(located, packed, self.request.body_bytes_max, _RUN_BYTES_MAX) if packed.any() else ()
            self.put_bodies(packed, [body for _, run in runs for body in run])
        assert self._bodies is not None
        return self._bodies

    def put_bodies(self, packed: Mask, unpacked: Sequence[Body]) -> None:
        """Says which rows have a body that is unpacked already; the others' are as they are stored."""
        self._bodies, self._failures = body_array(self.rows.located, packed, unpacked)

    def failures(self) -> dict[int, str]:
        if self.request.decompress:
            self.bodies()
        return self._failures

    def is_v6(self, bit: int) -> Mask:
        return np.asarray(self.rows.located.flags & bit != 0)


def _topic(content: _Content) -> pa.Array:
    topic = content.rows.topic
    return constant_text(topic, len(content)) if isinstance(topic, str) else topic


def _properties(content: _Content) -> pa.Array:
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


def _offset_msg_id(content: _Content) -> pa.Array:
    located = content.rows.located
    v6 = content.is_v6(sys_flag.STORE_HOST_V6)
    return offset_id_array(located.page, located.store_host_at, v6, content.rows.offsets)


def _msg_id(content: _Content) -> pa.Array:
    unique = content.property_text(b"UNIQ_KEY")
    return unique if unique.null_count == 0 else pc.coalesce(unique, _offset_msg_id(content))


def _born_host(content: _Content) -> pa.Array:
    located = content.rows.located
    return host_array(located.page, located.starts + message.HEAD.size, content.is_v6(sys_flag.BORN_HOST_V6))


def _corrupt_reason(content: _Content) -> pa.Array:
    failures = content.failures()
    return (
        pa.array([failures.get(row) for row in range(len(content))], pa.string())
        if failures
        else pa.nulls(len(content), pa.string())
    )


def _sys_flag(content: _Content) -> pa.Array:
    """As stored, but for the bits that tell of a compression that `body` beside it does not have any more: a
    row that is stored again is stored as its flags say.
    """
    flags = content.rows.located.flags
    if content.request.decompress:
        flags = np.where(flags & sys_flag.COMPRESSED != 0, sys_flag.without_compression(flags), flags)
    return pa.array(flags, pa.int32())


def _tags_code(content: _Content) -> pa.Array:
    codes = content.rows.tags_codes
    return pa.nulls(len(content), pa.int64()) if codes is None else pa.array(codes)


_BUILDERS: dict[str, Callable[[_Content], pa.Array]] = {
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
}
