"""For the tests of replication: brokers that the command line follows, and what has to be the same on both sides."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import rmqstore
from rmqstore import open_snapshot
from rmqstore.replica.remoting.client import RemotingClient
from rmqstore.replica.remoting.cluster import runtime
from tests.conformance.broker import NEWEST_4, Broker, BrokerClient, Rocketmq, broker, loose

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 2000}
TOPIC = "Orders"
_SEND_COUNT = 200
_TABLES = {
    "topics": "topicConfigTable",
    "subscriptionGroup": "subscriptionGroupTable",
    "consumerOffset": "offsetTable",
    "delayOffset": "offsetTable",
}
_COMMAND_S = 120.0


class Cluster(NamedTuple):
    """A release of RocketMQ, and the address of a name server of it."""

    rocketmq: Rocketmq
    name_server: str

    @property
    def is_of_4(self) -> bool:
        """Whether it is of the line before 5."""
        return self.rocketmq == NEWEST_4

    @contextmanager
    def master(self, work: Path, store: Path, **settings: Any) -> Iterator[tuple[Broker, BrokerClient]]:
        """A master that its name server knows, with small files."""
        with broker(work, store, self.name_server, SMALL | settings, self.rocketmq) as (running, client):
            running.change()  # registers with the name server
            yield running, client


Clusters = Callable[[Rocketmq], Cluster]


def send(client: BrokerClient, count: int, mark: str) -> None:
    """Sends messages, `mark` and their number in each."""
    for begin in range(0, count, _SEND_COUNT):
        numbers = range(begin, min(begin + _SEND_COUNT, count))
        client.send([{"topic": TOPIC, "body": f"{mark}-{number}".encode() * 8, "keys": f"{mark}{number}"}
                     for number in numbers])  # fmt: skip


def log_of(store: Path, end: int) -> bytes:
    """The commitlog's bytes up to `end`, from the first file on that is there."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[:end]


def log_end(running: Broker) -> int:
    """Where a broker's commitlog ends, as it says."""
    with RemotingClient(running.address) as client:
        return runtime(client).log_end


def row_count(store: Path, topic: str = TOPIC) -> int:
    """Messages of a topic that a reader of the store finds."""
    return open_snapshot(store).scan(topics=[topic]).read_all().num_rows


def require_same_tables(replica: Path, running: Broker) -> None:
    """Each table that its log does not hold, as the master answers it, and none of them empty."""
    for name, part in _TABLES.items():
        ours = loose((replica / "config" / f"{name}.json").read_bytes())[part]
        assert ours
        assert ours == running.config(name)[part]


@contextmanager
def command(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The command line, in a process of its own, which is killed at the end if it still runs."""
    program = [sys.executable, "-c", 'from rmqstore.cli import main; main(prog_name="rmqstore")', *arguments]
    environment = os.environ | {"PYTHONPATH": str(Path(rmqstore.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as child:  # fmt: skip
        try:
            yield child
        finally:
            child.kill()


def run(*arguments: str) -> tuple[int, str]:
    """A command's exit status, and what it said."""
    with command(*arguments) as child:
        said = child.communicate(timeout=_COMMAND_S)[0]
        return child.returncode, said


def replicated(cluster: Cluster, target: Path, *options: str) -> tuple[int, str]:
    """`rmqstore replicate`, which ends by itself."""
    return run("replicate", "--namesrv", cluster.name_server, "--to", str(target), *options)


def replicating(cluster: Cluster, target: Path) -> AbstractContextManager["subprocess.Popen[str]"]:
    """`rmqstore replicate`, which goes on."""
    return command("replicate", "--namesrv", cluster.name_server, "--to", str(target))


def ended(child: "subprocess.Popen[str]") -> str:
    """What a command said that is asked to end, and ends well."""
    child.terminate()
    said = child.communicate(timeout=_COMMAND_S)[0]
    assert child.returncode == 0, said
    return said


def has_log(replica: Path, store: Path, end: int) -> bool:
    """Whether a replica has the master's bytes up to `end`."""
    return (replica / "commitlog").exists() and log_of(replica, end) == log_of(store, end)


def require_same(replica: Path, store: Path, end: int, rows: int) -> None:
    """The bytes of the log, the rows of both, and queues that agree with a rebuild."""
    assert log_of(replica, end) == log_of(store, end)
    ours, theirs = ({(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
                     for row in open_snapshot(place).queues().to_pylist()} for place in (replica, store))  # fmt: skip
    assert ours == theirs
    assert row_count(replica) == rows
    assert run("verify", str(replica))[0] == 0
