"""The turn of a real broker with a store that we left: its clients get everything that is due, and begin new things."""

import base64
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rmqstore.config import StoreConfig
from rmqstore.engine.broker.transaction_messages import OP_SEPARATOR
from rmqstore.formats import names
from tests.conformance.broker import Broker, BrokerClient, loose, until
from tests.conformance.handover import (
    CHECKED,
    CHECKS_MAX,
    FAR_LEVEL,
    GROUPS,
    LEVEL_MS,
    LEVELS,
    MONEY,
    ORDERS,
    PRODUCER,
    QUEUES,
    RETRIES_MAX,
    TAGS,
    Book,
    Ours,
    Sent,
    messages_for,
)
from tests.conformance.workload import Json

_NEVER_MS = 3_600_000


def broker_settings(config: StoreConfig) -> Json:
    """What a broker's configuration says of a store of ours.  Transactions are not asked after at first: their producer
    is not there yet."""
    return {
        "mappedFileSizeCommitLog": config.log_file_size,
        "mappedFileSizeConsumeQueue": config.queue_file_size,
        "maxHashSlotNum": config.index_slot_count,
        "maxIndexNum": config.index_item_count,
        "messageDelayLevel": LEVELS,
        "transactionCheckInterval": 3000,  # long enough for an answer to a check to arrive, also on a busy machine
        "transactionCheckMax": CHECKS_MAX,
        "transactionTimeOut": _NEVER_MS,
        "transactionOpBatchInterval": 200,
        "flushConsumerOffsetInterval": 500,
    }


def tables_of(ours: Ours) -> Json:
    """What a broker is to know of a store before it does anything."""
    return {
        "topics": {
            name: (config.read_queue_nums, config.write_queue_nums, config.perm)
            for name, config in ours.store.topics.all().items()
        },
        "groups": {name: (one.retry_queue_nums, one.retry_max_times) for name, one in ours.store.groups.all().items()},
        "offsets": {name: offsets for name, offsets in ours.committed().items() if is_consumers(name)},
        "delayed": {level: offset for level, offset in ours.store.delay.offsets.items() if offset},
    }


def is_near(sent: Sent) -> bool:
    """Whether a message is worth waiting for."""
    return sent.level != FAR_LEVEL


def is_consumers(name: str) -> bool:
    """Whether topic@group is of a group of the test."""
    return name.rpartition("@")[2] in GROUPS.values()


class Theirs:
    """The broker's turn; all of it goes into the book."""

    def __init__(self, broker: Broker, client: BrokerClient, book: Book) -> None:
        self.broker, self.client, self.book = broker, client, book
        self._noted = 0

    def compare_tables(self, wanted: Json) -> None:
        """What the broker knows, against what we left; delay progress may have moved on by now, and begins behind what
        we left where that was not saved before our end."""
        topics = self.broker.config("topics")["topicConfigTable"]
        groups = self.broker.config("subscriptionGroup")["subscriptionGroupTable"]
        offsets = self.broker.config("consumerOffset")["offsetTable"]
        have = {
            "topics": {
                name: tuple(topics[name][field] for field in ("readQueueNums", "writeQueueNums", "perm"))
                for name in wanted["topics"] if name in topics
            },
            "groups": {
                name: (groups[name]["retryQueueNums"], groups[name]["retryMaxTimes"])
                for name in wanted["groups"] if name in groups
            },
            "offsets": {name: _numbered(offsets[name]) for name in wanted["offsets"] if name in offsets},
        }  # fmt: skip
        self.book.problems += [
            f"the broker has {name} {have[name]}, and we left {wanted[name]}"
            for name in have
            if have[name] != wanted[name]
        ]
        self._until("delay progress", lambda: self._has_delivered(wanted["delayed"]), self._delay_progress)

    def _delay_progress(self) -> dict[int, int]:
        return _numbered(self.broker.config("delayOffset")["offsetTable"])

    def _has_delivered(self, wanted: Mapping[int, int]) -> bool:
        progress = self._delay_progress()
        return all(progress.get(level, 0) >= offset for level, offset in wanted.items())

    def start_clients(self) -> None:
        """Consumers of all groups, and the producer, which the broker then asks after its transactions."""
        self.broker.change()
        topics = list(QUEUES)
        self._until("routes", lambda: len(self.client.call("routes", topics=topics)) == len(topics))
        self.client.call("producer", group=PRODUCER, topic=MONEY)
        self._until("the producer", lambda: self.broker.has_producer(PRODUCER))
        self.broker.change(transactionTimeOut=CHECKED["transaction_timeout_ms"])
        for topic, group in GROUPS.items():
            self.client.call("consume", group=group, topic=topic, tags=TAGS[topic], maxTimes=RETRIES_MAX)

    def finish_what_is_due(self) -> None:
        """Waits until everything has come but what is far off, and all transactions have ended."""
        self._until("all deliveries", lambda: not self._looked().missing(is_near), self.book.missing, is_near)
        self._until("dead letters", lambda: self._keys(names.DLQ_PREFIX + GROUPS[ORDERS]) >= self.book.dead())
        self._until("given up", lambda: self._keys(names.TRANSACTION_CHECK_TOPIC) >= self.book.given_up())
        self._looked()

    def begin_new(self) -> None:
        """New messages, half way: failed at once and waiting for their return, unread, delayed, transactions open."""
        self.broker.change(transactionTimeOut=_NEVER_MS)
        first = [self.book.note(sent) for sent in messages_for("order", "theirs", 12)]
        self._send(first)
        awaited = {(GROUPS[ORDERS], sent.key, 0) for sent in first}
        self._until("the first deliveries", lambda: awaited <= self._looked().count().keys())
        for group in GROUPS.values():
            self.client.call("stop", name=group)
        self._looked()
        self._until("commits", self._has_commits)  # consumers do not wait for an answer to theirs
        self._send([self.book.note(sent) for sent in messages_for("order", "theirs", 10, 12)])
        delayed = [self.book.note(sent) for sent in messages_for("delay", "theirs", 21)]
        for sent, answer in zip(delayed, self._send(delayed), strict=True):
            sent.due_ms = self._stored_ms(sent, answer) + LEVEL_MS[sent.level - 1]
        self._transact([self.book.note(sent) for sent in messages_for("money", "theirs", 10)])

    def end(self, how: signal.Signals, store: Path) -> dict[str, dict[int, int]]:
        """Ends the broker when its committed offsets are on the disk; these."""
        offsets = self._committed()
        own = {name: one for name, one in offsets.items() if is_consumers(name)}
        self._until("saved offsets", lambda: _saved_offsets(store).items() >= own.items())
        self.client.end()
        self.broker.end(how)
        return own

    def _committed(self) -> dict[str, dict[int, int]]:
        table = self.broker.config("consumerOffset")["offsetTable"]
        return {name: _numbered(offsets) for name, offsets in table.items()}

    def _has_commits(self) -> bool:
        """Whether the broker knows of everything that was consumed."""
        committed = self._committed()
        for event in self.client.events:
            if event["event"] == "consume":
                topic = names.RETRY_PREFIX + event["group"] if event["reconsumeTimes"] else event["topic"]
                offsets = committed.get(f"{topic}@{event['group']}", {})
                if offsets.get(event["queueId"], 0) <= event["queueOffset"]:
                    return False
        return True

    def _until(self, what: str, ask: Callable[[], Any], *told: Any) -> None:
        try:
            until(what, ask, [self.client, self.broker])
        except AssertionError as late:
            more = told[0](*told[1:]) if told else ""
            raise AssertionError(f"{what}: {more} {self.book.problems}: {late}") from late

    def _looked(self) -> Book:
        """The book with everything that happened until now."""
        events = self.client.look()
        for event in events[self._noted :]:
            key = event["properties"].get("KEYS", "")
            if event["event"] == "consume":
                answer = "success" if self.book.deliver(event, event["group"]) else "later"
            else:
                answer = self.book.check(key)
            assert event["answer"] == answer, event
        self._noted = len(events)
        return self.book

    def _keys(self, topic: str, queue_id: int = 0) -> set[str]:
        found = self.client.call("pull", topic=topic, queueId=queue_id)
        return {message["properties"].get("KEYS", "") for message in found}

    def _send(self, many: list[Sent]) -> list[Json]:
        answers = self.client.send([sent.request() for sent in many], PRODUCER)
        assert {answer["status"] for answer in answers} == {"SEND_OK"}, answers
        return answers

    def _stored_ms(self, sent: Sent, answer: Json) -> int:
        """When a delayed message was stored."""
        waiting = self.client.call("pull", topic=names.SCHEDULE_TOPIC, queueId=sent.level - 1)
        (found,) = [message for message in waiting if message["queueOffset"] == answer["queueOffset"]]
        assert found["properties"]["KEYS"] == sent.key
        return int(found["storeTimestamp"])

    def _transact(self, many: list[Sent]) -> None:
        """Sends transactions, and waits until those that are decided at once are so."""
        before = self._named_count()
        self._send(many)
        decided = {sent.key for sent in many if not sent.fate.startswith("check-")}
        self._until("op messages", lambda: self._named_count() >= before + len(decided))
        self.book.decided |= decided

    def _named_count(self) -> int:
        """How many half messages the op messages name."""
        ops = self.client.call("pull", topic=names.OP_HALF_TOPIC, queueId=0)
        return sum(len([piece for piece in _text(op).split(OP_SEPARATOR) if piece]) for op in ops)


def _numbered(table: Mapping[str, int]) -> dict[int, int]:
    return {int(name): value for name, value in table.items()}


def _saved_offsets(store: Path) -> dict[str, dict[int, int]]:
    """The consumer offsets that lie on the disk; none while the file is being replaced."""
    try:
        text = (store / "config" / "consumerOffset.json").read_text()
    except FileNotFoundError:
        return {}
    table = loose(text.encode())["offsetTable"]
    return {name: _numbered(offsets) for name, offsets in table.items()}


def _text(message: Json) -> str:
    return base64.b64decode(message["body"]).decode()
