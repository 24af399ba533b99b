"""The list of planted faults fits the source and the tests of today; `make teeth` tries them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.teeth.__main__ import Outcome, _why_not
from tests.teeth.plant import DoesNotFit, Edit, Plant
from tests.teeth.plants import PLANTS

PROJECT = Path(__file__).parents[2]
SYNC = next(each for each in PLANTS if each.fault == "a sync of a file does nothing")


@pytest.mark.parametrize("plant", PLANTS, ids=lambda each: each.fault)
def test_a_plant_fits(plant: Plant) -> None:
    """Its text stands in the source once, and is Python afterwards; its tests are there; it says how it is found."""
    assert plant.planted(PROJECT)
    assert plant.tests
    assert list(plant.missing_tests(PROJECT)) == []
    assert re.compile(plant.finding).groups == 0
    assert not re.search(plant.finding, ""), "any failure at all would count"


def test_a_fault_has_one_line() -> None:
    faults = [each.fault for each in PLANTS]
    assert len({*faults}) == len(faults)
    assert not [fault for fault in faults if "|" in fault or "\n" in fault]


@pytest.mark.parametrize("edit", [
    replace(SYNC.edits[0], old="no such text"), replace(SYNC.edits[0], new=SYNC.edits[0].old),
    replace(SYNC.edits[0], old="self"), replace(SYNC.edits[0], new="    return (\n"),
    Edit("rmqstore/files/filesystem.py", "import errno\n", "import errno\nfrom rmqstore import (\n"),
], ids=["gone", "changes nothing", "many places", "no Python", "no Python at the top"])  # fmt: skip
def test_a_plant_that_does_not_fit_is_told(edit: Edit) -> None:
    with pytest.raises(DoesNotFit, match="a sync of a file does nothing"):
        replace(SYNC, edits=(edit,)).planted(PROJECT)


@pytest.mark.parametrize("name", ["tests/files/test_gone.py::test_it", "tests/files/test_filesystem.py::test_gone"])
def test_a_test_that_is_gone_is_told(name: str) -> None:
    assert list(replace(SYNC, tests=(*SYNC.tests, name)).missing_tests(PROJECT)) == [name]


@pytest.mark.parametrize(("outcome", "why"), [
    (Outcome({"test_it": "assert [] == [True]"}, "", 1.0), ""),
    (Outcome({}, "", 1.0), "SURVIVES"),
    (Outcome({"test_it": "NameError: assert [] == [True]"}, "", 1.0), "fails, but not by"),
    (Outcome({"test_it": "assert [] == [False]"}, "", 1.0), "fails, but not by"),
    (Outcome({}, "no end after 120 s", 120.0), "no end"),
    (Outcome({"test_it": "assert [] == [True]"}, "test_it: failed in its fixture", 1.0), "failed in its fixture"),
], ids=["found", "survives", "breaks by itself", "another harm", "hangs", "error beside"])  # fmt: skip
def test_only_the_finding_that_is_named_counts(outcome: Outcome, why: str) -> None:
    said = _why_not(SYNC, outcome)
    assert said == "" if not why else why in said
