"""A whole table as one block of records."""

import pyarrow as pa

from rmqstore.engine.log.encode.column_values import DELAY_LEVEL_COUNT
from rmqstore.engine.log.encode.columns import EncodedColumns, record_blocks
from rmqstore.engine.log.encode.record_frame import RecordForm


def record_columns(
    table: pa.Table | pa.RecordBatch, form: RecordForm, now_ms: int, level_count: int = DELAY_LEVEL_COUNT
) -> EncodedColumns:
    """The rows of a table, in however many chunks they come."""
    whole = table.combine_chunks() if isinstance(table, pa.Table) else table
    (block,) = record_blocks(whole, form, now_ms, 2**40, level_count)
    return block
