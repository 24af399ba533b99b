"""TLS between stores of ours on the command line: what belongs together, what cannot be used, and that it works."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from tests.cli.conftest import Run, last_line
from tests.replication.pem import PEM, files

pytestmark = pytest.mark.stores

PROGRAM = 'from rmqstore.cli import main; main(prog_name="rmqstore")'
FILE_SIZE = 65_536
USAGE = 2


def options(name: str) -> tuple[str, ...]:
    own = files(name)
    return "--ha-cert", str(own.cert_file), "--ha-key", str(own.key_file), "--ha-ca", str(own.ca_file)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with rmqstore.open_store(tmp_path / "backup", StoreConfig(log_file_size=FILE_SIZE)) as store:
        for number in range(300):
            store.put(Message("orders", b"%d" % number * 30))
    return tmp_path / "backup"


@contextmanager
def serving(backup: Path) -> Iterator[str]:
    """`rmqstore serve` inside TLS; its address."""
    command = [sys.executable, "-u", "-c", PROGRAM, "serve", str(backup), "--ha", "127.0.0.1:0", *options("master")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child.stdout.readline().rpartition(" at ")[2].strip()
        finally:
            child.terminate()


@pytest.mark.deep
def test_a_replica_is_made_inside_tls(backup: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "r"
    with serving(backup) as address:
        common = ("replicate", "--ha", address, "--log-file-size", FILE_SIZE, "--to", target)
        checked = run(*common, "--check")
        assert checked.exit_code == 1
        assert "may require TLS" in " ".join(checked.output.split())
        checked = run(*common, "--check", *options("stranger"), "--ha-name", "nobody.example")
        assert checked.exit_code == 1
        assert "mismatch" in checked.output
        assert not target.exists()
        made = run(*common, "--once", *options("slave"))
        assert made.exit_code == 0, made.output
    assert open_snapshot(target).scan().read_all().num_rows == 300


@pytest.mark.parametrize("missing", ["--ha-cert", "--ha-key", "--ha-ca"])
def test_one_of_three_that_is_missing_is_named(missing: str, tmp_path: Path, run: Run) -> None:
    given = options("slave")
    place = given.index(missing)
    given = (*given[:place], *given[place + 2 :])
    for command in (("replicate", "--ha", "127.0.0.1:1", "--to", tmp_path / "r"), ("serve", tmp_path)):
        result = run(*command, *given)
        assert result.exit_code == USAGE
        assert f"give all three; {missing} missing" in last_line(result.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--master", "127.0.0.1:1", *options("slave")), "--ha-cert needs --ha"),
        (("--namesrv", "127.0.0.1:1", *options("slave")), "--ha-cert needs --ha"),
        (("--ha", "127.0.0.1:1", "--ha-name", "master.example"), "--ha-name needs --ha-cert"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    given: tuple[str, ...], words: str, tmp_path: Path, run: Run
) -> None:
    result = run("replicate", "--to", tmp_path / "r", *given)
    assert result.exit_code == USAGE
    assert words in last_line(result.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "file", "words"),
    [
        ("--ha-cert", "nothing", "no such file"),
        ("--ha-key", "locked.key", "has a passphrase"),
        ("--ha-key", "stranger.key", "does not belong to the certificate"),
        ("--ha-ca", "slave.key", "is not in this file"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_nothing_is_made(
    option: str, file: str, words: str, backup: Path, tmp_path: Path, run: Run
) -> None:
    before = sorted(tmp_path.rglob("*"))
    given = list(options("slave"))
    given[given.index(option) + 1] = str(PEM / file)
    for command in (("replicate", "--ha", "127.0.0.1:1", "--to", tmp_path / "r"), ("serve", backup)):
        result = run(*command, *given)
        assert result.exit_code == 1
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_key_with_a_passphrase_is_not_asked_for_on_a_terminal(backup: Path) -> None:
    """The child has a terminal, where OpenSSL would ask and wait."""
    command = [sys.executable, "-c", PROGRAM, "serve", str(backup), *options("slave")]
    command[command.index("--ha-key") + 1] = str(PEM / "locked.key")
    in_terminal = [sys.executable, "-c", f"import pty, sys; sys.exit(pty.spawn({command!r}) >> 8)"]
    ended = subprocess.run(in_terminal, stdin=subprocess.DEVNULL, capture_output=True, timeout=600, check=False)
    assert ended.returncode == 1
    assert b"has a passphrase" in ended.stdout


@pytest.mark.parametrize("address", ["nonsense", "host:", ":10912", "host:0"])
def test_an_address_that_is_none_is_refused_before_a_directory_is_made(address: str, tmp_path: Path, run: Run) -> None:
    result = run("replicate", "--ha", address, "--to", tmp_path / "r")
    assert result.exit_code == 2
    assert "expected host:port" in result.stderr
    assert list(tmp_path.iterdir()) == []
