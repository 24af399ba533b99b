"""The columns of a table of messages, and how a batch of them is made from messages that came."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.errors import Rejected
from rmqstore.snapshot.columns import COLUMNS, DEFAULT_COLUMNS, EVERY_COLUMN, column_names, field_of, property_of

# What a row is known by, and a table divided by; whatever else is chosen, they are there.
PLACE = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp")
REASON = "corruptReason"
_NEVER_NULL = ("topic", "brokerName", "queueId", "queueOffset")
# The date of storeTimestamp, for tables that are divided by columns alone.
DAY_COLUMN = "day"
DEFAULT_TABLE_COLUMNS = (*DEFAULT_COLUMNS, REASON)
# The years 1 to 9999, in microseconds since 1970.
_FIRST_US, _END_US = -62_135_596_800_000_000, 253_402_300_800_000_000


class TableColumns:
    """Columns of a table by name, `property.NAME` among them: a message's property, null where it has none.

    Nothing in it is changed.
    """

    def __init__(self, names: Sequence[str] | str | None = None, *, with_day: bool = False) -> None:
        """None: the default ones; "*": every column; else a list, or a text with commas.  `PLACE` and corruptReason
        always come as well.  Raises UnknownColumn, Rejected for a column that comes twice."""
        given = DEFAULT_TABLE_COLUMNS if names is None else column_names(names, EVERY_COLUMN)
        for name in given:
            field_of(name)
        _refuse_twice(given)
        left = [name for name in given if name not in (*PLACE, REASON)]
        self.names: tuple[str, ...] = (*PLACE, *left, REASON, *([DAY_COLUMN] if with_day else []))
        #: The columns of messages that they are made from.
        self.asked: tuple[str, ...] = tuple(name for name in self.names if name != DAY_COLUMN)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a batch; every field may be null."""
        return pa.schema([_field(name) for name in self.names])

    def with_day(self) -> "TableColumns":
        """The same with the column `day`."""
        return TableColumns([name for name in self.names if name != DAY_COLUMN], with_day=True)

    def made(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the table, of messages with the columns `asked`."""
        return pa.RecordBatch.from_arrays([self._column(rows, name) for name in self.names], schema=self.schema)

    def _column(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        if name == DAY_COLUMN:
            return _in_calendar(rows.column("storeTimestamp")).cast(pa.date32())
        column = rows.column(name)
        return _in_calendar(column) if pa.types.is_timestamp(column.type) else column


def known_columns(names: Iterable[str]) -> list[str]:
    """Those of a table's columns that a message has, without `day`."""
    return [name for name in names if name in COLUMNS or property_of(name) is not None]


def require_columns(table: str, wanted: pa.Schema, found: pa.Schema, required: Iterable[str]) -> None:
    """Raises Rejected where a table does not take rows of `wanted`: a column that it has not, or has in another type,
    or one of `required`, which may not be null, that not every row has."""
    for field in wanted:
        number = found.get_field_index(field.name)
        if number < 0:
            raise Rejected(
                f"{table}: has no column {field.name}; add it, choose columns that it has with --columns, or name a "
                "new "
                "table, which is created"
            )
        if _plain(found.field(number).type) != _plain(field.type):
            raise Rejected(
                f"{table}: its column {field.name} is {found.field(number).type}, but a message has {field.type}; "
                "name a new table, which is created"
            )
    for name in required:
        if name not in _NEVER_NULL:
            raise Rejected(f"{table}: its column {name} may not be null, but it is in some rows; name another table")


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type as it is stored: libraries read a text as any of Arrow's three."""
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    return kind


def _field(name: str) -> pa.Field:
    if name == DAY_COLUMN:
        return pa.field(DAY_COLUMN, pa.date32())
    return field_of(name)


def _in_calendar(times: pa.Array) -> pa.Array:
    """The times, null for those that no calendar has: a broken clock wrote them, and most readers break of them."""
    us = times.view(pa.int64())
    ends = pc.min_max(us).as_py()
    if ends["min"] is None or (ends["min"] >= _FIRST_US and ends["max"] < _END_US):
        return times
    is_told = pc.and_(pc.greater_equal(us, _FIRST_US), pc.less(us, _END_US))
    return pc.if_else(is_told, times, pa.scalar(None, times.type))


def _refuse_twice(names: Sequence[str]) -> None:
    """Engines that read tables take `a` and `A` for one column."""
    folded = [name.casefold() for name in names]
    twice = sorted({name for name in names if folded.count(name.casefold()) > 1})
    if twice or not names:
        raise Rejected(f"columns: {', '.join(twice) or 'none'}: name each column once, at least one, whatever its case")
