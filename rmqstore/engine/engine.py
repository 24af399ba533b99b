"""The parts of a store that is open for writing: put together, started and ended in their order.

`Store` is the verbs over it; what works on a store from within the package, as the sink does, takes the engine itself.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.core.worker import Step, Worker
from rmqstore.directory.store_root import require_room
from rmqstore.engine.broker.features import Duties, Features, OpenLog
from rmqstore.engine.broker.transaction_check import Check
from rmqstore.engine.log.derived.derived_flush import DerivedFlush, LogFlush
from rmqstore.engine.log.derived.dispatch_loop import Dispatcher, DispatchLoop, FollowedLog
from rmqstore.engine.log.derived.dispatch_recent import RecentDispatch
from rmqstore.engine.log.derived.parsed_batches import ParsedBatches
from rmqstore.engine.log.encode.arrow_rows import ArrowRows
from rmqstore.engine.log.get.fetch import Fetch
from rmqstore.engine.log.opening import mark_closed, mark_unsynced, recovered, with_delay_levels
from rmqstore.engine.log.put.appender import AfterPut, Appender
from rmqstore.engine.log.put.commitlog import CommitLog, TransientPool
from rmqstore.engine.log.put.gate import PutHook
from rmqstore.engine.log.put.many_puts import Answer
from rmqstore.engine.log.put.next_files import NextLogFiles
from rmqstore.engine.log.recovery.apply import StoreParts
from rmqstore.engine.log.recovery.planner import tells_of_queues
from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.engine.log.retention.rounds import RetainedParts, Retention
from rmqstore.engine.log.staging.swap import finish_swap
from rmqstore.engine.stats import Health, StoreGauges
from rmqstore.engine.stats.counting import Statistics
from rmqstore.errors import DurabilityLost, NotNow, in_words
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.files.ownership import OwnedFileSystem, Ownership
from rmqstore.files.reading import StorePath, canonical_path
from rmqstore.formats import names
from rmqstore.replica.serving.copies import Copies
from rmqstore.replica.serving.log_for_slaves import LogForSlaves
from rmqstore.replica.serving.master import Master, require_listenable
from rmqstore.replica.serving.peer_socket import taker_in

if TYPE_CHECKING:
    from rmqstore.dledger.member import FoundMember


# --- How an open store is: whether it takes messages, what its gauges show, and itself in one line.


@dataclass(frozen=True, slots=True)
class StoreCondition:
    """The parts of a store that tell how it is.  `reasons` and `warnings` are the store's own lists, which grow."""

    path: str
    fs: FileSystem
    ownership: Ownership
    parts: StoreParts
    log: CommitLog
    dispatch: DispatchLoop
    retention: Retention
    features: Features
    reasons: Sequence[str]
    warnings: Sequence[str]

    def health(self) -> Health:
        """Whether the store takes messages, and why not."""
        if self.ownership.is_inherited:
            return Health(False, (str(self.ownership.refusal),), 0, ())
        reasons = list(self.reasons)
        if self.log.marks.failure is not None:
            reasons.append(str(self.log.marks.failure))
        if self.dispatch.stuck is not None:
            reasons.append(self.stuck_reason())
        if self.retention.full_reason is not None:
            reasons.append(self.retention.full_reason)
        if self.ownership.refusal is not None:
            reasons.append("closed")
        elif not self.ownership.is_in_place():
            reasons.append(self.ownership.displaced_reason)
        warnings = [*self.warnings, *self.features.failures()]
        warnings += [f"a message is not in its light queue: {reason}" for reason in self.parts.queues.faults.values()]
        if self.retention.failure is not None:
            warnings.append(f"old files could not be deleted: {self.retention.failure}")
        return Health(not reasons, tuple(reasons), self.dispatch.behind, tuple(warnings))

    def why_unavailable(self) -> str:
        """Why puts are refused, in words."""
        return "; ".join(self.health().reasons) or "the store is being closed"

    def stuck_reason(self) -> str:
        """Where dispatch stands, and why it does not go on, if so."""
        stuck = self.dispatch.stuck
        return f"dispatch waits at {self.dispatch.position}" + (f": {stuck.reason}" if stuck is not None else "")

    def gauges(self) -> StoreGauges:
        """The figures of the present moment that the statistics show."""
        log, marks = self.log, self.log.marks
        return StoreGauges(
            log_min_offset=log.start,
            log_max_offset=marks.appended,
            dispatch_behind_bytes=self.dispatch.behind,
            unsynced_bytes=marks.appended - marks.flushed,
            log_disks={path: self.fs.used_ratio(path) for path in self.parts.log.directories},
            queue_disk=self.fs.used_ratio(self.path),
            delay=self.features.delay_progress(),
        )

    def line(self, kind: str, flush: str) -> str:
        """The store in one line; takes no lock, so that it can be asked at any moment, also after a fork."""
        state = "" if self.ownership.refusal is None else ", closed"
        size, queue_count = self.log.marks.appended - self.log.start, len(self.log.next_offsets)
        return f"<{kind} {self.path!r}, {flush}, {queue_count} queues, {size} bytes of log{state}>"


# ---


class Attached(NamedTuple):
    """The things that a caller adds to a store: `hooks` are asked before a message's topic and delay are looked at,
    `dispatchers` are told of every record, `check` is asked after transactions that stay open too long.
    `follows` names the store whose log this one gets: then nothing is put to it but that, and nothing comes of itself.
    `prepare` is called with the store's root and its lock held, before the store is looked at.  `owner` lives as long
    as the engine's threads.
    """

    hooks: Sequence[PutHook] = ()
    dispatchers: Sequence[Dispatcher] = ()
    check: Check | None = None
    follows: str = ""
    prepare: Callable[[FileSystem, str], object] | None = None
    owner: object = None


NOTHING_ATTACHED = Attached()


class Engine:
    """An open store's parts; opened when it is made, and ended once, by `close` or `abandon`.

    Without `threads` the workers' steps are the caller's to do.  `reasons` says why nothing more can be put, `warnings`
    what its opening found.  Raises as `open_store`; then nothing of it is left, nor its lock held.
    """

    def __init__(
        self, path: StorePath, config: StoreConfig, clock: Clock, fs: FileSystem,
        attached: Attached = NOTHING_ATTACHED, threads: bool = True,
    ) -> None:  # fmt: skip
        self.path = canonical_path(path)
        self.config, self.clock = config, clock
        self.has_threads, self._owner = threads, attached.owner
        self.master: Master | None = None
        self.reasons: list[str] = []
        self.workers: dict[str, Worker] = {}
        self._closing = threading.RLock()  # held by the one thread that closes
        self._take_in = taker_in(None if config.ha is None else config.ha.tls)  # first: it may refuse
        require_room(fs, self.path, config.named_log_paths(), may_be_ledger=config.dledger is not None)
        _found_member(fs, self.path, config)  # refused before there is a lock; asked again when it is held
        finish_swap(fs, self.path)
        fs.make_directories(self.path)
        self.lock = fs.lock(join(self.path, names.LOCK_FILE))
        self.ownership = Ownership(self.path, self.lock)
        self.fs = fs = OwnedFileSystem(fs, self.ownership)
        try:
            require_listenable(config.ha)
            if attached.prepare is not None:
                attached.prepare(fs, self.path)
            self.follows = attached.follows
            found = _found_member(fs, self.path, config)
            joining = None if found is None else found.joining()
            self.config = config = with_delay_levels(fs, self.path, config if found is None else found.config)
            self.ownership.claim(fs, logs := config.log_directories(self.path))
            duties = Duties(attached.check, is_replica=bool(self.follows))
            self.features = Features(fs, self.path, config, clock, duties, self.ownership.require_not_ended)
            kinds = self.features.queue_kinds()
            self.parts, self.recovery, self.warnings = recovered(
                fs, self.path, config, clock, attached.dispatchers, kinds, joining,
            )  # fmt: skip
            for room in logs[: len(config.log_paths) or 1]:
                fs.make_directories(room)  # before the first put asks for it, so that it is locked by then
            self.ownership.claim(fs, logs)
            self.member = None if joining is None else joining.member
            self._make_log(attached.hooks)
            self._make_dispatch(attached.dispatchers)
            self._make_features()
            self._start()
        except BaseException:
            try:
                self.stop_workers()
            finally:
                self._stop_serving()
                self.ownership.end()
            raise

    def put(self, message: Message) -> PutResult:
        """As Store.put."""
        if self.statistics is None:
            return self.appender.put(message)
        began_s = self.clock.monotonic_s()
        result = self.appender.put(message)
        self.statistics.put_answered(message.topic, result, self.clock.monotonic_s() - began_s)
        return result

    def put_batch(self, messages: Sequence[Message]) -> PutResult:
        """As Store.put_batch."""
        began_s = self.clock.monotonic_s()
        result = self.appender.put_batch(messages)
        if self.statistics is not None:
            topic = messages[0].topic if messages else ""
            self.statistics.put_answered(topic, result, self.clock.monotonic_s() - began_s)
        return result

    def put_many(self, messages: Sequence[Message], *, keeps_errors: bool = False) -> list[Answer]:
        """As Store.put_many; with `keeps_errors` what is no message at all is answered by its error."""
        began_s = self.clock.monotonic_s()
        many = self.appender.put_many(messages, keeps_errors=keeps_errors)
        if self.statistics is not None:
            self.statistics.many_answered(many.amounts, many.failed_count, self.clock.monotonic_s() - began_s)
        return many.answers

    def put_columns(self, table: ArrowRows) -> PutResult:
        """As Store.put_columns."""
        if self.statistics is None:
            return self.appender.put_columns(table)
        began_s, amounts = self.clock.monotonic_s(), dict[str, tuple[int, int]]()
        result = self.appender.put_columns(table, amounts)
        self.statistics.columns_answered(amounts, result, self.clock.monotonic_s() - began_s)
        return result

    def flush(self, timeout_s: float) -> None:
        """Makes everything put durable and readable.  Raises DurabilityLost, StoreClosed, NotNow at the timeout."""
        end = self.log.marks.appended
        self.sync_log()
        if self.reasons:
            raise DurabilityLost("; ".join(self.reasons))
        if not self.has_threads:
            self.catch_up()
        if not self.dispatch.wait_until(end, timeout_s if self.has_threads else 0):
            if self.reasons:
                raise DurabilityLost("; ".join(self.reasons))
            self.ownership.require_open()
            raise NotNow(f"the log is not dispatched up to {end} after {timeout_s} s: {self.condition.stuck_reason()}")
        try:
            self.derived_flush.flush()
        except OSError as error:
            raise DurabilityLost(f"queues and index could not be flushed ({error.strerror or error})") from error

    def sync_log(self) -> None:
        """Makes the log durable.  Raises DurabilityLost, NotNow when a sync that is under way does not end, StoreClosed
        when the store is somebody else's by now.
        """
        self.ownership.require_not_ended()
        if not self.log_flush.flush():
            raise NotNow(f"a sync of the log is not confirmed after {self.config.sync_flush_timeout_ms} ms")

    def appended(self) -> None:
        """Says that the log has grown, so that what follows it wakes.  Cheap; any thread."""
        if self.dispatch.is_idle:
            self.workers["dispatch"].wake()
        if self.master is not None:
            self.master.wake()

    def catch_up(self) -> None:
        """Does what the dispatch worker would do by itself, as far as it can; for an engine without threads."""
        worker = self.workers["dispatch"]
        while self.dispatch.behind and self.dispatch.stuck is None and worker.failure is None:
            worker.step_once()

    def close(self) -> None:
        """As Store.close, but that it is not asked from where it is called."""
        if self.ownership.is_inherited:
            return
        if self.ownership.has_ended:
            self.ownership.end()
            return
        with self._closing:
            if not self.ownership.has_ended:
                self._close()

    def abandon(self) -> None:
        """Ends the store as a crash would: nothing is made durable any more, and the next opening recovers it."""
        with self._closing:
            if self.ownership.has_ended:
                self.ownership.end()
            elif not self.ownership.is_inherited:
                self.ownership.begin_closing()
                self.dispatch.give_up_waiting()
                self._release()

    def stop_workers(self) -> None:
        """Ends the threads, each after its present step.  Once more does nothing."""
        for worker in self.workers.values():
            worker.stop()

    def _close(self) -> None:
        try:
            self.ownership.begin_closing()
            with self.log.lock:  # the put whose turn it is ends first
                pass
            self.stop_workers()
            self.sync_log()  # whatever else failed: what was put is not lost
            if self.reasons:
                raise DurabilityLost(f"the store could not be closed cleanly: {'; '.join(self.reasons)}")
            self._close_cleanly()
        finally:
            self._release()

    def _close_cleanly(self) -> None:
        try:
            self.next_files.discard_unused()
            self.dispatch.catch_up()
            self.features.persist()
            self.derived_flush.flush(whole_index=True)
            if self.member is not None:
                self.member.close()
            if self.dispatch.behind == 0:
                mark_closed(self.fs, self.path)
        except OSError as error:
            raise DurabilityLost(f"the store could not be closed cleanly ({error.strerror or error})") from error

    def _release(self) -> None:
        """Lets go of everything, the lock last; nothing is written any more.  Once more does nothing."""
        self.stop_workers()  # also those that an interrupt left running
        self._stop_serving()
        if self.parts.index is not None:
            self.parts.index.close()
        self.parts.handles.close()
        self.features.close()
        self.ownership.end()

    def _stop_serving(self) -> None:
        """Lets slaves and the port go; its worker has ended.  Once more does nothing."""
        if self.master is not None:
            self.master.close()

    def _make_log(self, hooks: Sequence[PutHook]) -> None:
        """The parts that puts and reads go through."""
        parts, config, clock = self.parts, self.config, self.clock
        size = parts.log.file_size
        pool = TransientPool(config.pool_buffers, size) if config.pool_buffers else None
        self.next_files = NextLogFiles(self.fs, parts.log, config, clock, self.has_threads, self.warnings.extend)
        self.log = CommitLog(
            parts.log, self.recovery.log_end, self.next_files.make, pool, config.pool_fast_fail,
            lambda low: mark_unsynced(self.fs, self.path, low), self.ownership,
            None if self.member is None else self.member.wrapping,
        )  # fmt: skip
        if self.member is not None:
            self.warnings += self.member.warnings
            self.member.begin(self.log)
        self.log.next_offsets.update(parts.queues.next_offsets())
        self.fetch = Fetch(
            self.log, parts.queues, parts.index, broker_name=config.broker_name, batches=parts.queues.batches
        )
        gate = self.features.gate(hooks, self._refusal, self._why_unavailable)
        self.copies, waited_for = None, None
        if config.ha is not None:
            self.copies = Copies(config.ha, lambda: self.log.marks.appended)
            waited_for = self.copies if config.ha.in_sync_replicas > 1 else None
        after = AfterPut(self.appended, waited_for)
        self.appender = Appender(self.log, config, clock, gate, after, parts.queues.kinds)

    def _make_dispatch(self, dispatchers: Sequence[Dispatcher]) -> None:
        """The parts that follow the log, and make it durable."""
        parts, config, clock = self.parts, self.config, self.clock
        from_log = dispatchers or parts.queues.kinds.extension
        self.parsed = ParsedBatches()  # of what is appended in blocks
        recent = None if from_log else RecentDispatch(self.appender.recent, parts.queues, parts.index)
        self.dispatch = DispatchLoop(
            FollowedLog(self.log, lambda: self.log.readable_end, parts.log.file_size, self.log.framing),
            parts.dispatchers, position=self.recovery.log_end, clock=clock, recent=recent, parsed=self.parsed,
        )  # fmt: skip
        self.log_flush = LogFlush(self.log, config, parts.checkpoint, clock)
        self.derived_flush = DerivedFlush(
            parts.queues, parts.index, parts.checkpoint, config.queue_flush_interval_ms,
            None if self.member is None else self.member.index.flush,
            tells_offset=tells_of_queues(config, self.fs, self.path),
        )  # fmt: skip

    def _make_features(self) -> None:
        """The parts that make it a broker's store, and tell its condition."""
        parts, config, clock = self.parts, self.config, self.clock
        opened = OpenLog(
            self.log, parts.queues, self.fetch, self.appender, self.put, self.sync_log, parts.index is not None,
            self.recovery.deleted_topics,
        )  # fmt: skip
        self.warnings += self.features.begin(opened)
        retained = RetainedParts(
            self.fs, self.path, parts.log, parts.queues, parts.index, lambda: self.log.marks.flushed,
            lambda: self.dispatch.position, self._flush_for_retention,
        )  # fmt: skip
        policy = RetentionPolicy.of(config)
        self.retention = Retention(retained, policy, clock, self.fs.used_ratio, self.features.delayed_from)
        parts.picker.full_paths = lambda: self.retention.full_log_paths
        self.condition = StoreCondition(
            self.path, self.fs, self.ownership, parts, self.log, self.dispatch, self.retention, self.features,
            self.reasons, self.warnings,
        )  # fmt: skip
        self.statistics = Statistics(clock, self.condition.gauges) if config.statistics else None

    def _start(self) -> None:
        if self.config.ha is not None and self.copies is not None:
            self.master = Master(LogForSlaves(self.log), self.copies, self.clock, self.config.ha, self._take_in)
            self.ownership.when_inherited(self.master.let_go)
        workers = {name: Worker(name, step, self._worker_failed) for name, step in self._steps().items()}
        self.workers = workers
        if self.config.preallocate:
            self.next_files.begin(self.recovery.log_end, workers["preallocate"].wake)
        if self.has_threads:
            for worker in workers.values():
                worker.start()

    def _steps(self) -> dict[str, Step]:
        """The steps that are done again and again, by name."""
        steps: dict[str, Step] = {
            "dispatch": self.dispatch.step,
            "flush": self.log_flush.step,
            "queues": self.derived_flush.step,
        }
        steps |= self.features.steps()
        if self.statistics is not None:
            steps["statistics"] = self.statistics.step
        if self.config.retention:
            steps["retention"] = self.retention.step
        if self.config.pool_buffers:
            steps["commit"] = self.log_flush.commit_step
        if self.config.preallocate:
            steps["preallocate"] = self.next_files.step
        if self.member is not None:
            steps["ledger"] = partial(self.member.step, self.log, self.log_flush.flush)
        if self.master is not None:
            steps["replication"] = self.master.step
        return steps

    def _refusal(self) -> PutStatus | None:
        is_open = self.ownership.refusal is None and not self.follows
        if is_open and not self.reasons and self.retention.full_reason is None:
            return None if self.copies is None else self.copies.refusal()
        self.ownership.require_process()
        return PutStatus.SERVICE_NOT_AVAILABLE

    def _why_unavailable(self) -> str:
        if self.follows:
            return f"this store is a replica of {self.follows}: put the message there"
        return self.condition.why_unavailable()

    def _flush_for_retention(self) -> bool:
        if not self.log_flush.flush():
            return False
        self.parts.queues.flush()
        return True

    def _worker_failed(self, name: str, failure: BaseException) -> None:
        """Puts that would not be dispatched or flushed any more must not be acknowledged either."""
        self.reasons.append(f"the worker {name!r} ended: {in_words(failure)}")
        self.dispatch.give_up_waiting()


def _found_member(fs: FileSystem, root: str, config: StoreConfig) -> "FoundMember | None":
    """The DLedger member that the configuration names, whose log is the store's."""
    if config.dledger is None:
        return None
    from rmqstore.dledger.member import found_member  # noqa: PLC0415  plain stores import nothing of it

    return found_member(fs, root, config)
