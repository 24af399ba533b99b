"""Real masters and slaves of RocketMQ 5.3.3 on loopback: bytes, queues and tables are the same on both sides, whoever
is killed meanwhile.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.config import HaConfig
from rmqstore.remoting.client import Access, Refused, RemotingClient, Unreachable
from rmqstore.remoting.cluster import runtime
from rmqstore.remoting.signing import Credentials
from rmqstore.replication.following.masters import Broker as KnownBroker
from rmqstore.replication.following.replica import Replica
from rmqstore.replication.following.state import ReplicaState
from tests.conformance.broker import BROKER_NAME, Broker, BrokerClient, broker, name_server, until

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 2000}
_EXCHANGE_HA_INFO = 906


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with name_server(tmp_path_factory.mktemp("namesrv")) as address:
        yield address


@contextmanager
def master(work: Path, store: Path, named: str, **settings: Any) -> Iterator[tuple[Broker, BrokerClient]]:
    with broker(work, store, named, SMALL | settings) as (running, client):
        running.change()  # registers with the name server
        yield running, client


def send(client: BrokerClient, count: int, mark: str, topic: str = "Orders") -> None:
    for begin in range(0, count, 200):
        numbers = range(begin, min(begin + 200, count))
        client.send([{"topic": topic, "body": f"{mark}-{number}".encode() * 8, "keys": f"{mark}{number}"}
                     for number in numbers])  # fmt: skip


def log_of(store: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[:end]


def has_caught_up(state: ReplicaState) -> bool:
    return state.phase == "following" and state.behind_bytes == 0


def log_end(running: Broker) -> int:
    present = KnownBroker(running.address)
    try:
        return present.present().log_end
    finally:
        present.close()


@contextmanager
def command(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The command line, in a process of its own, which is killed at the end if it still runs."""
    program = [sys.executable, "-c", 'from rmqstore.cli import main; main(prog_name="rmqstore")', *arguments]
    path = str(Path(rmqstore.__file__).parents[1])
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | {"PYTHONPATH": path}
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def run(*arguments: str) -> tuple[int, str]:
    """A command's exit status, and what it said."""
    with command(*arguments) as child:
        said = child.communicate(timeout=120)[0]
        return child.returncode, said


def replicated(named: str, target: Path, *options: str) -> tuple[int, str]:
    return run("replicate", "--namesrv", named, "--to", str(target), *options)


def replicating(named: str, target: Path) -> AbstractContextManager["subprocess.Popen[str]"]:
    return command("replicate", "--namesrv", named, "--to", str(target))


def require_same(replica: Path, store: Path, end: int, rows: int) -> None:
    """The bytes of the log, the rows of both, and queues that agree with a rebuild."""
    assert log_of(replica, end) == log_of(store, end)
    ours, theirs = ({(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
                     for row in open_snapshot(place).queues().to_pylist()} for place in (replica, store))  # fmt: skip
    assert ours == theirs
    assert open_snapshot(replica).scan(topics=["Orders"]).read_all().num_rows == rows
    assert run("verify", str(replica))[0] == 0


def test_a_replica_has_every_byte_whoever_is_killed(named: str, tmp_path: Path) -> None:
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    with ExitStack() as children:
        with master(tmp_path / "first", store, named) as (running, client):
            send(client, 1000, "a")
            child = children.enter_context(replicating(named, tmp_path / "replicas"))
            send(client, 1000, "b")
            until("some of the log", lambda: (replica / "commitlog").exists() and log_of(replica, 200_000))
            child.kill()
            child.wait()
            send(client, 1000, "c")
            child = children.enter_context(replicating(named, tmp_path / "replicas"))
            end = log_end(running)
            until("the log", lambda: len(log_of(replica, end)) == end and log_of(replica, end) == log_of(store, end))
            running.end(signal.SIGKILL)
        with master(tmp_path / "second", store, named) as (running, client):
            send(client, 1000, "d")
            end = log_end(running)
            until("the log", lambda: log_of(replica, end) == log_of(store, end))
            until("all rows", lambda: open_snapshot(replica).scan(topics=["Orders"]).read_all().num_rows == 4000)
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0, child.communicate()
            require_same(replica, store, end, rows=4000)
            assert not (replica / "abort").exists()
            tables = open_snapshot(replica).table("topics").to_pylist()
            assert "Orders" in {row["topic"] for row in tables}


def test_a_replica_of_a_master_that_deleted_its_first_files_begins_where_that_begins(
    named: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with master(tmp_path / "work", store, named) as (running, client):
        send(client, 9000, "a")
        running.end(signal.SIGTERM)
    first, *_, _ = sorted((store / "commitlog").iterdir())
    first.unlink()
    with master(tmp_path / "again", store, named) as (running, client):
        send(client, 10, "b")
        with Replica(tmp_path / "copy", KnownBroker(running.address)) as replica:
            assert replica.state.log_start == 1 << 20
            replica.run(has_caught_up)
            replica.finish()
        assert log_of(tmp_path / "copy", 1 << 20) == log_of(store, 1 << 20)
        read = open_snapshot(tmp_path / "copy").scan(topics=["Orders"]).read_all().num_rows
        assert read == open_snapshot(store).scan(topics=["Orders"]).read_all().num_rows > 10


def test_a_master_that_lost_its_end_is_told_and_the_replica_realigned(named: str, tmp_path: Path) -> None:
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    with master(tmp_path / "first", store, named) as (running, client):
        send(client, 500, "a")
        assert replicated(named, tmp_path / "replicas", "--once")[0] == 0
        running.end(signal.SIGTERM)
    shutil.copytree(store, tmp_path / "older")
    with master(tmp_path / "second", store, named) as (running, client):
        send(client, 300, "lost")
        assert replicated(named, tmp_path / "replicas", "--once")[0] == 0
        running.end(signal.SIGTERM)
    with master(tmp_path / "third", tmp_path / "older", named) as (running, client):
        send(client, 700, "new")
        before = log_of(replica, 1 << 30)
        _, said = replicated(named, tmp_path / "replicas", "--once")
        assert "the two logs are not the same from offset" in said
        assert log_of(replica, 1 << 30) == before
        _, said = replicated(named, tmp_path / "replicas", "--realign")
        assert "300 records" in said
        assert log_of(replica, 1 << 30) == before
        assert replicated(named, tmp_path / "replicas", "--realign", "--yes")[0] == 0
        assert replicated(named, tmp_path / "replicas", "--once")[0] == 0
        require_same(replica, tmp_path / "older", log_end(running), rows=1200)


@pytest.mark.parametrize(("settings", "with_slave", "without"), [
    ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}, "SEND_OK", "FLUSH_SLAVE_TIMEOUT"),
])  # fmt: skip
def test_a_sync_master_takes_our_acknowledgements(
    settings: Mapping[str, Any], with_slave: str, without: str, named: str, tmp_path: Path
) -> None:
    message = {"topic": "Orders", "body": b"x"}
    with master(tmp_path / "work", tmp_path / "store", named, **settings) as (_, client):
        assert client.send([message])[0]["status"] == without
        with replicating(named, tmp_path / "replicas") as child:
            until("the slave", lambda: client.send([message])[0]["status"] == with_slave)
            assert [client.send([message])[0]["status"] for _ in range(5)] == [with_slave] * 5
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        assert client.send([message])[0]["status"] == without


def test_a_slave_of_rocketmqs_follows_our_master(named: str, tmp_path: Path) -> None:
    """It gets the whole log from us, which no master of RocketMQ's gives it."""
    ours, slave = tmp_path / "ours", tmp_path / "slave"
    config = StoreConfig(log_file_size=1 << 20, queue_file_size=2000, index_enabled=True, ha=HaConfig(
        listen="127.0.0.1:0", whole_history=True, in_sync_replicas=2, slave_timeout_ms=10_000,
    ))  # fmt: skip
    with open_store(ours, config) as store:
        for number in range(4000):
            store.put(Message("Orders", b"%d" % number * 50, queue_id=number % 4, wait_store_ok=False))
        store.flush()
        end = store.statistics().gauges.log_max_offset
        settings = {"brokerRole": "SLAVE", "brokerId": 1}
        with broker(tmp_path / "work", slave, named, SMALL | settings) as (running, _):
            with RemotingClient(running.address) as client:
                place = {"masterHaAddress": store.ha_address, "masterAddress": ""}
                client.ask(_EXCHANGE_HA_INFO, place)
            until("the slave", lambda: list(store.slaves().values()) == [end])
            assert store.put(Message("Orders", b"waits for the slave")).status.value == "PUT_OK"
            end = store.statistics().gauges.log_max_offset
            assert log_of(slave, end) == log_of(ours, end)
            until("its queues", lambda: open_snapshot(slave).scan(topics=["Orders"]).read_all().num_rows == 4001)
            running.end(signal.SIGTERM)
        assert store.put(Message("Orders", b"nobody")).status.value == "SLAVE_NOT_AVAILABLE"


def test_a_broker_that_wants_signatures_takes_ours_and_no_wrong_ones(named: str, tmp_path: Path) -> None:
    provider = "org.apache.rocketmq.auth.authentication.provider"
    user = json.dumps({"username": "rocketmq", "password": "12345678"})
    settings = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{provider}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{provider}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": user,
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "rocketmq", "secretKey": "12345678"}),
        "authConfigPath": tmp_path / "auth",
    }
    running = Broker(tmp_path, tmp_path / "store", named, settings)

    def log_start(credentials: Credentials | None) -> int | None:
        with RemotingClient(running.address, Access(credentials=credentials)) as client:
            try:
                return runtime(client).log_start
            except Unreachable:
                return None

    try:
        right = Credentials("rocketmq", "12345678")
        until("the first signed answer", lambda: log_start(right) is not None, [running])
        assert log_start(right) == 0
        for wrong in (None, Credentials("rocketmq", "guessed"), Credentials("nobody", "12345678")):
            with pytest.raises(Refused, match="code 16"):
                log_start(wrong)
        with Replica(tmp_path / "copy", KnownBroker(running.address, Access(credentials=right))) as replica:
            replica.run(lambda state: state.phase == "following")
            replica.finish()
    finally:
        running.end()
