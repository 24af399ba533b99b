"""A store that gives its log away: to the last byte, to whoever asks for all of it, and it stays as it is."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.cli import main
from rmqstore.config import HaConfig
from rmqstore.errors import NotAStore, Rejected, StoreInUse
from rmqstore.replica.following.donor import Donor
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.remoting.client import Command
from tests.patience import PATIENCE_S
from tests.remoting.peers import peer

pytestmark = pytest.mark.stores

SERVING = HaConfig(listen="127.0.0.1:0", whole_history=True)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with rmqstore.open_store(tmp_path / "backup", StoreConfig(log_file_size=16_384)) as store:
        for number in range(300):
            store.put(Message("orders", b"%d" % number * 30, queue_id=number % 3))
    return tmp_path / "backup"


def test_a_slave_gets_the_whole_log_and_the_donor_stays_as_it_is(backup: Path, tmp_path: Path) -> None:
    before = [path.read_bytes() for path in sorted((backup / "commitlog").iterdir())]
    with Donor(backup, SERVING) as donor:
        with Replica(tmp_path / "r", BareMaster(donor.address, 16_384)) as replica:
            end = donor.log_end
            replica.run(lambda state: state.phase == "following" and state.log_end >= end)
            replica.finish()
        with pytest.raises(StoreInUse):
            Donor(backup, SERVING)
    assert open_snapshot(tmp_path / "r").scan().read_all().num_rows == 300
    assert [path.read_bytes() for path in sorted((backup / "commitlog").iterdir())] == before


def test_what_has_nothing_to_give_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        Donor(tmp_path / "nothing", SERVING)
    rmqstore.open_store(tmp_path / "empty").close()
    with pytest.raises(Rejected, match="no messages to serve"):
        Donor(tmp_path / "empty", SERVING)


@pytest.mark.deep
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_where_and_ends_cleanly(backup: Path, how: signal.Signals) -> None:
    program = 'from rmqstore.cli import main; main(prog_name="rmqstore")'
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, "serve", str(backup), "--ha", "127.0.0.1:0"],
        stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert "of log at 127.0.0.1:" in child.stdout.readline()
        child.send_signal(how)
        assert child.wait(PATIENCE_S) == 0
    assert not (backup / "abort").exists()


def test_a_slave_is_told_where_to_fetch_and_where_to_go_then(backup: Path, tmp_path: Path) -> None:
    told: list[dict[str, str]] = []

    def answer(connection: socket.socket, command: Command) -> None:
        told.append(dict(command.fields))
        connection.sendall(Command(0, command.opaque, {}, is_answer=True).encode())

    program = 'from rmqstore.cli import main; main(prog_name="rmqstore")'
    with (
        peer(answer) as slave,
        subprocess.Popen(
            [sys.executable, "-u", "-c", program, "serve", str(backup), "--ha", "127.0.0.1:0", "--slave", slave,
             "--then", "127.0.0.1:10912"], stdout=subprocess.PIPE, text=True,
        ) as child,
    ):  # fmt: skip
        assert child.stdout is not None
        donor = child.stdout.readline().split()[-1]
        assert child.stdout.readline() == f"{slave} is told to attach to {donor}\n"
        with Replica(tmp_path / "r", BareMaster(donor, 16_384)) as replica:
            replica.run(lambda _: len(told) == 2)
        assert [fields["masterHaAddress"] for fields in told] == [donor, "127.0.0.1:10912"]
        child.terminate()
        assert child.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--then", "h:1"], "--then needs --slave"),
        (["--slave", "h:1", "--ha", "0.0.0.0:1", "--open-to-network"], "give --ha with"),
        (["--slave", "nonsense"], "host:port"),
    ],
)
def test_places_that_are_none_are_told_before_anything_is_opened(backup: Path, options: list[str], words: str) -> None:
    found = CliRunner().invoke(main, ["serve", str(backup), *options])
    assert found.exit_code != 0
    assert words in found.output
    assert not (backup / "abort").exists()
