"""The values that travel from an input to the store: some messages as columns, and the first thing that is wrong."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from rmqstore.errors import in_one_line

# Rows that are made columns, and put, together.
ROWS_AT_ONCE = 8192


class Mistake(Exception):
    """A part of an input that is not a valid message; the text is the reason."""

    def __str__(self) -> str:
        return in_one_line(super().__str__())


class Wrong(NamedTuple):
    """The first line (or row, from 1) of an input that is not a valid message, and the reason."""

    line: int
    reason: str


class Chunk(NamedTuple):
    """Messages as `Store.put_columns` takes them, and the line that each stands on; the input is read up to before
    `next_line`.

    `wrong` stands after them, and nothing is read after it.  `is_pause`: no more came just now.
    """

    messages: pa.RecordBatch | None
    lines: Sequence[int]
    next_line: int
    wrong: Wrong | None = None
    is_pause: bool = False


def up_to_a_mistake(
    lines: Sequence[int], columns: Callable[[int], pa.RecordBatch], next_line: int, *, is_pause: bool = False
) -> Chunk:
    """The chunk of some lines, of which `columns(n)` makes the first n messages, or raises Mistake if one of these is
    wrong: then those before the first wrong one."""
    try:
        return Chunk(columns(len(lines)) if lines else None, lines, next_line, is_pause=is_pause)
    except Mistake:
        good = bisect_left(range(1, len(lines)), True, key=lambda count: _is_wrong(columns, count))
    try:
        columns(good + 1)
    except Mistake as mistake:
        wrong = Wrong(lines[good], str(mistake))
        return Chunk(columns(good) if good else None, lines[:good], lines[good], wrong)
    raise AssertionError(f"line {lines[good]} is wrong only together with other lines")


def _is_wrong(columns: Callable[[int], pa.RecordBatch], count: int) -> bool:
    try:
        columns(count)
    except Mistake:
        return True
    return False
