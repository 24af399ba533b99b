"""One transaction: its half messages, what was decided, and the message that came of it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import names, properties, sys_flag
from rmqstore.search.meant_topics import MeantTopics
from rmqstore.search.search import Search, SearchRun
from rmqstore.snapshot.columns import schema_of
from rmqstore.snapshot.reader import SnapshotReader

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
    half = _messages(snapshot, [names.HALF_TOPIC], transaction_id, read)
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
    """The op messages that name one of the half messages by its queue offset, each in the store of its own."""
    held = {topic for store in snapshot.stores for topic, _ in store.queues}
    if names.OP_HALF_TOPIC not in held or not half.num_rows:
        return schema_of(read).empty_table()
    search = Search(topics=MeantTopics((names.OP_HALF_TOPIC,), None))
    brokers, offsets = half["brokerName"].to_pylist(), half["queueOffset"].to_pylist()
    named = {(broker, str(offset).encode()) for broker, offset in zip(brokers, offsets, strict=True)}
    found = []
    for batch in SearchRun(snapshot, search, read):
        pieces = pc.split_pattern(batch.column("body"), b",")
        owners = np.asarray(pc.list_parent_indices(pieces), np.int64)
        texts = pc.list_flatten(pieces)
        rows = np.zeros(batch.num_rows, bool)
        for broker in {one for one, _ in named}:
            wanted = pa.array([text for one, text in named if one == broker], pa.binary())
            own = np.asarray(pc.equal(batch.column("brokerName"), broker).to_numpy(zero_copy_only=False), bool)
            named_here = np.zeros(batch.num_rows, bool)
            named_here[owners[np.asarray(pc.is_in(texts, wanted), bool)]] = True
            rows |= own & named_here
        found.append(batch.filter(pa.array(rows)))
    return _table(found, read)


def _table(batches: Iterable[pa.RecordBatch], read: Sequence[str]) -> pa.Table:
    return pa.Table.from_batches(list(batches), schema_of(read))


def _named(rows: pa.Table, step: str) -> pa.Table:
    return rows.append_column(STEP, pa.array([step] * rows.num_rows, pa.string()))
