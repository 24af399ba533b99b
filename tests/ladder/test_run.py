"""No variable of a user's shell comes to a test; no process of a part outlives it; what hangs is ended and named."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ladder.run import HUNG, PROJECT, Watch, clean, memory_for_files, status_of
from tests.ladder.times import Keeper, read

SHELL = {
    "FORCE_COLOR": "1", "NO_COLOR": "1", "PY_COLORS": "1", "COLUMNS": "40", "LINES": "10", "CI": "true",
    "PYTEST_ADDOPTS": "--co", "PYTEST_PLUGINS": "a", "PYTHONPATH": "/somewhere", "PYTHONWARNINGS": "error",
    "PYTHONOPTIMIZE": "2", "PYTHONDONTWRITEBYTECODE": "1", "SPARK_HOME": "/somewhere", "MAKEFLAGS": "-k",
    "RMQSTORE_GOLDEN": "/somewhere", "RMQSTORE_SWEEPS": "whole", "RMQSTORE_CRASH_ROUNDS": "x",
    "RMQSTORE_ACCESS_KEY": "a", "RMQSTORE_SECRET_KEY": "b", "_RMQSTORE_COMPLETE": "bash_source",
}  # fmt: skip


AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.parametrize("name", SHELL)
def test_what_changes_outcomes_does_not_come_to_a_part(name: str) -> None:
    assert clean({name: SHELL[name]}) == {}


def test_what_says_where_things_are_comes_to_a_part() -> None:
    kept = {
        "PATH": "/bin", "HOME": "/home/a", "JAVA_HOME": "/java", "PYTHON": "python3.12", "PYSPARK_PYTHON": "/a",
        "TMPDIR": "/tmp", "RMQSTORE_BENCH_DIR": "/a", "RMQSTORE_MUST_MOUNT": "1",
    }  # fmt: skip
    assert clean(kept | SHELL) == kept


def test_of_the_paths_of_python_this_project_stays() -> None:
    assert clean({"PYTHONPATH": f"/somewhere:{PROJECT}"}) == {"PYTHONPATH": str(PROJECT)}


def test_what_tests_write_is_in_memory_while_a_part_runs(tmp_path: Path) -> None:
    with memory_for_files({"A": "a"}, tmp_path, 1) as environment:
        directory = Path(environment["TMPDIR"])
        assert environment == {"A": "a", "TMPDIR": str(directory)}
        assert directory.parent == tmp_path
        assert directory.stat().st_mode & 0o777 == 0o755
        (directory / "store").mkdir()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("given", "memory", "room_min"),
    [({"TMPDIR": "/var/tmp"}, ".", 1), ({}, "gone", 1), ({}, ".", 1 << 60)],
    ids=["the user's own", "no memory", "little room"],
)
def test_they_write_to_the_disk_where_memory_is_not_for_files(
    given: dict[str, str], memory: str, room_min: int, tmp_path: Path
) -> None:
    with memory_for_files(given, tmp_path / memory, room_min) as environment:
        assert environment == given
        assert [*tmp_path.iterdir()] == []


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python that runs this text, with the project's modules; its output is read here."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n{program}", *arguments],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


# A part whose process starts another; neither ends by itself, and the inner one does not heed SIGTERM and SIGINT.
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "print('begun', flush=True); signal.pause()"
)
PART = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STUBBORN!r}])"
LADDER = (
    "import os\nfrom tests.ladder import run\nrun.GRACE_S = 0.2\nrun.end_by_signals()\n"
    "run.status_of([sys.executable, '-c', sys.argv[1]], os.environ)\n"
)


@pytest.mark.stores
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_ladder_ends_all_that_a_part_started(number: signal.Signals) -> None:
    """Who has the output open is alive: its end is read when there is nobody left."""
    process = start(LADDER, PART)
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    process.communicate(timeout=600)
    assert process.returncode == 128 + number


@pytest.mark.stores
def test_what_a_part_leaves_running_ends_with_it() -> None:
    leaves = (
        f"import subprocess, sys; left = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], stdout=-1, stderr=1); "
        "left.stdout.readline(); sys.exit(3)"
    )
    program = (
        "import os\nfrom tests.ladder import run\nrun.GRACE_S = 0.2\n"
        "print(run.status_of([sys.executable, '-c', sys.argv[1]], os.environ))\n"
    )
    process = start(program, leaves)
    assert process.communicate(timeout=600)[0] == "3\n"


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system shares its processors between processes alone")
def test_a_part_is_as_nice_as_the_ladder() -> None:
    nice = min(os.nice(0) + 7, 19)
    looks = f"any('nice {nice}' in Path({str(AUTOGROUP)!r}).read_text() for _ in range(10**9))"
    part = f"from pathlib import Path; raise SystemExit(not {looks})"
    program = f"import os\nfrom tests.ladder import run\nos.nice(7)\nPART = {part!r}\n"
    program += "raise SystemExit(run.status_of([sys.executable, '-c', PART], os.environ))"
    with start(program) as process:
        assert process.wait() == 0


def test_the_exit_status_of_a_part_is_its_own() -> None:
    assert status_of([sys.executable, "-c", "import os; raise SystemExit(os.environ['A'])"], {"A": ""}) == 1
    assert status_of([sys.executable, "-c", "raise SystemExit(5)"], os.environ) == 5


HANGING = "import threading\ndef test_a(): threading.Event().wait()\n"
# It begins to watch with the first test: how long pytest takes to come so far does not count.
HUNG_RUN = """
import pathlib, pytest
from tests.ladder.run import Watch
from tests.ladder.times import Keeper

class Late(Watch):
    def pytest_sessionstart(self):
        pass

    def pytest_runtest_logstart(self, nodeid):
        super().pytest_runtest_logstart(nodeid)
        super().pytest_sessionstart()

keeper = Keeper(pathlib.Path("times.json"))
pytest.main(["-q", "-n", sys.argv[1], "-p", "no:cacheprovider", "tests"], plugins=[keeper, Late(keeper, 0.1)])
"""


@pytest.mark.stores
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_that_hangs_is_ended_and_the_test_is_named(tmp_path: Path, workers: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(HANGING)
    text = f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n{HUNG_RUN}"
    assert status_of([sys.executable, "-c", text, workers], os.environ, tmp_path) == HUNG
    assert {name: one.outcome for name, one in read(tmp_path / "times.json").items()} == {
        "tests/test_some.py::test_a": "hung"
    }


def report(test: str, when: str) -> pytest.TestReport:
    return pytest.TestReport(test, (test, 0, test), {}, "passed", None, when)  # type: ignore[arg-type]


def test_tests_that_have_ended_are_not_among_those_that_hung(tmp_path: Path) -> None:
    """A test whose worker died has one report, and is not running either."""
    ended: list[int] = []
    watch = Watch(Keeper(tmp_path / "times.json"), 0.0, ended.append)
    for test in ("a", "b", "c"):
        watch.pytest_runtest_logstart(test)
        watch.pytest_runtest_logreport(report(test, "setup"))
    watch.pytest_runtest_logreport(report("a", "call"))
    watch.pytest_runtest_logreport(report("a", "teardown"))
    watch.pytest_runtest_logreport(report("b", "???"))
    watch.watch()
    assert ended == [HUNG]
    assert {*read(tmp_path / "times.json")} == {"c"}


def test_a_run_that_is_over_is_not_ended(tmp_path: Path) -> None:
    watch = Watch(Keeper(tmp_path / "times.json"), 600.0, lambda status: pytest.fail("it was ended"))
    watch.pytest_unconfigure()
    watch.watch()
    assert read(tmp_path / "times.json") == {}
