"""Bodies as Arrow: gathered from the page, decompressed where it is asked for, a bounded number of bytes at a time."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from rmqstore.formats import sys_flag
from rmqstore.formats.compression import BodyError, decompress
from rmqstore.formats.inner_batch import counted_pieces, inner_batch_rows, record_numbers
from rmqstore.formats.message_columns import Located, Mask
from rmqstore.records.gather import binary_array
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.records.stretch import Stretch

# A decompressed body, or why it cannot be had.
Body = bytes | BodyError


def compressed_rows(located: Located) -> Mask:
    """bool[n]: whose sysFlag says that the body is compressed."""
    return np.asarray(located.flags & sys_flag.COMPRESSED != 0)


def unpacked_runs(located: Located, packed: Mask, size_max: int, run_bytes: int) -> Iterator[tuple[int, list[Body]]]:
    """Rows in runs of at most `run_bytes` bytes of bodies, those of the rows `packed` counted as they are when they are
    decompressed; one larger body makes a run of its own.  Yields the row after a run, and its decompressed bodies.

    What a frame says of its size is not believed: a body counts once it is there, at most `size_max` bytes of it.  Of
    one run at a time, and the first body after it, memory holds the decompressed bytes.
    """
    count = len(packed)
    plain = np.concatenate(([0], np.cumsum(np.where(packed, 0, located.body_size), dtype=np.int64)))
    first = held = total = 0  # the run's first row, the row after its last packed one, its decompressed bytes
    bodies: list[Body] = []
    for row in [*np.flatnonzero(packed).tolist(), count]:
        body = _unpacked(located, row, size_max) if row < count else b""
        size = 0 if isinstance(body, BodyError) else len(body)
        while first < row and int(plain[row] - plain[first]) + total + size > run_bytes:
            fit = int(np.searchsorted(plain, plain[first] + run_bytes - total, side="right")) - 1
            last = min(max(fit, held, first + 1), row)
            yield last, bodies
            first = held = last
            total, bodies = 0, []
        if row < count:
            bodies.append(body)
            held, total = row + 1, total + size
    if first < count:
        yield count, bodies


def _unpacked(located: Located, row: int, size_max: int) -> Body:
    """Codecs take one body at a time: the one place where each compressed message costs a call."""
    start = int(located.body_at[row])
    stored = located.page[start : start + int(located.body_size[row])].tobytes()
    try:
        return decompress(stored, int(located.flags[row]), size_max)
    except BodyError as error:
        return BodyError(str(error))  # without frames, which would keep what they had unpacked


def body_array(located: Located, packed: Mask, unpacked: Sequence[Body]) -> tuple[pa.Array, dict[int, str]]:
    """binary[n] of the bodies, and why a row's body could not be had (row number → reason; null in the array).

    `unpacked` are the bodies of the rows `packed`, in order; the others come as they are stored.
    """
    if not packed.any():
        return binary_array(located.page, located.body_at, located.body_size), {}
    rows = np.flatnonzero(packed)
    failures = {
        row: str(body) for row, body in zip(rows.tolist(), unpacked, strict=True) if isinstance(body, BodyError)
    }
    bodies = pa.array([None if isinstance(body, BodyError) else body for body in unpacked], pa.binary())
    if len(rows) == len(packed):
        return bodies, failures
    plain_rows = np.flatnonzero(~packed)
    plain = binary_array(located.page, located.body_at[plain_rows], located.body_size[plain_rows])
    order = np.empty(len(packed), np.int64)
    order[plain_rows] = np.arange(len(plain_rows))
    order[rows] = len(plain_rows) + np.arange(len(rows))
    return pa.concat_arrays([plain, bodies]).take(pa.array(order)), failures


def unreadable_bodies(stretch: Stretch, rows: list[int], size_max: int) -> Iterator[tuple[int, str]]:
    """Those of some sound records (by row) whose body a scan cannot have, and why; one body is in memory at a time."""
    part = stretch.located.take(np.array(rows, np.intp))
    said = record_numbers(part, own_bases=stretch.own_bases)
    inner = inner_batch_rows(part, said)
    for place in np.flatnonzero(compressed_rows(part) | inner).tolist():
        body = _unpacked(part, place, size_max)
        if isinstance(body, BodyError):
            yield rows[place], str(body)
        elif inner[place] and counted_pieces(body, int(said.counts[place])) is None:
            yield rows[place], TEXT[Reason.INNER_BATCH]
