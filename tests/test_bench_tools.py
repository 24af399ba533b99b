"""Benches say what they measured and nothing else, and count the CPU seconds of all their processes."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from bench.cpu import tree_seconds
from bench.figures import Cost, Figure, Step, best_costs, page, write_json
from bench.quiet import only_ours

pytestmark = pytest.mark.stores

NOISY = "import sys; print('noise'); print('more noise', file=sys.stderr)"


def test_what_other_processes_print_goes_to_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "room" / "log"
    with only_ours(log) as shown:
        subprocess.run([sys.executable, "-c", NOISY], check=True)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a warning", stacklevel=1)
        sys.stdout.write("a figure\n")
        print("a step", file=shown)
    sys.stdout.write("the end\n")
    said = log.read_text(encoding="utf-8")
    assert all(word in said for word in ("noise", "more noise", "a warning"))
    assert capfd.readouterr() == ("a figure\nthe end\n", "a step\n")


def test_outputs_are_what_they_were_after_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), only_ours(tmp_path / "log"):
        raise KeyboardInterrupt
    subprocess.run([sys.executable, "-c", NOISY], check=True)
    assert capfd.readouterr() == ("noise\n", "more noise\n")


@pytest.mark.host
def test_cpu_seconds_are_those_of_all_processes_below() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True); input()"
    before = tree_seconds()
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert tree_seconds() - before >= 0.25
        without = tree_seconds({child.pid})
        assert tree_seconds() - without >= 0.25
        child.communicate(b"\n")
    assert tree_seconds() - before >= 0.25  # it has ended, and was counted


def test_the_cheapest_round_counts() -> None:
    spent = iter(range(100))
    costs = best_costs([lambda: None, lambda: None], 3, cpu=lambda: float(next(spent)))
    assert [cost.cpu_s for cost in costs] == [1.0, 1.0]
    assert min(Cost(2.0, 0.0), Cost(1.0, 9.0)) == Cost(1.0, 9.0)


def test_figures_make_a_page(tmp_path: Path) -> None:
    figures = [
        Figure(line="a", value=2.0, unit="s", against="b 4 s", judged=2.0, goal=3.0),
        Figure(line="c", value=1.0, unit="s", judged=1.0, goal=3.0, at_least=False),
    ]
    path = tmp_path / "room" / "figures.json"
    write_json(path, "make x: two rounds", figures, [Step(name="all", wall_s=1.0, cpu_s=2.0)])
    made = page([json.loads(path.read_text(encoding="utf-8"))])
    assert "## make x\n" in made
    assert ". Two rounds.\n" in made
    assert "| a | 2.00 s | b 4 s | 2.00 | ≥ 3 | MISSED |\n| c | 1.00 s |  | 1.00 | < 3 | met |\n" in made
    assert made.endswith("| all | 1.00 | 2.00 |\n")
