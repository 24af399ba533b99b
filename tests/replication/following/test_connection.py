"""A slave and its master inside TLS: whom it follows, whom it does not, and why in one line; renewed files; no TLS at
one end.
"""

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.config import HaConfig, HaTls
from rmqstore.errors import NotNow
from rmqstore.replica.checking.obstacles import look
from rmqstore.replica.following.connection import LinkTls, connected
from rmqstore.replica.following.donor import Donor
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.probe import MasterLog
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.following.state import ReplicaState
from rmqstore.replica.tls import master_side
from rmqstore.testing import Probe
from tests.replication.pem import PEM, files

pytestmark = pytest.mark.stores

FILE_SIZE = 1 << 18
SLAVE = LinkTls(files("slave"))


@contextmanager
def master_with(root: Path, tls: HaTls | None, count: int = 300) -> Iterator[rmqstore.Store]:
    serving = HaConfig(listen="127.0.0.1:0", tls=tls)
    with rmqstore.open_store(root / "m", StoreConfig(log_file_size=FILE_SIZE, ha=serving)) as store:
        for number in range(count):
            store.put(Message("orders", b"%d" % number * 500, queue_id=number % 3))
        store.flush()
        yield store


def slave_of(store: rmqstore.Store, root: Path, tls: LinkTls | None) -> Replica:
    assert store.ha_address is not None
    return Replica(root / "r", BareMaster(store.ha_address, FILE_SIZE, tls=tls))


def catch_up(replica: Replica, store: rmqstore.Store) -> None:
    end = store.statistics().gauges.log_max_offset
    replica.run(lambda state: state.phase == "following" and state.log_end >= end)
    replica.finish()


def why_it_waits(replica: Replica) -> str:
    replica.run(lambda state: state.phase == "waiting")
    return replica.state.error


def log_of(root: Path, size: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))[:size]


def test_a_slave_inside_tls_has_the_masters_log(tmp_path: Path) -> None:
    with master_with(tmp_path, files("master"), 3000) as store:
        with slave_of(store, tmp_path, SLAVE) as replica:
            catch_up(replica, store)
        end = store.statistics().gauges.log_max_offset
        assert end > 4 * FILE_SIZE
        assert log_of(tmp_path / "r", end) == log_of(tmp_path / "m", end)
        store.put(Message("orders", b"x"))
        with slave_of(store, tmp_path, SLAVE) as replica:
            catch_up(replica, store)
    assert open_snapshot(tmp_path / "r").scan().read_all().num_rows == 3001


def test_a_donor_gives_its_log_away_inside_tls(tmp_path: Path) -> None:
    with master_with(tmp_path, None):
        pass
    serving = HaConfig(listen="127.0.0.1:0", whole_history=True, tls=files("master"))
    with Donor(tmp_path / "m", serving) as donor:
        master = BareMaster(donor.address, FILE_SIZE, tls=SLAVE)
        assert look(master.settings(), None, tmp_path / "r", "earliest", master.link_tls).obstacles == []
        found = MasterLog(master.settings(), master.link_tls).read(0, donor.log_end)
        assert found == log_of(tmp_path / "m", donor.log_end)


@pytest.mark.some(6)
@pytest.mark.parametrize(
    ("master", "slave", "words"),
    [
        (files("master"), LinkTls(files("slave", "other-authority")), "TLS: self-signed certificate in"),
        (files("stranger"), SLAVE, "TLS: unable to get local issuer certificate"),
        (files("expired"), SLAVE, "TLS: certificate has expired"),
        (files("elsewhere"), SLAVE, r"TLS: IP address mismatch, certificate is not valid for '127\.0\.0\.1'"),
        (files("master"), LinkTls(files("slave"), "master.example"), "TLS: Hostname mismatch, .*'master.example'"),
        (files("master"), LinkTls(files("stranger")), "TLS: tlsv1 alert unknown ca|may not accept our certificate"),
        (files("master"), LinkTls(files("expired")), "TLS: .*certificate expired|may not accept our certificate"),
        (None, SLAVE, "the master closed the connection instead of starting TLS: it may not support TLS"),
        (files("master"), None, "closed the connection before it sent anything: .* may require TLS"),
    ],
    ids=["slave's authority", "stranger", "expired", "elsewhere", "name", "as stranger", "as expired", "plain", "tls"],
)
def test_a_pair_that_does_not_fit_waits_and_says_why(
    master: HaTls | None, slave: LinkTls | None, words: str, tmp_path: Path
) -> None:
    with master_with(tmp_path, master) as store, slave_of(store, tmp_path, slave) as replica:
        error = why_it_waits(replica)
        assert "\n" not in error
        assert error.startswith(f"{store.ha_address}: ")
        assert Probe(replica).log_end == 0
        assert store.slaves() == {}
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(error)


def test_the_host_name_may_be_another_than_the_one_that_is_connected_to(tmp_path: Path) -> None:
    slave = LinkTls(files("slave"), "master.example")
    with master_with(tmp_path, files("elsewhere")) as store, slave_of(store, tmp_path, slave) as replica:
        catch_up(replica, store)
        end = Probe(store).log_end
        assert log_of(tmp_path / "r", end) == log_of(tmp_path / "m", end)


def test_a_certificate_that_was_renewed_is_used_for_the_next_connection(tmp_path: Path) -> None:
    own = LinkTls(copied("expired", tmp_path))
    with master_with(tmp_path, files("master")) as store, slave_of(store, tmp_path, own) as replica:
        assert "certificate" in why_it_waits(replica)
        copied("slave", tmp_path)
        catch_up(replica, store)


def test_a_key_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    own = LinkTls(copied("slave", tmp_path))
    with master_with(tmp_path, files("master")) as store, slave_of(store, tmp_path, own) as replica:
        Path(str(own.files.key_file)).unlink()
        assert "own.key: no such file" in why_it_waits(replica)
        copied("slave", tmp_path)
        catch_up(replica, store)


def copied(name: str, root: Path) -> HaTls:
    for kind in ("pem", "key"):
        shutil.copyfile(PEM / f"{name}.{kind}", root / f"own.{kind}")
    return replace(files(name), cert_file=root / "own.pem", key_file=root / "own.key")


@contextmanager
def peer_that(answers: Callable[[socket.socket], None]) -> Iterator[str]:
    """A master that does this with each connection; its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    answers(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield "{}:{}".format(*listening.getsockname())
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize(
    "sent", [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100), b"\x16\x03\x03\xff\xff" + bytes(70_000), b"\x15"],
    ids=["http", "zeros", "absurd record", "a byte"],
)  # fmt: skip
def test_what_is_no_tls_is_a_lost_connection(sent: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(sent)

    with peer_that(answer) as address, pytest.raises(NotNow, match=address) as lost:
        connected(address, SLAVE)
    assert "\n" not in str(lost.value)


def test_a_master_that_cuts_the_connection_amid_tls_loses_nothing_else(tmp_path: Path) -> None:
    """It ends without a farewell, in the middle of a record of TLS: what came whole is there, and no more."""
    with master_with(tmp_path, None) as store:
        end = store.statistics().gauges.log_max_offset
    log = log_of(tmp_path / "m", end)
    context = master_side(files("master"))

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as shaken:
            shaken.recv(8)
            shaken.sendall((1).to_bytes(8, "big") + (50_000).to_bytes(4, "big") + log[1:50_001])
            shaken.sendall((50_001).to_bytes(8, "big") + (50_000).to_bytes(4, "big") + log[50_001:60_000])
            with socket.socket(fileno=shaken.detach()) as bare:
                bare.sendall(b"\x17\x03\x03\x40\x00" + bytes(100))

    with peer_that(answer) as address, Replica(tmp_path / "r", BareMaster(address, FILE_SIZE, tls=SLAVE)) as replica:
        seen: list[ReplicaState] = []

        def until(state: ReplicaState) -> bool:
            seen.append(state)
            return state.phase == "waiting" and state.log_end > 0

        replica.run(until)
        assert 0 < replica.state.log_end <= 50_001
        assert replica.state.error.startswith(address)
        assert log_of(tmp_path / "r", replica.state.log_end) == log[: replica.state.log_end]
