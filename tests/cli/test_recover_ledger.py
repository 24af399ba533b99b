"""`rmqstore recover` of a store on a DLedger log: its member is found."""

from pathlib import Path

from rmqstore import open_snapshot, open_store
from tests.cli.conftest import Run
from tests.dledger.ledgers import LEDGER, put


def test_a_store_after_a_crash_is_recovered_from_the_command_line(tmp_path: Path, run: Run) -> None:
    store = open_store(tmp_path, LEDGER)
    put(store, 30)
    store.abandon()
    dry = run("recover", tmp_path, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert (tmp_path / "abort").exists()
    done = run("recover", tmp_path)
    assert done.exit_code == 0, done.output
    assert "recovered, and closed cleanly" in done.output
    assert not (tmp_path / "abort").exists()
    assert open_snapshot(tmp_path).scan().read_all().num_rows == 30


def test_of_several_members_none_is_chosen(tmp_path: Path, run: Run) -> None:
    with open_store(tmp_path, LEDGER) as store:
        put(store, 3)
    other = tmp_path / "dledger-n1"
    for room in ("data", "index"):
        (other / room).mkdir(parents=True)
        (other / room / ("0" * 20)).write_bytes(bytes(4096))
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    refused = run("recover", tmp_path)
    assert refused.exit_code == 1
    assert "dledger=LedgerConfig" in refused.stderr
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
