"""Tables of Apache Iceberg, by pyiceberg: offsets stand in the summary of each snapshot, beside the rows."""

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.typedef import Record
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
from sqlalchemy.exc import SQLAlchemyError

from rmqstore.errors import Rejected
from rmqstore.lake.parquet_files import WITHOUT_STATISTICS
from rmqstore.lake.sink import (
    Consent,
    DataFile,
    Overtaken,
    Standing,
    doubtful_commit,
    refused_change,
    refused_doubt,
    refused_rows,
    told,
)
from rmqstore.lake.table_columns import TableColumns, known_columns, require_columns

# --- The schema and the partitions of Iceberg tables: those of a new table, and what partition a row belongs to.

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
                f"{name}: is partitioned by {part.transform} of {source}; a sync supports columns of messages, and "
                "year, month, day and hour of times: name a new table, which is created"
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


# ---

# In the summary of a snapshot: offset JSON.  In the table's properties, which outlive a snapshot that expires: the
# same, with the snapshot that it is of.
OFFSETS = "rmqstore.offsets"
# pyiceberg tries a commit that was overtaken again, upon the snapshot that overtook it: rows would be there twice.
_NO_RETRIES = {"commit.retry.num-retries": "0"}
_RESHAPED = "the table got another schema or other partitions"
# Of a table that is made here: many small commits come.
_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.parquet.compression-codec": "zstd",
}


def open_iceberg(
    table: str, *, catalog: str | None = None, options: Mapping[str, str] | None = None,
    columns: TableColumns | None = None, consent: Consent | None = None,
) -> "IcebergSink":  # fmt: skip
    """A table by its name, `namespace.table`, in a catalog by the name that pyiceberg's configuration has for it, or
    that the properties `options` tell of.  Nothing is made yet.

    Raises Rejected for what is no name of a table, TableFailed for a catalog that is not to be had.
    """
    if "." not in table.strip(".") or not all(table.split(".")):
        raise Rejected(f"{table}: write the name of an Iceberg table with its namespace, such as shop.orders")
    with told(table):
        found = _loaded(catalog, dict(options or {}))
    return IcebergSink(found, table, columns, consent or Consent())


def _loaded(catalog: str | None, options: Mapping[str, str]) -> Catalog:
    """The catalog.  Of those that begin a database at once only one makes each of its two tables; the others fail, and
    find it the next time."""
    for _ in range(2):
        with suppress(SQLAlchemyError):
            return load_catalog(catalog, **options)
    return load_catalog(catalog, **options)


class IcebergSink:
    """A table of a catalog.

    A commit asserts that the table still stands upon the snapshot that was looked at: who is overtaken adds nothing.
    """

    def __init__(self, catalog: Catalog, name: str, columns: TableColumns | None, consent: Consent) -> None:
        self.name = name
        self._catalog, self._consent, self._wanted = catalog, consent, columns
        self._columns = columns or TableColumns()
        self._table: Table | None = None
        self._layout: _Layout | None = None

    @property
    def columns(self) -> TableColumns:
        return self._columns

    @property
    def location(self) -> str | None:
        return None if self._table is None else self._table.location()

    @property
    def file_columns(self) -> Sequence[int]:
        return range(len(self._columns.names))

    @property
    def file_schema(self) -> pa.Schema:
        return self._known_layout.file_schema

    @property
    def _known_layout(self) -> "_Layout":
        assert self._layout is not None, "looked at, or created, before"
        return self._layout

    @property
    def _known_table(self) -> Table:
        assert self._table is not None, "looked at, or created, before"
        return self._table

    def look(self) -> Standing:
        with told(self.name):
            try:
                table = self._catalog.load_table(self.name)
            except (NoSuchTableError, NoSuchNamespaceError):
                if self._table is not None:
                    raise refused_change(self.name, "the table was dropped or renamed") from None
                return Standing(exists=False, has_rows=False)
            self._take(table)
            return self._standing(table)

    def create(self) -> None:
        with told(self.name):
            if self._table is not None:
                return
            names = self.name.split(".")
            try:
                self._catalog.create_namespace_if_not_exists(tuple(names[:-1]))
            except SQLAlchemyError:
                if not self._catalog.namespace_exists(tuple(names[:-1])):  # made by another one that syncs
                    raise
            schema = new_schema(self._columns)
            with suppress(TableAlreadyExistsError):  # by another one that syncs
                self._catalog.create_table(
                    self.name, schema, partition_spec=new_spec(schema), properties=_PROPERTIES
                )  # fmt: skip
            self._take(self._catalog.load_table(self.name))

    def partition_keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return partition_columns(self.name, self._known_table.schema(), self._known_table.spec(), rows)

    def new_path(self) -> str:
        return str(self._known_table.location_provider().new_data_location(f"sync-{secrets.token_hex(16)}.parquet"))

    def open_output(self, path: str) -> IO[bytes]:
        with told(self.name):
            return cast("IO[bytes]", self._known_table.io.new_output(path).create())

    def append(self, files: Sequence[DataFile], offsets: Mapping[str, Any]) -> object:
        table, layout = self._known_table, self._known_layout
        if not layout.is_of(table):  # since the last commit, which was ours
            raise refused_change(self.name, _RESHAPED)
        text = json.dumps(offsets, separators=(",", ":"))
        added = [layout.data_file(file) for file in files]
        table.metadata = table.metadata.model_copy(update={"properties": table.properties | _NO_RETRIES})
        table.catalog = cast("Catalog", _Commits(self._catalog, self.name))
        with told(self.name):
            try:
                with table.transaction() as change:
                    update = change.update_snapshot(snapshot_properties={OFFSETS: text})
                    merges = table.properties.get("commit.manifest-merge.enabled", "").lower() == "true"
                    with update.merge_append() if merges else update.fast_append() as appending:
                        for file in added:
                            appending.append_data_file(file)
                    number = appending.snapshot_id
                    change.set_properties({OFFSETS: f'{{"snapshot":{number},"offsets":{text}}}'})
            except CommitFailedException as error:
                raise Overtaken(str(error)) from None
        return number

    def discard(self, path: str) -> None:
        with suppress(Exception):
            self._known_table.io.delete(path)

    def _take(self, table: Table) -> None:
        """Has the table from now on, if rows go into it as before."""
        before = self._table
        if before is not None and before.metadata.table_uuid != table.metadata.table_uuid:
            raise refused_change(self.name, "the table was dropped and made again")
        if self._layout is None:
            if self._wanted is None:
                self._columns = TableColumns(known_columns(schema_to_pyarrow(table.schema()).names))
            self._layout = _Layout(self.name, table, self._columns)
        elif not self._layout.is_of(table):
            raise refused_change(self.name, _RESHAPED)
        self._table = table

    def _standing(self, table: Table) -> Standing:
        current = table.current_snapshot()
        ancestors = list(ancestors_of(current, table.metadata))
        for ancestor in ancestors:
            text = _in_summary(ancestor, OFFSETS)
            if text is not None:
                number = ancestor.snapshot_id
                return Standing(True, True, _read(self.name, text), number, is_newest=ancestor is ancestors[0])
        kept = self._kept(table, ancestors)
        if kept is not None:
            return Standing(True, True, kept["offsets"], kept["snapshot"])
        has_rows = current is not None and _record_count(current) != 0
        if has_rows and not self._consent.adopts:
            raise refused_rows(self.name)
        return Standing(True, has_rows)

    def _kept(self, table: Table, ancestors: Sequence[Snapshot]) -> Mapping[str, Any] | None:
        """The offsets in the properties, where their snapshot has expired; None where it is there, and so was rolled
        back, or where there never was one."""
        text = table.properties.get(OFFSETS)
        if text is None or not ancestors:
            return None
        kept = _read(self.name, text)
        if not isinstance(kept.get("offsets"), dict) or not isinstance(kept.get("snapshot"), int):
            raise _unreadable(self.name)
        if table.snapshot_by_id(kept["snapshot"]) is not None:
            return None
        if ancestors[-1].parent_snapshot_id != kept["snapshot"] and not self._consent.trusts:
            raise refused_doubt(self.name, "the snapshots since the last sync have expired")
        return kept


class _Commits:
    """A catalog that answers a commit as it is in the table: one may be there though it is told as failed, where an
    answer was lost or a proxy tried twice.  pyiceberg deletes the manifests of one that fails with a conflict.
    """

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog, self._name = catalog, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """As a catalog's.  Raises CommitFailedException for a commit that never will be in the table, TableFailed where
        nobody can tell, and Rejected where the table is not there any more."""
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except Exception as error:
            number = next(update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate))
            found = self._found(table, error)
            if found.snapshot_by_id(number) is None:
                if isinstance(error, CommitFailedException):
                    raise
                raise doubtful_commit(self._name, error) from error
            # After ours stands another one, which may have moved the offsets: the next commit is to be overtaken by it.
            at = found if found.metadata.current_snapshot_id == number else table
            return CommitTableResponse.model_validate(
                {"metadata": at.metadata, "metadata-location": at.metadata_location}
            )

    def _found(self, table: Table, error: Exception) -> Table:
        """The table as it is now."""
        try:
            found = self._catalog.load_table(self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise refused_change(self._name, "the table was dropped or renamed") from None
        except Exception:  # noqa: BLE001 - of any kind of catalog: what failed first is told
            raise doubtful_commit(self._name, error) from error
        if found.metadata.table_uuid != table.metadata.table_uuid:
            raise refused_change(self._name, "the table was dropped and made again")
        return found


class _Layout:
    """How rows become files of a table: worked out once, and good for as long as `is_of` says so."""

    def __init__(self, name: str, table: Table, columns: TableColumns) -> None:
        schema = table.schema()
        wanted = columns.schema
        required = [field.name for field in schema.fields if field.required]
        require_columns(name, wanted, schema_to_pyarrow(schema), required)
        partition_columns(name, schema, table.spec(), pa.RecordBatch.from_pylist([], wanted))
        self._ids = table.metadata.current_schema_id, table.metadata.default_spec_id
        self.file_schema = _file_schema(schema, wanted)
        names = [name for one in WITHOUT_STATISTICS for name in (one, f"{one}.key", f"{one}.value")]
        without = {f"write.metadata.metrics.column.{name}": "none" for name in names}
        self._plan = compute_statistics_plan(schema, table.properties | without)
        self._paths = parquet_path_to_id_mapping(sanitize_column_names(schema))

    def is_of(self, table: Table) -> bool:
        """Whether the table takes such files still."""
        return self._ids == (table.metadata.current_schema_id, table.metadata.default_spec_id)

    def data_file(self, file: DataFile) -> IcebergFile:
        """The entry of a manifest."""
        statistics = data_file_statistics_from_parquet_metadata(file.metadata, self._plan, self._paths)
        return IcebergFile.from_args(
            content=DataFileContent.DATA, file_path=file.path, file_format=FileFormat.PARQUET,
            partition=Record(*file.partition), file_size_in_bytes=file.size, sort_order_id=None,
            spec_id=self._ids[1], equality_ids=None, key_metadata=None, **statistics.to_serialized_dict(),
        )  # fmt: skip


def _file_schema(schema: Schema, wanted: pa.Schema) -> pa.Schema:
    """`wanted` with the ids of the table's fields, and names that every reader can bear."""
    by_id = {field.field_id: field.name for field in sanitize_column_names(schema).fields}
    fields = []
    for field in wanted:
        found = schema.find_field(field.name)
        kind = field.type
        if pa.types.is_map(kind):
            ids = cast("Any", found.field_type)
            key = pa.field("key", pa.string(), nullable=False, metadata=_id(ids.key_id))
            kind = pa.map_(key, pa.field("value", pa.string(), nullable=True, metadata=_id(ids.value_id)))
        fields.append(pa.field(by_id[found.field_id], kind, nullable=True, metadata=_id(found.field_id)))
    return pa.schema(fields)


def _id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


def _in_summary(snapshot: Snapshot, name: str) -> str | None:
    found = None if snapshot.summary is None else snapshot.summary[name]  # None where it is not there
    return None if found is None else str(found)


def _record_count(snapshot: Snapshot) -> int | None:
    """How many rows the table has; None where its writer does not say."""
    text = _in_summary(snapshot, "total-records")
    return int(text) if text and text.isdecimal() else None


def _read(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise _unreadable(name) from None
    if not isinstance(found, dict):
        raise _unreadable(name)
    return found


def _unreadable(name: str) -> Rejected:
    return Rejected(
        f"{name}: its property {OFFSETS} is not the offset JSON of a sync; name a new table, which is created"
    )
