"""Asking producers after transactions that they left open, a limited number of times, and giving up then.

Java: TransactionalMessageServiceImpl.check.  Here a transaction that is too young does not hold up those after it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rmqstore.clock import Clock
from rmqstore.core import arguments
from rmqstore.engine.broker.transaction_book import TransactionBook, TransactionLog, half_at
from rmqstore.engine.broker.transaction_messages import TransactionState, given_up_message, immunity_ms
from rmqstore.engine.broker.transaction_table import OpenTransaction
from rmqstore.errors import DurabilityLost, StoreError, WrongType
from rmqstore.formats.stored_message import StoredMessage

Check = Callable[[StoredMessage], TransactionState]
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLimits:
    """RocketMQ's transactionCheckMax, transactionTimeOut, transactionCheckInterval and fileReservedTime."""

    check_max: int = 15
    immunity_ms: int = 6000
    interval_ms: int = 30_000
    reserved_ms: int = 72 * _HOUR_MS


class CheckCycle:
    """One cycle each `interval_ms`; counts what it does.

    `check` gets the half message that stands for the transaction now.  An exception from it, and an answer that is no
    TransactionState, count as UNKNOWN and are kept in `failure`, as is an error of the disk; the next cycle asks again.
    """

    def __init__(
        self, books: Sequence[TransactionBook], log: TransactionLog, clock: Clock, check: Check | None,
        limits: CheckLimits,
    ) -> None:  # fmt: skip
        self._books, self._log, self._clock = books, log, clock
        self._check = check
        self.limits = limits
        self._due_s = clock.monotonic_s() + limits.interval_ms / 1000
        self.failure: Exception | None = None
        self.checked_count = self.given_up_count = 0

    def step(self) -> float:
        """Runs the cycle when it is due; seconds until the next one.  Raises DurabilityLost."""
        left_s = self._due_s - self._clock.monotonic_s()
        if left_s > 0:
            return left_s
        self.run()
        interval_s = self.limits.interval_ms / 1000
        self._due_s = self._clock.monotonic_s() + interval_s
        return interval_s

    def run(self) -> None:
        """One cycle, now: every open transaction that is old enough is asked after, copied on, or given up."""
        began_ms, self.failure = self._clock.now_ms(), None
        for book in self._books:
            with self._kept_going():
                for transaction in book.known():
                    if self._check is None:
                        break
                    with self._kept_going():
                        self._visit(book, transaction, self._check, began_ms)
                book.commit_offsets()

    @contextmanager
    def _kept_going(self) -> Iterator[None]:
        """Notes an error that may be gone in the next cycle, and concerns none but this transaction, or topic."""
        try:
            yield
        except DurabilityLost:
            raise
        except (StoreError, OSError) as failure:
            self.failure = failure

    def _visit(self, book: TransactionBook, transaction: OpenTransaction, check: Check, began_ms: int) -> None:
        if self._is_young(transaction, began_ms):
            return
        half = book.claim_next(transaction)
        if half is None:
            return
        try:
            if book.is_committed(transaction, half):  # an earlier run did not come to its op message
                book.decide(transaction, half, is_commit=True, put_op=self._log.put_copy)
            elif transaction.check_times >= self.limits.check_max or self._is_expired(transaction, began_ms):
                self._give_up(book, transaction, half)
            else:
                self._ask(book, transaction, half, check, began_ms)
        finally:
            book.release(transaction)

    def _is_young(self, transaction: OpenTransaction, now_ms: int) -> bool:
        """Whether it was stored less than the usual immunity ago, and has none of its own; a time in the future is old.

        Java goes by the time of birth, which a producer may give: its transaction would be given up at once.
        """
        return not transaction.has_own_immunity and 0 <= now_ms - transaction.stored_ms < self.limits.immunity_ms

    def _is_expired(self, transaction: OpenTransaction, now_ms: int) -> bool:
        return transaction.check_times > 0 and now_ms - transaction.stored_ms > self.limits.reserved_ms

    def _give_up(self, book: TransactionBook, transaction: OpenTransaction, half: StoredMessage) -> None:
        """Moves it to the topic for that.  The op message, which RocketMQ does not write here, makes it last."""
        if self._log.put_copy(given_up_message(half)).is_stored:
            book.settle(transaction, self._log.put_copy)
            self.given_up_count += 1

    def _ask(
        self, book: TransactionBook, transaction: OpenTransaction, half: StoredMessage, check: Check, began_ms: int
    ) -> None:  # fmt: skip
        """Has this check count first, whatever becomes of it, and asks, unless the transaction is immune yet.

        Checks of immune ones count, too, as in RocketMQ: so the half queue is done with up to here.
        """
        own_ms = immunity_ms(half.properties, self.limits.immunity_ms)
        is_immune = own_ms is not None and began_ms - transaction.stored_ms < own_ms
        place = book.count_check(transaction, half, is_immune)
        if place is None or is_immune:
            return
        self.checked_count += 1
        newest = half_at(self._log, place)
        state = self._answer(check, newest)
        if state is not TransactionState.UNKNOWN:
            is_commit = state is TransactionState.COMMIT
            book.decide(transaction, newest, is_commit=is_commit, put_op=self._log.put_copy)

    def _answer(self, check: Check, half: StoredMessage) -> TransactionState:
        try:
            return _state(check(half))
        except Exception as failure:  # noqa: BLE001  a caller's own mistake must not end the worker, and decides nothing
            self.failure = failure
            return TransactionState.UNKNOWN


def _state(answer: object) -> TransactionState:
    """Raises WrongType for an answer that is none: it must not be taken for a rollback."""
    if isinstance(answer, TransactionState):
        return answer
    raise WrongType("the answer of check", arguments.shown(answer), "a TransactionState")
