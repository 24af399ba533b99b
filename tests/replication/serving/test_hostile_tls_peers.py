"""Peers of a master inside TLS that do not finish their handshake, have a wrong certificate or none, or no TLS: each is
let go, and the slave that belongs there follows meanwhile.
"""

import random
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig
from rmqstore.clock import ManualClock
from rmqstore.config import HaConfig
from rmqstore.core.message import PutStatus
from rmqstore.replica.following.connection import LinkTls
from rmqstore.replica.tls import slave_side
from rmqstore.testing import Probe
from tests.patience import PATIENCE_S
from tests.replication.pem import files
from tests.replication.serving.pairs import LAG_MAX_S, SLAVES_MAX, descriptors, pair, peak_kib, slowest_put_s

pytestmark = pytest.mark.host

SLAVE = LinkTls(files("slave"))
FIRST_REPORT_MS = 10_000
FIRST_REPORT = struct.pack(">q", 1)


def context_of(name: str | None) -> ssl.SSLContext:
    """A slave's side that has this certificate, or none, and takes any master."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if name is None else slave_side(files(name), "localhost")
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def client_hello() -> bytes:
    """The first bytes of a slave of ours."""
    sent = ssl.MemoryBIO()
    begun = context_of("slave").wrap_bio(ssl.MemoryBIO(), sent)
    with suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    return sent.read()


HELLO = client_hello()
# Names of what a peer does first, for the ids of the tests.
BEGINNINGS = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "a plain slave": FIRST_REPORT,
    "a plain slave that wants the newest file": bytes(8),
    "zeros": bytes(4096),
    "a record of absurd size": b"\x16\x03\x01\xff\xff" + bytes(100),
    "ssl 2": b"\x80\x2e\x01\x00\x02" + bytes(60),
    "a hello of garbage": HELLO[:9] + bytes(reversed(HELLO[9:])),
    "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "two hellos": HELLO * 2,
}
HALVES = {"nothing": b"", "a byte": b"\x16", "half a hello": HELLO[: len(HELLO) // 2], "a hello": HELLO}


def is_let_go(peer: socket.socket) -> bool:
    """Whether the master ends this connection before the socket's time-out."""
    try:
        while peer.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def stepped(root: Path) -> Iterator[tuple[rmqstore.Store, ManualClock, tuple[str, int]]]:
    """A master whose steps and time are the test's."""
    clock = ManualClock()
    serving = HaConfig(listen="127.0.0.1:0", tls=files("master"))
    config = StoreConfig(log_file_size=1 << 16, ha=serving)
    with rmqstore.open_store(root, config, clock=clock, workers=False) as store:
        host, _, port = (store.ha_address or "").rpartition(":")
        yield store, clock, (host, int(port))


@pytest.mark.parametrize("first", BEGINNINGS.values(), ids=BEGINNINGS)
def test_what_is_no_handshake_is_let_go_at_once(first: bytes, tmp_path: Path) -> None:
    with stepped(tmp_path) as (store, _, place), socket.create_connection(place, timeout=PATIENCE_S) as peer:
        peer.sendall(first)
        for _ in range(4):
            Probe(store).step("replication")
        assert not store.slaves()
        assert is_let_go(peer)


@pytest.mark.parametrize("first", HALVES.values(), ids=HALVES)
def test_a_handshake_that_is_not_finished_has_the_time_of_a_first_report(first: bytes, tmp_path: Path) -> None:
    with stepped(tmp_path) as (store, clock, place), socket.create_connection(place, timeout=PATIENCE_S) as peer:
        peer.sendall(first)
        for _ in range(3):
            Probe(store).step("replication")
        clock.advance(FIRST_REPORT_MS - 1)
        Probe(store).step("replication")
        assert len(store.slaves()) == 1
        clock.advance(1)
        Probe(store).step("replication")
        assert not store.slaves()
        assert is_let_go(peer)


def test_a_hello_that_comes_byte_by_byte_has_no_longer(tmp_path: Path) -> None:
    with stepped(tmp_path) as (store, clock, place), socket.create_connection(place, timeout=PATIENCE_S) as peer:
        Probe(store).step("replication")
        for byte in HELLO[:10]:
            peer.sendall(bytes([byte]))
            clock.advance(FIRST_REPORT_MS // 10)
            Probe(store).step("replication")
        assert not store.slaves()
        assert is_let_go(peer)


def test_a_slave_that_is_greeted_and_then_says_nothing_is_let_go(tmp_path: Path) -> None:
    with (
        stepped(tmp_path) as (store, clock, place),
        socket.create_connection(place, timeout=PATIENCE_S) as plain,
        context_of("slave").wrap_socket(plain, do_handshake_on_connect=False) as peer,
    ):
        shaking = threading.Thread(target=peer.do_handshake)
        shaking.start()
        for _ in range(4):
            Probe(store).step("replication")
        shaking.join()
        clock.advance(FIRST_REPORT_MS - 1)
        Probe(store).step("replication")
        assert len(store.slaves()) == 1
        clock.advance(1)
        Probe(store).step("replication")
        assert not store.slaves()
        assert is_let_go(peer)


def asked(context: ssl.SSLContext, place: tuple[str, int]) -> tuple[bytes, str]:
    """The first that a slave with this side of TLS gets of the log, and in whose words it ended; none where it met a
    closed connection before it could read them."""
    with socket.create_connection(place, timeout=PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain) as peer:
                peer.sendall(FIRST_REPORT)
                return peer.recv(4096), "it was let in"
        except (ssl.SSLEOFError, ConnectionError):
            return b"", ""
        except ssl.SSLError as alert:
            return b"", str(alert.reason).replace("_", " ").lower()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("name", "words"),
    [(None, "certificate required|handshake failure"), ("stranger", "unknown ca"), ("expired", "certificate expired")],
)
def test_a_wrong_certificate_is_let_go_with_the_reason_and_sees_no_log(
    name: str | None, words: str, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    with pair(tmp_path, files("master"), SLAVE) as (store, place):
        context = context_of(name)
        context.minimum_version = context.maximum_version = version
        answers = {asked(context, place) for _ in range(20)} - {(b"", "")}
        assert all(not came and alert.endswith(tuple(words.split("|"))) for came, alert in answers), answers
        assert asked(context_of("slave"), place)[0]  # one that is let in gets something
        assert slowest_put_s(store, 5) < LAG_MAX_S


def test_tls_older_than_1_2_is_not_spoken(tmp_path: Path) -> None:
    with stepped(tmp_path) as (store, _, place), socket.create_connection(place, timeout=PATIENCE_S) as peer:
        peer.sendall(HELLO.replace(b"\x03\x03", b"\x03\x02").replace(b"\x03\x04", b"\x03\x02"))
        for _ in range(4):
            Probe(store).step("replication")
        assert is_let_go(peer)


def test_thousands_of_strangers_leave_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pair(tmp_path, files("master"), SLAVE) as (store, place):
        slowest_put_s(store)
        threads, before, began_kib = threading.active_count(), descriptors(), peak_kib()
        chance, slowest_s = random.Random(23), 0.0
        contexts = [context_of(name) for name in (None, "stranger", "expired")]
        for number in range(3000):
            with socket.socket() as peer, suppress(OSError):
                peer.settimeout(PATIENCE_S)
                peer.connect(place)
                if number % 3 == 0:
                    with chance.choice(contexts).wrap_socket(peer) as shaken:
                        shaken.sendall(FIRST_REPORT)
                elif number % 3 == 1:
                    peer.sendall(chance.choice([*BEGINNINGS.values(), *HALVES.values(), chance.randbytes(4000)]))
            if number % 300 == 0:
                slowest_s = max(slowest_s, slowest_put_s(store, 5))
        slowest_s, grown_kib = max(slowest_s, slowest_put_s(store)), peak_kib() - began_kib
        with capsys.disabled():
            sys.stdout.write(
                f"\n3,000 strangers at TLS: slowest put {slowest_s * 1000:.0f} ms, {grown_kib} KiB more at the peak\n"
            )
        assert slowest_s < LAG_MAX_S
        assert grown_kib < 32 * 1024
        assert threading.active_count() == threads
        assert descriptors() <= before + SLAVES_MAX + 8  # log files that were opened meanwhile
        assert len(store.slaves()) <= SLAVES_MAX


def test_a_hundred_unfinished_handshakes_take_no_slaves_place(tmp_path: Path) -> None:
    with pair(tmp_path, files("master"), SLAVE) as (store, place):
        before = descriptors()
        silent = [socket.create_connection(place) for _ in range(100)]
        try:
            for number, peer in enumerate(silent):
                with suppress(OSError):  # the first of them are gone
                    peer.sendall(list(HALVES.values())[number % len(HALVES)])
            assert slowest_put_s(store) < LAG_MAX_S
            assert len(store.slaves()) <= SLAVES_MAX
            assert descriptors() <= before + len(silent) + SLAVES_MAX + 8
        finally:
            for peer in silent:
                peer.close()


def test_a_slave_that_reads_nothing_holds_no_more_than_a_portion(tmp_path: Path) -> None:
    with (
        pair(tmp_path, files("master"), SLAVE) as (store, place),
        socket.create_connection(place) as plain,
        context_of("slave").wrap_socket(plain) as deaf,
    ):
        deaf.sendall(FIRST_REPORT)
        began_kib = peak_kib()
        for _ in range(40):
            store.put(Message("t", b"x" * 1_000_000))
        assert slowest_put_s(store) < LAG_MAX_S
        assert peak_kib() - began_kib < 64 * 1024
        came = 0
        deaf.settimeout(PATIENCE_S)
        while came < 40_000_000:  # and once it reads, it gets all of it
            data = deaf.recv(1 << 16)
            assert data
            came += len(data)


def test_a_false_acknowledgement_inside_tls_has_no_put_acknowledged(tmp_path: Path) -> None:
    serving = HaConfig(listen="127.0.0.1:0", in_sync_replicas=2, slave_timeout_ms=300, tls=files("master"))
    with rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 20, ha=serving)) as store:
        assert store.ha_address is not None
        host, _, port = store.ha_address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain,
            context_of("slave").wrap_socket(plain) as liar,
        ):
            liar.sendall(FIRST_REPORT + struct.pack(">q", 2**62))
            assert is_let_go(liar)
        assert store.put(Message("t", b"x")).status is PutStatus.SLAVE_NOT_AVAILABLE


def test_a_store_is_closed_while_its_slaves_shake_hands(tmp_path: Path) -> None:
    serving = HaConfig(listen="127.0.0.1:0", tls=files("master"))
    with rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 16, ha=serving)) as store:
        assert store.ha_address is not None
        host, _, port = store.ha_address.rpartition(":")
        before = descriptors()
        peers = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in HALVES]
        for peer, first in zip(peers, HALVES.values(), strict=True):
            peer.sendall(first)
    for peer in peers:
        assert is_let_go(peer)
        peer.close()
    assert descriptors() < before
