"""The stores that real brokers left, continued here: what was sent to them, and what came of it there and here."""

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.engine.broker.transaction_messages import TransactionState
from rmqstore.engine.consumer import RetriedMessage
from rmqstore.engine.store import open_store
from rmqstore.formats import names
from rmqstore.formats.stored_message import StoredMessage
from tests.conformance.workload import Json
from tests.golden.cases import FOLDERS, read_json, topic_prefix, unpack

LEVEL_MS = (1000, 2000, 1000, 2000, 5000, 3_600_000, 7_200_000)
# tests/oracle/broker/broker.sh: how these brokers were configured.
CHECKS_MAX = 4
CONFIG: Json = {
    "delay_levels": "1s 2s 1s 2s 5s 1h 2h", "transaction_check_interval_ms": 3000, "transaction_timeout_ms": 2000,
    "transaction_check_max": CHECKS_MAX, "preallocate": False, "retention": False,
}  # fmt: skip
SUBSCRIPTIONS = {
    "fast": ("Normal", "*"),
    "order": ("Order", "*"),
    "tag": ("Wide", "TagA || 标签"),
    "delay": ("Delay", "*"),
}


class Left:
    """A broker's store opened here, at the moment after the last message was sent to it."""

    def __init__(self, case: str, directory: Path, **config: object) -> None:
        folder, prefix = FOLDERS[case], topic_prefix(case)
        self.prefix = prefix
        self.subscriptions = {
            f"g_{name}_{prefix}": (prefix + kind, tags) for name, (kind, tags) in SUBSCRIPTIONS.items()
        }
        self.sent: list[Json] = read_json(folder, "sent")
        self.consumed: list[Json] = read_json(folder, "consumed")
        self.clock = ManualClock(max(sent["ackMs"] for sent in self.sent))
        self.asked: list[StoredMessage] = []
        self.answer = TransactionState.COMMIT
        self.config = StoreConfig.broker(**(CONFIG | config))
        self.path = str(unpack(case, directory))
        self.open()

    def open(self) -> None:
        """Opens it, again when it was closed."""
        self.store = open_store(self.path, self.config, clock=self.clock, workers=False, check=self._check)
        self.run()

    def _check(self, half: StoredMessage) -> TransactionState:
        self.asked.append(half)
        return self.answer

    def run(self, ms: int = 0) -> None:
        """Has the time pass, and everything be done that is due then."""
        self.clock.advance(ms)
        before = None
        while before != (before := self._ends()):
            self.store.step()
            assert self.store.health().is_writable, self.store.health()

    def _ends(self) -> tuple[int, int]:
        gauges = self.store.statistics().gauges
        return gauges.log_max_offset, gauges.dispatch_behind_bytes

    def messages(self, topic: str, queue_id: int | None = None) -> list[StoredMessage]:
        """Everything in a queue, or in all queues of a topic."""
        if queue_id is None:
            return [message for name, number in self.store.queues() if name == topic
                    for message in self.messages(topic, number)]  # fmt: skip
        found: list[StoredMessage] = []
        offset, end = self.store.bounds(topic, queue_id)
        while offset < end:
            result = self.store.get(topic, queue_id, offset)
            found += result.messages
            offset = result.next_offset
        return found

    def sent_as(self, is_of: Callable[[str], bool]) -> dict[str, Json]:
        """By unique key: what was sent of some kinds."""
        return {sent["properties"]["UNIQ_KEY"]: sent for sent in self.sent if is_of(sent["kind"])}

    def waiting(self) -> dict[int, list[StoredMessage]]:
        """By level: what is to be delivered yet."""
        offsets = self.store.delay.offsets
        return {level: self.messages(names.SCHEDULE_TOPIC, level - 1)[offsets[level] :] for level in sorted(offsets)}

    def consume(self, group: str) -> list[StoredMessage]:
        """What a group gets from its committed offsets on; committed then."""
        topic, tags = self.subscriptions[group]
        found: list[StoredMessage] = []
        with self.store.consumer(group, topic, tags) as consumer:
            while messages := consumer.poll():
                found += messages
        return found


def key_of(message: StoredMessage) -> str:
    """The sender's own key of a message."""
    return message.properties["UNIQ_KEY"]


def place_of(message: StoredMessage) -> tuple[str, int, int]:
    """Topic, queue and number in it, as the record says."""
    topic = message.stored_topic if isinstance(message, RetriedMessage) else message.topic
    return topic, message.queue_id, message.queue_offset


def changes(sent: Json, message: StoredMessage) -> list[str]:
    """Where a message is not the one that was sent."""
    body = message.body or b""
    found = message.properties
    lost = {
        name: (text, found.get(name)) for name, text in sent["properties"].items()
        if found.get(name) != text and name not in ("WAIT", "DELAY", "__transactionId__")
    }  # fmt: skip
    pairs = {
        "topic": (sent["topic"], message.topic),
        "flag": (sent["flag"], message.flag),
        "body": (
            sent.get("body") or sent["bodySha256"],
            base64.b64encode(body).decode() if "body" in sent else hashlib.sha256(body).hexdigest(),
        ),
    }
    return [f"{name}: {pair}" for name, pair in (pairs | lost).items() if pair[0] != pair[1]]
