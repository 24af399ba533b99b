"""Each test is in a part, quick ones in one of `make test`; what a part says of itself is kept."""

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.crash import strides
from tests.ladder import __main__ as ladder
from tests.ladder.parts import DEEP, NOT_QUICK, QUICK, left_out
from tests.ladder.times import USUAL, Taken, folder_of, folders, outcomes, read, told

PROJECT = Path(__file__).parents[2]
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


def test_commands_are_targets_of_the_makefile() -> None:
    text = (PROJECT / "Makefile").read_text(encoding="utf-8")
    commands = [part.command for part in DEEP if part.command]
    assert commands
    for program, target, *_ in commands:
        assert program == "make"
        assert f"\n{target}: " in text, target


def taken(folder: str, count: int, seconds: float) -> dict[str, Taken]:
    return {f"tests/{folder}/test_a.py::test_{number}": Taken(seconds) for number in range(count)}


def test_a_folder_that_costs_more_than_it_may_is_told_and_the_machine_does_not_count() -> None:
    for speed in (1.0, 7.0):
        run = taken("log", 100, 0.01 * speed) | taken("crash", 10, 0.5 * speed)
        assert [each.name for each in folders(run, {"crash": 60}) if each.is_over] == []
        over = folders(run, {"crash": 40})
        assert [each.name for each in over if each.is_over] == ["crash"]
        assert "  OVER" in told(run, over)
    assert [each.allowance for each in folders(run, {"crash": 40}) if each.name == "log"] == [USUAL]
    assert folders({}) == []
    assert max(map(len, told(run, over).splitlines())) <= 80


def test_the_folder_of_a_test() -> None:
    assert folder_of("tests/log/put/test_a.py::test_b[c/d]") == "log"
    assert folder_of("tests/test_a.py::test_b") == "."


def test_times_of_a_run_are_kept_over_its_processes(tmp_path: Path) -> None:
    """Set-up, call and tear-down together; a failure in any of them is one."""
    (tmp_path / "tests").mkdir()
    text = (
        "import pytest\n"
        "@pytest.fixture\ndef broken():\n    raise OSError\n"
        "def test_a(): pass\ndef test_b(): assert 0\ndef test_c(broken): pass\n"
        "@pytest.mark.skip\ndef test_d(): pass\n@pytest.mark.xfail\ndef test_e(): assert 0\n"
    )
    (tmp_path / "tests" / "test_some.py").write_text(text)
    program = (
        "import sys, pathlib, pytest\n"
        f"sys.path.insert(0, {str(PROJECT)!r})\n"
        "from tests.ladder.times import Keeper\n"
        "pytest.main(['-q', '-p', 'no:cacheprovider', 'tests'], plugins=[Keeper(pathlib.Path('times.json'))])\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False, timeout=600)
    found = read(tmp_path / "times.json")
    assert {name.partition("::")[2]: one.outcome for name, one in found.items()} == {
        "test_a": "passed", "test_b": "failed", "test_c": "failed", "test_d": "skipped", "test_e": "xfailed",
    }  # fmt: skip
    assert outcomes(found)["failed"] == 2
    assert read(tmp_path / "none.json") == {}


def test_rows_of_other_parts_stay_in_the_file(tmp_path: Path) -> None:
    rows = [
        ladder.Row(name, name == "unit", 1.5, tests, 2, 0, 7, 3, "abc", "2026-01-01T00:00:00+00:00")
        for name, tests in (("unit", 10), ("teeth", None))
    ]
    for row in (*rows, rows[0]):
        ladder.keep(tmp_path / "build" / "deep.json", row)
    kept = json.loads((tmp_path / "build" / "deep.json").read_text())
    assert {name: row["is_green"] for name, row in kept.items()} == {"unit": True, "teeth": False}
    lines = ladder.table(rows).splitlines()
    assert ["FAILED" in line for line in lines] == [False, False, True, False]
    assert max(map(len, lines)) <= 80


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


def test_a_residue_can_be_repeated() -> None:
    program = "from tests.crash.strides import residue; print(residue())"
    command = [sys.executable, "-c", program]
    environment = {"RMQSTORE_RESIDUE": "41", "PATH": "", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "41\n"
