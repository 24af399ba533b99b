"""Text for a terminal of 80 columns: headings, paragraphs, code, and the rows of a small DataFrame as a table."""

import textwrap
from collections.abc import Iterable

from pyspark.sql import DataFrame

from spark_source.job_table import GAP, laid_out

WIDTH = 80
INDENT = "  "


def heading(text: str) -> str:
    """A line that begins a part, with a rule under it."""
    return f"\n{text}\n{'-' * len(text)}"


def paragraph(text: str) -> str:
    """`text` with its blanks made single, wrapped to the width; a word that is longer stays whole."""
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def code(text: str) -> str:
    """`text` as it is, indented, with an empty line before and after."""
    return "\n" + textwrap.indent(text.strip("\n"), INDENT * 2) + "\n"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, one pair a line; a value goes on below itself."""
    listed = list(pairs)
    name_width = max(len(name) for name, _ in listed) + len(GAP)
    room = WIDTH - len(INDENT) - name_width
    lines = []
    for name, value in listed:
        pieces = textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False) or [""]
        labels = [name] + [""] * (len(pieces) - 1)
        lines += [f"{INDENT}{label:<{name_width}}{piece}" for label, piece in zip(labels, pieces, strict=True)]
    return "\n".join(lines)


def cell(value: object) -> str:
    """A value as a reader wants it: thousands apart, nothing where there is nothing, one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return " ".join(str(value).split())


def table(frame: DataFrame) -> str:
    """All rows of `frame` under its column names, numbers to the right; the last column gives way to the width."""
    rows = [tuple(row) for row in frame.collect()]
    to_right = [all(isinstance(value, int | float) for value in column) for column in zip(*rows, strict=True)]
    texts = [[cell(value) for value in row] for row in rows]
    laid = laid_out([frame.columns, *texts], to_right or [False] * len(frame.columns), WIDTH - len(INDENT))
    return textwrap.indent(laid, INDENT)
