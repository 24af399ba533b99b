"""Bodies as Arrow: gathered from the page, decompressed where the record says so."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqstore.errors import StoreError
from rmqstore.formats import sys_flag
from rmqstore.formats.compression import BodyError, decompress
from rmqstore.formats.inner_batch import inner_batch_rows, read_pieces, record_numbers
from rmqstore.formats.message_columns import Located, Mask
from rmqstore.snapshot.arrow_bytes import binary_array
from rmqstore.snapshot.soundness import TEXT, Reason


def body_array(located: Located, expand: bool | Mask, size_max: int) -> tuple[pa.Array, dict[int, str]]:
    """binary[n] of the bodies, and why a row's body could not be had (row number → reason; null in the array).

    `expand` says whether, or of which rows, compressed bodies are decompressed, never past `size_max` bytes each.
    """
    compressed = (located.flags & sys_flag.COMPRESSED != 0) & expand
    if not compressed.any():
        return binary_array(located.page, located.body_at, located.body_size), {}
    rows = np.flatnonzero(compressed)
    bodies, failures = _decompressed(located, rows.tolist(), size_max)
    plain_rows = np.flatnonzero(~compressed)
    plain = binary_array(located.page, located.body_at[plain_rows], located.body_size[plain_rows])
    order = np.empty(len(compressed), np.int64)
    order[plain_rows] = np.arange(len(plain_rows))
    order[rows] = len(plain_rows) + np.arange(len(rows))
    return pa.concat_arrays([plain, bodies]).take(pa.array(order)), failures


def _decompressed(located: Located, rows: list[int], size_max: int) -> tuple[pa.Array, dict[int, str]]:
    """Codecs take one body at a time: the one place where each compressed message costs a call."""
    bodies: list[bytes | None] = []
    failures: dict[int, str] = {}
    for row in rows:
        start = int(located.body_at[row])
        stored = located.page[start : start + int(located.body_size[row])].tobytes()
        try:
            bodies.append(decompress(stored, int(located.flags[row]), size_max))
        except BodyError as error:
            bodies.append(None)
            failures[row] = str(error)
    return pa.array(bodies, pa.binary()), failures


def unreadable_bodies(located: Located, rows: list[int], size_max: int) -> Iterator[tuple[int, str]]:
    """Those of some sound records (by row) whose body a scan cannot have, and why; one body is in memory at a time."""
    part = located.take(np.array(rows, np.intp))
    inner = inner_batch_rows(part, record_numbers(part))
    for place in np.flatnonzero((part.flags & sys_flag.COMPRESSED != 0) | inner).tolist():
        start = int(part.body_at[place])
        stored = part.page[start : start + int(part.body_size[place])].tobytes()
        try:
            body = decompress(stored, int(part.flags[place]), size_max)
        except BodyError as error:
            yield rows[place], str(error)
            continue
        if inner[place] and not _can_be_taken_apart(body):
            yield rows[place], TEXT[Reason.INNER_BATCH]


def _can_be_taken_apart(body: bytes) -> bool:
    try:
        read_pieces(body)
    except (StoreError, ValueError):
        return False
    return True
