"""The questions that a table of any format answers: where it stands, and one commit of files with their offsets."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rmqstore.errors import Rejected, StoreError
from rmqstore.lake.table_columns import TableColumns

# Lines of a library's error that say how the one before came about, and the colours that it has for a terminal.
_CAUSE = re.compile(r"(?:↳|Caused by:|\d+:)\s*(.*)")
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
# The values of a file in the columns, or transforms of columns, that its table is divided by.
Partition = tuple[Any, ...]


class TableFailed(StoreError):
    """A table, its catalog or its disk refuses; nothing is doubled or lost by running again."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)
        self.table, self.reason = table, reason

    def _line(self) -> str:
        return f"{self.table}: {self.reason}; repair that and run it again: it continues from the table's offsets"


class Overtaken(Exception):
    """Somebody else committed first: nothing of this commit is in the table, nor will be, and its files may go."""


class DataFile(NamedTuple):
    """A finished Parquet file; `path` as the table names it."""

    path: str
    size: int
    partition: Partition
    metadata: pq.FileMetaData


class Committed(NamedTuple):
    """One commit, as it is reported."""

    rows: int
    size: int
    files: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a table stands.  `offsets`: those of the newest commit of a sync that is still part of the table, None
    without one; `token` tells that commit from every other.  `is_newest`: nobody committed after it.
    """

    exists: bool
    has_rows: bool
    offsets: Mapping[str, Any] | None = None
    token: object = None
    is_newest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Things that a user wants all the same: `adopts`: a table with rows of somebody else's; `trusts`: offsets of which
    nobody can tell any more that the table was not rolled back since."""

    adopts: bool = False
    trusts: bool = False


class TableSink(Protocol):
    """A table; used by one thread."""

    @property
    def name(self) -> str:
        """The name that users know it by."""

    @property
    def columns(self) -> TableColumns:
        """The columns of its rows; known after a look."""

    @property
    def location(self) -> str | None:
        """The directory or URI that it lies in, as far as it is known."""

    def look(self) -> Standing:
        """Reads the table as it is now.  Raises Rejected where it cannot take what is to come, TableFailed."""

    def create(self) -> None:
        """Makes the table, empty, unless it is there."""

    def partition_keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """For each thing that the table is divided by, the value of each row."""

    def new_path(self) -> str:
        """A path for a new file; it says nothing of what is in it."""

    def open_output(self, path: str) -> IO[bytes]:
        """A new file."""

    @property
    def file_columns(self) -> Sequence[int]:
        """Which of `columns` a file holds, by their numbers."""

    @property
    def file_schema(self) -> pa.Schema:
        """The schema of a file: those, under the names that it has for them."""

    def append(self, files: Sequence[DataFile], offsets: Mapping[str, Any]) -> object:
        """Adds files together with the offsets after them, in one commit upon the table as it was last looked at;
        returns its token.  Raises Overtaken; TableFailed and Rejected leave open whether it is in the table."""

    def discard(self, path: str) -> None:
        """Takes a file away that is in no commit; does nothing if that fails."""


@contextmanager
def told(table: str) -> Iterator[None]:
    """Errors of libraries become TableFailed; those of this package, and of the system, pass."""
    try:
        yield
    except (StoreError, Overtaken):
        raise
    except Exception as error:
        raise TableFailed(table, f"{type(error).__name__}: {_reason_of(error)}") from error


def _reason_of(error: BaseException) -> str:
    """The first line of an error, and those of its causes: stores of objects say the reason at their end."""
    parts = list[str]()
    found: BaseException | None = error
    while found is not None:
        for line in _lines_of(str(found)):
            if not any(line in part for part in parts):
                parts.append(line)
        found = found.__cause__
    return ": ".join(parts) or "no reason is given"


def _lines_of(text: str) -> Iterator[str]:
    """The first line, and those that are marked as its causes."""
    lines = [line for line in (line.strip() for line in _COLOURS.sub("", text).splitlines()) if line]
    causes = [cause[1] for line in lines[1:] if (cause := _CAUSE.match(line))]
    yield from filter(None, (line.strip().rstrip(".;:") for line in [*lines[:1], *causes]))


def doubtful_commit(table: str, error: Exception) -> TableFailed:
    """For a commit that failed and may be in the table, or come into it yet."""
    return TableFailed(
        table,
        f"{type(error).__name__}: {_reason_of(error)}; it is unknown whether this commit is in the table, so its "
        "files are kept, which does no harm",
    )


def refused_rows(table: str) -> Rejected:
    """For a table that somebody else filled."""
    return Rejected(
        f"{table}: has rows and no offsets of a sync, so a sync cannot tell where to continue; name a new table, "
        "which is "
        "created, or begin at --start with --adopt"
    )


def refused_doubt(table: str, why: str) -> Rejected:
    """For offsets that may not be those of the table's rows."""
    return Rejected(
        f"{table}: {why}, so a sync cannot tell whether the table was rolled back since; if it was not, continue "
        "from the last offsets with --trust-offsets"
    )


def refused_change(table: str, what: str) -> Rejected:
    """For a table that was changed while it was written to."""
    return Rejected(
        f"{table}: {what} meanwhile; check the table and start again: the sync continues from the table's offsets"
    )
