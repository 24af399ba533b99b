"""Sending back, dead letters; the chains that real brokers made, record by record."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.broker.delay import DelayLevels
from rmqstore.engine.broker.retry import Retries
from rmqstore.errors import Rejected
from rmqstore.formats import names
from rmqstore.formats.broker_json import SubscriptionGroup
from rmqstore.formats.stored_message import StoredMessage
from tests.broker.broker_stores import differences, open_broker_store
from tests.broker.open_log import Opened
from tests.crash.disks import MemoryDisk
from tests.golden.cases import FOLDERS, OPENED_CASES, read_json, topic_prefix

GROUPS = {"none": SubscriptionGroup("none", retry_queue_nums=0), "wide": SubscriptionGroup("wide", retry_queue_nums=4)}
GOLDEN_DELAY_MS = (1000, 2000, 1000, 2000, 5000, 3_600_000, 7_200_000)


class Shop:
    """A store, and retries that put to it as they are, without delay."""

    def __init__(self) -> None:
        self.opened = Opened(MemoryDisk())
        self.put: list[Message] = []
        self.retries = Retries(self._put, lambda group: GROUPS.get(group, SubscriptionGroup(group)))

    def _put(self, message: Message) -> PutResult:
        self.put.append(message)
        return self.opened.log.put(message)

    def sent(self, message: Message) -> StoredMessage:
        return self.opened.store.message_at(self.opened.store.put(message).physical_offset)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_it_comes_back_later_each_time_and_ends_as_a_dead_letter(shop: Shop):
    first = shop.sent(Message("orders", b"one", tags="paid", keys="k", flag=3, queue_id=2, properties={"a": "b"}))
    message, levels = first, []
    for times in range(16):
        assert message.reconsume_times == times
        result = shop.retries.send_back("cart", message)
        assert result.status is PutStatus.PUT_OK
        message = shop.opened.store.message_at(result.physical_offset)
        levels.append(message.properties["DELAY"])
        assert message.topic == "%RETRY%cart"
    assert levels == [str(level) for level in range(3, 19)]
    message = shop.opened.store.message_at(shop.retries.send_back("cart", message).physical_offset)
    assert (message.topic, message.queue_id, message.reconsume_times) == ("%DLQ%cart", 0, 17)
    assert (message.body, message.tags, message.keys, message.flag) == (b"one", "paid", "k", 3)
    assert message.properties == first.properties | {
        "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": first.offset_msg_id, "DELAY": "0", "WAIT": "false",
    }  # fmt: skip
    assert message.born_timestamp_ms == first.born_timestamp_ms
    assert message.born_host == first.born_host


@pytest.mark.parametrize(
    ("times", "asked", "topic", "level"),
    [
        (0, {"delay_level": 7}, "%RETRY%cart", "7"),
        (0, {"delay_level": -1}, "%DLQ%cart", "0"),
        (2, {"max_times": 2}, "%DLQ%cart", "0"),
        (2, {"max_times": 2, "delay_level": 5}, "%DLQ%cart", "0"),
        (1, {"max_times": 2}, "%RETRY%cart", "4"),
        (0, {"max_times": 0}, "%DLQ%cart", "0"),
        (20, {"max_times": -1}, "%DLQ%cart", "0"),
    ],
)
def test_levels_and_limits(shop: Shop, times: int, asked: dict[str, int], topic: str, level: str):
    message = shop.sent(Message("orders", b"one", reconsume_times=times))
    shop.retries.send_back("cart", message, **asked)
    assert (shop.put[0].topic, shop.put[0].properties["DELAY"]) == (topic, level)
    assert shop.put[0].reconsume_times == times + 1


def test_it_keeps_the_name_of_where_it_began(shop: Shop):
    found = {"RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "ID"}
    shop.retries.send_back("cart", shop.sent(Message("%RETRY%cart", b"", properties=found)))
    assert {name: shop.put[0].properties[name] for name in found} == found
    shop.retries.send_back("cart", shop.sent(Message("orders", b"", properties={"ORIGIN_MESSAGE_ID": " "})))
    assert shop.put[1].properties["ORIGIN_MESSAGE_ID"].startswith("7F000001")


def test_retry_queues_are_used_in_turn_or_not_at_all(shop: Shop):
    for _ in range(5):
        shop.retries.send_back("wide", shop.sent(Message("orders", b"")))
    assert [message.queue_id for message in shop.put] == [0, 1, 2, 3, 0]
    answer = shop.retries.send_back("none", shop.sent(Message("orders", b"")))
    assert (answer.status, answer.is_stored, len(shop.put)) == (PutStatus.PUT_OK, False, 5)


def test_a_damaged_record_is_not_sent_back(shop: Shop):
    with pytest.raises(Rejected, match="cannot be sent back"):
        shop.retries.send_back("cart", StoredMessage(b"\0" * 100, 0, 100, 0))
    assert shop.put == []


@pytest.fixture(scope="module")
def broker_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Opened]]:
    opened: dict[str, Opened] = {}

    def open_case(case: str) -> Opened:
        if case not in opened:
            opened[case] = open_broker_store(case, Path(tmp_path_factory.mktemp("broker")))
        return opened[case]

    yield open_case
    for store in opened.values():
        store.close()


@pytest.mark.parametrize("case", OPENED_CASES)
def test_every_step_of_a_chain_is_the_broker_s(case: str, broker_store: Callable[[str], Opened]):
    """From what was consumed, the copy that waits and the dead letter; from the copy, what was consumed next."""
    opened, normal, fast = broker_store(case), f"{topic_prefix(case)}Normal", f"g_fast_{topic_prefix(case)}"
    retry_topic, dlq_topic = f"{names.RETRY_PREFIX}{fast}", f"{names.DLQ_PREFIX}{fast}"
    found = {topic: opened.messages(topic) for topic in (retry_topic, dlq_topic)}
    found[normal] = [message for queue in range(4) for message in opened.messages(normal, queue)]
    waiting = [message for level in range(7) for message in opened.messages(names.SCHEDULE_TOPIC, level)]
    made = [message for message in waiting if message.properties["REAL_TOPIC"] == retry_topic] + found[dlq_topic]
    consumed = {
        (message.properties["UNIQ_KEY"], message.reconsume_times): message
        for topic in (retry_topic, normal) for message in found[topic]
    }  # fmt: skip
    put: list[Message] = []
    delay = DelayLevels(GOLDEN_DELAY_MS)

    def put_delayed(message: Message) -> PutResult:
        answer = delay(message)
        assert isinstance(answer, Message)
        put.append(answer)
        return PutResult(PutStatus.PUT_OK)

    retries = Retries(put_delayed, lambda group: SubscriptionGroup(group, retry_max_times=2))
    for theirs in made:
        before = consumed[theirs.properties["UNIQ_KEY"], theirs.reconsume_times - 1]
        retries.send_back(fast, before)
        ours = put.pop()
        assert not ours.wait_store_ok  # written as WAIT=false
        ours.properties = ours.properties | {"WAIT": "false"}
        assert differences(ours, theirs) == []
    later = [seen for seen in read_json(FOLDERS[case], "consumed") if seen["answer"] == "later"]
    assert len(made) == len(later) >= 9
    assert {(seen["msgId"], seen["reconsumeTimes"] + 1) for seen in later} == {
        (message.properties["UNIQ_KEY"], message.reconsume_times) for message in made
    }
