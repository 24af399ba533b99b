"""The figures of a snapshot, collected: what `inspect` has found already, the tables beside the messages, one scan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.errors import StoreError, next_step
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.java_text import java_text
from rmqstore.formats.names import is_light_queue, is_system_topic
from rmqstore.report.expiry import DAY_MS, LogFileFacts, growth_of, levels_of, outlook_of
from rmqstore.report.figures import (
    DamageFigures,
    DelayedFigures,
    DelayedMessage,
    DelayedTopic,
    DiskFigures,
    Figures,
    FileKind,
    GroupFigures,
    Missing,
    Part,
    PendingTransaction,
    StoreFigures,
    TopicFigures,
    TransactionFigures,
)
from rmqstore.report.traffic import FIRST_MS, TimeBins, TrafficCount, TrafficFigures, is_plausible, traffic_batches
from rmqstore.snapshot.finding import DAMAGE, Finding
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.request import TableName
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.tables.tables import table_schema
from rmqstore.snapshot.verify import verify

# --- The tables beside the messages, as rows of a report: what waits, transactions, lag in time, files by kind.

# Broker, group and topic.
GroupPlace = tuple[str, str, str]
# Messages and transactions that are told one by one.
_LISTED_MAX = 100
# Of what waits so much of the time to come is plotted: a timer may be set for any.
_AHEAD_MS = 1100 * DAY_MS
# Fewer stretches of time are no plot; the table says as much.
_BINS_LEAST = 3
DELAYED_COLUMNS = ("kind", "topic", "brokerName", "msgId", "storeTimestamp", "deliverAt", "isDue")
GROUP_COLUMNS = ("group", "topic", "brokerName", "lagMs")
FILE_COLUMNS = ("kind", "brokerName", "path", "start", "size", "used", "firstTimestamp", "lastTimestamp")
TRANSACTION_COLUMNS = (
    "topic", "brokerName", "transactionId", "producerGroup", "state", "checkTimes", "preparedTimestamp",
)  # fmt: skip


def delayed_figures(waiting: pa.Table, now_ms: int) -> DelayedFigures:
    """The figures of a table with DELAYED_COLUMNS."""
    if not len(waiting):
        return DelayedFigures()
    waiting = _with_millis(waiting)
    made = _rows(waiting.group_by(["brokerName", "kind", "topic"]).aggregate(
        [("msgId", "count", pc.CountOptions(mode="all")), ("isDue", "sum"), ("deliverAt", "min"), ("deliverAt", "max")]
    ).sort_by([("brokerName", "ascending"), ("topic", "ascending"), ("kind", "ascending")]))  # fmt: skip
    topics = tuple(
        DelayedTopic(
            row["brokerName"], row["kind"], row["topic"], row["msgId_count"], row["isDue_sum"] or 0,
            row["deliverAt_min"], row["deliverAt_max"],
        )
        for row in made
    )  # fmt: skip
    soonest = waiting.sort_by([("deliverAt", "ascending")]).slice(0, _LISTED_MAX)
    listed = tuple(
        DelayedMessage(row["brokerName"], row["topic"], row["msgId"], row["storeTimestamp"], row["deliverAt"])
        for row in _rows(soonest)
    )
    times = pc.drop_null(waiting["deliverAt"]).to_numpy()
    times = times[(times >= FIRST_MS) & (times <= now_ms + _AHEAD_MS)]
    if not len(times):
        return DelayedFigures(topics, listed)
    bins = TimeBins.between(int(times.min()), int(times.max()))
    if bins.count < _BINS_LEAST:
        return DelayedFigures(topics, listed)
    counts = np.bincount((times - bins.start_ms) // bins.step_ms, minlength=bins.count)
    return DelayedFigures(topics, listed, bins, tuple(counts.tolist()))


def transaction_figures(table: pa.Table) -> tuple[TransactionFigures, ...]:
    """How many transactions of each topic are in which state."""
    made = _with_millis(table).group_by(["brokerName", "topic", "state"]).aggregate(
        [("transactionId", "count", pc.CountOptions(mode="all")), ("preparedTimestamp", "min"),
         ("preparedTimestamp", "max")]
    ).sort_by([("brokerName", "ascending"), ("topic", "ascending"), ("state", "ascending")])  # fmt: skip
    return tuple(
        TransactionFigures(
            row["brokerName"], row["topic"], row["state"], row["transactionId_count"], row["preparedTimestamp_min"],
            row["preparedTimestamp_max"],
        )
        for row in _rows(made)
    )  # fmt: skip


def pending_transactions(table: pa.Table) -> tuple[PendingTransaction, ...]:
    """The oldest transactions that nobody has decided."""
    pending = _with_millis(table.filter(pc.equal(table["state"], "pending")))
    return tuple(
        PendingTransaction(
            row["brokerName"], row["topic"], row["transactionId"], row["producerGroup"], row["preparedTimestamp"],
            row["checkTimes"],
        )
        for row in _rows(pending.sort_by([("preparedTimestamp", "ascending")]).slice(0, _LISTED_MAX))
    )  # fmt: skip


def lags_of(groups: pa.Table) -> dict[GroupPlace, int | None]:
    """The longest lag in ms of any queue by broker, group and topic; None where it is not known of any."""
    made = groups.group_by(["brokerName", "group", "topic"]).aggregate([("lagMs", "max")])
    return {(row["brokerName"], row["group"], row["topic"]): row["lagMs_max"] for row in _rows(made)}


def kinds_of(files: pa.Table) -> tuple[FileKind, ...]:
    """Files of each kind together, the largest first."""
    made = files.group_by(["brokerName", "kind"]).aggregate([("size", "count"), ("size", "sum"), ("used", "sum")])
    kinds = [
        FileKind(row["brokerName"], row["kind"], row["size_count"], row["size_sum"], row["used_sum"])
        for row in _rows(made)
    ]
    return tuple(sorted(kinds, key=lambda kind: (kind.broker, -kind.size, kind.kind)))


def log_times(files: pa.Table) -> dict[str, tuple[int | None, int | None]]:
    """Store times in ms of the first and last message of each commitlog file, by its path."""
    logs = _with_millis(files.filter(pc.equal(files["kind"], "commitlog")))
    return {row["path"]: (row["firstTimestamp"], row["lastTimestamp"]) for row in _rows(logs)}


def _with_millis(table: pa.Table) -> pa.Table:
    """The same with instants as int64, ms since the epoch."""
    for number, each in enumerate(table.schema):
        if pa.types.is_timestamp(each.type):
            table = table.set_column(number, each.name, pc.divide(table.column(number).cast(pa.int64()), 1000))
    return table


def _rows(table: pa.Table) -> Sequence[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


# ---

# What `inspect --json` prints of one store.
Document = Mapping[str, Any]
# Is told what is being done, and how many bytes of the log more are done.
Tell = Callable[[str, int], None]
_FINDINGS_MAX = 500


@dataclass(frozen=True, slots=True)
class Wishes:
    """The wishes of whoever asks for a report: `top` topics get a line of their own in the plot of the traffic."""

    title: str
    now_ms: int
    made_by: str
    top: int = 10
    reads_traffic: bool = True
    verifies: bool = True
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)


def collect(snapshot: SnapshotReader, documents: Sequence[Document], wishes: Wishes, tell: Tell) -> Figures:
    """The figures of a snapshot's stores; `documents` are what `inspect --json` prints of them, in their order.

    A part that cannot be read is left out and told in `missing`: damage never ends a report.
    """
    missing: list[Missing] = []
    tables = {name: _tables(snapshot, name, columns, wishes.now_ms, missing) for name, columns in _COLUMNS.items()}
    traffic = _traffic(snapshot, documents, wishes, tell, missing) if wishes.reads_traffic else None
    lags, times = lags_of(tables["groups"]), log_times(tables["files"])
    stores = [
        _store(store, document, wishes, tell, missing, times)
        for store, document in zip(snapshot.stores, documents, strict=True)
    ]
    return Figures(
        wishes.title, wishes.now_ms, wishes.made_by, wishes.policy, wishes.reads_traffic, wishes.verifies,
        tuple(stores),
        tuple(_topics(documents, traffic)),
        tuple(_groups(documents, lags)),
        traffic,
        delayed_figures(tables["delayed"], wishes.now_ms),
        transaction_figures(tables["transactions"]),
        pending_transactions(tables["transactions"]),
        kinds_of(tables["files"]),
        tuple(missing),
    )  # fmt: skip


_COLUMNS: dict[TableName, Sequence[str]] = {
    "groups": GROUP_COLUMNS,
    "delayed": DELAYED_COLUMNS,
    "transactions": TRANSACTION_COLUMNS,
    "files": FILE_COLUMNS,
}


def _tables(
    snapshot: SnapshotReader, name: TableName, columns: Sequence[str], now_ms: int, missing: list[Missing]
) -> pa.Table:
    """The table of all stores; one of a store that cannot be read is noted in `missing` and empty."""
    parts = [table_schema(name, columns).empty_table()]
    for store in snapshot.stores:
        with _noted(store.broker_name, name, missing):
            parts.append(SnapshotReader((store,), store.access).table(name, columns, now_ms))
    return pa.concat_tables(parts)


@contextmanager
def _noted(broker: str, part: Part, missing: list[Missing]) -> Iterator[None]:
    """Notes the reason when a store or its disk refuses something."""
    try:
        yield
    except StoreError as error:
        missing.append(Missing(broker, part, str(error)))
    except OSError as error:
        missing.append(Missing(broker, part, f"{error.filename}: {error.strerror}; {next_step(error)}"))


def _traffic(
    snapshot: SnapshotReader, documents: Sequence[Document], wishes: Wishes, tell: Tell, missing: list[Missing]
) -> TrafficFigures | None:
    """The traffic of all stores, with lines for the topics of most messages; None where no message has a time."""
    counts: dict[str, int] = {}
    times = []
    for topic in (topic for document in documents for topic in document["topics"]):
        counts[topic["topic"]] = counts.get(topic["topic"], 0) + topic["messages"]
        times += [queue[name] for queue in topic["queues"] for name in ("oldestMs", "newestMs")]
    held = [time for time in times if is_plausible(time, wishes.now_ms)]
    if not held:
        return None
    bins = TimeBins.between(min(held), max(held))
    named = [name for name, count in counts.items() if count and not is_light_queue(name)]
    lines = sorted(named, key=lambda name: (-counts[name], name))[: wishes.top]
    count = TrafficCount(bins, lines)
    for store in snapshot.stores:
        with _noted(store.broker_name, "traffic", missing):
            for batch in traffic_batches(store):
                tell("reading messages", count.add(store.broker_name, batch))
    return count.traffic()


def _topics(documents: Sequence[Document], traffic: TrafficFigures | None) -> Iterator[TopicFigures]:
    sizes = traffic.sizes if traffic is not None else {}
    for document in documents:
        for topic in document["topics"]:
            queues, key = topic["queues"], (document["brokerName"], topic["topic"])
            yield TopicFigures(
                *key, is_system_topic(topic["topic"]), topic["perm"], len(queues), topic["messages"], sizes.get(key),
                min((queue["oldestMs"] for queue in queues if queue["oldestMs"] is not None), default=None),
                max((queue["newestMs"] for queue in queues if queue["newestMs"] is not None), default=None),
            )  # fmt: skip


def _groups(documents: Sequence[Document], lags: Mapping[GroupPlace, int | None]) -> Iterator[GroupFigures]:
    for document in documents:
        for group in document["groups"]:
            key = (document["brokerName"], group["group"], group["topic"])
            yield GroupFigures(*key, len(group["queues"]), group["backlog"], lags.get(key))


def _store(
    store: StoreExtent, document: Document, wishes: Wishes, tell: Tell, missing: list[Missing],
    times: Mapping[str, tuple[int | None, int | None]],
) -> StoreFigures:  # fmt: skip
    files = []
    for file in store.log_files:
        path = java_text(file.path.encode(errors="surrogateescape"))
        known = (time if is_plausible(time, wishes.now_ms) else None for time in times.get(path, (None, None)))
        used = min(max(store.log_end - file.start, 0), file.size)
        files.append(LogFileFacts(file.path, file.start, file.size, used, file.modified_ms, *known))
    growth = growth_of(files, store.log_end)
    outlook = outlook_of(files, store.log_end, growth, wishes.policy, wishes.now_ms)
    damage = None
    if wishes.verifies:
        with _noted(store.broker_name, "damage", missing):
            damage = _damage(store, tell)
    return StoreFigures(
        store.path, store.broker_name, document["versionLine"], document["lockHeld"], document["abortPresent"],
        store.queue_layout, store.log_start, store.log_end, tuple(outlook), growth,
        tuple(levels_of(outlook, store.log_end, growth, wishes.policy, wishes.now_ms)), _disk(store), damage,
    )  # fmt: skip


def _disk(store: StoreExtent) -> DiskFigures:
    """The host's disk, as a broker that runs here would see it."""
    fs, path = RealFileSystem(), store.log_files[0].path if store.log_files else store.path
    try:
        return DiskFigures(fs.used_ratio(path), fs.free_bytes(path))
    except OSError:
        return DiskFigures(-1.0, 0)  # gone since it was looked at


def _damage(store: StoreExtent, tell: Tell) -> DamageFigures:
    counts, listed, done = {True: 0, False: 0}, list[Finding](), 0

    def told(checked: int) -> None:
        nonlocal done
        tell("checking", checked - done)
        done = checked

    for finding in verify(store, told):
        is_damage = finding.severity == DAMAGE
        counts[is_damage] += 1
        if len(listed) < _FINDINGS_MAX:
            listed.append(finding)
    return DamageFigures(counts[True], counts[False], tuple(listed))
