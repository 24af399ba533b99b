"""`rmqstore cat`: messages of a topic, as a table or as JSON."""

from collections.abc import Iterable, Iterator
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore import Rejected, Snapshot
from rmqstore.cli.json_rows import json_objects
from rmqstore.cli.output import (
    body_text,
    counted,
    cut_size,
    fitted,
    open_stores,
    padded,
    printable,
    store_arguments,
    utc,
    whole_text,
    wrapped,
)
from rmqstore.formats.wanted_words import key_words, tag_words
from rmqstore.snapshot.reader import open_selected

_COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "bornTimestamp", "storeTimestamp",
    "physicalOffset", "properties", "body", "corruptReason",
)  # fmt: skip
_TABLE_COLUMNS = ("brokerName", "queueId", "queueOffset", "tags", "keys", "storeTimestamp", "body", "corruptReason")

# Widths as the lines of _print_table have them.
_HEAD = f"{'queue':>5} {'offset':>9}  {'stored (UTC)':19}  {'tags':10}  {'keys':12}  body"

Row = dict[str, Any]


def _tag_words(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    try:
        return tag_words(whole_text(_ctx, _param, text) or "")
    except Rejected as mistake:
        raise click.BadParameter(str(mistake)) from None


def _key_words(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    try:
        return key_words(whole_text(_ctx, _param, text) or "") if text else ()
    except Rejected as mistake:
        raise click.BadParameter(str(mistake)) from None


@click.command()
@store_arguments
@click.option("--topic", required=True, callback=whole_text, help="The topic; `rmqstore inspect` lists them.")
@click.option("--queue", type=click.IntRange(min=0), help="Only this queue.")
@click.option("--from", "start", type=click.IntRange(min=0), help="Begin at this queue offset, in every queue.")
@click.option("--limit", type=click.IntRange(1, 2**62), help="At most so many messages.")
@click.option(
    "--tags", default="", callback=_tag_words, help='Only these tags: "paid", "paid || shipped", or a JSON list.'
)
@click.option(
    "--key",
    callback=_key_words,
    help='Only messages with this key (KEYS or UNIQ_KEY) or message id; "a || b", or a JSON list.',
)
@click.option("--json", "as_json", is_flag=True, help="A JSON array.")
@click.option("--json-lines", is_flag=True, help="One JSON object a line.")
def cat(
    stores: tuple[str, ...], topic: str, queue: int | None, start: int | None, limit: int | None, **how: Any
) -> None:
    """Print the messages of a topic, queue by queue in order.

    On a terminal lines are cut at its width (COLUMNS sets another); in a pipe or a file they are whole. A body that is
    UTF-8 stands under "body" in JSON, any other in base64 under "bodyBase64".
    """
    snapshot = open_stores(stores, lambda paths: open_selected(paths, {"topics": [topic]}))
    as_table = not how["as_json"] and not how["json_lines"]
    batches = _batches(snapshot, topic, queue, start, how, _TABLE_COLUMNS if as_table else _COLUMNS)
    shown = _Counted(batches, limit)
    if as_table:
        _print_table(shown, with_broker=len(snapshot.stores) > 1)
    elif how["json_lines"]:
        for rows in shown:
            click.echo("\n".join(json_objects(rows)))
    else:
        _print_array(shown)
    if shown.damaged:
        click.echo(f"{counted(shown.damaged, 'message')} damaged; `rmqstore verify` says where", err=True)


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


def _batches(
    snapshot: Snapshot, topic: str, queue: int | None, start: int | None, how: dict[str, Any], columns: tuple[str, ...]
) -> pa.RecordBatchReader:
    """Messages as they are read: memory holds one batch.  Raises UnknownTopic at once."""
    selection: dict[str, Any] = {"topics": [topic]}
    if queue is not None:
        brokers = [store.broker_name for store in snapshot.stores if (topic, queue) in store.queues]
        known = sorted(number for store in snapshot.stores for name, number in store.queues if name == topic)
        if known and not brokers:
            held = ", ".join(map(str, known))
            raise click.BadParameter(f"{topic!r} has no queue {queue}; it has {held}", param_hint="--queue")
        selection = {"assign": {topic: {broker: [queue] for broker in brokers}}} if brokers else selection
    return snapshot.scan(
        **selection, columns=columns, start="earliest" if start is None else {topic: start}, tags=how["tags"],
        keys=how["key"], on_corrupt_record="null", fail_on_data_loss=False,
        scan_mode="queue" if all(store.queue_layout == "file" for store in snapshot.stores) else "auto",
        batch_rows=4096,
    )  # fmt: skip


def _print_array(rows: "_Counted") -> None:
    before = "[\n  "
    for batch in rows:
        click.echo(before + ",\n  ".join(json_objects(batch)), nl=False)
        before = ",\n  "
    click.echo("\n]" if rows.count else "[]")


def _print_table(rows: "_Counted", with_broker: bool) -> None:
    """Lines of fixed columns, printed as they come: cut to fit a terminal, whole in a pipe."""
    line_size = cut_size()
    head = [_HEAD]
    for batch in rows:
        click.echo("\n".join(head + [_line(row, with_broker, line_size) for row in _rows(batch)]))
        head = []
    if not rows.count:
        click.echo("no messages")


def _rows(batch: pa.RecordBatch) -> list[Row]:
    """The rows with their store times in ms: Python's calendar does not hold every time."""
    at = batch.schema.get_field_index("storeTimestamp")
    millis = pc.divide(batch.column(at).cast(pa.int64()), 1000)
    return list(batch.set_column(at, "storeTimestamp", millis).to_pylist())


def _line(row: Row, with_broker: bool, line_size: int | None) -> str:
    queue = f"{printable(row['brokerName'])}/{row['queueId']}" if with_broker else str(row["queueId"])
    place = f"{queue:>5} {row['queueOffset']:>9}  "
    if row["corruptReason"]:
        reason = f"damaged: {row['corruptReason']}"
        return place + printable(reason) if line_size is None else wrapped(place, reason)
    time = utc(row["storeTimestamp"])
    tags, keys = (_cell(row[name] or "", size, line_size) for name, size in (("tags", 10), ("keys", 12)))
    body = body_text(row["body"], " ", None if line_size is None else line_size + 1)
    line = fitted(f"{place}{time:19}  {tags}  {keys}  {body}", line_size)
    return line if body else line.rstrip()


def _cell(text: str, size: int, line_size: int | None) -> str:
    """A column of at least `size`, and where lines are cut of just as many."""
    shown = printable(text)
    return padded(shown if line_size is None else fitted(shown, size), size)
