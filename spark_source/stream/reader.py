"""`spark.readStream.format("rmqstore")`: offsets out of looks at the store, partitions between two of them.

Spark keeps one reader in a process of its own on the driver, which answers everything but `read`; `read` runs on the
executors, in copies that were made when the query started.  So partitions carry all that a task has to know.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rmqstore.errors import DataLost, Rejected, StoreError
from rmqstore.snapshot import StoresIn
from rmqstore.snapshot.stream.batches import NextBatch, Refusals, Skipped, ranges_to_read
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.stream.lag import lag_behind
from rmqstore.snapshot.stream.offsets import FROM, INITIAL, METRICS, Offsets, begins_of, offset_json, offsets_in
from rmqstore.snapshot.stream.planner import StreamPlanner
from rmqstore.snapshot.stream.subscription import StreamSelection
from spark_source.batch_reader import BatchReader
from spark_source.columns.schema import BatchShape
from spark_source.options.reads import StreamRead
from spark_source.options.values import directories_of
from spark_source.partitions import StorePartition
from spark_source.worker_errors import errors_in_one_line

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

    from rmqstore.snapshot.reader import SnapshotReader
    from spark_source.stream.progress_file import ProgressFile
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.0 and 4.1: no limits, and AvailableNow by the engine's own means

        class SupportsTriggerAvailableNow:
            """Stands for the class of later versions."""


HAS_LIMITS = SupportsTriggerAvailableNow.__module__ != __name__
_SELECTED = ("topics", "pattern", "assign")
_STARTED = ("start", "start_time", "missing_time", "fail_on_data_loss")

log = logging.getLogger("rmqstore.stream")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream.  Nothing is asked of the store before the first question."""

    def __init__(self, stream_read: StreamRead, shape: BatchShape, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises Rejected for limits that this version of Spark cannot keep, and for an unusable progress file."""
        rows, limits = stream_read.rows, stream_read.limits
        if limits.is_any and not HAS_LIMITS:
            raise Rejected(
                "maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger need Spark 4.2 or later: in this "
                "version a limited Trigger.AvailableNow would end before it has read everything; leave these options "
                "out"
            )
        self._rows = rows
        self._limits = limits
        self._selection = StreamSelection(
            **{name: rows.selection.get(name) for name in _SELECTED},
            include_system_topics=bool(rows.selection.get("include_system_topics", False)),
        )
        fails = rows.request.fail_on_data_loss
        self._planner = StreamPlanner(
            StreamEnds(rows.stores, rows.request.access), self._selection, limits,
            refuses=Refusals(deleted=fails, other_logs=fails), clock=clock,
        )  # fmt: skip
        self._ends = self._planner.ends
        self._tasks = BatchReader(rows, shape)
        self._progress = _progress_file(stream_read)
        self._exported: Offsets | None = None
        self._initial: Offsets | None = None
        self._reached: Offsets | None = None
        self._furthest_begun: Offsets = {}  # used before Spark 4.2
        self._skipped = Skipped()
        self._told: set[tuple[str, str]] = set()
        self._reported: tuple[SnapshotReader, Offsets | None, dict[str, Any]] | None = None

    @errors_in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names, here and below)
        """Where the stream starts if no checkpoint tells; the same answer however often it is asked.

        Raises UnknownTopic, Rejected, DataLost and what opening the stores raises.
        """
        shaped = offset_json(self._started())
        return shaped if HAS_LIMITS else {INITIAL: True, **shaped}

    def _started(self) -> Offsets:
        if self._initial is None:
            look, rows, selection = self._ends.look(), self._rows, self._selection
            missing = selection.not_there(look.stores)
            for topic in missing:
                log.warning("the stream waits for a topic, and reads it from its beginning once it comes: %s", topic)
            if missing:
                gone = {each.topic for each in missing}
                there = tuple(topic for topic in selection.topics or () if topic not in gone)
                selection = replace(selection, topics=there)
                rows = replace(rows, selection=rows.selection | {"topics": there})
            wanted = {name: rows.selection[name] for name in _STARTED if name in rows.selection}
            self._initial = selection.start(look, **wanted)
        return self._initial

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        """The limit that Spark hands back to `latestOffset`: anything but "all" means the limits of the options."""
        from pyspark.sql.streaming import datasource as spark  # noqa: PLC0415 (not there before 4.2)

        if self._limits.rows_max is not None:
            return spark.ReadMaxRows(self._limits.rows_max)
        if self._limits.bytes_max is not None:
            return spark.ReadMaxBytes(self._limits.bytes_max)
        return spark.ReadMinRows(self._limits.rows_min) if self._limits.rows_min else spark.ReadAllAvailable()

    @errors_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Freezes the ends, and which queues there are, as they are now."""
        self._planner.freeze_ends()

    @errors_in_one_line()
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, Any]:
        """The end of the next batch; `start` itself while there is nothing to read.

        A queue that is found shorter has to be written down, so Spark then gets a batch, with rows or without.
        Spark before 4.2 gives no arguments.  Raises DataLost for messages that are gone, unless the stream goes on, and
        Rejected where no store is of a broker that the stream knows.
        """
        if start is None:
            return self._latest_of_all()
        before = offsets_in(start)
        self._export(before)
        is_limited = self._limits.is_any and type(limit).__name__ != "ReadAllAvailable"
        step = self._planner.step(start, is_limited=is_limited)
        self._tell_passed_over()
        self._reached = step.batch.ends
        if not step.is_any:
            return start
        step.tell(log)
        # Spark writes down no initial offset of a Python source: a batch 0 that is run again would begin elsewhere.
        end = self._planner.end_of(step, self._initial if before == self._initial else None)
        if not self._planner.refuses.deleted:
            self._note_skipped(start, end, step.batch)
        return end

    def _note_skipped(self, start: dict[str, Any], end: dict[str, Any], batch: NextBatch) -> None:
        """Counts what a batch leaves out before Spark asks for its report, which comes before its partitions.  These
        count the rest, where a file goes meanwhile."""
        begun, ends = self._parts(start, end)
        with suppress(DataLost, FileNotFoundError):
            _, lost = ranges_to_read(batch.queues, begun, ends, refuses=self._planner.refuses)
            self._skipped.note(lost, log, standing=offsets_in(start), begun=begun)

    def _latest_of_all(self) -> dict[str, Any]:
        """The end of all that there is.

        Spark before 4.2 asks for it first, and does not say where a restarted query stands, or that it is one.  So the
        start of a new query goes in as a note: a batch that is planned stays as planned, however often it is tried.
        """
        if self._reached is not None:
            reached = self._reached
            batch = self._all_after(reached)
            self._reached = batch.ends
            return offset_json(batch.ends, {FROM: batch.begun})
        try:
            note = {INITIAL: offset_json(self._started())}
        except StoreError:  # a restarted query needs no such place, and a new one is asked for it next
            note = {}
        batch = self._all_after({})
        self._reached = batch.ends
        return note | offset_json(batch.ends)

    def _all_after(self, before: Offsets) -> NextBatch:
        return self._planner.looked(lambda snapshot: self._planner.next_batch(snapshot, before, is_limited=False))

    @errors_in_one_line()
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the store, with `$metrics`: the lag of the stream, and how much it had to leave out."""
        snapshot = self._ends.look()
        if self._reported is None or self._reported[0] is not snapshot or self._reported[1] != self._reached:
            queues = self._planner.queues(snapshot)
            lag = lag_behind(queues, self._reached or {})
            report = offset_json({place: queue.max_offset for place, (_, queue) in queues.items()})
            lags = {"lagMessages": lag.messages, "lagBytes": lag.size, "lagMs": lag.ms}
            self._reported = snapshot, self._reached, report | {METRICS: lags}
        report = self._reported[2]
        metrics = report[METRICS]
        metrics["skippedMessages"] = self._skipped.total
        for name, noted in (("notWholeAt", self._ends.unsettled), ("notRead", self._ends.passed_over)):
            metrics.pop(name, None)
            metrics |= {name: dict(noted)} if noted else {}
        return report

    @errors_in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits between two offsets, the same rows whenever it is asked.

        Raises DataLost for messages that are gone, unless the stream goes on, Rejected as `latestOffset`, and Corrupt
        as `Snapshot.plan`.
        """
        if start == end:
            return []
        begun, ends = self._parts(start, end)
        splits, lost = self._planner.splits(start, begun, ends, self._rows.request, self._rows.budget)
        self._skipped.note(lost, log, standing=offsets_in(start), begun=begun)
        return [StorePartition(split) for split in splits]

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> tuple[Offsets, Offsets]:
        """Where the queues of a batch begin and end, of those that the stream reads."""
        begun = self._forward_only(begins_of(start, end, is_first=self._is_first(start)))
        return self._planner.covered(begun), self._planner.covered(offsets_in(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition.  Raises StoreError."""
        return self._tasks.read(partition)

    @errors_in_one_line()
    def commit(self, end: dict[str, Any]) -> None:
        """Notes that a batch is finished; Spark says so one batch later, and never of the last one."""
        self._export(offsets_in(end))

    def _is_first(self, start: dict[str, Any]) -> bool:
        """Whether a batch that begins there is the query's first: Spark asks for the initial offset while nothing is
        committed, and before 4.2 this reader itself does at other times."""
        return offsets_in(start) == self._initial if HAS_LIMITS else start.get(INITIAL) is True

    def _forward_only(self, begun: Offsets) -> Offsets:
        """`begun`, or where batches before began that lies further on.

        Before 4.2 the end that a restarted query asks for first may lie before its start, in a store that was cut or
        that is just being written: the batch after that end begins where the stream had been.
        """
        if HAS_LIMITS:
            return begun
        known = self._furthest_begun
        known |= {place: max(low, known.get(place, 0)) for place, low in begun.items()}
        return dict(known)

    def _tell_passed_over(self) -> None:
        for path, reason in self._ends.passed_over.items() - self._told:
            log.warning("%s is not read: %s", path, reason)
            self._told.add((path, reason))

    def _export(self, done: Offsets) -> None:
        if self._progress is None or done == self._exported:
            return
        progress: dict[str, dict[str, dict[int, int]]] = {}
        for (broker, topic, queue_id), offset in done.items():
            progress.setdefault(broker, {}).setdefault(topic, {})[queue_id] = offset
        stores = self._ends.look().stores
        # Where stores come and go, a file keeps its name.
        is_one = not isinstance(self._rows.stores, StoresIn) and len(stores) == 1
        self._progress.write(progress, only_broker=stores[0].broker_name if is_one else None)
        self._exported = done


def _progress_file(stream_read: StreamRead) -> "ProgressFile | None":
    if stream_read.progress_file is None:
        return None
    from spark_source.stream.progress_file import ProgressFile  # noqa: PLC0415  few streams have one

    return ProgressFile(stream_read.progress_file, stream_read.progress_group, directories_of(stream_read.rows.stores))
