"""`option("table", …)`: what a store says beside its messages, as small Spark tables; see rmqstore.snapshot.tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqstore.errors import Rejected, StoreError, UnknownColumn
from rmqstore.snapshot import ledger_entries, open_snapshot
from rmqstore.snapshot.columns import near_names
from rmqstore.snapshot.request import Access, TableName
from rmqstore.snapshot.tables.tables import SCHEMAS, table_schema
from spark_source.options import values
from spark_source.options.table import parsed_options
from spark_source.worker_errors import errors_in_one_line

MESSAGES = "messages"

PARSERS = {
    "path": values.local_path,
    "paths": values.path_list,
    "stores": values.store_paths,
    "storePathCommitLog": values.log_paths,
    "access": values.one_of("auto", "mmap", "pread"),
    "columns": str.strip,
}
_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRead:
    """One `load()` of a table: which one, of which stores, and its Arrow schema."""

    name: TableName
    stores: values.Stores
    access: Access
    schema: pa.Schema

    @property
    def takes_nodes(self) -> bool:
        """Whether a path may be a DLedger node's directory."""
        return self.name == "entries"

    def with_schema(self, wanted: StructType | pa.Schema) -> "TableRead":
        """The same read in the user's own schema, which names some of the columns; an Arrow schema, as Sail gives it,
        is what the batches have to the letter.

        Raises UnknownColumn, and Rejected for another type than the table has or for no column at all.
        """
        if isinstance(wanted, pa.Schema):
            self.with_schema(from_arrow_schema(wanted))
            return replace(self, schema=wanted)
        whole = SCHEMAS[self.name]
        fields, mistakes = [], []
        for field in wanted.fields:
            if field.name not in whole.names:
                raise UnknownColumn(field.name, near_names(field.name, whole.names))
            own = whole.field(field.name)
            spark_type = _SPARK_TYPES[own.type]
            if type(field.dataType) is not type(spark_type):
                mistakes.append(f"column {field.name} of {self.name}: declare it {spark_type.simpleString()}")
            fields.append(own.with_nullable(field.nullable))
        if mistakes or not fields:
            raise Rejected("; ".join(mistakes) or "the schema has no column: name at least one")
        return replace(self, schema=pa.schema(fields))


def parse_table(options: Mapping[str, str]) -> TableRead | None:
    """The table that `options` ask for; None for the messages, whose options are parsed elsewhere.

    Raises Rejected for an unknown table, for options that a table does not have and for values that do not parse.
    """
    given = {key.lower(): text for key, text in options.items()}
    name = given.pop("table", MESSAGES).strip().lower()
    if name == MESSAGES:
        return None
    if name not in SCHEMAS:
        raise Rejected(f"table={name!r}: write {', '.join([MESSAGES, *SCHEMAS])}")
    parsed, mistakes = parsed_options(
        given, PARSERS, lambda key: f"option {key!r} does not go with table={name}, which takes {', '.join(PARSERS)}"
    )
    mistakes += values.contradicting_stores(parsed)
    schema = pa.schema([])
    try:
        schema = table_schema(name, parsed.get("columns"))
    except StoreError as mistake:
        mistakes.append(str(mistake))
    if mistakes:
        raise Rejected("; ".join(mistakes))
    return TableRead(
        name=cast("TableName", name),
        stores=values.stores_of(parsed),
        access=parsed.get("access", "auto"),
        schema=schema,
    )


def spark_table_schema(schema: pa.Schema) -> StructType:
    """The schema that Spark shows, every field nullable."""
    return StructType([StructField(field.name, _SPARK_TYPES[field.type], nullable=True) for field in schema])


class TablePartition(InputPartition):
    """The one task that makes a table."""


class TableReader(DataSourceReader):
    """Makes one table in one task, from the store as it is when the task runs."""

    def __init__(self, table_read: TableRead) -> None:
        self._table_read = table_read

    def partitions(self) -> list[InputPartition]:
        """One for the whole table."""
        return [TablePartition(self._table_read.name)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 (there is only one)
        """The rows of the table.  Raises StoreError."""
        asked = self._table_read
        with errors_in_one_line():
            if asked.takes_nodes:
                made = ledger_entries(asked.stores, asked.schema.names, access=asked.access)
            else:
                made = open_snapshot(asked.stores, access=asked.access).table(asked.name, asked.schema.names)
        yield from made.cast(asked.schema).to_batches()
