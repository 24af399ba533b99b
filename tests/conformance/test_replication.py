"""Replicas of real masters of RocketMQ on loopback: bytes, queues and tables are the same on both sides, whoever is
killed meanwhile.
"""

import os
import shutil
import signal
import struct
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqstore import open_snapshot, open_store
from rmqstore.replica.following.masters import Broker as KnownBroker
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.following.state import ReplicaState
from rmqstore.replica.remoting.client import RemotingClient, Unreachable
from rmqstore.replica.remoting.cluster import runtime
from tests.conformance.broker import BROKER_NAME, Broker, BrokerClient, free_port, name_server, until
from tests.conformance.replicas import (
    TOPIC,
    Cluster,
    ended,
    has_log,
    log_end,
    log_of,
    replicated,
    replicating,
    require_same,
    require_same_tables,
    row_count,
    run,
    send,
)

_UPDATE_CONSUMER_OFFSET, _DELETE_TOPIC, _SEND_MESSAGE, _CLEAN_EXPIRED_CONSUMEQUEUE = 15, 215, 10, 306
_ENTRY_SIZE = 20
# What a broker of 5.4 and later may keep elsewhere than in the files of before.  With rocksdbCQDoubleWriteEnable one of
# 5.5.1 ends while it starts, unless its light queues are in RocksDB alone (RocksDBLiteLifecycleManager.init).
LAYOUTS: dict[str, dict[str, Any]] = {
    "transactions, timers and index in RocksDB": {
        "transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false", "timerRocksDBEnable": "true",
        "indexRocksDBEnable": "true", "indexFileWriteEnable": "false",
    },
    "queues and tables in RocksDB": {
        "storeType": "defaultRocksDB", "useSeparateStorePathForRocksdbCQ": "true",
        "useSingleRocksDBForAllConfigs": "true",
    },
    "queues in files and RocksDB": {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true"},
    "queues in files and RocksDB, apart": {
        "rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true",
        "useSeparateStorePathForRocksdbCQ": "true",
    },
}  # fmt: skip


def has_caught_up(state: ReplicaState) -> bool:
    return state.phase == "following" and state.behind_bytes == 0


def test_a_replica_has_every_byte_whoever_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    with ExitStack() as children:
        with cluster.master(tmp_path / "first", store) as (running, client):
            send(client, 1000, "a")
            child = children.enter_context(replicating(cluster, tmp_path / "replicas"))
            send(client, 1000, "b")
            until("some of the log", lambda: (replica / "commitlog").exists() and log_of(replica, 200_000))
            child.kill()
            child.wait()
            send(client, 1000, "c")
            child = children.enter_context(replicating(cluster, tmp_path / "replicas"))
            end = log_end(running)
            until("the log", lambda: len(log_of(replica, end)) == end and has_log(replica, store, end))
            running.end(signal.SIGKILL)
        with cluster.master(tmp_path / "second", store) as (running, client):
            send(client, 1000, "d")
            fill_tables(running, client)
            until("the delayed message", lambda: row_count(store, "Later") == 1)
            end = log_end(running)
            until("the log", lambda: has_log(replica, store, end))
            until("all rows", lambda: row_count(replica) == 4000)
            ended(child)
            assert not (replica / "abort").exists()
            require_same(replica, store, end, rows=4000)
            assert replicated(cluster, tmp_path / "replicas", "--once")[0] == 0
            require_same_tables(replica, running)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_replica_of_a_master_that_keeps_things_in_rocksdb_has_plain_files(
    layout: str, newest: Cluster, tmp_path: Path
) -> None:
    """All bytes and rows, queues of its own, and the tables as the master answers; both are killed once."""
    store, replica, settings = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME, LAYOUTS[layout]
    with ExitStack() as children:
        with newest.master(tmp_path / "first", store, **settings) as (running, client):
            send(client, 2000, "a")
            child = children.enter_context(replicating(newest, tmp_path / "replicas"))
            until("some of the log", lambda: (replica / "commitlog").exists() and log_of(replica, 200_000))
            child.kill()
            running.end(signal.SIGKILL)
        with newest.master(tmp_path / "second", store, **settings) as (running, client):
            send(client, 1000, "b")
            fill_tables(running, client)
            until("the delayed message", lambda: row_count(store, "Later") == 1)
            child = children.enter_context(replicating(newest, tmp_path / "replicas"))
            end = log_end(running)
            until("the log", lambda: has_log(replica, store, end))
            until("all rows", lambda: row_count(replica) == 3000)
            ended(child)
            assert replicated(newest, tmp_path / "replicas", "--once")[0] == 0
            require_same(replica, store, log_end(running), rows=3000)
            require_same_tables(replica, running)
    with open_store(replica) as promoted:
        found = promoted.query(TOPIC, "b999")
    assert [message.body for message in found] == [b"b-999" * 8]


def fill_tables(running: Broker, client: BrokerClient) -> None:
    """A group, how far it is, and a delay level that has delivered something."""
    client.call("group", name="Readers", retryQueues=2, maxTimes=3)
    client.send([{"topic": "Later", "body": b"x", "delay": 1}])
    with RemotingClient(running.address) as asking:
        place = {"consumerGroup": "Readers", "topic": "Orders", "queueId": "1", "commitOffset": "17"}
        asking.ask(_UPDATE_CONSUMER_OFFSET, place)


def test_a_topic_that_the_master_deletes_and_makes_again(cluster: Cluster, tmp_path: Path) -> None:
    """For a replica that was there, for one that comes later, and for a reader of the master's own store."""
    store, replica, later = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME, tmp_path / "later" / BROKER_NAME
    with ExitStack() as children, cluster.master(tmp_path / "work", store) as (running, client):
        send(client, 300, "old")
        child = children.enter_context(replicating(cluster, tmp_path / "replicas"))
        until("the old log", lambda: has_log(replica, store, log_end(running)))
        with RemotingClient(running.address) as asking:
            asking.ask(_DELETE_TOPIC, {"topic": TOPIC})
        send(client, 70, "new")
        end = log_end(running)
        until("the log", lambda: has_log(replica, store, end))
        until("all rows", lambda: row_count(replica) == 70)
        assert replicated(cluster, tmp_path / "later", "--once")[0] == 0
        require_same(replica, store, end, rows=70)
        require_same(later, store, end, rows=70)
        ended(child)
        running.end()
    assert row_count(store) == 70
    assert bodies(store) == bodies(replica) == bodies(later)


def put_to(running: Broker, queue_id: int, *bodies: bytes, level: int = 0, topic: str = TOPIC) -> None:
    """Sends messages to one queue, to wait where they have a delay level."""
    properties = f"DELAY\x01{level}\x02" if level else ""
    with RemotingClient(running.address) as asking:
        for body in bodies:
            fields = {"producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
                      "queueId": str(queue_id), "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
                      "reconsumeTimes": "0", "properties": properties, "unitMode": "false",
                      "batch": "false"}  # fmt: skip
            asking.ask(_SEND_MESSAGE, fields, body)


def test_a_queue_that_the_master_cleans_as_expired_begins_again_alone(cluster: Cluster, tmp_path: Path) -> None:
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    settings = {"deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)), "fileReservedTime": 1}
    with ExitStack() as children, cluster.master(tmp_path / "first", store, **settings) as (running, _):
        put_to(running, 0, b"k0", b"k1", b"k2")
        put_to(running, 3, b"before")
        put_to(running, 1, *[b"%d" % number * 40 for number in range(10_000, 16_050)])
        put_to(running, 2, b"other")
        assert replicated(cluster, tmp_path / "replicas", "--once")[0] == 0
        first, *_, _ = sorted((store / "commitlog").iterdir())
        os.utime(first, (0, 0))
        until("the old file to go", lambda: not first.exists(), deadline_s=180)
        child = children.enter_context(replicating(cluster, tmp_path / "replicas"))
        with RemotingClient(running.address) as asking:
            asking.ask(_CLEAN_EXPIRED_CONSUMEQUEUE)
        put_to(running, 0, b"n0", b"n1")
        put_to(running, 1, b"m")
        end = log_end(running)
        until("the log", lambda: has_end(replica, store, end))
        until("the new rows", lambda: {b"n0", b"n1", b"m"} <= set(bodies(replica)))
        ended(child)
        running.end()
    found = bodies(replica)
    assert [body for body in found if len(body) < 10] == [b"before", b"m", b"n0", b"n1", b"other"]
    assert len(found) == 6055
    assert run("verify", str(replica))[0] == 0
    assert set(bodies(store)) <= set(found)


def test_delay_levels_of_a_master_that_is_started_again_with_others(cluster: Cluster, tmp_path: Path) -> None:
    """Entries have the same delivery times: those of before the restart as well, and after the replica was killed."""
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    for number, levels in enumerate(("2h 3h", "5h 40m 1d 1h", "6h")):
        with cluster.master(tmp_path / f"work-{number}", store, messageDelayLevel=levels) as (running, _):
            for level in (1, 2, 3, 9):
                put_to(running, 0, b"%d" % number, b"later", level=level)
            end = log_end(running)
            with replicating(cluster, tmp_path / "replicas") as child:
                until("the log", partial(has_end, replica, store, end))
                child.kill() if number == 1 else ended(child)
            running.end()
    assert waiting_entries(replica) == waiting_entries(store)
    assert len(waiting_entries(store)) == 24
    shutil.rmtree(replica / "consumequeue")
    assert run("recover", str(replica))[0] == 0
    assert waiting_entries(replica) == waiting_entries(store)


def test_queues_after_retention_a_clean_up_deletions_under_puts_and_other_delay_levels(
    cluster: Cluster, tmp_path: Path
) -> None:
    """They have the master's entries, each in its place, of all messages that its log still has."""
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    settings = {"deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)), "fileReservedTime": 1}
    with ExitStack() as children:
        with cluster.master(tmp_path / "first", store, messageDelayLevel="2h 3h", **settings) as (running, _):
            put_to(running, 0, b"k0", b"k1", b"k2")
            put_to(running, 3, b"before")
            child = children.enter_context(replicating(cluster, tmp_path / "replicas"))
            put_to(running, 1, *[b"%d" % number * 40 for number in range(10_000, 16_050)])
            put_and_delete(running)
            first, *_, _ = sorted((store / "commitlog").iterdir())
            os.utime(first, (0, 0))
            until("the old file to go", lambda: not first.exists(), deadline_s=180)
            with RemotingClient(running.address) as asking:
                asking.ask(_CLEAN_EXPIRED_CONSUMEQUEUE)
            put_to(running, 0, b"n0", b"n1")
            put_to(running, 2, b"soon", b"later", level=2)
            until("the first log", partial(has_end, replica, store, log_end(running)))
            child.kill()
            put_and_delete(running)
            put_to(running, 1, b"the last one")  # else a broker dispatches again what is deleted
            running.end()
        with cluster.master(tmp_path / "second", store, messageDelayLevel="5h 40m 6h", **settings) as (running, _):
            put_to(running, 2, b"soon", b"later", level=3)
            child = children.enter_context(replicating(cluster, tmp_path / "replicas"))
            put_and_delete(running)
            until("the second log", partial(has_end, replica, store, log_end(running)))
            ended(child)
            running.end()
    begin = min(int(path.name) for path in (store / "commitlog").iterdir())
    theirs = queue_entries(store, begin)
    assert begin > 0
    assert {topic for topic, *_ in theirs} == {TOPIC, "Doomed", "SCHEDULE_TOPIC_XXXX"}
    ours = queue_entries(replica, begin)
    # A broker may leave a queue file of what it deleted while there were puts; its entries lead in front of that.
    again = min(_place(entry) for (topic, *_), entry in ours.items() if topic == "Doomed")
    left = [key for key, entry in theirs.items() if key[0] == "Doomed" and _place(entry) < again]
    assert ours == {key: entry for key, entry in theirs.items() if key not in left}
    assert run("verify", str(replica))[0] == 0


def _place(entry: bytes) -> int:
    return int.from_bytes(entry[:8], "big")


def put_and_delete(running: Broker) -> None:
    """Deletes a topic five times while messages are put to it, and once more before it gets its last ones.

    While there are puts, a broker may delete a part of it only: its own queues have old messages then in place of new
    ones, which a replica has.
    """

    def put_some(queue_id: int) -> None:
        for number in range(15 * (queue_id + 1)):
            with suppress(Unreachable):  # a broker's NullPointerException, while the topic goes
                put_to(running, queue_id, b"%d" % number, topic="Doomed")

    with RemotingClient(running.address) as asking:
        for _ in range(5):
            with ThreadPoolExecutor() as putting:
                puts = [putting.submit(put_some, queue_id) for queue_id in range(4)]
                wait(puts, return_when=FIRST_COMPLETED)
                asking.ask(_DELETE_TOPIC, {"topic": "Doomed"})
                for each in puts:
                    each.result()
        until("the queues", lambda: not runtime(asking).undispatched)
        asking.ask(_DELETE_TOPIC, {"topic": "Doomed"})
    for queue_id in range(4):
        put_to(running, queue_id, b"1", b"2", b"3", topic="Doomed")


def queue_entries(store: Path, begin: int) -> dict[tuple[str, int, int], bytes]:
    """The entries of messages that stand at `begin` in the log or later, by topic, queue and number, as the files have
    them."""
    found = {}
    for path in (store / "consumequeue").glob("*/*/*"):
        data, first = path.read_bytes(), int(path.name) // _ENTRY_SIZE
        for number in range(len(data) // _ENTRY_SIZE):
            entry = data[number * _ENTRY_SIZE :][:_ENTRY_SIZE]
            place, size = struct.unpack_from(">qi", entry)
            if size and place >= begin:
                found[path.parts[-3], int(path.parts[-2]), first + number] = entry
    return found


def waiting_entries(store: Path) -> list[tuple[int, ...]]:
    """Queue, place in it, place in the log, and delivery time of each message that waits."""
    columns = ["queueId", "queueOffset", "physicalOffset", "tagsCode"]
    rows = open_snapshot(store).scan(topics=["SCHEDULE_TOPIC_XXXX"], columns=columns).read_all().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def has_end(replica: Path, store: Path, end: int) -> bool:
    """Whether a replica has the bytes that are left of the master's log, up to `end`."""
    theirs, ours = files_of(store), files_of(replica)
    begun = {name: end - int(name) for name in theirs if int(name) < end}  # a broker makes the next file in advance
    return all(theirs[name][:size] == ours.get(name, b"")[:size] for name, size in begun.items())


def files_of(store: Path) -> dict[str, bytes]:
    """The files of a log by their names."""
    found = {}
    for path in (store / "commitlog").glob("*"):
        with suppress(FileNotFoundError):  # the next file is made in advance, and may go again
            found[path.name] = path.read_bytes()
    return found


def bodies(store: Path) -> list[bytes]:
    """The bodies of the topic's messages, sorted."""
    found: list[bytes] = open_snapshot(store).scan(topics=[TOPIC]).read_all()["body"].to_pylist()
    return sorted(found)


def test_a_replica_of_a_master_that_deleted_its_first_files_begins_where_that_begins(
    newest: Cluster, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with newest.master(tmp_path / "work", store) as (running, client):
        send(client, 9000, "a")
        running.end(signal.SIGKILL)
    first, *_, _ = sorted((store / "commitlog").iterdir())
    first.unlink()
    with newest.master(tmp_path / "again", store) as (running, client):
        send(client, 10, "b")
        with Replica(tmp_path / "copy", KnownBroker(running.address)) as replica:
            assert replica.state.log_start == 1 << 20
            replica.run(has_caught_up)
            replica.finish()
        assert log_of(tmp_path / "copy", 1 << 20) == log_of(store, 1 << 20)
        assert row_count(tmp_path / "copy") == row_count(store) > 10


def test_a_master_that_lost_its_end_is_told_and_the_replica_realigned(newest: Cluster, tmp_path: Path) -> None:
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    with newest.master(tmp_path / "first", store) as (running, client):
        send(client, 500, "a")
        assert replicated(newest, tmp_path / "replicas", "--once")[0] == 0
        running.end(signal.SIGKILL)
    shutil.copytree(store, tmp_path / "older")
    with newest.master(tmp_path / "second", store) as (running, client):
        send(client, 300, "lost")
        assert replicated(newest, tmp_path / "replicas", "--once")[0] == 0
        running.end(signal.SIGKILL)
    with newest.master(tmp_path / "third", tmp_path / "older") as (running, client):
        send(client, 700, "new")
        before = log_of(replica, 1 << 30)
        _, said = replicated(newest, tmp_path / "replicas", "--once")
        assert "differ after offset" in said
        assert log_of(replica, 1 << 30) == before
        _, said = replicated(newest, tmp_path / "replicas", "--realign")
        assert "300 records" in said
        assert log_of(replica, 1 << 30) == before
        assert replicated(newest, tmp_path / "replicas", "--realign", "--yes")[0] == 0
        assert replicated(newest, tmp_path / "replicas", "--once")[0] == 0
        require_same(replica, tmp_path / "older", log_end(running), rows=1200)


def test_a_name_server_may_go_and_come_back_knowing_nobody_and_the_broker_at_another_port(
    newest: Cluster, tmp_path: Path
) -> None:
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    port = free_port(0)
    own = Cluster(newest.rocketmq, f"127.0.0.1:{port}")
    with ExitStack() as running:
        with ExitStack() as first_name_server:
            first_name_server.enter_context(name_server(tmp_path / "named", own.rocketmq, port=port))
            first, client = running.enter_context(own.master(tmp_path / "first", store))
            send(client, 100, "a")
            child = running.enter_context(replicating(own, tmp_path / "replicas"))
            until("the log", lambda: has_log(replica, store, log_end(first)))
        send(client, 100, "b")
        until("the log without a name server", lambda: has_log(replica, store, log_end(first)))
        first.end(signal.SIGKILL)
        running.enter_context(name_server(tmp_path / "named-again", own.rocketmq, port=port))
        second, client = running.enter_context(own.master(tmp_path / "second", store))
        assert second.address != first.address
        send(client, 100, "c")
        until("the log of the other port", lambda: has_log(replica, store, log_end(second)))
        until("all rows", lambda: row_count(replica) == 300)
        ended(child)
        require_same(replica, store, log_end(second), rows=300)
