"""Stores in DLedger mode, and a bare node's directory, on the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, document_of
from tests.snapshot.small_ledger import small_ledger

COUNT = 60


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 messages that count, and seven that the group may still revoke."""
    store = small_ledger(COUNT)
    for number in range(7):
        store.add("T", 0, body=b"revoked %d" % number, dispatched=False)
    return store.write(tmp_path_factory.mktemp("ledger"), committed=COUNT - 1)


def test_inspect_says_whose_log_it_is_and_what_it_leaves_out(root: Path, run: Run) -> None:
    shown = run("inspect", root)
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.stdout.split())
    assert "node n0, term 1, checkpoint at entry 59; uncommitted, left out: 7 from index 60 on" in text
    ledger = document_of(run("inspect", root, "--json"))["stores"][0]["dledger"]
    assert (ledger["selfId"], ledger["uncommittedFrom"], ledger["uncommittedEntries"]) == ("n0", 60, 7)


def test_inspect_of_a_log_that_all_agreed_on_leaves_nothing_out(tmp_path: Path, run: Run) -> None:
    shown = run("inspect", small_ledger(COUNT).write(tmp_path))
    assert "uncommitted" not in shown.stdout
    assert "node n0, term 1, checkpoint at entry 59" in " ".join(shown.stdout.split())


def test_cat_prints_what_counts(root: Path, run: Run) -> None:
    rows = document_of(run("cat", root, "--topic", "T", "--json"))
    assert len(rows) == COUNT
    assert not [row for row in rows if "revoked" in json.dumps(row)]


def test_verify_notes_what_may_be_revoked(root: Path, run: Run) -> None:
    findings = json.loads(run("verify", root, "--json").stdout)["stores"][0]["findings"]
    (found,) = [each for each in findings if "which the group may revoke" in each["reason"]]
    assert (found["severity"], found["reason"][:26]) == ("note", "7 entries from index 60 on")


def test_a_bare_node_is_verified_by_itself(root: Path, run: Run) -> None:
    checked = run("verify", root / "dledger-n0")
    assert checked.exit_code == 0, checked.output
    assert "no damage" in checked.output


@pytest.mark.parametrize("arguments", [("inspect",), ("cat", "--topic", "T")], ids=["inspect", "cat"])
def test_of_a_bare_node_it_is_said_how_to_read_it(root: Path, run: Run, arguments: tuple[str, ...]) -> None:
    verb, *options = arguments
    refused = run(verb, root / "dledger-n0", *options)
    assert refused.exit_code == 1
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "give the broker's directory above it" in refused.stderr
    assert "table=entries" in refused.stderr
