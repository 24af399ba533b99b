"""What each test of a run took, as `--times FILE` of pytest keeps it:  python -m tests.ladder.times FILE …

Prints the slowest tests and the seconds by folder; ends with 1 if a folder or a test costs more than it may.  Both are
held to a share of the whole run: a slower or busier machine raises the whole as well, and tests that cost nothing, be
it thousands, change no share.  A file is called as the part whose tests it holds.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

SLOWEST = 25
# How many percent of the run a folder may cost, about twice what was measured, and how many a test of it, about three
# times the slowest; Spark's and those of whole programs cost most.  Who raises a number says why in the change.  What
# waits for sockets and timers costs the same on a machine of twice the speed, and twice the share.
ALLOWANCES = {
    "crash": (30.0, 4.0), "spark_source": (30.0, 6.0), "snapshot": (26.0, 1.5), "store": (20.0, 5.0),
    "jobs": (24.0, 5.0), "log": (18.0, 1.5), "cli": (14.0, 1.5), "golden": (14.0, 3.0), "deletions": (16.0, 1.5),
    "replication": (20.0, 1.5), "broker": (6.0, 1.5), "lake": (6.0, 1.5), "dledger": (5.0, 1.5), "docs": (5.0, 6.0),
    ".": (4.0, 1.5), "export": (4.0, 1.5), "formats": (4.0, 1.5), "ladder": (3.0, 1.5),
}  # fmt: skip
USUAL = (2.0, 1.5)
# A test without a marker takes milliseconds; this is three times the slowest.
UNIT_TEST = 1.0


@dataclass(slots=True)
class Taken:
    """One test, or one file that could not be collected.

    `seconds`: of its set-up, call and tear-down.  `outcome`: passed, failed, skipped, xfailed, xpassed, `begun` where
    it was set up and not called, `hung` where the run was ended in the middle of it.
    """

    seconds: float = 0.0
    outcome: str = "passed"


class Keeper:
    """A plugin of pytest that writes `{test: Taken}` to a file at the end of the run; with xdist, of the whole run.

    A file that cannot be collected, or that is skipped as a whole, has a row as a test has.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: defaultdict[str, Taken] = defaultdict(lambda: Taken(outcome="begun"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes in one of the three reports of a test."""
        one = self._taken[report.nodeid]
        one.seconds += report.duration
        if report.failed:
            one.outcome = "failed"
        elif one.outcome != "failed" and report.skipped:
            one.outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        elif one.outcome != "failed" and report.when == "call":
            one.outcome = "xpassed" if hasattr(report, "wasxfail") else "passed"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Takes in what became of a file."""
        if not report.passed:
            self._taken[report.nodeid].outcome = report.outcome

    def hung(self, tests: Iterable[str]) -> None:
        """Writes the file for a run that is ended in the middle of these tests."""
        for test in tests:
            self._taken[test].outcome = "hung"
        self.pytest_sessionfinish()

    def pytest_sessionfinish(self) -> None:
        """Writes the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: asdict(one) for name, one in list(self._taken.items())}
        self._path.write_text(json.dumps(kept), encoding="utf-8")


def read(path: Path) -> dict[str, Taken]:
    """What a Keeper wrote; nothing where there is no file."""
    if not path.exists():
        return {}
    return {name: Taken(**one) for name, one in json.loads(path.read_text(encoding="utf-8")).items()}


def outcomes(taken: Mapping[str, Taken]) -> Counter[str]:
    """How many tests passed, failed, and so on."""
    return Counter(one.outcome for one in taken.values())


def folder_of(test: str) -> str:
    """The folder below tests/ that a test stands in: `crash`; `.` for tests/ itself."""
    parts = test.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else "."


@dataclass(frozen=True, slots=True)
class Folder:
    """The tests of one folder.  `cost` and `allowance`: percent of the whole run, and what it may have of the whole."""

    name: str
    tests: int
    seconds: float
    cost: float
    allowance: float

    @property
    def is_over(self) -> bool:
        """Whether it costs more than it may."""
        return self.cost > self.allowance


Allowances = Mapping[str, tuple[float, float]]
Run = Mapping[str, Mapping[str, Taken]]  # by part


def folders(run: Run, allowances: Allowances = MappingProxyType(ALLOWANCES)) -> list[Folder]:
    """All folders of a run, the dearest first; a folder that is not named in `allowances` has the usual one."""
    by_folder: defaultdict[str, list[float]] = defaultdict(list)
    for name, one in _every(run):
        by_folder[folder_of(name)].append(one.seconds)
    whole = _whole(run)
    found = [
        Folder(name, len(each), sum(each), 100 * sum(each) / whole, allowances.get(name, USUAL)[0])
        for name, each in by_folder.items()
    ]
    return sorted(found, key=lambda folder: -folder.seconds)


def dear_tests(run: Run, allowances: Allowances = MappingProxyType(ALLOWANCES)) -> dict[str, str]:
    """The tests that cost more than one test may, each with a line about what it costs."""
    whole, found = _whole(run), {}
    for part, taken in run.items():
        for name, one in _every({part: taken}):
            may = UNIT_TEST if part == "unit" else allowances.get(folder_of(name), USUAL)[1]
            if (cost := 100 * one.seconds / whole) > may:
                found[name] = f"{cost:.1f} % of the run, and may cost {may:.1f} % in the part {part}"
    return found


def _every(run: Run) -> Iterator[tuple[str, Taken]]:
    return ((name, one) for taken in run.values() for name, one in taken.items() if one.outcome != "skipped")


def _whole(run: Run) -> float:
    """The seconds of all tests; never 0."""
    return max(sum(one.seconds for _, one in _every(run)), 1e-6)


def told(run: Run, all_folders: Iterable[Folder], dear: Mapping[str, str]) -> str:
    """The slowest tests, and what folders cost, as text of 80 columns; then the tests that cost too much."""
    taken = dict(_every(run))
    slowest = sorted(taken.items(), key=lambda each: -each[1].seconds)[:SLOWEST]
    lines = [f"the {len(slowest)} slowest of {len(taken):,} tests, in seconds:"]
    lines += [f"{one.seconds:7.1f}  {name.removeprefix('tests/')}" for name, one in slowest]
    lines += ["", f"{'folder':<16}{'tests':>8}{'seconds':>10}{'% of the run':>16}{'allowed':>10}"]
    lines += [
        f"{each.name:<16}{each.tests:>8,}{each.seconds:>10.1f}{each.cost:>16.1f}{each.allowance:>10.0f}"
        + ("  OVER" if each.is_over else "")
        for each in all_folders
    ]
    return "\n".join([*lines, *(f"OVER: {name}: it costs {cost}" for name, cost in dear.items())])


def run(files: Iterable[Path]) -> int:
    """The exit status of the command."""
    parts = {file.stem: read(file) for file in files}
    found, dear = folders(parts), dear_tests(parts)
    print(told(parts, found, dear))
    return int(not found or bool(dear) or any(each.is_over for each in found))


if __name__ == "__main__":
    sys.exit(run(map(Path, sys.argv[1:])))
