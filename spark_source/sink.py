"""`df.write.format("rmqstore")` and `df.writeStream`: tasks stage their rows, the driver commits them exactly once.

A stream's batch is known by the query's id and its number, which Spark keeps in the checkpoint; a task reads both from
its local properties, since Spark makes a new writer for every batch, and another one for its commit.  A batch write is
known by a name of its own, or by the one that the user gives it (options writerId, batchId), for use in foreachBatch.
"""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from rmqstore.errors import Rejected
from rmqstore.formats.names import NOT_SENDABLE_TOPICS
from rmqstore.sink import Batch, StagedPart, append_once, discard, last_batch, overwrite_once, require_free, stage_part
from rmqstore.snapshot.columns import COLUMNS, near_names, property_of
from spark_source.options.table import in_one_line
from spark_source.options.writes import SinkRequest
from spark_source.worker_errors import errors_in_one_line

# --- The columns of a DataFrame that is written: which ones there may be, their types, and the types that the store
# gets.

# --- Columns `property.NAME` of a DataFrame that is written: they become properties of each row.

PROPERTIES = "properties"
_PAIR = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
_LISTS = pa.list_(_PAIR)


def with_properties(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns with those of single properties merged into `properties`; a null is no property.

    Where the map has the name, too, the column goes before it.
    """
    named = {name: column for column in columns if (name := property_of(column)) is not None}
    if not named:
        return dict(columns)
    single = {name: columns[column].cast(pa.string()) for name, column in named.items()}
    kept = {column: array for column, array in columns.items() if column not in named.values()}
    return kept | {PROPERTIES: _merged(kept.get(PROPERTIES), single)}


def _merged(maps: pa.Array | None, single: Mapping[str, pa.Array]) -> pa.Array:
    """map<string, string>[n]."""
    (count,) = {len(column) for column in single.values()}
    rows, keys, values = [], [], []
    if maps is not None:
        lists = maps.cast(_LISTS)
        pairs, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
        titles, texts = (pc.struct_field(pairs, [place]) for place in range(2))
        mask = _replaced(titles, owners, single)
        rows, keys, values = [owners.filter(mask)], [titles.filter(mask)], [texts.filter(mask)]
    for name, column in single.items():
        there = column.is_valid()
        rows.append(pa.array(np.arange(count)).filter(there))
        values.append(column.filter(there))
        keys.append(pa.repeat(pa.scalar(name, pa.string()), len(values[-1])))
    owner = pa.concat_arrays([row.cast(pa.int64()) for row in rows]).to_numpy()
    order = pa.array(np.argsort(owner, kind="stable"))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=count)))).astype(np.int32)
    both = [pa.concat_arrays([part.cast(pa.string()) for part in parts]).take(order) for parts in (keys, values)]
    return pa.MapArray.from_arrays(pa.array(offsets), *both)


def _replaced(titles: pa.Array, owners: pa.Array, single: Mapping[str, pa.Array]) -> pa.Array:
    """bool, the pairs of the maps that no column goes before."""
    kept = pa.array(np.ones(len(titles), bool))
    for name, column in single.items():
        hidden = pc.and_(pc.equal(titles, name), column.is_valid().take(owners))
        kept = pc.and_(kept, pc.invert(pc.fill_null(hidden, False)))
    return kept


# ---

_INTEGERS: tuple[type[DataType], ...] = (IntegerType, ShortType, ByteType, LongType)


def _is_texts(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)


def _is_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


# Column -> the types that it may have, in words; a map and a list are looked into.
_WORDS = {
    "topic": "string",
    "body": "binary or string",
    "tags": "string",
    "keys": "string or array<string>",
    "properties": "map<string,string>",
    "queueId": "int",
    "flag": "int",
    "bornTimestamp": "timestamp, or long (milliseconds)",
    "delayLevel": "int",
}
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "body": (BinaryType, StringType),
    "tags": (StringType,),
    "keys": (StringType,),
    "properties": (),
    "queueId": _INTEGERS,
    "flag": _INTEGERS,
    "bornTimestamp": (TimestampType, LongType),
    "delayLevel": _INTEGERS,
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Checked columns; `topic` is that of all rows, which goes before a column of that name."""

    topic: str | None

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as the store takes it: with a topic, and with defaults where it says nothing.  Raises Rejected."""
        columns = with_properties(dict(zip(batch.schema.names, batch.columns, strict=True)))
        if self.topic is not None:
            columns["topic"] = pa.DictionaryArray.from_arrays(_zeros(batch.num_rows), [self.topic])
        _require_sendable(columns["topic"])
        for name, default in (("flag", 0), ("bornTimestamp", None)):
            column = columns.get(name)
            if column is not None and column.null_count:
                columns[name] = _millis(column) if default is None else column.fill_null(default)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _require_sendable(topics: pa.Array) -> None:
    """As brokers refuse them: the store reads other things out of the messages of these topics.  Raises Rejected."""
    for topic in pc.unique(topics).to_pylist():
        if topic in NOT_SENDABLE_TOPICS:
            raise Rejected(_not_sendable(topic))


def _not_sendable(topic: str) -> str:
    return f"the topic {topic} is RocketMQ's own, and brokers take no messages for it: name another"


def _zeros(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])


def _millis(column: pa.Array) -> pa.Array:
    """A time in milliseconds, now where there is none."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return pc.fill_null(column, time.time_ns() // 1_000_000)


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """The columns of a DataFrame with this schema.  Raises Rejected for all that is wrong, in one line."""
    names = [field.name for field in schema.fields]
    mistakes = [_unknown(name) for name in names if name not in _TYPES and property_of(name) is None]
    doubled = {name: names.count(name) for name in names if names.count(name) > 1}
    mistakes += [f"there are {count} columns {name}" for name, count in doubled.items()]
    if "topic" not in names and topic is None:
        mistakes.append("no topic: give the option topic, or a column of that name")
    if topic in NOT_SENDABLE_TOPICS:
        mistakes.append(_not_sendable(topic))
    if "body" not in names:
        mistakes.append("no column body: name one, such as select(to_json(struct('*')).alias('body'))")
    for field in schema.fields:
        if not _may_be(field.name, field.dataType):
            words = _WORDS.get(field.name, "string")
            mistakes.append(f"column {field.name} is {field.dataType.simpleString()}: cast it to {words}")
    if mistakes:
        raise Rejected(in_one_line(mistakes))
    return SinkColumns(topic)


def _may_be(name: str, kind: DataType) -> bool:
    if (name == "keys" and _is_texts(kind)) or (name == "properties" and _is_map(kind)):
        return True
    if name in _TYPES:
        return isinstance(kind, _TYPES[name])
    return property_of(name) is None or isinstance(kind, StringType)


def _unknown(name: str) -> str:
    if name in COLUMNS:
        return f"the store sets column {name}: drop it"
    near = ", ".join(near_names(name, _TYPES))
    hint = (
        f"did you mean {near}?"
        if near
        else f"name it property.{name}, or put it into body; the columns are {', '.join(_TYPES)}"
    )
    return f"no message has a column {name}: {hint}"


# ---

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Spark's batches have 10,000 rows: encoded by themselves they cost 0.7 µs a row of 100 bytes, 50,000 of them 0.5; from
# 100,000 on the caches are too small.
_ROWS_MIN = 50_000
_SIZE_MIN = 16 * 1024 * 1024

log = logging.getLogger("rmqstore.sink")


@dataclass(frozen=True)
class PartMessage(WriterCommitMessage):
    """A task's word to the driver: the part that it staged, and for which batch."""

    writer_id: str
    batch_id: int
    part: StagedPart


class StoreSink:
    """One write to a store, for Spark's writers of batches and of streams."""

    def __init__(self, request: SinkRequest, columns: SinkColumns, overwrite: bool) -> None:
        self._request = request
        self._columns = columns
        self._overwrite = overwrite

    @errors_in_one_line()
    def stage(self, writer_id: str, batch_id: int, batches: Iterator[pa.RecordBatch]) -> PartMessage:
        """Makes the rows of one task ready.  Raises Rejected, OSError; nothing of them is left then."""
        request, task = self._request, TaskContext.get()
        # Not Spark's number of the attempt: a driver that starts again counts from 0.
        attempt = uuid.uuid4().int >> 66
        partition = task.partitionId() if task is not None else 0
        staging = stage_part(
            request.path, (writer_id, batch_id), (partition, attempt), request.config, request.queue_count
        )
        try:
            for batch in _joined(batches):
                staging.add(self._columns.fit(batch))
            return PartMessage(writer_id, batch_id, staging.finish())
        except BaseException:
            staging.discard()
            raise

    @errors_in_one_line()
    def commit(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int, *, is_lasting: bool, is_stream: bool
    ) -> None:
        """Adds what the tasks staged.  Raises as rmqstore.sink.append_once."""
        parts = _parts_of(messages)
        if not parts:
            return
        if len(parts) < len(messages) or {message.batch_id for message in parts} != {batch_id}:
            raise Rejected(f"batch {batch_id} has parts of only {len(parts)} of {len(messages)} tasks: run it again")
        writer_ids = {message.writer_id for message in parts}
        staged = sorted((message.part for message in parts), key=lambda part: part.partition)
        if len(writer_ids) > 1 or len({part.partition for part in staged}) < len(staged):
            raise Rejected(f"batch {batch_id} has the same part twice, or a part of another batch: run it again")
        batch = Batch(writer_ids.pop(), batch_id, tuple(staged), is_lasting)
        add = overwrite_once if self._overwrite else append_once
        if not add(self._request.path, batch, self._request.config):
            self._tell_passed_over(batch, is_stream)

    def _tell_passed_over(self, batch: Batch, is_stream: bool) -> None:
        """Logs that the store holds the batch, or a later one: a lower number is most likely another batch.

        A stream brings its last batch again whenever it starts; a program that writes one may not know.
        """
        last = last_batch(self._request.path, batch.writer_id)
        if last is None or batch.batch_id == last:
            log.log(
                logging.INFO if is_stream else logging.WARNING,
                "batch %d of writer %s is in %s already: its %d rows are not added again",
                batch.batch_id, batch.writer_id, self._request.path, sum(part.row_count for part in batch.parts),
            )  # fmt: skip
            return
        log.warning(
            "batch %d of writer %s is not added to %s: batch %d is there, and the numbers of a writer rise; its %d "
            "rows count as added before; where they start over, as for a new checkpointLocation, give another writerId",
            batch.batch_id, batch.writer_id, self._request.path, last, sum(part.row_count for part in batch.parts),
        )  # fmt: skip

    @errors_in_one_line()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Removes what the tasks staged, as far as Spark knows of it; the next commit sweeps the rest."""
        for message in _parts_of(messages):
            discard(self._request.path, (message.writer_id, message.batch_id), [message.part])


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches large enough to be worth a call each."""
    held: list[pa.RecordBatch] = []
    row_count = size = 0
    for batch in batches:
        held.append(batch)
        row_count, size = row_count + batch.num_rows, size + batch.nbytes
        if row_count >= _ROWS_MIN or size >= _SIZE_MIN:
            yield from _one_batch(held)
            held, row_count, size = [], 0, 0
    if held:
        yield from _one_batch(held)


def _one_batch(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """All rows in one batch; in several only where Arrow cannot hold so many bytes in one column."""
    return batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[PartMessage]:
    """The messages of tasks that came to their end; Spark has None for the others."""
    return [message for message in messages if isinstance(message, PartMessage)]


class BatchSink(DataSourceArrowWriter):
    """One `df.write…save()`: the same object in all tasks and at the commit."""

    def __init__(self, sink: StoreSink, writer_id: str | None, batch_id: int) -> None:
        self._sink = sink
        self._is_lasting = writer_id is not None
        self._writer_id = writer_id or f"job-{uuid.uuid4()}"
        self._batch_id = batch_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages the rows of a task."""
        return self._sink.stage(self._writer_id, self._batch_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Adds all rows to the store."""
        self._sink.commit(messages, self._batch_id, is_lasting=self._is_lasting, is_stream=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Removes what was staged."""
        self._sink.abort(messages)


# Spark 4.0 gives Arrow batches to a stream's writer that is a batch's Arrow writer as well.
_StreamWriters = (
    (datasource.DataSourceStreamArrowWriter,)
    if hasattr(datasource, "DataSourceStreamArrowWriter")
    else (DataSourceArrowWriter, DataSourceStreamWriter)
)


class StreamSink(*_StreamWriters):  # type: ignore[misc]
    """One micro-batch of a `df.writeStream`; Spark makes another object for its commit."""

    def __init__(self, sink: StoreSink) -> None:
        self._sink = sink

    @errors_in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages the rows of a task.  Raises Rejected outside of a streaming query."""
        task = TaskContext.get()
        query_id, batch_id = (None, None) if task is None else map(task.getLocalProperty, (_QUERY_ID, _BATCH_ID))
        if query_id is None or batch_id is None:
            raise Rejected("Spark does not say to which query and batch this task belongs: use df.write")
        return self._sink.stage(query_id, int(batch_id), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Adds all rows to the store, unless the batch is in; Spark may call it again for a batch."""
        self._sink.commit(messages, batchId, is_lasting=True, is_stream=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 (Spark's signature)
        """Removes what was staged."""
        self._sink.abort(messages)


def open_sink(request: SinkRequest, schema: StructType, overwrite: bool) -> StoreSink:
    """The sink of a DataFrame with this schema.  Raises Rejected for its columns, and as `rmqstore.sink.require_free`
    for a place that cannot be written to, or not overwritten."""
    columns = sink_columns(schema, request.topic)
    require_free(request.path, request.config, overwrite=overwrite)
    return StoreSink(request, columns, overwrite)
