"""An embedded store that writes RocketMQ's files: what programs ask of it.  Its parts are `engine`'s."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self, cast
from weakref import WeakValueDictionary

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.config import StoreConfig
from rmqstore.core.annotations import checked
from rmqstore.core.message import GetResult, Message, PutResult
from rmqstore.core.safe_text import notebook_html
from rmqstore.engine.broker.consumer_offsets import ConsumerOffsets
from rmqstore.engine.broker.delay_delivery import DelayDelivery
from rmqstore.engine.broker.retry import Retries
from rmqstore.engine.broker.subscription_groups import SubscriptionGroups
from rmqstore.engine.broker.topics import Topics
from rmqstore.engine.broker.transaction_check import Check
from rmqstore.engine.broker.transactions import Transactions
from rmqstore.engine.consumer import Consumer, Start
from rmqstore.engine.engine import Attached, Engine
from rmqstore.engine.log.derived.dispatch_loop import Dispatcher
from rmqstore.engine.log.encode.arrow_rows import ArrowRows
from rmqstore.engine.log.get.by_time import Boundary
from rmqstore.engine.log.get.fetch import Fetch
from rmqstore.engine.log.put.gate import PutHook
from rmqstore.engine.log.recovery.plan import RecoveryPlan
from rmqstore.engine.log.retention.plan import RetentionPlan
from rmqstore.engine.stats import Health, StoreStatistics
from rmqstore.errors import DurabilityLost, NotNow, Rejected, StoreClosed
from rmqstore.files.filesystem import FileSystem, RealFileSystem
from rmqstore.files.reading import StorePath, canonical_path
from rmqstore.formats.message_fields import messages_of
from rmqstore.formats.stored_message import StoredMessage

# --- Whether a call comes in the middle of another one: from a signal handler, or from a hook.


def is_inside_call_of(owner: object) -> bool:
    """Whether this thread stands in another call of a method of `owner`, below the one that asks and in its module (a
    subclass may well call it).

    Such a call may hold locks, and it does not go on before the caller returns: a wait for it never ends.
    """
    asking = sys._getframe(1)
    frame = asking.f_back
    while frame is not None:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount]
        is_method = code.co_filename == asking.f_code.co_filename and names[:1] == ("self",)
        if is_method and code.co_name != "__exit__" and frame.f_locals.get("self") is owner:
            return True
        frame = frame.f_back
    return False


# ---

# The stores of this process, by their ids; those that are closed as well, while somebody has them.
_stores: WeakValueDictionary[int, "Store"] = WeakValueDictionary()


class _DispatchedEnd(NamedTuple):
    """The end of what can be read, for consumers that wait; raises StoreClosed, DurabilityLost."""

    engine: Engine

    @property
    def position(self) -> int:
        return self.engine.dispatch.position

    def wait_beyond(self, offset: int, timeout_s: float) -> None:
        self.engine.ownership.require_open()
        if self.engine.reasons:  # puts are refused, so that no message comes any more
            raise DurabilityLost("; ".join(self.engine.reasons))
        self.engine.dispatch.wait_beyond(offset, timeout_s)


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
        self.path, self.config = canonical_path(path), config
        _stores[id(self)] = self
        attached = Attached(tuple(hooks), tuple(dispatchers), check, owner=self)
        self._engine = Engine(self.path, config, clock, fs, attached, workers)  # last: an interrupt leaves none open

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        engine = getattr(self, "_engine", None)  # None while it is opened
        kind = type(self).__name__
        return f"<{kind}>" if engine is None else engine.condition.line(kind, self.config.flush)

    def _repr_html_(self) -> str | None:
        """The topics with most messages, as a notebook shows them; None once it is closed: it shows the line."""
        if not self._is_open:
            return None
        queues, messages = Counter[str](), Counter[str]()
        for topic, queue_id in self.queues():
            first, end = self.bounds(topic, queue_id)
            queues[topic] += 1
            messages[topic] += end - first
        rows = [(topic, queues[topic], count) for topic, count in messages.most_common()]
        return notebook_html(repr(self), ("topic", "queues", "messages"), rows, len(rows))

    @property
    def _is_open(self) -> bool:
        engine = getattr(self, "_engine", None)
        return engine is not None and engine.ownership.refusal is None

    @property
    def recovery(self) -> RecoveryPlan:
        """The facts that its opening found, and the changes that it made."""
        return self._engine.recovery

    @property
    def warnings(self) -> list[str]:
        """Sentences for people about what its opening found; grows."""
        return self._engine.warnings

    def put(self, message: Message) -> PutResult:
        """Stores one message; with SYNC flush it is on the disk when this returns PUT_OK.

        A message that is refused is an answer, with a `reason`; its `raise_for_status` makes an error of that.  Raises
        WrongType for a field of wrong type, DurabilityLost.
        """
        return self._engine.put(message)

    def put_batch(self, messages: Iterable[Message]) -> PutResult:
        """Stores messages of one queue together, next to each other (RocketMQ: putMessages).

        Raises Rejected for messages of several queues, WrongType, DurabilityLost.
        """
        return self._engine.put_batch(messages_of(messages))

    def put_many(self, messages: Iterable[Message]) -> list[PutResult]:
        """Stores messages of any topics and queues in their order: one answer each, as `put` gives it, and one wait for
        the disk, where those that `put` would wait for wait together.  A message that is refused keeps no other back.

        The messages are taken first, whatever brings them: if it raises, or one is of wrong type (WrongType), or a hook
        raises, nothing is stored.  Raises DurabilityLost: a beginning of them may be stored, and so it is where
        anything else ends the call (Ctrl-C, say).
        """
        return cast("list[PutResult]", self._engine.put_many(messages_of(messages)))

    def put_each(self, messages: Iterable[Message]) -> list[PutResult | Exception]:
        """`put_many` for messages that have nothing to do with each other: one of wrong type, or one for which a hook
        raises, is answered by that error, and keeps no other back.
        """
        return self._engine.put_many(messages_of(messages), keeps_errors=True)

    def put_columns(self, table: ArrowRows) -> PutResult:
        """Stores the rows of an Arrow table, the bulk path; hooks are not asked.  Columns: those of `record_blocks`
        (`log.encode.columns`).

        Takes whatever gives Arrow data: of pyarrow a Table, RecordBatch or RecordBatchReader, data frames of Polars and
        pandas, results of DuckDB.  A stream is read to its end before anything is stored.
        `message_count` of the answer says how many rows were stored, from the first on.  Raises Rejected with nothing
        stored, DurabilityLost.
        """
        return self._engine.put_columns(table)

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
        statistics, clock = self._engine.statistics, self._engine.clock
        began_s = clock.monotonic_s()
        result = self._reader().get(topic, queue_id, offset, max_count, max_bytes, tags)
        if statistics is not None:
            statistics.get_done(result, clock.monotonic_s() - began_s)
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
        """First queue offset that can be read and the one after the last; (0, 0) for a queue that is not there."""
        self._engine.ownership.require_process()
        return self._engine.parts.queues.bounds(topic, queue_id)

    def queues(self) -> list[tuple[str, int]]:
        """Topic and queue id of every queue."""
        self._engine.ownership.require_process()
        return sorted(self._engine.parts.queues.next_offsets())

    @property
    def topics(self) -> Topics:
        """The topics: which there are, how many queues they have, who may write."""
        self._engine.ownership.require_process()
        return self._engine.features.topics

    @property
    def groups(self) -> SubscriptionGroups:
        """The consumer groups and their retry limits."""
        self._engine.ownership.require_process()
        return self._engine.features.groups

    @property
    def offsets(self) -> ConsumerOffsets:
        """How far each group has consumed."""
        self._engine.ownership.require_process()
        return self._engine.features.offsets

    @property
    def delay(self) -> DelayDelivery:
        """The messages that wait for their delay level: a message whose property DELAY is 1 … 18."""
        self._engine.ownership.require_process()
        return self._engine.features.delay

    @property
    def retries(self) -> Retries:
        """Sending messages back for a group, to come again or to end as dead letters."""
        self._engine.ownership.require_process()
        return self._engine.features.retries

    @property
    def transactions(self) -> Transactions:
        """Messages that nobody sees before they are committed."""
        self._require_open()
        return self._engine.features.transactions

    @checked
    def consumer(self, group: str, topic: str, tags: str = "*", consume_from: Start = "earliest") -> Consumer:
        """A consumer of a topic's messages with one of the tags, for a group that consumes nothing else meanwhile."""
        self._require_open()
        readable_end = _DispatchedEnd(self._engine) if self._engine.has_threads else None
        return Consumer(self, self.offsets, self.retries, group, {topic: tags}, consume_from, readable_end)

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
        return self._engine.features.deletion.delete(topic)

    @checked
    def clean(self, *, any_age: bool = False, dry_run: bool = False) -> RetentionPlan:
        """Deletes log files that are old enough, or of `any_age`, but never the newest one, with what led to them; some
        files at a time, and the rest by the next calls.  Returns what was done, or would be.  Raises OSError, NotNow.
        """
        self._require_open()
        retention = self._engine.retention
        return retention.plan(any_age=any_age) if dry_run else retention.clean_now(any_age=any_age)

    def statistics(self) -> StoreStatistics:
        """The store's figures since it was opened.  Raises Rejected where the configuration has switched it off."""
        self._engine.ownership.require_process()
        if self._engine.statistics is None:
            raise Rejected("this store keeps no statistics: open it without statistics=False")
        return self._engine.statistics.snapshot()

    @checked
    def flush(self, timeout_s: float = 60.0) -> None:
        """Makes everything put until now durable and readable.  Raises DurabilityLost, NotNow at the timeout."""
        self._require_open()
        self._engine.flush(timeout_s)

    @property
    def ha_address(self) -> str | None:
        """host:port where slaves attach; None without `StoreConfig(ha=…)`."""
        self._engine.ownership.require_process()
        return None if self._engine.master is None else self._engine.master.address

    def slaves(self) -> dict[str, int]:
        """By address, how far each connected slave has acknowledged the log; empty without `StoreConfig(ha=…)`."""
        self._engine.ownership.require_process()
        return {} if self._engine.master is None else self._engine.master.slaves

    def step(self) -> None:
        """Has every worker do one step, in this thread: for a store without threads.  Raises StoreClosed.

        What a step raises ends its worker, as in a thread: `health` tells.
        """
        self._require_open()
        for worker in self._engine.workers.values():
            worker.step_once()

    def health(self) -> Health:
        """Whether the store takes messages, and why not."""
        return self._engine.condition.health()

    def close(self) -> None:
        """Ends the store: what was put is dispatched and made durable, and only then it counts as closed cleanly.

        Puts that are under way end first or are refused; where another thread closes, waits for it.  Does nothing in a
        child made by fork.  Raises DurabilityLost when that fails: the next opening recovers the store; and NotNow in a
        signal handler that interrupted another call of this store: leave that call first, by SystemExit, say.
        """
        ownership = self._engine.ownership
        if not ownership.is_inherited and not ownership.has_ended and is_inside_call_of(self):
            raise NotNow(
                f"{self.path} cannot be closed inside another call of the store: raise SystemExit in the signal "
                "handler, and close the store where the exception arrives, as `with open_store(…)` does"
            )
        self._engine.close()

    def abandon(self) -> None:
        """Ends the store as a crash would: nothing is made durable any more, and the next opening recovers it."""
        self._engine.abandon()

    def _reader(self) -> Fetch:
        self._require_open()
        return self._engine.fetch

    def _require_open(self) -> None:
        self._engine.ownership.require_open()


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


@checked
def opened_store(path: StorePath) -> Store:
    """The store that this process has open at `path`: for a notebook whose variable was lost.

    It is the very object that `open_store` gave; a store without threads is found only while something refers to it.
    Raises StoreClosed where this process has none open there.
    """
    wanted = canonical_path(path)
    for found in _stores.valuerefs():
        store = found()
        if store is not None and store._is_open:
            real_path = store._engine.fs.real_path
            if real_path(store.path) == real_path(wanted):
                return store
    raise StoreClosed(f"this process has no store open at {wanted}: rmqstore.open_store opens it")
