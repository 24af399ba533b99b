"""Masters that wait for our replica, and slaves of RocketMQ's that follow our master or fetch a whole log from us."""

import base64
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqstore import Message, StoreConfig, open_store
from rmqstore.config import HaConfig
from rmqstore.replica.remoting.client import RemotingClient
from rmqstore.replica.remoting.cluster import attach_slave
from tests.conformance.broker import BROKER_NAME, Broker, BrokerClient, broker_alone, until
from tests.conformance.replicas import (
    SMALL,
    TOPIC,
    Cluster,
    command,
    ended,
    has_log,
    log_end,
    log_of,
    replicated,
    replicating,
    row_count,
    send,
)

_SLAVE = {"brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"}
_QUEUE_COUNT = 4


@contextmanager
def slave(work: Path, store: Path, cluster: Cluster, master_ha: str, name_server: str = "") -> Iterator[Broker]:
    """A slave of RocketMQ's that is told its master's replication port: by its configuration before 5, where that is
    lost again (5.3.3: BrokerController.initialize sets it before there is a client), by a request."""
    told = {"haMasterAddress": master_ha} if cluster.is_of_4 else {}
    settings = SMALL | _SLAVE | told
    with broker_alone(work, store, name_server or cluster.name_server, settings, cluster.rocketmq) as running:
        if not cluster.is_of_4:
            follow(running, master_ha)
        yield running


def follow(running: Broker, master_ha: str) -> None:
    """Tells a slave of 5 where its master is."""
    with RemotingClient(running.address) as client:
        attach_slave(client, master_ha)


def test_a_sync_master_takes_our_acknowledgements(cluster: Cluster, tmp_path: Path) -> None:
    message = {"topic": TOPIC, "body": b"x"}
    settings = {"brokerRole": "SYNC_MASTER"} | ({} if cluster.is_of_4 else {"inSyncReplicas": 2})
    alone = "SLAVE_NOT_AVAILABLE" if cluster.is_of_4 else "FLUSH_SLAVE_TIMEOUT"
    with cluster.master(tmp_path / "work", tmp_path / "store", **settings) as (_, client):
        assert client.send([message])[0]["status"] == alone
        with replicating(cluster, tmp_path / "replicas") as child:
            until("the slave", lambda: client.send([message])[0]["status"] == "SEND_OK")
            assert [client.send([message])[0]["status"] for _ in range(5)] == ["SEND_OK"] * 5
            ended(child)
        until("its connection is gone", lambda: client.send([message])[0]["status"] == alone)


def test_a_slave_of_rocketmqs_follows_our_master_and_serves_each_message_once_in_order(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It gets the whole log from us, which no master of RocketMQ's gives it; the tables are copied to it."""
    ours, theirs = tmp_path / "ours", tmp_path / "slave"
    config = StoreConfig(log_file_size=1 << 20, queue_file_size=2000, index_enabled=True, ha=HaConfig(
        listen="127.0.0.1:0", whole_history=True, in_sync_replicas=2, slave_timeout_ms=10_000,
    ))  # fmt: skip
    bodies = [b"%d " % number * 50 for number in range(4001)]
    with open_store(ours, config) as store:
        for number, body in enumerate(bodies[:-1]):
            store.put(Message(TOPIC, body, queue_id=number % _QUEUE_COUNT, wait_store_ok=False))
        store.flush()
        shutil.copytree(ours / "config", theirs / "config")
        assert store.ha_address is not None
        with slave(tmp_path / "work", theirs, cluster, store.ha_address) as running:
            end = store.statistics().gauges.log_max_offset
            until("the slave", lambda: list(store.slaves().values()) == [end])
            assert store.put(Message(TOPIC, bodies[-1])).status.value == "PUT_OK"
            end = store.statistics().gauges.log_max_offset
            assert log_of(theirs, end) == log_of(ours, end)
            until("its queues", lambda: row_count(theirs) == len(bodies))
            client = BrokerClient(tmp_path / "work", cluster.name_server, running)
            try:
                for queue_id in range(_QUEUE_COUNT):
                    drained = client.call("drain", address=running.address, topic=TOPIC, queueId=queue_id)
                    wanted = bodies[queue_id::_QUEUE_COUNT]
                    assert [row["queueOffset"] for row in drained] == list(range(len(wanted)))
                    assert [base64.b64decode(row["body"]) for row in drained] == wanted
            finally:
                client.end()
            running.end(signal.SIGKILL)
        until("the slave is gone", lambda: not store.slaves())
        assert store.put(Message(TOPIC, b"nobody")).status.value == "SLAVE_NOT_AVAILABLE"


def test_a_new_slave_fetches_the_whole_log_from_serve_and_goes_on_with_its_master(
    cluster: Cluster, tmp_path: Path
) -> None:
    store, replica, theirs = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME, tmp_path / "slave"
    nobody = "127.0.0.1:1"  # a name server would lead the slave to its master at once
    with cluster.master(tmp_path / "master", store) as (master, client):
        send(client, 6000, "a")
        assert replicated(cluster, replica.parent, "--once")[0] == 0
        fetched = log_end(master)
        assert fetched > 1 << 20, "more than the newest file, which is all that a master gives"
        with command("serve", str(replica), "--ha", "127.0.0.1:0") as donor:
            assert donor.stdout is not None
            address = donor.stdout.readline().split()[-1]
            with slave(tmp_path / "work", theirs, cluster, address, nobody) as running:
                assert donor.stdout.readline().endswith("has the whole log\n")
                assert log_of(theirs, fetched) == log_of(store, fetched)
                ended(donor)
                send(client, 1000, "b")
                end = log_end(master)
                with given_its_master(running, tmp_path / "work", theirs, cluster, master):
                    until("the rest", lambda: has_log(theirs, store, end))
                    until("its queues", lambda: row_count(theirs) == 7000)


@contextmanager
def given_its_master(running: Broker, work: Path, store: Path, cluster: Cluster, master: Broker) -> Iterator[None]:
    """5 is told while it runs; 4.9 is started again with its name server, which leads it there."""
    if not cluster.is_of_4:
        follow(running, master.ha_address)
        yield
        return
    running.end(signal.SIGKILL)
    with broker_alone(work, store, cluster.name_server, SMALL | _SLAVE, cluster.rocketmq):
        yield
