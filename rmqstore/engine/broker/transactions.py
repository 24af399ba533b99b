"""Transactions: messages that nobody gets before their producer commits them, and nobody if it does not."""

import uuid
from collections.abc import Callable
from dataclasses import replace

from rmqstore.clock import Clock
from rmqstore.core import arguments
from rmqstore.core.annotations import checked
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.broker.transaction_book import GroupOffsets, TransactionBook, TransactionLog, half_at
from rmqstore.engine.broker.transaction_check import Check, CheckCycle, CheckLimits
from rmqstore.engine.broker.transaction_messages import OF_QUEUES, OF_ROCKSDB, Prepared, half_message, prepared_of
from rmqstore.engine.log.encode.record_frame import has_plain_types
from rmqstore.errors import NotNow, Rejected
from rmqstore.formats import names
from rmqstore.formats.message_fields import plain_message


def new_transaction_id() -> str:
    """A unique key for a message that came without one: 32 hexadecimal digits, as clients make them."""
    return uuid.uuid4().hex.upper()


class Transactions:
    """The transactions of one store.  Any thread may prepare, commit and roll back; one calls `check_step`.

    It is made when the offsets of groups are loaded and all of the log is dispatched.  New ones go to the usual half
    topic; those that a broker with transRocksDBEnable left open in its own are known beside them.  Without `check`
    nothing is checked or given up.
    """

    def __init__(
        self, log: TransactionLog, offsets: GroupOffsets, clock: Clock, *, check: Check | None = None,
        limits: CheckLimits | None = None, new_key: Callable[[], str] = new_transaction_id,
    ) -> None:  # fmt: skip
        self._log, self._clock, self._new_key = log, clock, new_key
        has_rocksdb_ones = log.bounds(names.ROCKSDB_HALF_TOPIC, 0)[1] > 0
        dialects = (OF_QUEUES, OF_ROCKSDB) if has_rocksdb_ones else (OF_QUEUES,)
        self._books = [TransactionBook(log, offsets, clock, dialect, new_key) for dialect in dialects]
        self.cycle = CheckCycle(self._books, log, clock, check, limits or CheckLimits())

    def load(self) -> None:
        """Finds what is open; to be called once, before anything else."""
        for book in self._books:
            book.load()

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
            self._books[0].enter(half, result)
        return result

    @checked
    def prepared(self, result: PutResult) -> Prepared:
        """The name of the transaction that `prepare` answered with.  Raises Rejected for another answer."""
        half = half_at(self._log, result.physical_offset)
        if half.topic != names.HALF_TOPIC or half.queue_offset != result.queue_offset:
            raise Rejected(f"no half message was stored at {result.physical_offset}")
        return prepared_of(half)

    @checked
    def commit(self, prepared: Prepared) -> PutResult:
        """Makes the message visible in its topic; the answer is about that message, durable as a put is.

        With a status that does not store it the transaction stays open.  Raises Rejected for a transaction that is
        decided, or that `prepared` does not name rightly; DurabilityLost.
        """
        return self._decide(prepared, is_commit=True)

    @checked
    def rollback(self, prepared: Prepared) -> PutResult:
        """Sees to it that nobody gets the message; the answer is about the op message, which is on the disk then,
        however the store flushes: without it a check could bring the message back.  Raises as `commit` does.
        """
        result = self._decide(prepared, is_commit=False)
        if not result.is_stored:
            return result
        try:
            self._log.sync()
        except NotNow:
            return result._replace(status=PutStatus.FLUSH_DISK_TIMEOUT)
        return result

    def pending(self) -> list[Prepared]:
        """The open transactions, each by its newest half message, in the order of these in the log."""
        found = (prepared for book in self._books for prepared in book.pending())
        return sorted(found, key=lambda prepared: prepared.physical_offset)

    def check_step(self) -> float:
        """Asks after old transactions when it is time to; seconds until the next time."""
        return self.cycle.step()

    def _decide(self, prepared: Prepared, *, is_commit: bool) -> PutResult:
        half = half_at(self._log, prepared.physical_offset)
        book = next((book for book in self._books if book.dialect.half_topic == half.topic), None)
        if book is None or not _agree(prepared_of(half), prepared):
            raise Rejected(f"{prepared} does not match the half message at its offset: {prepared_of(half)}")
        with book.claimed(prepared, half) as (transaction, newest):
            return book.decide(transaction, newest, is_commit=is_commit, put_op=self._log.put)


def _is_bare(message: Message) -> bool:
    """Whether a message has plain types and no properties."""
    return has_plain_types(message) and type(message.properties) is dict and not message.properties


def _agree(found: Prepared, named: Prepared) -> bool:
    """Whether a request names what was found (Java, checkPrepareMessage, asks for group and places alone)."""
    return replace(found, born_timestamp_ms=named.born_timestamp_ms) == named
