"""`rmqstore sync`: topics into a table of Iceberg or Delta Lake, each message once."""

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from rmqstore import open_snapshot
from rmqstore.cli.choices import name_values, regular_expression, topic_names, topics_or_pattern
from rmqstore.cli.output import counted, given_paths, one_line, printable, store_arguments, whole_text
from rmqstore.cli.signals import until_signalled
from rmqstore.lake import (
    Committed,
    Consent,
    DeadLetterFile,
    Format,
    Steps,
    Sync,
    SyncListener,
    SyncRequest,
    SyncTotals,
    TableColumns,
    open_table,
)
from rmqstore.snapshot.search.meant_topics import MeantTopics

_EXAMPLE = """\b
Examples:
  rmqstore sync /data/rocketmq/store --topic orders --to delta /data/orders.delta
  rmqstore sync /data/rmq/broker-a --to iceberg shop.orders --catalog sqlite:////data/lake/catalog.db --follow
"""


def _start(_ctx: click.Context, _param: click.Parameter, text: str) -> dict[str, Any]:
    """How to begin, as `Sync` takes it."""
    if text in ("earliest", "latest"):
        return {"start": text}
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise click.BadParameter(
            f"{printable(text)!r}: earliest, latest, or a time with its zone: 2026-11-25T09:00:00Z"
        )
    return {"start": "earliest", "start_time": int(moment.timestamp() * 1000)}


@click.command(epilog=_EXAMPLE, short_help="Put topics into a table of Iceberg or Delta Lake.")
@store_arguments
@click.option(
    "--to", "target", required=True, nargs=2, type=(click.Choice(get_args(Format)), str), metavar="FORMAT TABLE",
    help="iceberg NAMESPACE.TABLE, or delta PATH; the table is created if it does not exist.",
)  # fmt: skip
@click.option(
    "--catalog", callback=whole_text,
    help="Iceberg's catalog: its name in pyiceberg's configuration, sqlite:///FILE, or the http(s) address of a REST "
        "catalog.",
)  # fmt: skip
@click.option(
    "--option", "options", multiple=True, callback=name_values, metavar="NAME=VALUE",
    help="A property of the catalog, or a storage option of deltalake; repeatable.",
)  # fmt: skip
@click.option(
    "--once/--follow", default=True,
    help="Stop after the messages that are there now (default), or continue with new ones until Ctrl-C.",
)  # fmt: skip
@click.option(
    "--topic",
    "topics",
    multiple=True,
    callback=topic_names,
    help="Only this topic, or 'orders*'; repeatable.  By default all but RocketMQ's own.",
)
@click.option(
    "--include-system-topics", is_flag=True, help="Include RocketMQ's own topics: retries, dead letters and such."
)
@click.option(
    "--pattern", callback=regular_expression, help="Only topics whose whole name matches this regular expression."
)
@click.option(
    "--start", callback=_start, default="earliest", show_default=True,
    help="Where a new table begins: earliest, latest, or a time such as 2026-11-25T09:00:00Z.",
)  # fmt: skip
@click.option(
    "--columns",
    callback=whole_text,
    help="Columns, such as 'body,tags,property.orderId', or '*'; by default those of the table.",
)
@click.option(
    "--commit-seconds",
    type=click.FloatRange(0.1, 86400),
    default=60.0,
    show_default=True,
    help="Commit after this many seconds.",
)
@click.option("--commit-rows", type=click.IntRange(1), help="Commit after this many messages.")
@click.option(
    "--commit-mib", type=click.IntRange(1, 2**20), default=1024, show_default=True,
    help="Commit after this many MiB of uncompressed messages.",
)  # fmt: skip
@click.option(
    "--target-mib",
    type=click.IntRange(1, 2**14),
    default=128,
    show_default=True,
    help="Size of a file, roughly, in MiB.",
)
@click.option(
    "--dead-letters", type=click.Path(), metavar="FILE", help="Write damaged records to this file instead of the table."
)
@click.option("--skip-lost", is_flag=True, help="Continue after messages that were deleted before they were read.")
@click.option("--new-broker", is_flag=True, help="Accept a store of a broker from which the table has no messages.")
@click.option("--adopt", is_flag=True, help="Accept a table with rows of another program, and begin at --start.")
@click.option(
    "--trust-offsets", is_flag=True, help="Trust the table's offsets: it was not rolled back since the last sync."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line: for each commit, and at the end."
)
def sync(
    stores: tuple[str, ...], target: tuple[Format, str], catalog: str | None,
    options: tuple[tuple[str, str], ...], once: bool, as_json: bool, **chosen: Any,
) -> None:  # fmt: skip
    """Put topics into a table of Iceberg or Delta Lake, each message once.

    Where the table stands is noted in the table itself, in the commit that brings the rows: whatever ends this command,
    the next one goes on.  Damaged records are rows with a corruptReason.
    """
    meant = topics_or_pattern(chosen["topics"], chosen["pattern"], chosen["include_system_topics"])
    if once and meant.globs and not chosen["skip_lost"]:  # else they may come, or be gone
        known = {topic for store in open_snapshot(given_paths(stores)).stores for topic, _ in store.queues}
        meant.require_known(sorted(known), ", ".join(stores))
    kind, name = target
    table = open_table(
        kind, name, catalog=catalog, options=dict(options),
        columns=None if chosen["columns"] is None else TableColumns(chosen["columns"]),
        consent=Consent(adopts=chosen["adopt"], trusts=chosen["trust_offsets"]),
    )  # fmt: skip
    shown = _Shown(as_json=as_json, follows=not once)
    run = Sync(given_paths(stores), table, _request(stores, meant, chosen), shown)
    with until_signalled(run.stop), shown.bar:
        run.run(follows=not once)
    shown.end(name, run.totals)


def _request(stores: Sequence[str], meant: MeantTopics, chosen: Mapping[str, Any]) -> SyncRequest:
    steps = Steps(
        rows=chosen["commit_rows"] or 0, mib=chosen["commit_mib"], seconds=chosen["commit_seconds"],
        target_mib=chosen["target_mib"],
    )  # fmt: skip
    path = chosen["dead_letters"]
    # A store may be NAME=PATH.
    places = [*stores, *(store.partition("=")[2] for store in stores if "=" in store)]
    return SyncRequest(
        topics=meant.topics, pattern=meant.pattern, include_system_topics=meant.include_system_topics,
        fail_on_data_loss=not chosen["skip_lost"],
        adds_brokers=chosen["new_broker"], steps=steps,
        dead_letters=None if path is None else DeadLetterFile(path, places), **chosen["start"],
    )  # fmt: skip


class _Shown(SyncListener):
    """A run as a person, or a program, sees it."""

    def __init__(self, *, as_json: bool, follows: bool) -> None:
        self._as_json, self._follows = as_json, follows
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self.bar.add_task("messages", total=None)
        self._is_waiting = False

    def commit(self, done: Committed) -> None:
        self._is_waiting = False
        if self._as_json:
            _print_object({"event": "commit", "rows": done.rows, "files": done.files, "bytes": done.size})
        elif self._follows and done.rows:
            click.echo(f"{counted(done.rows, 'message')} in {counted(done.files, 'file')}")

    def progress(self, waiting: int, read: int) -> None:
        if not self.bar.disable:
            self.bar.update(self._task, total=max(waiting, read), completed=read)

    def wait(self, error: Exception) -> None:
        """Says once that the stores are not there just now."""
        if not self._is_waiting:
            click.echo(f"waiting: {one_line(error)}", err=True)
        self._is_waiting = True

    def end(self, table: str, totals: SyncTotals) -> None:
        if self._as_json:
            _print_object({"event": "end", "table": table} | totals._asdict())
            return
        added = f"{counted(totals.rows, 'message')} added to {table} in {counted(totals.commits, 'commit')}"
        click.echo(printable(added))
        if totals.damaged:
            click.echo(f"{counted(totals.damaged, 'record')} damaged; `rmqstore verify` says where", err=True)
        if totals.skipped:
            click.echo(f"{counted(totals.skipped, 'message')} deleted before they were read", err=True)


def _print_object(fields: Mapping[str, Any]) -> None:
    click.echo(json.dumps(fields))
