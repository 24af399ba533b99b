"""`rmqstore recover` of a store on a DLedger log: its member is found."""

import shutil
from pathlib import Path

import pytest

from rmqstore import open_snapshot, open_store
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from tests.cli.conftest import Run
from tests.dledger.ledgers import LEDGER, converted, image, put

pytestmark = pytest.mark.stores


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
    assert "has members n0 and n1 of a DLedger group: broker.conf names the broker's" in refused.stderr
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("arguments", [("recover",), ("recover", "--dry-run"), ("clean", "--force")], ids=" ".join)
@pytest.mark.parametrize("is_ended_cleanly", [True, False])
def test_a_member_whose_data_are_elsewhere_is_refused(
    tmp_path: Path, run: Run, arguments: tuple[str, ...], is_ended_cleanly: bool
) -> None:
    root, _ = converted(tmp_path, is_ended_cleanly)
    before = image(tmp_path)
    verb, *options = arguments
    refused = run(verb, root, *options)
    assert refused.exit_code == 1
    assert len(refused.stderr.strip().splitlines()) == 1
    assert image(tmp_path) == before


@pytest.mark.parametrize("is_ended_cleanly", [True, False])
def test_a_store_that_lost_its_queues_is_still_a_brokers(tmp_path: Path, run: Run, is_ended_cleanly: bool) -> None:
    store = open_store(tmp_path, LEDGER)
    put(store, 30)
    store.close() if is_ended_cleanly else store.abandon()
    shutil.rmtree(tmp_path / "consumequeue")
    done = run("recover", tmp_path)
    assert done.exit_code == 0, done.output
    assert open_snapshot(tmp_path).scan().read_all().num_rows == 30


def test_another_programs_log_is_left_alone(tmp_path: Path, run: Run) -> None:
    with EntryStore(tmp_path / "dledger-n0", EntryStoreConfig(data_file_size=4096, index_file_size=640)) as log:
        log.append([b"not a message, but of another program " * 3] * 50, 1)
    before = image(tmp_path)
    for arguments in (("recover", tmp_path), ("recover", tmp_path, "--dry-run")):
        assert run(*arguments).exit_code == 1
    assert image(tmp_path) == before


def test_a_dry_run_refuses_what_recovering_refuses(tmp_path: Path, run: Run) -> None:
    with open_store(tmp_path, LEDGER) as store:
        put(store, 30)
    (tmp_path / "dledger-n0" / "checkpoint").write_text("committedIndex=45\nendIndex=45\n")
    answers = [run("recover", tmp_path, *options) for options in ((), ("--dry-run",))]
    assert [answer.exit_code for answer in answers] == [1, 1]
    assert answers[0].stderr == answers[1].stderr
    assert "agreed on entry 45" in answers[0].stderr


def test_clean_and_verify_say_what_they_do_not_do(tmp_path: Path, run: Run) -> None:
    with open_store(tmp_path, LEDGER) as store:
        put(store, 30)
    cleaned = run("clean", tmp_path, "--force")
    assert cleaned.exit_code == 1
    assert "this command does not clean: call Store.clean" in cleaned.stderr
    assert "no damage, 1 note" in run("verify", tmp_path / "dledger-n0").output
