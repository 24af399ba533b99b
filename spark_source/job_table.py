"""The rows of a job as text: a table where the terminal has room for it, else a block for each row."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.core.safe_text import pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GAP = "  "
CUT = "..."
# The last column of a table gives way to the width, and keeps so many columns.
_LAST_MIN = 16
# A value that is told once for all rows takes at most so many.
_TOLD_MAX = 40
_WHOLE = 2**31
_IN_ONE_LINE = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


class RowsAsText(NamedTuple):
    """Rows as text, and what is to be said of those that are left out; "" where none are."""

    text: str
    left_out: str


def shown(frame: DataFrame, rows_max: int, width: int | None) -> RowsAsText:
    """The first rows of `frame` for a terminal of `width` columns; None is a pipe: names and rows whole, with tabs."""
    from pyspark.sql.types import NumericType, TimestampType  # noqa: PLC0415

    flat = flattened(frame, times=True)
    found = flat.limit(rows_max + 1).collect()
    rows = [flat.columns, *([cell(value) for value in row] for row in found[:rows_max])]
    left_out = f"only the first {rows_max} rows are shown: --rows N shows more" if len(found) > rows_max else ""
    if width is None:
        return RowsAsText("\n".join("\t".join(row) for row in rows), left_out)
    if not found:
        return RowsAsText("no rows", "")
    are_times = [isinstance(field.dataType, TimestampType) for field in frame.schema.fields]
    rows = with_short_times(rows, are_times)
    to_right = [isinstance(field.dataType, NumericType) for field in flat.schema.fields]
    if _fits(rows, width):
        return RowsAsText(laid_out(rows, to_right, width), left_out)
    told, kept = told_once(rows)
    rows = [[row[place] for place in kept] for row in rows]
    fits = _fits(rows, width)
    text = laid_out(rows, [to_right[place] for place in kept], width) if fits else _blocks(rows, width)
    return RowsAsText("\n".join([*textwrap.wrap(told, width), *([""] if told else []), text]), left_out)


def told_once(rows: Sequence[Sequence[str]]) -> tuple[str, list[int]]:
    """The short values that all rows have in common, as a sentence, and the places of the other columns.  The first row
    has the names.  Columns without any value are in neither.
    """
    names, *found = rows
    same = {place: set(column) for place, column in enumerate(zip(*found, strict=True))}
    shared = [
        place for place, values in same.items()
        if len(values) == 1 and (values == {""} or (len(found) > 1 and shown_width(found[0][place]) <= _TOLD_MAX))
    ]  # fmt: skip
    if len(shared) == len(names):
        return "", list(range(len(names)))
    said = [f"{names[place]} {found[0][place]}" for place in shared if found[0][place]]
    return f"in all rows: {', '.join(said)}" if said else "", [place for place in same if place not in shared]


def flattened(frame: DataFrame, *, times: bool = False) -> DataFrame:
    """The columns of `frame`, those that hold several values as JSON, bytes as text, and with `times` times as text."""
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, TimestampType  # noqa: PLC0415

    columns = []
    for field in frame.schema.fields:
        column = f.col(f"`{field.name}`")
        if isinstance(field.dataType, ArrayType | MapType | StructType):
            column = f.to_json(column)
        elif isinstance(field.dataType, BinaryType):
            column = column.cast("string")
        elif times and isinstance(field.dataType, TimestampType):
            column = f.date_format(column, "yyyy-MM-dd HH:mm:ss.SSS")
        columns.append(column.alias(field.name))
    return frame.select(columns)


def cell(value: object) -> str:
    """A value in one line, in which all can be seen: control characters are escaped, nothing stands for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return "".join(piece.text for piece in pieces(str(value).translate(_IN_ONE_LINE), _WHOLE))


def shown_width(text: str) -> int:
    """Columns that a terminal takes for `text`: two for a wide character, none for one that sits on another."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns (3 or more), with ... at the end where something is left out."""
    if shown_width(text) <= width:
        return text
    ends = accumulate(map(_columns, text))
    return text[: sum(1 for _ in takewhile(lambda end: end <= width - len(CUT), ends))].rstrip() + CUT


def laid_out(rows: Sequence[Sequence[str]], to_right: Sequence[bool], width: int) -> str:
    """Rows of text, the first one the names, in columns as wide as what they hold; `to_right` aligns each.  The last
    column gives way to the width.
    """
    widths = _widths(rows)
    room = width - sum(size + len(GAP) for size in widths[:-1])
    widths[-1] = min(widths[-1], max(room, len(CUT)))
    lines = []
    for row in rows:
        cells = []
        for text, size, right in zip(row, widths, to_right, strict=True):
            fitting = cut(text, size)
            padding = " " * (size - shown_width(fitting))
            cells.append(padding + fitting if right else fitting + padding)
        lines.append(GAP.join(cells).rstrip())
    rule = GAP.join("-" * size for size in widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def with_short_times(rows: Sequence[Sequence[str]], are_times: Sequence[bool]) -> list[list[str]]:
    """The rows, with what is zero in all times of a column left out: its milliseconds, its seconds."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    for column in (column for column, is_time in zip(columns, are_times, strict=True) if is_time):
        for end in (".000", ":00"):
            if not all(text.endswith(end) for text in column[1:] if text):
                break
            column[1:] = [text.removesuffix(end) for text in column[1:]]
    return [list(row) for row in zip(*columns, strict=True)]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(shown_width(text) for text in column) for column in zip(*rows, strict=True)]


def _fits(rows: Sequence[Sequence[str]], width: int) -> bool:
    *others, last = _widths(rows)
    return sum(size + len(GAP) for size in others) + min(last, _LAST_MIN) <= width


def _blocks(rows: Sequence[Sequence[str]], width: int) -> str:
    """A block for each row: a line for each value that is there, cut at the width."""
    names, *found = rows
    left = max(map(shown_width, names))
    room = max(width - left - len(GAP), len(CUT))
    blocks = []
    for row in found:
        pairs = [(name, text) for name, text in zip(names, row, strict=True) if text]
        blocks.append("\n".join(f"{name:<{left}}{GAP}{cut(text, room)}" for name, text in pairs))
    return "\n\n".join(blocks)
