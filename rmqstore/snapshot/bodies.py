"""Bodies as Arrow: gathered from the page, decompressed where the record says so."""

import numpy as np
import pyarrow as pa

from rmqstore.formats import sys_flag
from rmqstore.formats.compression import BodyError, decompress
from rmqstore.formats.message_columns import Located
from rmqstore.snapshot.arrow_bytes import binary_array


def body_array(located: Located, expand: bool, size_max: int) -> tuple[pa.Array, dict[int, str]]:
    """binary[n] of the bodies, and why a row's body could not be had (row number → reason; null in the array).

    With `expand` compressed bodies are decompressed, never past `size_max` bytes each.
    """
    compressed = located.flags & sys_flag.COMPRESSED != 0
    if not expand or not compressed.any():
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
