"""The tables beside the messages, as rows of a report: what waits, transactions, lag in time, files by kind."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.report.expiry import DAY_MS
from rmqstore.report.figures import (
    DelayedFigures,
    DelayedMessage,
    DelayedTopic,
    FileKind,
    PendingTransaction,
    TransactionFigures,
)
from rmqstore.report.traffic import FIRST_MS, TimeBins

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
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(number, field.name, pc.divide(table.column(number).cast(pa.int64()), 1000))
    return table


def _rows(table: pa.Table) -> Sequence[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
