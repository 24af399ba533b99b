"""Rows as whatever speaks Arrow's C interface hands them out: pyarrow, Polars, pandas, DuckDB."""

from typing import Any, Protocol

import pyarrow as pa

from rmqstore.core.arguments import wrong_type
from rmqstore.errors import Rejected

# How Arrow goes on after the text of an exception of Python.
_FRAMES = ". Detail: Python exception: "


class ArrowStream(Protocol):
    """Several batches of rows: tables, data frames, readers, results of a query."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """An ArrowArrayStream capsule."""


class ArrowBatch(Protocol):
    """One batch of rows."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """A pair of capsules, ArrowSchema and ArrowArray."""


ArrowRows = ArrowStream | ArrowBatch


def as_table(rows: ArrowRows) -> "pa.Table | pa.RecordBatch":
    """The rows as pyarrow has them; a stream is read to its end, since all rows are checked before any is stored.

    Raises WrongType for what gives no Arrow data, Rejected for Arrow data that is no rows of columns and for a stream
    that fails while it is read.  An exception of the generator that feeds a reader of pyarrow passes through as it is,
    and so does Ctrl-C, whatever the stream.
    """
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return rows
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()  # not through the C interface, which knows no exceptions but texts
    gives_rows = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    if not gives_rows or isinstance(rows, type):
        raise wrong_type(
            "table",
            rows,
            "an Arrow table, a data frame, or anything else with __arrow_c_stream__, as pa.table(columns)",
        )
    try:
        if not hasattr(rows, "__arrow_c_stream__"):
            return pa.record_batch(rows)
        reader = pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Rejected(f"table: a {type(rows).__name__} that is no rows of columns ({_short(error)})") from None
    try:
        return reader.read_all()
    except pa.ArrowException as error:
        _raise_exit_of(str(error))
        raise Rejected(f"table: a {type(rows).__name__} that cannot be read to its end ({_short(error)})") from None


def _short(error: Exception) -> str:
    """The text of an error of Arrow, without the frames of the stream that raised it."""
    return " ".join(str(error).partition(_FRAMES)[0].split())


def _raise_exit_of(text: str) -> None:
    """Raises KeyboardInterrupt, SystemExit and the like again, where the C interface turned them into text."""
    last_line = text.partition(_FRAMES)[2].strip().rpartition("\n")[2]
    if last_line.startswith("KeyboardInterrupt"):
        raise KeyboardInterrupt
    if last_line.startswith("SystemExit"):
        status = last_line.partition(": ")[2]
        raise SystemExit(int(status) if status.isdecimal() else status or None)
