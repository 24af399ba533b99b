"""A master under a controller, which our replica follows as a learner: the controller counts it nowhere, and a new
epoch of the master's is nothing but more log.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rmqstore.replica.remoting import cluster as questions
from rmqstore.replica.remoting.client import RemotingClient
from tests.conformance.broker import (
    BROKER_NAME,
    RELEASES_OF_5,
    Broker,
    BrokerClient,
    Rocketmq,
    free_port,
    name_server,
    until,
)
from tests.conformance.replicas import (
    Cluster,
    ended,
    has_log,
    log_end,
    replicating,
    require_same,
    row_count,
    send,
)

_GET_SYNC_STATE = 1006


@contextmanager
def controlled_cluster(work: Path, rocketmq: Rocketmq) -> Iterator[tuple[Cluster, str]]:
    """A name server with a controller in it, and the controller's address."""
    address = f"127.0.0.1:{free_port(0)}"
    settings = {
        "enableControllerInNamesrv": "true", "controllerDLegerGroup": "controllers", "controllerDLegerSelfId": "n0",
        "controllerDLegerPeers": f"n0-{address}", "controllerStorePath": work / "controller",
        "mappedFileSize": 1 << 20,
    }  # fmt: skip
    with name_server(work, rocketmq, settings) as named:
        yield Cluster(rocketmq, named), address


@pytest.mark.parametrize("rocketmq", RELEASES_OF_5, ids=lambda rocketmq: rocketmq.release)
def test_a_replica_of_a_controlled_master_is_a_learner_and_survives_its_next_epoch(
    rocketmq: Rocketmq, tmp_path: Path
) -> None:
    store, replica = tmp_path / "store", tmp_path / "replicas" / BROKER_NAME
    with ExitStack() as running:
        cluster, controller = running.enter_context(controlled_cluster(tmp_path / "named", rocketmq))
        first, client = running.enter_context(controlled(cluster, controller, tmp_path / "first", store))
        send(client, 4000, "a")
        child = running.enter_context(replicating(cluster, tmp_path / "replicas"))
        until("the log", lambda: has_log(replica, store, log_end(first)))
        assert copies(controller) == [first.address]
        first.end(signal.SIGKILL)
        second, client = running.enter_context(controlled(cluster, controller, tmp_path / "second", store))
        send(client, 1000, "b")
        until("the log", lambda: has_log(replica, store, log_end(second)))
        until("all rows", lambda: row_count(replica) == 5000)
        assert len(epochs(store)) == 2
        assert copies(controller) == [second.address]
        require_learner(second)
        ended(child)
        require_same(replica, store, log_end(second), rows=5000)


def require_learner(master: Broker) -> None:
    """The master itself did not count the replica, which the controller would only refuse (in its words: "don't
    exist"); that is to be seen in its log and nowhere else."""
    said = master.log("store")
    assert "isAsyncLearner:true" in said
    assert "isAsyncLearner:false" not in said
    assert "syncStateSet has been changed" not in said


@contextmanager
def controlled(cluster: Cluster, controller: str, work: Path, store: Path) -> Iterator[tuple[Broker, BrokerClient]]:
    """A broker that the controller has made a master."""
    settings = {"enableControllerMode": "true", "controllerAddr": controller}
    with cluster.master(work, store, **settings) as (running, client):
        until("its election", lambda: role(running) == "SYNC_MASTER", [running])
        yield running, client


def role(running: Broker) -> str:
    """A broker's part, as it sees it."""
    with RemotingClient(running.address) as client:
        return questions.settings(client).settings["brokerRole"]


def copies(controller: str) -> list[str]:
    """The brokers that the controller knows as copies of the master's log, in sync or not."""
    with RemotingClient(controller) as client:
        body = client.ask(_GET_SYNC_STATE, body=json.dumps([BROKER_NAME]).encode()).body
    known = json.loads(body)["replicasInfoTable"][BROKER_NAME]
    return [each["brokerAddress"] for each in known["inSyncReplicas"] + known["notInSyncReplicas"]]


def epochs(store: Path) -> list[tuple[int, int]]:
    """Number and first offset of each epoch of a master's log."""
    lines = (store / "epochFileCheckpoint").read_text().split()[2:]
    return [(int(number), int(offset)) for number, _, offset in (line.partition("-") for line in lines)]
