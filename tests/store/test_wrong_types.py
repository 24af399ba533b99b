"""What is said of a wrong value, and that nothing is stored; tests/test_any_argument.py has every argument refused."""

import datetime
import enum
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rmqstore import Message, PutStatus, Rejected, StoreConfig, TopicConfig, WrongType
from rmqstore.engine.store import Store
from tests.store.opened import SMALL, opened

NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("topic", {"topic": 5}, "text"),
    ("body", {"body": "text"}, "bytes, as text.encode()"),
    ("body", {"body": np.zeros(3)}, "bytes, not an array of other numbers"),
    ("tags", {"tags": ["a", "b"]}, "text: a message has one tag"),
    ("keys", {"keys": 5}, "text with spaces between the keys, or several texts"),
    ("keys[1]", {"keys": ["k", 2]}, "text"),
    ("properties", {"properties": ["a"]}, "a mapping from names to texts"),
    ("properties['retries']", {"properties": {"retries": 3}}, "text"),
    ("properties['DELAY']", {"properties": {"DELAY": 3}}, "text"),
    ("properties['WAIT']", {"properties": {"WAIT": False}}, "text"),
    ("properties['UNIQ_KEY']", {"properties": {"UNIQ_KEY": b"u"}}, "text"),
    ("the name 5 in properties", {"properties": {5: "five"}}, "text"),
    ("queue_id", {"queue_id": "1"}, "an integer"),
    ("flag", {"flag": None}, "an integer"),
    ("sys_flag", {"sys_flag": "0"}, "an integer"),
    ("reconsume_times", {"reconsume_times": 1.5}, "an integer"),
    ("prepared_transaction_offset", {"prepared_transaction_offset": True}, "an integer"),
    ("born_timestamp_ms", {"born_timestamp_ms": NOW}, "milliseconds since the epoch, int(value.timestamp() * 1000)"),
    ("born_timestamp_ms", {"born_timestamp_ms": 1_700_000_000.5}, "milliseconds since the epoch"),
    ("born_host", {"born_host": 10911}, "text"),
    ("wait_store_ok", {"wait_store_ok": "false"}, "True or False"),
]


class Number:
    """A number to `operator.index`, and to nothing else."""

    def __index__(self) -> int:
        return 3


PUTS: dict[str, Callable[[Store, Message], object]] = {
    "put": lambda store, message: store.put(message),
    "put_batch": lambda store, message: store.put_batch([Message("orders", b"first"), message]),
    "prepare": lambda store, message: store.transactions.prepare(message),
    "put_many": lambda store, message: store.put_many([Message("orders", b"first"), message]),
    "a batch topic": lambda store, message: store.put_batch([message, message]),
}


@pytest.mark.parametrize("how", PUTS)
@pytest.mark.parametrize(("field", "fields", "wanted"), WRONG)
def test_a_field_of_wrong_type_is_named_and_nothing_is_stored(
    field: str, fields: dict[str, Any], wanted: str, how: str
) -> None:
    store = opened()
    if how == "a batch topic":
        store.topics.put(TopicConfig("orders", attributes={"queue.type": "BatchCQ"}))
    with pytest.raises(WrongType) as caught:
        PUTS[how](store, Message(**({"topic": "orders", "body": b""} | fields)))
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}={caught.value.given}: expected {wanted}")
    assert "\n" not in str(caught.value)
    assert len(caught.value.given) < 100
    assert store.put(Message("orders", b"good")).physical_offset == 0
    assert store.health().is_writable
    assert {config.write_queue_nums for topic, config in store.topics.all().items() if topic == "orders"} <= {8, 16}


def test_a_wrong_type_is_caught_as_python_programs_catch_it() -> None:
    for kind in (TypeError, ValueError, Rejected):
        with pytest.raises(kind, match="tags="):
            opened().put(Message("orders", b"", tags=["a"]))  # type: ignore[arg-type]


def test_a_wrong_type_survives_pickling() -> None:
    error = WrongType("tags", "5 (int)", "text")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.field, str(again)) == (WrongType, "tags", "tags=5 (int): expected text")


def test_a_large_value_is_not_shown_whole() -> None:
    with pytest.raises(WrongType) as caught:
        opened().put(Message("orders", "x" * 4_000_000))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 150


class Tag(str, enum.Enum):  # noqa: UP042
    """As programs had them before Python had StrEnum: printed, it is `Tag.PAID`."""

    PAID = "paid"


def test_what_means_the_same_is_stored_as_what_it_means() -> None:
    store = opened()
    same = {
        "topic": Tag.PAID, "tags": Tag.PAID, "keys": (key for key in (Tag.PAID, "k")), "queue_id": np.int64(3),
        "flag": np.int32(7), "born_timestamp_ms": np.int64(5), "properties": {"state": Tag.PAID, Tag.PAID: "x"},
    }  # fmt: skip
    for body in (bytearray(b"body"), memoryview(b"body"), np.frombuffer(b"body", np.uint8)):
        assert store.put(Message(**(same | {"body": body}))).status is PutStatus.PUT_OK
        same["keys"] = [Tag.PAID, "k"]
    store.flush()
    for message in store.get("paid", 3, 0).messages:
        assert (message.tags, message.keys, message.body) == ("paid", "paid k", b"body")
        assert (message.flag, message.born_timestamp_ms) == (7, 5)
        assert message.properties["state"] == "paid"
        assert message.properties["paid"] == "x"
    assert store.bounds("paid", 3) == (0, 3)


def test_a_hook_s_own_error_comes_as_it_is() -> None:
    def hook(message: Message) -> Message:
        raise TypeError("of the hook")

    with pytest.raises(TypeError, match="of the hook"):
        opened(hooks=[hook]).put(Message("orders", b""))


def test_a_hook_may_make_a_message_right() -> None:
    def hook(message: Message) -> Message:
        return Message(message.topic, message.body.encode())  # type: ignore[attr-defined]

    assert opened(hooks=[hook]).put(Message("orders", "text")).is_stored  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [None, True, "orders", (Message("orders", b""),)])
def test_a_hook_that_answers_anything_else_is_named(answer: Any) -> None:
    def forgot(message: Message) -> Any:
        return answer

    line = r"^the answer of the hook forgot=.*: expected a rmqstore\.Message or a PutStatus$"
    store = opened(hooks=[forgot])
    for put in (store.put, lambda message: store.put_batch([message])):
        with pytest.raises(WrongType, match=line):
            put(Message("orders", b""))
    assert store.health().is_writable


def test_keys_of_an_iterator_are_there_as_often_as_they_are_wanted() -> None:
    store = opened()
    message = Message("orders", b"", keys=iter(["a", "b"]))  # type: ignore[arg-type]
    store.put(message)
    store.put(message)
    assert [store.message_at(result).keys for result in (0, store.put(message).physical_offset)] == ["a b", "a b"]
    for keys in (iter(["a", 2]), (key for key in ("a", 2))):
        with pytest.raises(WrongType, match=r"^keys\[1\]=2 \(int\): expected text"):
            store.put(Message("orders", b"", keys=keys))  # type: ignore[arg-type]


@pytest.mark.parametrize("messages", [Message("orders", b""), "orders"])
def test_a_batch_is_several_messages(messages: Any) -> None:
    with pytest.raises(WrongType, match=r"messages=.*several messages"):
        opened().put_batch(messages)


def test_a_batch_may_come_from_a_generator() -> None:
    result = opened().put_batch(Message("orders", b"%d" % number) for number in range(3))
    assert (result.status, result.message_count, len(result.msg_ids)) == (PutStatus.PUT_OK, 3, 3)


def test_only_a_message_is_put() -> None:
    with pytest.raises(WrongType, match=r"message=.*a rmqstore\.Message"):
        opened().put("orders")  # type: ignore[arg-type]


SECONDS = 1_795_000_000
CALLS: list[tuple[str, type[Rejected], Callable[[Store], object]]] = [
    ("offset=-5: at least 0", Rejected, lambda store: store.offsets.commit("g", "orders", 0, -5)),
    ("queue_id=-1: 0 to", Rejected, lambda store: store.offsets.commit("g", "orders", -1, 0)),
    ("group=5", WrongType, lambda store: store.offsets.commit(5, "orders", 0, 0)),  # type: ignore[arg-type]
    ("tags=", WrongType, lambda store: store.get("orders", 0, 0, tags=["a"])),  # type: ignore[arg-type]
    ("1795000000 looks like seconds", Rejected, lambda store: store.query("orders", "k", begin_ms=SECONDS)),
    ("end_ms=", WrongType, lambda store: store.query("orders", "k", end_ms=NOW)),  # type: ignore[arg-type]
    ("timestamp_ms=", WrongType, lambda store: store.offset_at("orders", 0, NOW)),  # type: ignore[arg-type]
    ("timestamp_ms=", WrongType, lambda store: store.offset_at("orders", 0, 1.795e9)),  # type: ignore[arg-type]
    ("write 1795000000000", Rejected, lambda store: store.offset_at("orders", 0, SECONDS)),
    ("boundary='middle': one of lower, upper", Rejected,
     lambda store: store.offset_at("orders", 0, 0, "middle")),  # type: ignore[arg-type]
    ("tags=None", WrongType, lambda store: store.consumer("g", "orders", None)),  # type: ignore[arg-type]
    ("consume_from='first': one of earliest, latest", Rejected,
     lambda store: store.consumer("g", "orders", consume_from="first")),  # type: ignore[arg-type]
    ("max_count=0: at least 1", Rejected, lambda store: store.consumer("g", "orders").poll(0)),
    ("offset=-1: at least 0", Rejected, lambda store: store.consumer("g", "orders").seek("orders", 0, -1)),
    ("topic=['orders']", WrongType, lambda store: store.consumer("g", ["orders"])),  # type: ignore[arg-type]
    ("timeout_s=nan: 0 to", Rejected, lambda store: store.flush(float("nan"))),
    ("config=1 (int): expected a TopicConfig", WrongType, lambda store: store.topics.put(1)),  # type: ignore[arg-type]
    ("unknown_fields=", WrongType, lambda store: store.topics.put(TopicConfig("t", unknown_fields={"a": store}))),
    ("result=1 (int): expected a PutResult", WrongType, lambda store: store.transactions.prepared(1)),  # type: ignore[arg-type]
    ("prepared=1 (int): expected a Prepared", WrongType, lambda store: store.transactions.commit(1)),  # type: ignore[arg-type]
    ("tags='\\ud800': '\\ud800' is half a character", Rejected, lambda store: store.get("orders", 0, 0, tags="\ud800")),
    ("key='k\\ud800'", Rejected, lambda store: store.query("orders", "k\ud800")),
    ("queue_id=1180591620717411303424: -9223372036854775808 to", Rejected, lambda store: store.bounds("orders", 2**70)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "call"), CALLS, ids=[line for line, _, _ in CALLS])
def test_an_argument_that_makes_no_sense_is_named(
    line: str, kind: type[Rejected], call: Callable[[Store], object]
) -> None:
    store = opened()
    store.put(Message("orders", b""))
    with pytest.raises(Rejected) as caught:
        call(store)
    assert type(caught.value) is kind
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert store.offsets.all() == {}


def test_numbers_of_numpy_are_numbers_everywhere() -> None:
    store = opened()
    store.put(Message("orders", b""))
    store.offsets.commit("g", "orders", np.int32(0), np.int64(1))
    assert store.offsets.all() == {("g", "orders"): {0: 1}}
    assert type(store.offsets.committed("g", "orders", 0)) is int
    assert store.message_at(np.int64(0)).body == b""


def test_a_configuration_is_a_store_config() -> None:
    with pytest.raises(WrongType, match="log_paths='/data/log'"):
        StoreConfig(log_paths="/data/log")  # type: ignore[arg-type]
    with pytest.raises(WrongType, match=r"config=.*StoreConfig"):
        opened({"flush": "SYNC"})  # type: ignore[arg-type]
    assert SMALL.flush == "SYNC"


@pytest.mark.parametrize("how", PUTS)
@pytest.mark.parametrize("field", ["queue_id", "flag", "sys_flag", "born_timestamp_ms", "reconsume_times"])
def test_what_stands_for_an_integer_is_taken_as_one(field: str, how: str) -> None:
    answers = []
    for value in (Number(), 3):
        store = opened()
        if how == "a batch topic":
            store.topics.put(TopicConfig("orders", attributes={"queue.type": "BatchCQ"}))
        fields: dict[str, Any] = {field: value}
        try:
            answers.append(getattr(PUTS[how](store, Message("orders", b"", **fields)), "status", None))
        except Rejected as refusal:
            answers.append(str(refusal))
    assert answers[0] == answers[1]
