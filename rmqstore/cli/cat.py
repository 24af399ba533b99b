"""`rmqstore cat`: messages of a topic, as a table, JSON, CSV or in a format of one's own."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import click
import pyarrow as pa

from rmqstore.cli.choices import chosen_keys, chosen_tags, since_until, topic_names
from rmqstore.cli.decoding.decoder import BodyDecoder
from rmqstore.cli.decoding.options import body_bytes_max, chosen_decoder
from rmqstore.cli.message_output import COLUMNS, Form, Printer, Template, json_objects, output_options, tell_holes
from rmqstore.cli.output import counted, given_paths, store_arguments
from rmqstore.snapshot.opening import open_selected, open_stores
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.search.meant_topics import MeantTopics, has_globs

_FORMS = ("as_json", "json_lines", "form", "template")


_EXAMPLE = """\b
Examples:
  rmqstore cat /data/rocketmq/store --topic orders --since 2h
  rmqstore cat /data/rocketmq/store --key o-1017
  rmqstore cat /data/rmq/broker-a --topic 'orders*' -o json-lines --decode json | jq .body
"""


@click.command(epilog=_EXAMPLE, short_help="Print the messages of topics, of a key, or of a time.")
@store_arguments
@click.option(
    "--topic", "topics", multiple=True, callback=topic_names,
    help="A topic; `rmqstore inspect` lists them. Repeatable; 'orders*' means all topics that begin with orders. "
        "Without it, --key, --since and --until search all topics, RocketMQ's own too.",
)  # fmt: skip
@click.option("--queue", type=click.IntRange(min=0), help="Only this queue.")
@click.option("--from", "start", type=click.IntRange(min=0), help="Begin at this offset in every queue.")
@click.option("--limit", "-n", type=click.IntRange(1, 2**62), help="Print at most this many messages.")
@click.option("--tags", callback=chosen_tags, help='Only these tags: "paid", "paid || shipped", or a JSON list.')
@click.option(
    "--key",
    callback=chosen_keys,
    help='Only messages with this key (KEYS or UNIQ_KEY) or message id; "a || b", or a JSON list.',
)
@since_until
@click.option("--json", "as_json", is_flag=True, help="A JSON array.")
@click.option("--json-lines", is_flag=True, help="One JSON object per line, the same as --output json-lines.")
@output_options
def cat(
    stores: tuple[str, ...],
    topics: tuple[str, ...],
    queue: int | None,
    start: int | None,
    limit: int | None,
    **how: Any,
) -> None:
    """Print the messages of topics, queue by queue in order.

    On a terminal lines are cut at its width (COLUMNS sets another); in a pipe or a file they are whole. A body that is
    UTF-8 stands under "body" in JSON, any other in base64 under "bodyBase64".
    """
    if how["since"] is not None and start is not None:
        raise click.UsageError("--since and --from: give only one of them")
    if None not in (how["since"], how["until"]) and how["since"] >= how["until"]:
        raise click.UsageError("--since is not before --until: no message can match")
    if not topics and not how["key"] and how["since"] is how["until"] is None:
        raise click.UsageError("name a topic with --topic, a key with --key, or a time with --since or --until")
    is_named = bool(topics)
    snapshot, topics = _opened(stores, topics)
    printer = _printer(
        with_topic=not is_named or len(topics) > 1,
        with_broker=len(snapshot.stores) > 1,
        **{name: how.pop(name) for name in _FORMS},
    )
    columns = COLUMNS if printer is None else printer.columns
    shown = _Counted(_batches(snapshot, _Places(topics, queue, start), how, columns), limit)
    if printer is None:
        _print_array(shown, chosen_decoder())
    else:
        for rows in shown:
            printer.show(rows)
        printer.end(shown.count)
    tell_holes(snapshot.stores)
    if shown.damaged:
        click.echo(f"{counted(shown.damaged, 'message')} damaged; `rmqstore verify` says where", err=True)


def _opened(stores: tuple[str, ...], topics: tuple[str, ...]) -> tuple[SnapshotReader, tuple[str, ...]]:
    """A look at the stores, and the topics that are meant: without a name all, RocketMQ's own too."""
    if topics and not has_globs(topics):
        return open_selected(given_paths(stores), {"topics": topics}), topics
    snapshot = open_stores(given_paths(stores))
    known = sorted({topic for store in snapshot.stores for topic, _ in store.queues})
    return snapshot, MeantTopics.listed(topics, known, ", ".join(stores)) if topics else tuple(known)


def _printer(
    *,
    as_json: bool,
    json_lines: bool,
    form: Form | None,
    template: Template | None,
    with_topic: bool,
    with_broker: bool,
) -> Printer | None:
    """None for a JSON array, which is one document.  Raises click.UsageError for several forms."""
    if sum((as_json, json_lines, form is not None, template is not None)) > 1:
        raise click.UsageError("--json, --json-lines, --output and --format: give only one of them")
    if as_json:
        return None
    return Printer("json-lines" if json_lines else form, template, with_topic=with_topic, with_broker=with_broker)


class _Counted:
    """Batches up to a limit of rows, none empty; counts rows, and those that are damaged."""

    def __init__(self, batches: Iterable[pa.RecordBatch], limit: int | None) -> None:
        self._batches, self._limit = batches, limit
        self.count = self.damaged = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            rows = batch if self._limit is None else batch.slice(0, self._limit - self.count)
            self.count += rows.num_rows
            self.damaged += rows.num_rows - rows.column("corruptReason").null_count
            if rows.num_rows:
                yield rows
            if self.count == self._limit:
                return


class _Places(NamedTuple):
    """The topics that are read; one queue of each, and an offset to begin at, where these are given."""

    topics: tuple[str, ...]
    queue: int | None
    start: int | None


def _batches(
    snapshot: SnapshotReader, places: _Places, how: dict[str, Any], columns: tuple[str, ...]
) -> pa.RecordBatchReader:
    """Messages as they are read: memory holds one batch.  Raises UnknownTopic at once."""
    selection = _selection(snapshot, places)
    bounds: dict[str, Any] = {"start": "earliest" if places.start is None else places.start}
    if how["since"] is not None or how["until"] is not None:
        ranges = snapshot.select(
            **selection, **bounds, start_time=how["since"], end_time=how["until"], fail_on_data_loss=False,
            missing_time="latest",
        )  # fmt: skip
        bounds = {"start": {}, "end": {}}
        for span in ranges:
            for name, offset in (("start", span.start), ("end", span.end)):
                of_topic = bounds[name].setdefault(span.topic, {}).setdefault(span.broker, {})
                of_topic[str(span.queue_id)] = offset
    return snapshot.scan(
        **selection, **bounds, columns=columns, tags=how["tags"], keys=how["key"], on_corrupt_record="null",
        fail_on_data_loss=False, batch_rows=4096, body_bytes_max=body_bytes_max(),
        scan_mode="queue" if all(store.has_entries for store in snapshot.stores) else "auto",
    )  # fmt: skip


def _selection(snapshot: SnapshotReader, places: _Places) -> dict[str, Any]:
    """The topics, or the one queue of each; a topic without that queue has no messages there, unless none has it."""
    if places.queue is None:
        return {"topics": list(places.topics)}
    held: dict[str, dict[str, list[int]]] = {}
    for store in snapshot.stores:
        for topic in places.topics:
            if (topic, places.queue) in store.queues:
                held.setdefault(topic, {})[store.broker_name] = [places.queue]
    if held:
        return {"assign": held}
    known = sorted({number for store in snapshot.stores for name, number in store.queues if name in places.topics})
    if known:
        numbers, names = ", ".join(map(str, known)), ", ".join(map(repr, places.topics))
        raise click.BadParameter(f"{names} has no queue {places.queue}; choose one of {numbers}", param_hint="--queue")
    return {"topics": list(places.topics)}


def _print_array(rows: "_Counted", decoder: BodyDecoder | None) -> None:
    before = "[\n  "
    for batch in rows:
        click.echo(before + ",\n  ".join(json_objects(batch, decoder)), nl=False)
        before = ",\n  "
    click.echo("\n]" if rows.count else "[]")
