"""Tables beside the messages: what queues, topics, groups, files, transactions and delayed messages a store has.

Each is small and exact, made from one snapshot.  With Spark: spark.read.format("rmqstore").option("table", NAME);
the queries below call the result after its name.  All times are instants (storeTimestamp of messages, in UTC).

queues: one row a queue; `messages` is what maxOffset − minOffset says.  Reads two entries and two records a queue.
    SELECT topic, sum(messages) FROM queues GROUP BY topic
  `bytes`, the sizes of its records together, comes only when it is named in `columns`: it reads every queue entry.
  `parentTopic` is the topic of a lite topic (RocketMQ 5.5); null for all others.
topics: one row a topic, of config/topics.json or of a queue that is there; perm bits are 4 read, 2 write, 1 inherit.
    SELECT topic, messages FROM topics WHERE NOT isSystem AND perm IS NULL  -- queues without a configuration
groups: one row a group and queue that has a committed offset.  `lag` counts messages that are there and
  wait for the group; `deletedUnread`, which it does not count, those that were deleted before the group came to them;
  `beyondEnd`, how far its offset lies past the queue's end, as after a cut: what RocketMQ shows as a negative lag.
  `lagMs` is from the next message that the group consumes to the newest of the queue; null where the queue is gone.
    SELECT `group`, sum(lag), max(lagMs) FROM groups GROUP BY `group` ORDER BY 2 DESC
files: one row a file, whatever it is; `used` are the bytes that hold data, `allocated` those that it takes on the
  disk, fewer than `size` where it has holes; the times are those of its first and last message.  What no broker put
  there has the kind "other", and so have files under other names than their room's.
    SELECT path, firstTimestamp FROM files WHERE kind = 'commitlog' ORDER BY start
transactions: one row a transaction whose half message is still there; state is pending, committed, rolledback, or
  discarded (given up after too many checks).  Offsets are queue offsets of the first half message and of the message
  that was committed.
    SELECT topic, transactionId, preparedTimestamp FROM transactions WHERE state = 'pending'
delayed: one row a message that waits; kind is level (SCHEDULE_TOPIC_XXXX past config/delayOffset.json) or timer (5.x,
  those of which config/timercheck does not say that they were delivered).  topic and queueId are where it goes.
    SELECT topic, count(*), min(deliverAt) FROM delayed GROUP BY topic
entries: one row an entry of a DLedger node's log, whoever wrote it, in the log's order; the path may be the node's own
  directory.  `position` is its first byte in the log; isCommitted, whether its group is known to have agreed on it.
  `body` comes only when it is named in `columns`: all bodies together have to fit into memory.  corruptReason says what
  is wrong with an entry; bytes between entries that are none are a row of their position and size alone.
    SELECT term, min(`index`), max(`index`) FROM entries GROUP BY term
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.core.arguments import text
from rmqstore.directory import config_files
from rmqstore.directory.ledger.walk import WRONG_BODY, EntryStretch, walk_entries
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import holds_message
from rmqstore.errors import DataLost, Rejected, UnknownColumn
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.formats.names import QueueKey, is_system_topic, lite_parent
from rmqstore.records.gather import INSTANT, MILLIS_MAX, binary_array
from rmqstore.snapshot.columns import column_names, near_names
from rmqstore.snapshot.lookup.by_time import QueueTimes
from rmqstore.snapshot.lookup.end_times import queue_span_times
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent
from rmqstore.snapshot.survey.survey import changing
from rmqstore.snapshot.tables.delayed_rows import delayed_rows
from rmqstore.snapshot.tables.file_rows import file_rows
from rmqstore.snapshot.tables.transaction_rows import transaction_rows

# --- The entries of a DLedger node's log, whoever wrote them and whatever they hold.

_COLUMNS = {"index": "index", "term": "term", "position": "offset", "size": "size"}
_SCHEMA = pa.schema(
    [("index", pa.int64()), ("term", pa.int64()), ("position", pa.int64()), ("size", pa.int64()),
     ("isCommitted", pa.bool_()), ("body", pa.binary()), ("corruptReason", pa.string())]
)  # fmt: skip


def entry_rows(store: StoreExtent, wanted: frozenset[str]) -> dict[str, Any]:
    """The columns of the table `entries`, those of entries that are not agreed on yet included; a log that is
    no DLedger node's has none.  A place without an entry in front of others is a row of its position and size alone,
    with its `corruptReason`.  Raises DataLost.
    """
    files = [file for file in store.log_files if file.is_wrapped]
    end = files[-1].end if files else 0
    agreed_end = store.ledger.agreed_end if store.ledger else 0
    parts = [_SCHEMA.empty_table()]
    index, term = -1, -1
    with LogView(store.disk, store.log_files, 0, end) as log:
        for item in walk_entries(log, files[0].start, end) if files else ():
            if isinstance(item, EntryStretch):
                parts.append(_of_stretch(item, index, term, agreed_end, with_bodies="body" in wanted))
                index, term = int(item.heads["index"][-1]), int(item.heads["term"][-1])
            elif item.resume is not None:
                parts.append(_of_break(item.offset, item.resume, item.reason))
    whole = pa.concat_tables(parts)
    return {name: whole[name] for name in whole.column_names}


def _of_stretch(item: EntryStretch, index: int, term: int, agreed_end: int, *, with_bodies: bool) -> pa.Table:
    """The rows of entries; in front of them is entry `index` of `term`."""
    reasons = np.full(len(item.heads), None, object)
    reasons[item.out_of_order(index, term)] = "the entry does not follow the one before"
    reasons[item.wrong_bodies()] = WRONG_BODY
    columns: dict[str, Any] = {name: item.heads[field].astype(np.int64) for name, field in _COLUMNS.items()}
    columns["isCommitted"] = item.offsets < agreed_end
    sizes = item.heads["body_size"].astype(np.int64)
    columns["body"] = (
        binary_array(item.page, item.starts + ENTRY_HEAD.size, sizes) if with_bodies else [None] * len(sizes)
    )
    columns["corruptReason"] = reasons
    return pa.table({name: pa.array(columns[name], _SCHEMA.field(name).type) for name in _SCHEMA.names})


def _of_break(offset: int, resume: int, reason: str) -> pa.Table:
    row = dict.fromkeys(_SCHEMA.names) | {"position": offset, "size": resume - offset, "corruptReason": reason}
    return pa.Table.from_pylist([row], _SCHEMA)


# ---

Columns = dict[str, Any]

_TEXT, _I32, _I64, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_ENTRIES_AT_ONCE = 256 * 1024

SCHEMAS: dict[str, pa.Schema] = {
    "queues": pa.schema(
        [("topic", _TEXT), ("brokerName", _TEXT), ("queueId", _I32), ("queueType", _TEXT), ("minOffset", _I64),
         ("maxOffset", _I64), ("messages", _I64), ("oldestTimestamp", INSTANT), ("newestTimestamp", INSTANT),
         ("bytes", _I64), ("parentTopic", _TEXT)]
    ),
    "topics": pa.schema(
        [("topic", _TEXT), ("brokerName", _TEXT), ("perm", _I32), ("readQueueNums", _I32), ("writeQueueNums", _I32),
         ("order", _FLAG), ("attributes", pa.map_(_TEXT, _TEXT)), ("messages", _I64), ("isSystem", _FLAG)]
    ),
    "groups": pa.schema(
        [("group", _TEXT), ("topic", _TEXT), ("brokerName", _TEXT), ("queueId", _I32), ("committedOffset", _I64),
         ("maxOffset", _I64), ("lag", _I64), ("lagMs", _I64), ("deletedUnread", _I64), ("beyondEnd", _I64)]
    ),
    "files": pa.schema(
        [("kind", _TEXT), ("brokerName", _TEXT), ("path", _TEXT), ("start", _I64), ("size", _I64), ("used", _I64),
         ("allocated", _I64), ("firstTimestamp", INSTANT), ("lastTimestamp", INSTANT)]
    ),
    "transactions": pa.schema(
        [("topic", _TEXT), ("brokerName", _TEXT), ("queueId", _I32), ("transactionId", _TEXT),
         ("producerGroup", _TEXT), ("state", _TEXT), ("halfOffset", _I64), ("commitOffset", _I64),
         ("checkTimes", _I32), ("preparedTimestamp", INSTANT), ("decidedTimestamp", INSTANT)]
    ),
    "delayed": pa.schema(
        [("kind", _TEXT), ("level", _I32), ("topic", _TEXT), ("brokerName", _TEXT), ("queueId", _I32),
         ("msgId", _TEXT), ("storeTimestamp", INSTANT), ("deliverAt", INSTANT), ("isDue", _FLAG),
         ("physicalOffset", _I64)]
    ),
    "entries": pa.schema(
        [("brokerName", _TEXT), ("index", _I64), ("term", _I64), ("position", _I64), ("size", _I64),
         ("isCommitted", _FLAG), ("body", pa.binary()), ("corruptReason", _TEXT)]
    ),
}  # fmt: skip
# What is dear comes only by name.
_BY_NAME_ONLY = {"queues": frozenset(("bytes",)), "entries": frozenset(("body",))}


def table_schema(name: str, columns: Sequence[str] | str | None = None) -> pa.Schema:
    """The schema of a table, of some columns where they are named: a list, a text with commas, or "*" for all.

    Raises Rejected for an unknown table or doubled columns, UnknownColumn.
    """
    name = text("table", name, f"one of {', '.join(SCHEMAS)}")
    if name not in SCHEMAS:
        near = near_names(name, SCHEMAS)
        hint = f"did you mean {', '.join(near)}?" if near else f"one of {', '.join(SCHEMAS)}"
        raise Rejected(f"table={name!r}: {hint}")
    schema = SCHEMAS[name]
    if columns is None:
        dear = _BY_NAME_ONLY.get(name, frozenset())
        return pa.schema([field for field in schema if field.name not in dear])
    named = column_names(columns, schema.names)
    for column in named:
        if column not in schema.names:
            raise UnknownColumn(column, near_names(column, schema.names))
    if not named or len(set(named)) != len(named):
        raise Rejected(f"columns: {', '.join(named) or 'none'}: name each column once, at least one")
    return pa.schema([schema.field(column) for column in named])


def by_topic(queues: pa.Table) -> pa.Table:
    """The table of queues, a row a topic and broker, the largest first: see `SnapshotReader.overview`."""
    wanted = {"queues": ("queueId", "count"), "messages": ("messages", "sum"),
              "oldestTimestamp": ("oldestTimestamp", "min"), "newestTimestamp": ("newestTimestamp", "max")}  # fmt: skip
    found = queues.group_by(["topic", "brokerName"]).aggregate([*wanted.values()])
    columns = {name: found[name] for name in ("topic", "brokerName")}
    columns |= {name: found["_".join(source)] for name, source in wanted.items()}
    order = [("messages", "descending"), ("topic", "ascending"), ("brokerName", "ascending")]
    return pa.table(columns).sort_by(order)


def make_table(
    stores: Sequence[StoreExtent], name: str, columns: Sequence[str] | str | None, access: Access, now_ms: int
) -> pa.Table:
    """The table `name` of all stores, with the columns of `table_schema`.  `now_ms` is when a delayed message is due.

    Damaged records are passed over.  Raises as `table_schema`, StoreChanging if a file vanishes meanwhile.
    """
    schema = table_schema(name, columns)
    wanted = frozenset(schema.names)
    parts = []
    for store in stores:
        try:
            made = _MAKERS[name](store, access, now_ms, wanted)
        except (DataLost, FileNotFoundError) as gone:
            raise changing(store.path, gone) from None
        count = len(next(iter(made.values())))
        made["brokerName"] = [store.broker_name] * count
        parts.append(pa.table([_column(made[field.name], field.type) for field in schema], schema=schema))
    return pa.concat_tables(parts)


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    """Values as an Arrow column; times come in ms, or as Arrow's instants of any unit."""
    is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
    if kind == INSTANT and not (is_arrow and values.type == INSTANT):
        return _instants(values if is_arrow else pa.array(values, pa.int64()))
    return values.cast(kind) if is_arrow else pa.array(values, kind)


def _instants(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Times in ms as instants; null for none, and where the microseconds do not fit 64 bits."""
    millis = times.cast(pa.int64())
    fits = pc.and_(pc.less_equal(millis, MILLIS_MAX), pc.greater_equal(millis, -MILLIS_MAX))
    return pc.multiply(pc.if_else(fits, millis, pa.scalar(None, pa.int64())), 1000).cast(INSTANT)


def _queues(store: StoreExtent, _: str, __: int, wanted: frozenset[str]) -> Columns:
    queues = list(store.queues.values())
    times = queue_span_times(store) if wanted & {"oldestTimestamp", "newestTimestamp"} else {}
    spans = [times.get(queue.key, (None, None)) for queue in queues]
    return {
        "topic": [queue.files.topic for queue in queues],
        "queueId": [queue.files.queue_id for queue in queues],
        "queueType": [queue.files.kind for queue in queues],
        "minOffset": [queue.min_offset for queue in queues],
        "maxOffset": [queue.max_offset for queue in queues],
        "messages": [queue.max_offset - queue.min_offset for queue in queues],
        "oldestTimestamp": [oldest for oldest, _ in spans],
        "newestTimestamp": [newest for _, newest in spans],
        "bytes": [_record_bytes(queue) for queue in queues] if "bytes" in wanted else [None] * len(queues),
        "parentTopic": [lite_parent(queue.files.topic) for queue in queues],
    }


def _record_bytes(queue: QueueExtent) -> int:
    """Bytes of a queue's records by all of its entries; those without an entry were counted when the store was
    opened.
    """
    total = queue.gap_bytes
    for low in range(queue.entry_start, queue.entry_end, _ENTRIES_AT_ONCE):
        entries = queue.files.read(low, min(low + _ENTRIES_AT_ONCE, queue.entry_end))
        total += int(entries["size"].astype(np.int64)[holds_message(queue.files.kind, entries)].sum())
    return total


def _topics(store: StoreExtent, _: str, __: int, ___: frozenset[str]) -> Columns:
    configs = config_files.topics(store.disk, store.path)
    messages = dict.fromkeys(configs, 0)
    for queue in store.queues.values():
        messages[queue.files.topic] = messages.get(queue.files.topic, 0) + queue.max_offset - queue.min_offset
    names = sorted(messages)
    known = [configs.get(name) for name in names]
    return {
        "topic": names,
        "perm": [config and config.perm for config in known],
        "readQueueNums": [config and config.read_queue_nums for config in known],
        "writeQueueNums": [config and config.write_queue_nums for config in known],
        "order": [config and config.order for config in known],
        "attributes": [config and list(config.attributes.items()) for config in known],
        "messages": [messages[name] for name in names],
        "isSystem": [is_system_topic(name) for name in names],
    }


def _groups(store: StoreExtent, access: Access, _: int, wanted: frozenset[str]) -> Columns:
    offsets = config_files.consumer_offsets(store.disk, store.path)
    rows = [
        (group, topic, queue_id, offset)
        for (group, topic), committed in sorted(offsets.items())
        for queue_id, offset in sorted(committed.items())
    ]
    queues = [store.queues.get((topic, queue_id)) for _, topic, queue_id, _ in rows]
    places = [(queue, row[3]) for queue, row in zip(queues, rows, strict=True)]
    waiting = [(queue, offset if queue is None else max(offset, queue.min_offset)) for queue, offset in places]
    return {
        "group": [row[0] for row in rows],
        "topic": [row[1] for row in rows],
        "queueId": [row[2] for row in rows],
        "committedOffset": [row[3] for row in rows],
        "maxOffset": [queue and queue.max_offset for queue in queues],
        "lag": [None if queue is None else max(queue.max_offset - offset, 0) for queue, offset in waiting],
        "lagMs": _lags_ms(store, access, waiting) if "lagMs" in wanted else [None] * len(rows),
        "deletedUnread": [
            None if queue is None else max(queue.min_offset - max(offset, 0), 0) for queue, offset in places
        ],
        "beyondEnd": [None if queue is None else max(offset - queue.max_offset, 0) for queue, offset in places],
    }


def _lags_ms(store: StoreExtent, access: Access, places: Sequence[tuple[QueueExtent | None, int]]) -> list[int | None]:
    """From the store time of the message at each queue offset to that of the newest in its queue; 0 where none waits,
    None where either cannot be read.
    """
    known: dict[tuple[QueueKey, int], int | None] = {}
    lags: list[int | None] = []
    with store.view(access) as view:
        for queue, offset in places:
            if queue is None or offset >= queue.max_offset:
                lags.append(None if queue is None else 0)
                continue
            times = QueueTimes(store, queue, view)
            ends = []
            for place in (max(offset, queue.min_offset), queue.max_offset - 1):
                if (queue.key, place) not in known:
                    known[queue.key, place] = times.at(place)
                ends.append(known[queue.key, place])
            next_ms, newest_ms = ends
            lags.append(None if next_ms is None or newest_ms is None else max(newest_ms - next_ms, 0))
    return lags


_MAKERS: dict[str, Callable[[StoreExtent, Access, int, frozenset[str]], Columns]] = {
    "queues": _queues,
    "topics": _topics,
    "groups": _groups,
    "files": lambda store, access, _, wanted: file_rows(store, access, wanted),
    "transactions": lambda store, access, _, __: transaction_rows(store, access),
    "delayed": lambda store, access, now_ms, _: delayed_rows(store, access, now_ms),
    "entries": lambda store, _, __, wanted: entry_rows(store, wanted),
}
