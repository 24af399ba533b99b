"""From what a user names to ranges of queue offsets, and what is said when it cannot be."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqstore
from rmqstore import DataLost, Message, Rejected, Snapshot, StoreConfig, UnknownTopic, open_snapshot, open_store
from rmqstore.snapshot.plan.selection import EARLIEST, LATEST, Bounds
from rmqstore.snapshot.request import QueueRange
from tests.snapshot.small_store import FIRST_MS, SmallStore

A0, A1, B0 = ("a", "orders", 0), ("a", "orders", 1), ("a", "refunds", 0)
OTHER = ("b", "orders", 0)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, {}),
        ("earliest", {A0: EARLIEST, A1: EARLIEST, B0: EARLIEST}),
        (" Latest ", {A0: LATEST, A1: LATEST, B0: LATEST}),
        (12, {A0: 12, A1: 12, B0: 12}),
        ("12", {A0: 12, A1: 12, B0: 12}),
        (-1, {A0: LATEST, A1: LATEST, B0: LATEST}),
        ({}, {}),
        ({"orders": "latest"}, {A0: LATEST, A1: LATEST}),
        ({"orders": 5, "refunds": "earliest"}, {A0: 5, A1: 5, B0: EARLIEST}),
        ({"orders": {"1": 12}}, {A1: 12}),
        ({"orders": {1: "12", 0: -2}}, {A0: EARLIEST, A1: 12}),
        ({"orders": {"a": {"0": 3, "1": "latest"}}}, {A0: 3, A1: LATEST}),
        ({"orders": {}}, {}),
        ({"orders": 2**63 - 1}, {A0: 2**63 - 1, A1: 2**63 - 1}),
    ],
)
def test_bounds_take_each_shape(wanted: Any, found: dict[tuple[str, str, int], int]) -> None:
    bounds = Bounds(wanted, "start", [A0, A1, B0])
    assert {place: bounds.of(place) for place in (A0, A1, B0)} == {place: found.get(place) for place in (A0, A1, B0)}


def test_bounds_by_broker() -> None:
    bounds = Bounds({"orders": {"b": {"0": 3}}}, "start", [A0, OTHER])
    assert (bounds.of(A0), bounds.of(OTHER)) == (None, 3)
    bounds = Bounds({"orders": 4}, "start", [A0, OTHER])
    assert (bounds.of(A0), bounds.of(OTHER)) == (4, 4)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("newest", "start: 'newest' is not an integer"),
        (1.5, "start: 1.5 is not an integer"),
        (True, "start: True is not an integer"),
        (-3, "start: -3 is out of range"),
        (2**63, f"start: {2**63} is out of range"),
        ({"order": 1}, "start: 'order' is not among the topics that are read"),
        ({"orders": None}, "start: None is not an integer"),
        ({"orders": [1]}, "start: [1] is not an integer"),
        ({"orders": {"x": 1}}, "start: queue id of 'orders': 'x' is not an integer"),
        ({"orders": {"7": 1}}, "start: 'orders' has no queue 7 that is read; it has 0, 1"),
        ({"orders": {"0": "soon"}}, "start: 'soon' is not an integer"),
        ({"orders": {"c": {"0": 1}}}, "start: 'orders' has no broker 'c'; it has a"),
    ],
)
def test_bounds_say_what_is_wrong(wanted: Any, words: str) -> None:
    with pytest.raises(Rejected) as caught:
        Bounds(wanted, "start", [A0, A1, B0])
    assert str(caught.value).splitlines()[-1] == words


def test_bounds_want_the_broker_where_there_are_several() -> None:
    with pytest.raises(Rejected, match="'orders': with several stores name the broker"):
        Bounds({"orders": {"0": 1}}, "end", [A0, OTHER])


def filled(tmp_path: Path, name: str) -> Path:
    """Ten messages in orders/0 (of which the head is deleted), two in orders/1, one in a retry topic and refunds/0."""
    store = SmallStore(1024)
    for _ in range(10):
        store.add("orders", 0)
    store.add("orders", 1)
    store.add("orders", 1)
    store.add("%RETRY%group", 0)
    store.add("refunds", 0)
    root = store.write(tmp_path / name)
    (root / "commitlog" / f"{0:020d}").unlink()
    return root


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return rmqstore.open_snapshot({"a": filled(tmp_path, "one")})


def ranges(snapshot: Snapshot, *args: Any, **how: Any) -> list[tuple[str, int, int, int]]:
    return [(r.topic, r.queue_id, r.start, r.end) for r in snapshot.select(*args, **how)]


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({}, [("orders", 0, 9, 10), ("orders", 1, 0, 2), ("refunds", 0, 0, 1)]),
        ({"include_system_topics": True, "pattern": "%R.*"}, [("%RETRY%group", 0, 0, 1)]),
        ({"pattern": "%R.*"}, []),
        ({"pattern": "ref"}, []),  # the whole name
        ({"pattern": "ref.*|x"}, [("refunds", 0, 0, 1)]),
        ({"topics": ["%RETRY%group", "refunds"]}, [("%RETRY%group", 0, 0, 1), ("refunds", 0, 0, 1)]),
        ({"assign": {"orders": [1]}}, [("orders", 1, 0, 2)]),
        ({"assign": {"orders": ["1", 0]}}, [("orders", 0, 9, 10), ("orders", 1, 0, 2)]),
        ({"assign": {"orders": {"a": [1]}}}, [("orders", 1, 0, 2)]),
        ({"topics": ["orders"], "start": "latest"}, [("orders", 0, 10, 10), ("orders", 1, 2, 2)]),
        ({"topics": ["orders"], "end": "earliest"}, [("orders", 0, 9, 9), ("orders", 1, 0, 0)]),
        ({"assign": {"orders": [1]}, "start": 1, "end": 2}, [("orders", 1, 1, 2)]),
        ({"assign": {"orders": [1]}, "start": 2, "end": 1}, [("orders", 1, 2, 2)]),
        ({"assign": {"orders": [0]}, "start": 5, "end": 5}, [("orders", 0, 9, 9)]),  # nothing asked, nothing lost
        ({"topics": ["orders"], "start": 0, "end": 99, "fail_on_data_loss": False},
         [("orders", 0, 9, 10), ("orders", 1, 0, 2)]),
        ({"topics": ["orders"], "start_time": FIRST_MS + 11_000, "missing_time": "latest"},
         [("orders", 0, 10, 10), ("orders", 1, 1, 2)]),
        ({"topics": ["orders"], "end_time": FIRST_MS + 11_000}, [("orders", 0, 9, 10), ("orders", 1, 0, 1)]),
        ({"topics": ["orders"], "start": 0, "start_time": {"orders": FIRST_MS}},
         [("orders", 0, 9, 10), ("orders", 1, 0, 2)]),
    ],
)  # fmt: skip
def test_select(snapshot: Snapshot, how: dict[str, Any], found: list[tuple[str, int, int, int]]) -> None:
    assert ranges(snapshot, **how) == found


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"topics": ["ordres"]}, UnknownTopic, "did you mean orders?"),
        ({"topics": ["zzz"]}, UnknownTopic, "`rmqstore inspect` lists the topics"),
        ({"assign": {"refund": [0]}}, UnknownTopic, "did you mean refunds?"),
        ({"assign": {"orders": [5]}}, Rejected, "'orders' has no queue 5; it has 0, 1"),
        ({"assign": {"orders": 0}}, Rejected, 'wants a list of queue ids, such as {"orders": [0, 1]}'),
        ({"assign": {"orders": "01"}}, Rejected, "wants a list of queue ids"),
        ({"assign": {"orders": ["x"]}}, Rejected, "queue id of 'orders': 'x' is not an integer"),
        ({"assign": {"orders": {"z": [0]}}}, Rejected, "'orders': no broker 'z'; there is a"),
        ({"topics": ["orders"], "pattern": "o.*"}, Rejected, "topics, pattern and assign: give one of them"),
        ({"pattern": "o["}, Rejected, "it is a Python regular expression for the whole name"),
        ({"topics": ["orders"], "start": 8}, DataLost, "orders/0: offsets [8, 9) wanted, it holds [9, 10)"),
        ({"topics": ["orders"], "start": 0}, DataLost, "orders/0: offsets [0, 9) wanted, it holds [9, 10)"),
        ({"topics": ["orders"], "end": 99}, DataLost, "orders/0: offsets [10, 99) wanted, it holds [9, 10)"),
        ({"assign": {"orders": [1]}, "start": 7}, DataLost, "orders/1: offsets [2, 7) wanted, it holds [0, 2)"),
        ({"topics": ["refunds"], "start_time": FIRST_MS * 2}, Rejected, "choose an earlier time"),
        ({"topics": ["orders"], "start": {"refunds": 0}}, Rejected, "'refunds' is not among the topics that are read"),
    ],
)
def test_select_says_what_is_wrong(snapshot: Snapshot, how: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error) as caught:
        snapshot.select(**how)
    assert type(caught.value) is error
    assert words in str(caught.value).splitlines()[-1]


AT_MS = FIRST_MS + 11_000
AT = datetime.fromtimestamp(AT_MS / 1000, UTC)


class _NotATime(datetime):
    """As pandas.NaT: no time, and equal to nothing."""

    def __eq__(self, _: object) -> bool:
        return False

    def __ne__(self, _: object) -> bool:
        return True

    __hash__ = datetime.__hash__


NOT_A_TIME = _NotATime(2026, 1, 1)


@pytest.mark.parametrize(
    "time",
    [
        AT_MS,
        np.int64(AT_MS),
        str(AT_MS),
        AT.isoformat(),
        AT,
        AT.astimezone(timezone(timedelta(hours=8))),
        AT - timedelta(microseconds=1),  # a part of a millisecond rounds up
        {"orders": AT.isoformat()},
        {"orders": {"0": AT, "1": f"{AT:%Y-%m-%dT%H:%M:%S.%fZ}"}},
    ],
)
def test_a_time_is_a_number_a_text_or_a_datetime(snapshot: Snapshot, time: Any) -> None:
    assert ranges(snapshot, ["orders"], end_time=time) == [("orders", 0, 9, 10), ("orders", 1, 0, 1)]
    until = AT + timedelta(days=1)
    found = snapshot.scan(["orders"], start_time=time, end_time=until, missing_time="latest", columns="queueId")
    assert found.read_all()["queueId"].to_pylist() == [1]
    with pytest.raises(Rejected, match="before 2023-11-14T22:13:31Z; choose an earlier time, or missing_time='latest'"):
        snapshot.scan(["orders"], start_time=time, end_time=until)


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (AT.replace(tzinfo=None), "without a zone"),
        ("2026-11-25T09:00:00", "without a zone; write 2026-11-25T09:00:00Z"),
        ("yesterday", "ISO-8601"),
        (str(AT_MS // 1000), "looks like seconds"),
        (float(AT_MS), "expected ISO 8601 text with a zone, a datetime that has one, or milliseconds"),
        ("latest", "ISO-8601"),
        ("earliest", "ISO-8601"),
        (-1, "_time=-1"),
        (True, "expected ISO 8601"),
        ({"orders": {"0": -2}}, "_time=-2"),
        (NOT_A_TIME, "write a time"),
        (datetime(1969, 1, 1, tzinfo=UTC), "1970 or later"),
        (AT.date(), "expected ISO 8601"),
        (np.datetime64(AT_MS, "ms"), "expected ISO 8601"),
        ({"orders": "soon"}, "ISO-8601"),
    ],
)
def test_a_time_that_cannot_be_one_is_named(snapshot: Snapshot, time: Any, words: str) -> None:
    for name in ("start_time", "end_time"):
        with pytest.raises(Rejected) as caught:
            snapshot.scan(["orders"], **{name: time})
        assert words in str(caught.value)
    with pytest.raises(Rejected):
        snapshot.follow(["orders"], start_time=time)


def committed(root: Path) -> Snapshot:
    """The store of `filled` in which the group billing stands at 9 and 1 of orders."""
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{0:9,1:1}}}')
    return rmqstore.open_snapshot({"a": root})


def test_a_read_begins_where_a_group_stands(tmp_path: Path) -> None:
    snapshot = committed(filled(tmp_path, "one"))
    for start in ("group:billing", " Group: billing "):
        assert ranges(snapshot, "orders", start=start) == [("orders", 0, 9, 10), ("orders", 1, 1, 2)]
    assert ranges(snapshot, "orders, refunds", start="group:billing")[-1] == ("refunds", 0, 0, 1)
    assert snapshot.scan("orders", start="group:billing").read_all().num_rows == 2
    following = snapshot.follow("orders, refunds", start="group:billing", wait_s=0)
    assert sum(batch.rows.num_rows for batch in following) == 3


def test_a_group_that_is_not_there_is_named(tmp_path: Path) -> None:
    snapshot = committed(filled(tmp_path, "one"))
    for ask in (snapshot.scan, snapshot.select, snapshot.follow):
        with pytest.raises(Rejected, match="did you mean billing"):
            ask(["orders"], start="group:biling")
        with pytest.raises(Rejected, match="after group:"):
            ask(["orders"], start="group: ")
        with pytest.raises(UnknownTopic):
            ask(["ordres"], start="group:billing")


def test_several_stores_are_told_apart_by_their_brokers(tmp_path: Path) -> None:
    both = rmqstore.open_snapshot({"a": filled(tmp_path, "one"), "b": filled(tmp_path, "two")})
    assert both.select(assign={"orders": {"b": [1]}}) == (QueueRange("b", "orders", 1, 0, 2),)
    assert [r.broker for r in both.select(["orders"])] == ["a", "a", "b", "b"]
    starts = {"orders": {"b": {"1": 1}}}
    assert [(r.broker, r.start) for r in both.select(["orders"], start=starts) if r.queue_id == 1] == [
        ("a", 0),
        ("b", 1),
    ]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda both: both.select(assign={"orders": [1]}), "with several stores name the broker (a, b)"),
        (lambda both: both.message_at(0), "broker=None: name one of a, b"),
        (lambda both: both.offset_at("orders", 1, 0, broker="c"), "broker='c': name one of a, b"),
    ],
)
def test_several_stores_want_a_broker(tmp_path: Path, ask: Callable[[Snapshot], object], words: str) -> None:
    both = rmqstore.open_snapshot({"a": filled(tmp_path, "one"), "b": filled(tmp_path, "two")})
    with pytest.raises(Rejected) as caught:
        ask(both)
    assert words in str(caught.value)


def test_two_stores_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="several stores of a broker called default"):
        rmqstore.open_snapshot([filled(tmp_path, "one"), filled(tmp_path, "two")])
    with pytest.raises(Rejected, match="at least one directory"):
        rmqstore.open_snapshot([])


@pytest.mark.parametrize("keys", ["k,l", "'k'", "k | l", ["k l"], [""], '["k l"]', "[k]"])
def test_keys_that_no_message_can_have_are_refused_in_place_of_no_rows(keys, tmp_path):
    store = SmallStore()
    store.add(properties={"KEYS": "k l k,l"})
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    with pytest.raises(Rejected, match="key"):
        snapshot.scan(["T"], keys=keys)
    for right in ("k", "k || none", '["k,l"]', ["k,l"], ("none", "l"), {"k"}):
        assert snapshot.scan(["T"], keys=right).read_all().num_rows == 1


@pytest.mark.parametrize("ids", [[0, 0], (1, 0, 1), ["0", 0], [0, "00"]])
def test_a_queue_that_is_assigned_twice_is_read_once(tmp_path: Path, ids: Any) -> None:
    with open_store(tmp_path, StoreConfig(log_file_size=65536, preallocate=False), workers=False) as store:
        for number in range(20):
            store.put(Message("t", b"%d" % number, queue_id=number % 2))
    wanted = 10 * len({int(number) for number in ids})
    for assign in ({"t": ids}, {"t": {"default": ids}}):
        for mode in ("auto", "queue", "commitlog"):
            assert open_snapshot(tmp_path).scan(assign=assign, scan_mode=mode).read_all().num_rows == wanted


@pytest.mark.parametrize("offsets", [{"0": 5, "00": 6}, {0: 5, "0": 5}, {" 0": 1, "0": 2}])
def test_offsets_that_name_a_queue_twice_are_refused(tmp_path: Path, offsets: Any) -> None:
    with open_store(tmp_path, StoreConfig(log_file_size=65536, preallocate=False), workers=False) as store:
        store.put(Message("t", b"x"))
    with pytest.raises(Rejected, match="has queue 0 twice"):
        open_snapshot(tmp_path).select(topics=["t"], start={"t": offsets})


def test_a_queue_id_has_ascii_digits(tmp_path: Path) -> None:
    with open_store(tmp_path, StoreConfig(log_file_size=65536, preallocate=False), workers=False) as store:
        store.put(Message("t", b"x", queue_id=3))
    with pytest.raises(Rejected, match="is not an integer"):
        open_snapshot(tmp_path).scan(assign={"t": ["\u0663"]})
