"""Do the ordinary tests notice a fault?  Each of the list is planted into a copy of the project, and the test that
ought to find it is run there: python -m tests.teeth [--only REGEX] [--jobs N] [--quick].

Before, all of these tests run without a plant, and have to pass.  Found is a plant when each test named for it fails,
and by the finding that the list gives, not by an error of the plant's own.  Ends with 1 if a plant was not found.

With `--quick` tests are what `make test` has of them: sweeps take the moments of this commit, and a plant is found when
one of its tests finds it.
"""

import argparse
import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from xml.etree import ElementTree

from tests.crash.strides import residue
from tests.ladder.parts import NOT_QUICK
from tests.ladder.run import HUNG
from tests.teeth.plant import DoesNotFit, Plant
from tests.teeth.plants import ABSENT, PLANTS

PROJECT = Path(__file__).parents[2]
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "target", "dist", "build")
# A run in which no test begins or ends for so long hangs, and is ended; where Python itself stands still, later.
_HANG_S = 900.0
_STANDS_STILL = ("-o", f"faulthandler_timeout={_HANG_S * 2}", "-o", "faulthandler_exit_on_timeout=true")
_NO_TESTS = 5  # how pytest ends where all tests were deselected
# What a plant that does not fit raises by itself; no test's expectation has such a message.
_OWN_FAULTS = re.compile(
    r"^(?:NameError|AttributeError|ImportError|ModuleNotFoundError|SyntaxError|UnboundLocalError)\b"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What pytest said: the message of each test that failed by its name, what else went wrong, and seconds."""

    failures: dict[str, str]
    trouble: str
    seconds: float


class Copies:
    """Copies of the project, one for each plant that is tried at the same time."""

    def __init__(self, scratch: Path, count: int) -> None:
        self._free: list[Path] = []
        self._lock = threading.Lock()
        for number in range(count):
            copy = scratch / f"copy{number}"
            shutil.copytree(PROJECT, copy, ignore=_LEFT_OUT)
            # Known by content, not by time: a plant may keep a file's size, and come within a tick of its clock.
            for room in ("rmqstore", "spark_source", "tests"):
                compileall.compile_dir(copy / room, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
            self._free.append(copy)

    def take(self) -> Path:
        """One that nobody uses."""
        with self._lock:
            return self._free.pop()

    def give_back(self, copy: Path) -> None:
        """It is as it was."""
        with self._lock:
            self._free.append(copy)


def run_tests(copy: Path, tests: Sequence[str], *, stops: bool, quick: bool = False) -> Outcome:
    """Runs tests in a copy; with `stops` until the first that fails; with `quick` what `make test` has of them."""
    report = copy / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"--times={copy / 'times.json'}", f"--hang-s={_HANG_S}", *_STANDS_STILL]
    command += [f"--junitxml={report}", *(["-x"] if stops else []), *tests]
    command += ["-m", f"not ({NOT_QUICK})"] if quick else []
    # On CI pytest would tell more, and other text.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS")
    }
    environment |= {"PYTHONPATH": str(copy), "COLUMNS": "120", "RMQSTORE_RESIDUE": str(residue())}
    environment |= {"RMQSTORE_SWEEPS": "" if quick else "whole"}
    began_s = time.monotonic()
    status, said = _run(command, copy, environment)
    seconds = time.monotonic() - began_s
    if status == _NO_TESTS and quick:
        return Outcome({}, "is not in make test", seconds)
    if status not in (0, 1) or not report.exists():
        how = f"no test ended for {_HANG_S:.0f} s" if status == HUNG else f"pytest ended with {status}"
        return Outcome({}, f"{how}: {' / '.join(said.strip().splitlines()[-3:])}", seconds)
    cases = ElementTree.parse(report).getroot().iter("testcase")
    failures, errors = {}, []
    for case in cases:
        for failure in case.iter("failure"):
            failures[case.attrib["name"]] = failure.attrib.get("message", "")
        errors += [f"{case.attrib['name']}: {error.attrib.get('message', '')}" for error in case.iter("error")]
        errors += [f"{case.attrib['name']}: skipped" for _ in case.iter("skipped")]
    return Outcome(failures, "; ".join(errors), seconds)


def _run(command: Sequence[str], copy: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit status and what was printed; no process that it started is left."""
    with (copy / "said.txt").open("w+b") as said:
        process = subprocess.Popen(
            command,
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            status = process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        return status, said.read().decode(errors="replace")


def try_plant(plant: Plant, copies: Copies, *, quick: bool) -> tuple[str, float]:
    """Why a plant does not count as found (empty: it does), and seconds."""
    copy = copies.take()
    try:
        for name, text in plant.planted(copy).items():
            (copy / name).write_text(text, encoding="utf-8")
        return _found(plant, copy, quick=quick)
    except DoesNotFit as error:
        return str(error), 0.0
    finally:
        for name in plant.files:
            shutil.copyfile(PROJECT / name, copy / name)
        copies.give_back(copy)


def _found(plant: Plant, copy: Path, *, quick: bool) -> tuple[str, float]:
    seconds, why = 0.0, ""
    for test in plant.tests:
        outcome = run_tests(copy, [test], stops=True, quick=quick)
        seconds += outcome.seconds
        if why := _why_not(plant, outcome):
            why = f"{test.rpartition('::')[2]}: {why}"
        if bool(why) != quick:
            break  # every test has to find it; with `quick` one
    return why, seconds


def _why_not(plant: Plant, outcome: Outcome) -> str:
    if outcome.trouble:
        return outcome.trouble
    if not outcome.failures:
        return "SURVIVES"
    message = next(iter(outcome.failures.values()))
    if _OWN_FAULTS.match(message) or not re.search(plant.finding, message, re.DOTALL):
        return f"fails, but not by {plant.finding!r}: {' '.join(message.split())}"
    return ""


def passes_unplanted(plants: Sequence[Plant], copies: Copies, jobs: int) -> list[str]:
    """What is wrong with the tests without any plant: then nothing that they find says anything."""
    tests = list(dict.fromkeys(test for plant in plants for test in plant.tests))

    def run(part: list[str]) -> list[str]:
        copy = copies.take()
        try:
            outcome = run_tests(copy, part, stops=False)
        finally:
            copies.give_back(copy)
        return [f"{name}: {text}" for name, text in outcome.failures.items()] + [outcome.trouble] * bool(
            outcome.trouble
        )

    with ThreadPoolExecutor(jobs) as pool:
        parts = [tests[number::jobs] for number in range(min(jobs, len(tests)))]
        return [line for lines in pool.map(run, parts) for line in lines]


def main() -> int:
    """Runs what was asked for and prints the table."""
    parser = argparse.ArgumentParser(prog="make teeth", description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="the faults whose names fit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many at a time")
    parser.add_argument("--quick", action="store_true", help="by what `make test` has of the tests")
    asked = parser.parse_args()
    plants = [each for each in PLANTS if re.search(asked.only, each.fault)]
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rmqstore-teeth-") as scratch:
        copies = Copies(Path(scratch), asked.jobs)
        if wrong := passes_unplanted(plants, copies, asked.jobs):
            print("without any plant, already:", *wrong, sep="\n  ")
            return 1
        print(f"{len(plants)} plants; their tests pass without them ({time.monotonic() - began_s:.0f} s)")
        print("fault | test that found it | seconds")
        survivors = 0
        with ThreadPoolExecutor(asked.jobs) as pool:
            for plant, (why, seconds) in zip(
                plants, pool.map(lambda each: try_plant(each, copies, quick=asked.quick), plants), strict=True
            ):
                survivors += bool(why)
                found_by = f"NOT FOUND: {why}" if why else ", ".join(plant.tests)
                print(f"{plant.fault} | {found_by} | {seconds:.1f}", flush=True)
    for fault in ABSENT:
        print(f"{fault} | nothing to plant it into: no votes here | -")
    print(f"{len(plants) - survivors} found, {survivors} not, {time.monotonic() - began_s:.0f} s")
    return 1 if survivors or not plants else 0


if __name__ == "__main__":
    sys.exit(main())
