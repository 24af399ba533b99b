"""`rmqstore query`: messages by text, key, id, time, tag, delay or transaction, over several stores."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple, cast

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from rmqstore import open_snapshot
from rmqstore.cli.choices import name_values
from rmqstore.cli.decoding.options import body_bytes_max
from rmqstore.cli.message_output import COLUMNS, Form, Printer, Template, is_terminal, output_options, tell_holes
from rmqstore.cli.outgoing.which_messages import meant_topics, meant_window, message_options
from rmqstore.cli.output import counted, given_paths, printable, store_arguments, whole_text
from rmqstore.errors import Rejected, next_step
from rmqstore.export.directory import require_apart
from rmqstore.export.open_files import GROUP_BYTES, ParquetFile
from rmqstore.files.filesystem import RealFileSystem, directory_of, join
from rmqstore.files.replace import output_path
from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.host import parse_wanted_host
from rmqstore.formats.message_columns import Ints
from rmqstore.snapshot.columns import schema_of
from rmqstore.snapshot.opening import open_selected
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.search.body_text import BodyText
from rmqstore.snapshot.search.meant_topics import MeantTopics
from rmqstore.snapshot.search.search import Search, SearchRun, Tell

# --- Messages that wait for their time: as rows of the topic and queue that they go to, with when that will be.

DUE = "deliverAt"
_PLACE = ("brokerName", "physicalOffset")


def waiting_messages(
    snapshot: SnapshotReader, search: Search, columns: Sequence[str], now_ms: int
) -> Iterator[pa.RecordBatch]:
    """The messages of the table `delayed` that a search means, with the columns asked for and DUE at the end.

    Topics are those that they go to.  Raises UnknownTopic for a pattern that fits none of these, as SearchRun, and as
    `Snapshot.table`.
    """
    table = snapshot.table("delayed", now_ms=now_ms)
    table = table.filter(_meant(table, search.topics))
    held = {topic for store in snapshot.stores for topic, _ in store.queues}
    kept = tuple(topic for topic in (names.SCHEDULE_TOPIC, names.TIMER_TOPIC) if topic in held)
    if not kept or not table.num_rows:
        return
    # What stands in the queues of waiting messages is their time, and not the hash of their tags.
    own = replace(search, topics=MeantTopics(kept, None), tags=())
    read = tuple(dict.fromkeys((*columns, *_PLACE, "tags")))
    for batch in SearchRun(snapshot, own, read):
        for broker in pc.unique(batch.column("brokerName")).to_pylist():
            rows = batch.filter(pc.equal(batch.column("brokerName"), broker))
            yield from _as_sent(rows, table.filter(pc.equal(table["brokerName"], broker)), search.tags, columns)


def _as_sent(
    rows: pa.RecordBatch, waiting: pa.Table, tags: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Those of the rows that wait, as rows of their topics."""
    places = pc.index_in(rows.column("physicalOffset"), value_set=waiting["physicalOffset"].combine_chunks())
    stays = np.asarray(places.is_valid().to_numpy(zero_copy_only=False), bool)
    if tags:
        stays &= np.asarray(pc.is_in(rows.column("tags"), pa.array(tags, pa.string())), bool)
    if not stays.any():
        return
    rows, facts = rows.filter(pa.array(stays)), waiting.take(places.filter(pa.array(stays))).combine_chunks()
    for name in ("topic", "queueId"):
        at = rows.schema.get_field_index(name)
        if at >= 0:
            rows = rows.set_column(at, rows.schema.field(at), facts[name].combine_chunks())
    due = facts["deliverAt"].combine_chunks()
    yield rows.select(list(columns)).append_column(DUE, due)


def _meant(table: pa.Table, topics: MeantTopics) -> pa.ChunkedArray | pa.Array:
    """boolean[n]: which rows of the table go to a topic that is meant."""
    if topics.topics is not None:
        return pc.is_in(table["topic"], pa.array(topics.topics, pa.string()))
    if topics.pattern is None:
        return pa.array(np.ones(table.num_rows, bool))
    known = [topic for topic in pc.unique(table["topic"]).to_pylist() if topic is not None]
    return pc.is_in(table["topic"], pa.array(topics.fitting(known), pa.string()))


# ---

# --- One transaction: its half messages, what was decided, and the message that came of it.

STEP = "step"
_HALF, _CHECK, _DECIDED, _FINAL, _GIVEN_UP = "half", "check", "op", "final", "given up"
_NEEDED = (
    "topic", "brokerName", "queueOffset", "physicalOffset", "storeTimestamp", "properties", "body", "tags", "sysFlag",
    "preparedTransactionOffset", "msgId",
)  # fmt: skip


class Transaction(NamedTuple):
    """All that is there of a transaction: its states by the table `transactions` (several, where an id was used again),
    and its messages in the order of storing, with the columns that were asked for and STEP at the end.
    """

    states: pa.Table
    messages: pa.Table


def transaction_of(snapshot: SnapshotReader, transaction_id: str, columns: Sequence[str]) -> Transaction:
    """The transaction whose half message has that unique key.  STEP is half, check (a half message that a check wrote
    again), op (that says it is decided), final, or given up.  Raises as a scan, and as `Snapshot.table`.
    """
    states = snapshot.table("transactions")
    states = states.filter(pc.fill_null(pc.equal(states["transactionId"], transaction_id), False))
    read = tuple(dict.fromkeys((*columns, *_NEEDED)))
    half = _messages(snapshot, names.HALF_TOPICS, transaction_id, read)
    topics = pc.unique(pc.map_lookup(half["properties"], pa.scalar(properties.REAL_TOPIC), "first")).to_pylist()
    final = _messages(snapshot, [topic for topic in topics if topic] or None, transaction_id, read)
    final = final.filter(pa.array(np.asarray(final["sysFlag"]) & sys_flag.TRANSACTION_MASK == sys_flag.COMMIT))
    checks = pc.map_lookup(half["properties"], pa.scalar(properties.CHECK_TIMES), "first")
    given_up = _messages(snapshot, [names.TRANSACTION_CHECK_TOPIC], transaction_id, read)
    parts = [
        _named(half.filter(pc.is_null(checks)), _HALF), _named(half.filter(pc.is_valid(checks)), _CHECK),
        _named(_ops(snapshot, half, read), _DECIDED), _named(final, _FINAL), _named(given_up, _GIVEN_UP),
    ]  # fmt: skip
    order = [("storeTimestamp", "ascending"), ("brokerName", "ascending"), ("physicalOffset", "ascending")]
    found = pa.concat_tables(parts).sort_by(order)
    return Transaction(states, found.select([*columns, STEP]))


def _messages(snapshot: SnapshotReader, topics: Sequence[str] | None, own_id: str, read: Sequence[str]) -> pa.Table:
    """Those with an id, of topics of which some may not be there."""
    held = {topic for store in snapshot.stores for topic, _ in store.queues}
    there = None if topics is None else tuple(topic for topic in topics if topic in held)
    if there == ():
        return schema_of(read).empty_table()
    return _table(SearchRun(snapshot, Search(topics=MeantTopics(there, None), ids=(own_id,)), read), read)


def _ops(snapshot: SnapshotReader, half: pa.Table, read: Sequence[str]) -> pa.Table:
    """The op messages that name one of the half messages, each in the store of its own: by queue offset, or by the
    place in the log where RocksDB has what is open.
    """
    held = {topic for store in snapshot.stores for topic, _ in store.queues}
    found = []
    for topic, op_topic, place, texts_of in (
        (names.HALF_TOPIC, names.OP_HALF_TOPIC, "queueOffset", _body_texts),
        (names.ROCKSDB_HALF_TOPIC, names.ROCKSDB_OP_HALF_TOPIC, "physicalOffset", _offset_texts),
    ):
        own = half.filter(pc.equal(half["topic"], topic))
        if op_topic not in held or not own.num_rows:
            continue
        named = list(zip(own["brokerName"].to_pylist(), own[place].to_pylist(), strict=True))
        batches = SearchRun(snapshot, Search(topics=MeantTopics((op_topic,), None)), read)
        found += [_naming(batch, named, *texts_of(batch)) for batch in batches]
    return _table(found, read)


def _naming(batch: pa.RecordBatch, named: Sequence[tuple[str, int]], owners: Ints, texts: pa.Array) -> pa.RecordBatch:
    """The op messages of a batch that name one of these places of their own broker; text n is of row `owners[n]`."""
    rows = np.zeros(batch.num_rows, bool)
    for broker in {one for one, _ in named}:
        wanted = pa.array([str(place).encode() for one, place in named if one == broker], pa.binary())
        own = np.asarray(pc.equal(batch.column("brokerName"), broker).to_numpy(zero_copy_only=False), bool)
        named_here = np.zeros(batch.num_rows, bool)
        named_here[owners[np.asarray(pc.is_in(texts, wanted), bool)]] = True
        rows |= own & named_here
    return batch.filter(pa.array(rows))


def _body_texts(batch: pa.RecordBatch) -> tuple[Ints, pa.Array]:
    pieces = pc.split_pattern(batch.column("body"), b",")
    return np.asarray(pc.list_parent_indices(pieces), np.int64), pc.list_flatten(pieces)


def _offset_texts(batch: pa.RecordBatch) -> tuple[Ints, pa.Array]:
    texts = pc.map_lookup(batch.column("properties"), pa.scalar(properties.TRANSACTION_OFFSET), "first")
    return np.arange(batch.num_rows), texts.cast(pa.binary())


def _table(batches: Iterable[pa.RecordBatch], read: Sequence[str]) -> pa.Table:
    return pa.Table.from_batches(list(batches), schema_of(read))


def _named(rows: pa.Table, step: str) -> pa.Table:
    return rows.append_column(STEP, pa.array([step] * rows.num_rows, pa.string()))


# ---

# --- One file of Parquet that a user names: there as a whole, or not at all.


def parquet_place(path: str, stores: Sequence[str], *, may_replace: bool) -> str:
    """Where a file is to be written.  Raises Rejected, NotAStore for a place in a store, for a file that is there
    already unless it may be replaced, and as `output_path`.
    """
    real = output_path(path, stores)
    fs = RealFileSystem()
    require_apart(fs, real, stores)
    if not may_replace:
        _require_new(fs, real)
    return real


def write_parquet(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, may_replace: bool) -> int:
    """Writes the batches to a place of `parquet_place`; how many rows they had.  Memory holds a row group.

    Raises Rejected where the disk refuses, or the file came meanwhile; what the batches raise.
    """
    fs = RealFileSystem(is_shared=True)
    temporary = join(directory_of(path), f".{secrets.token_hex(8)}.tmp")
    try:
        file = ParquetFile(fs, temporary, schema, "zstd")
        try:
            count = _written(file, schema, batches)
            if not may_replace:
                _require_new(fs, path)
            fs.rename(temporary, path)
            fs.sync_directory(directory_of(path))
        except BaseException:
            file.give_up()
            with suppress(OSError):
                fs.remove(temporary)
            raise
    except OSError as failure:
        raise Rejected(f"{path}: cannot be written ({failure.strerror}); {next_step(failure, 'write')}") from None
    return count


def _require_new(fs: RealFileSystem, path: str) -> None:
    if fs.exists(path):
        raise Rejected(f"{path}: exists; name another file, or replace it with --overwrite")


def _written(file: ParquetFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        held.append(batch.select(schema.names))
        count += batch.num_rows
        size += batch.get_total_buffer_size()
        if size >= GROUP_BYTES:
            file.write(pa.Table.from_batches(held, schema))
            held, size = [], 0
    if held or not count:
        file.write(pa.Table.from_batches(held, schema))
    file.finish()
    return count


# ---

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
@click.option(
    "-e",
    "--regex",
    callback=whole_text,
    metavar="RE",
    help="Only messages whose body matches this regular expression (RE2).",
)
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore case in --grep and --regex.")
@click.option(
    "--id", "ids", multiple=True, metavar="ID",
    help="Only the message with this unique key or offset message id, of any topic; repeatable.",
)  # fmt: skip
@click.option(
    "--property", "properties", multiple=True, callback=name_values, metavar="NAME=VALUE",
    help="Only messages with this property; repeatable: a message must have all of them.",
)  # fmt: skip
@click.option(
    "--born-host", "born_hosts", multiple=True, callback=_hosts, metavar="HOST[:PORT]",
    help="Only messages that were sent from this address; repeatable: a message may be from any of them.",
)  # fmt: skip
@click.option(
    "--delayed", is_flag=True, help="Delayed messages that are not delivered yet, with the time of their delivery."
)
@click.option(
    "--transaction", callback=whole_text, metavar="ID",
    help="The transaction with this unique key: its half message, the decision and the resulting message.",
)  # fmt: skip
@click.option("--limit", "-n", type=click.IntRange(1, 2**62), help="Print at most this many messages.")
@click.option("--count", "-c", "counts", is_flag=True, help="Print only the number of messages.")
@_outputs
@click.option("--to", metavar="FILE", callback=whole_text, help="With -o parquet: the file to write.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
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
        click.echo(f"{what} damaged, and left out; `rmqstore verify` says where", err=True)
    ctx.exit(0 if found.count else _NOTHING_FOUND)


def _opened(stores: tuple[str, ...], search: Search, given: dict[str, Any]) -> SnapshotReader:
    """The stores; of very many topics only those that are named, where no others have to be asked."""
    paths, named = given_paths(stores), search.topics.topics
    if named is None or given["delayed"] or given["transaction"] is not None:
        return open_snapshot(paths)
    return open_selected(paths, {"topics": named})


def _search(given: dict[str, Any]) -> Search:
    """The options' meaning.  Raises click.UsageError."""
    ids = tuple(dict.fromkeys(one.strip() for one in given["ids"]))
    if "" in ids:
        raise click.BadParameter("is empty; leave it out for all messages", param_hint="--id")
    if given["grep"] is not None and given["regex"] is not None:
        raise click.UsageError("--grep and --regex: give only one of them")
    said = given["regex"] if given["grep"] is None else given["grep"]
    if given["ignore_case"] and said is None:
        raise click.UsageError("--ignore-case needs --grep or --regex")
    try:
        text = None if said is None else BodyText(said, given["regex"] is not None, ignores_case=given["ignore_case"])
    except Rejected as mistake:
        raise click.BadParameter(str(mistake), param_hint="--grep" if given["regex"] is None else "--regex") from None
    meant = meant_topics(given["topics"], given["include_system_topics"])
    is_sought = bool(ids) or (bool(given["key"]) and not given["topics"])  # wherever it is: retries, dead letters
    return Search(
        topics=meant, include_system_topics=meant.include_system_topics or is_sought, tags=given["tags"],
        keys=given["key"], ids=ids, window=meant_window(given["since"], given["until"], given["born"]), text=text,
        properties=given["properties"], born_hosts=given["born_hosts"],
    )  # fmt: skip


def _require_sense(given: dict[str, Any], search: Search) -> None:
    """Raises click.UsageError for options that do not go together."""
    if (given["form"] == PARQUET) != (given["to"] is not None):
        raise click.UsageError("-o parquet needs --to FILE, and --to needs -o parquet")
    if given["overwrite"] and given["form"] != PARQUET:
        raise click.UsageError("--overwrite needs -o parquet")
    if given["counts"] and (given["form"] or given["template"]):
        raise click.UsageError("--count prints a number: leave --output and --format out")
    chosen = [name for name in ("topics", "grep", "regex", "ids", "delayed", "tags", "key", "since", "until",
                                 "properties", "born_hosts")
              if given[name]]  # fmt: skip
    if given["transaction"] is not None and chosen:
        raise click.UsageError("--transaction takes no other conditions: leave them out")
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
    else:
        printer.end(found.count)


def _write(snapshot: SnapshotReader, search: Search, given: dict[str, Any], found: _Found) -> None:
    if given["template"] is not None:
        raise click.UsageError("--output and --format: give only one of them")
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
