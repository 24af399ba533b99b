"""Ports of the wrong kind, at real processes: one line that says which to give, and no harm to a master."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import StoreConfig
from rmqstore.cli import main
from rmqstore.config import HaConfig
from rmqstore.formats import broker_json
from rmqstore.replica.remoting.client import Access, RemotingClient, Unreachable, host_and_port
from rmqstore.replica.remoting.cluster import GET_BROKER_CONFIG
from tests.conformance.broker import BROKER_NAME, Broker, BrokerClient, broker, name_server, until

# Java: RequestCode.GET_BROKER_HA_STATUS.
_GET_HA_STATUS = 907


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Broker, BrokerClient]]:
    """A name server, and a master whose puts wait for a slave."""
    work = tmp_path_factory.mktemp("cluster")
    settings = {"mappedFileSizeCommitLog": 1 << 20, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
    with name_server(work / "namesrv") as named, broker(work, work / "store", named, settings) as (running, client):
        running.change()  # registers with the name server
        yield named, running, client


@contextmanager
def our_master(root: Path) -> Iterator[str]:
    serving = HaConfig(listen="127.0.0.1:0")
    with rmqstore.open_store(root, StoreConfig(log_file_size=1 << 16, ha=serving)) as store:
        assert store.ha_address is not None
        yield store.ha_address


def refusal(target: Path, *arguments: str) -> str:
    """The one line that the command ends with; nothing is made."""
    result = CliRunner().invoke(main, ["replicate", *arguments, "--to", str(target / "r"), "--once"])
    assert result.exit_code == 1, result.output
    assert not (target / "r").exists()
    (line,) = result.stderr.splitlines()
    return line.removeprefix("Error: ")


def test_each_wrong_port_is_told_by_the_right_one(cluster: tuple[str, Broker, BrokerClient], tmp_path: Path) -> None:
    named, running, _ = cluster
    listen, replication = running.address, f"127.0.0.1:{host_and_port(running.address)[1] + 1}"
    is_listen = f"{listen} is the listen port of the broker '{BROKER_NAME}': give it with --master"
    of_replication = (
        f"{replication} is the replication port of the broker '{BROKER_NAME}': give its listen port, {listen}"
    )
    name_server_instead = f"{named} is a name server: give it with --namesrv"
    assert refusal(tmp_path, "--master", replication) == of_replication
    assert refusal(tmp_path, "--namesrv", replication) == of_replication
    assert refusal(tmp_path, "--ha", listen) == f"{is_listen}; slaves attach at {replication}"
    assert refusal(tmp_path, "--namesrv", listen).startswith(f"{is_listen}, or its name server")
    assert refusal(tmp_path, "--master", named) == name_server_instead
    assert refusal(tmp_path, "--ha", named) == name_server_instead
    assert is_listen in refusal(tmp_path, "--namesrv", f"127.0.0.1:1;{listen}")


def test_our_own_replication_port_is_told_as_well(tmp_path: Path) -> None:
    with our_master(tmp_path / "m") as address:
        for option in ("--master", "--namesrv"):
            assert refusal(tmp_path, option, address).endswith(f"or, for an rmqstore master, --ha {address}")


@pytest.mark.parametrize(("question", "status"), [("ask", "SEND_OK"), ("ask_stranger", "FLUSH_SLAVE_TIMEOUT")])
def test_a_question_to_a_replication_port_confirms_no_put(
    question: str, status: str, cluster: tuple[str, Broker, BrokerClient]
) -> None:
    """Masters take the last eight bytes for how far a slave is: a usual request is a slave that has everything."""
    _, running, client = cluster
    replication = f"127.0.0.1:{host_and_port(running.address)[1] + 1}"
    has_ended = threading.Event()

    def asked() -> None:
        with RemotingClient(replication, Access(timeout_s=15)) as asking, suppress(Unreachable):
            getattr(asking, question)(GET_BROKER_CONFIG)
        has_ended.set()

    thread = threading.Thread(target=asked)
    thread.start()
    try:
        until("its connection", lambda: slaves(running) == 1)
        assert client.send([{"topic": "Orders", "body": b"x"}])[0]["status"] == status
        assert not has_ended.is_set()
    finally:
        thread.join()
    until("its end", lambda: slaves(running) == 0)


def slaves(running: Broker) -> int:
    """How many connections a master has at its replication port."""
    with RemotingClient(running.address) as client:
        return len(broker_json.parse(client.ask(_GET_HA_STATUS).body)["haConnectionInfo"])
