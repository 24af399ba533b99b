"""Why a put was refused, in words, and how a program has it as an error."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from rmqstore import Message, PutFailed, PutResult, PutStatus, StoreConfig, TopicConfig
from rmqstore.engine.store import Store
from tests.crash.disks import FailingDisk, MemoryDisk, WatchedDisk
from tests.store.opened import ASYNC, SMALL, opened

ILLEGAL, TOO_LARGE = PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED
BROKEN = "0x01 and 0x02 stand between properties"
REFUSED: list[tuple[dict[str, Any], PutStatus, str]] = [
    ({"topic": "a/b"}, ILLEGAL, "topic='a/b': letters, digits, %, |, _ and -, 1 to 127"),
    ({"topic": ""}, ILLEGAL, "topic='': letters, digits"),
    ({"topic": "t" * 128}, ILLEGAL, "1 to 127 of them"),
    ({"topic": "%RETRY%" + "t" * 249}, ILLEGAL, "1 to 255 of them"),
    ({"body": None}, ILLEGAL, "body=None: bytes, b'' for an empty one"),
    ({"body": bytes(4 * 1024 * 1024 + 1)}, ILLEGAL, "a body of 4194305 bytes: at most 4194304 (StoreConfig.message"),
    ({"body": bytes(4000)}, ILLEGAL, "its record does not fit a file of the log (4096 bytes)"),
    ({"queue_id": -1}, ILLEGAL, "queue_id=-1: 0 to 2147483646"),
    ({"queue_id": 1_000_000}, ILLEGAL, "queue_id=1000000: topic 'orders' has 0 queues, and puts raise this to 65536"),
    ({"flag": 2**31}, ILLEGAL, "flag=2147483648: -2147483648 to 2147483647"),
    ({"reconsume_times": -(2**31) - 1}, ILLEGAL, "reconsume_times=-2147483649"),
    ({"born_timestamp_ms": 2**63}, ILLEGAL, "born_timestamp_ms=9223372036854775808"),
    ({"prepared_transaction_offset": 2**63}, ILLEGAL, "prepared_transaction_offset=9223372036854775808"),
    ({"born_host": "localhost"}, ILLEGAL, "born_host: 'localhost' is not a host: write 203.0.113.9:10911"),
    ({"tags": "a\x01b"}, ILLEGAL, f"tags: {BROKEN}"),
    ({"keys": ["a", "b\x02"]}, ILLEGAL, f"keys: {BROKEN}"),
    ({"properties": {"p": "a\x02b"}}, ILLEGAL, f"properties['p']: {BROKEN}"),
    ({"properties": {"": "nameless"}}, ILLEGAL, "properties: one has no name"),
    ({"properties": {"INNER_NUM": "2"}}, ILLEGAL, "INNER_NUM without the flag of a batch (0x80)"),
    ({"sys_flag": 0x80}, ILLEGAL, "sys_flag=0x80, INNER_NUM=None: a batch comes with the flags 0xC0"),
    ({"properties": {"DELAY": "soon"}}, ILLEGAL, "DELAY='soon': a number, the delay level"),
    ({"topic": "t" * 128, "properties": {"DELAY": "1"}}, ILLEGAL, "1 to 127 of them"),
    ({"properties": {"TIMER_DELIVER_MS": "1"}}, PutStatus.WHEEL_TIMER_NOT_ENABLE, "rmqstore does not deliver timer"),
    ({"properties": {"p": "x" * 32767}}, TOO_LARGE, "properties of 32770 bytes: at most 32767, tags and keys"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "status", "reason"), REFUSED, ids=[reason[:30] for _, _, reason in REFUSED])
def test_a_refusal_says_why(fields: dict[str, Any], status: PutStatus, reason: str) -> None:
    message = Message(**({"topic": "orders", "body": b"body"} | fields))
    store = opened()
    result = store.put(message)
    assert (result.status, result.is_stored, bool(result)) == (status, False, False)
    assert reason in result.reason
    assert "\n" not in result.reason
    with pytest.raises(PutFailed) as caught:
        result.raise_for_status()
    assert str(caught.value) == f"{status.name}: {result.reason}; nothing is stored"
    assert store.put(Message("orders", b"good")).queue_offset == 0


@pytest.mark.parametrize(("fields", "status", "reason"), REFUSED, ids=[reason[:30] for _, _, reason in REFUSED])
def test_so_does_the_refusal_of_a_batch(fields: dict[str, Any], status: PutStatus, reason: str) -> None:
    message = Message(**({"topic": "orders", "body": b"body"} | fields))
    result = opened().put_batch([message, message])
    assert not result.is_stored
    assert reason in result.reason or "batch" in result.reason


def test_a_message_that_may_be_put_alone_says_why_it_goes_into_no_batch() -> None:
    store, good = opened(), Message("orders", b"")
    result = store.put_batch([good, replace(good, sys_flag=4)])
    assert result.reason == "message 1 of the batch: sys_flag=0x4: a part of a transaction goes into no batch"
    many = [Message("orders", bytes(1000))] * 5
    assert "the batch is too large: 5 messages with 5000 bytes of bodies" in store.put_batch(many).reason


@pytest.mark.parametrize(
    ("config", "topic", "reason"),
    [
        (replace(SMALL, auto_create_topics=False), None, "no topic 'orders', and auto_create_topics is off"),
        (replace(SMALL, auto_create_topics=False), TopicConfig("orders", 1, 1), "topic 'orders' has 1 queues"),
        (SMALL, TopicConfig("orders", 4, 4, perm=4), "takes no messages: its perm is 4, without 2 (write)"),
        (SMALL, TopicConfig("orders", 4, 0), "takes no messages: its writeQueueNums is 0"),
    ],
)
def test_a_topic_says_why_it_takes_none(config: StoreConfig, topic: TopicConfig | None, reason: str) -> None:
    store = opened(config)
    if topic is not None:
        store.topics.put(topic)
    message = Message("orders", b"", queue_id=2)
    table = pa.table({"topic": ["orders"], "body": [b""], "queueId": [2]})
    for result in (
        store.put(message),
        store.put_batch([message]),
        store.put_columns(table),
        store.transactions.prepare(message),
    ):
        assert (result.status, result.message_count) == (ILLEGAL, 0)
        assert reason in result.reason


def test_a_hook_may_say_why() -> None:
    class Quota:
        def __call__(self, message: Message) -> PutStatus:
            return PutStatus.SERVICE_NOT_AVAILABLE if message.topic == "full" else ILLEGAL

        def refusal_reason(self, message: Message) -> str:
            return f"{message.topic} is over its quota"

    def no_names(message: Message) -> PutStatus:
        return ILLEGAL

    store = opened(hooks=[Quota()])
    assert store.put(Message("orders", b"")).reason == "orders is over its quota"
    assert store.put(Message("full", b"")).reason == "full is over its quota"
    assert opened(hooks=[no_names]).put(Message("orders", b"")).reason == "refused by the hook no_names"


def test_a_closed_store_says_so() -> None:
    store = opened()
    store.close()
    for result in (store.put(Message("orders", b"")), store.put_batch([Message("orders", b"")])):
        assert (result.status, result.reason) == (PutStatus.SERVICE_NOT_AVAILABLE, "closed")


def test_a_log_file_that_cannot_be_made_is_no_matter_of_the_message() -> None:
    config = replace(SMALL, preallocate=False)
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    opened(config, watched).put(Message("orders", b"body"))
    assert watched.trace is not None
    at = next(each.number for each in watched.trace if each.verb == "create" and "/commitlog/" in each.path)
    result = opened(config, FailingDisk(MemoryDisk(), at, 28)).put(Message("orders", b"body"))
    assert (result.status, "could not be made" in result.reason) == (PutStatus.CREATE_MAPPED_FILE_FAILED, True)


def test_a_stored_message_whose_sync_is_late_is_not_to_be_put_again() -> None:
    result = PutResult(
        PutStatus.FLUSH_DISK_TIMEOUT, 4711, 100, "ID", 1, 0, 1, "the sync was not confirmed within 5000 ms"
    )
    with pytest.raises(
        PutFailed, match="not confirmed within 5000 ms; the message is stored nevertheless, at offset 4711"
    ) as caught:
        result.raise_for_status()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.result, str(again)) == (result, str(caught.value))


def test_a_put_that_went_well_is_handed_on() -> None:
    store = opened()
    assert store.put(Message("orders", b"")).raise_for_status().queue_offset == 0
    assert store.put_batch([Message("orders", b"")] * 2).raise_for_status().message_count == 2
    assert store.put(Message("orders", b"")).reason == ""


READS: dict[str, Callable[[Store], object]] = {
    "Store '/store', ASYNC, 1 queues, ": lambda store: store,
    "Consumer 'g' of orders:paid || sent, 1 queues": lambda store: store.consumer("g", "orders", "paid || sent"),
    "GetResult(FOUND, 1 message, next_offset=1 of [0, 1))": lambda store: store.get("orders", 0, 0),
    "PutResult(PUT_OK, 1 message of ": lambda store: store.put(Message("orders", b"", queue_id=0)),
    "PutResult(PUT_OK, 300 messages of ": lambda store: store.put_batch([Message("orders", b"")] * 300),
    "PutResult(MESSAGE_ILLEGAL, topic='a/b': letters": lambda store: store.put(Message("a/b", b"")),
    "Message('orders', b'xxxx": lambda store: Message("orders", b"x" * 1_000_000, tags="paid"),
    "StoredMessage orders/0 @ 0, log @ 0": lambda store: store.message_at(0),
}


@pytest.mark.parametrize("shown", READS)
def test_what_is_printed_is_one_short_line(shown: str) -> None:
    store = opened(replace(ASYNC, log_file_size=1024 * 1024))
    store.put(Message("orders", b"SECRET" * 1000, tags="paid"))
    store.flush()
    line = repr(READS[shown](store))
    assert line.removeprefix("<").startswith(shown)
    assert "\n" not in line
    assert "SECRET" not in line
    assert len(line) < 200


def test_a_store_is_printed_whatever_became_of_it() -> None:
    store = opened()
    store.close()
    assert repr(store).endswith("bytes of log, closed>")
    assert repr(Store.__new__(Store)) == "<Store>"
