"""An embedded store that writes RocketMQ's files: the parts put together, started and stopped in their order."""

import threading
from collections.abc import Iterable, Sequence
from typing import Self

from rmqstore.annotations import checked
from rmqstore.broker.consumer_offsets import ConsumerOffsets
from rmqstore.broker.delay_delivery import DelayDelivery
from rmqstore.broker.features import Features, OpenLog
from rmqstore.broker.retry import Retries
from rmqstore.broker.subscription_groups import SubscriptionGroups
from rmqstore.broker.topics import Topics
from rmqstore.broker.transaction_check import Check
from rmqstore.broker.transactions import Transactions
from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.config import StoreConfig
from rmqstore.consumer import Consumer, Start
from rmqstore.directory.store_root import require_room
from rmqstore.errors import DurabilityLost, NotNow, Rejected
from rmqstore.files.filesystem import FileSystem, RealFileSystem, join
from rmqstore.files.ownership import OwnedFileSystem, Ownership
from rmqstore.files.reading import StorePath, canonical_path
from rmqstore.files.transient_pool import TransientPool
from rmqstore.formats import names
from rmqstore.formats.message_fields import messages_of
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.derived.derived_flush import DerivedFlush, LogFlush
from rmqstore.log.derived.dispatch_loop import Dispatcher, DispatchLoop
from rmqstore.log.derived.dispatch_recent import RecentDispatch
from rmqstore.log.encode.arrow_rows import ArrowRows
from rmqstore.log.get.fetch import Boundary, Fetch
from rmqstore.log.opening import mark_closed, mark_unsynced, recovered
from rmqstore.log.put.appender import Appender
from rmqstore.log.put.commitlog import CommitLog
from rmqstore.log.put.gate import PutHook
from rmqstore.log.put.next_files import NextLogFiles
from rmqstore.log.put.reentrance import is_inside_call_of
from rmqstore.log.retention.plan import RetentionPlan, RetentionPolicy
from rmqstore.log.retention.rounds import RetainedParts, Retention
from rmqstore.log.staging.swap import finish_swap
from rmqstore.message import GetResult, Message, PutResult, PutStatus
from rmqstore.stats import Health, Statistics, StoreStatistics
from rmqstore.store_condition import StoreCondition
from rmqstore.worker import Step, Worker


class Store:
    """A store that is open for writing; `open_store` makes one.  Any thread may put, read and ask; one closes it.

    Puts answer with RocketMQ's statuses.  Reads see a message when it is dispatched, a few ms after its put; `flush`
    waits for that too.  In a child made by fork every call raises StoreClosed, and `close` does nothing: the store is
    still its parent's.
    """

    def __init__(
        self, path: StorePath, config: StoreConfig, clock: Clock, fs: FileSystem,
        hooks: Sequence[PutHook] = (), dispatchers: Sequence[Dispatcher] = (), workers: bool = True,
        check: Check | None = None,
    ) -> None:  # fmt: skip
        self.path = canonical_path(path)
        self.config = config
        self._clock = clock
        self._reasons: list[str] = []
        self._has_threads = workers
        self._dispatchers = tuple(dispatchers)
        self._workers: list[Worker] = []
        self._closing = threading.RLock()  # held by the one thread that closes
        require_room(fs, self.path, (*config.log_paths, *config.read_only_log_paths))
        finish_swap(fs, self.path)
        fs.make_directories(self.path)
        self._lock = fs.lock(join(self.path, names.LOCK_FILE))
        self._ownership = Ownership(self.path, self._lock)
        self._fs = fs = OwnedFileSystem(fs, self._ownership)
        try:
            self._features = Features(fs, self.path, config, clock, check, self._ownership.require_not_ended)
            kinds = self._features.queue_kinds()
            self._parts, self.recovery, self.warnings = recovered(fs, self.path, config, clock, dispatchers, kinds)
            self._build(hooks)
            self._start()
        except BaseException:
            try:
                self._stop_workers()
            finally:
                self._ownership.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        condition = getattr(self, "_condition", None)  # None while it is opened
        kind = type(self).__name__
        return f"<{kind}>" if condition is None else condition.line(kind, self.config.flush)

    def put(self, message: Message) -> PutResult:
        """Stores one message; with SYNC flush it is on the disk when this returns PUT_OK.

        A message that is refused is an answer, with a `reason`; its `raise_for_status` makes an error of that.  Raises
        WrongType for a field of wrong type, DurabilityLost.
        """
        if self._statistics is None:
            return self._appender.put(message)
        began_s = self._clock.monotonic_s()
        result = self._appender.put(message)
        self._count(message.topic, result, began_s)
        return result

    def put_batch(self, messages: Iterable[Message]) -> PutResult:
        """Stores messages of one queue together, one behind the other (RocketMQ: putMessages).

        Raises Rejected for messages of several queues, WrongType, DurabilityLost.
        """
        began_s = self._clock.monotonic_s()
        messages = messages_of(messages)
        result = self._appender.put_batch(messages)
        self._count(messages[0].topic if messages else "", result, began_s)
        return result

    def put_columns(self, table: ArrowRows) -> PutResult:
        """Stores the rows of an Arrow table (columns: log.columns.record_columns), the bulk path; hooks are not asked.

        Takes whatever gives Arrow data: of pyarrow a Table, RecordBatch or RecordBatchReader, data frames of Polars and
        pandas, results of DuckDB.  A stream is read to its end before anything is stored.
        `message_count` of the answer says how many rows were stored, from the first on.  Raises Rejected with nothing
        stored, DurabilityLost.
        """
        if self._statistics is None:
            return self._appender.put_columns(table)
        began_s, amounts = self._clock.monotonic_s(), dict[str, tuple[int, int]]()
        result = self._appender.put_columns(table, amounts)
        self._statistics.columns_answered(amounts, result, self._clock.monotonic_s() - began_s)
        return result

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        *,
        tags: str = "*",
        max_bytes: int | None = None,
    ) -> GetResult:
        """Messages of a queue from `offset` on that have one of the tags ("a || b"; "*": any), at most `max_count`."""
        began_s = self._clock.monotonic_s()
        result = self._reader().get(topic, queue_id, offset, max_count, max_bytes, tags)
        if self._statistics is not None:
            self._statistics.get_done(result, self._clock.monotonic_s() - began_s)
        return result

    def query(
        self, topic: str, key: str, max_count: int = 32, begin_ms: int = 0, end_ms: int = 2**63 - 1
    ) -> list[StoredMessage]:
        """Messages of a topic stored in [begin_ms, end_ms] that have a key (of KEYS, or the unique key), through the
        index files, or an offset message id, as PutResult.msg_id is."""
        return self._reader().query(topic, key, max_count, begin_ms, end_ms)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "lower") -> int:
        """The queue offset of the first message stored at or after a time ("lower"), or the last at or before
        ("upper")."""
        return self._reader().offset_at(topic, queue_id, timestamp_ms, boundary)

    def message_at(self, place: int | str) -> StoredMessage:
        """The message whose record begins at an offset of the commitlog, or that has an offset message id, whatever its
        topic.  Raises DataLost, Corrupt; Rejected for text that is no such id.
        """
        return self._reader().message_at(place)

    @checked
    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First queue offset that can be read and the one behind the last; (0, 0) for a queue that is not there."""
        self._ownership.require_process()
        return self._parts.queues.bounds(topic, queue_id)

    def queues(self) -> list[tuple[str, int]]:
        """Topic and queue id of every queue."""
        self._ownership.require_process()
        return sorted(self._parts.queues.next_offsets())

    @property
    def topics(self) -> Topics:
        """The topics: which there are, how many queues they have, who may write."""
        self._ownership.require_process()
        return self._features.topics

    @property
    def groups(self) -> SubscriptionGroups:
        """The consumer groups and their retry limits."""
        self._ownership.require_process()
        return self._features.groups

    @property
    def offsets(self) -> ConsumerOffsets:
        """How far each group has consumed."""
        self._ownership.require_process()
        return self._features.offsets

    @property
    def delay(self) -> DelayDelivery:
        """What waits for its delay level: a message whose property DELAY is 1 … 18."""
        self._ownership.require_process()
        return self._features.delay

    @property
    def retries(self) -> Retries:
        """Sending messages back for a group, to come again or to end as dead letters."""
        self._ownership.require_process()
        return self._features.retries

    @property
    def transactions(self) -> Transactions:
        """Messages that nobody sees before they are committed."""
        self._require_open()
        return self._features.transactions

    @checked
    def consumer(self, group: str, topic: str, tags: str = "*", consume_from: Start = "earliest") -> Consumer:
        """A consumer of a topic's messages with one of the tags, for a group that consumes nothing else meanwhile."""
        self._require_open()
        return Consumer(self, self.offsets, self.retries, group, {topic: tags}, consume_from)

    @checked
    def delete_topic(self, topic: str) -> bool:
        """Removes a topic: its queues, its place in the table and what groups have consumed of it, durably.  False if
        there is none.

        Its messages stay in the log until they expire: `query` and `message_at` find them, no queue has them again,
        after a crash neither; but a RocketMQ broker that recovers the store brings back what it reads of them.  Raises
        Rejected for what the store itself goes by, DurabilityLost, NotNow; OSError: the topic is still there, or its
        messages are gone, and a repetition or the next opening does the rest.
        """
        self._require_open()
        return self._features.deletion.delete(topic)

    @checked
    def clean(self, *, any_age: bool = False, dry_run: bool = False) -> RetentionPlan:
        """Deletes log files that are old enough, or of `any_age`, but never the newest one, with what led to them; some
        files at a time, and the rest by the next calls.  Returns what was done, or would be.  Raises OSError, NotNow.
        """
        self._require_open()
        return self._retention.plan(any_age=any_age) if dry_run else self._retention.clean_now(any_age=any_age)

    def statistics(self) -> StoreStatistics:
        """What the store did since it was opened.  Raises Rejected where the configuration has switched it off."""
        self._ownership.require_process()
        if self._statistics is None:
            raise Rejected("this store counts nothing: statistics=False")
        return self._statistics.snapshot()

    @checked
    def flush(self, timeout_s: float = 60.0) -> None:
        """Makes everything put until now durable and readable.  Raises DurabilityLost, NotNow at the timeout."""
        self._require_open()
        end = self._log.marks.appended
        self._sync_log()
        if self._reasons:
            raise DurabilityLost("; ".join(self._reasons))
        if not self._has_threads:
            self._catch_up()
        if not self._dispatch.wait_until(end, timeout_s if self._has_threads else 0):
            if self._reasons:
                raise DurabilityLost("; ".join(self._reasons))
            raise NotNow(f"the log is not dispatched up to {end} after {timeout_s} s: {self._condition.stuck_reason()}")
        try:
            self._derived_flush.flush()
        except OSError as error:
            raise DurabilityLost(f"queues and index could not be flushed ({error.strerror or error})") from error

    def step(self) -> None:
        """Has every worker do one step, in this thread: for a store without threads.  Raises StoreClosed.

        What a step raises ends its worker, as in a thread: `health` tells.
        """
        self._require_open()
        for worker in self._workers:
            worker.step_once()

    def health(self) -> Health:
        """Whether the store takes messages, and why not."""
        return self._condition.health()

    def close(self) -> None:
        """Ends the store: what was put is dispatched and made durable, and only then it counts as closed cleanly.

        Puts that are under way end first or are refused; where another thread closes, waits for it.  Does nothing in a
        child made by fork.  Raises DurabilityLost when that fails: the next opening recovers the store; and NotNow in a
        signal handler that interrupted another call of this store: leave that call first, by SystemExit, say.
        """
        if self._ownership.is_inherited:
            return
        if self._ownership.has_ended:
            self._ownership.end()
            return
        if is_inside_call_of(self):
            raise NotNow(
                f"{self.path} cannot be closed in the middle of another call of its own: raise SystemExit in the "
                "signal handler, and close the store where that arrives, as `with open_store(…)` does"
            )
        with self._closing:
            if not self._ownership.has_ended:
                self._close()

    def _close(self) -> None:
        try:
            self._ownership.begin_closing()
            with self._log.lock:  # the put whose turn it is ends first
                pass
            self._stop_workers()
            self._sync_log()  # whatever else failed: what was put is not lost
            if self._reasons:
                raise DurabilityLost(f"the store could not be closed cleanly: {'; '.join(self._reasons)}")
            self._close_cleanly()
        finally:
            self._release()

    def _stop_workers(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _release(self) -> None:
        """Lets go of everything, the lock last; nothing is written any more.  Once more does nothing."""
        self._stop_workers()  # also those that an interrupt left running
        if self._parts.index is not None:
            self._parts.index.close()
        self._parts.handles.close()
        self._features.close()
        self._ownership.end()

    def abandon(self) -> None:
        """Ends the store as a crash would: nothing is made durable any more, and the next opening recovers it."""
        with self._closing:
            if self._ownership.has_ended:
                self._ownership.end()
            elif not self._ownership.is_inherited:
                self._ownership.begin_closing()
                self._release()

    def _sync_log(self) -> None:
        """Makes the log durable.  Raises DurabilityLost, NotNow when a sync that is under way does not end, StoreClosed
        when the store is somebody else's by now.
        """
        self._ownership.require_not_ended()
        if not self._log_flush.flush():
            raise NotNow(f"a sync of the log is not confirmed after {self.config.sync_flush_timeout_ms} ms")

    def _catch_up(self) -> None:
        """What the dispatch worker would do by itself."""
        while self._dispatch.behind and self._dispatch.stuck is None and self._dispatch_worker.failure is None:
            self._dispatch_worker.step_once()

    def _close_cleanly(self) -> None:
        try:
            self._next_files.discard_unused()
            self._dispatch.catch_up()
            self._features.persist()
            self._derived_flush.flush(whole_index=True)
            if self._dispatch.behind == 0:
                mark_closed(self._fs, self.path)
        except OSError as error:
            raise DurabilityLost(f"the store could not be closed cleanly ({error.strerror or error})") from error

    def _build(self, hooks: Sequence[PutHook]) -> None:
        parts, config, clock = self._parts, self.config, self._clock
        end, size = self.recovery.log_end, parts.log.file_size
        pool = TransientPool(config.pool_buffers, size) if config.pool_buffers else None
        self._next_files = NextLogFiles(self._fs, parts.log, config, clock, self._has_threads, self.warnings.extend)
        self._log = CommitLog(
            parts.log, end, self._next_files.make, pool, config.pool_fast_fail,
            lambda low: mark_unsynced(self._fs, self.path, low), self._ownership,
        )  # fmt: skip
        self._log.next_offsets.update(parts.queues.next_offsets())
        self._fetch = Fetch(
            self._log, parts.queues, parts.index, broker_name=config.broker_name, batches=parts.queues.batches
        )
        gate = self._features.gate(hooks, self._refusal, self._why_unavailable)
        self._appender = Appender(self._log, config, clock, gate, self._appended, parts.queues.kinds)
        from_log = self._dispatchers or parts.queues.kinds.extension
        recent = None if from_log else RecentDispatch(self._appender.recent, parts.queues, parts.index)
        self._dispatch = DispatchLoop(
            self._log, lambda: self._log.readable_end, parts.dispatchers, file_size=size, position=end, clock=clock,
            recent=recent,
        )  # fmt: skip
        self._log_flush = LogFlush(self._log, config, parts.checkpoint, clock)
        self._derived_flush = DerivedFlush(parts.queues, parts.index, parts.checkpoint, config.queue_flush_interval_ms)
        opened = OpenLog(
            self._log,
            parts.queues,
            self._fetch,
            self._appender,
            self.put,
            self._sync_log,
            parts.index is not None,
            self.recovery.deleted_topics,
        )
        self.warnings += self._features.begin(opened)
        self._retention = self._made_retention()
        self._condition = StoreCondition(
            self.path, self._fs, self._ownership, parts, self._log, self._dispatch, self._retention, self._features,
            self._reasons, self.warnings,
        )  # fmt: skip
        self._statistics = Statistics(clock, self._condition.gauges) if config.statistics else None

    def _start(self) -> None:
        steps: dict[str, Step] = {
            "dispatch": self._dispatch.step,
            "flush": self._log_flush.step,
            "queues": self._derived_flush.step,
        }
        steps |= self._features.steps()
        if self._statistics is not None:
            steps["statistics"] = self._statistics.step
        if self.config.retention:
            steps["retention"] = self._retention.step
        if self.config.pool_buffers:
            steps["commit"] = self._log_flush.commit_step
        if self.config.preallocate:
            steps["preallocate"] = self._next_files.step
        workers = {name: Worker(name, step, self._worker_failed) for name, step in steps.items()}
        self._workers = list(workers.values())
        self._dispatch_worker = workers["dispatch"]
        if self.config.preallocate:
            self._next_files.begin(self.recovery.log_end, workers["preallocate"].wake)
        if self._has_threads:
            for worker in self._workers:
                worker.start()

    def _refusal(self) -> PutStatus | None:
        if self._ownership.refusal is None and not self._reasons and self._retention.full_reason is None:
            return None
        self._ownership.require_process()
        return PutStatus.SERVICE_NOT_AVAILABLE

    def _why_unavailable(self) -> str:
        return self._condition.why_unavailable()

    def _count(self, topic: str, result: PutResult, began_s: float) -> None:
        if self._statistics is not None:
            self._statistics.put_answered(topic, result, self._clock.monotonic_s() - began_s)

    def _made_retention(self) -> Retention:
        parts = self._parts
        retained = RetainedParts(
            self._fs, self.path, parts.log, parts.queues, parts.index, lambda: self._log.marks.flushed,
            lambda: self._dispatch.position, self._flush_for_retention,
        )  # fmt: skip
        policy = RetentionPolicy.of(self.config)
        return Retention(retained, policy, self._clock, self._fs.used_ratio, self._features.delayed_from)

    def _flush_for_retention(self) -> bool:
        if not self._log_flush.flush():
            return False
        self._parts.queues.flush()
        return True

    def _appended(self) -> None:
        if self._dispatch.is_idle:
            self._dispatch_worker.wake()

    def _worker_failed(self, name: str, failure: BaseException) -> None:
        """What is not dispatched or flushed any more must not be acknowledged either."""
        self._reasons.append(f"the worker {name!r} ended: {failure!r}")
        self._dispatch.give_up_waiting()

    def _reader(self) -> Fetch:
        self._require_open()
        return self._fetch

    def _require_open(self) -> None:
        self._ownership.require_open()


@checked
def open_store(
    path: StorePath,
    config: StoreConfig | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    filesystem: FileSystem | None = None,
    hooks: Sequence[PutHook] = (),
    dispatchers: Sequence[Dispatcher] = (),
    workers: bool = True,
    check: Check | None = None,
) -> "Store":
    """Opens the store at `path` for writing, or makes one; recovers it first when its last writer did not close it.

    Without `workers` it has no threads: what they would do is done by `Store.step`, when the caller says so.
    `hooks` are asked before a message's topic and delay are looked at.  `check` is asked after transactions that stay
    open too long (`Transactions`).
    Raises NotAStore, with nothing touched, for what is neither a store nor empty, UnsupportedLayout for other kinds of
    stores; StoreInUse while another writer, of this engine or a broker, has it; Corrupt for a log that is damaged in
    front of sound records, or that holds bytes and not one sound record, unless `config.on_middle_damage` says to cut
    it; OSError as the system gives it.
    """
    return Store(
        path, config or StoreConfig(), clock, filesystem or RealFileSystem(), hooks, dispatchers, workers, check
    )
