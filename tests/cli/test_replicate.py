"""`rmqstore replicate` as a process: how it ends, whatever ends it, and what it says; its store is closed cleanly."""

import errno
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.cli import main
from rmqstore.config import HaConfig
from tests.cli.conftest import Run
from tests.remoting.peers import peer, saying

pytestmark = pytest.mark.deep

FILE_SIZE = 1 << 16
DEADLINE_S = 600
PROGRAM = [sys.executable, "-c", 'from rmqstore.cli import main; main(prog_name="rmqstore")', "replicate"]
# Empty: output has a buffer, and what a terminal did not take is there when the interpreter ends.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(rmqstore.__file__).parents[1]), "PYTHONUNBUFFERED": ""}


@pytest.fixture(autouse=True)
def hangups_end() -> Iterator[None]:
    """As in a terminal, also where the tests run under nohup: a child inherits what is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def until(ask: Callable[[], Any]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not ask():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[rmqstore.Store]:
    config = StoreConfig(log_file_size=FILE_SIZE, ha=HaConfig(listen="127.0.0.1:0"), preallocate=False)
    with rmqstore.open_store(tmp_path / "m", config) as store:
        put(store, 100)
        yield store


def put(store: rmqstore.Store, count: int) -> None:
    for number in range(count):
        assert store.put(Message("orders", b"%d" % number * 50)).is_stored
    store.flush()


def arguments(master: rmqstore.Store, target: Path, *more: str) -> list[str]:
    assert master.ha_address is not None
    return [*PROGRAM, "--ha", master.ha_address, "--log-file-size", str(FILE_SIZE), "--to", str(target), *more]


@contextmanager
def running(command: Sequence[str], **streams: Any) -> Iterator["subprocess.Popen[str]"]:
    """A child, which is killed at the end if it still runs."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=ENVIRONMENT, **pipes | streams) as child:
        try:
            yield child
        finally:
            child.kill()


def line_of(stream: IO[str] | None, wanted: str) -> str:
    """The next line with these words."""
    assert stream is not None
    for line in stream:
        if wanted in line:
            return line
    raise AssertionError(f"no {wanted!r}")


def row_count(target: Path) -> int:
    return open_snapshot(target).scan().read_all().num_rows


def require_clean(target: Path, rows: int = 100) -> None:
    assert not (target / "abort").exists()
    assert row_count(target) == rows


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(how: signal.Signals, master: rmqstore.Store, tmp_path: Path) -> None:
    target = tmp_path / "r"
    with running(arguments(master, target)) as child:
        line_of(child.stderr, "following")
        until(lambda: row_count(target) == 100)
        child.send_signal(how)
        said, errors = child.communicate(timeout=DEADLINE_S)
    assert (child.returncode, errors) == (0, "")
    assert said.count("\n") == 1
    assert "of log in 1 file, 0 B behind, newest message 20" in said
    require_clean(target)


def test_signals_again_and_again_leave_no_traceback(master: rmqstore.Store, tmp_path: Path) -> None:
    """The second one ends it as it stands; what comes after goes on from there."""
    for attempt in range(4):
        target = tmp_path / f"r{attempt}"
        with running(arguments(master, target)) as child:
            line_of(child.stderr, "following")
            while child.poll() is None:
                child.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(attempt * 0.01)
            said, errors = child.communicate(timeout=DEADLINE_S)
        assert child.returncode in (0, -signal.SIGINT)
        assert errors == ""
        assert said.count("\n") <= 1
        done = subprocess.run(arguments(master, target, "--once"), env=ENVIRONMENT, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0
        require_clean(target)


def test_a_hangup_that_is_ignored_stays_ignored(master: rmqstore.Store, tmp_path: Path) -> None:
    """As under nohup."""
    target = tmp_path / "r"
    with running(["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *arguments(master, target)]) as child:
        line_of(child.stderr, "following")
        child.send_signal(signal.SIGHUP)
        put(master, 50)
        until(lambda: row_count(target) == 150)
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE_S) == 0
    require_clean(target, 150)


def test_a_reader_that_goes_away_ends_it(master: rmqstore.Store, tmp_path: Path) -> None:
    """rmqstore replicate --json | head -1"""
    target = tmp_path / "r"
    with running(arguments(master, target, "--json", "--delay-levels", "1s 5s")) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["phase"] in ("connecting", "comparing", "following")
        child.stdout.close()
        child.stdout = None
        _, errors = child.communicate(timeout=DEADLINE_S)
    assert (child.returncode, errors) == (1, "")
    assert not (target / "abort").exists()


def test_a_full_disk_under_its_output_is_said(master: rmqstore.Store, tmp_path: Path) -> None:
    target = tmp_path / "r"
    with open("/dev/full", "w") as full, running(arguments(master, target, "--json"), stdout=full) as child:
        _, errors = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 1
    assert errors.splitlines()[-1].startswith(f"Error: cannot write to standard output: {os.strerror(errno.ENOSPC)}")
    assert "Traceback" not in errors
    assert not (target / "abort").exists()


def test_without_a_standard_output_nothing_begins(master: rmqstore.Store, tmp_path: Path) -> None:
    with running(["sh", "-c", 'exec "$@" >&-', "sh", *arguments(master, tmp_path / "r")]) as child:
        _, errors = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 1
    assert errors.startswith("Error: cannot write to standard output: it is closed")
    assert not (tmp_path / "r").exists()


def test_without_a_standard_error_it_runs(master: rmqstore.Store, tmp_path: Path) -> None:
    target = tmp_path / "r"
    with running(["sh", "-c", 'exec "$@" 2>&-', "sh", *arguments(master, target)]) as child:
        until(lambda: (target / "commitlog").exists() and row_count(target) == 100)
        child.send_signal(signal.SIGTERM)
        said, _ = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 0
    assert "0 B behind" in said
    require_clean(target)


@pytest.mark.parametrize("is_leader", [True, False], ids=["hang-up", "no hang-up"])
def test_a_terminal_that_goes_away_leaves_the_store_closed_cleanly(
    is_leader: bool, master: rmqstore.Store, tmp_path: Path
) -> None:
    """A leader of its session gets a SIGHUP by that; all others go on, and are told by another signal."""
    target = tmp_path / "r"
    terminal, theirs = pty.openpty()
    try:
        steps = (
            "import fcntl, os, sys, termios\nfcntl.ioctl(1, termios.TIOCSCTTY, 0)\nos.execv(sys.argv[1], sys.argv[1:])"
        )
        command = arguments(master, target)
        command = [sys.executable, "-c", steps, *command] if is_leader else command
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
        with running(command, **streams) as child:
            os.close(theirs)
            shown = b""
            while b"following" not in shown:
                shown += os.read(terminal, 65_536)
            assert b"broker" in shown
            assert b"messages" in shown
            until(lambda: row_count(target) == 100)
            os.close(terminal)
            terminal = -1
            if not is_leader:
                put(master, 50)
                until(lambda: row_count(target) == 150)
                child.send_signal(signal.SIGTERM)
            assert child.wait(DEADLINE_S) in (0, 1)
    finally:
        if terminal >= 0:
            os.close(terminal)
    require_clean(target, 100 if is_leader else 150)


def test_a_master_that_goes_away_is_told_once(tmp_path: Path) -> None:
    config = StoreConfig(log_file_size=FILE_SIZE, ha=HaConfig(listen="127.0.0.1:0"), preallocate=False)
    with rmqstore.open_store(tmp_path / "m", config) as store:
        put(store, 5)
        command = arguments(store, tmp_path / "r")
        address = store.ha_address
    assert address is not None
    with running(command) as child:
        assert "Connection refused" in line_of(child.stderr, "waiting")
        serving = StoreConfig(log_file_size=FILE_SIZE, ha=HaConfig(listen=address), preallocate=False)
        with rmqstore.open_store(tmp_path / "m", serving):
            assert line_of(child.stderr, "") == f"{address}: following\n"
            child.send_signal(signal.SIGTERM)
            assert child.wait(DEADLINE_S) == 0
    require_clean(tmp_path / "r", 5)


def test_a_name_server_that_is_away_at_the_start_is_waited_for(tmp_path: Path) -> None:
    table = {"a": {"cluster": "c", "brokerName": "a", "brokerAddrs": {"0": "127.0.0.1:1"}}}
    with peer(saying(json.dumps({"brokerAddrTable": table}).encode())) as gone:
        pass
    command = [*PROGRAM, "--namesrv", gone, "--to", str(tmp_path / "r")]
    with running(command) as child:
        assert "Connection refused" in line_of(child.stderr, "waiting")
        with peer(saying(json.dumps({"brokerAddrTable": table}).encode()), port=int(gone.split(":")[1])):
            assert "127.0.0.1:1: Connection refused" in line_of(child.stderr, "a: waiting")
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("option", ["--once", "--check"])
def test_a_name_server_that_is_away_ends_what_is_done_once(option: str, tmp_path: Path, run: Run) -> None:
    with peer(saying()) as gone:
        pass
    result = run("replicate", "--namesrv", gone, "--to", tmp_path / "r", option)
    assert result.exit_code == 1
    assert "Connection refused" in result.stderr


def scraped(address: str) -> str:
    connection = HTTPConnection(address, timeout=DEADLINE_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_metrics_are_there_until_it_ends(master: rmqstore.Store, tmp_path: Path) -> None:
    assert master.ha_address is not None
    end = master.statistics().gauges.log_max_offset
    with running(arguments(master, tmp_path / "r", "--metrics", "127.0.0.1:0")) as child:
        address = line_of(child.stderr, "metrics: ").split("/")[2]
        line_of(child.stderr, "following")
        sample = f'rmqstore_replica_log_end_bytes{{broker="{master.ha_address}"}} {end}\n'
        until(lambda: sample in scraped(address))
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE_S) == 0
    with pytest.raises(ConnectionRefusedError):
        scraped(address)


@pytest.mark.parametrize(
    ("given", "status", "why"),
    [("{taken}", 1, ": Address already in use"), ("0.0.0.0:9095", 2, "add --open-to-network"),
     ("host", 2, "expected host:port"), ("999.1.1.1:9 --open-to-network", 1, "cannot listen on")],
)  # fmt: skip
def test_a_port_for_metrics_that_cannot_be_had_is_said_before_anything_begins(
    given: str, status: int, why: str, master: rmqstore.Store, tmp_path: Path, run: Run
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = given.format(taken=taken.getsockname()[1]).split()
        result = run(*arguments(master, tmp_path / "r", "--once", "--metrics", *options)[3:])
    assert result.exit_code == status
    line = result.stderr.splitlines()[-1]
    assert line.startswith("Error: --metrics")
    assert why in line
    assert not (tmp_path / "r").exists()


def test_a_check_says_what_is_in_the_way_and_makes_nothing(master: rmqstore.Store, tmp_path: Path, run: Run) -> None:
    command = arguments(master, tmp_path / "r", "--check")[3:]
    result = run(*command)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "nothing prevents the replication")
    assert not (tmp_path / "r").exists()
    with running(arguments(master, tmp_path / "r")) as child:
        line_of(child.stderr, "following")
        result = run(*command)
        assert result.exit_code == 1
        assert "is in use: a replicator" in " ".join(result.stdout.split())
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE_S) == 0
    assert run(*command).exit_code == 0


def test_a_check_names_each_master_that_does_not_answer(tmp_path: Path, run: Run) -> None:
    table = {name: {"cluster": "c", "brokerName": name, "brokerAddrs": {"0": "127.0.0.1:1"}} for name in ("a", "b")}
    with peer(saying(json.dumps({"brokerAddrTable": table}).encode())) as name_server:
        result = run("replicate", "--namesrv", name_server, "--to", tmp_path / "r", "--check")
    assert result.exit_code == 1
    said = " ".join(result.stdout.split())
    for name in table:
        assert f"{name}: a master that does not respond at 127.0.0.1:1 -> {tmp_path}/r/{name}" in said
    assert said.count("the listen port does not answer: 127.0.0.1:1: Connection refused") == 2
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--namesrv", "h:1", "--yes"], "--yes needs --realign"),
        (["--namesrv", "h:1", "--open-to-network"], "--open-to-network needs --metrics"),
        (["--master", "h:1", "--cluster", "c"], "--cluster needs --namesrv"),
        (["--ha", "h:1", "--tls"], "--tls is for brokers: with --ha use --ha-cert"),
    ],
)
def test_an_option_without_effect_is_refused(tmp_path: Path, options: list[str], words: str) -> None:
    found = CliRunner().invoke(main, ["replicate", "--to", str(tmp_path / "r"), *options])
    assert found.exit_code == 2
    assert words in " ".join(found.output.split())
    assert not (tmp_path / "r").exists()
