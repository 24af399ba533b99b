"""`spark.readStream.format("rmqstore")`: offsets out of looks at the store, partitions between two of them.

Spark keeps one reader in a process of its own on the driver, which answers everything but `read`; `read` runs on the
executors, in copies that were made when the query started.  So partitions carry all that a task has to know.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rmqstore.errors import DataLost, Rejected, StoreChanging, StoreError
from rmqstore.progress_file import ProgressFile
from rmqstore.snapshot import Snapshot, StoresIn
from rmqstore.snapshot.stream.ends import StreamEnds, without_missing_files
from rmqstore.snapshot.stream.lag import lag_behind
from rmqstore.snapshot.stream.subscription import StreamSelection
from spark_source.batch_reader import BatchReader
from spark_source.options.reads import StreamRead
from spark_source.options.values import directories_of
from spark_source.partitions import StorePartition
from spark_source.schema import BatchShape
from spark_source.stream.batches import (
    NextBatch,
    Queues,
    Skipped,
    ranges_to_read,
    refuse_begun_again,
    refuse_other_brokers,
)
from spark_source.stream.offsets import (
    FROM,
    INITIAL,
    MARKS,
    METRICS,
    Offsets,
    begins_of,
    note_in,
    offset_json,
    offsets_in,
)
from spark_source.stream.same_logs import marks_after, refuse_other_logs
from spark_source.stream.turned_back import Searches, TurnedBack
from spark_source.worker_errors import errors_in_one_line

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.0 and 4.1: no limits, and AvailableNow by the engine's own means

        class SupportsTriggerAvailableNow:
            """Stands for the class of later versions."""


HAS_LIMITS = SupportsTriggerAvailableNow.__module__ != __name__
# In a store that is being written, a look that failed a moment ago may succeed now.
_LOOKS_MAX = 3
_SELECTED = ("topics", "pattern", "assign")
_STARTED = ("start", "start_time", "missing_time", "fail_on_data_loss")

Answer = TypeVar("Answer")

log = logging.getLogger("rmqstore.stream")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream.  Nothing is asked of the store before the first question."""

    def __init__(self, stream_read: StreamRead, shape: BatchShape, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises Rejected for limits that this version of Spark cannot keep, and for an unusable progress file."""
        rows, limits = stream_read.rows, stream_read.limits
        if limits.is_any and not HAS_LIMITS:
            raise Rejected(
                "maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger need Spark 4.2 or later: here a "
                "limited Trigger.AvailableNow would end with rows left; leave them out"
            )
        self._rows = rows
        self._limits = limits
        self._selection = StreamSelection(
            **{name: rows.selection.get(name) for name in _SELECTED},
            include_system_topics=bool(rows.selection.get("include_system_topics", False)),
        )
        self._ends = StreamEnds(rows.stores, rows.request.access)
        self._tasks = BatchReader(rows, shape)
        self._clock = clock
        self._progress: ProgressFile | None = None
        if stream_read.progress_file is not None:
            directories = directories_of(rows.stores)
            self._progress = ProgressFile(stream_read.progress_file, stream_read.progress_group, directories)
        self._exported: Offsets | None = None
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._reached: Offsets | None = None
        self._furthest_begun: Offsets = {}  # used before Spark 4.2
        self._turn = 0
        self._taken_s: float | None = None
        self._skipped = Skipped()
        self._searches = Searches()
        self._begun_again: Offsets = {}
        self._told: set[tuple[str, str]] = set()
        self._compared: tuple[Snapshot, dict[str, Any]] | None = None
        self._reported: tuple[Snapshot, Offsets | None, dict[str, Any]] | None = None

    @errors_in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's names, here and below)
        """Where the stream starts if no checkpoint tells; the same answer however often it is asked.

        Raises UnknownTopic, Rejected, DataLost and what opening the stores raises.
        """
        shaped = offset_json(self._started())
        return shaped if HAS_LIMITS else {INITIAL: True, **shaped}

    def _started(self) -> Offsets:
        if self._initial is None:
            rows = self._rows.with_group_resolved()
            wanted = {name: rows.selection[name] for name in _STARTED if name in rows.selection}
            self._initial = self._selection.start(self._ends.look(), **wanted)
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
        queues = self._queues(self._ends.look())
        self._target = {place: queue.max_offset for place, (_, queue) in queues.items()}

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
        known = TurnedBack.noted(start).among(self._covered(before))
        self._export(before)
        is_limited = self._limits.is_any and type(limit).__name__ != "ReadAllAvailable"
        now_ms = int(time.time() * 1000)

        def planned(snapshot: Snapshot) -> tuple[NextBatch, TurnedBack]:
            self._refuse_other_logs(snapshot, start)
            return self._batch_after(snapshot, before, known, now_ms, is_limited)

        batch, seen = self._looked(planned)
        self._tell_passed_over()
        self._reached = batch.ends
        if not batch.is_any and seen == known:
            return start
        seen.tell(log, known, batch.queues, before, batch.begun)
        if batch.is_any:
            self._turn += 1
            self._taken_s = self._clock()
        # Spark writes down no initial offset of a Python source: a batch 0 that is run again would begin elsewhere.
        begun = self._initial | batch.begun if before == self._initial else batch.begun
        notes = {FROM: begun, MARKS: marks_after(batch, note_in(start, MARKS))}
        shorter = seen.among(before.keys() - batch.lows.keys())
        return offset_json(batch.ends, notes | shorter.notes)

    def _latest_of_all(self) -> dict[str, Any]:
        """The end of all that there is.

        Spark before 4.2 asks for it first, and does not say where a restarted query stands, or that it is one.  So the
        start of a new query goes in as a note: a batch that is planned stays as planned, however often it is tried.
        """
        if self._reached is not None:
            reached = self._reached
            batch = self._looked(lambda snapshot: self._next_batch(snapshot, reached, is_limited=False))
            self._reached = batch.ends
            return offset_json(batch.ends, {FROM: batch.begun})
        try:
            note = {INITIAL: offset_json(self._started())}
        except StoreError:  # a restarted query needs no such place, and a new one is asked for it next
            note = {}
        batch = self._looked(lambda snapshot: self._next_batch(snapshot, {}, is_limited=False))
        self._reached = batch.ends
        return note | offset_json(batch.ends)

    @errors_in_one_line()
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the store, with `$metrics`: the lag of the stream, and how much it had to leave out."""
        snapshot = self._ends.look()
        if self._reported is None or self._reported[0] is not snapshot or self._reported[1] != self._reached:
            queues = self._queues(snapshot)
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
        begun = self._covered(self._forward_only(begins_of(start, end, is_first=self._is_first(start))))
        ends = self._covered(offsets_in(end))

        def planned(snapshot: Snapshot) -> list[InputPartition]:
            for known in (self._covered(offsets_in(start)), ends):
                refuse_other_brokers(snapshot.stores, known)
            self._refuse_other_logs(snapshot, start)
            ranges, skipped = ranges_to_read(self._queues(snapshot), begun, ends, fails=self._fails)
            request = self._rows.request
            whole = snapshot if self._fails else without_missing_files(snapshot, request.access)
            splits = whole.plan(ranges, request, self._rows.budget)
            self._skipped.note(skipped, log)
            return [StorePartition(split) for split in splits]

        return self._looked(planned)

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

    def _covered(self, offsets: Offsets) -> Offsets:
        return {place: offset for place, offset in offsets.items() if self._selection.covers(place)}

    @property
    def _fails(self) -> bool:
        return self._rows.request.fail_on_data_loss

    def _queues(self, snapshot: Snapshot) -> Queues:
        return self._selection.queues(snapshot)

    def _batch_after(
        self, snapshot: Snapshot, before: Offsets, known: TurnedBack, looked_ms: int, is_limited: bool
    ) -> tuple[NextBatch, TurnedBack]:
        """The next batch, and what is known before it of queues that end before the stream's place."""
        if self._fails:
            self._refuse_begun_again(snapshot, self._covered(before))
            return self._next_batch(snapshot, before, is_limited), known
        queues, standing = self._queues(snapshot), self._covered(before)
        seen = known.seen(queues, {store.broker_name for store in snapshot.stores}, standing, looked_ms)
        turned = seen.begins(queues, standing, self._searches)
        return self._next_batch(snapshot, before, is_limited, turned), seen

    def _refuse_begun_again(self, snapshot: Snapshot, before: Offsets) -> None:
        """Raises DataLost where a queue that was read began again at 0: the stream would go on in the middle of the new
        messages."""
        again = self._ends.begun_again
        new = {place for place, count in again.items() if count > self._begun_again.get(place, 0)}
        refuse_begun_again(self._queues(snapshot), {place: before[place] for place in new if before.get(place)})
        self._begun_again = again

    def _next_batch(
        self, snapshot: Snapshot, before: Offsets, is_limited: bool, turned: Offsets | None = None
    ) -> NextBatch:
        refuse_other_brokers(snapshot.stores, self._covered(before))
        known = self._covered(before)
        batch = NextBatch.of(self._queues(snapshot), known, self._target, fails=self._fails, turned=turned)
        if not is_limited:
            return batch
        waited_ms = None if self._taken_s is None else (self._clock() - self._taken_s) * 1000
        # An end that is frozen is waited for in vain.
        is_due = self._target is not None or waited_ms is None or waited_ms >= self._limits.delay_ms
        return batch.limited(self._limits, self._turn, is_due=is_due)

    def _looked(self, ask: Callable[[Snapshot], Answer]) -> Answer:
        """The answer to what is asked of the store as it is now; a loss, and a store that keeps changing, count when
        they are seen again and again.
        """
        for _ in range(_LOOKS_MAX - 1):
            try:
                return ask(self._ends.look())
            except (DataLost, StoreChanging):
                self._ends.forget()
        return ask(self._ends.look())

    def _refuse_other_logs(self, snapshot: Snapshot, start: dict[str, Any]) -> None:
        """Raises DataLost where the stores are not those that were read up to `start`, unless the stream goes on."""
        if self._fails and self._compared != (snapshot, start):
            refuse_other_logs(self._queues(snapshot), offsets_in(start), note_in(start, MARKS))
            self._compared = snapshot, start

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
        # Where stores come and go, a file keeps its name.
        is_one = not isinstance(self._rows.stores, StoresIn) and len(self._ends.look().stores) == 1
        self._progress.write(progress, is_one_store=is_one)
        self._exported = done
