"""The port of the metrics: its text, as Prometheus' own parser takes it, and peers that would bring it down."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rmqstore.cli.metrics.scrapes import CONTENT_TYPE, Scrapes, metrics_place
from rmqstore.cli.replication.replica_metrics import metrics_text
from rmqstore.errors import Rejected
from rmqstore.replica.following.state import ReplicaState, Traffic
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.stores

STATE = ReplicaState(
    "following", 10, 20, 1, 30, 1_500, 1.25, 4, Traffic(7, 3, 2), 0.5, "", "", "an error", 1_000,
)  # fmt: skip
EVIL = 'a"b\\c\nd\ud800\u202e'


def test_the_text_is_openmetrics() -> None:
    text = metrics_text({"broker-a": STATE, EVIL: ReplicaState()})
    assert text.endswith("# EOF\n")
    text.encode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    brokers = {sample.labels["broker"] for family in families.values() for sample in family.samples}
    assert brokers == {"broker-a", EVIL.replace("\ud800", "?")}
    found = {
        name: sample.value
        for family in families.values()
        for sample in family.samples
        if sample.labels["broker"] == "broker-a"
        for name in [sample.name + sample.labels.get("rmqstore_replica_phase", "")]
    }
    prefix = "rmqstore_replica_"
    phases = {f"phase{phase}": 0 for phase in ("connecting", "comparing", "waiting", "stopped", "failed")}
    assert {name.removeprefix(prefix): value for name, value in found.items()} == phases | {
        "up": 1, "log_start_bytes": 10, "log_end_bytes": 20, "log_files": 1, "master_end_bytes": 30,
        "behind_bytes": 10, "behind_messages_estimate": 4, "behind_seconds": 1.25,
        "newest_message_timestamp_seconds": 1.5, "tables_age_seconds": 0.5, "received_bytes_total": 7,
        "connection_attempts_total": 3, "connection_failures_total": 2, "phasefollowing": 1,
    }  # fmt: skip
    unknown = {sample.name for family in families.values() for sample in family.samples
               if sample.labels["broker"] != "broker-a"}  # fmt: skip
    assert f"{prefix}behind_seconds" not in unknown  # what is not known is no 0
    assert f"{prefix}up" in unknown


@pytest.mark.parametrize(
    ("given", "place"),
    [("9095", ("127.0.0.1", 9095)), ("localhost:1", ("localhost", 1)), ("[::1]:9", ("::1", 9))],
)
def test_a_port_alone_is_on_loopback(given: str, place: tuple[str, int]) -> None:
    assert metrics_place(given, is_open_to_network=False) == place


@pytest.mark.parametrize("given", ["0.0.0.0:9095", "10.0.0.5:9095", "[::]:9095", "example.org:1"])
def test_another_address_has_to_be_asked_for(given: str) -> None:
    with pytest.raises(Rejected, match="--open-to-network"):
        metrics_place(given, is_open_to_network=False)
    assert metrics_place(given, is_open_to_network=True)[1] in {1, 9095}


@pytest.mark.parametrize("given", ["", "port", "127.0.0.1:", ":", "99999", "-1", "1.5", "127.0.0.1:9095/metrics", "٣"])
def test_what_is_no_port_is_refused(given: str) -> None:
    with pytest.raises(Rejected, match="--metrics"):
        metrics_place(given, is_open_to_network=True)


@pytest.fixture
def place() -> Iterator[tuple[str, int]]:
    """Where metrics are answered."""
    with Scrapes(("127.0.0.1", 0), CONTENT_TYPE, lambda: metrics_text({"b": STATE})) as scrapes:
        host, _, port = scrapes.address.rpartition(":")
        yield host, int(port)


def scraped(place: tuple[str, int], path: str = "/metrics", method: str = "GET") -> tuple[int, str, bytes]:
    connection = HTTPConnection(*place, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def test_it_answers_what_is_asked(place: tuple[str, int]) -> None:
    text = metrics_text({"b": STATE}).encode()
    assert scraped(place) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
    assert scraped(place, "/metrics?x=1")[2] == text
    assert scraped(place, method="HEAD") == (200, CONTENT_TYPE, b"")
    assert scraped(place, "/")[0] == 404
    assert scraped(place, method="POST")[0] == 501


def test_a_taken_port_is_said_in_one_line(place: tuple[str, int]) -> None:
    with pytest.raises(Rejected, match=r"--metrics: cannot listen on 127\.0\.0\.1:\d+: Address already in use"):
        Scrapes(place, CONTENT_TYPE, str)


def test_the_port_is_free_as_soon_as_it_is_left() -> None:
    taken = ("127.0.0.1", 0)
    for _ in range(3):
        with (
            Scrapes(taken, CONTENT_TYPE, str) as scrapes,
            socket.create_connection(("127.0.0.1", int(scrapes.address.rpartition(":")[2]))) as silent,
        ):
            taken = ("127.0.0.1", int(scrapes.address.rpartition(":")[2]))
            scraped(taken)
        assert silent.fileno() == -1


def answers(threads_max: int, place: tuple[str, int]) -> None:
    """A scrape goes well, and few threads are there."""
    assert scraped(place)[0] == 200
    assert threading.active_count() <= threads_max


@pytest.mark.host
def test_silent_peers_by_the_hundred_keep_nobody_away(place: tuple[str, int]) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with ExitStack() as peers:
        for number in range(300):
            peers.enter_context(socket.create_connection(place))
            if number % 20 == 0:
                answers(threads + 17, place)
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 300 + 20
        answers(threads + 17, place)
    end_s = time.monotonic() + PATIENCE_S
    while threading.active_count() > threads:
        assert time.monotonic() < end_s


@pytest.mark.host
def test_one_that_sends_a_byte_now_and_then_is_let_go(place: tuple[str, int]) -> None:
    began_s = time.monotonic()
    with socket.create_connection(place) as slow:
        slow.settimeout(0.2)
        while time.monotonic() - began_s < PATIENCE_S:
            try:
                slow.sendall(b"G")
                if not slow.recv(100):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert 4 < time.monotonic() - began_s < 30
    assert scraped(place)[0] == 200


@pytest.mark.host
def test_one_that_does_not_read_is_let_go() -> None:
    began_s, threads = time.monotonic(), threading.active_count()
    with (
        Scrapes(("127.0.0.1", 0), CONTENT_TYPE, lambda: "x" * 50_000_000) as scrapes,
        socket.create_connection(("127.0.0.1", int(scrapes.address.rpartition(":")[2]))) as deaf,
    ):
        deaf.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        while threading.active_count() <= threads + 1:  # its own, and one that answers
            assert time.monotonic() - began_s < PATIENCE_S
        while threading.active_count() > threads + 1:
            assert time.monotonic() - began_s < PATIENCE_S
    assert time.monotonic() - began_s > 4


@pytest.mark.host
@pytest.mark.parametrize(
    "sent",
    [b"GET /" + b"x" * 10_000_000, b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 2_000_000, bytes(1_000_000),
     b"\x16\x03\x01\x02\x00\x01" * 10, b"GET\r\n\r\n", b"\n\n", b"GET /metrics HTTP/9.9\r\n\r\n"],
    ids=["path", "headers", "zeros", "tls", "short", "empty", "version"],
)  # fmt: skip
def test_nonsense_takes_no_memory(sent: bytes, place: tuple[str, int], capfd: pytest.CaptureFixture[str]) -> None:
    scraped(place)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        with socket.create_connection(place, PATIENCE_S) as peer, suppress(OSError):
            peer.sendall(sent)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65_536):
                pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 8 * 1024
    assert scraped(place)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_process_without_descriptors_answers_again_when_it_has_some(
    place: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = threading.Semaphore(0)
    monkeypatch.setattr(time, "sleep", lambda _seconds: pauses.release())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as waiting:
        first_free = os.open(os.devnull, os.O_RDONLY)
        os.close(first_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
        try:
            waiting.connect(place)
            waiting.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert all(pauses.acquire(timeout=PATIENCE_S) for _ in range(10))  # it has tried so often
            waiting.setblocking(False)
            with pytest.raises(BlockingIOError):
                waiting.recv(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        waiting.settimeout(PATIENCE_S)
        assert waiting.recv(15) == b"HTTP/1.0 200 OK"
