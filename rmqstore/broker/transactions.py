"""Transactions: messages that nobody gets before their producer commits them, and nobody if it does not.

Java: TransactionalMessageServiceImpl, EndTransactionProcessor.  Stricter than Java in what a
transaction is: all copies that checks made of a half message are one, so a fate once acknowledged cannot be changed
through another copy; and op messages are written at once, never collected.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rmqstore import arguments
from rmqstore.annotations import checked
from rmqstore.broker.transaction_check import Check, CheckCycle, CheckLimits
from rmqstore.broker.transaction_log import GroupOffsets, TransactionLog
from rmqstore.broker.transaction_messages import (
    CHECK_GROUP,
    Prepared,
    check_times,
    committed_message,
    half_message,
    number,
    op_message,
    op_offsets,
    prepared_of,
)
from rmqstore.broker.transaction_table import OpenTransaction, TransactionTable, identity_of
from rmqstore.clock import Clock
from rmqstore.errors import Corrupt, DataLost, Rejected
from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.message_fields import plain_message
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.encode.record_frame import has_plain_types
from rmqstore.message import Message, PutResult, PutStatus

_READ_COUNT = 32
_KEY_COUNT = 64
_TOPICS = (names.HALF_TOPIC, names.OP_HALF_TOPIC)


def new_transaction_id() -> str:
    """A unique key for a message that came without one: 32 hexadecimal digits, as clients make them."""
    return uuid.uuid4().hex.upper()


class Transactions:
    """The transactions of one store.  Any thread may prepare, commit and roll back; one calls `check_step`.

    What is open is kept in memory, some hundred bytes each; `load` finds it again from the half and op queues, from the
    offsets on that CID_RMQ_SYS_TRANS committed: it is made when these are loaded and all of the log is dispatched.
    Without `check` nothing is checked or given up.
    """

    def __init__(
        self, log: TransactionLog, offsets: GroupOffsets, clock: Clock, *, check: Check | None = None,
        limits: CheckLimits | None = None, new_key: Callable[[], str] = new_transaction_id,
    ) -> None:  # fmt: skip
        self._log, self._offsets, self._clock = log, offsets, clock
        self._new_key = new_key
        self._lock = threading.Lock()
        self._table = TransactionTable(self._start(names.HALF_TOPIC), self._start(names.OP_HALF_TOPIC))
        self.cycle = CheckCycle(self, log, clock, check, limits or CheckLimits())

    def load(self) -> None:
        """Finds what is open; to be called once, before anything else.

        Offsets beyond the queues, of a broker whose log lost its end, are set back at once: new messages come there.
        """
        ends = {topic: self._log.bounds(topic, 0)[1] for topic in _TOPICS}
        beyond = [topic for topic in _TOPICS if (self._offsets.committed(CHECK_GROUP, topic, 0) or 0) > ends[topic]]
        for topic in beyond:
            self._offsets.commit(CHECK_GROUP, topic, 0, ends[topic])
        if beyond:
            self._offsets.persist()
        self._catch_up()
        self._forget_given_up()

    def prepare(self, message: Message, group: str = "") -> PutResult:
        """Stores a message out of sight; its place is that of the half message, which `prepared` makes a name of.

        `group` is the producer's (PGROUP).  The real topic's refusal is the answer.  Raises WrongType, DurabilityLost.
        """
        if type(message) is not Message or not _is_bare(message):
            message = plain_message(message)
        group = arguments.text("group", group)
        admitted = self._log.admit(message)
        if isinstance(admitted, PutStatus):
            return PutResult(admitted, reason=self._log.why_not(message))
        half = half_message(admitted, group, self._new_key(), self._clock.now_ms())
        result = self._log.put(half)
        if result.is_stored:
            prepared = _prepared_by(half, result)
            with self._lock:
                if not self._table.is_known(prepared.queue_offset):
                    self._table.register(prepared, half.properties, is_sure=True)
        return result

    @checked
    def prepared(self, result: PutResult) -> Prepared:
        """The name of the transaction that `prepare` answered with.  Raises Rejected for another answer."""
        half = self.half_at(result.physical_offset)
        if half.topic != names.HALF_TOPIC or half.queue_offset != result.queue_offset:
            raise Rejected(f"no half message was stored at {result.physical_offset}")
        return prepared_of(half)

    @checked
    def commit(self, prepared: Prepared) -> PutResult:
        """Makes the message visible in its topic; the answer is about that message, durable as a put is.

        With a status that does not store it the transaction stays open.  Raises Rejected for a transaction that is
        decided, or that `prepared` does not name rightly; DurabilityLost.
        """
        with self._claimed(prepared) as (transaction, half):
            return self.decide(transaction, half, is_commit=True, put_op=self._log.put)

    @checked
    def rollback(self, prepared: Prepared) -> PutResult:
        """Sees to it that nobody gets the message; the answer is about the op message.  Raises as `commit` does."""
        with self._claimed(prepared) as (transaction, half):
            return self.decide(transaction, half, is_commit=False, put_op=self._log.put)

    def pending(self) -> list[Prepared]:
        """The open transactions, each by its newest half message, in the order of these."""
        with self._lock:
            return [transaction.prepared for transaction in self._table]

    def check_step(self) -> float:
        """Asks after old transactions when it is time to; seconds until the next time."""
        return self.cycle.step()

    def claim_next(self, transaction: OpenTransaction) -> StoredMessage | None:
        """The newest half message of an open transaction, which is then the caller's to decide; None where another
        thread has it, or its record is gone."""
        with self._lock:
            if transaction.is_claimed or not self._table.is_open(transaction):
                return None
            transaction.is_claimed = True
        try:
            return self.half_at(transaction.prepared.physical_offset)
        except Rejected:
            self.release(transaction)
            return None

    def release(self, transaction: OpenTransaction) -> None:
        """Ends a claim."""
        with self._lock:
            transaction.is_claimed = False

    def known(self) -> list[OpenTransaction]:
        """The open transactions, also those that were put without `prepare`, in the order of the half queue; those of
        which no half message can be read any more are forgotten."""
        self._catch_up()
        low, _ = self._log.bounds(names.HALF_TOPIC, 0)
        with self._lock:
            for transaction in list(self._table):
                if transaction.prepared.queue_offset < low and not transaction.is_claimed:
                    self._table.settle(transaction)
            return list(self._table)

    def continued(self, transaction: OpenTransaction, copy: Message, result: PutResult) -> None:
        """Has a check's copy stand for a transaction that the caller has claimed."""
        prepared = _prepared_by(copy, result)
        with self._lock:
            self._table.extend(transaction, prepared, check_times(copy.properties))

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
            raise Rejected(f"{transaction.prepared} is committed")
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
        op = put_op(op_message(half_offsets, self._clock.now_ms()))
        if op.is_stored:
            with self._lock:
                self._table.ops.add(op.queue_offset, half_offsets)
                self._table.settle(transaction)
        return op

    def commit_offsets(self) -> bool:
        """Moves the offsets of the group to where everything before is done with and durable; whether they moved."""
        with self._lock:
            wanted = dict(zip(_TOPICS, self._table.advance(), strict=True))
        if wanted == {topic: self._offsets.committed(CHECK_GROUP, topic, 0) for topic in _TOPICS}:
            return False
        self._log.sync()
        for topic, offset in wanted.items():
            self._offsets.commit(CHECK_GROUP, topic, 0, offset)
        return True

    def is_committed(self, transaction: OpenTransaction, half: StoredMessage) -> bool:
        """Whether the committed message of a claimed transaction is in its topic."""
        self._look(transaction, half)
        return transaction.committed is not None

    def _start(self, topic: str) -> int:
        """Where the group goes on in a queue: what it committed, as far as that is still, or already, there."""
        low, high = self._log.bounds(topic, 0)
        committed = self._offsets.committed(CHECK_GROUP, topic, 0)
        return low if committed is None else min(max(committed, low), high)

    @contextmanager
    def _claimed(self, prepared: Prepared) -> Iterator[tuple[OpenTransaction, StoredMessage]]:
        """The transaction that `prepared` names and its newest half message, for this thread alone."""
        half = self.half_at(prepared.physical_offset)
        if half.topic != names.HALF_TOPIC or not _agree(prepared_of(half), prepared):
            raise Rejected(f"{prepared} is not what was prepared there: {prepared_of(half)}")
        with self._lock:
            if not self._table.is_known(prepared.queue_offset):
                self._table.register(prepared_of(half), half.properties, is_sure=False)
            transaction = self._table.find(prepared_of(half), half.properties)
            if transaction is None:
                raise Rejected(f"{prepared} is decided already, or was given up")
            if transaction.is_claimed:
                raise Rejected(f"{prepared} is being decided by another thread")
            transaction.is_claimed = True
        try:
            if transaction.prepared.physical_offset != prepared.physical_offset:
                half = self.half_at(transaction.prepared.physical_offset)
            yield transaction, half
        finally:
            self.release(transaction)

    def half_at(self, physical_offset: int) -> StoredMessage:
        """A half message by its place.  Raises Rejected where none can be read."""
        try:
            try:
                return self._log.message_at(physical_offset)
            except DataLost:
                self._log.sync()  # with a transient pool, what was just put can be read when it is committed
                return self._log.message_at(physical_offset)
        except (DataLost, Corrupt) as error:
            raise Rejected(f"no half message at {physical_offset}: {error}") from error

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
            oldest = self.half_at(transaction.physical_offsets[0])
            start = self._log.offset_at(topic, queue_id, oldest.store_timestamp_ms)
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
        for op in _messages(self._log, names.OP_HALF_TOPIC, 0, table.ops.end):
            with self._lock:
                if not table.ops.is_known(op.queue_offset):
                    named = op_offsets(op)
                    decided.update(named)
                    table.ops.skip_to(op.queue_offset)
                    table.ops.add(op.queue_offset, named)
        for half in _messages(self._log, names.HALF_TOPIC, 0, table.frontier):
            with self._lock:
                table.skip_to(half.queue_offset)
                if not table.is_known(half.queue_offset):
                    table.register(prepared_of(half), half.properties, is_sure=False)
        if decided:
            self._drop_decided(decided)

    def _drop_decided(self, decided: set[int]) -> None:
        """Takes out the transactions of which op messages that this store did not write name a half message.

        Brokers write such ones also for a half message that a check has copied on since: it is done with by itself.
        """
        for half_offset in sorted(decided):
            if half_offset < self._table.horizon and len(self._table):
                for half in _messages(self._log, names.HALF_TOPIC, 0, half_offset, half_offset + 1):
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


def _is_bare(message: Message) -> bool:
    """Whether a message has plain types and no properties."""
    return has_plain_types(message) and type(message.properties) is dict and not message.properties


def _prepared_by(half: Message, result: PutResult) -> Prepared:
    """The name of a half message that was just put."""
    found: Mapping[str, str] = half.properties
    assert half.born_timestamp_ms is not None
    return Prepared(
        found.get(properties.REAL_TOPIC, ""), found.get(properties.PRODUCER_GROUP, ""),
        found.get(properties.UNIQUE_KEY, ""), result.queue_offset, result.physical_offset, half.born_timestamp_ms,
    )  # fmt: skip


def _agree(found: Prepared, named: Prepared) -> bool:
    """Whether a request names what was found (Java: checkPrepareMessage)."""
    is_same_place = (found.queue_offset, found.physical_offset) == (named.queue_offset, named.physical_offset)
    return is_same_place and found.group == named.group


def _is_committed_of(message: StoredMessage, transaction: OpenTransaction) -> bool:
    is_commit = message.sys_flag & sys_flag.TRANSACTION_MASK == sys_flag.COMMIT
    return is_commit and message.prepared_transaction_offset in transaction.physical_offsets
