"""`df.write.format("rmqstore")` and `df.writeStream`: tasks stage their rows, the driver commits them exactly once.

A stream's batch is known by the query's id and its number, which Spark keeps in the checkpoint; a task reads both from
its local properties, since Spark makes a new writer for every batch, and another one for its commit.  A batch write is
known by a name of its own, or by the one that the user gives it (options writerId, batchId), for use in foreachBatch.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqstore.errors import Rejected
from rmqstore.sink import Batch, StagedPart, append_once, discard, last_batch, overwrite_once, require_free, stage_part
from spark_source.columns.sink_columns import SinkColumns, sink_columns
from spark_source.options.writes import SinkRequest
from spark_source.worker_errors import errors_in_one_line

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
            raise Rejected(f"batch {batch_id} came with parts of {len(parts)} of {len(messages)} tasks: run it again")
        writer_ids = {message.writer_id for message in parts}
        staged = sorted((message.part for message in parts), key=lambda part: part.partition)
        if len(writer_ids) > 1 or len({part.partition for part in staged}) < len(staged):
            raise Rejected(f"batch {batch_id} came with the same part twice, or with parts of another: run it again")
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
            raise Rejected("Spark does not tell which query and batch this task belongs to: use df.write")
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
