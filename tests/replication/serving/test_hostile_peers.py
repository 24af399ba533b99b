"""Peers that send garbage, half a report, nothing, or come by the thousand: a master of ours stays small, and its slave
follows meanwhile.
"""

import os
import random
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig
from rmqstore.config import HaConfig
from rmqstore.core.message import PutStatus
from rmqstore.errors import Rejected
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.remoting.client import host_and_port
from rmqstore.replica.serving.log_for_slaves import LogForSlaves
from rmqstore.testing import Probe
from tests.replication.serving.pairs import LAG_MAX_S, SLAVES_MAX, descriptors, pair, peak_kib, slowest_put_s
from tests.store.children import in_child

pytestmark = pytest.mark.stores


def garbage(chance: random.Random) -> bytes:
    """What a stranger may send first."""
    return chance.choice(
        (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\0" * 7,
            struct.pack(">q", 2**62),
            struct.pack(">q", -(2**63)),
            struct.pack(">qq", 1, 2**62),
            chance.randbytes(chance.randint(1, 4000)),
        )
    )


@pytest.mark.host
def test_ten_thousand_connections_leave_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pair(tmp_path) as (store, place):
        slowest_put_s(store)
        threads, before, began_kib = threading.active_count(), descriptors(), peak_kib()
        chance, slowest_s = random.Random(19), 0.0
        for number in range(10_000):
            with socket.socket() as peer, suppress(OSError):
                peer.connect(place)
                if number % 2:
                    peer.sendall(garbage(chance))
            if number % 1000 == 0:
                slowest_s = max(slowest_s, slowest_put_s(store, 5))
        slowest_s = max(slowest_s, slowest_put_s(store))
        grown_kib = peak_kib() - began_kib
        with capsys.disabled():
            sys.stdout.write(
                f"\n10,000 peers: slowest put {slowest_s * 1000:.0f} ms, {grown_kib} KiB more at the peak\n"
            )
        assert slowest_s < LAG_MAX_S
        assert grown_kib < 32 * 1024
        assert threading.active_count() == threads
        assert descriptors() <= before + SLAVES_MAX + 8  # log files that were opened meanwhile
        assert len(store.slaves()) <= SLAVES_MAX


@pytest.mark.host
def test_silent_peers_take_no_slaves_place(tmp_path: Path) -> None:
    with pair(tmp_path) as (store, place):
        before = descriptors()
        silent = [socket.create_connection(place) for _ in range(100)]
        try:
            assert slowest_put_s(store) < LAG_MAX_S
            assert len(store.slaves()) <= SLAVES_MAX
            assert descriptors() <= before + len(silent) + SLAVES_MAX + 8
            assert store.ha_address is not None
            with Replica(tmp_path / "second", BareMaster(store.ha_address, 1 << 20)) as late:
                end = store.statistics().gauges.log_max_offset
                late.run(lambda state: state.phase == "following" and state.log_end >= end)
        finally:
            for peer in silent:
                peer.close()


@pytest.mark.host
def test_a_slave_that_reads_nothing_holds_no_more_than_its_sockets_buffer(tmp_path: Path) -> None:
    with pair(tmp_path) as (store, place), socket.create_connection(place) as deaf:
        deaf.sendall(struct.pack(">q", 1))
        began_kib = peak_kib()
        for _ in range(40):
            store.put(Message("t", b"x" * 1_000_000))
        assert slowest_put_s(store) < LAG_MAX_S
        assert peak_kib() - began_kib < 64 * 1024


def test_a_slave_that_is_overtaken_by_retention_ends_alone(tmp_path: Path) -> None:
    """The file of its present block is deleted: its connection ends, and the store takes messages as before."""
    serving = HaConfig(listen="127.0.0.1:0")
    with rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 16, ha=serving)) as store:
        assert store.ha_address is not None
        host, _, port = store.ha_address.rpartition(":")
        for _ in range(300):
            store.put(Message("t", b"x" * 50_000))
        store.flush()
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(struct.pack(">q", 1))
            assert slow.recv(1)
            store.clean(any_age=True)
            while store.clean(any_age=True).log_files:
                pass
            came = 1
            with socket.socket() as other, pytest.raises(OSError, match="retention"):
                LogForSlaves(Probe(store).engine.log).send(other, 0, 100)
            while data := slow.recv(1 << 20):
                came += len(data)
            assert came < store.statistics().gauges.log_max_offset
        assert store.health().is_writable, store.health().reasons
        assert store.put(Message("t", b"y")).status is PutStatus.PUT_OK


def test_a_port_that_is_taken_leaves_no_store_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        serving = HaConfig(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(Rejected, match=r"cannot listen on .*: Address already in use"):
            rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 16, ha=serving))
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]  # nothing else is made for it
        with rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 16)) as store:
            assert store.ha_address is None
    assert store.ha_address is None
    for _ in range(2):  # and a port is free again as soon as its store is closed
        with rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 16, ha=serving)) as store:
            assert store.ha_address == serving.listen
        assert store.ha_address == serving.listen  # asked of a store that is closed


def test_a_child_made_by_fork_keeps_neither_the_port_nor_a_slave(tmp_path: Path) -> None:
    """It inherits the sockets, and lives on: closing the store ends them all the same."""
    serving = HaConfig(listen="127.0.0.1:0")
    store = rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 16, ha=serving))
    assert store.ha_address is not None
    host, _, port = store.ha_address.rpartition(":")
    store.put(Message("t", b"x"))
    with socket.create_connection((host, int(port)), timeout=600) as slave:
        slave.sendall(struct.pack(">q", 1))
        assert slave.recv(1 << 16)
        with child_that_waits():
            store.close()
            while slave.recv(1 << 16):
                pass
            again = HaConfig(listen=store.ha_address)
            rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 16, ha=again)).close()


def test_a_child_that_outlives_a_killed_master_holds_neither_the_port_nor_a_slave(tmp_path: Path) -> None:
    program = (
        "import os, sys, rmqstore\n"
        "from rmqstore.config import HaConfig\n"
        "serving = HaConfig(listen='127.0.0.1:0')\n"
        "store = rmqstore.open_store(sys.argv[1], rmqstore.StoreConfig(log_file_size=1 << 16, ha=serving))\n"
        "store.put(rmqstore.Message('t', b'x'))\n"
        "print(store.ha_address, flush=True)\n"
        "sys.stdin.readline()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    print('forked', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        address = parent.stdout.readline().strip()
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=600) as slave:
            slave.sendall(struct.pack(">q", 1))
            assert slave.recv(1 << 16)
            parent.stdin.write("fork\n")
            parent.stdin.flush()
            assert parent.stdout.readline() == "forked\n"
            parent.kill()
            with suppress(ConnectionResetError):
                while slave.recv(1 << 16):
                    pass
        parent.wait()  # its sockets may be closed before its lock is
        config = StoreConfig(log_file_size=1 << 16, ha=HaConfig(listen=address))
        rmqstore.open_store(tmp_path, config).close()  # the child lives on


def test_an_address_of_ipv6_is_one_that_slaves_take(tmp_path: Path) -> None:
    with rmqstore.open_store(tmp_path, StoreConfig(preallocate=False, ha=HaConfig(listen="[::1]:0"))) as store:
        assert store.ha_address is not None
        with socket.create_connection(host_and_port(store.ha_address), timeout=600):
            pass


@pytest.mark.host
def test_a_process_without_descriptors_does_not_spin_and_takes_slaves_in_later(tmp_path: Path) -> None:
    serving = HaConfig(listen="127.0.0.1:0")

    def work(tell: Callable[[str], None]) -> None:
        config = StoreConfig(log_file_size=1 << 16, ha=serving)
        with rmqstore.open_store(tmp_path, config, workers=False) as store, socket.socket() as slave:
            store.put(Message("t", b"x"))
            store.flush()
            probe = Probe(store)
            host, _, port = (store.ha_address or "").rpartition(":")
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (1000, limits[1]))
            with suppress(OSError):  # until all are taken
                while True:
                    os.dup(0)
            slave.connect((host, int(port)))
            slave.sendall(struct.pack(">q", 1))
            began_s, steps = time.monotonic(), 0
            while time.monotonic() - began_s < 1.2:
                probe.step("replication")
                steps += 1
            tell(f"{len(store.slaves())} slaves after {'few' if steps < 10 else 'many'} steps")
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            slave.settimeout(0.01)
            data = b""
            while not data:
                probe.step("replication")
                with suppress(TimeoutError):
                    data = slave.recv(4096)
            tell(f"{len(store.slaves())} slave with {'all' if len(data) > 90 else 'a part'}")

    assert in_child(work) == ["0 slaves after few steps", "1 slave with all"]


@contextmanager
def child_that_waits() -> Iterator[None]:
    """A child made by fork, which ends when the block does."""
    out, told = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        os.read(out, 1)
        os._exit(0)
    os.close(out)
    try:
        yield
    finally:
        os.close(told)
        os.waitpid(child, 0)


@pytest.mark.parametrize("false", [2**62, 10**9, -1])
def test_a_false_acknowledgement_has_no_put_acknowledged(tmp_path: Path, false: int) -> None:
    serving = HaConfig(listen="127.0.0.1:0", in_sync_replicas=2, slave_timeout_ms=300)
    with rmqstore.open_store(tmp_path, StoreConfig(log_file_size=1 << 20, ha=serving)) as store:
        assert store.ha_address is not None
        host, _, port = store.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as liar:
            liar.sendall(struct.pack(">qq", 1, false))
            with suppress(OSError):
                while liar.recv(4096):  # it is let go
                    pass
        assert store.put(Message("t", b"x")).status is PutStatus.SLAVE_NOT_AVAILABLE
