"""Every public call with every kind of wrong value: what comes out is the package's own error, in one line.

The guard against bare TypeErrors, AttributeErrors and UnicodeEncodeErrors as a class: who adds a public function or an
argument finds it here without writing anything.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pytest

from rmqstore import (
    Consumer,
    Message,
    PutStatus,
    Snapshot,
    StoreConfig,
    StoreError,
    SubscriptionGroup,
    TopicConfig,
    WrongType,
    open_snapshot,
    open_store,
)
from rmqstore.core.arguments import shown
from rmqstore.engine.store import Store
from tests.snapshot.small_store import small_store
from tests.store.opened import opened

pytestmark = pytest.mark.stores

LONG = "x" * 40_000
# Made anew for each call, as an iterator is wrong only once.
WRONG: list[Callable[[], Any]] = [
    *(lambda value=value: value for value in (
        None, 1, -1, 1.5, True, "", "\ud800", "a\0b\nc", LONG, b"\xff", (), [], [1], [None], ["\ud800"], {}, {"a": 1},
        {1: 1}, {"orders": {"a": {"b": {}}}}, float("nan"), float("inf"), 2**70, 10**5000, np.int64(3), np.True_,
        np.array([1]), np.array([1, 2]), type, len, object(),
    )),
    lambda: iter([]),
    lambda: (number for number in (1,)),
]  # fmt: skip

PARTS: dict[str, Callable[[Store], Any]] = {
    "store": lambda store: store,
    "topics": lambda store: store.topics,
    "groups": lambda store: store.groups,
    "offsets": lambda store: store.offsets,
    "delay": lambda store: store.delay,
    "retries": lambda store: store.retries,
    "transactions": lambda store: store.transactions,
    "consumer": lambda store: store.consumer("g", "orders"),
}
# What the store's own parts ask of each other, at every put or with what they made themselves.
OWN_CALLS = {
    "ConsumerOffsets": {"commit_if", "begin_removal", "follow"},
    "SubscriptionGroups": {"follow"},
    "Topics": {"adopt", "admit_columns", "follow", "is_batch_topic", "refusal_reason", "why_not"},
    "Transactions": {"claim_next", "continued", "decide", "half_at", "is_committed", "release", "settle"},
    "Snapshot": {"plan"},  # of what `select` and ScanRequest made
}
# What ends a part, or is called once when it is made.
ENDS = {"close", "abandon", "load"}
RIGHT: dict[str, Callable[[Store], Any]] = {
    "topic": lambda _: "orders",
    "queue_id": lambda _: 0,
    "offset": lambda _: 0,
    "key": lambda _: "k",
    "message": lambda store: store.message_at(0),
    "Transactions.prepare(message)": lambda _: Message("orders", b""),
    "messages": lambda _: [Message("orders", b"")],
    "table": lambda _: pa.table({"topic": ["orders"], "body": [b""]}),
    "timestamp_ms": lambda _: 0,
    "place": lambda _: 0,
    "group": lambda _: "g",
    "name": lambda _: "queues",
    "prepared": lambda store: store.transactions.prepared(store.transactions.prepare(Message("orders", b""))),
    "result": lambda store: store.transactions.prepare(Message("orders", b"")),
    "config": lambda _: TopicConfig("orders"),
}


# Arguments that an error calls by another name.
NAMED = {
    "place": "(place|physical_offset)", "name": "(name|table)", "messages": "messages?",
}  # fmt: skip
# What serves where a type is wanted; of others the walk does not know it.  A body that is None is answered by a status.
TAKEN: dict[object, tuple[type, ...]] = {
    int: (int, np.integer), str: (str,), bool: (bool, np.bool_), bytes: (bytes, type(None)),
    float: (int, float, np.integer), type(None): (type(None),),
}  # fmt: skip


def is_refused(value: object, hint: object) -> bool:
    """Whether a value has to be refused where a type, or one of some types, is wanted."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if not all(kind in TAKEN for kind in kinds) or (
        type(None) in kinds and isinstance(value, list | tuple | dict) and not value
    ):
        return False  # an empty collection is taken for no tags at all
    taken = tuple(kind for each in kinds for kind in TAKEN[each])
    return not isinstance(value, taken) or (isinstance(value, bool) and bool not in kinds)


def calls(owner: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    kind = type(owner)
    for name, _ in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and name not in ENDS | OWN_CALLS.get(kind.__name__, set()):
            yield f"{kind.__name__}.{name}", getattr(owner, name)


def offences(call: Callable[[Any], Any], name: str = "", hint: object = None) -> Iterator[str]:
    """What comes out of a call with each wrong value that ought not to.  The argument's `name` is in its errors, and
    what the type `hint` does not allow has to be refused."""
    for make in WRONG:
        value = make()
        try:
            found = call(value)
            if isinstance(found, pa.RecordBatchReader):
                found.read_all()
            if is_refused(value, hint):
                yield f"{shown(value)}: taken for {hint}"
        except StoreError as error:
            line = str(error)
            if len(line.splitlines()) != 1 or len(line) > 1000 or not line.isprintable():
                yield f"{shown(value)}: {line!r:.200}"
            if isinstance(error, WrongType) and not re.search(rf"^{NAMED.get(name, name)}\b|in {name}$", error.field):
                yield f"{shown(value)}: {line!r:.200} does not name {name}"
        except Exception as error:  # noqa: BLE001 - any other is what is looked for
            yield f"{shown(value)}: {type(error).__name__}: {error}"


def offences_of(name: str, function: Callable[..., Any], store: Store) -> list[str]:
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    hints, found = get_type_hints(function), []
    for parameter in parameters:

        def call(value: Any, parameter: inspect.Parameter = parameter) -> Any:
            others = [each for each in parameters if each is not parameter and each.default is each.empty]
            right = {each.name: RIGHT.get(f"{name}({each.name})", RIGHT[each.name])(store) for each in others}
            return function(**right, **{parameter.name: value})

        found += [
            f"{name}({parameter.name}=…): {each}" for each in offences(call, parameter.name, hints.get(parameter.name))
        ]
    return found


@pytest.fixture
def store() -> Store:
    found = opened()
    found.put(Message("orders", b"", tags="t", keys="k"))
    found.flush()
    return found


@pytest.mark.parametrize("part", PARTS)
def test_of_an_open_store(part: str, store: Store) -> None:
    wrong = [each for name, call in calls(PARTS[part](store)) for each in offences_of(name, call, store)]
    assert not wrong, "\n".join(wrong)
    assert store.health().is_writable
    assert store.put(Message("orders", b"")).is_stored


def test_of_a_snapshot(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = open_snapshot(small_store(10).write(tmp_path / "store"))
    monkeypatch.setitem(RIGHT, "topic", lambda _: "T")
    wrong = [each for name, call in calls(snapshot) for each in offences_of(name, call, store)]
    assert not wrong, "\n".join(wrong)


PUTS: dict[str, Callable[[Store, Message], Any]] = {
    "put": lambda store, message: store.put(message),
    "put_batch": lambda store, message: store.put_batch([message, message]),
    "put_many": lambda store, message: store.put_many([message, message]),
    "prepare": lambda store, message: store.transactions.prepare(message),
}


@pytest.mark.parametrize("how", PUTS)
def test_of_the_fields_of_a_message(how: str, store: Store) -> None:
    found = []
    for field in fields(Message):

        def call(value: Any, name: str = field.name) -> None:
            message = Message(**({"topic": "orders", "body": b""} | {name: value}))
            assert len(repr(PUTS[how](store, message)).splitlines()) == 1

        found += [f"{field.name}: {each}" for each in offences(call, field.name, get_type_hints(Message)[field.name])]
    assert not found, "\n".join(found)
    store.flush()
    assert store.health().is_writable


@pytest.mark.parametrize("kind", [TopicConfig, SubscriptionGroup, StoreConfig])
def test_of_the_fields_of_a_configuration(kind: type[Any], store: Store) -> None:
    hints = get_type_hints(kind)
    first = {} if kind is StoreConfig else {fields(kind)[0].name: "orders"}
    put = {TopicConfig: store.topics.put, SubscriptionGroup: store.groups.put}.get(kind, lambda _: None)
    found = [
        f"{field.name}: {each}"
        for field in fields(kind)
        for each in offences(
            lambda value, name=field.name: put(kind(**(first | {name: value}))), field.name, hints[field.name]
        )
    ]
    assert not found, "\n".join(found)


def test_of_opening(tmp_path: Path) -> None:
    root = small_store(10).write(tmp_path / "store")
    found = list(offences(StoreConfig.from_broker_conf))
    for look in (open_snapshot, lambda value: open_snapshot([value]), lambda value: open_snapshot({"a": value})):
        found += offences(look)
    found += offences(lambda value: open_snapshot(root, access=value))
    for name in ("config", "clock", "hooks", "dispatchers", "check"):
        found += [f"{name}: {each}" for each in offences(lambda value, name=name: opened(**{name: value}).abandon())]
    assert not found, "\n".join(found)
    for make in WRONG:
        if make() is not None:
            with pytest.raises(StoreError, match="filesystem="):
                open_store(tmp_path / "new", filesystem=make())
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


def test_of_what_a_hook_answers() -> None:
    def put(value: Any) -> None:
        opened(hooks=[lambda _: value]).put(Message("orders", b""))

    assert list(offences(put)) == []


def test_of_why_a_hook_refuses() -> None:
    class Hook:
        def __init__(self, reason: Any) -> None:
            self._reason = reason

        def __call__(self, _: Message) -> PutStatus:
            return PutStatus.MESSAGE_ILLEGAL

        def refusal_reason(self, _: Message) -> Any:
            return self._reason

    assert (
        list(offences(lambda value: opened(hooks=[Hook(value)]).put(Message("orders", b"")).raise_for_status())) == []
    )


def test_every_class_with_calls_is_looked_at(store: Store) -> None:
    looked_at = {type(part(store)) for part in PARTS.values()} | {Snapshot}
    assert {Store, Consumer, Snapshot} <= looked_at
    parts = [name for name, found in vars(Store).items() if isinstance(found, property) and name[0] != "_"]
    told = {"recovery", "warnings", "ha_address"}  # what its opening found, and where it listens: no calls
    assert set(parts) - told <= set(PARTS)
