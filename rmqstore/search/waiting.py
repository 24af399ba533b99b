"""Messages that wait for their time: as rows of the topic and queue that they go to, with when that will be."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats import names
from rmqstore.search.meant_topics import MeantTopics
from rmqstore.search.search import Search, SearchRun
from rmqstore.snapshot.reader import SnapshotReader

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
