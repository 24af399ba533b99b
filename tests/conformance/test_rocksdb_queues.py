"""Queues that a broker of the newest line keeps in RocksDB alone: read beside it, killed, and ended."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.replica.remoting.client import RemotingClient
from rmqstore.snapshot.opening import look_at, open_stores
from rmqstore.snapshot.reader import SnapshotReader
from tests.conformance.replicas import TOPIC, Cluster, send
from tests.golden.rows import EVERYTHING, plain_rows

pytestmark = [pytest.mark.java, pytest.mark.deep]

_DELETE_TOPIC = 215
IN_ROCKSDB = {"storeType": "defaultRocksDB", "useSeparateStorePathForRocksdbCQ": "true"}
SOME = [{"topic": "Gone", "body": b"%d" % number} for number in range(50)]


def rows_of(store: Path, look: Callable[[str], SnapshotReader]) -> list[dict[str, object]]:
    return plain_rows(look(str(store)).scan(**EVERYTHING).read_all())


def reads_database(store: Path) -> bool:
    return open_stores(str(store)).stores[0].database is not None


def require_both_ways(store: Path, count: int) -> None:
    """All rows, by the entries in RocksDB where they tell, and along the log."""
    rows = rows_of(store, look_at)
    assert rows_of(store, open_stores) == rows
    assert sum(row["topic"] == TOPIC for row in rows) == count


def topics_of(store: Path) -> set[object]:
    """The topics of clients that have messages."""
    return {
        row["topic"] for row in open_stores(str(store)).scan(pattern=".*", columns=["topic"]).read_all().to_pylist()
    }


def test_queues_of_a_broker_that_runs_is_killed_and_ends(newest: Cluster, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with newest.master(tmp_path / "first", store, **IN_ROCKSDB) as (running, client):
        send(client, 3000, "a")
        require_both_ways(store, 3000)
        running.end(signal.SIGKILL)
    require_both_ways(store, 3000)
    with newest.master(tmp_path / "second", store, **IN_ROCKSDB) as (running, client):
        send(client, 1000, "b")
        client.send(SOME)
        require_both_ways(store, 4000)
        running.end(signal.SIGTERM)
    assert reads_database(store)
    require_both_ways(store, 4000)
    with newest.master(tmp_path / "third", store, **IN_ROCKSDB) as (running, client):
        send(client, 500, "c")
        assert reads_database(store)
        require_both_ways(store, 4500)
        running.end(signal.SIGKILL)
    assert reads_database(store)
    require_both_ways(store, 4500)
    with newest.master(tmp_path / "fourth", store, **IN_ROCKSDB) as (running, client):
        send(client, 500, "d")
        client.send(SOME)  # it deletes the queues that it used since it began
        assert topics_of(store) == {TOPIC, "Gone"}
        with RemotingClient(running.address) as asking:
            asking.ask(_DELETE_TOPIC, {"topic": "Gone"})
        running.end(signal.SIGTERM)
    require_both_ways(store, 5000)
    assert topics_of(store) == {TOPIC}
