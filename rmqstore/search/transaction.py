"""One transaction: its half messages, what was decided, and the message that came of it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.message_columns import Ints
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
