"""One Kafka node on the loopback, for a bench: broker and controller in one process, in a scratch directory, with
Kafka's defaults for all that is not a place."""

import ctypes
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

HERE = Path(__file__).parent
CONNECTOR = "4.2.0"  # as pom.xml has it
START_S, STOP_S = 60.0, 30.0
# What kafka-server-start.sh and kafka-run-class.sh give a broker.
JVM_OPTIONS = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
_CLUSTER = "rmqstoreBenchKafka0001w"
_PR_SET_PDEATHSIG = 1


def build() -> str:
    """Fetches the jars and compiles the loader unless they are there.  Returns "" or what is missing."""
    if shutil.which("java") is None:
        return "no Java on PATH"
    made = ("node.txt", "connector.txt", "classes/Load.class")
    if all((_target() / name).exists() for name in made):
        return ""
    if shutil.which("mvn") is None:
        return "no Maven on PATH, which fetches Kafka"
    command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Dconnector={CONNECTOR}", "process-classes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    said = (done.stdout + done.stderr).strip()[:400]
    return f"mvn failed with {done.returncode}: {said or 'it says nothing; without -q it may'}"


def connector_jars() -> list[str]:
    """The jars of Spark's Kafka source."""
    return (_target() / "connector.txt").read_text().strip().split(":")


def kafka_version() -> str:
    """The version of the node and of the connector's client."""
    return next(
        jar.rsplit("kafka-clients-", 1)[1].removesuffix(".jar") for jar in connector_jars() if "kafka-clients" in jar
    )


class KafkaNode:
    """A node that runs from `__enter__` to `__exit__`; `address` is host:port.  Raises RuntimeError where it does not
    start."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        port, controller = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": scratch / "kafka",
            "num.partitions": 4,  # of topics that a sink writes to
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        self._node: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        settings = self._scratch / "kafka.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        _java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings))
        with (self._scratch / "kafka.log").open("wb") as log:
            self._node = subprocess.Popen(
                [*_command(JVM_OPTIONS), "kafka.Kafka", str(settings)],
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (no thread runs yet)
            )
        try:
            self._wait_until_open(self._node)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._end()

    @property
    def processes(self) -> set[int]:
        """The process ids of the node."""
        return set() if self._node is None else {self._node.pid}

    @property
    def log_text(self) -> str:
        """What the node has said so far."""
        return (self._scratch / "kafka.log").read_text(errors="replace")

    def load(self, topic: str, partitions: int, rows: Path, body_size: int, headers: dict[str, int], key: str) -> int:
        """Creates `topic`, loads a file of rows of fixed size (src/Load.java), returns how many were acknowledged."""
        columns = [text for name, size in headers.items() for text in (name, str(size))]
        said = _java(
            "Load",
            self.address,
            topic,
            str(partitions),
            str(rows),
            key,
            str(body_size),
            *columns,
            options=("-Xmx512m",),
        )
        return int(said)

    def _wait_until_open(self, node: "subprocess.Popen[bytes]") -> None:
        host, _, port = self.address.partition(":")
        until = monotonic() + START_S
        while monotonic() < until:
            try:
                node.wait(0.2)
            except subprocess.TimeoutExpired:
                with socket.socket() as client:
                    if client.connect_ex((host, int(port))) == 0:
                        return
            else:
                break
        raise RuntimeError(f"the Kafka node does not start: {self.log_text[-600:]}")

    def _end(self) -> None:
        node, self._node = self._node, None
        if node is None:
            return
        node.terminate()
        try:
            node.wait(STOP_S)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def _end_with_parent() -> None:
    """A bench that is killed leaves no node behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _target() -> Path:
    return HERE / "target" / CONNECTOR


def _command(options: Sequence[str]) -> list[str]:
    classpath = f"{_target() / 'classes'}:{(_target() / 'node.txt').read_text().strip()}"
    return ["java", *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath]


def _java(main: str, *arguments: str, options: Sequence[str] = ()) -> str:
    done = subprocess.run([*_command(options), main, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{main} {arguments[0]}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
