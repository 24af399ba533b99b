"""Rows as whatever speaks Arrow's C interface hands them out: pyarrow, Polars, pandas, DuckDB."""

from typing import Any, Protocol

import pyarrow as pa

from rmqstore.arguments import wrong_type
from rmqstore.errors import Rejected


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

    Raises WrongType for what gives no Arrow data, Rejected for Arrow data that is no rows of columns, and whatever a
    stream raises while it is read.
    """
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return rows
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
        reason = " ".join(str(error).split())
        raise Rejected(f"table: a {type(rows).__name__} that is no rows of columns ({reason})") from None
    return reader.read_all()
