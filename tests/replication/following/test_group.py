"""Replicas side by side: masters that are away at the beginning, that come later, that cannot be followed at all."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.config import HaConfig
from rmqstore.errors import Rejected
from rmqstore.replica.following import backoff, group
from rmqstore.replica.following.group import Open, ReplicaGroup
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.following.state import ReplicaState
from rmqstore.replica.remoting.client import Unreachable
from rmqstore.replica.remoting.cluster import BrokerSettings
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.stores

FILE_SIZE = 16_384


class AwayMaster(BareMaster):
    """A broker that does not answer until `is_here`."""

    is_here = False

    def settings(self) -> BrokerSettings:
        if not self.is_here:
            raise Unreachable(self.address, "connection refused")
        return super().settings()


class Place(NamedTuple):
    """A store with ten messages, as a master, and where its replica is to be."""

    store: rmqstore.Store
    master: AwayMaster
    path: Path

    @property
    def opens(self) -> Open:
        return partial(Replica, self.path, self.master)

    @property
    def end(self) -> int:
        return self.store.statistics().gauges.log_max_offset


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Place]]:
    monkeypatch.setattr(group, "_NEWS_S", 0.01)
    monkeypatch.setattr(backoff, "_FIRST_S", 0.01)
    made = []
    for name in ("a", "b", "c"):
        config = StoreConfig(log_file_size=FILE_SIZE, ha=HaConfig(listen="127.0.0.1:0"))
        store = rmqstore.open_store(tmp_path / f"master-{name}", config)
        for number in range(10):
            store.put(Message("t", f"{name}{number}".encode()))
        store.flush()
        assert store.ha_address is not None
        made.append(Place(store, AwayMaster(store.ha_address, FILE_SIZE, name), tmp_path / name))
    yield made
    for place in made:
        place.store.close()


def run_until(running: ReplicaGroup, done: Callable[[dict[str, ReplicaState]], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S

    def is_stopping() -> bool:
        assert time.monotonic() < end_s, running.states()
        return done(running.states())

    running.run(lambda _: None, is_stopping)


def bodies(place: Place) -> int:
    return open_snapshot(place.path).scan().read_all().num_rows


def has_all(places: dict[str, Place]) -> Callable[[dict[str, ReplicaState]], bool]:
    return lambda states: all(name in states and states[name].log_end >= place.end for name, place in places.items())


@pytest.mark.deep
def test_one_that_is_away_at_the_beginning_does_not_keep_the_others_away(places: list[Place]) -> None:
    first, second, _ = places
    first.master.is_here = True
    with ReplicaGroup({"a": first.opens, "b": second.opens}) as running:

        def waits_for_the_other(states: dict[str, ReplicaState]) -> bool:
            if has_all({"a": first})(states) and not second.master.is_here:
                assert states["b"].phase == "waiting"
                assert "connection refused" in states["b"].error
                second.master.is_here = True
            return has_all({"a": first, "b": second})(states)

        run_until(running, waits_for_the_other)
        assert not running.failures
    assert [bodies(first), bodies(second)] == [10, 10]


def test_a_master_that_comes_later_is_taken_in(places: list[Place]) -> None:
    first, second, third = places
    listed = {"a": first.opens}
    for place in places:
        place.master.is_here = True
    asked = 0

    def more() -> dict[str, Open]:
        nonlocal asked
        asked += 1
        if asked % 2:
            raise Unreachable("127.0.0.1:9876", "away for a moment")
        return listed

    with ReplicaGroup(dict(listed), more) as running:

        def lists_the_others(states: dict[str, ReplicaState]) -> bool:
            if has_all({"a": first})(states):
                listed.update({"b": second.opens, "c": third.opens})
            return has_all({"a": first, "b": second, "c": third})(states)

        run_until(running, lists_the_others)
        assert not running.failures
    assert [bodies(place) for place in places] == [10, 10, 10]


def test_one_that_cannot_be_followed_fails_alone(places: list[Place]) -> None:
    first, second, third = places
    first.master.is_here = second.master.is_here = True
    third.path.mkdir()
    (third.path / "photo.jpg").write_bytes(b"x")
    third.master.is_here = True
    with ReplicaGroup({"a": first.opens}, lambda: {"b": second.opens, "c": third.opens}) as running:
        run_until(running, lambda states: "c" in running.failures and has_all({"a": first, "b": second})(states))
        assert list(running.failures) == ["c"]
    assert [path.name for path in third.path.iterdir()] == ["photo.jpg"]


def test_at_the_beginning_one_that_cannot_be_opened_at_all_ends_it_with_nothing_open(places: list[Place]) -> None:
    first, second, _ = places
    first.master.is_here = second.master.is_here = True
    second.path.mkdir()
    (second.path / "photo.jpg").write_bytes(b"x")
    with pytest.raises(Rejected, match="store"):
        ReplicaGroup({"a": first.opens, "b": second.opens})
    first.opens().close()  # nobody has it


def test_once_a_master_that_is_away_is_a_failure(places: list[Place]) -> None:
    first, second, _ = places
    first.master.is_here = True
    with ReplicaGroup({"a": first.opens, "b": second.opens}) as running:
        running.run(lambda _: None, lambda: False, once=True)
        assert list(running.failures) == ["b"]
        assert isinstance(running.failures["b"], Unreachable)
    assert bodies(first) == 10


@pytest.mark.host
def test_one_that_waits_is_stopped_at_once(places: list[Place]) -> None:
    first, *_ = places
    with ReplicaGroup({"a": first.opens}) as running:
        began_s = time.monotonic()
        run_until(running, lambda states: states["a"].phase == "waiting")
        assert time.monotonic() - began_s < 20
    assert not first.path.exists()


def test_once_a_master_that_cannot_be_followed_is_given_up(places: list[Place]) -> None:
    first, *_ = places
    first.master.is_here = True
    first.store.close()
    with ReplicaGroup({"a": first.opens}) as running:
        running.run(lambda _: None, lambda: False, once=True)
        assert "Connection refused" in str(running.failures["a"])
