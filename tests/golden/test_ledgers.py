"""Directories of DLedger nodes that the library itself wrote: alone, in groups, killed, with an uncommitted tail."""

import base64
from pathlib import Path

import pytest

import rmqstore
from rmqstore.directory.ledger.nodes import LedgerNode, committed_index, term_of
from rmqstore.files.reading import LOCAL
from rmqstore.formats.dledger import read_term
from rmqstore.snapshot import ledger_entries
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from tests.golden.cases import read_json
from tests.golden.nodes import CASES, unpacked
from tests.golden.rows import fingerprint


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def test_the_cases_are_all_there() -> None:
    assert len(CASES) == 8


def test_every_entry_is_the_nodes(case: Path, tmp_path: Path) -> None:
    node, expected = unpacked(case, tmp_path), read_json(case, "expected")
    before = fingerprint(node)
    rows = ledger_entries(node, "*").to_pylist()
    ours = [(row["index"], row["term"], row["position"], row["size"], row["body"]) for row in rows]
    assert ours == [
        (one["index"], one["term"], one["pos"], one["size"], base64.b64decode(one["body"]))
        for one in expected["entries"]
    ]
    assert fingerprint(node) == before


def test_the_group_has_agreed_on_what_the_checkpoint_says(case: Path, tmp_path: Path) -> None:
    """The node itself knew of more where it was killed; no file says so."""
    path, expected = unpacked(case, tmp_path), read_json(case, "expected")
    node = LedgerNode(str(path))
    told = int(expected["checkpoint"].partition("committedIndex=")[2].split()[0])
    assert committed_index(LOCAL, node) == told <= expected["committedIndex"]
    assert term_of(LOCAL, node) == read_term(expected["currterm"])
    rows = ledger_entries(path).to_pylist()
    assert [row["isCommitted"] for row in rows] == [row["index"] <= told for row in rows]
    ledger = survey(LOCAL, str(path)).ledger
    assert ledger is not None
    assert ledger.uncommitted_count == len(rows) - told - 1
    assert ledger.uncommitted_from == (told + 1 if ledger.uncommitted_count else 0)


def test_a_node_is_sound(case: Path, tmp_path: Path) -> None:
    node = unpacked(case, tmp_path)
    assert [found for found in verify(survey(LOCAL, str(node))) if found.severity == DAMAGE] == []


def test_no_node_passes_for_a_store_without_messages(case: Path, tmp_path: Path) -> None:
    node = unpacked(case, tmp_path)
    for path in (node, node.parent, node / "data", node / "index"):
        with pytest.raises(rmqstore.UnsupportedLayout, match="table=entries"):
            rmqstore.open_snapshot(path)
