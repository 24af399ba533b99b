"""Whose store a directory is: what it says itself, its directory, the other stores, or a guess that is told."""

import json
import logging
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Rejected
from rmqstore.snapshot import StoresIn
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

REPLICA = {"cluster": "C", "logStart": 0}


def store_of(root: Path, *brokers: str, files: dict[str, str] | None = None) -> Path:
    """A store whose topics.json has the sync topic of each broker, in this order; `files` are written last."""
    store = SmallStore()
    store.add(body=str(root).encode())
    store.write(root)
    table = {f"rmq_sys_SYNC_BROKER_MEMBER_{broker}": {"topicName": "x", "readQueueNums": 1} for broker in brokers}
    written = {"config/topics.json": json.dumps({"topicConfigTable": table})} | (files or {})
    for name, text in written.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def names_of(paths: object) -> list[str]:
    return [store.broker_name for store in rmqstore.open_snapshot(paths).stores]  # type: ignore[arg-type]


QUOTED = "{'topicConfigTable':{'rmq_sys_SYNC_BROKER_MEMBER_b':{},'rmq_sys_SYNC_BROKER_MEMBER_a b':{},}}"
# The store's directory, the brokers of its table, its other files; its name, and whether that is a guess.
STORES: dict[str, tuple[str, tuple[str, ...], dict[str, str], str, bool]] = {
    "a single name": ("s", ("z",), {}, "z", False),
    "no name": ("s", (), {}, "default", False),
    "the directory has one of them": ("b", ("a", "b", "c"), {}, "b", False),
    "the directory has another one": ("x", ("a",), {}, "a", False),
    "nothing tells": ("s", ("b", "a"), {}, "a", True),
    "in another order": ("s", ("a", "b"), {}, "a", True),
    "a controller gave it one": ("s", ("a", "b"), {"brokerIdentity": "C#b#1"}, "b", False),
    "a replica": ("s", ("a", "b"), {"config/replica.json": json.dumps(REPLICA | {"brokerName": "b"})}, "b", False),
    "a replica in another's directory": ("a", ("a", "b"), {"config/replica.json": '{"brokerName": "b"}'}, "b", False),
    "a replica of a store of ours": ("b", ("a", "b"), {"config/replica.json": '{"brokerName": "default"}'}, "b", False),
    "a note that cannot be read": ("s", ("a", "b"), {"config/replica.json": "{"}, "a", True),
    "single quotes": ("s", (), {"config/topics.json": QUOTED}, "a b", True),
    "the older table": ("s", (), {"config/topics.json.bak": QUOTED}, "a b", True),
}


@pytest.mark.parametrize("case", STORES)
def test_the_name_of_one_store(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory, brokers, files, name, is_guess = STORES[case]
    root = store_of(tmp_path / directory, *brokers, files=files)
    with caplog.at_level(logging.WARNING, "rmqstore"):
        assert names_of(root) == [name]
    told = [line for line in caplog.messages if "a guess" in line]
    assert len(told) == is_guess
    assert all(f"{root} is taken for the store of the broker '{name}'" in line and "'b'" in line for line in told)
    assert names_of({"mine": root}) == ["mine"]


# The brokers of the tables of several stores, and their names.
SEVERAL = {
    "the table was copied": (("a", "ab"), ["a", "b"]),
    "in another order": (("ab", "a"), ["b", "a"]),
    "copied twice": (("abc", "a", "ab"), ["c", "a", "b"]),
    "one has none": (("", "ab", "b"), ["default", "a", "b"]),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_several_stores_each_under_its_own_name(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tables, names = SEVERAL[case]
    roots = [store_of(tmp_path / f"s{number}", *brokers) for number, brokers in enumerate(tables)]
    assert names_of(roots) == names
    assert not caplog.messages


@pytest.mark.parametrize("tables", [("ab", "ab"), ("ab", "ba"), ("a", "a"), ("", ""), ("ab", "ac")])
def test_stores_that_cannot_be_told_apart(tables: tuple[str, str], tmp_path: Path) -> None:
    roots = [store_of(tmp_path / f"s{number}", *brokers) for number, brokers in enumerate(tables)]
    words = (
        f"several stores of a broker called {tables[0][:1] or 'default'}, {roots[0]} and {roots[1]}: name them, as {{"
    )
    with pytest.raises(Rejected) as caught:
        names_of(roots)
    assert words in str(caught.value)
    assert names_of({"a": roots[0], "b": roots[1]}) == ["a", "b"]


def test_a_directory_of_stores(tmp_path: Path) -> None:
    for broker in ("broker-a", "broker-b"):
        store_of(tmp_path / "stores" / broker, "broker-a", "broker-b")
    assert names_of(StoresIn(str(tmp_path / "stores"))) == ["broker-a", "broker-b"]
    store_of(tmp_path / "stores" / "broker-c", "broker-a", "broker-b")
    with pytest.raises(Rejected, match="is a store of the broker 'broker-a' or 'broker-b', and its directory"):
        names_of(StoresIn(str(tmp_path / "stores")))
