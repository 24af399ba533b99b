"""The entry of a Delta table's log for a file, and which tables take files that are written so."""

import datetime
import json
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from rmqstore.errors import Rejected
from rmqstore.lake.sink import DataFile

# Settings of a table by which its files need more than the columns: names of their own, checks, numbers of rows.
_DEMANDING = (
    "delta.columnMapping.mode", "delta.constraints.", "delta.enableRowTracking", "delta.enableIcebergCompat",
    "delta.universalFormat",
)  # fmt: skip
_DEMANDING_FIELDS = ("delta.invariants", "delta.generationExpression", "delta.identity.")


def require_plain(name: str, table: DeltaTable) -> None:
    """Raises Rejected for a table whose files need more than messages have."""
    settings = {key: value for key, value in table.metadata().configuration.items() if value not in ("none", "false")}
    demands = [key for key in settings if key.startswith(_DEMANDING)]
    demands += [
        key for field in table.schema().fields for key in field.metadata if key.startswith(_DEMANDING_FIELDS)
    ]  # fmt: skip
    if demands:
        raise Rejected(
            f"{name}: {demands[0]} is set, which a sync does not fulfil; name a table of its own, which is made"
        )


def add_action(file: DataFile, partition_names: Sequence[str], now_ms: int) -> AddAction:
    """The entry of the log for a finished file."""
    values = dict(zip(partition_names, map(_partition_text, file.partition), strict=True))
    return AddAction(
        file.path, file.size, values, now_ms, data_change=True, stats=json.dumps(_statistics(file.metadata))
    )


def _partition_text(value: object) -> str | None:
    """As Delta writes values of partitions: an empty text is none."""
    if value is None:
        return None
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Rows, and the bounds of whole numbers and times: what queries leave files out by."""
    bounds: dict[str, list[tuple[Any, Any] | None]] = {}
    nulls: dict[str, int] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(metadata.num_columns):
            column = group.column(place)
            statistics = column.statistics
            name = column.path_in_schema
            if statistics is None or not statistics.has_null_count:
                continue
            nulls[name] = nulls.get(name, 0) + statistics.null_count
            bounds.setdefault(name, []).append(_bounds(statistics))
    told = {name: pairs for name, pairs in bounds.items() if None not in pairs}
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _json_value(min(pair[0] for pair in pairs if pair)) for name, pairs in told.items()},
        "maxValues": {name: _json_value(max(pair[1] for pair in pairs if pair)) for name, pairs in told.items()},
        "nullCount": nulls,
    }


def _bounds(statistics: pq.Statistics) -> tuple[Any, Any] | None:
    """Of whole numbers and times; None for others, and for a column without values."""
    low, high = (statistics.min, statistics.max) if statistics.has_min_max else (None, None)
    return (low, high) if isinstance(low, int | datetime.datetime) else None


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        utc = value.astimezone(datetime.UTC)
        return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"
    return value
