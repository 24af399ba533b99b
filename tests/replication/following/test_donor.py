"""A store that gives its log away: to the last byte, to whoever asks for all of it, and it stays as it is."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.config import HaConfig
from rmqstore.errors import NotAStore, Rejected, StoreInUse
from rmqstore.replication.following.donor import Donor
from rmqstore.replication.following.masters import BareMaster
from rmqstore.replication.following.replica import Replica

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
    with pytest.raises(Rejected, match="no messages to give away"):
        Donor(tmp_path / "empty", SERVING)


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
        assert child.wait(30) == 0
    assert not (backup / "abort").exists()
