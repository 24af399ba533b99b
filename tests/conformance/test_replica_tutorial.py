"""The five minutes of docs/replica.md as a reader types them, at a real cluster: only places differ."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rmqstore
from tests.conformance.broker import BROKER_NAME, BrokerClient, broker, name_server, until

PROJECT = Path(rmqstore.__file__).parents[1]
_PAGE = (PROJECT / "docs" / "replica.md").read_text(encoding="utf-8")
_SECTION = _PAGE[_PAGE.index("## Five minutes") : _PAGE.index("Ports: the name server's")]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Tutorial:
    """The lines of the shell and of Python, with this machine's address and directories in them."""

    def __init__(self, named: str, data: Path) -> None:
        section = _SECTION.replace("127.0.0.1:9876", named)
        section = section.replace("/data/rmq/broker-a", f"/data/rmq/{BROKER_NAME}").replace("/data/", f"{data}/")
        blocks = _BLOCK.findall(section)
        self.shell = [line for language, text in blocks if not language for line in text.splitlines()]
        self.python = "\n".join(text for language, text in blocks if language == "python")


@pytest.fixture
def environment() -> Mapping[str, str]:
    """`rmqstore` is the command of this environment, and of this source."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return os.environ | {"PATH": path, "PYTHONPATH": str(PROJECT)} | names


@pytest.fixture
def spark(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, environment[name])
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def send(client: BrokerClient, count: int) -> None:
    client.send([{"topic": "Orders", "body": b"%d" % number} for number in range(count)])


def typed(line: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require_count(spark: SparkSession, tutorial: Tutorial, data: Path, count: int) -> None:
    """The lines of Python read so many orders, and stream them."""
    names: dict[str, object] = {"spark": spark}
    exec(compile(tutorial.python, "docs/replica.md", "exec"), names)
    messages = names["messages"]
    streamed = spark.read.parquet(str(data / "messages"))
    for read in (messages, streamed):
        rows = read.where("topic = 'Orders'").select("queueId", "queueOffset").collect()  # type: ignore[attr-defined]
        assert len(rows) == len(set(rows)) == count


def test_the_five_minutes(spark: SparkSession, environment: Mapping[str, str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        name_server(tmp_path / "namesrv") as named,
        broker(tmp_path / "work", tmp_path / "store", named, {"mappedFileSizeCommitLog": 1 << 20}) as (running, client),
    ):
        running.change()  # registers with the name server
        send(client, 100)
        tutorial = Tutorial(named, data)
        install, check, replicate, inspect = tutorial.shell
        assert install == "pip install dist/rmqstore-*.whl"
        assert typed(check, environment).splitlines()[-1] == "nothing prevents the replication"
        assert not data.exists()
        with replicating(replicate, environment):
            until("the messages", lambda: " 100 " in f"{typed(inspect, environment)} ")
            require_count(spark, tutorial, data, 100)
            send(client, 50)
        with replicating(replicate, environment):  # started again, it goes on where it ended
            until("the others", lambda: " 150 " in f"{typed(inspect, environment)} ")


@contextmanager
def replicating(line: str, environment: Mapping[str, str]) -> Iterator[None]:
    """The command runs meanwhile, and is ended as its page says."""
    with subprocess.Popen(["sh", "-c", f"exec {line}"], env=environment, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            assert child.stderr.readline() == f"{BROKER_NAME}: following\n"
            yield
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()
