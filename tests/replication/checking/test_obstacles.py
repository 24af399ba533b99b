"""Each thing that can stand in the way of a replica, found before anything is written."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig
from rmqstore.config import HaConfig
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.replica.checking.obstacles import Prospect, look, together
from rmqstore.replica.following import probe
from rmqstore.replica.following.note import Origin, write_origin
from rmqstore.replica.following.preparation import From
from rmqstore.replica.remoting.cluster import BrokerSettings, Runtime
from tests.replication.pem import files

pytestmark = pytest.mark.stores

FILE_SIZE = 1 << 16
SOME = Runtime(0, 3 * FILE_SIZE + 5, "V5_3_3")


@pytest.fixture
def ha_address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield "{}:{}".format(*listening.getsockname())


def found(
    path: Path, ha_address: str, present: Runtime | None = SOME, start: From = "earliest", name: str = "broker-a"
) -> list[str]:
    """The obstacles; the look changes nothing."""
    before = tree(path)
    seen = look(BrokerSettings(name, "c", ha_address, FILE_SIZE, False, {}), present, path, start).obstacles
    assert tree(path) == before
    return seen


def tree(path: Path) -> dict[str, tuple[int, float]]:
    return {str(each): (each.stat().st_size, each.stat().st_mtime) for each in path.parent.rglob("*")}


def replica(path: Path, ends_at: int = 1, file_size: int = FILE_SIZE) -> None:
    """A replica of broker-a, with files up to the one that ends there."""
    (path / "commitlog").mkdir(parents=True)
    for number in range(ends_at):
        (path / "commitlog" / f"{number * file_size:020}").write_bytes(b"r" * file_size)
    write_origin(RealFileSystem(), str(path), Origin("c", "broker-a", 0))


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_nothing_stands_in_the_way_of_a_new_one(start: From, tmp_path: Path, ha_address: str) -> None:
    assert found(tmp_path / "deep" / "down", ha_address, start=start) == []
    (tmp_path / "empty").mkdir()
    assert found(tmp_path / "empty", ha_address, start=start) == []


def test_a_port_that_takes_connections_and_says_nothing_is_no_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_READ_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = "{}:{}".format(*listening.getsockname())
        (seen,) = found(tmp_path / "r", address, present=None)
    assert seen.startswith(f"the replication port: {address} accepts connections but sends nothing")


def test_nothing_stands_in_the_way_of_an_empty_store_of_ours(tmp_path: Path) -> None:
    with rmqstore.open_store(
        tmp_path / "m", StoreConfig(preallocate=False, ha=HaConfig(listen="127.0.0.1:0"))
    ) as store:
        assert store.ha_address is not None
        assert found(tmp_path / "replicas" / "r", store.ha_address, present=None) == []


def test_a_master_that_wants_tls_is_told(tmp_path: Path) -> None:
    config = StoreConfig(preallocate=False, ha=HaConfig(listen="127.0.0.1:0", tls=files("master")))
    with rmqstore.open_store(tmp_path / "m", config) as store:
        assert store.ha_address is not None
        (seen,) = found(tmp_path / "replicas" / "r", store.ha_address, present=None)
    assert "closed the connection before it sent anything: an rmqstore master may require TLS (--ha-cert)" in seen


def test_nothing_stands_in_the_way_of_going_on(tmp_path: Path, ha_address: str) -> None:
    replica(tmp_path / "r", ends_at=2)
    assert found(tmp_path / "r", ha_address) == []


def test_a_replication_port_that_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = "{}:{}".format(*listening.getsockname())
    (seen,) = found(tmp_path / "r", address)
    assert seen.startswith(f"the replication port does not answer: {address}: Connection refused")
    assert "brokerIP2 and haListenPort" in seen


def test_a_disk_without_room_for_what_is_still_missing(tmp_path: Path, ha_address: str) -> None:
    free = shutil.disk_usage(tmp_path).free
    huge = Runtime(0, free + (1 << 40), "")
    (seen,) = found(tmp_path / "r", ha_address, huge)
    assert seen.startswith(f"{tmp_path} has ")
    assert found(tmp_path / "r", ha_address, huge, start="latest") == []  # one file
    late = Runtime(1 << 50, (1 << 50) + 100, "")
    assert found(tmp_path / "r", ha_address, late) == []  # what was deleted there needs no room here


def test_replicas_that_have_room_one_by_one_and_not_together() -> None:
    def one(needed: int, room: int = 100) -> Prospect:
        return Prospect([], needed, "/data", room)

    assert together([one(60), one(60)]) == "/data has 100 free bytes, and the replicas together need 120 more"
    assert together([one(60), one(40)]) == together([]) == ""
    assert together([one(60), one(101)]) == ""  # said of that one already


def test_a_store_that_is_no_replica(tmp_path: Path, ha_address: str) -> None:
    with rmqstore.open_store(tmp_path / "s", StoreConfig(log_file_size=FILE_SIZE, preallocate=False)) as store:
        store.put(Message("orders", b"x"))
    (seen,) = found(tmp_path / "s", ha_address)
    assert "holds a store that is not a replica: for a copy" in seen
    assert found(tmp_path / "s", ha_address, start="backup") == []
    (seen,) = found(tmp_path / "nothing", ha_address, start="backup")
    assert "holds no commitlog to continue" in seen


def test_another_brokers_replica(tmp_path: Path, ha_address: str) -> None:
    replica(tmp_path / "r")
    (seen,) = found(tmp_path / "r", ha_address, name="broker-b")
    assert "a replica of 'broker-a' in 'c', and this master is 'broker-b' in 'c'" in seen


def test_files_of_another_size(tmp_path: Path, ha_address: str) -> None:
    replica(tmp_path / "r", file_size=2 * FILE_SIZE)
    (seen,) = found(tmp_path / "r", ha_address)
    assert f"has files of {2 * FILE_SIZE} bytes, and the master's have {FILE_SIZE}" in seen


def test_a_directory_of_other_things(tmp_path: Path, ha_address: str) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    (seen,) = found(tmp_path / "photos", ha_address)
    assert "holds no RocketMQ store" in seen


def test_a_file_where_the_directory_would_be(tmp_path: Path, ha_address: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert any("is not a directory" in one for one in found(tmp_path / "file", ha_address))
    assert any("is not a directory" in one for one in found(tmp_path / "file" / "below", ha_address))


def test_a_note_that_is_damaged(tmp_path: Path, ha_address: str) -> None:
    replica(tmp_path / "r")
    (tmp_path / "r" / "config" / "replica.json").write_text("{}")
    (seen,) = found(tmp_path / "r", ha_address)
    assert "does not name the master of this replica" in seen


def test_a_master_that_deleted_what_comes_next(tmp_path: Path, ha_address: str) -> None:
    replica(tmp_path / "r", ends_at=2)
    (seen,) = found(tmp_path / "r", ha_address, Runtime(3 * FILE_SIZE, 5 * FILE_SIZE, ""))
    assert f"the master deleted the bytes that the replica needs next: its log begins at {3 * FILE_SIZE}" in seen
    assert found(tmp_path / "r", ha_address, Runtime(2 * FILE_SIZE, 5 * FILE_SIZE, "")) == []


def test_a_master_that_has_less_than_the_replica(tmp_path: Path, ha_address: str) -> None:
    replica(tmp_path / "r", ends_at=3)
    (seen,) = found(tmp_path / "r", ha_address, Runtime(0, FILE_SIZE, ""))
    assert "the master lost the end of its log, or is another master" in seen


def test_a_file_that_was_only_made_in_advance_is_no_part_of_the_log(tmp_path: Path, ha_address: str) -> None:
    replica(tmp_path / "r", ends_at=1)
    (tmp_path / "r" / "commitlog" / f"{FILE_SIZE:020}").write_bytes(bytes(FILE_SIZE))
    assert found(tmp_path / "r", ha_address, Runtime(0, FILE_SIZE - 5, "")) == []


def test_a_store_that_another_process_has_open(tmp_path: Path, ha_address: str) -> None:
    program = (
        "import sys, rmqstore\n"
        "config = rmqstore.StoreConfig(log_file_size=int(sys.argv[2]), preallocate=False)\n"
        "store = rmqstore.open_store(sys.argv[1], config)\n"
        "print('open', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "s"), str(FILE_SIZE)]
    path = os.environ | {"PYTHONPATH": str(Path(rmqstore.__file__).parents[1])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        seen = look(
            BrokerSettings("broker-a", "c", ha_address, FILE_SIZE, False, {}), SOME, tmp_path / "s", "earliest"
        ).obstacles
        assert any("is in use: a replicator, or another program" in one for one in seen)
        child.send_signal(signal.SIGKILL)
    assert not any("is in use" in one for one in found(tmp_path / "s", ha_address))


def test_a_directory_that_this_user_may_not_write_to(ha_address: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        root.chmod(0o555)
        user = os.geteuid()
        try:
            if user == 0:  # who may write everywhere
                os.seteuid(65_534)
            seen = found(root / "r", ha_address)
        finally:
            os.seteuid(user)
            root.chmod(0o755)
    assert seen == [f"{place} cannot be written to by this user: change its owner, or run as another user"]


def test_a_directory_that_this_user_may_not_read(ha_address: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        root.chmod(0o755)
        (root / "r").mkdir()
        (root / "r" / "lock").touch()
        (root / "r").chmod(0)
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65_534)
            seen = look(
                BrokerSettings("broker-a", "c", ha_address, FILE_SIZE, False, {}), SOME, root / "r", "earliest"
            ).obstacles
        finally:
            os.seteuid(user)
            (root / "r").chmod(0o755)
    assert any("cannot be read (Permission denied)" in one for one in seen)
    assert any("cannot be written to" in one for one in seen)
