"""Which transactions are open, and how far the half and op queues are done with; memory only, no files."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rmqstore.core.message import PutResult
from rmqstore.engine.broker.transaction_messages import (
    IMMUNITY_SECONDS,
    PREPARED_QUEUE_OFFSET,
    Prepared,
    check_times,
    number,
)

_BLOCKS_MAX = 2048

_Identity = tuple[str, str, int]


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """One transaction: its newest half message, and where all of them stand that are known.

    `is_claimed`: somebody is deciding it.  `committed`: its committed message is stored, only the op message is
    missing.  `is_sure`: `committed` tells the whole truth; False for what an opening found in the log, until somebody
    looks.  `stored_ms`: store time of the first half message that is known.
    """

    prepared: Prepared
    check_times: int
    root: int
    half_offsets: list[int]
    physical_offsets: list[int]
    is_sure: bool
    has_own_immunity: bool
    stored_ms: int
    is_claimed: bool = False
    committed: PutResult | None = None


def identity_of(prepared: Prepared) -> _Identity:
    """The facts that all half messages of a transaction share."""
    return prepared.group, prepared.transaction_id, prepared.born_timestamp_ms


class TransactionTable:
    """The open transactions by the queue offset of any of their half messages; the caller's lock guards it.

    `horizon`: half messages before it are done with; `frontier`: all half messages before it are known, so that those
    between the two that are in no open transaction are decided.  Room is taken by open transactions only.
    """

    def __init__(self, horizon: int, op_horizon: int) -> None:
        self.horizon = self.frontier = horizon
        self.ops = OpProgress(op_horizon)
        self._by_offset: dict[int, OpenTransaction] = {}
        self._by_identity: dict[_Identity, list[OpenTransaction]] = {}
        self._decided_ahead: set[int] = set()  # beyond the frontier

    def __len__(self) -> int:
        return sum(map(len, self._by_identity.values()))

    def __iter__(self) -> Iterator[OpenTransaction]:
        """The open transactions in the order of their newest half messages."""
        found = (transaction for same in self._by_identity.values() for transaction in same)
        return iter(sorted(found, key=lambda transaction: transaction.prepared.queue_offset))

    def is_known(self, half_offset: int) -> bool:
        """Whether a half message is in the table, or decided."""
        return (
            half_offset < self.frontier or half_offset in self._by_offset or half_offset in self._decided_ahead
        )  # fmt: skip

    def register(
        self, prepared: Prepared, found: Mapping[str, str], *, is_sure: bool, stored_ms: int
    ) -> OpenTransaction:  # fmt: skip
        """Enters a half message with these properties: as the next of its transaction where it is a check's copy."""
        known = self._by_offset.get(prepared.queue_offset)
        if known is not None:
            return known
        times, root = check_times(found), number(found.get(PREPARED_QUEUE_OFFSET))
        same = self._by_identity.setdefault(identity_of(prepared), [])
        transaction = _continued(same, times, root) if times else None
        if transaction is None:
            at = prepared.queue_offset
            own = IMMUNITY_SECONDS in found
            transaction = OpenTransaction(
                prepared, times, at if root is None else root, [], [], is_sure, own, stored_ms
            )
            same.append(transaction)
        self.extend(transaction, prepared, times)
        return transaction

    def extend(self, transaction: OpenTransaction, copy: Prepared, times: int) -> None:
        """Has a check's copy stand for an open transaction."""
        transaction.prepared, transaction.check_times = copy, times
        transaction.half_offsets.append(copy.queue_offset)
        transaction.physical_offsets.append(copy.physical_offset)
        self._by_offset[copy.queue_offset] = transaction
        self._move_frontier()

    def is_open(self, transaction: OpenTransaction) -> bool:
        """Whether it is still in the table."""
        return self._by_offset.get(transaction.prepared.queue_offset) is transaction

    def find(self, prepared: Prepared, found: Mapping[str, str]) -> OpenTransaction | None:
        """The open transaction of a half message with these properties, None for one that is decided.

        Half messages from before the horizon are found by what they share with their copies.
        """
        known = self._by_offset.get(prepared.queue_offset)
        if known is not None or prepared.queue_offset >= self.horizon:
            return known
        times, root = check_times(found), number(found.get(PREPARED_QUEUE_OFFSET))
        roots = (prepared.queue_offset, root)
        for transaction in self._by_identity.get(identity_of(prepared), ()):
            if transaction.root in roots or transaction.check_times > times:
                return transaction
        return None

    def settle(self, transaction: OpenTransaction) -> None:
        """Takes a decided transaction out."""
        for half_offset in transaction.half_offsets:
            del self._by_offset[half_offset]
            if half_offset >= self.frontier:
                self._decided_ahead.add(half_offset)
        identity = identity_of(transaction.prepared)
        self._by_identity[identity].remove(transaction)
        if not self._by_identity[identity]:
            del self._by_identity[identity]
        self._move_frontier()

    def skip_to(self, half_offset: int) -> None:
        """Takes half messages that nobody can read any more as done."""
        self.frontier = max(self.frontier, half_offset)
        self._decided_ahead = {offset for offset in self._decided_ahead if offset >= self.frontier}
        self._move_frontier()

    def advance(self) -> tuple[int, int]:
        """Moves the horizon as far as everything is decided or copied; half and op queue offset to commit."""
        newest = (same.prepared.queue_offset for all_same in self._by_identity.values() for same in all_same)
        self.horizon = max(min(newest, default=self.frontier), self.horizon)
        for transaction in self._by_offset.copy().values():
            while transaction.half_offsets[0] < self.horizon:
                del self._by_offset[transaction.half_offsets.pop(0)]
        self.ops.drop_before(self.horizon)
        return self.horizon, self.ops.horizon

    def _move_frontier(self) -> None:
        while self.frontier in self._by_offset or self.frontier in self._decided_ahead:
            self._decided_ahead.discard(self.frontier)
            self.frontier += 1


def _continued(same: Iterable[OpenTransaction], times: int, root: int | None) -> OpenTransaction | None:
    """The transaction whose next copy is the one with so many checks: checks copy in the order of the queue."""
    for transaction in same:
        is_older = transaction.check_times == times - 1
        if (is_older and root is None) or (root is not None and root in (transaction.root, *transaction.half_offsets)):
            return transaction
    return None


@dataclass(slots=True)
class OpProgress:
    """How far the op queue is done with: op messages of which every half message lies before the horizon.

    Keeps a few thousand numbers, however many op messages wait: neighbours are joined, and let go together.
    """

    horizon: int
    end: int = field(init=False)  # all op messages before it are known
    _grain: int = 1  # op messages of one block, at least
    _highest: int = -1
    _blocks: deque[tuple[int, int]] = field(default_factory=deque)  # (end, highest half offset of all before it)
    _ahead: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.end = self.horizon

    def is_known(self, op_offset: int) -> bool:
        """Whether an op message is counted."""
        return op_offset < self.end or op_offset in self._ahead

    def add(self, op_offset: int, half_offsets: Iterable[int]) -> None:
        """Counts an op message that names these half messages."""
        if not self.is_known(op_offset):
            self._ahead[op_offset] = max(half_offsets, default=-1)
        while self.end in self._ahead:
            self._highest = max(self._highest, self._ahead.pop(self.end))
            self.end += 1
            self._close_block()

    def skip_to(self, op_offset: int) -> None:
        """Takes op messages that nobody can read any more as done."""
        if op_offset > self.end:
            self.end = op_offset
            self._close_block()
            self._ahead = {offset: highest for offset, highest in self._ahead.items() if offset >= op_offset}

    def drop_before(self, half_horizon: int) -> None:
        """Moves the horizon on over op messages that only name half messages before `half_horizon`."""
        while self._blocks and self._blocks[0][1] < half_horizon:
            self.horizon, _ = self._blocks.popleft()
        if not self._blocks:
            self._grain = 1

    def _close_block(self) -> None:
        """Has a block end here: the last one, if it stays within the grain, or a new one."""
        blocks = self._blocks
        start = blocks[-2][0] if len(blocks) > 1 else self.horizon
        if blocks and self.end - start <= self._grain:
            blocks.pop()
        blocks.append((self.end, self._highest))
        if len(blocks) > _BLOCKS_MAX:
            self._grain *= 2
            self._blocks = deque(block for place, block in enumerate(blocks) if place % 2 or place == len(blocks) - 1)
