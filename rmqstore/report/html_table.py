"""Tables as HTML: they are whole without a script, which only sorts, searches and folds them."""

import html
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from rmqstore.report.words import byte_size, span_of, utc
from rmqstore.safe_text import SENTENCE_MAX, SHOWN_MAX, text_html

# Text; a word or two; a sentence; a number of things; bytes; ms since the epoch; a length of time in ms; a number with
# a bar of its share.
Kind = Literal["text", "words", "sentence", "count", "bytes", "time", "span", "bar"]
_TEXTS = ("text", "words", "sentence")
ROWS_MAX = 2000


class Column(NamedTuple):
    """A head, what stands below it, and an explanation that the head shows when it is pointed at."""

    head: str
    kind: Kind = "text"
    hint: str = ""


def table_html(name: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> str:
    """A table with the id `table-NAME`; the first column heads its rows.

    Numbers stand exactly in `data-v`, by which rows are sorted.  Of more than ROWS_MAX rows the first ones are there,
    and a line says so.
    """
    largest = [
        max((row[number] or 0 for row in rows), default=0) if column.kind == "bar" else 0
        for number, column in enumerate(columns)
    ]
    heads = "".join(_head_html(column) for column in columns)
    lines = []
    for row in rows[:ROWS_MAX]:
        cells = zip(row, columns, largest, strict=True)
        shown = [_cell_html(value, column, most, place == 0) for place, (value, column, most) in enumerate(cells)]
        lines.append(f"<tr>{''.join(shown)}</tr>\n")
    more = f'<p class="note">{len(rows) - ROWS_MAX:,} more rows are left out.</p>' if len(rows) > ROWS_MAX else ""
    return (
        f'<div class="scroll" role="region" aria-labelledby="caption-{name}" tabindex="0">'
        f'<table class="data" id="table-{name}"><caption id="caption-{name}">{html.escape(caption)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody></table></div>{more}\n"
    )


def _head_html(column: Column) -> str:
    numeric = "" if column.kind in _TEXTS else ' class="n"'
    hint = f' title="{html.escape(column.hint)}"' if column.hint else ""
    return f'<th scope="col" data-kind="{column.kind}"{numeric}{hint}>{text_html(column.head)}</th>'


def _cell_html(value: Any, column: Column, largest: int, is_first: bool) -> str:
    if column.kind in _TEXTS:
        most = SENTENCE_MAX if column.kind == "sentence" else SHOWN_MAX
        shown = "" if value is None else text_html(str(value), most)
        return f'<th scope="row">{shown}</th>' if is_first else f'<td class="{column.kind}">{shown}</td>'
    if value is None:
        return '<td class="n" data-v="">–</td>'
    return f'<td class="n" data-v="{int(value)}">{_number_html(int(value), column.kind, largest)}</td>'


def _number_html(value: int, kind: Kind, largest: int) -> str:
    if kind == "bytes":
        return f'<span title="{value:,} bytes">{byte_size(value)}</span>'
    if kind == "time":
        return html.escape(utc(value) or f"{value} ms")
    if kind == "span":
        return html.escape(span_of(value))
    if kind == "bar" and value:
        share = round(100 * value / largest, 1)
        return (
            f'{value:,}<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect width="{share}" height="6"/></svg>'
        )
    return f"{value:,}"
