"""`rmqstore query`: messages by text, key, id, time, tag, delay or transaction, over several stores."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import click
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from rmqstore import Rejected, open_snapshot
from rmqstore.cli.choices import name_values
from rmqstore.cli.decoding.options import body_bytes_max
from rmqstore.cli.message_output import COLUMNS, Form, Printer, Template, is_terminal, output_options, tell_holes
from rmqstore.cli.outgoing.which_messages import chosen_stores, meant_topics, meant_window, message_options
from rmqstore.cli.output import counted, printable, store_arguments, whole_text
from rmqstore.export.one_file import parquet_place, write_parquet
from rmqstore.formats.host import parse_wanted_host
from rmqstore.search.body_text import BodyText
from rmqstore.search.search import Search, SearchRun, Tell
from rmqstore.search.transaction import STEP, Transaction, transaction_of
from rmqstore.search.waiting import DUE, waiting_messages
from rmqstore.snapshot.columns import schema_of
from rmqstore.snapshot.opening import open_selected
from rmqstore.snapshot.reader import SnapshotReader

PARQUET = "parquet"
_NOTHING_FOUND = 1
_EXAMPLE = """\b
Examples:
  rmqstore query /data/rocketmq/store --grep 'o-1017' --since 2h
  rmqstore query /data/rmq --topic 'orders*' --key o-1017 -o json-lines
  rmqstore query /data/rocketmq/store --topic orders --since yesterday --until today -o parquet --to day.parquet
  rmqstore query /data/rocketmq/store --delayed
"""


def _hosts(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(map(parse_wanted_host, map(str.strip, given)))
    except ValueError:
        raise click.BadParameter(
            f"{printable(', '.join(given))!r}: write 203.0.113.9, 203.0.113.9:10911, 2001:db8::1 or [2001:db8::1]:10911"
        ) from None


def _outputs(command: Any) -> Any:
    return output_options(command, PARQUET)


@click.command(epilog=_EXAMPLE, short_help="Find messages by text, key, id, time, tag, transaction.")
@store_arguments
@message_options
@click.option("--grep", callback=whole_text, metavar="TEXT", help="Only messages with this text in the body.")
@click.option("-e", "--regex", callback=whole_text, metavar="RE", help="In place of it a regular expression (RE2's).")
@click.option("-i", "--ignore-case", is_flag=True, help="--grep and --regex mean either case.")
@click.option(
    "--id", "ids", multiple=True, metavar="ID",
    help="Exactly the message with this unique key or offset message id, of any topic; may come again.",
)  # fmt: skip
@click.option(
    "--property", "properties", multiple=True, callback=name_values, metavar="NAME=VALUE",
    help="Only messages with this property; may come again: all of them.",
)  # fmt: skip
@click.option(
    "--born-host", "born_hosts", multiple=True, callback=_hosts, metavar="HOST[:PORT]",
    help="Only messages that were sent from this address; may come again: any of them.",
)  # fmt: skip
@click.option("--delayed", is_flag=True, help="Messages that still wait for their time, with when it comes.")
@click.option(
    "--transaction", callback=whole_text, metavar="ID",
    help="A transaction by the unique key of its message: half message, decision, and what came of it.",
)  # fmt: skip
@click.option("--limit", "-n", type=click.IntRange(1, 2**62), help="At most so many messages.")
@click.option("--count", "-c", "counts", is_flag=True, help="Only say how many there are.")
@_outputs
@click.option("--to", metavar="FILE", callback=whole_text, help="With -o parquet: the file to write.")
@click.option("--overwrite", is_flag=True, help="Replace the file, if it is there.")
@click.pass_context
def query(ctx: click.Context, /, stores: tuple[str, ...], **given: Any) -> None:
    """Find messages: all conditions that are given go together.

    Bodies are searched as they were sent, decompressed. Messages come queue by queue, those of a queue in their order.
    The exit status is 1 where nothing was found, as grep's is.
    """
    search = _search(given)
    _require_sense(given, search)
    snapshot = _opened(stores, search, given)
    found = _Found(given["limit"])
    if given["form"] == PARQUET:
        _write(snapshot, search, given, found)
    else:
        _print(snapshot, search, given, found)
    tell_holes(snapshot.stores)
    if found.damaged_count:
        what = counted(found.damaged_count, "message")
        click.echo(f"{what} damaged, and in no answer; `rmqstore verify` says where", err=True)
    ctx.exit(0 if found.count else _NOTHING_FOUND)


def _opened(stores: tuple[str, ...], search: Search, given: dict[str, Any]) -> SnapshotReader:
    """The stores; of very many topics only those that are named, where no others have to be asked."""
    paths, named = chosen_stores(stores), search.topics.topics
    if named is None or given["delayed"] or given["transaction"] is not None:
        return open_snapshot(paths)
    return open_selected(paths, {"topics": named})


def _search(given: dict[str, Any]) -> Search:
    """The options' meaning.  Raises click.UsageError."""
    ids = tuple(dict.fromkeys(one.strip() for one in given["ids"]))
    if "" in ids:
        raise click.BadParameter("is empty; leave it out for all messages", param_hint="--id")
    if given["grep"] is not None and given["regex"] is not None:
        raise click.UsageError("--grep and --regex: give one of them")
    said = given["regex"] if given["grep"] is None else given["grep"]
    if given["ignore_case"] and said is None:
        raise click.UsageError("--ignore-case goes with --grep or --regex")
    try:
        text = None if said is None else BodyText(said, given["regex"] is not None, ignores_case=given["ignore_case"])
    except Rejected as mistake:
        raise click.BadParameter(str(mistake), param_hint="--grep" if given["regex"] is None else "--regex") from None
    meant = meant_topics(given["topics"], given["include_system_topics"])
    return Search(
        topics=meant, include_system_topics=meant.include_system_topics or bool(ids), tags=given["tags"],
        keys=given["key"], ids=ids, window=meant_window(given["since"], given["until"], given["born"]), text=text,
        properties=given["properties"], born_hosts=given["born_hosts"],
    )  # fmt: skip


def _require_sense(given: dict[str, Any], search: Search) -> None:
    """Raises click.UsageError for options that do not go together."""
    if (given["form"] == PARQUET) != (given["to"] is not None):
        raise click.UsageError("-o parquet and --to FILE go together")
    if given["overwrite"] and given["form"] != PARQUET:
        raise click.UsageError("--overwrite goes with -o parquet")
    if given["counts"] and (given["form"] or given["template"]):
        raise click.UsageError("--count prints a number: leave --output and --format out")
    chosen = [name for name in ("topics", "grep", "regex", "ids", "delayed", "tags", "key", "since", "until",
                                 "properties", "born_hosts")
              if given[name]]  # fmt: skip
    if given["transaction"] is not None and chosen:
        raise click.UsageError("--transaction says it all: leave the other conditions out")
    is_bounded = any(given[name] for name in ("topics", "delayed", "transaction", "counts", "limit"))
    if not search.has_conditions and not is_bounded:
        raise click.UsageError("say which messages: --grep, --key, --id, --topic, --since …, or --limit for any")


class _Found:
    """Batches up to a limit of rows; counts them."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.count = self.damaged_count = 0

    def up_to_limit(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch if self._limit is None else batch.slice(0, self._limit - self.count)
            self.count += rows.num_rows
            if rows.num_rows:
                yield rows
            if self.count == self._limit:
                break
        if isinstance(batches, SearchRun):
            self.damaged_count = batches.damaged_count


def _answer(
    snapshot: SnapshotReader, search: Search, given: dict[str, Any], columns: tuple[str, ...], tell: Tell
) -> tuple[Iterable[pa.RecordBatch], Transaction | None]:
    """The rows that are meant, and the transaction that they are of."""
    if given["transaction"] is not None:
        transaction = transaction_of(snapshot, given["transaction"].strip(), columns)
        return transaction.messages.to_batches(), transaction
    if given["delayed"]:
        return waiting_messages(snapshot, search, columns, time.time_ns() // 1_000_000), None
    return SearchRun(snapshot, search, columns, tell, body_bytes_max=body_bytes_max()), None


def _print(snapshot: SnapshotReader, search: Search, given: dict[str, Any], found: _Found) -> None:
    form = cast("Form | None", given["form"])
    template: Template | None = given["template"]
    more = STEP if given["transaction"] is not None else DUE if given["delayed"] else ""
    with_topic = len(search.topics.topics or ()) != 1 or bool(more)
    printer = Printer(form, template, with_topic=with_topic, with_broker=len(snapshot.stores) > 1, more=more)
    columns = ("topic",) if given["counts"] else printer.columns
    with _bar() as (tell, clear):
        batches, transaction = _answer(snapshot, search, given, columns, tell)
        if transaction is not None and form in (None, "table") and template is None and not given["counts"]:
            for line in _states(transaction):
                click.echo(line)
        for rows in found.up_to_limit(batches):
            if not given["counts"]:
                clear()
                printer.show(rows)
    if given["counts"]:
        click.echo(str(found.count))
    elif not found.count:
        click.echo("no messages", err=True)


def _write(snapshot: SnapshotReader, search: Search, given: dict[str, Any], found: _Found) -> None:
    if given["template"] is not None:
        raise click.UsageError("--output and --format: give one of them")
    stores = [path for store in snapshot.stores for path in (store.path, *store.extra_logs)]
    place = parquet_place(given["to"], stores, may_replace=given["overwrite"])
    schema = schema_of(COLUMNS)
    if given["delayed"]:
        schema = schema.append(pa.field(DUE, pa.timestamp("us", tz="UTC")))
    elif given["transaction"] is not None:
        schema = schema.append(pa.field(STEP, pa.string()))
    with _bar() as (tell, _):
        batches, _ = _answer(snapshot, search, given, COLUMNS, tell)
        write_parquet(place, schema, found.up_to_limit(batches), may_replace=given["overwrite"])
    click.echo(f"{counted(found.count, 'message')} in {printable(given['to'])}", err=True)


def _states(transaction: Transaction) -> Iterator[str]:
    """A line for each transaction that has the id."""
    for row in transaction.states.to_pylist():
        facts = [f"{row['state']}", f"topic {row['topic']}", f"group {row['producerGroup']}"]
        if row["checkTimes"]:
            facts.append(counted(row["checkTimes"], "check"))
        yield printable(f"transaction {row['transactionId']}: {', '.join(facts)}")


@contextmanager
def _bar() -> Iterator[tuple[Tell, Any]]:
    """A bar on standard error where that is a terminal, and what takes it away: rows on the same terminal would run
    into it."""
    console = Console(stderr=True)
    columns = (TextColumn("searching"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("searching", total=None)

    def tell(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)

    def clear() -> None:
        if is_terminal():
            bar.stop()

    with bar:
        yield tell, clear
