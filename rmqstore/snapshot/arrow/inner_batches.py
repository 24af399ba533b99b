"""Inner batches (topics with queue.type=BatchCQ): one stored record that holds several messages, taken apart."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rmqstore.formats.inner_batch import counted_pieces, without_batch_flags
from rmqstore.formats.message_columns import Ints
from rmqstore.snapshot.arrow.rows import Rows


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
