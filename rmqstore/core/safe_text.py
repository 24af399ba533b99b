"""Escapes text from a store for HTML, for JSON in HTML, and for readers.

Clients and disks choose the names of topics, groups, hosts, keys and files.  No name may become markup, change the
writing direction of the text around it, or look like another name because of invisible characters.
"""

import html
import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

# Characters of a name, and of a sentence, that are shown, escapes counted as they are written out.
SHOWN_MAX, SENTENCE_MAX = 160, 2000
# Rows of a table in a notebook's cell.
_CELL_ROWS = 10
# What JSON leaves as it is and a parser of HTML, or an older one of JavaScript, takes for something else.
_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_IN_SCRIPT_FOUND = re.compile("[<>&\u2028\u2029]")


class VisiblePart(NamedTuple):
    """A part of a text: as it is, or the escapes of characters that cannot be seen."""

    text: str
    is_escape: bool


def pieces(text: str, shown_max: int = SHOWN_MAX) -> Iterator[VisiblePart]:
    """The text in visible parts.  Escapes such as `\\u202E` replace invisible characters: control characters, lone
    surrogates, unusual spaces and those that change the writing direction.

    At most `shown_max` characters; the number of the others is added at the end.
    """
    room, taken, run, is_escape = shown_max, 0, list[str](), False
    for character in text:
        seen = character.isprintable() and (character == " " or not character.isspace())
        shown = character if seen else _escape(character)
        if len(shown) > room:
            break
        if run and is_escape == seen:
            yield VisiblePart("".join(run), is_escape)
            run.clear()
        is_escape = not seen
        run.append(shown)
        room, taken = room - len(shown), taken + 1
    if run:
        yield VisiblePart("".join(run), is_escape)
    if taken < len(text):
        yield VisiblePart(f"… ({len(text) - taken:,} more characters)", True)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04X}" if number < 0x10000 else f"\\U{number:08X}"


def visible(text: str) -> str:
    """The parts of `pieces` as one text."""
    return "".join(piece.text for piece in pieces(text))


def text_html(text: str, shown_max: int = SHOWN_MAX) -> str:
    """The text as escaped HTML, with a writing direction of its own."""
    if text.isascii() and text.isprintable() and len(text) <= shown_max:
        return html.escape(text)
    parts = (
        f'<span class="esc">{html.escape(piece.text)}</span>' if piece.is_escape else html.escape(piece.text)
        for piece in pieces(text, shown_max)
    )
    return f"<bdi>{''.join(parts)}</bdi>"


def arrow_html(caption: str, table: "pa.Table") -> str:
    """An Arrow table as `notebook_html` shows it; columns hold texts, whole numbers or instants."""
    columns = [_values(column) for column in table.slice(0, _CELL_ROWS).columns]
    return notebook_html(caption, table.column_names, [*zip(*columns, strict=True)], table.num_rows)


def _values(column: "pa.ChunkedArray") -> list[Any]:
    """The values of a column; instants as numbers where Python's calendar does not reach."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        return column.cast("int64").to_pylist()  # type: ignore[no-any-return]


def notebook_html(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], count: int) -> str:
    """HTML for a notebook cell: a caption, a table of the first rows, and how many of `count` rows are left out."""
    head = "".join(f"<th>{text_html(each)}</th>" for each in heads)
    shown = rows[:_CELL_ROWS]
    lines = [f"<tr>{''.join(f'<td>{_cell_html(value)}</td>' for value in row)}</tr>" for row in shown]
    more = f"<p>{count - len(shown):,} more rows</p>" if count > len(shown) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>" if lines else ""
    return f"<div><p>{text_html(caption, SENTENCE_MAX)}</p>{table}{more}</div>"


def _cell_html(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%SZ")
    return f"{value:,}" if isinstance(value, int) else text_html(str(value), SENTENCE_MAX)


def script_json(document: Any) -> str:
    """JSON for a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return _IN_SCRIPT_FOUND.sub(lambda found: _IN_SCRIPT[found[0]], text)
