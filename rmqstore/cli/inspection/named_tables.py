"""Tables by name: those that Spark reads with option("table", …), the index files and the checkpoint."""

import fnmatch
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import click
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore import Snapshot
from rmqstore.cli.inspection.document import checkpoint_document, index_documents
from rmqstore.cli.output import (
    CELL_MIN,
    byte_size,
    column_sizes,
    counted,
    cut_size,
    escaped,
    fitted_rows,
    iso,
    moment_of,
    print_table,
    table_size,
    utc,
    wrapped,
)
from rmqstore.records.gather import INSTANT, MILLIS_MAX
from rmqstore.snapshot.request import TableName
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.tables.tables import SCHEMAS

_IS_TIME = {b"is": b"time"}
_OWN_SCHEMAS: dict[str, pa.Schema] = {
    "index": pa.schema(
        [("brokerName", pa.string()), ("path", pa.string()), ("size", pa.int64()), ("slotCount", pa.int64()),
         ("itemCount", pa.int64()), ("oldestTimestamp", INSTANT), ("newestTimestamp", INSTANT)]
    ),
    "checkpoint": pa.schema(
        [("brokerName", pa.string()), ("physicMsgTimestamp", INSTANT), ("logicsMsgTimestamp", INSTANT),
         ("indexMsgTimestamp", INSTANT), ("masterFlushedOffset", pa.int64()), ("confirmPhyOffset", pa.int64()),
         ("logicsPhysicalOffset", pa.int64())]
    ),
}  # fmt: skip
TABLES = ("files", "queues", "topics", "groups", "index", "checkpoint", "transactions", "delayed", "entries")
# Columns that are read only when rows are sorted by them: every queue entry is read.
_DEAR = {"queues": "bytes", "topics": "bytes"}
_BYTES = frozenset(("bytes", "size", "used", "allocated"))
# Numbers that are names or places: they are told as they are.
_PLAIN = frozenset(
    ("queueId", "minOffset", "maxOffset", "start", "index", "term", "position", "physicalOffset", "perm", "level",
     "committedOffset", "halfOffset", "commitOffset", "masterFlushedOffset", "confirmPhyOffset",
     "logicsPhysicalOffset")
)  # fmt: skip
# On a terminal without room for all columns these are left out first.
_FIRST_TO_GO = {
    "queues": ("parentTopic", "queueType", "oldestTimestamp"),
    "files": ("start", "firstTimestamp", "allocated", "lastTimestamp"),
    "topics": ("isSystem", "order", "attributes"), "groups": ("maxOffset", "committedOffset", "lagMs"),
    "transactions": ("commitOffset", "queueId", "decidedTimestamp", "producerGroup", "halfOffset", "preparedTimestamp"),
    "delayed": ("physicalOffset", "storeTimestamp", "level", "queueId"),
    "checkpoint": ("masterFlushedOffset", "logicsPhysicalOffset"),
}  # fmt: skip
# Columns that are cut; an id is whole, so that it can be pasted, and of a path the end tells.
_LONG = "topic,path,group,producerGroup,attributes"
# The least that a cut column keeps: of a path the room, the topic and the queue as well.
_LEAST = {"path": 40}
# Columns that a terminal has no room for where they say nothing: all rows have 0.
_NOTHING_AS_A_RULE = ("beyondEnd", "deletedUnread")


class TableWish(NamedTuple):
    """One table: only rows of some topics, in the order of a column, at most so many."""

    name: str
    topics: tuple[str, ...]
    sort: str | None
    is_reversed: bool
    limit: int | None


def show_table(snapshot: Snapshot, wish: TableWish, *, as_json: bool) -> None:
    """Prints a table.  Raises click.UsageError for a column that it does not have."""
    table = _made(snapshot, wish)
    total = table.num_rows
    if wish.limit is not None:
        table = table.slice(0, wish.limit)
    if as_json:
        _print_rows(table)
        return
    if not total:
        click.echo("no rows")
        return
    roots = sorted((store.path for store in snapshot.stores), key=len, reverse=True)
    _print_cells(_in_ms(_worth_showing(table, several=len(roots) > 1)), wish, roots)
    if table.num_rows < total:
        click.echo(f"{counted(total - table.num_rows, 'more row')}")


def _print_cells(table: pa.Table, wish: TableWish, roots: Sequence[str]) -> None:
    """Prints rows; on a terminal those columns that fit, cut where it is needed."""
    rows = [[_cell(field, value, roots) for field, value in zip(table.schema, row.values(), strict=True)]
            for row in table.to_pylist()]  # fmt: skip
    columns = dict(zip(table.column_names, map(list, zip(*rows, strict=True)), strict=True))
    left_out = _without_room(columns, wish)
    heads = list(columns)
    lines = list(zip(*columns.values(), strict=True))
    numbers = [field.name for field in table.schema if field.metadata is None and pa.types.is_integer(field.type)]
    print_table(heads, fitted_rows(heads, lines, _LONG, indent=0), indent="", right=",".join(numbers))
    if left_out:
        click.echo(wrapped("", f"no room for {', '.join(left_out)}: use a wider terminal, a pipe or --json"))


def _without_room(columns: dict[str, list[str]], wish: TableWish) -> list[str]:
    """Takes columns out until the rest fits; their names.  The first one stays, and the one that rows are sorted by."""
    room = cut_size()
    order = [name for name in _FIRST_TO_GO.get(wish.name, ()) if name in columns]
    order += [name for name in reversed(columns) if name not in order]
    order = [name for name in order if name not in (wish.sort, next(iter(columns)))]
    left_out: list[str] = []
    while room is not None and order and _size_min(columns) > room:
        left_out.append(order.pop(0))
        del columns[left_out[-1]]
    return left_out


def _size_min(columns: dict[str, list[str]]) -> int:
    sizes = column_sizes(list(columns), list(zip(*columns.values(), strict=True)))
    least = {name: max(len(name), _LEAST.get(name, CELL_MIN)) for name in columns if name in _LONG.split(",")}
    return table_size([min(size, least.get(name, size)) for name, size in zip(columns, sizes, strict=True)], indent=0)


def _made(snapshot: Snapshot, wish: TableWish) -> pa.Table:
    """The rows that are asked for, in order."""
    schema = _OWN_SCHEMAS.get(wish.name) or SCHEMAS[wish.name]
    names = [name for name in schema.names if name not in ("bytes", "body")]
    dear = _DEAR.get(wish.name)
    if wish.sort is not None and wish.sort not in (*names, dear):
        known = ", ".join([*names, *([dear] if dear else [])])
        raise click.UsageError(f"--sort {wish.sort}: the table {wish.name} has {known}")
    if wish.topics and "topic" not in names:
        raise click.UsageError(f"--topic: the table {wish.name} has no topics")
    is_dear = dear is not None and wish.sort == dear
    table = _of_topics(_TABLES_MADE.get(wish.name, _of_source)(snapshot, wish.name, names, is_dear), wish.topics)
    if wish.sort is None:
        return table.slice(0)[::-1] if wish.is_reversed else table
    is_up = pa.types.is_string(table.schema.field(wish.sort).type) != wish.is_reversed
    column = table.column(wish.sort)
    if pa.types.is_map(column.type):
        raise click.UsageError(f"--sort {wish.sort}: a column of maps cannot be sorted by; choose another")
    order = pc.sort_indices(table, [(wish.sort, "ascending" if is_up else "descending")])
    return table.take(order)


def _of_topics(table: pa.Table, wanted: Sequence[str]) -> pa.Table:
    if not wanted:
        return table
    names = table.column("topic").unique().drop_null().to_pylist()
    kept = [name for name in names if any(fnmatch.fnmatchcase(name, one) for one in wanted)]
    return table.filter(pc.is_in(table.column("topic"), pa.array(kept, pa.string())))


def _of_source(snapshot: Snapshot, name: str, columns: list[str], _: bool) -> pa.Table:
    return snapshot.table(cast("TableName", name), columns)


def _queues(snapshot: Snapshot, _: str, columns: list[str], is_dear: bool) -> pa.Table:
    return snapshot.table("queues", [*columns, "bytes"] if is_dear else columns)


def _topics(snapshot: Snapshot, _: str, columns: list[str], is_dear: bool) -> pa.Table:
    table = snapshot.table("topics", columns)
    if not is_dear:
        return table
    sizes = snapshot.table("queues", ["topic", "brokerName", "bytes"]).group_by(["topic", "brokerName"])
    found = {
        (row["topic"], row["brokerName"]): row["bytes_sum"] for row in sizes.aggregate([("bytes", "sum")]).to_pylist()
    }
    places = zip(table.column("topic").to_pylist(), table.column("brokerName").to_pylist(), strict=True)
    return table.append_column("bytes", pa.array([found.get(place, 0) for place in places], pa.int64()))


def _index(snapshot: Snapshot, name: str, _: list[str], __: bool) -> pa.Table:
    rows = [
        {"brokerName": store.broker_name, "path": file["path"], "size": file["size"], "slotCount": file["slotCount"],
         "itemCount": file["itemCount"], "oldestTimestamp": _micros(file["oldestMs"]),
         "newestTimestamp": _micros(file["newestMs"])}
        for store in snapshot.stores for file in index_documents(store)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, _OWN_SCHEMAS[name])


def _checkpoint(snapshot: Snapshot, name: str, _: list[str], __: bool) -> pa.Table:
    return pa.Table.from_pylist(
        [row for store in snapshot.stores for row in _checkpoint_rows(store)], _OWN_SCHEMAS[name]
    )


def _checkpoint_rows(store: StoreExtent) -> list[dict[str, Any]]:
    known = checkpoint_document(store)
    if known is None:
        return []
    times = {key: _micros(value) if key.endswith("Timestamp") else value for key, value in known.items()}
    return [{"brokerName": store.broker_name, **times}]


_TABLES_MADE: dict[str, Callable[[Snapshot, str, list[str], bool], pa.Table]] = {
    "queues": _queues, "topics": _topics, "index": _index, "checkpoint": _checkpoint,
}  # fmt: skip


def _micros(milliseconds: int | None) -> int | None:
    """A time in ms for Arrow's microseconds; None for none, and where those do not fit 64 bits."""
    return milliseconds * 1000 if milliseconds and abs(milliseconds) <= MILLIS_MAX else None


def _worth_showing(table: pa.Table, *, several: bool) -> pa.Table:
    """Without columns that say nothing in all rows, nor the broker's name where there is one broker."""
    kept = [name for name in table.column_names if table.column(name).null_count < table.num_rows]
    if cut_size() is not None:
        zeros = [name for name in _NOTHING_AS_A_RULE if name in kept and not pc.max(pc.abs(table.column(name))).as_py()]
        kept = [name for name in kept if name not in zeros]
    return table.select([name for name in kept if several or name != "brokerName"])


def _in_ms(table: pa.Table) -> pa.Table:
    """Times as ms: Python's calendar does not hold every time."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            millis = pc.divide(table.column(place).cast(pa.int64()), 1000)
            table = table.set_column(place, pa.field(field.name, pa.int64(), metadata=_IS_TIME), millis)
    return table


def _cell(field: pa.Field, value: Any, roots: Sequence[str]) -> str:
    if value is None:
        return ""
    if field.name == "path":
        return str(next((value[len(root) + 1 :] for root in roots if value.startswith(root + "/")), value))
    if field.metadata == _IS_TIME:
        return utc(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field.name in _BYTES:
        return byte_size(value)
    if isinstance(value, int):
        return str(value) if field.name in _PLAIN else f"{value:,}"
    if isinstance(value, list):
        return " ".join(f"{name}={text}" for name, text in value)
    return str(value)


def _print_rows(table: pa.Table) -> None:
    """A JSON array, a row a line."""
    made = _in_ms(table)
    lines = []
    for row in made.to_pylist():
        for field in made.schema:
            value = row[field.name]
            if field.metadata == _IS_TIME:
                row[field.name] = iso(moment_of(value))
            elif isinstance(value, list):
                row[field.name] = dict(value)
        lines.append(escaped(json.dumps(row, ensure_ascii=False)))
    click.echo("[\n  " + ",\n  ".join(lines) + "\n]" if lines else "[]")
