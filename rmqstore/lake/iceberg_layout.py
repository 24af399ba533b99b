"""The schema and the partitions of Iceberg tables: those of a new table, and what partition a row belongs to."""

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from rmqstore.errors import Rejected
from rmqstore.lake.table_columns import TableColumns

_KINDS: dict[pa.DataType, IcebergType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
}
_FIRST_PARTITION_ID = 1000
_HOUR_US = 3600 * 1_000_000
_DAY_US = 24 * _HOUR_US
# Names of partition fields of a new table.
TOPIC_PARTITION, DAY_PARTITION = "topic", "day"


def new_schema(columns: TableColumns) -> Schema:
    """The schema of a new table."""
    fields = [
        NestedField(number, field.name, _kind(field.type, 1000 + 2 * number), required=False)
        for number, field in enumerate(columns.schema, 1)
    ]
    return Schema(*fields)


def _kind(kind: pa.DataType, free_id: int) -> IcebergType:
    if pa.types.is_map(kind):
        return MapType(free_id, StringType(), free_id + 1, StringType(), value_required=False)
    return _KINDS[kind]


def new_spec(schema: Schema) -> PartitionSpec:
    """By topic, and by day(storeTimestamp), which queries need not name."""
    topic, stored = (schema.find_field(name).field_id for name in ("topic", "storeTimestamp"))
    return PartitionSpec(
        PartitionField(topic, _FIRST_PARTITION_ID, IdentityTransform(), TOPIC_PARTITION),
        PartitionField(stored, _FIRST_PARTITION_ID + 1, DayTransform(), DAY_PARTITION),
    )


def partition_columns(name: str, schema: Schema, spec: PartitionSpec, rows: pa.RecordBatch) -> list[pa.Array]:
    """For each partition field the value of each row, as manifests have it.

    Raises Rejected for a field that is divided in a way that is not known here.
    """
    found = []
    for part in spec.fields:
        source = schema.find_column_name(part.source_id)
        column = rows.column(source) if source in rows.schema.names else None
        made = None if column is None else _transformed(part, column)
        if made is None:
            raise Rejected(
                f"{name}: is divided by {part.transform} of {source}; a sync knows columns of messages, and "
                "year, month, day and hour of times: name a table of its own, which is made"
            )
        found.append(made)
    return found


def _transformed(part: PartitionField, column: pa.Array) -> pa.Array | None:
    kind = column.type
    if isinstance(part.transform, IdentityTransform):
        if pa.types.is_timestamp(kind):
            return column.cast(pa.int64())
        return None if pa.types.is_map(kind) or pa.types.is_binary(kind) else column
    if not pa.types.is_timestamp(kind):
        return None
    if isinstance(part.transform, DayTransform):
        return _floor(column, _DAY_US)
    if isinstance(part.transform, HourTransform):
        return _floor(column, _HOUR_US)
    years = pc.subtract(pc.year(column), 1970)
    if isinstance(part.transform, YearTransform):
        return years.cast(pa.int32())
    if isinstance(part.transform, MonthTransform):
        return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1)).cast(pa.int32())
    return None


def _floor(column: pa.Array, unit_us: int) -> pa.Array:
    """Whole units since 1970, also of times before."""
    us = column.cast(pa.int64())
    whole = pc.fill_null(us, 0).to_numpy(zero_copy_only=False) // unit_us
    return pa.array(whole, mask=us.is_null().to_numpy(zero_copy_only=False)).cast(pa.int32())
