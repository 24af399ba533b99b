"""The parts that make a log a broker's storage, put together: topics, groups, offsets, delays, transactions, retries.

Made before the store takes messages, as its hooks are among those that every put asks; `begin` adds what works on the
open store.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetResult, Message, PutResult, PutStatus
from rmqstore.directory.config_files import databases
from rmqstore.directory.deleted_queues import HeldPlaces, held_places, of_before
from rmqstore.directory.queue_files import BATCH, SIMPLE, halved
from rmqstore.directory.queue_kinds import QueueKinds
from rmqstore.engine.broker.config_file import DelayOffsetsFile
from rmqstore.engine.broker.consumer_offsets import ConsumerOffsets
from rmqstore.engine.broker.delay import DECIDING, DelayLevels, asks_for_timer, timer_reason
from rmqstore.engine.broker.delay_delivery import DelayDelivery, Progress, ReadyPut
from rmqstore.engine.broker.retry import Retries
from rmqstore.engine.broker.subscription_groups import SubscriptionGroups
from rmqstore.engine.broker.topics import Topics
from rmqstore.engine.broker.transaction_check import Check, CheckLimits
from rmqstore.engine.broker.transactions import Transactions
from rmqstore.engine.log.deleted_topics import save_deleted_topics
from rmqstore.engine.log.derived.consume_queue import ConsumeQueue
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.engine.log.encode.columns import EncodedColumns
from rmqstore.engine.log.get.fetch import Fetch
from rmqstore.engine.log.opening import configured_kinds
from rmqstore.engine.log.put.appender import Appender
from rmqstore.engine.log.put.commitlog import CommitLog
from rmqstore.engine.log.put.deferred_put import claims_to_be_batch, light_rows
from rmqstore.engine.log.put.gate import Gate, PutHook
from rmqstore.engine.log.retention.rounds import unconsumed_from
from rmqstore.errors import Rejected, StoreClosed
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import names
from rmqstore.formats.deleted_topics import Deleted, DeletedTopic, DeletedTopics
from rmqstore.formats.names import QueueKey
from rmqstore.formats.stored_message import StoredMessage

# --- Deleting topics, so that a crash does not bring them back: noted first, and only then removed.

# Of a queue whose messages have all expired.
_NOWHERE = HeldPlaces(-1, -1)
_NOT_NOTED = DeletedTopic(0)


class TopicDeletion:
    """Deletes topics of the open store at `root`; any thread.

    `noted` is what its recovery left noted; `sync` makes the log durable as far as it goes.
    """

    def __init__(
        self, place: tuple[FileSystem, str], noted: DeletedTopics, queues: QueueTable, appender: Appender,
        tables: tuple[Topics, ConsumerOffsets], sync: Callable[[], None],
    ) -> None:  # fmt: skip
        self._fs, self._root = place
        self._noted = dict(noted)
        self._queues, self._appender = queues, appender
        self._topics, self._offsets = tables
        self._sync = sync
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Ends deleting, once what is under way is done: the directory may be somebody else's from now on."""
        with self._lock:
            self._is_closed = True

    def delete(self, topic: str) -> bool:
        """Deletes a topic; False if there is none.  As Store.delete_topic."""
        if names.is_bookkeeping_topic(topic):
            raise Rejected(f"{topic} is a system topic that the store needs: it cannot be deleted, nor in RocketMQ")
        with self._lock:
            self._require_open()
            if not self._is_there(topic):
                return False
            under_way = threading.Lock()
            with under_way:
                self._offsets.begin_removal(topic, under_way)
                self._delete(topic)
        return True

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosed(f"{self._root} is closed")

    def _delete(self, topic: str) -> None:
        self._sync()  # the note speaks of what is on the disk
        failures: list[OSError] = []
        self._try(failures, lambda: self._queues.remove_topic(topic, lambda: self._forgotten(topic)))
        if failures and not self._noted.get(topic, _NOT_NOTED).is_pending:
            raise failures[0]
        self._complete(topic, failures)

    def held(self, topic: str) -> dict[int, HeldPlaces]:
        """Where in the log the messages of a topic's queues stand, by queue id; of the queues that have some."""
        return _held_places(self._queues, topic)

    def begin_again(self, topic: str, queue_id: int, *, is_alone: bool = False) -> None:
        """Removes what is in the queues of a topic that another store, which this one follows, has deleted and made
        again: of `queue_id` the next message begins it.

        All that the log holds is dispatched, and nobody else appends.  Queues stay of which all may have come since
        the topic was made again, and all others where the queue `is_alone`; the tables stay as they are.

        Raises OSError: a repetition, or the next opening, completes it.
        """
        with self._lock:
            self._require_open()
            self._sync()
            held = {queue_id: _NOWHERE} | self.held(topic)
            is_alone = is_alone and not self._noted.get(topic, _NOT_NOTED).is_pending
            of = (topic, queue_id) if is_alone else topic
            noted = self._noted.get(of, _NOT_NOTED)
            if not noted.is_pending:
                end = self._appender.log_end if is_alone else self._end_of_before(held, queue_id)
                noted = DeletedTopic(end, is_pending=True)
                self._note(of, noted)
            end = noted.log_end
            stay = [each for each, places in held.items() if each != queue_id and (is_alone or places.last >= end)]

            def forgotten() -> int:
                self._appender.forget_topic(topic, stay=stay)
                return end

            self._queues.remove_topic(topic, forgotten, stay)
            self._note(of, replace(noted, is_pending=False))

    def _end_of_before(self, held: Mapping[int, HeldPlaces], queue_id: int) -> int:
        """Where in the log the messages begin that a topic has since it was made again; the log's end if there are
        none yet."""
        goes = of_before(list(held.values()), list(held).index(queue_id))
        firsts = [places.first for places, is_gone in zip(held.values(), goes, strict=True) if not is_gone]
        return min([self._appender.log_end, *firsts])

    def finish(self) -> None:
        """Ends the deletions that a crash or a failing disk interrupted.  Raises OSError."""
        with self._lock:
            for of in [of for of, noted in self._noted.items() if noted.is_pending]:
                if isinstance(of, str):
                    self._complete(of, [])
                else:  # recovery has left its entries out
                    self._note(of, replace(self._noted[of], is_pending=False))

    def _is_there(self, topic: str) -> bool:
        was_begun = self._noted.get(topic, _NOT_NOTED).is_pending
        return was_begun or topic in self._topics.all() or self._appender.knows_topic(topic)

    def _forgotten(self, topic: str) -> int:
        """Where the topic ends, noted, with its next queue offsets forgotten.  Raises OSError with nothing changed."""
        return self._appender.forget_topic(topic, lambda end: self._note(topic, DeletedTopic(end, is_pending=True)))

    def _complete(self, topic: str, failures: list[OSError]) -> None:
        """Takes the topic out of the tables, and notes that all is done.  Raises the first failure, after all was
        tried: what is missing then, a repetition does, or the next opening."""
        if not self._appender.knows_topic(topic):  # nothing was put meanwhile
            self._try(failures, lambda: self._topics.remove(topic))
        self._offsets.remove_topic(topic)
        self._try(failures, self._offsets.persist)
        if failures:
            raise failures[0]
        self._note(topic, replace(self._noted[topic], is_pending=False))

    def _note(self, of: Deleted, deleted: DeletedTopic) -> None:
        noted = self._noted | {of: deleted}
        save_deleted_topics(self._fs, self._root, noted)
        self._noted = noted

    def _try(self, failures: list[OSError], step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as failure:
            failures.append(failure)


def _held_places(queues: QueueTable, topic: str) -> dict[int, HeldPlaces]:
    """By queue id, of the queues of a topic that have messages."""
    found = {}
    for queue in queues.queues():
        if queue.topic == topic:
            found[queue.queue_id] = held_places(queue, SIMPLE, queue.min_offset, queue.max_offset)
    for batch_queue in queues.batches.queues():
        if batch_queue.topic == topic:
            found[batch_queue.queue_id] = held_places(batch_queue, BATCH, *batch_queue.slots)
    return {queue_id: places for queue_id, places in found.items() if places is not None}


# ---

# --- Delivery of delayed messages for light queues: their records say queue offsets, so they are put one by one.
#
# Java: ScheduleMessageService puts every message through putMessage, which numbers it in its light queues.

# Refusals that another try would not change.
_FOR_GOOD = frozenset(
    (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)
)


class LightDelivery:
    """Puts ready-made records as `Appender.put_records` does, in their order, those for light queues as messages.

    A message whose light queues cannot be numbered is stored in its own queue only, so that it does not block others.
    """

    def __init__(self, appender: Appender) -> None:
        self._appender = appender

    def put(self, records: EncodedColumns) -> PutResult:
        """Appends the records; the answer counts those stored, from the first on.  Raises DurabilityLost."""
        done = 0
        for row, message in light_rows(records):
            before = self._appender.put_records(records, done, row)
            done += before.message_count
            if done < row:
                return PutResult(before.status, message_count=done)
            own = self._appender.put_past_hooks(message, waits=False)
            if own.status in _FOR_GOOD:
                continue
            if not own.is_stored:
                return PutResult(own.status, message_count=done)
            done += 1
        rest = self._appender.put_records(records, done)
        return PutResult(rest.status, message_count=done + rest.message_count)


# ---

_HOUR_MS = 3_600_000
_EVERY_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OpenLog:
    """The parts of an open store that the features work on.

    `put` is the store's own, which asks all hooks; `sync` makes the log durable as far as it goes (raises
    DurabilityLost, NotNow).  `deleted_topics` are those that its recovery left noted.
    """

    log: CommitLog
    queues: QueueTable
    fetch: Fetch
    appender: Appender
    put: Callable[[Message], PutResult]
    sync: Callable[[], None]
    has_index: bool
    deleted_topics: Sequence[tuple[Deleted, DeletedTopic]] = ()


class Duties(NamedTuple):
    """The things that a store does by itself: it asks `check` after transactions that stay open too long, if there is
    one.  `is_replica`: delays and transactions are the master's to see to, and what config/ says comes from there.
    """

    check: Check | None = None
    is_replica: bool = False


class Features:
    """The features of the store at `root`, whose lock the caller holds.  `hooks` are to be asked last of all.

    Offsets and progress are saved only after the log is durable as far as they speak of it.  Without `check` no
    transaction is asked after by itself.  `require_store` raises StoreClosed once the store is not this process's.
    """

    def __init__(
        self, fs: FileSystem, root: str, config: StoreConfig, clock: Clock, duties: Duties,
        require_store: Callable[[], None],
    ) -> None:  # fmt: skip
        self._is_replica = duties.is_replica
        self._fs, self._root, self._config, self._clock, self._check = fs, root, config, clock, duties.check
        self.groups = SubscriptionGroups(fs, root, clock)
        self.topics = Topics(
            fs, root, clock, auto_create=config.auto_create_topics, default_queue_nums=config.default_queue_nums,
            retry_queue_nums=lambda group: self.groups.find(group).retry_queue_nums,
        )  # fmt: skip
        self.offsets = ConsumerOffsets(fs, root, clock, require_store)
        self.levels = DelayLevels(config.delay_ms(), long_topics_as_v2=config.long_topics_as_v2)
        self.delay_file = DelayOffsetsFile(fs, root, clock)
        self._transactions: Transactions | None = None

    def gate(
        self, hooks: Sequence[PutHook], refusal: Callable[[], PutStatus | None], why_unavailable: Callable[[], str]
    ) -> Gate:
        """The hooks that a message passes before the log: the caller's, then a topic's permission, then its delay."""
        return Gate(
            refusal=refusal,
            why_unavailable=why_unavailable,
            hooks=(*hooks, self.topics, self.levels),
            admit=self._admit,
            why_not_admitted=self.topics.why_not,
            asks_of_each=bool(hooks),
            deciding=DECIDING,
        )

    def queue_kinds(self) -> QueueKinds:
        """The kinds of queues that are switched on; which topics have batch queues is asked later."""
        return configured_kinds(self._config, self.topics.is_batch_topic)

    def begin(self, opened: OpenLog) -> list[str]:
        """Reads what is stored in config/ and takes up work on the open store; returns warnings.

        Everything that the log holds is dispatched by now.  Raises OSError.
        """
        warnings = [*self.groups.load(), *self.topics.load(), *self.offsets.load()]
        warnings += [
            f"{path}: a broker keeps topics, groups and committed offsets in this RocksDB; this store does not read "
            "them, and the broker will not read this store's, which are in the JSON files beside it"
            for path in databases(self._fs, self._root)
        ]
        progress, more = self._loaded_progress(opened.queues)
        self._opened = opened
        self.offsets.sync_log = opened.sync
        if not self._is_replica:
            ends = opened.queues.next_offsets()
            self.topics.adopt(ends, opened.queues.is_batch_topic)
            warnings += self.offsets.clip(ends)
        place, tables = (self._fs, self._root), (self.topics, self.offsets)
        noted = dict(opened.deleted_topics)
        self.deletion = TopicDeletion(place, noted, opened.queues, opened.appender, tables, opened.sync)
        self.deletion.finish()
        self.retries = Retries(opened.put, self.groups.find)
        is_light = opened.queues.kinds.multi_dispatch
        put = LightDelivery(opened.appender).put if is_light else opened.appender.put_records
        self.delay = DelayDelivery(
            opened.log, opened.queues, ReadyPut(put, opened.appender.form), self.levels, self._clock,
            Progress(progress, self.delay_file.save, opened.sync),
        )  # fmt: skip
        return [*warnings, *more]

    def _loaded_progress(self, queues: QueueTable) -> tuple[dict[int, int], list[str]]:
        """How far each level is delivered that has a queue, also one that is configured no more; and warnings."""
        found, warnings = self.delay_file.load()
        ends = {
            queue_id + 1: end
            for (topic, queue_id), end in queues.next_offsets().items()
            if topic == names.SCHEDULE_TOPIC
        }
        progress = dict.fromkeys(ends, 0) | found
        if not self._is_replica:  # whose tables may be ahead of its log
            warnings += [
                f"{self.delay_file.path}: level {level} was delivered up to offset {offset}, and its queue ends at "
                f"{ends.get(level, 0)}: delivery continues at the end, as in RocketMQ, and messages that waited are "
                "not delivered; the file may be another store's, or newer than the log"
                for level, offset in sorted(found.items())
                if offset > ends.get(level, 0)
            ]
        for level in sorted(level for level in ends if level > self.levels.count):
            queue = queues.find(names.SCHEDULE_TOPIC, level - 1)
            waiting = ends[level] - max(progress[level], queue.min_offset if queue is not None else 0)
            if waiting > 0:
                warnings.append(
                    f"{waiting} messages wait for delay level {level}, which the store does not have now "
                    "(delay_levels): they are delivered once the store has that level"
                )
        return progress, warnings

    def steps(self) -> Mapping[str, Callable[[], float]]:
        """The steps of the store's workers, by name."""
        if self._is_replica:
            return {}
        steps = {"delay": self.delay.step, "offsets": self.offsets.step}
        if self._check is not None:
            steps["transactions"] = self.transactions.check_step
        return steps

    @property
    def transactions(self) -> Transactions:
        """The transactions; what is open is looked for when they are first asked for."""
        if self._transactions is None:
            config = self._config
            limits = CheckLimits(
                check_max=config.transaction_check_max,
                immunity_ms=config.transaction_timeout_ms,
                interval_ms=config.transaction_check_interval_ms,
                reserved_ms=config.file_reserved_hours * _HOUR_MS,
            )
            log = _TransactionLog(self._opened, self.topics)
            transactions = Transactions(log, self.offsets, self._clock, check=self._check, limits=limits)
            transactions.load()
            self._transactions = transactions
        return self._transactions

    def persist(self) -> None:
        """Saves progress and offsets.  Raises OSError, DurabilityLost, NotNow."""
        if self._is_replica:
            return
        self.delay.persist()
        self.offsets.persist()

    def close(self) -> None:
        """Ends writing to config/, before the store's lock is given back."""
        self.deletion.close()
        for each in (self.topics, self.groups, self.offsets, self.delay_file):
            each.close()

    def delay_progress(self) -> dict[int, tuple[int, int]]:
        """By level, how far it is delivered and where its queue ends."""
        queues = {level: self._opened.queues.find(names.SCHEDULE_TOPIC, level - 1) for level in self.delay.offsets}
        return {
            level: (offset, getattr(queues[level], "max_offset", 0)) for level, offset in self.delay.offsets.items()
        }

    def delayed_from(self) -> int | None:
        """From where on the log holds messages that wait for their delay: they are not to expire before they come.

        On a replica the master delivers, and only the time when they are due tells which do.
        """
        queues = self._opened.queues
        if self._is_replica:
            now_ms = self._clock.now_ms()
            own = [queue for queue in queues.queues() if queue.topic == names.SCHEDULE_TOPIC]
            offsets = {queue.queue_id: _first_due_after(queue, now_ms) for queue in own}
        else:
            offsets = {level - 1: offset for level, offset in self.delay.offsets.items()}
        return unconsumed_from(queues, {("", names.SCHEDULE_TOPIC): offsets})

    def failures(self) -> list[str]:
        """A sentence for each thing that failed and is tried again."""
        found = [
            ("the committed offsets could not be saved", self.offsets.last_failure),
            ("a topic could not be created", self.topics.last_failure),
            ("delayed messages could not be delivered", self.delay.last_failure),
            ("a transaction check failed", self._transactions and self._transactions.cycle.failure),
        ]
        return [f"{what}: {why}" for what, why in found if why]

    def _admit(self, queues: Sequence[QueueKey]) -> PutStatus | None:
        return self.topics.admit_columns([topic for topic, _ in queues], [queue_id for _, queue_id in queues])


def _first_due_after(queue: ConsumeQueue, now_ms: int) -> int:
    """The first queue offset of a delay level whose message is due later; they are due in their order."""
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        entries = queue.read(middle, middle + 1)
        waits = len(entries) and int(entries["tags_code"][0]) > now_ms
        low, high = (low, middle) if waits else (middle + 1, high)
    return low


@dataclass(frozen=True, slots=True)
class _TransactionLog:
    """A store as transactions see it: their messages ask no hook but that for topics."""

    opened: OpenLog
    topics: Topics

    def admit(self, message: Message) -> Message | PutStatus:
        """Asks for the topic; a half message cannot be a batch, as its topic has plain queues."""
        if asks_for_timer(message.topic, message.properties):
            return PutStatus.WHEEL_TIMER_NOT_ENABLE
        return PutStatus.MESSAGE_ILLEGAL if claims_to_be_batch(message) else self.topics(message)

    def why_not(self, message: Message) -> str:
        """Why a message was not admitted, in words."""
        if asks_for_timer(message.topic, message.properties):
            return timer_reason(message.properties)
        return self.topics.why_not(message.topic, message.queue_id) or "a half message cannot be a batch"

    def put(self, message: Message) -> PutResult:
        """Stores a message, and waits for the disk as the store and its WAIT say."""
        return self.opened.appender.put_past_hooks(message)

    def put_copy(self, message: Message) -> PutResult:
        """Stores a message without waiting for the disk."""
        return self.opened.appender.put_past_hooks(message, waits=False)

    def sync(self) -> None:
        """Makes the log durable as far as it goes."""
        self.opened.sync()

    def get(self, topic: str, queue_id: int, offset: int, max_count: int) -> GetResult:
        """As Store.get."""
        return self.opened.fetch.get(topic, queue_id, offset, max_count, None, "*")

    def message_at(self, physical_offset: int) -> StoredMessage:
        """As Store.message_at."""
        return self.opened.fetch.message_at(physical_offset)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """As Store.bounds."""
        queue = self.opened.queues.find(topic, queue_id)
        return (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)

    def query(self, topic: str, key: str, max_count: int) -> list[StoredMessage] | None:
        """As Store.query; None where the store has no index."""
        if not self.opened.has_index:
            return None
        return self.opened.fetch.query(topic, key, max_count, 0, _EVERY_MS)

    def offset_after(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """By halving: whatever the clock did, places rise along a queue.  0 for a queue of batches."""
        queue = self.opened.queues.find(topic, queue_id)
        if queue is None:
            return 0

        def is_before(slot: int) -> bool:
            return not (queue.read(slot, slot + 1)["physical_offset"] > physical_offset).any()

        return halved(queue.min_offset, queue.max_offset, is_before)
