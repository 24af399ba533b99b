"""What each test took and became of is kept; a folder, or a test, that costs more than it may is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ladder.run import PROJECT
from tests.ladder.times import ALLOWANCES, USUAL, Taken, dear_tests, folder_of, folders, outcomes, read, told

MAY = {"crash": (60.0, 8.0), "log": (60.0, 1.5)}


def taken(folder: str, count: int, seconds: float) -> dict[str, Taken]:
    return {f"tests/{folder}/test_{count}.py::test_{number}": Taken(seconds) for number in range(count)}


def over(stores: dict[str, Taken], unit: dict[str, Taken] | None = None) -> list[str]:
    """The folders and tests of a run that cost more than they may."""
    run = {"unit": unit or {}, "stores": stores}
    return [each.name for each in folders(run, MAY) if each.is_over] + sorted(dear_tests(run, MAY))


# 50 s in either folder: what a test adds goes beyond what it may cost, or does not.
USUAL_RUN = taken("log", 100, 0.5) | taken("crash", 20, 2.5)
DEAR_FOLDER = taken("log", 100, 0.5) | taken("crash", 32, 2.5)
DEAR_TEST = USUAL_RUN | taken("log", 1, 2.0)
RUNS = [(USUAL_RUN, []), (DEAR_FOLDER, ["crash"]), (DEAR_TEST, ["tests/log/test_1.py::test_0"])]


@pytest.mark.parametrize(("run", "found"), RUNS)
@pytest.mark.parametrize("speed", [1.0, 3.0])
def test_a_dear_folder_and_a_dear_test_are_told_and_the_machine_does_not_count(
    run: dict[str, Taken], found: list[str], speed: float
) -> None:
    run = {name: Taken(one.seconds * speed) for name, one in run.items()}
    assert over(run) == found
    parts = {"stores": run}
    text = told(parts, folders(parts, MAY), dear_tests(parts, MAY))
    assert text.count("OVER") == len(found)
    assert max(len(line) for line in text.splitlines() if not line.startswith("OVER: ")) <= 80


@pytest.mark.parametrize(("run", "found"), RUNS)
@pytest.mark.parametrize("where", ["log", "crash", "quick"])
def test_thousands_of_tests_that_cost_nothing_change_no_verdict(
    run: dict[str, Taken], found: list[str], where: str
) -> None:
    assert over(run | taken(where, 3000, 0.0001)) == found
    assert over(run, taken(where, 5000, 0.0001)) == found


def test_a_unit_test_may_cost_less() -> None:
    dear = taken("crash", 1, 2.0)
    assert over(USUAL_RUN | dear) == []
    assert over(USUAL_RUN, dear) == [*dear]


def test_a_minute_is_too_much_for_a_test_without_a_marker_in_any_folder() -> None:
    """In a run of half an hour by two workers."""
    for folder in ALLOWANCES:
        run = {"unit": taken(folder, 1, 60.0), "stores": taken("other", 1000, 3.6)}
        assert [*dear_tests(run)] == [*run["unit"]]


def test_what_was_skipped_costs_nothing_and_a_run_without_tests_has_no_folders() -> None:
    skipped = {"tests/snapshot/test_a.py::test_a": Taken(900.0, "skipped")}
    assert over(USUAL_RUN | skipped) == []
    assert folders({"unit": {}}) == []
    assert dear_tests({"unit": {}}) == {}


def test_each_allowance_is_that_of_a_folder_and_more_than_the_usual() -> None:
    for name, (folder, test) in ALLOWANCES.items():
        assert (PROJECT / "tests" / name).is_dir(), name
        assert folder > USUAL[0], name
        assert test >= USUAL[1], name


def test_the_folder_of_a_test() -> None:
    assert folder_of("tests/log/put/test_a.py::test_b[c/d]") == "log"
    assert folder_of("tests/test_a.py::test_b") == "."


FILES = {
    "test_some.py": (
        "import pytest\n"
        "@pytest.fixture\ndef broken():\n    raise OSError\n"
        "@pytest.fixture\ndef breaking():\n    yield\n    raise OSError\n"
        "def test_a(): pass\ndef test_b(): assert 0\ndef test_c(broken): pass\ndef test_f(breaking): pass\n"
        "@pytest.mark.skip\ndef test_d(): pass\n@pytest.mark.xfail\ndef test_e(): assert 0\n"
        "@pytest.mark.xfail(strict=False)\ndef test_g(): pass\n@pytest.mark.xfail(strict=True)\ndef test_h(): pass\n"
    ),
    "test_broken.py": "raise OSError\n",
    "test_skipped.py": "import pytest\npytest.skip('no', allow_module_level=True)\n",
}
PROGRAM = (
    "import sys, pathlib, pytest\n"
    f"sys.path.insert(0, {str(PROJECT)!r})\n"
    "from tests.ladder.times import Keeper\n"
    "pytest.main(['-q', '-p', 'no:cacheprovider', '--continue-on-collection-errors', *sys.argv[1:], 'tests'],\n"
    "    plugins=[Keeper(pathlib.Path('times.json'))])\n"
)


@pytest.mark.stores
@pytest.mark.parametrize("workers", ["0", "2"])
def test_outcomes_of_a_run_are_kept_over_its_processes(tmp_path: Path, workers: str) -> None:
    """Set-up, call and tear-down together; a failure in any of these is one.  Files that were not collected, too."""
    (tmp_path / "tests").mkdir()
    for name, text in FILES.items():
        (tmp_path / "tests" / name).write_text(text)
    command = [sys.executable, "-c", PROGRAM, "-n", workers]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=600)
    found = read(tmp_path / "times.json")
    assert {name.removeprefix("tests/").removeprefix("test_some.py::"): one.outcome for name, one in found.items()} == {
        "test_a": "passed", "test_b": "failed", "test_c": "failed", "test_d": "skipped", "test_e": "xfailed",
        "test_f": "failed", "test_g": "xpassed", "test_h": "failed", "test_broken.py": "failed",
        "test_skipped.py": "skipped",
    }  # fmt: skip
    assert outcomes(found)["failed"] == 5
    assert read(tmp_path / "none.json") == {}


@pytest.mark.stores
def test_what_is_set_up_and_not_called_has_not_passed(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text("def test_a(): pass\n")
    command = [sys.executable, "-c", PROGRAM, "-n", "0", "--setup-plan"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=600)
    assert "passed" not in outcomes(read(tmp_path / "times.json"))
