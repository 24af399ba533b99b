"""`rmqstore tail`: the newest messages, and with --follow those that come."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore import Snapshot, open_snapshot
from rmqstore.cli.choices import chosen_keys, chosen_tags, regular_expression, topic_names, topics_or_pattern
from rmqstore.cli.decoding.options import body_bytes_max
from rmqstore.cli.message_output import Form, Printer, Template, output_options
from rmqstore.cli.output import counted, given_paths, one_line, store_arguments
from rmqstore.cli.signals import until_signalled
from rmqstore.core.locks import Bell
from rmqstore.errors import NotAStore, StoreChanging
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.snapshot.plan.selection import Wanted, selected_queues
from rmqstore.snapshot.stream.following import Following

# Seconds between two looks for a store that is not there.
_AWAY_S = 0.3
# Rows that are held before they are sorted.
_HELD_ROWS = 10_000
# In microseconds; later than any store time.
_LAST_TIME = 2**63 - 1
_EXAMPLE = """\b
Examples:
  rmqstore tail /data/rocketmq/store --topic orders -f
  rmqstore tail /data/rmq/broker-a -n 100 --tags paid -o json-lines | jq .body
"""


@click.command(epilog=_EXAMPLE, short_help="Print the newest messages, and with -f new ones as they arrive.")
@store_arguments
@click.option(
    "--topic", "topics", multiple=True, callback=topic_names,
    help="Only this topic; repeatable; 'orders*' means all topics that begin with orders.  By default all but "
        "RocketMQ's own.",
)  # fmt: skip
@click.option(
    "--include-system-topics", is_flag=True, help="Include RocketMQ's own topics: retries, dead letters and such."
)
@click.option(
    "--pattern", callback=regular_expression, help="Only topics whose whole name matches this regular expression."
)
@click.option(
    "-n", "--lines", "count", type=click.IntRange(0, 10**6), default=10, show_default=True,
    help="Print this many of the newest messages first.",
)  # fmt: skip
@click.option("-f", "--follow", "follows", is_flag=True, help="Continue with new messages until Ctrl-C.")
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
    newest = _Newest(first.schema, count, sound_first=is_filtered)
    for batch in first:
        newest.add(batch.rows)
    shown = newest.rows()
    for rows in shown:
        printer.show(rows)
    if shown and not follows:
        printer.end(sum(rows.num_rows for rows in shown))
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
    """The newest rows of those that come: of a broker by their place in its log, of several by store time too."""

    def __init__(self, schema: pa.Schema, count: int, *, sound_first: bool) -> None:
        """`sound_first`: damaged rows have only the places that sound ones leave, as no filter can judge them."""
        self._schema, self._count, self._sound_first = schema, count, sound_first
        self._held: list[pa.RecordBatch] = []
        self._room = max(4 * count, _HELD_ROWS)
        self.damaged = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes rows; of those in memory the newest stay."""
        self.damaged += _damaged(rows)
        self._held.append(rows)
        if sum(batch.num_rows for batch in self._held) > self._room:
            table = pa.Table.from_batches(self._held, self._schema)
            kept = table.filter(pa.array(_Places.of(table).may_be_newest(self._count)))
            self._held, self._room = kept.to_batches(), max(self._room, 2 * kept.num_rows)

    def rows(self) -> list[pa.RecordBatch]:
        """The newest rows, oldest first."""
        table = pa.Table.from_batches(self._held, self._schema)
        places = _Places.of(table)
        order = places.oldest_first()
        if self._sound_first:
            is_damaged = places.is_damaged[order]
            sound = _last(order[~is_damaged], self._count)
            chosen = np.concatenate((sound, _last(order[is_damaged], self._count - len(sound))))
            order = order[np.isin(order, chosen)]
        else:
            order = _last(order, self._count)
        return list(table.take(pa.array(order)).to_batches())


class _Places(NamedTuple):
    """int64[n] each, and bool[n]: the brokers of rows by number, their places in its log, and their store times."""

    broker: Ints
    offset: Ints
    time: Ints
    has_time: Mask
    is_damaged: Mask

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Those of rows that have the columns for it."""
        stored = table.column("storeTimestamp")
        return cls(
            broker=pc.rank(table.column("brokerName").cast(pa.string()), tiebreaker="dense")
            .to_numpy()
            .astype(np.int64),
            offset=table.column("physicalOffset").fill_null(-1).to_numpy(),
            time=stored.cast(pa.int64()).fill_null(0).to_numpy(),
            has_time=np.asarray(stored.is_valid().to_numpy(), bool),
            is_damaged=np.asarray(table.column("corruptReason").is_valid().to_numpy(), bool),
        )

    def may_be_newest(self, count: int) -> Mask:
        """bool[n]: `count` sound rows and as many damaged ones of each broker, and one more of each for its time."""
        group = 2 * self.broker + self.is_damaged
        order = np.lexsort((self.offset, group))
        ends = np.searchsorted(group[order], group[order], side="right")
        kept = np.zeros(len(order), bool)
        kept[order[ends - np.arange(len(order)) <= count + 1]] = True
        return kept

    def oldest_first(self) -> Ints:
        """int64[n]: the rows in the order of each broker's log, among brokers by store time.

        A row without a time has that of the row before it in its broker.  No row is later than one that follows it in
        its broker, as the clock may have been set back.
        """
        in_logs = np.lexsort((self.offset, self.broker))
        latest = np.zeros(len(in_logs), np.int64)
        for rows in np.split(in_logs, np.flatnonzero(np.diff(self.broker[in_logs])) + 1):
            known = np.maximum.accumulate(np.where(self.has_time[rows], np.arange(len(rows)), -1))
            none_before = _LAST_TIME if self.has_time[rows].any() else -_LAST_TIME
            times = np.where(known < 0, none_before, self.time[rows[known]])
            latest[rows] = np.minimum.accumulate(times[::-1])[::-1]
        return np.lexsort((self.offset, self.broker, latest))


def _last(rows: Ints, count: int) -> Ints:
    return rows[max(len(rows) - count, 0) :]
