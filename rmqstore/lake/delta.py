"""Tables of Delta Lake, by deltalake: each commit names, as an app transaction, a small file with the offsets.

What Delta keeps of a commit for ever is a name and one whole number (`txn`); all else that a writer can say of it goes
when the log is cleaned.  So the offsets stand in a file of the table's directory, which is there before the commit, and
the number of the transaction is the number of that file: `_rmqstore/offsets-NUMBER.json`.  The upper half of the number
is the version that the commit makes.  Readers and VACUUM leave directories alone whose names begin with `_`.
"""

import datetime
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction

from rmqstore.errors import Rejected
from rmqstore.lake.places import directory_of_table
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
from rmqstore.lake.table_columns import DAY_COLUMN, TableColumns, known_columns, require_columns

# --- Which commit with offsets a Delta table stands upon: the newest one, but for what was rolled back.

_GONE = "the log of the commits since the last sync was cleaned"


class NewestCommit(NamedTuple):
    """The number of the app transaction, None without one; why it may be another by rights, or ""."""

    number: int | None
    doubt: str = ""


def newest_commit(table: DeltaTable, app_id: str, at_version: Callable[[int], DeltaTable]) -> NewestCommit:
    """The newest commit of `app_id` whose rows the table has.

    RESTORE takes rows back and leaves app transactions as they are, so what was restored since is looked at as it was
    then.  The upper half of a number is the version of its commit.
    """
    at, version = table, table.version()
    while True:
        number = at.transaction_version(app_id)
        if number is None or number >> 32 >= version:
            return NewestCommit(number)
        commits = dict(_commits(table, number >> 32))
        between = range((number >> 32) + 1, version + 1)
        if any(one not in commits for one in between):
            return NewestCommit(number, _GONE)
        restored = [one for one in between if commits[one].get("operation") == "RESTORE"]
        if not restored:
            return NewestCommit(number)
        try:
            target = _restored_version(commits[restored[-1]], at_version)
            if target is None or target >= restored[-1]:
                return NewestCommit(number, "it was restored to a time")
            at, version = at_version(target), target
        except Exception:  # noqa: BLE001 - of any kind of storage: a version is not to be had
            return NewestCommit(number, "it was restored to a version whose log is gone")


def _commits(table: DeltaTable, after: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The commits of a table by their version.

    Should somebody commit just now, deltalake numbers them from the end, so that these are too low: then this look
    leads to no commit, which would have to make the version that is there.
    """
    for commit in table.history(table.version() - after):
        yield int(commit["version"]), commit


def _restored_version(commit: Mapping[str, Any], at_version: Callable[[int], DeltaTable]) -> int | None:
    """The version that RESTORE went back to; of a time only where deltalake said it, in ms.

    The ms are cut off from the moment that was meant, so it may be the version after the one that they lead to: the
    files tell.
    """
    asked = commit.get("operationParameters") or {}
    version, moment = asked.get("version"), asked.get("datetime")
    if version is not None and str(version).isdecimal():
        return int(version)
    if moment is None or not str(moment).isdecimal():
        return None
    restored = at_version(int(commit["version"]))
    before = at_version(restored.version() - 1)
    before.load_as_version(datetime.datetime.fromtimestamp(int(moment) / 1000, datetime.UTC))
    for one in (before.version(), before.version() + 1):
        if one < restored.version() and set(at_version(one).file_uris()) == set(restored.file_uris()):
            return one
    return None


# ---

# --- The entry of a Delta table's log for a file, and which tables take files that are written so.

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
            f"{name}: {demands[0]} is set, which a sync does not support; name a new table, which is created"
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


# ---

_DIVIDED_BY = ("topic", DAY_COLUMN)
# Of the app transactions of a sync.
APP_ID = "rmqstore.sync"
_ROOM = "_rmqstore"
_LOG = "_delta_log"
# Files of offsets are looked through for old ones every so many commits.
_SWEEP_COMMITS = 500


def open_delta(
    table: str, *, options: Mapping[str, str] | None = None, columns: TableColumns | None = None,
    consent: Consent | None = None,
) -> "DeltaSink":  # fmt: skip
    """A table by its path, or its URI: file:, s3:, gs: and what else pyarrow knows; `options` are deltalake's for it.
    Nothing is made yet.  Raises TableFailed for a place that is not to be had."""
    with told(table):
        given = dict(options or {})
        return DeltaSink(table, directory_of_table(table, given), given, columns, consent or Consent())


class DeltaSink:
    """A table in a directory.

    A commit makes the version after the one that was looked at, or none: who is overtaken adds nothing.
    """

    def __init__(
        self, uri: str, disk: pa_fs.FileSystem, options: dict[str, str], columns: TableColumns | None, consent: Consent
    ) -> None:
        self.name = uri
        self._disk, self._options, self._wanted, self._consent = disk, options, columns, consent
        self._columns = (columns or TableColumns()).with_day()
        self._table: DeltaTable | None = None
        self._layout: tuple[str, str, tuple[str, ...]] | None = None
        self._directories: set[str] = set()
        self._commit_count = 0

    @property
    def columns(self) -> TableColumns:
        return self._columns

    @property
    def location(self) -> str | None:
        return self.name

    @property
    def file_columns(self) -> Sequence[int]:
        divided = self._partition_names
        return [number for number, name in enumerate(self._columns.names) if name not in divided]

    @property
    def file_schema(self) -> pa.Schema:
        whole = self._columns.schema
        return pa.schema([whole.field(number) for number in self.file_columns])

    @property
    def _partition_names(self) -> tuple[str, ...]:
        return _DIVIDED_BY if self._layout is None else self._layout[2]

    @property
    def _known_table(self) -> DeltaTable:
        assert self._table is not None, "looked at, or created, before"
        return self._table

    def look(self) -> Standing:
        with told(self.name):
            table = self._loaded()
            if table is None:
                if self._table is not None:
                    raise refused_change(self.name, "the table was removed or renamed")
                return Standing(exists=False, has_rows=False)
            self._take(table)
            return self._standing(table)

    def create(self) -> None:
        with told(self.name):
            if self._table is not None:
                return
            self._require_own_directory()
            with suppress(CommitFailedError):  # another one that syncs made it a moment ago
                DeltaTable.create(
                    self.name, DeltaSchema.from_arrow(self._columns.schema), mode="ignore",
                    partition_by=list(_DIVIDED_BY), storage_options=self._options or None,
                    commit_properties=CommitProperties(max_commit_retries=0),  # else it replaces the other's
                )  # fmt: skip
            table = self._loaded()
            assert table is not None, "it was made a moment ago"
            self._take(table)

    def partition_keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [rows.column(name) for name in self._partition_names]

    def new_path(self) -> str:
        return f"sync-{secrets.token_hex(16)}.parquet"

    def open_output(self, path: str) -> IO[bytes]:
        with told(self.name):
            return cast("IO[bytes]", self._disk.open_output_stream(path))

    def append(self, files: Sequence[DataFile], offsets: Mapping[str, Any]) -> object:
        with told(self.name):
            table = self._known_table
            self._require_same_table()
            number = (table.version() + 1) << 32 | secrets.randbits(32)
            try:
                self._note(number, offsets, str(table.metadata().id))
            except FileNotFoundError as error:  # the directory is gone: the next look tells
                raise Overtaken(str(error)) from None
            added = [add_action(file, self._partition_names, int(time.time() * 1000)) for file in files]
            self._commit(table, added, number)
            table.load_as_version(number >> 32)  # not a later one: another sync may have moved the offsets in it
            if table.transaction_version(APP_ID) != number:
                raise refused_change(self.name, "another program committed offsets")
            self._commit_count += 1
            if self._commit_count % _SWEEP_COMMITS == 1:
                self._sweep(table.version(), number)
            return number

    def discard(self, path: str) -> None:
        with suppress(Exception):
            self._disk.delete_file(path)

    def _commit(self, table: DeltaTable, added: "list[AddAction]", number: int) -> None:
        once = CommitProperties(
            app_transactions=[Transaction(APP_ID, number, int(time.time() * 1000))],
            max_commit_retries=0,  # a commit upon another version than the one that was looked at adds rows twice
        )  # fmt: skip
        try:
            table.create_write_transaction(
                list(added), "append", table.schema(), list(self._partition_names), commit_properties=once
            )
        except Exception as error:
            if self._has(number, error):
                return  # what failed came after it, such as a checkpoint of the log, or its answer was lost
            if isinstance(error, CommitFailedError):
                raise Overtaken(str(error)) from None
            raise

    def _has(self, number: int, error: Exception) -> bool:
        """Whether a commit that failed is in the table, whoever came after it; False where it never will be.

        Raises TableFailed where nobody can tell, and Rejected where the table is not there any more.
        """
        try:
            found = self._loaded()
            if found is not None and found.version() > number >> 32:
                found.load_as_version(number >> 32)
        except Exception:  # noqa: BLE001 - of any kind of storage: what failed first is told
            raise doubtful_commit(self.name, error) from error
        if found is None:
            raise refused_change(self.name, "the table was removed or renamed")
        if found.metadata().id != self._known_table.metadata().id:
            raise refused_change(self.name, "the table was replaced by another")
        if found.version() < number >> 32:
            raise doubtful_commit(self.name, error) from error
        return found.transaction_version(APP_ID) == number

    def _loaded(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.name, storage_options=self._options or None)
        except TableNotFoundError:
            return None

    def _take(self, table: DeltaTable) -> None:
        """Has the table from now on, if rows go into it as before."""
        about = table.metadata()
        layout = str(about.id), table.schema().to_json(), tuple(about.partition_columns)
        if self._layout is not None and self._layout[0] != layout[0]:
            raise refused_change(self.name, "the table was replaced by another")
        if self._layout is not None and self._layout != layout:
            raise refused_change(self.name, "the table got another schema or other partitions")
        if self._layout is None:
            self._require(table)
            self._layout = layout
        self._table = table

    def _require_same_table(self) -> None:
        """Raises Overtaken where another table is in this place by now: a commit knows its version alone, which that
        may have, too."""
        found = self._loaded()
        if found is None or found.metadata().id != self._known_table.metadata().id:
            raise Overtaken("another table is there")

    def _require(self, table: DeltaTable) -> None:
        """Raises Rejected where files that are written here do not fit into the table."""
        require_plain(self.name, table)
        found = pa.schema(table.schema().to_arrow())
        columns = self._wanted or TableColumns(known_columns(found.names))
        self._columns = columns.with_day() if DAY_COLUMN in found.names else columns
        required = [field.name for field in found if not field.nullable]
        require_columns(self.name, self._columns.schema, found, required)
        for name in table.metadata().partition_columns:
            if name not in self._columns.names:
                raise Rejected(f"{self.name}: is partitioned by {name}, which messages do not have; name another table")

    def _require_own_directory(self) -> None:
        """Raises Rejected for a directory of somebody else's; one that a killed run began is none."""
        try:
            found = self._disk.get_file_info(pa_fs.FileSelector(""))
        except FileNotFoundError:
            return
        is_foreign = bool({info.base_name for info in found} - {_LOG, _ROOM})
        if is_foreign and self._loaded() is None:  # else another one that syncs made the table a moment ago
            raise Rejected(f"{self.name}: holds other files and is not a Delta table; name a new directory")

    def _standing(self, table: DeltaTable) -> Standing:
        version = table.version()
        found = newest_commit(table, APP_ID, lambda number: DeltaTable(
            self.name, version=number, storage_options=self._options or None
        ))  # fmt: skip
        if found.doubt and not self._consent.trusts:
            raise refused_doubt(self.name, found.doubt)
        if found.number is None:
            has_rows = bool(table.file_uris())
            if has_rows and not self._consent.adopts:
                raise refused_rows(self.name)
            return Standing(True, has_rows)
        return Standing(True, True, self._noted(found, table), found.number, is_newest=found.number >> 32 == version)

    def _noted(self, found: NewestCommit, table: DeltaTable) -> Mapping[str, Any]:
        assert found.number is not None
        path = _note_path(found.number)
        try:
            with self._disk.open_input_stream(path) as file:
                noted = json.loads(file.read())
            offsets, owner = noted["offsets"], noted["table"]
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            raise Rejected(
                f"{self.name}: its file {path}, which holds the offsets of the last sync, is gone or damaged; "
                "restore it from a copy, or name a new table, which is created"
            ) from None
        if owner != str(table.metadata().id) or not isinstance(offsets, dict):
            raise Rejected(
                f"{self.name}: was replaced since the last sync, or its offsets are of another table; name a new "
                "table, which is created"
            )
        return offsets

    def _note(self, number: int, offsets: Mapping[str, Any], table_id: str) -> None:
        if _ROOM not in self._directories:
            self._disk.create_dir(_ROOM, recursive=True)
            self._directories.add(_ROOM)
        text = json.dumps({"table": table_id, "offsets": offsets}, separators=(",", ":"))
        with self._disk.open_output_stream(_note_path(number)) as file:
            file.write(text.encode())

    def _sweep(self, version: int, number: int) -> None:
        """Removes files of offsets to which nobody can go back: their versions are gone from the log."""
        with suppress(OSError):
            logged = {info.base_name for info in self._disk.get_file_info(pa_fs.FileSelector(_LOG))}
            for info in self._disk.get_file_info(pa_fs.FileSelector(_ROOM)):
                noted = _number_in(info.base_name)
                is_old = noted is not None and noted >> 32 < version and f"{noted >> 32:020d}.json" not in logged
                if is_old and noted != number:
                    self._disk.delete_file(info.path)


def _note_path(number: int) -> str:
    return f"{_ROOM}/offsets-{number}.json"


def _number_in(name: str) -> int | None:
    digits = name.removeprefix("offsets-").removesuffix(".json")
    return int(digits) if digits.isdecimal() and len(digits) < 20 else None
