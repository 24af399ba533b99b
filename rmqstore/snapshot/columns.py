"""The columns of a message: names, Arrow types, and the set that a scan brings when none is asked for.

Beside those with a name of their own, each property can be a column: `property.NAME`.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from rmqstore.core.arguments import texts
from rmqstore.errors import Rejected, UnknownColumn

_TIMESTAMP = pa.timestamp("us", tz="UTC")

COLUMNS: dict[str, pa.Field] = {
    name: pa.field(name, kind, nullable=True)
    for name, kind in (
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("bornTimestamp", _TIMESTAMP),
        ("storeTimestamp", _TIMESTAMP),
        ("bornHost", pa.string()),
        ("storeHost", pa.string()),
        ("msgId", pa.string()),
        ("offsetMsgId", pa.string()),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("storeSize", pa.int32()),
        ("bodyCrc", pa.int32()),
        ("tagsCode", pa.int64()),
        ("corruptReason", pa.string()),
        ("propertiesText", pa.string()),
    )
}
#: The times as they are stored, ms since 1970 of any size; a timestamp that no calendar reaches is null.  Only by name.
MILLIS: dict[str, pa.Field] = {
    f"{name}Ms": pa.field(f"{name}Ms", pa.int64(), nullable=True) for name in ("bornTimestamp", "storeTimestamp")
}
#: What "*" means: without the column that is another one in another form.
EVERY_COLUMN = tuple(name for name in COLUMNS if name != "propertiesText")
PROPERTY_PREFIX = "property."

DEFAULT_COLUMNS: tuple[str, ...] = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "tags",
    "keys",
    "body",
    "bornTimestamp",
    "storeTimestamp",
    "msgId",
    "physicalOffset",
)

# What a consume-queue entry alone answers: a scan of only these never opens the commitlog.
ENTRY_COLUMNS = frozenset(("topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "storeSize", "tagsCode"))


def property_of(column: str) -> str | None:
    """NAME of a column `property.NAME`; None for any other column."""
    name = column.removeprefix(PROPERTY_PREFIX)
    return name if name and name != column else None


def is_column(name: str) -> bool:
    """Whether messages have a column of that name."""
    return name in COLUMNS or name in MILLIS or property_of(name) is not None


def field_of(column: str) -> pa.Field:
    """The Arrow field of a column.  Raises UnknownColumn for one that no message has."""
    known = COLUMNS.get(column) or MILLIS.get(column)
    if known is not None:
        return known
    if property_of(column) is None:
        raise UnknownColumn(column, near_names(column, COLUMNS))
    return pa.field(column, pa.string(), nullable=True)


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The names of `known` that may have been meant by `name`, closest first; compares without case."""
    import difflib  # noqa: PLC0415  for mistakes alone

    by_folded = {other.casefold(): other for other in known}
    return tuple(by_folded[hit] for hit in difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.6))


def column_names(columns: Sequence[str] | str, every: Iterable[str]) -> tuple[str, ...]:
    """Columns as they are named: a list, a text with commas, or "*" for every one.  Raises WrongType."""
    if isinstance(columns, str):
        return tuple(every) if columns == "*" else tuple(part.strip() for part in columns.split(","))
    return texts("columns", columns, "a list of names, a text with commas between them, or '*'")


def resolve_columns(columns: Sequence[str] | str | None) -> tuple[str, ...]:
    """The column names that a request means: None the default set, "*" all but those that are read only by name, else
    the names themselves.

    Raises UnknownColumn for a name that no message has, Rejected for an empty or doubled list.
    """
    if columns is None:
        return DEFAULT_COLUMNS
    names = column_names(columns, EVERY_COLUMN)
    for name in names:
        field_of(name)
    if not names or len(set(names)) != len(names):
        raise Rejected(f"columns: {', '.join(names) or 'none'}: name each column once, at least one")
    return names


def schema_of(columns: Sequence[str] | str | None) -> pa.Schema:
    """The Arrow schema of a scan that asks for `columns`, every field nullable.  Raises as `resolve_columns`."""
    return pa.schema([field_of(name) for name in resolve_columns(columns)])
