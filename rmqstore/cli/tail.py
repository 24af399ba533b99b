"""`rmqstore tail`: the newest messages, and with --follow those that come."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
import pyarrow as pa

from rmqstore import Snapshot, open_snapshot
from rmqstore.cli.choices import chosen_keys, chosen_tags, regular_expression, topic_names, topics_or_pattern
from rmqstore.cli.decoding.options import body_bytes_max
from rmqstore.cli.message_output import Form, Printer, Template, output_options
from rmqstore.cli.output import counted, given_paths, one_line, store_arguments
from rmqstore.cli.signals import until_signalled
from rmqstore.errors import NotAStore, StoreChanging
from rmqstore.locks import Bell
from rmqstore.snapshot.plan.selection import Wanted, selected_queues
from rmqstore.snapshot.stream.following import Following

# Seconds between two looks for a store that is not there.
_AWAY_S = 0.3
# Rows that are held before they are sorted.
_HELD_ROWS = 10_000
_EXAMPLE = """\b
Examples:
  rmqstore tail /data/rocketmq/store --topic orders -f
  rmqstore tail /data/rmq/broker-a -n 100 --tags paid -o json-lines | jq .body
"""


@click.command(epilog=_EXAMPLE, short_help="Print the newest messages, and with -f those that come.")
@store_arguments
@click.option(
    "--topic", "topics", multiple=True, callback=topic_names,
    help="Only this topic; may come again, and 'orders*' is all that begin so.  By default all but RocketMQ's own.",
)  # fmt: skip
@click.option("--include-system-topics", is_flag=True, help="RocketMQ's own as well: retries, dead letters and such.")
@click.option(
    "--pattern", callback=regular_expression, help="Only topics whose whole name fits this regular expression."
)
@click.option(
    "-n", "--lines", "count", type=click.IntRange(0, 10**6), default=10, show_default=True,
    help="So many of the newest messages first.",
)  # fmt: skip
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--tags", callback=chosen_tags, help='Only these tags: "paid", "paid || shipped".')
@click.option("--key", callback=chosen_keys, help='Only messages with this key or message id; "a || b".')
@output_options
def tail(
    stores: tuple[str, ...], topics: tuple[str, ...], count: int, follows: bool, form: Form | None,
    template: Template | None, **chosen: Any,
) -> None:  # fmt: skip
    """Print the newest messages, oldest first, and with -f those that come.

    A store that is written, replaced or cleaned meanwhile is followed all the same: messages that were deleted before
    they were read are counted at the end, as are damaged ones.
    """
    meant = topics_or_pattern(topics, chosen["pattern"], chosen["include_system_topics"])
    named, snapshot = meant.topics, open_snapshot(given_paths(stores))
    if not follows:
        meant.require_known(
            sorted({topic for store in snapshot.stores for topic, _ in store.queues}), ", ".join(stores)
        )
    with_broker = len(snapshot.stores) > 1
    printer = Printer(form, template, with_topic=named is None or len(named) != 1, with_broker=with_broker)
    how: dict[str, Any] = {
        "topics": named, "pattern": meant.pattern, "columns": printer.columns,
        "tags": chosen["tags"], "keys": chosen["key"], "include_system_topics": meant.include_system_topics,
        "on_corrupt_record": "null", "fail_on_data_loss": False, "body_bytes_max": body_bytes_max(),
    }  # fmt: skip
    is_filtered = bool(how["tags"] or how["keys"])
    start: Wanted = "earliest" if is_filtered else _last_ones(snapshot, count, how)
    first = snapshot.follow(**how, start=start, wait_s=0)
    newest = _Newest(first.schema, count)
    for batch in first:
        newest.add(batch.rows)
    printer.show(newest.rows())
    damaged, skipped = newest.damaged, first.skipped_count
    if follows:
        following = snapshot.follow(**how, after=first.offsets)
        with until_signalled(following.stop) as is_over:
            for rows in _coming(following, is_over):
                printer.show(rows)
                damaged += _damaged(rows)
        skipped += following.skipped_count
    if damaged:
        click.echo(f"{counted(damaged, 'message')} damaged; `rmqstore verify` says where", err=True)
    if skipped:
        click.echo(f"{counted(skipped, 'message')} deleted before they were read", err=True)


def _coming(following: Following, is_over: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    """The rows that come; a store that is not there just now, as it is made again, is waited for."""
    bell, is_told = Bell(), False
    while not is_over():
        try:
            for batch in following:
                is_told = False
                yield batch.rows
        except (NotAStore, StoreChanging) as error:
            if not is_told:
                click.echo(f"waiting: {one_line(error)}", err=True)
            is_told = True
            bell.wait(_AWAY_S)


def _last_ones(snapshot: Snapshot, count: int, how: Mapping[str, Any]) -> dict[str, Any]:
    """Offsets before which no queue has one of the newest messages."""
    start: dict[str, Any] = {}
    for store, queue in selected_queues(
        snapshot.stores, how["topics"], how["pattern"], None, include_system_topics=how["include_system_topics"]
    ):
        topic, queue_id = queue.key
        by_broker = start.setdefault(topic, {}).setdefault(store.broker_name, {})
        by_broker[str(queue_id)] = max(queue.min_offset, queue.max_offset - count)
    return start


def _damaged(rows: pa.RecordBatch) -> int:
    return int(rows.num_rows - rows.column("corruptReason").null_count)


class _Newest:
    """The newest rows of those that come, by store time."""

    def __init__(self, schema: pa.Schema, count: int) -> None:
        self._schema, self._count = schema, count
        self._held: list[pa.RecordBatch] = []
        self.damaged = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes rows; of those in memory the newest stay."""
        self.damaged += _damaged(rows)
        self._held.append(rows)
        if sum(batch.num_rows for batch in self._held) > max(4 * self._count, _HELD_ROWS):
            self._held = [self.rows()]

    def rows(self) -> pa.RecordBatch:
        """The newest rows, oldest first."""
        table = pa.Table.from_batches(self._held, self._schema)
        order = [(name, "ascending") for name in ("storeTimestamp", "brokerName", "physicalOffset")]
        newest = table.sort_by(order).slice(max(table.num_rows - self._count, 0))
        batches = newest.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self._schema)
