"""The command: the first screen, all that there is in JSON, one table by name, or one record."""

from typing import Any

import click

from rmqstore import StoredMessage, open_snapshot
from rmqstore.cli.inspection.document import store_document
from rmqstore.cli.inspection.first_screen import show_store
from rmqstore.cli.inspection.named_tables import TABLES, TableWish, show_table
from rmqstore.cli.output import (
    body_fields,
    body_text,
    given_paths,
    iso,
    print_json,
    printable,
    store_arguments,
    whole_text,
    wrapped,
)
from rmqstore.core.arguments import I64_MAX
from rmqstore.formats.message_id import offset_of_id

# --- One record of the commitlog, field by field.

_RECORD_FIELDS = (
    "topic", "broker_name", "queue_id", "queue_offset", "tags", "keys", "body", "properties", "flag", "sys_flag",
    "born_timestamp", "store_timestamp", "born_host", "store_host", "msg_id", "offset_msg_id", "reconsume_times",
    "prepared_transaction_offset", "physical_offset", "store_size", "body_crc",
)  # fmt: skip


class RecordPlace(click.ParamType):  # type: ignore[type-arg]  # generic for type checkers only
    """Where a record begins, or its offset message id, which is longer than any offset."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if offset_of_id(text) is not None:
            return text
        if not (text.isascii() and text.isdigit()):
            self.fail(f"{text!r}: write an offset of the commitlog, or an offset message id", param, ctx)
        if int(text) > I64_MAX:
            self.fail(f"{text}: beyond any commitlog, which ends before {I64_MAX}", param, ctx)
        return int(text)


def show_record(message: StoredMessage, as_json: bool) -> None:
    """Prints it."""
    values = {name: getattr(message, name) for name in _RECORD_FIELDS}
    if message.corrupt_reason is not None:
        values["corrupt_reason"] = message.corrupt_reason
    if as_json:
        body = body_fields(values.pop("body"))
        document = {_camel(name): value for name, value in values.items()}
        for name in ("bornTimestamp", "storeTimestamp"):
            document[name] = iso(document[name])
        print_json(document | body)
        return
    body_shown, properties = body_text(values.pop("body"), "\n  "), values.pop("properties")
    for name, value in values.items():
        shown = iso(value) if name.endswith("_timestamp") else value
        click.echo(f"{_camel(name):25}  {printable('' if shown is None else str(shown))}".rstrip())
    click.echo("properties")
    for name, value in properties.items():
        click.echo(printable(f"  {name:23}  {value}"))
    click.echo(f"body\n  {body_shown}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# ---

_EXAMPLE = """\b
Examples:
  rmqstore inspect /data/rocketmq/store
  rmqstore inspect /data/rocketmq/store --table queues --topic 'orders*'
  rmqstore inspect /data/rocketmq/store --table topics --sort bytes -n 10
"""
# Options that mean something only with --table.
_OF_A_TABLE = {"topics": "--topic", "sort": "--sort", "is_reversed": "--reverse", "limit": "--limit"}


@click.command(epilog=_EXAMPLE, short_help="Show disk, age, topics, queues, and groups that are behind.")
@store_arguments
@click.option(
    "-t", "--table", "table", type=click.Choice(TABLES), help="Print one whole table instead of the first screen."
)
@click.option(
    "--topic", "topics", multiple=True, callback=lambda c, p, v: tuple(whole_text(c, p, one) or "" for one in v),
    help="Only rows of this topic; * and ? stand for any letters.  Repeatable.",
)  # fmt: skip
@click.option("--sort", metavar="COLUMN", help="Sort by this column: numbers and times descending, texts ascending.")
@click.option("--reverse", "is_reversed", is_flag=True, help="Reverse the order.")
@click.option("-n", "--limit", type=click.IntRange(1, 2**31), help="Print at most this many rows.")
@click.option(
    "--record", type=RecordPlace(), metavar="OFFSET|ID", help="One record: commitlog offset, or offset message id."
)
@click.option("--broker", help="The broker of --record, if there are several stores.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: one document with everything, or with --table its rows."
)
def inspect(
    stores: tuple[str, ...], table: str | None, record: int | str | None, broker: str | None, as_json: bool, **how: Any
) -> None:
    """Show what a store holds: its layout, disk and age, the largest topics, and the groups that are behind.

    The first screen is short, however large the store is; the tables have the rest. Times are UTC. A queue holds the
    messages from its first offset to before its end.
    """
    _require_fitting(table, record, how)
    snapshot = open_snapshot(given_paths(stores))
    if record is not None:
        show_record(snapshot.message_at(record, broker), as_json)
    elif table is not None:
        show_table(snapshot, TableWish(table, **how), as_json=as_json)
    elif as_json:
        print_json({"stores": [store_document(store) for store in snapshot.stores]})
    else:
        for number, store in enumerate(snapshot.stores):
            if number:
                click.echo()
            show_store(store)
        click.echo("\n" + wrapped("more with --table: ", ", ".join(TABLES)))
        click.echo("`rmqstore cat STORE --topic T` prints messages, `rmqstore verify STORE` checks")


def _require_fitting(table: str | None, record: int | str | None, how: dict[str, Any]) -> None:
    """Refuses options that would do nothing: their user believes that they do."""
    if table is not None and record is not None:
        raise click.UsageError("--table and --record: give only one of them")
    if table is None:
        for name, option in _OF_A_TABLE.items():
            if how[name]:
                raise click.UsageError(f"{option} belongs to --table: choose one of {', '.join(TABLES)}")
