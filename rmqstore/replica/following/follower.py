"""Appends the master's bytes to the replica's log and syncs them; compares the end of both logs first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from rmqstore.directory.deleted_queues import HeldPlaces
from rmqstore.engine.engine import Engine
from rmqstore.engine.log.put.block import BlockPart, NoBlock, block_parts, wanted_size
from rmqstore.errors import DurabilityLost, NotNow, Rejected
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import Rows, distinct_queues, rows_by_kind
from rmqstore.replica.link.slave_link import OwnEnd
from rmqstore.replica.remoting.client import Refused
from rmqstore.replica.remoting.cluster import Runtime

# --- Queue offsets in a master's log that restart at 0, as the topic was deleted and made again there, or that skip
# some numbers.


class QueueRestart(NamedTuple):
    """A queue that has messages, and whose queue offsets restart at 0 at `offset` of the log.

    `is_doubted`: its next record has come too, and does not continue from there.
    """

    key: QueueKey
    offset: int
    is_doubted: bool


class _Numbered(NamedTuple):
    """The records of a batch, the rows that belong to queues, and the first queue offset of each of these rows."""

    records: RecordBatch
    rows: Rows
    firsts: Ints


def first_queue_restart(
    batches: Iterable[RecordBatch], is_batch_topic: Callable[[str], bool], next_offsets: Mapping[QueueKey, int]
) -> QueueRestart | None:
    """The first restart of a queue of which `next_offsets`, or the batches before, have messages; None without one."""
    numbered = [_numbered(records, is_batch_topic) for records in batches]
    if not any((each.firsts == 0).any() for each in numbered):
        return None
    met = set[QueueKey]()  # in the batches before
    for number, (records, rows, firsts) in enumerate(numbered):
        if not len(rows):
            continue
        topics, topic_numbers = records.topics
        pairs, places = distinct_queues(topic_numbers[rows], records.queue_ids[rows])
        keys = [(topics[topic], queue_id) for topic, queue_id in pairs]
        first_rows = np.unique(places, return_index=True)[1]
        for at in np.flatnonzero(firsts == 0).tolist():  # few: one for each queue
            row, key = int(rows[at]), keys[int(places[at])]
            if key in met or at > first_rows[places[at]] or next_offsets.get(key, 0) > 0:
                rest = _Numbered(records, rows[at + 1 :], firsts[at + 1 :])
                following = (_first_number(key, each) for each in (rest, *numbered[number + 1 :]))
                # 1, or the count of a batch: the topic may have queues of another kind than it had.
                expected = (None, 0, 1, int(records.numbers.counts[row]))
                found = next((each for each in following if each is not None), None)
                return QueueRestart(key, int(records.offsets[row]), found not in expected)
        met.update(keys)
    return None


def _numbered(records: RecordBatch, is_batch_topic: Callable[[str], bool]) -> _Numbered:
    plain, of_batches = rows_by_kind(records, is_batch_topic)
    rows = np.sort(np.concatenate((plain, of_batches)))
    firsts = np.where(np.isin(rows, of_batches), records.numbers.bases[rows], records.queue_offsets[rows])
    return _Numbered(records, rows, firsts)


def _first_number(key: QueueKey, numbered: _Numbered) -> int | None:
    """The queue offset of the first record of a queue; None without a record."""
    records, rows, firsts = numbered
    topics, topic_numbers = records.topics
    if key[0] not in topics:
        return None
    own = (topic_numbers[rows] == topics.index(key[0])) & (records.queue_ids[rows] == key[1])
    return int(firsts[own][0]) if own.any() else None


class QueueBreak(NamedTuple):
    """The record at `offset` of the log has the queue offset `found` instead of `expected`."""

    key: QueueKey
    offset: int
    found: int
    expected: int


def queue_breaks(
    batches: Iterable[RecordBatch], is_batch_topic: Callable[[str], bool], next_offsets: Mapping[QueueKey, int]
) -> Iterator[QueueBreak]:
    """The records of the batches, in the log's order, that do not go on from the one before in their plain queue.

    `next_offsets` says which number comes next in queues that have messages; others may begin with any.
    """
    later: dict[QueueKey, int] = {}  # the same after the batches before
    for records in batches:
        rows, _ = rows_by_kind(records, is_batch_topic)
        if not len(rows):
            continue
        topics, topic_numbers = records.topics
        pairs, places = distinct_queues(topic_numbers[rows], records.queue_ids[rows])
        keys = [(topics[topic], queue_id) for topic, queue_id in pairs]
        order = np.argsort(places, kind="stable")
        found, queue = records.queue_offsets[rows][order], places[order]
        expected = np.empty(len(rows), np.int64)
        expected[1:] = found[:-1] + 1
        firsts = np.flatnonzero(np.diff(queue, prepend=-1))
        known = (later.get(key) or next_offsets.get(key, 0) for key in keys)
        expected[firsts] = [
            following or number for following, number in zip(known, found[firsts].tolist(), strict=True)
        ]
        breaks = np.flatnonzero(found != expected)
        for at in breaks[np.argsort(order[breaks])].tolist():
            offset = int(records.offsets[rows[order[at]]])
            yield QueueBreak(keys[int(queue[at])], offset, int(found[at]), int(expected[at]))
        later.update(zip(keys, (found[np.append(firsts[1:], len(rows)) - 1] + 1).tolist(), strict=True))


# ---

# The newest bytes of the replica's log, which the master must have too before the replica takes anything from it.
COMPARED_SIZE = 64 * 1024
# Bytes that wait for the rest of their record; no message comes near it, in RocketMQ 4 MiB are the most by default.
PENDING_SIZE_MAX = 64 * 1024 * 1024
# How long the queues may take to come up with the log, where a topic is made again.
_FLUSH_S = 60.0
# The average size of a record is that of about so many bytes, the newer ones more than the older ones.
_AVERAGED_SIZE = 16 * 1024 * 1024


class ForeignRecord(Rejected):
    """The master's log holds a record at `offset` that this store cannot take.  Everything before it is appended.

    The network may have damaged the record, so a new connection may bring other bytes.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset, self.reason = offset, reason

    def _line(self) -> str:
        hint = " (with --ha, --log-file-size must be the master's)" if "does not end its file" in self.reason else ""
        return f"the master's log at offset {self.offset}: {self.reason}{hint}; look at it there with `rmqstore verify`"


class HistoryGone(Rejected):
    """The master deleted the bytes that the replica needs next, or those that it needs to compare both logs."""

    def __init__(self, own_end: int, master_start: int) -> None:
        super().__init__(own_end, master_start)
        self.own_end, self.master_start = own_end, master_start

    def _line(self) -> str:
        return (
            f"the master's log now begins at offset {self.master_start}, and this replica's log ends at "
            f"{self.own_end}: the master deleted the messages that both logs had, and perhaps later ones; keep this "
            "replica for the messages that it has, and start a new replica in another directory"
        )


class MasterQueues(Protocol):
    """The master's queues, as they are now.  Raises Unreachable, Refused."""

    def present(self) -> Runtime | None:
        """Where its log begins and ends; None where it cannot be asked."""

    def place_of(self, topic: str, queue_id: int, number: int) -> int | None:
        """Where in its log a message of a plain queue stands; None where the queue has none of that number."""


class Follower:
    """The log of `engine`, which nobody else appends to; one thread.

    Bytes come in portions of any size; only whole records are appended, and the rest waits in memory.  `learn` reads
    the master's table of topics before the first message of an unknown topic, or of a topic that was made again, is
    appended: dispatch needs the type of its queues.  Without a `master` to ask, a queue that restarts counts as one
    whose topic was deleted.
    """

    def __init__(self, engine: Engine, learn: Callable[[], None], master: MasterQueues | None = None) -> None:
        self._engine = engine
        self._log = engine.log
        self._learn, self._master = learn, master
        self._unlisted: set[str] = set()  # topics that the master does not know either
        self._confirmed: int | None = None
        self._beginning: QueueKey | None = None  # the queue whose topic is just being taken out of the queues
        self._keep(self.end, b"")
        self._needed = 1  # so many pending bytes, and there may be a record among them that is whole
        self._counted = (0.0, 0.0)  # records, and their bytes

    @property
    def record_size(self) -> float | None:
        """The average size of the records that came last, in bytes; None while none came."""
        count, size = self._counted
        return size / count if count else None

    @property
    def end(self) -> int:
        """How far the log goes, in whole records."""
        return self._log.marks.appended

    def own_end(self, master_start: int = 0) -> OwnEnd:
        """The newest bytes, which a master whose log begins at `master_start` must have too; forgets what was not
        appended, as it comes again.  Raises HistoryGone."""
        self._keep(self.end, b"")
        self._needed = 1
        begin = max(self._log.start, self.end - COMPARED_SIZE, master_start)
        if begin > self.end or begin == self.end > self._log.start:
            raise HistoryGone(self.end, master_start)
        return OwnEnd(begin, self._log.read(begin, self.end - begin))

    def take(self, data: bytes) -> None:
        """The bytes that follow those taken before.  Raises ForeignRecord."""
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size > PENDING_SIZE_MAX:
            raise ForeignRecord(self.end, f"not a record, or one of more than {PENDING_SIZE_MAX} bytes")

    def append(self, confirmed: int | None = None) -> None:
        """Appends what is whole; readers see it soon.  `confirmed` as Wire's.

        Raises ForeignRecord with all before that record appended; DurabilityLost, and NotNow where the disk has no room
        for the next file: what was not appended comes again.
        """
        self._confirmed = confirmed
        if self._pending_size >= self._needed:
            self._append()

    def sync(self) -> int:
        """Makes what was appended durable; how far that is.  Raises DurabilityLost, NotNow where it takes too long."""
        end = self.end
        if not self._log.sync_to(end, self._engine.config.sync_flush_timeout_ms / 1000):
            raise NotNow(f"a sync of the log is not confirmed after {self._engine.config.sync_flush_timeout_ms} ms")
        return end

    def _append(self) -> None:
        # An interrupt may have come just after they were appended: what the log has by now is not appended again.
        offset, data = self.end, b"".join(self._pending)[self.end - self._begin :]
        self._keep(offset, data)
        if self._beginning is not None:
            self._let_begin_again(self._beginning)  # an interrupt came meanwhile
        try:
            self._append_from(offset, data)
        except ForeignRecord as refusal:
            if self.end < refusal.offset < offset + len(data):
                self._append_from(self.end, data[self.end - offset : refusal.offset - offset])
            raise

    def _append_from(self, offset: int, data: bytes) -> None:
        """Appends what is whole of `data`, which begins where the log ends, at `offset`."""
        parts = self._parts(offset, data)
        if self._learned(parts):
            parts = self._parts(offset, data)
        while (restart := self._queue_restart(parts)) is not None:
            size = restart.offset - offset
            if size:
                self._append_parts(offset, data[:size], self._parts(offset, data[:size]))
            self._let_begin_again(restart.key)
            offset, data = restart.offset, data[size:]
            self._keep(offset, data)
            parts = self._parts(offset, data)
        end = self._append_parts(offset, data, parts)
        rest = data[end - offset :]
        self._keep(end, rest)
        self._needed = wanted_size(rest)

    def _append_parts(self, offset: int, data: bytes, parts: Sequence[BlockPart]) -> int:
        """Where the log ends then.  Raises ForeignRecord at a record that no queue can take, with all before it
        appended."""
        jump = next((each for each in self._queue_breaks(parts) if each.found > each.expected), None)
        if jump is not None:
            data = data[: jump.offset - offset]
            parts = self._parts(offset, data)
        end = self._log.append_block(offset, data, parts)
        self._count(parts)
        for part in parts:
            if part.records is not None:
                self._engine.parsed.add(part.records)
        self._engine.appended()
        if jump is not None:
            raise _left_out(jump)
        return end

    def _queue_breaks(self, parts: Sequence[BlockPart]) -> Iterator[QueueBreak]:
        return queue_breaks(_batches(parts), self._engine.parts.queues.is_batch_topic, self._log.next_offsets)

    def _queue_restart(self, parts: Sequence[BlockPart]) -> QueueRestart | QueueBreak | None:
        """The first queue that restarts in these parts; None without one.

        Raises ForeignRecord, NotNow where the master has to be asked later; what the master raises.
        """
        restart = first_queue_restart(_batches(parts), self._engine.parts.queues.is_batch_topic, self._log.next_offsets)
        went_back = next((each for each in self._queue_breaks(parts) if self._is_of_new_topic(each)), None)
        if went_back is not None and (restart is None or went_back.offset < restart.offset):
            return went_back
        if restart is not None and restart.is_doubted:
            topic, queue_id = restart.key
            said = f"the record restarts the queue {queue_id} of {topic!r} at number 0"
            raise ForeignRecord(restart.offset, f"{said}, but the next one does not follow it")
        return restart

    def _is_of_new_topic(self, record: QueueBreak) -> bool:
        """Whether a record with a number that its queue has already is what the master's queue has of that number.

        RocketMQ counts on from 0, to 1, where the topic is deleted while the last message of it is put (Java:
        QueueOffsetOperator.increaseQueueOffset).  Else numbers come a second time, and the older messages stay.
        """
        if not 0 < record.found < record.expected:
            return False
        asked = self._asked()
        if asked is None:
            return False
        master, present = asked
        try:
            place = master.place_of(*record.key, record.found)
        except Refused:
            return False
        # What is not dispatched is counted from where the log is confirmed, by now at least there (Java: behind()).
        end = present.log_end if self._confirmed is None else min(self._confirmed, present.log_end)
        if place is None and record.offset >= end - present.undispatched:
            raise NotNow(f"the master has not dispatched its log up to {record.offset} yet")
        return place == record.offset

    def _let_begin_again(self, key: QueueKey) -> None:
        """Takes the old messages out of the queue, which would take the new ones for those; where the topic was
        deleted, out of all that the topic had.

        Raises DurabilityLost, NotNow where the queues do not come up with the log in time; what `learn` and the master
        raise.
        """
        self._beginning = key
        self._engine.flush(_FLUSH_S)
        deletion = self._engine.features.deletion
        is_alone = self._has_expired(key, deletion.held(key[0]))
        try:
            deletion.begin_again(*key, is_alone=is_alone)
        except OSError as error:
            raise DurabilityLost(
                f"a topic that was deleted could not be removed ({error.strerror or error})"
            ) from error
        self._beginning = None
        self._learn()  # it may have queues of another kind by now

    def _has_expired(self, key: QueueKey, held: Mapping[int, HeldPlaces]) -> bool:
        """Whether the master cleaned this queue alone, as its messages were before the log's first, rather than deleted
        the topic: other queues that have later messages are then as they were.

        RocketMQ does so when it is told to clean expired queues (Java: DefaultMessageStore.cleanExpiredConsumerQueue).
        """
        topic, queue_id = key
        asked = self._asked()
        if asked is None:
            return False
        master, present = asked
        if queue_id in held and held[queue_id].last >= present.log_start:
            return False
        alive = {each: places.last for each, places in held.items() if places.last >= present.log_start}
        if not alive or self._engine.parts.queues.is_batch_topic(topic):
            return True
        number = {each: self._log.next_offsets[topic, each] - 1 for each in alive}
        try:
            return any(master.place_of(topic, each, number[each]) == place for each, place in alive.items())
        except Refused:
            return True

    def _asked(self) -> tuple[MasterQueues, Runtime] | None:
        """The master, and where its log begins and ends; None where it cannot be asked."""
        present = None if self._master is None else self._master.present()
        return None if self._master is None or present is None else (self._master, present)

    def _keep(self, begin: int, data: bytes) -> None:
        """Only these bytes, from `begin` on, are pending; they are joined once, when they are appended."""
        self._begin, self._pending, self._pending_size = begin, [data], len(data)

    def _count(self, parts: Sequence[BlockPart]) -> None:
        count, size = self._counted
        for part in parts:
            if part.records is not None:
                count += len(part.records)
                size += part.end - part.offset
        fading = min(_AVERAGED_SIZE / size, 1.0) if size else 1.0
        self._counted = (count * fading, size * fading)

    def _parts(self, offset: int, data: bytes) -> list[BlockPart]:
        kinds = self._engine.parts.queues.kinds
        try:
            return block_parts(offset, data, self._log.files.file_size, kinds, may_be_cut=True)
        except NoBlock as refusal:
            raise ForeignRecord(refusal.position, str(refusal)) from None

    def _learned(self, parts: Sequence[BlockPart]) -> bool:
        """Whether the table of topics was asked for once more."""
        find = self._engine.features.topics.find
        unknown = {topic for part in parts for topic, _ in part.moved if find(topic) is None} - self._unlisted
        if unknown:
            self._learn()
            self._unlisted |= {topic for topic in unknown if find(topic) is None}
        return bool(unknown)


def _left_out(jump: QueueBreak) -> ForeignRecord:
    topic, queue_id = jump.key
    return ForeignRecord(
        jump.offset,
        f"the record is number {jump.found} of the queue {queue_id} of {topic!r}, and {jump.expected} was expected: "
        "the messages between are not in the master's log, whose queues may have been lost in a crash. This replica "
        "has all earlier messages; for later ones start a new replica in another directory with --from latest",
    )


def _batches(parts: Sequence[BlockPart]) -> list[RecordBatch]:
    return [part.records for part in parts if part.records is not None]
