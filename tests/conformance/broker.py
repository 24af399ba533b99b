"""A real name server and a real broker of RocketMQ on loopback, over a store directory, and a client of them.

Children are ended by their own process, whatever happens; every wait asks, and has a deadline.
"""

import base64
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.conformance.workload import Json

BROKER_PROGRAMS = Path(__file__).parents[1] / "oracle" / "broker"
sys.path.insert(0, str(BROKER_PROGRAMS))

from rpc import CONFIG, Client, loose  # noqa: E402  lies beside the package, as it came

BROKER_NAME = "golden-a"
# Generous: a machine may be busy with other things.
DEADLINE_S = 240.0
_ASK_AGAIN_S = 0.05
_LOGS = ("broker", "store")
# Request codes that rpc.py has no names for.
_UPDATE_BROKER_CONFIG, _PRODUCER_CONNECTIONS = 25, 204
_PORT_TRIES = 5
_EXIT_S = 60.0
_ANSWER_S = 30.0
_JAVA = [
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8",
    "-Drocketmq.client.logUseSlf4j=false",
]  # fmt: skip
_BROKER_JAVA = ["-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m"]
_BROKER_JAVA += [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("sun.nio.ch", "java.nio", "jdk.internal.ref", "java.lang", "jdk.internal.misc")
]
_BROKER_JAVA += ["--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"]
# Releases before 5 do not start without these.
_LOGBACK = """<configuration><appender name="A" class="ch.qos.logback.core.FileAppender"><file>{file}</file><encoder>
<pattern>%d %p %t - %m%n</pattern></encoder></appender><root level="INFO"><appender-ref ref="A"/></root></configuration>
"""


class Rocketmq(NamedTuple):
    """A release of RocketMQ that `make conformance` builds, and what its programs' JVMs are told besides."""

    release: str
    options: tuple[str, ...] = ()

    def told(self, *options: str) -> "Rocketmq":
        """The same with more options."""
        return self._replace(options=self.options + options)

    @property
    def class_path(self) -> str:
        """That of BrokerClient.java and everything of RocketMQ's."""
        return f"{self._build / 'classes'}:{(self._build / 'classpath.txt').read_text().strip()}"

    @property
    def is_built(self) -> bool:
        """Whether `make conformance` has fetched and compiled it."""
        return (self._build / "classpath.txt").exists()

    @property
    def _build(self) -> Path:
        return BROKER_PROGRAMS.parent / "target" / f"broker-{self.release}"


# The newest releases of each line whose broker Maven Central has; 5.4 begins the line of NEWEST.
NEWEST, NEWEST_5_3, NEWEST_4 = Rocketmq("5.5.1"), Rocketmq("5.3.3"), Rocketmq("4.9.7")
RELEASES = (NEWEST, NEWEST_5_3, NEWEST_4)
RELEASES_OF_5 = (NEWEST, NEWEST_5_3)


def until(what: str, ask: Callable[[], Any], children: "Sequence[Child]" = (), deadline_s: float = DEADLINE_S) -> Any:
    """The first answer of `ask` that is true.  Raises AssertionError at the deadline, or when a child has ended."""
    end_s = time.monotonic() + deadline_s
    while not (answer := ask()):
        for child in children:
            assert child.is_running, f"waiting for {what}: {child.name} ended: {child.last_words()}"
        words = " | ".join(child.last_words() for child in children)
        assert time.monotonic() < end_s, f"{what}: not within {deadline_s} s; {words}"
        time.sleep(_ASK_AGAIN_S)
    return answer


class Child:
    """A JVM with a main class of RocketMQ's or ours; its logs are below `work`/`name`."""

    def __init__(self, work: Path, name: str, rocketmq: Rocketmq, main: str, *arguments: str, talks: bool = False):
        self.name, self._home = name, work / name
        self._logs = self._home / "logs" / "rocketmqlogs"
        (self._home / "conf").mkdir(parents=True, exist_ok=True)
        for log in ("broker", "namesrv"):
            text = _LOGBACK.format(file=self._logs / f"{log}.log")
            (self._home / "conf" / f"logback_{log}.xml").write_text(text)
        command = ["java", *_JAVA, *rocketmq.options, f"-Duser.home={self._home}"]
        command += ["-cp", rocketmq.class_path, main, *arguments]
        pipe = subprocess.PIPE if talks else subprocess.DEVNULL
        self._errors = self._home / "standard-error"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                command, cwd=self._home, stdin=pipe, stdout=pipe if talks else errors, stderr=errors,
                env=os.environ | {"ROCKETMQ_HOME": str(self._home)},
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process.poll() is None

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends the process, if it still lives, and waits for it; by force when it takes too long."""
        if self.is_running:
            self.process.send_signal(how)
        try:
            self.process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_EXIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def log(self, name: str) -> str:
        """What it wrote to one of its logs: "store", "broker"."""
        return (self._logs / f"{name}.log").read_text(errors="replace")

    def last_words(self) -> str:
        """The end of what it wrote to standard error and to its logs."""
        files = [self._errors, *(self._logs / f"{name}.log" for name in _LOGS)]
        texts = {file.name: file.read_text(errors="replace") for file in files if file.exists()}
        return "\n".join(f"{name}: {_without_chatter(text)[-2000:]}" for name, text in texts.items())


class Asked(Child):
    """A child that answers a JSON object a line."""

    def call(self, op: str, **fields: Any) -> Any:
        """One request.  Raises AssertionError for an error or a silence."""
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
        line = process.stdout.readline() if ready else b""
        assert line, f"{op}: no answer: {self.last_words()}"
        reply = json.loads(line)
        assert "error" not in reply, f"{op}: {reply['error']}: {self.last_words()}"
        return reply["ok"]


class BrokerClient(Asked):
    """BrokerClient.java; see there what it can be asked."""

    def __init__(self, work: Path, name_server: str, broker: "Broker") -> None:
        super().__init__(
            work, "client", broker.rocketmq.told("-Xmx256m", "--add-opens=java.base/java.lang=ALL-UNNAMED"),
            "BrokerClient", name_server, broker.address, BROKER_NAME, talks=True,
        )  # fmt: skip
        self.events: list[Json] = []
        self._broker = broker

    def send(self, messages: Sequence[Mapping[str, Any]], group: str = "") -> list[Json]:
        """Sends messages (body: bytes), as transactions of a group where they have a `fate`."""
        coded = [dict(one) | {"body": base64.b64encode(one["body"]).decode()} for one in messages]
        return self.call("send", messages=coded, group=group)

    def look(self) -> list[Json]:
        """All events until now."""
        self.events += self.call("events", **{"from": len(self.events)})
        return self.events

    def until(self, what: str, ask: Callable[[list[Json]], Any]) -> Any:
        """The first answer that is true of `ask`, which gets all events until then."""
        return until(what, lambda: ask(self.look()), [self, self._broker])


class Broker(Child):
    """A broker over the store at `store`, which may not answer yet (`wait`).  `settings` go on top of those below."""

    def __init__(
        self, work: Path, store: Path, name_server: str, settings: Mapping[str, Any], rocketmq: Rocketmq = NEWEST
    ) -> None:
        self.rocketmq = rocketmq
        port = free_port(-2, 0, 1)
        self.address, self.ha_address, self._port = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}", port
        self.conf = work / "broker.conf"
        lines = {
            "brokerClusterName": "GoldenCluster", "brokerName": BROKER_NAME, "brokerId": 0, "namesrvAddr": name_server,
            "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "bindAddress": "127.0.0.1", "listenPort": port,
            "haListenPort": port + 1, "storePathRootDir": store, "storePathCommitLog": store / "commitlog",
            "autoCreateTopicEnable": "true", "autoCreateSubscriptionGroup": "true", "flushDiskType": "ASYNC_FLUSH",
            "brokerRole": "ASYNC_MASTER",
            # A machine that is busy with other things is no reason to refuse messages.
            "brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": 60_000,
        } | dict(settings)  # fmt: skip
        self.conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        main = "org.apache.rocketmq.broker.BrokerStartup"
        super().__init__(work, "broker", rocketmq.told(*_BROKER_JAVA), main, "-c", str(self.conf))

    def wait(self) -> Self:
        """Waits until it answers."""
        until("the broker's first answer", self._answers, [self])
        return self

    def _answers(self) -> bool:
        with suppress(OSError, EOFError):
            return self._ask(CONFIG["runtimeInfo"])[0] == 0
        return False

    def config(self, name: str) -> Json:
        """A table of the broker, as it answers it: topics, consumerOffset, delayOffset, subscriptionGroup."""
        code, body = self._ask(CONFIG[name])
        assert code == 0, (name, code)
        return loose(body)

    def change(self, **settings: Any) -> None:
        """Changes settings while it runs; also has it register with the name server, which it does by itself only
        after 10 s."""
        lines = {"brokerPermission": 6} | settings
        body = "".join(f"{name}={value}\n" for name, value in lines.items()).encode()
        code, _ = self._ask(_UPDATE_BROKER_CONFIG, body=body)
        assert code == 0, (settings, code)

    def has_producer(self, group: str) -> bool:
        """Whether it can ask a producer of the group after its transactions."""
        return self._ask(_PRODUCER_CONNECTIONS, {"producerGroup": group})[0] == 0

    def _ask(self, code: int, fields: Json | None = None, body: bytes = b"") -> tuple[int, bytes]:
        """Code and body of the answer to a request."""
        client = Client("127.0.0.1", self._port, timeout=_ANSWER_S)
        with client.s:
            answer, content = client.call(code, fields, body)
        return answer["code"], content

    @property
    def has_lost_its_ports(self) -> bool:
        """Whether another process took one of its ports in the meantime."""
        return not self.is_running and "Address already in use" in self.last_words()


@contextmanager
def name_server(
    work: Path, rocketmq: Rocketmq = NEWEST, settings: Mapping[str, Any] | None = None, port: int | None = None
) -> Iterator[str]:
    """A name server; its address."""
    work.mkdir(parents=True, exist_ok=True)
    conf = work / "name-server.conf"
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    for _ in range(_PORT_TRIES):
        chosen = port or free_port(0)
        lines = {"listenPort": chosen, "bindAddress": "127.0.0.1"} | dict(settings or {})
        conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        child = Child(work, "namesrv", rocketmq.told("-Xmx128m"), main, "-c", str(conf))
        if until("the name server", partial(_listens_or_ended, chosen, child)) and child.is_running:
            break
        child.end()  # another process took its port in the meantime
    try:
        assert child.is_running, child.last_words()
        yield f"127.0.0.1:{chosen}"
    finally:
        child.end()


def _listens_or_ended(port: int, child: Child) -> bool:
    return not child.is_running or _is_listening(port)


@contextmanager
def broker_alone(
    work: Path, store: Path, name_server: str, settings: Mapping[str, Any], rocketmq: Rocketmq = NEWEST
) -> Iterator[Broker]:
    """A broker that answers; gone afterwards, killed unless it was ended."""
    work.mkdir(parents=True, exist_ok=True)
    for _ in range(_PORT_TRIES):
        running = Broker(work, store, name_server, settings, rocketmq)
        try:
            running.wait()
            break
        except AssertionError:
            running.end()
            if not running.has_lost_its_ports:
                raise
    try:
        yield running
    finally:
        running.end()


@contextmanager
def broker(
    work: Path, store: Path, name_server: str, settings: Mapping[str, Any], rocketmq: Rocketmq = NEWEST
) -> Iterator[tuple[Broker, BrokerClient]]:
    """The same with a client of it."""
    with broker_alone(work, store, name_server, settings, rocketmq) as running:
        client = BrokerClient(work, name_server, running)
        try:
            yield running, client
        finally:
            client.end()


def _without_chatter(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "|-INFO" not in line)


def free_port(*offsets: int) -> int:
    """A port of loopback that is free, with those at these distances."""
    while True:
        port = random.randint(20_000, 32_000)  # below those that systems give to clients
        if not any(_is_taken(port + offset) for offset in offsets):
            return port


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
