"""Rows with what was taken from them so far, so that no field is read twice for two columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rmqstore.formats.inner_batch import counted_pieces, without_batch_flags
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.property_columns import Pieces, split_pieces
from rmqstore.records.gather import (
    binary_array,
    bytes_of,
    is_ascii,
    text_of,
)
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.snapshot.arrow.bodies import Body, body_array, compressed_rows, unpacked_runs
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.request import ScanRequest

# --- Inner batches (topics with queue.type=BatchCQ): one stored record that holds several messages, taken apart.


@dataclass(frozen=True, slots=True)
class Unpacked:
    """One row a message: `rows` repeat their record, `sources[i]` is the row it came from, `broken` the rows
    whose batch cannot be taken apart.
    """

    rows: Rows
    bodies: pa.Array
    properties: pa.Array
    flags: Ints
    sources: list[int]
    broken: list[int]


def unpack(rows: Rows, bodies: pa.Array, properties: pa.Array) -> Unpacked:
    """Takes inner batches apart; other records stay one row.  Message i of a batch has queue offset base + i, and its
    sysFlag does not say any more that it is a batch, or compressed.

    `bodies` (decompressed) and `properties` are binary[n] of the records.  A batch whose body is null, cannot be taken
    apart, or holds another number of messages than its queue counts, stays one row with a null body.
    """
    assert rows.inner_counts is not None
    counts = rows.inner_counts.tolist()
    own_flags = rows.located.head("flag").tolist()
    sources: list[int] = []
    steps: list[int] = []
    out_bodies: list[bytes | None] = []
    out_properties: list[bytes] = []
    flags: list[int] = []
    broken: list[int] = []
    apart: list[int] = []
    for row, (body, block) in enumerate(zip(bodies.to_pylist(), properties.to_pylist(), strict=True)):
        messages = [(own_flags[row], None if counts[row] else body, block)]
        if counts[row] and body is not None:
            pieces = counted_pieces(body, counts[row])
            if pieces is None:
                broken.append(len(sources))
            else:
                messages = [(piece.flag, piece.body, piece.properties) for piece in pieces]
                apart.extend(range(len(sources), len(sources) + len(messages)))
        for step, (flag, piece_body, piece_properties) in enumerate(messages):
            sources.append(row)
            steps.append(step)
            flags.append(flag)
            out_bodies.append(piece_body)
            out_properties.append(piece_properties)
    repeated = rows.take(np.array(sources, np.intp))
    sys_flags = repeated.located.flags
    sys_flags[apart] = without_batch_flags(sys_flags[apart])
    return Unpacked(
        replace(repeated, queue_offsets=repeated.queue_offsets + np.array(steps, np.int64)),
        pa.array(out_bodies, pa.binary()),
        pa.array(out_properties, pa.binary()),
        np.array(flags, np.int64),
        sources,
        broken,
    )


# ---

# So many names are looked for one by one; for more all names of the first block are compared at once.
_FEW_NAMES = 3
_PAIR = (b"KEYS", b"TAGS")
# What 32 bit of a binary array reach, with room for one body more.
RUN_BYTES_MAX = 1024 * 1024 * 1024


class Content:
    """n rows of one store, and the values that were read from them.  Vectors have one element a row."""

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

    def take(self, keep: Mask) -> "Content":
        taken = Content(self.rows.take(keep), self.broker_name, self.request)
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

    def unpacked(self) -> "Content":
        """One row for each message of an inner batch; bodies, properties and flags are then the messages' own."""
        bodies, failures = self.bodies(), self._failures
        inner = unpack(self.rows, bodies, self.blocks())
        result = Content(inner.rows, self.broker_name, self.request)
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
            is_many = "properties" in self.request.columns or len(self.request.properties) > _FEW_NAMES
            self._pieces = pieces.with_same_names() if is_many else pieces
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
            for other, (starts, sizes) in pieces.find_all(self._found_with(name)).items():
                self._values.setdefault(other, text_of(pieces.data, starts, sizes, sizes < 0, self._is_ascii))
        return self._values[name]

    def _found_with(self, name: bytes) -> Sequence[bytes]:
        """The property with those that are found by the same search: names of one length, and all that are columns."""
        if name in _PAIR and {"tags", "keys"}.issubset(self.request.columns):
            return _PAIR
        together = self.request.properties
        return together if name in together else (name,)

    def bodies(self) -> pa.Array:
        """binary[n]; without `put_bodies` those that are compressed are unpacked here, all of them."""
        if self._bodies is None:
            located, packed = self.rows.located, compressed_rows(self.rows.located) & self.request.decompress
            runs = unpacked_runs(located, packed, self.request.body_bytes_max, RUN_BYTES_MAX) if packed.any() else ()
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
