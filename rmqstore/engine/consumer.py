"""A consumer group's view of a store: what is to be consumed next, what is done, what comes again, what is given up.

A consumer lives in its caller's thread and has none of its own:

    with store.consumer("billing", "orders", tags="paid || sent") as consumer:
        for message in consumer:
            if not charge(message):
                consumer.send_back(message)
            consumer.commit()
"""

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, get_args

from rmqstore.core import arguments
from rmqstore.core.annotations import checked
from rmqstore.core.message import GetResult, GetStatus, PutResult, PutStatus
from rmqstore.errors import NotNow, Rejected
from rmqstore.formats import names, properties
from rmqstore.formats.names import QueueKey
from rmqstore.formats.stored_message import StoredMessage

Start = Literal["earliest", "latest"]
STARTS: tuple[str, ...] = get_args(Start)


# How many polls that bring messages go by before new queues are looked for; one that brings none always looks.
_POLLS_PER_LOOK = 64
_MOVES_KEPT = 100
# A wait looks again after so long at the latest, and so sees that the store was closed.
_WAIT_SLICE_S = 0.25
# Answers that say where to go on instead of where one is: PULL_OFFSET_MOVED of Java's client, and what cannot be read.
_MOVED = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
)


class Source(Protocol):
    """A store, as a consumer needs it."""

    def get(self, topic: str, queue_id: int, offset: int, max_count: int = 32, *, tags: str = "*") -> GetResult:
        """The next messages of a queue that have one of the tags: exactly, not by hash only."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First queue offset that can be read and the one after the last; (0, 0) where there is no such queue."""

    def queues(self) -> Sequence[QueueKey]:
        """Topic and queue id of every queue."""


class ReadableEnd(Protocol):
    """The end of what can be read of a store, to wait for more."""

    @property
    def position(self) -> int:
        """Where it is now: an offset of the log, which rises."""

    def wait_beyond(self, offset: int, timeout_s: float) -> None:
        """Returns when it has risen above `offset`, or after the time, or sooner.  Raises StoreClosed, and
        DurabilityLost where nothing can come any more."""


class CommittedOffsets(Protocol):
    """The table of consumer offsets, as a consumer needs it."""

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a group goes on in a queue; None if it never was there."""

    def removals(self, topic: str) -> int:
        """Changes when a topic is deleted; odd while it is being deleted."""

    def commit_if(self, removals: int, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Notes it, in memory, if the topic was not deleted since `removals` was asked for."""

    def persist(self) -> None:
        """Makes all that was noted durable."""


class SendsBack(Protocol):
    """Retry and dead letters, as a consumer needs them."""

    def send_back(self, group: str, message: StoredMessage, delay_level: int = 0) -> PutResult:
        """Has a group get a message again, later; or puts it to the dead letters."""


class RetriedMessage(StoredMessage):
    """A message that comes again, under the topic that it was first sent to, as RocketMQ's client shows it.

    Queue and offsets are those of the retry queue, `stored_topic` the topic that the record names.
    """

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The topic that it was first sent to."""
        return self.properties.get(properties.RETRY_TOPIC) or self.stored_topic

    @property
    def stored_topic(self) -> str:
        """%RETRY% and the group."""
        return super().topic

    def __reduce__(self) -> tuple[type[StoredMessage], tuple[object, ...]]:
        return RetriedMessage, (self.stored_record, 0, self.store_size, self.physical_offset, self.broker_name)


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """The store did not hold what came next in a queue, and consumption goes on at another offset.

    What was in [wanted, moved_to) was deleted before the group read it.  Moved back: the queue ends earlier than it
    did, after a crash.
    """

    topic: str
    queue_id: int
    wanted: int
    moved_to: int
    status: GetStatus


class Consumer:
    """Reads the topics of `subscriptions` (topic → tags, "a || b" or "*") and what comes again to `group`; one thread.

    It starts where the group committed.  In a queue where it never did, it starts at the first message ("earliest"), or
    after those that are there when the consumer is made ("latest"); retries always at the first.  The default is what
    RocketMQ's CONSUME_FROM_LAST_OFFSET does with a topic that was never cleaned, and it loses nothing.

    Every message is delivered at least once: what was polled and not committed comes again to the next consumer.
    RocketMQ shares queues out among the consumers of a group; this does not: have one of a group at a time.
    Raises Rejected.
    """

    def __init__(
        self,
        source: Source,
        offsets: CommittedOffsets,
        retries: SendsBack,
        group: str,
        subscriptions: Mapping[str, str],
        consume_from: Start = "earliest",
        readable_end: ReadableEnd | None = None,
    ) -> None:
        """Without `readable_end` no poll waits."""
        arguments.word("consume_from", consume_from, STARTS)
        group = arguments.text("group", group)
        subscriptions = arguments.text_table("subscriptions", subscriptions)
        if not group or not names.is_topic_name(names.RETRY_PREFIX + group):
            raise Rejected(
                f"group={group!r}: letters, digits, % | _ -, at most {255 - len(names.RETRY_PREFIX)} of them"
            )
        if not subscriptions:
            raise Rejected("a consumer needs at least one topic")
        self.group = group
        self.retry_topic = names.RETRY_PREFIX + group
        self.moves: deque[OffsetMove] = deque(maxlen=_MOVES_KEPT)  # the newest last
        self._source, self._offsets, self._retries, self._readable_end = source, offsets, retries, readable_end
        # The consumer that sent it back wants it again, whatever its tags (Java: SubscriptionData.SUB_ALL).
        self._tags = {**subscriptions, self.retry_topic: "*"}
        self._positions: dict[QueueKey, int] = {}  # the queue whose turn it is comes first
        self._polls_to_look = 0
        self._removals = {name: offsets.removals(name) for name in self._tags}
        self._look(from_latest=consume_from == "latest")

    def __repr__(self) -> str:
        """One line; asks the store nothing."""
        topics = ", ".join(f"{topic}:{tags}" for topic, tags in self._tags.items() if topic != self.retry_topic)
        return f"<Consumer {self.group!r} of {topics}, {len(self._positions)} queues>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commits, unless the block failed: what it did not finish comes again."""
        if kind is None:
            self.commit()

    def __iter__(self) -> Iterator[StoredMessage]:
        """`messages()`: without an end."""
        return self.messages()

    def messages(self, wait_s: float | None = None) -> Iterator[StoredMessage]:
        """The next messages one by one, as they come; ends when none came for `wait_s` seconds (None: never; 0: with
        what is there now).  A message that was handed out is polled: `commit` declares it done, and none after it.

        Raises as `poll`.  In a store without threads it ends with what is there.
        """
        return self._messages(None if wait_s is None else arguments.seconds("wait_s", wait_s))

    def poll(self, max_count: int = 32, wait_s: float | None = 0.0) -> list[StoredMessage]:
        """The next messages, at most `max_count`, in the order of each queue; empty only when there are none, and none
        came within `wait_s` seconds (None: waits without an end).  A store without threads does not wait.

        Queues take turns.  Messages without one of the tags are passed over, however many.  A damaged message is
        delivered and says so (`corrupt_reason`).  A poll that raises passes over nothing: the next one starts where it
        did.  Raises Rejected for a `max_count` below 1, StoreClosed, also where the store is closed while it waits;
        DurabilityLost where it would wait and the store takes no more messages.
        """
        max_count = arguments.integer("max_count", max_count, 1)
        until_s = math.inf if wait_s is None else time.monotonic() + arguments.seconds("wait_s", wait_s)
        while True:
            end = 0 if self._readable_end is None else self._readable_end.position
            self._forget_deleted()
            before = dict(self._positions)
            try:
                if found := self._poll(max_count):
                    return found
            except BaseException:
                self._positions = before
                raise
            left_s = until_s - time.monotonic()
            if self._readable_end is None or left_s <= 0:
                return []
            self._readable_end.wait_beyond(end, min(left_s, _WAIT_SLICE_S))

    def commit(self) -> None:
        """Declares all that was polled as done, durably: the next consumer of the group goes on after it.

        Raises what `persist` of the offsets raises: OSError.
        """
        for (topic, queue_id), position in self._positions.items():
            if self._offsets.committed(self.group, topic, queue_id) != position:
                self._offsets.commit_if(self._removals[topic], self.group, topic, queue_id, position)
        self._offsets.persist()

    @checked
    def send_back(self, message: StoredMessage, delay_level: int = 0) -> PutResult:
        """Has the group get a polled message again: after the time of a delay level, by default one that grows with
        each time; after the group's limit, or at once with a level below 0, it is a dead letter instead.

        Nothing is stored for a group that has no retry queues.  Raises NotNow when the store refuses it: the message is
        not to be committed then.
        """
        result = self._retries.send_back(self.group, message, delay_level)
        if not result.is_stored and result.status is not PutStatus.PUT_OK:
            raise NotNow(f"{message!r} could not be sent back: {result.status.value}; do not commit it")
        return result

    def dead_letters(self, max_count: int = 32, offset: int = 0) -> list[StoredMessage]:
        """Messages that the group gave up, from offset `offset` of their queue on, oldest first."""
        max_count, offset = arguments.integer("max_count", max_count, 0), arguments.integer("offset", offset, 0)
        topic, found = names.DLQ_PREFIX + self.group, list[StoredMessage]()
        low, high = self._source.bounds(topic, 0)
        offset = max(offset, low)
        while offset < high and len(found) < max_count:
            result = self._source.get(topic, 0, offset, max_count - len(found))
            if result.next_offset <= offset:
                break
            found += result.messages
            offset = result.next_offset
        return found

    @checked
    def position(self, topic: str, queue_id: int) -> int | None:
        """The queue offset of the next message that is polled; None for a queue that this consumer does not read."""
        return self._positions.get((topic, queue_id))

    @checked
    def seek(self, topic: str, queue_id: int, offset: int) -> None:
        """Goes on at another offset of a queue; committed with the next `commit`.  Raises Rejected."""
        if topic not in self._tags:
            raise Rejected(f"{topic!r} is not consumed: choose one of {', '.join(self._tags)}")
        queue_id = arguments.integer("queue_id", queue_id, 0, arguments.I32_MAX)
        offset = arguments.integer("offset", offset, 0)
        self._forget_deleted()
        self._positions[topic, queue_id] = offset

    def lag(self) -> dict[QueueKey, int]:
        """By topic and queue id, how many messages are there and not polled yet, tags aside."""
        self._forget_deleted()
        self._look()
        bounds = {key: self._source.bounds(*key) for key in self._positions}
        return {
            key: max(bounds[key][1] - max(position, bounds[key][0]), 0) for key, position in self._positions.items()
        }

    def _messages(self, wait_s: float | None) -> Iterator[StoredMessage]:
        while True:
            before, removals = dict(self._positions), dict(self._removals)
            try:
                found = self.poll(1, wait_s)
                if not found:
                    return
                yield found[0]
            except GeneratorExit:  # the loop was left: its message was handed out
                raise
            except BaseException:  # it may not have been: it comes again, but for queues of topics deleted meanwhile
                self._positions = {key: at for key, at in before.items() if self._removals[key[0]] == removals[key[0]]}
                raise

    def _poll(self, max_count: int) -> list[StoredMessage]:
        if self._polls_to_look <= 0:
            self._look()
        self._polls_to_look -= 1
        return self._turns(list(self._positions), max_count) or self._turns(self._look(), max_count)

    def _look(self, from_latest: bool = False) -> list[QueueKey]:
        """Queues that were not there before; they have their turn first."""
        self._polls_to_look = _POLLS_PER_LOOK
        new = dict[QueueKey, int]()
        for key in self._source.queues():
            if key[0] in self._tags and key not in self._positions:
                committed = self._offsets.committed(self.group, *key)
                low, high = self._source.bounds(*key)
                start = high if from_latest and key[0] != self.retry_topic else low
                new[key] = start if committed is None else committed
        self._positions = new | self._positions
        return list(new)

    def _forget_deleted(self) -> None:
        """Forgets the queues of topics that were deleted: later ones of their names are read from their beginning."""
        for topic, known in self._removals.items():
            now = self._offsets.removals(topic)
            if now != known:
                self._polls_to_look = 0
                self._positions = {key: position for key, position in self._positions.items() if key[0] != topic}
                self._removals[topic] = now  # the last step: what an interrupt cuts short is done again

    def _is_gone(self, topic: str) -> bool:
        """Whether what was just read of a topic may be of a queue that is deleted."""
        return self._removals[topic] % 2 == 1 or self._offsets.removals(topic) != self._removals[topic]

    def _turns(self, queues: Sequence[QueueKey], max_count: int) -> list[StoredMessage]:
        """Messages of some queues, one queue after the other; each that was asked goes to the end of the order."""
        found: list[StoredMessage] = []
        for key in queues:
            if len(found) >= max_count:
                break
            self._positions[key] = self._positions.pop(key)
            found += self._read(key, max_count - len(found))
        return found

    def _read(self, key: QueueKey, max_count: int) -> list[StoredMessage]:
        """The next messages of a queue; moves its position as RocketMQ's client does, and asks again until some come or
        nothing changes.
        """
        topic, queue_id = key
        while True:
            before = self._positions[key]
            result = self._source.get(topic, queue_id, before, max_count, tags=self._tags[topic])
            if self._is_gone(topic):
                return []
            after = min(result.next_offset, max(result.max_offset, result.min_offset))
            self._positions[key] = after
            if after == before or result.messages:
                return self._shown(topic, result.messages)
            if result.status in _MOVED:
                self.moves.append(OffsetMove(topic, queue_id, before, after, result.status))

    def _shown(self, topic: str, messages: list[StoredMessage]) -> list[StoredMessage]:
        if topic != self.retry_topic:
            return messages
        return [
            RetriedMessage(one.stored_record, 0, one.store_size, one.physical_offset, one.broker_name)
            for one in messages
        ]
