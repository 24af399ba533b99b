"""The transactions whose half messages are in one topic: what is open there, and its fate; a store as they need it.

Java: TransactionalMessageServiceImpl, EndTransactionProcessor; TransMessageRocksDBStore for those whose state RocksDB
has.  Stricter than Java in what a transaction is: all copies that checks made of a half message are one, so a fate once
acknowledged cannot be changed through another copy; and op messages are written at once, never collected.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rmqstore.clock import Clock
from rmqstore.core.message import GetResult, Message, PutResult, PutStatus
from rmqstore.engine.broker.transaction_messages import (
    CHECK_GROUP,
    Dialect,
    Prepared,
    check_times,
    checked_message,
    committed_message,
    number,
    op_message,
    op_offsets,
    op_place,
    prepared_of,
    rocksdb_op_message,
)
from rmqstore.engine.broker.transaction_table import OpenTransaction, TransactionTable, identity_of
from rmqstore.errors import Corrupt, DataLost, Rejected
from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.stored_message import StoredMessage

_READ_COUNT = 32
_KEY_COUNT = 64


class TransactionLog(Protocol):
    """A store as transactions need it.  None of the puts asks hooks, only `admit`."""

    def admit(self, message: Message) -> Message | PutStatus:
        """A message to a user's topic as the hook for topics leaves it; the status of a refusal."""

    def why_not(self, message: Message) -> str:
        """Why a message was not admitted, in words."""

    def put(self, message: Message) -> PutResult:
        """Stores a message, and waits for the disk as the store and its WAIT say."""

    def put_copy(self, message: Message) -> PutResult:
        """Stores a message without waiting for the disk, whatever its WAIT says."""

    def sync(self) -> None:
        """Makes the log durable as far as it goes.  Raises DurabilityLost, NotNow."""

    def get(self, topic: str, queue_id: int, offset: int, max_count: int) -> GetResult:
        """As Store.get."""

    def message_at(self, physical_offset: int) -> StoredMessage:
        """As Store.message_at; messages need not be dispatched for that."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """As Store.bounds."""

    def query(self, topic: str, key: str, max_count: int) -> list[StoredMessage] | None:
        """As Store.query; None where the store has no index."""

    def offset_after(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """The queue offset of the first message that stands after a place of the log; the queue's end if none does."""


class GroupOffsets(Protocol):
    """The committed offsets of groups."""

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next queue offset of a group, None where it has none."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets it."""

    def persist(self) -> None:
        """Makes all of them durable."""


class TransactionBook:
    """The transactions of one half topic.  Any thread may use it; one at a time runs checks.

    What is open is kept in memory, some hundred bytes each; `load` finds it again from the half and op queues, from the
    offsets on that CID_RMQ_SYS_TRANS committed: it is made when these are loaded and all of the log is dispatched.
    `new_key` makes the unique key of an op message that needs one.
    """

    def __init__(
        self, log: TransactionLog, offsets: GroupOffsets, clock: Clock, dialect: Dialect, new_key: Callable[[], str]
    ) -> None:  # fmt: skip
        self._log, self._offsets, self._clock, self._new_key = log, offsets, clock, new_key
        self.dialect = dialect
        self._topics = (dialect.half_topic, dialect.op_topic)
        self._lock = threading.Lock()
        half_start, op_start = map(self._start, self._topics)
        self._table = TransactionTable(half_start, op_start)

    def load(self) -> None:
        """Finds what is open; to be called once, before anything else.

        Offsets beyond the queues, of a broker whose log lost its end, are set back at once: new messages come there.
        """
        ends = {topic: self._log.bounds(topic, 0)[1] for topic in self._topics}
        beyond = [topic for topic in ends if (self._offsets.committed(CHECK_GROUP, topic, 0) or 0) > ends[topic]]
        for topic in beyond:
            self._offsets.commit(CHECK_GROUP, topic, 0, ends[topic])
        if beyond:
            self._offsets.persist()
        self._catch_up()
        self._forget_given_up()

    def enter(self, half: Message, result: PutResult) -> None:
        """Enters the half message of a new transaction, which was just put."""
        prepared = _prepared_by(half, result)
        with self._lock:
            if not self._table.is_known(prepared.queue_offset):
                stored_ms = result.store_timestamp_ms
                self._table.register(prepared, half.properties, is_sure=True, stored_ms=stored_ms)

    def pending(self) -> list[Prepared]:
        """The open transactions, each by its newest half message, in the order of these."""
        with self._lock:
            return [transaction.prepared for transaction in self._table]

    @contextmanager
    def claimed(self, prepared: Prepared, half: StoredMessage) -> Iterator[tuple[OpenTransaction, StoredMessage]]:
        """The transaction of a half message that `prepared` names, and its newest one, for this thread alone.

        Raises Rejected where it is decided, given up, or another thread's.
        """
        with self._lock:
            if not self._table.is_known(prepared.queue_offset):
                self._register(half)
            transaction = self._table.find(prepared_of(half), half.properties)
            if transaction is None:
                raise Rejected(f"{prepared} is already committed, rolled back or given up")
            if transaction.is_claimed:
                raise Rejected(f"{prepared} is being decided by another thread")
            transaction.is_claimed = True
        try:
            if transaction.prepared.physical_offset != prepared.physical_offset:
                half = half_at(self._log, transaction.prepared.physical_offset)
            yield transaction, half
        finally:
            self.release(transaction)

    def claim_next(self, transaction: OpenTransaction) -> StoredMessage | None:
        """The newest half message of an open transaction, which is then the caller's to decide; None where another
        thread has it, or its record is gone."""
        with self._lock:
            if transaction.is_claimed or not self._table.is_open(transaction):
                return None
            transaction.is_claimed = True
        try:
            return half_at(self._log, transaction.prepared.physical_offset)
        except BaseException as failure:
            self.release(transaction)
            if isinstance(failure, Rejected):
                return None
            raise

    def release(self, transaction: OpenTransaction) -> None:
        """Ends a claim."""
        with self._lock:
            transaction.is_claimed = False

    def known(self) -> list[OpenTransaction]:
        """The open transactions, also those that were put without `enter`, in the order of the half queue; those of
        which no half message can be read any more are forgotten."""
        self._catch_up()
        low, _ = self._log.bounds(self.dialect.half_topic, 0)
        with self._lock:
            for transaction in list(self._table):
                if transaction.prepared.queue_offset < low and not transaction.is_claimed:
                    self._table.settle(transaction)
            return list(self._table)

    def count_check(self, transaction: OpenTransaction, half: StoredMessage, is_immune: bool) -> int | None:
        """Counts a check of a claimed transaction; where its newest half message now stands, None if that failed.

        A copy of the half message says it, and stands for the transaction from now on.  In the topic of RocksDB there
        are no copies: checks are counted until the store is closed, and not while it is immune.
        """
        if not self.dialect.has_copies:
            transaction.check_times += not is_immune
            return half.physical_offset
        copy = checked_message(half, is_immune)
        result = self._log.put_copy(copy)
        if not result.is_stored:
            return None
        with self._lock:
            self._table.extend(transaction, _prepared_by(copy, result), check_times(copy.properties))
        return result.physical_offset

    def decide(
        self, transaction: OpenTransaction, half: StoredMessage, *, is_commit: bool,
        put_op: Callable[[Message], PutResult],
    ) -> PutResult:  # fmt: skip
        """Writes the fate of a transaction that the caller has claimed: the committed message, then the op message.

        A crash between the two leaves it open; the next decision finds the committed message (`_find_committed`).
        """
        self._look(transaction, half)
        result = transaction.committed
        if result is not None and not is_commit:
            raise Rejected(f"{transaction.prepared} is already committed")
        if is_commit and result is None:
            try:
                message = committed_message(half)
            except ValueError:
                raise Rejected(f"{transaction.prepared} has no queue to go to") from None
            result = self._log.put_copy(message)
            if not result.is_stored:
                return result
            transaction.committed = result
        op = self.settle(transaction, put_op)
        return op if result is None or not op.is_stored else result._replace(status=op.status)

    def settle(self, transaction: OpenTransaction, put_op: Callable[[Message], PutResult]) -> PutResult:
        """Writes that a claimed transaction is decided, by all its half messages; it stays open if that fails."""
        with self._lock:
            half_offsets = tuple(transaction.half_offsets)
        now_ms = self._clock.now_ms()
        if self.dialect.has_copies:
            op = put_op(op_message(half_offsets, now_ms))
        else:
            op = put_op(rocksdb_op_message(transaction.prepared, self._new_key(), now_ms))
        if op.is_stored:
            with self._lock:
                self._table.ops.add(op.queue_offset, half_offsets)
                self._table.settle(transaction)
        return op

    def is_committed(self, transaction: OpenTransaction, half: StoredMessage) -> bool:
        """Whether the committed message of a claimed transaction is in its topic."""
        self._look(transaction, half)
        return transaction.committed is not None

    def commit_offsets(self) -> None:
        """Moves the offsets of the group to where everything before is done with and durable."""
        with self._lock:
            wanted = dict(zip(self._topics, self._table.advance(), strict=True))
        if wanted != {topic: self._offsets.committed(CHECK_GROUP, topic, 0) for topic in wanted}:
            self._log.sync()
            for topic, offset in wanted.items():
                self._offsets.commit(CHECK_GROUP, topic, 0, offset)

    def _start(self, topic: str) -> int:
        """Where the group goes on in a queue: what it committed, as far as that is still, or already, there."""
        low, high = self._log.bounds(topic, 0)
        committed = self._offsets.committed(CHECK_GROUP, topic, 0)
        return low if committed is None else min(max(committed, low), high)

    def _look(self, transaction: OpenTransaction, half: StoredMessage) -> None:
        """Finds the committed message of a transaction that an earlier run may have committed."""
        if not transaction.is_sure:
            transaction.committed = self._find_committed(transaction, half)
            transaction.is_sure = True

    def _find_committed(self, transaction: OpenTransaction, half: StoredMessage) -> PutResult | None:
        topic, key = half.properties.get(properties.REAL_TOPIC, ""), half.properties.get(properties.UNIQUE_KEY)
        queue_id = number(half.properties.get(properties.REAL_QUEUE_ID))
        keyed: Iterable[StoredMessage] | None = self._log.query(topic, key, _KEY_COUNT) if key else None
        if keyed is None:  # then it is among those that its queue got since the first half message
            if queue_id is None:
                return None
            start = self._log.offset_after(topic, queue_id, transaction.physical_offsets[0])
            keyed = _messages(self._log, topic, queue_id, start)
        for message in keyed:
            if _is_committed_of(message, transaction):
                place, size, id_ = message.physical_offset, message.store_size, message.offset_msg_id
                stored_ms = message.store_timestamp_ms
                return PutResult(PutStatus.PUT_OK, place, size, id_, stored_ms, message.queue_offset, 1)
        return None

    def _catch_up(self) -> None:
        """Enters what the half and op queues hold and the table does not know."""
        table, decided = self._table, set[int]()
        for op in _messages(self._log, self.dialect.op_topic, 0, table.ops.end):
            named = self._named_by(op)
            with self._lock:
                if not table.ops.is_known(op.queue_offset):
                    decided.update(named)
                    table.ops.skip_to(op.queue_offset)
                    table.ops.add(op.queue_offset, named)
        for half in _messages(self._log, self.dialect.half_topic, 0, table.frontier):
            with self._lock:
                table.skip_to(half.queue_offset)
                if not table.is_known(half.queue_offset):
                    self._register(half)
        if decided:
            self._drop_decided(decided)

    def _register(self, half: StoredMessage) -> None:
        stored_ms = half.store_timestamp_ms
        self._table.register(prepared_of(half), half.properties, is_sure=False, stored_ms=stored_ms)

    def _named_by(self, op: StoredMessage) -> list[int]:
        """The queue offsets of the half messages that an op message names, as far as they can be read."""
        if self.dialect.has_copies:
            return op_offsets(op)
        place = op_place(op)
        try:
            half = None if place is None else half_at(self._log, place)
        except Rejected:
            return []
        return [half.queue_offset] if half is not None and half.topic == self.dialect.half_topic else []

    def _drop_decided(self, decided: set[int]) -> None:
        """Takes out the transactions of which op messages that this store did not write name a half message.

        Brokers write such ones also for a half message that a check has copied on since: it is done with by itself.
        """
        for half_offset in sorted(decided):
            if half_offset < self._table.horizon and len(self._table):
                for half in _messages(self._log, self.dialect.half_topic, 0, half_offset, half_offset + 1):
                    found = self._table.find(prepared_of(half), half.properties)
                    decided.update(found.half_offsets if found is not None else ())
        with self._lock:
            for transaction in list(self._table):
                if not decided.isdisjoint(transaction.half_offsets) and not transaction.is_claimed:
                    self._table.settle(transaction)

    def _forget_given_up(self) -> None:
        """Takes out what an earlier run gave up after it committed its offsets for the last time."""
        with self._lock:
            waiting = {(identity_of(found.prepared), found.check_times): found for found in self._table}
        if not waiting:
            return
        oldest = min(found.physical_offsets[0] for found in waiting.values())
        low, high = self._log.bounds(names.TRANSACTION_CHECK_TOPIC, 0)
        while low < high:
            start = max(high - _READ_COUNT, low)
            messages = list(_messages(self._log, names.TRANSACTION_CHECK_TOPIC, 0, start, high))
            for message in messages:
                key = (identity_of(prepared_of(message)), check_times(message.properties))
                if message.physical_offset > oldest and key in waiting:
                    with self._lock:
                        self._table.settle(waiting.pop(key))
            if not waiting or (messages and messages[0].physical_offset < oldest):
                return
            high = start


def half_at(log: TransactionLog, physical_offset: int) -> StoredMessage:
    """A half message by its place.  Raises Rejected where none can be read."""
    try:
        try:
            return log.message_at(physical_offset)
        except DataLost:
            log.sync()  # with a transient pool, what was just put can be read when it is committed
            return log.message_at(physical_offset)
    except (DataLost, Corrupt) as error:
        raise Rejected(f"no half message at {physical_offset}: {error}") from error


def _messages(
    log: TransactionLog, topic: str, queue_id: int, start: int, end: int | None = None
) -> Iterator[StoredMessage]:
    """The messages of a queue in [start, end) that can be read."""
    end = log.bounds(topic, queue_id)[1] if end is None else end
    while start < end:
        result = log.get(topic, queue_id, start, min(_READ_COUNT, end - start))
        yield from (message for message in result.messages if message.is_whole)
        if result.next_offset <= start:
            return
        start = result.next_offset


def _prepared_by(half: Message, result: PutResult) -> Prepared:
    """The name of a half message that was just put."""
    found: Mapping[str, str] = half.properties
    assert half.born_timestamp_ms is not None
    return Prepared(
        found.get(properties.REAL_TOPIC, ""), found.get(properties.PRODUCER_GROUP, ""),
        found.get(properties.UNIQUE_KEY, ""), result.queue_offset, result.physical_offset, half.born_timestamp_ms,
    )  # fmt: skip


def _is_committed_of(message: StoredMessage, transaction: OpenTransaction) -> bool:
    is_commit = message.sys_flag & sys_flag.TRANSACTION_MASK == sys_flag.COMMIT
    return is_commit and message.prepared_transaction_offset in transaction.physical_offsets
