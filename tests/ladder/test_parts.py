"""Each test is in a part, quick ones in one of `make test`; what a part says of itself is kept, and is true."""

import json
import os
import random
import re
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.crash import strides
from tests.ladder import __main__ as ladder
from tests.ladder.parts import DEEP, NOT_QUICK, QUICK, Part, left_out
from tests.ladder.run import HUNG, PROJECT
from tests.ladder.times import Taken, read

MARKERS = ("stores", "spark", "deep", "host", "crash", "mutation", "teeth", "browser")


def parts_of(markers: dict[str, bool]) -> list[str]:
    """The parts that have a test with these markers."""
    names = dict.fromkeys(("source", "hypothesis"), False) | markers
    return [part.name for part in (*QUICK, *DEEP) if part.marks and eval(part.marks, {}, names)]


def test_every_test_is_in_a_part() -> None:
    for values in product((False, True), repeat=len(MARKERS)):
        markers = dict(zip(MARKERS, values, strict=True))
        names = parts_of(markers)
        quick = [name for name in names if name in {part.name for part in QUICK}]
        assert len(quick) == (not eval(NOT_QUICK, {}, {"source": False} | markers)), markers
        # `make teeth` takes its tests by their folder; the other pairs mean nothing.
        assert names or markers["teeth"] or (markers["spark"] and (markers["mutation"] or markers["browser"])), markers


def test_a_test_without_a_marker_is_a_unit_test() -> None:
    assert parts_of(dict.fromkeys(MARKERS, False)) == ["unit"]


_TAKES_SOME = re.compile(r"^from tests\.crash\.strides import .*\b(?:every|first|stride|IS_WHOLE)\b", re.MULTILINE)


def never_whole(tests: Path) -> list[str]:
    """The test files that take some moments of a sweep, and have no test that a run takes which has them all."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(tests.rglob("test_*.py"))}
    return [path.name for path, text in texts.items() if _TAKES_SOME.search(text) and "pytest.mark.crash" not in text]


def test_what_takes_some_moments_is_run_whole_by_a_part_too(tmp_path: Path) -> None:
    assert next(part for part in DEEP if part.environment == {"RMQSTORE_SWEEPS": "whole"}).marks.startswith("crash ")
    line = "from tests.crash.strides import ROUNDS, every\n"
    for name, text in (("test_a.py", line + "@pytest.mark.crash\n"), ("test_b.py", line), ("sweep.py", line)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert never_whole(tmp_path) == ["test_b.py"]
    assert never_whole(PROJECT / "tests") == []


def test_commands_are_targets_of_the_makefile() -> None:
    text = (PROJECT / "Makefile").read_text(encoding="utf-8")
    commands = [part.command for part in DEEP if part.command]
    assert commands
    for program, target, *_ in commands:
        assert program == "make"
        assert f"\n{target}: " in text, target


def test_rows_of_other_parts_stay_in_the_file(tmp_path: Path) -> None:
    rows = [
        ladder.Row(name, name == "unit", 1.5, tests, 2, 0, 1, 7, 3, "abc", "2026-01-01T00:00:00+00:00")
        for name, tests in (("unit", 10), ("teeth", None))
    ]
    for row in (*rows, rows[0]):
        ladder.keep(tmp_path / "build" / "deep.json", row)
    kept = json.loads((tmp_path / "build" / "deep.json").read_text())
    assert {name: row["is_green"] for name, row in kept.items()} == {"unit": True, "teeth": False}
    lines = ladder.table(rows).splitlines()
    assert ["FAILED" in line for line in lines] == [False, False, True, False]
    assert max(map(len, lines)) <= 80


UNIT = QUICK[0]


@pytest.mark.parametrize("outcomes", [[], ["skipped", "skipped"], ["begun"], ["xfailed"], ["passed", "skipped"]])
def test_a_part_in_which_no_test_ran_is_red(outcomes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As with `--collect-only`, `--setup-plan`, or options that name no test of the part."""
    row = ladder.row_of(UNIT, 0, {f"tests/a.py::test_{n}": Taken(0.1, one) for n, one in enumerate(outcomes)}, 1.0, 7)
    assert row.is_green == bool({*outcomes} & {"passed", "xfailed"})
    assert capsys.readouterr().out == ("" if row.is_green else "unit: no test was executed\n")


def test_a_command_without_times_is_judged_by_its_exit_status() -> None:
    command = next(part for part in DEEP if part.command)
    assert [ladder.row_of(command, status, {}, 1.0, 7).is_green for status in (0, 1)] == [True, False]


def test_tests_that_hung_are_named_and_counted_as_failed(capsys: pytest.CaptureFixture[str]) -> None:
    taken = {"tests/a.py::test_a": Taken(0.1, "hung"), "tests/a.py::test_b": Taken(0.1)}
    row = ladder.row_of(UNIT, HUNG, taken, 1.0, 7)
    assert (row.is_green, row.failed) == (False, 1)
    assert capsys.readouterr().out == "unit: no test ended for 900 s; these were running: tests/a.py::test_a\n"


def test_files_that_cannot_be_collected_and_expected_failures_are_in_the_table() -> None:
    outcomes = ["failed", "hung", "skipped", "xfailed", "xpassed", "passed"]
    row = ladder.row_of(UNIT, 1, {f"tests/{n}.py": Taken(0.1, one) for n, one in enumerate(outcomes)}, 1.0, 7)
    assert (row.failed, row.skipped, row.xfailed) == (2, 1, 2)


@pytest.mark.parametrize("options", [["-p", "no:randomly"], ["-pno:randomly"], ["-x", "-p", "no:randomly"]])
def test_without_randomly_there_is_no_seed(options: list[str]) -> None:
    assert not [each for each in ladder.command_of(UNIT, options, 7) if "seed" in each]
    assert "--randomly-seed=7" in ladder.command_of(UNIT, ["-k", "no:randomly"], 7)


@pytest.mark.parametrize("part", [part for part in (*QUICK, *DEEP) if not part.command], ids=lambda part: part.name)
def test_no_path_stands_before_those_of_the_options(part: Part) -> None:
    """Where there is none, pytest takes `testpaths`: they are all tests."""
    assert not [each for each in ladder.command_of(part, [], 7)[3:] if Path(each).exists() and "=" not in each]
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["pytest"]["ini_options"]["testpaths"] == ["tests"]


@pytest.mark.stores
def test_options_can_name_a_file_and_leave_the_order_of_the_files(tmp_path: Path) -> None:
    command = ladder.command_of(UNIT, ["tests/test_errors.py", "-p", "no:randomly", "-n0"], 7)
    taken = tmp_path / "taken.json"
    command = [f"--times={taken}" if each.startswith("--times=") else each for each in command]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout
    assert {name.partition("::")[0] for name in read(taken)} == {"tests/test_errors.py"}


@pytest.mark.parametrize(("seconds", "options", "status"), [(1.0, [], 0), (60.0, [], 1), (60.0, ["-x"], 0)])
def test_the_quick_ladder_holds_its_own_tests_to_what_they_may_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: float,
    options: list[str], status: int,
) -> None:  # fmt: skip
    """Not those of files that other runs left; nor where options may take some of the tests alone."""

    def run_part(command: list[str], environment: dict[str, str]) -> int:
        file = next(Path(each.partition("=")[2]) for each in command if each.startswith("--times="))
        assert not file.exists()
        tests = {f"tests/folder{n}/test_a.py::test_{file.stem}": Taken(1.0) for n in range(100)}
        tests[f"tests/folder0/test_b.py::test_{file.stem}"] = Taken(seconds)
        file.write_text(json.dumps({name: asdict(one) for name, one in tests.items()}))
        return 0

    monkeypatch.setattr(ladder, "TIMES", tmp_path)
    monkeypatch.setattr(ladder, "status_of", run_part)
    for name in ("unit", "slow"):
        (tmp_path / f"{name}.json").write_text('{"tests/old/test_a.py::test_a": {"seconds": 9, "outcome": "passed"}}')
    assert ladder.run(["quick", "--", *options]) == status
    out = capsys.readouterr().out
    assert ("slowest of 303 tests" in out) == (not options)
    assert "tests/old" not in out
    assert ("OVER: tests/folder0/test_b.py::test_unit: it costs " in out) == (status == 1)


def test_a_part_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ladder.run(["unit", "units", "--", "-k", "x"])
    assert "no part is called units; there are unit, " in capsys.readouterr().err


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 100])
@pytest.mark.parametrize("quick", [1, 3, 7])
def test_all_residues_together_are_the_whole_sweep(count: int, quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strides, "IS_WHOLE", False)
    found: list[int] = []
    for residue in range(quick):
        monkeypatch.setattr(strides, "residue", lambda residue=residue: residue)
        part = strides.every(quick, range(count))
        assert bool(part) == bool(count)
        found += part
    assert {*found} == {*range(count)}
    assert len(found) == count or count < quick
    monkeypatch.setattr(strides, "IS_WHOLE", True)
    assert [*strides.every(quick, range(count))] == [*range(count)]


def test_a_sweep_around_another_has_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strides, "IS_WHOLE", False)
    pairs = set()
    for residue in range(6 * 3):
        monkeypatch.setattr(strides, "residue", lambda residue=residue: residue)
        pairs |= {
            (outer, inner) for outer in strides.every(6, range(12), around=3) for inner in strides.every(3, range(9))
        }
    assert pairs == {(outer, inner) for outer in range(12) for inner in range(9)}


@dataclass
class Item:
    """What `left_out` asks of a case."""

    nodeid: str
    mark: pytest.Mark | None = None

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        """Its mark, if it is of this name."""
        return self.mark if self.mark and self.mark.name == name else None


def test_of_some_cases_each_comes_at_its_turn_whatever_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strides, "IS_WHOLE", False)
    some = [Item(f"tests/a.py::test_a[{number}]", pytest.mark.some(3).mark) for number in range(7)]
    others = [Item(f"tests/a.py::test_b[{number}]") for number in range(7)]
    alone = Item("tests/a.py::test_c", pytest.mark.some(3).mark)
    taken: list[str] = []
    for residue in range(3):
        monkeypatch.setattr(strides, "residue", lambda residue=residue: residue)
        items = [*some, *others, alone]
        random.Random(residue).shuffle(items)
        out = {item.nodeid for item in left_out(items)}  # type: ignore[arg-type]
        assert out <= {item.nodeid for item in some}
        taken += [item.nodeid for item in some if item.nodeid not in out]
    assert sorted(taken) == [item.nodeid for item in some]
    monkeypatch.setattr(strides, "IS_WHOLE", True)
    assert [*left_out(some)] == []  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "²", "0"])
def test_a_bad_number_ends_a_program(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", value)
    with pytest.raises(SystemExit, match=f"^A={value}: that is no whole number from 1 on; "):
        strides.number("A", 7, least=1)


@pytest.mark.parametrize(("value", "number"), [("", 7), ("1", 1), ("41", 41)])
def test_a_number_is_taken(value: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", value)
    assert strides.number("A", 7, least=1) == number


@pytest.mark.stores
def test_a_bad_number_ends_the_ladder_with_one_line() -> None:
    command = [sys.executable, "-m", "tests.ladder", "unit", "--", "--co", "-q", "-n0", "tests/test_errors.py"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), "RMQSTORE_RESIDUE": "abc"}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 1
    assert done.stderr == "RMQSTORE_RESIDUE=abc: that is no whole number from 0 on; set another, or unset it\n"


@pytest.mark.stores
def test_a_bad_number_ends_pytest_with_one_line() -> None:
    command = [sys.executable, "-m", "pytest", "-n0", "--co", "-q", "tests/test_errors.py"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), "RMQSTORE_CRASH_ROUNDS": "x"}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 1
    assert (done.stdout + done.stderr).splitlines() == [
        "RMQSTORE_CRASH_ROUNDS=x: that is no whole number from 1 on; set another, or unset it"
    ]


def test_without_git_no_commit_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert strides.commit() == ""
    assert ladder.row_of(UNIT, 0, {}, 1.0, 7).commit == ""


def test_a_residue_can_be_repeated() -> None:
    program = "from tests.crash.strides import residue; print(residue())"
    command = [sys.executable, "-c", program]
    environment = {"RMQSTORE_RESIDUE": "41", "PATH": "", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "41\n"
