"""A store with the broker's features in use, handed from us to a real broker and back: what each side does with it.

`Book` notes what was sent and what every consumer got, whoever ran; its `problems` are where that is not what
RocketMQ promises.
"""

import base64
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult
from rmqstore.engine.broker.transaction_messages import TransactionState
from rmqstore.engine.store import open_store
from rmqstore.formats import names
from rmqstore.formats.broker_json import SubscriptionGroup, TopicConfig
from rmqstore.formats.stored_message import StoredMessage
from tests.conformance.broker import loose
from tests.conformance.workload import Json

# Levels 1 to 5 are over soon, 3 to 5 are those of retries; 6 is when the other side runs, 7 when nobody waits for it.
LEVELS = "1s 2s 1s 2s 5s 15s 2h"
LEVEL_MS = (1000, 2000, 1000, 2000, 5000, 15_000, 7_200_000)
NEAR_LEVEL, FAR_LEVEL = 6, 7
RETRIES_MAX = 2
CHECKS_MAX = 4
CHECKED = {"transaction_timeout_ms": 2000, "transaction_check_max": CHECKS_MAX, "transaction_check_interval_ms": 1000}
ORDERS, LATER, MONEY = "Orders", "Later", "Money"
QUEUES = {ORDERS: 4, LATER: 2, MONEY: 2}
GROUPS = {ORDERS: "g_orders", LATER: "g_later", MONEY: "g_money"}
TAGS = {ORDERS: "*", LATER: "paid || 标签", MONEY: "*"}
PRODUCER = "p_money"
FATES = ("commit", "rollback", "check-commit", "check-rollback", "check-unknown")
_STATES = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}
_STEP_MS = 100


@dataclass
class Sent:
    """A message as it was sent.  A consumer fails at it `fails` times; a transaction has a `fate`, a delayed message a
    `level`, and is due at `due_ms`.
    """

    key: str
    topic: str
    queue_id: int
    body: bytes
    tags: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    level: int = 0
    fate: str = ""
    due_ms: int = 0

    @property
    def fails(self) -> int:
        """How often a consumer cannot deal with it."""
        return int(self.properties.get("fails", 0))

    @property
    def is_wanted(self) -> bool:
        """Whether the group of its topic is to get it."""
        if self.topic == LATER:
            return self.tags in TAGS[LATER].split(" || ")
        return self.fate in ("", "commit", "check-commit")

    def message(self) -> Message:
        """For a put of ours."""
        delay = {"DELAY": str(self.level)} if self.level else {}
        return Message(self.topic, self.body, self.tags, self.key, self.properties | delay, self.queue_id)

    def request(self) -> Json:
        """For a send by RocketMQ's client."""
        asked = {"delay": self.level} if self.level else {}
        asked |= {"fate": self.fate} if self.fate else {}
        found = {name: text for name, text in self.properties.items() if name != "fate"}
        same = {"topic": self.topic, "tags": self.tags, "keys": self.key, "body": self.body, "properties": found}
        return same | asked | ({} if self.fate else {"queueId": self.queue_id})


@dataclass(frozen=True)
class Got:
    """One delivery: `physical_offset` tells two from each other."""

    group: str
    key: str
    times: int
    physical_offset: int
    stored_ms: int


@dataclass
class Book:
    """Everything that was sent, and everything that was delivered and decided, in the whole life of a store."""

    sent: dict[str, Sent] = field(default_factory=dict)
    got: list[Got] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    again: Counter[tuple[str, int]] = field(default_factory=Counter)  # by key and times: delivered, and not noted so
    decided: set[str] = field(default_factory=set)  # transactions that nobody may be asked after any more
    problems: list[str] = field(default_factory=list)

    def note(self, sent: Sent) -> Sent:
        """A message that is to be sent now."""
        assert sent.key not in self.sent
        self.sent[sent.key] = sent
        return sent

    def deliver(self, seen: Json, group: str) -> bool:
        """Notes a delivery; whether the consumer deals with it."""
        key = seen["properties"].get("KEYS", "")
        sent = self.sent.get(key)
        if sent is None:
            self.problems.append(f"{group} got what nobody sent: {seen}")
            return True
        times = seen["reconsumeTimes"]
        self.got.append(Got(group, key, times, seen["physicalOffset"], seen["storeTimestamp"]))
        self.problems += [f"{group} got {key} ({times}): {line}" for line in _changes(sent, seen)]
        if times:  # it waited for a level of its own after it was delivered last
            before = [got.stored_ms for got in self.got if (got.key, got.times) == (key, times - 1)]
            due_ms = min(before, default=2**63) + LEVEL_MS[times + 1]
        else:
            due_ms = sent.due_ms
        if seen["storeTimestamp"] < due_ms:
            self.problems.append(f"{key} ({times}) came {due_ms - seen['storeTimestamp']} ms early")
        return times >= sent.fails

    def check(self, key: str) -> str:
        """Notes that a producer was asked after a transaction; its fate."""
        self.asked[key] += 1
        if key in self.decided:
            self.problems.append(f"the producer of {key} was asked, and had said {self.sent[key].fate} before")
        if self.asked[key] > CHECKS_MAX:
            self.problems.append(f"the producer of {key} was asked {self.asked[key]} times")
        return self.sent[key].fate.removeprefix("check-")

    def wanted(self, is_awaited: Callable[[Sent], bool] = lambda _: True) -> dict[tuple[str, str, int], int]:
        """By group, key and how often it came back: 1 for every delivery that is due to messages that are awaited."""
        return {
            (GROUPS[sent.topic], sent.key, times): 1
            for sent in self.sent.values() if sent.is_wanted and is_awaited(sent)
            for times in range(min(sent.fails, RETRIES_MAX) + 1)
        }  # fmt: skip

    def dead(self) -> set[str]:
        """The keys of messages that end as dead letters."""
        return {sent.key for sent in self.sent.values() if sent.is_wanted and sent.fails > RETRIES_MAX}

    def given_up(self) -> set[str]:
        """The keys of transactions that nobody decides."""
        return {sent.key for sent in self.sent.values() if sent.fate == "check-unknown"}

    def count(self) -> Counter[tuple[str, str, int]]:
        """How often each delivery was made."""
        return Counter((got.group, got.key, got.times) for got in self.got)

    def missing(self, is_awaited: Callable[[Sent], bool] = lambda _: True) -> list[tuple[str, str, int]]:
        """Deliveries to awaited messages that were not made yet."""
        return sorted(self.wanted(is_awaited).keys() - self.count().keys())

    def judge(self, where: str, is_awaited: Callable[[Sent], bool] = lambda _: True) -> None:
        """Compares all deliveries with what is due.  What a kill had delivered again may have come so often more, and
        with it all of its later returns."""
        counts = self.count()
        self.problems += [f"{where}: lost: {name}" for name in self.missing(is_awaited)]
        self.problems += [f"{where}: not to be got: {name}" for name in sorted(counts.keys() - self.wanted().keys())]
        for (group, key, times), count in sorted(counts.items()):
            most = 1 + sum(self.again[key, earlier] for earlier in range(times + 1))
            if count > most:
                self.problems.append(f"{where}: {group} got {key} ({times}) {count} times, at most {most} are right")


def _changes(sent: Sent, seen: Json) -> Iterator[str]:
    """Where a delivered message is not the one that was sent."""
    if base64.b64decode(seen["body"]) != sent.body:
        yield f"body {seen['body']}"
    if seen["topic"] != sent.topic:
        yield f"topic {seen['topic']}"
    if not sent.fate and not seen["reconsumeTimes"] and seen["queueId"] != sent.queue_id:
        yield f"queue {seen['queueId']}"
    has = {name: seen["properties"].get(name) for name in (*sent.properties, "TAGS")}
    if has != sent.properties | {"TAGS": sent.tags}:
        yield f"properties {has}"


def told(message: StoredMessage) -> Json:
    """A message as BrokerClient.java tells of it."""
    return {
        "topic": message.topic, "queueId": message.queue_id, "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset, "reconsumeTimes": message.reconsume_times,
        "storeTimestamp": message.store_timestamp_ms, "properties": message.properties,
        "body": base64.b64encode(message.body or b"").decode(),
    }  # fmt: skip


def messages_for(kind: str, turn: str, count: int, first: int = 0) -> Iterator[Sent]:
    """Messages of one kind ("order": with failures; "delay"; "money") of a side's turn, always the same ones."""
    for number in range(first, first + count):
        key = f"{turn}-{kind}-{number}"
        body = f"тело {key} ".encode() * (1 + number % 7)
        more = {"n": str(number), "имя": "значение 😀"} if number % 3 == 0 else {"n": str(number)}
        if kind == "order":
            fails = {"fails": str((3, 1, 2)[number // 3 % 3])} if number % 3 == 0 else {}
            yield Sent(key, ORDERS, number % QUEUES[ORDERS], body, (None, "paid", "标签")[number % 3], more | fails)
        elif kind == "delay":
            tags = ("paid", "标签", "other", "paid")[number % 4]
            yield Sent(key, LATER, number % QUEUES[LATER], body, tags, more, level=1 + number % len(LEVEL_MS))
        else:
            fate = FATES[number % len(FATES)]
            yield Sent(key, MONEY, number % QUEUES[MONEY], body, "paid", more | {"fate": fate}, fate=fate)


class Ours:
    """A turn of ours with the store at `path`, without threads, under a clock that begins at `now_ms`."""

    def __init__(
        self, path: Path, config: StoreConfig, book: Book, now_ms: int, is_producer_there: bool = True
    ) -> None:
        self.book, self.clock = book, ManualClock(now_ms)
        self._is_producer_there = is_producer_there
        self.store = open_store(str(path), config, clock=self.clock, workers=False, check=self._check)
        self.run()

    def _check(self, half: StoredMessage) -> TransactionState:
        fate = self.book.check(half.keys or "")
        if not self._is_producer_there:
            return TransactionState.UNKNOWN
        self.book.decided |= {half.keys or ""} if fate in _STATES else set()
        return _STATES.get(fate, TransactionState.UNKNOWN)

    def run(self, ms: int = 0) -> None:
        """Has the time pass and everything be done that is due in it."""
        for step_ms in [_STEP_MS] * (ms // _STEP_MS) + [ms % _STEP_MS]:
            self.clock.advance(step_ms)
            before = None
            while before != (before := self._ends()):
                self.store.step()
                assert self.store.health().is_writable, self.store.health()

    def run_at(self, now_ms: int) -> None:
        """Has it be that time, at once, and everything be done that is due then."""
        self.clock.ms = now_ms
        self.run()

    def _ends(self) -> tuple[int, int]:
        gauges = self.store.statistics().gauges
        return gauges.log_max_offset, gauges.dispatch_behind_bytes

    def put(self, sent: Sent) -> PutResult:
        """Puts a message and notes when it is due."""
        result = self.store.put(self.book.note(sent).message())
        assert result.is_stored, result
        sent.due_ms = result.store_timestamp_ms + LEVEL_MS[sent.level - 1] if sent.level else 0
        return result

    def put_many(self, many: Iterable[Sent]) -> None:
        """Puts delayed messages by columns."""
        rows = [self.book.note(sent) for sent in many]
        columns = {
            "topic": [sent.topic for sent in rows], "body": [sent.body for sent in rows],
            "tags": [sent.tags for sent in rows], "keys": [sent.key for sent in rows],
            "queueId": [sent.queue_id for sent in rows], "delayLevel": [sent.level for sent in rows],
            "properties": pa.array([list(sent.properties.items()) for sent in rows], pa.map_(pa.string(), pa.string())),
        }  # fmt: skip
        result = self.store.put_columns(pa.table(columns))
        assert result.message_count == len(rows), result
        for sent in rows:
            sent.due_ms = result.store_timestamp_ms + LEVEL_MS[sent.level - 1]

    def transact(self, sent: Sent) -> None:
        """Prepares a transaction, and decides it unless it is to be asked after."""
        transactions = self.store.transactions
        prepared = transactions.prepared(transactions.prepare(self.book.note(sent).message(), PRODUCER))
        if sent.fate in _STATES:
            decide = transactions.commit if sent.fate == "commit" else transactions.rollback
            assert decide(prepared).is_stored
            self.book.decided.add(sent.key)

    def consume(self, topic: str, count: int | None = None, *, only_retries: bool = False) -> int:
        """Has the group of a topic get what there is, at most `count`; failures are sent back.  How many it got."""
        taken, group = 0, GROUPS[topic]
        name, tags = (names.RETRY_PREFIX + group, "*") if only_retries else (topic, TAGS[topic])
        with self.store.consumer(group, name, tags) as consumer:
            while messages := consumer.poll(32 if count is None else min(32, count - taken)):
                taken += len(messages)
                for message in messages:
                    if not self.book.deliver(told(message), group):
                        assert consumer.send_back(message).is_stored
                if taken == count:
                    break
        return taken

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """Everything in a queue."""
        found: list[StoredMessage] = []
        offset, end = self.store.bounds(topic, queue_id)
        while offset < end:
            result = self.store.get(topic, queue_id, offset)
            found += result.messages
            offset = result.next_offset
        return found

    def delivered_again(self) -> Counter[tuple[str, int]]:
        """By key and times, what was delivered from the delay levels and is not noted in config/delayOffset.json."""
        text = Path(self.store.path, "config", "delayOffset.json").read_text()
        saved = {int(level): offset for level, offset in loose(text.encode())["offsetTable"].items()}
        found: Counter[tuple[str, int]] = Counter()
        for level in range(1, len(LEVEL_MS) + 1):
            for waiting in self.messages(names.SCHEDULE_TOPIC, level - 1)[saved.get(level, 0) :]:
                name = waiting.keys or "", waiting.reconsume_times
                there = self.messages(waiting.properties["REAL_TOPIC"], int(waiting.properties["REAL_QID"]))
                found[name] += any((one.keys, one.reconsume_times) == name for one in there)
        return +found

    def committed(self) -> dict[str, dict[int, int]]:
        """What the groups have committed, by topic@group as files and brokers name it."""
        return {f"{topic}@{group}": offsets for (group, topic), offsets in self.store.offsets.all().items()}


def begin(path: Path, config: StoreConfig, book: Book) -> Ours:
    """A new store with everything half way; the clock ends at the present.

    Dead letters, messages that came back and wait in %RETRY%, and such as wait for their first and second return;
    transactions decided, asked after already, and not asked after yet; delays over long ago, a moment ago, soon, late.
    """
    ours = Ours(path, config, book, time.time_ns() // 1_000_000 - 30_000, is_producer_there=False)
    for topic, count in QUEUES.items():
        ours.store.topics.put(TopicConfig(topic, count, count))
    ours.store.groups.put(SubscriptionGroup(GROUPS[ORDERS], retry_queue_nums=1, retry_max_times=RETRIES_MAX))
    for sent in (*messages_for("order", "ours", 40), *messages_for("delay", "ours", 14)):
        ours.put(sent)
    ours.put_many(messages_for("delay", "ours", 21, 14))
    ours.run(1200)
    assert ours.consume(LATER) > 0
    assert ours.consume(ORDERS, 12) == 12
    for _ in range(40):
        ours.run(100)
        ours.consume(ORDERS, only_retries=True)
    assert ours.messages(names.DLQ_PREFIX + GROUPS[ORDERS])
    ours.store.delay.persist()  # what follows is not saved when the store is left open
    for sent in messages_for("money", "ours", 10):
        ours.transact(sent)
    ours.run(1600)
    assert ours.consume(ORDERS, 8) == 8
    ours.run(600)
    assert ours.consume(ORDERS, 6) == 6
    ours.run(600)
    assert ours.consume(ORDERS, 2, only_retries=True) == 2
    assert ours.consume(MONEY, 1) == 1
    for sent in messages_for("money", "ours", 10, 10):
        ours.transact(sent)
    ours.clock.ms = time.time_ns() // 1_000_000
    for sent in messages_for("delay", "ours", 14, 35):
        ours.put(sent)
    ours.store.flush()
    return ours
