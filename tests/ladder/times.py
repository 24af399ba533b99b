"""What each test of a run took, as `--times FILE` of pytest keeps it:  python -m tests.ladder.times FILE …

Prints the slowest tests and the seconds by folder; ends with 1 if a folder costs more than it may.  A folder is held to
*its tests × the run's median × its allowance*: a slower or busier machine raises both sides.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType

import pytest

SLOWEST = 25
# How many medians a test of a folder may cost on average: about twice what was measured.  Spark's, and those of whole
# programs, cost most.  Who raises a number says why in the change.
ALLOWANCES = {
    "cli": 25.0, "crash": 120.0, "docs": 250.0, "export": 40.0, "golden": 25.0, "jobs": 180.0, "lake": 60.0,
    "replication": 40.0, "spark_source": 90.0,
}  # fmt: skip
USUAL = 20.0


@dataclass(slots=True)
class Taken:
    """One test: the seconds of its set-up, call and tear-down; `outcome` is passed, failed, skipped or xfailed."""

    seconds: float = 0.0
    outcome: str = "passed"


class Keeper:
    """A plugin of pytest that writes `{test: Taken}` to a file at the end of the run; with xdist, of the whole run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: defaultdict[str, Taken] = defaultdict(Taken)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes in one of the three reports of a test."""
        one = self._taken[report.nodeid]
        one.seconds += report.duration
        if report.failed:
            one.outcome = "failed"
        elif report.skipped and one.outcome == "passed":
            one.outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"

    def pytest_sessionfinish(self) -> None:
        """Writes the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: asdict(one) for name, one in self._taken.items()}
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
    """The tests of one folder.  `allowance`: how many medians a test of it may cost on average."""

    name: str
    tests: int
    seconds: float
    cost: float
    allowance: float

    @property
    def is_over(self) -> bool:
        """Whether it costs more than it may."""
        return self.cost > self.allowance


def folders(taken: Mapping[str, Taken], allowances: Mapping[str, float] = MappingProxyType(ALLOWANCES)) -> list[Folder]:
    """All folders of a run, the dearest first; a folder that is not named in `allowances` has the usual one."""
    ran = {name: one for name, one in taken.items() if one.outcome != "skipped"}
    if not ran:
        return []
    middle = max(median(one.seconds for one in ran.values()), 1e-6)
    by_folder: defaultdict[str, list[float]] = defaultdict(list)
    for name, one in ran.items():
        by_folder[folder_of(name)].append(one.seconds)
    found = [
        Folder(name, len(each), sum(each), sum(each) / len(each) / middle, allowances.get(name, USUAL))
        for name, each in by_folder.items()
    ]
    return sorted(found, key=lambda folder: -folder.seconds)


def told(taken: Mapping[str, Taken], all_folders: Iterable[Folder]) -> str:
    """The slowest tests, and the seconds by folder, as text of 80 columns."""
    slowest = sorted(taken.items(), key=lambda each: -each[1].seconds)[:SLOWEST]
    lines = [f"the {len(slowest)} slowest of {len(taken):,} tests, in seconds:"]
    lines += [f"{one.seconds:7.1f}  {name.removeprefix('tests/')}" for name, one in slowest]
    lines += ["", f"{'folder':<16}{'tests':>8}{'seconds':>10}{'medians a test':>18}{'allowed':>10}"]
    lines += [
        f"{each.name:<16}{each.tests:>8,}{each.seconds:>10.1f}{each.cost:>18.1f}{each.allowance:>10.0f}"
        + ("  OVER" if each.is_over else "")
        for each in all_folders
    ]
    return "\n".join(lines)


def run(files: Iterable[str]) -> int:
    """The exit status of the command."""
    taken: dict[str, Taken] = {}
    for file in files:
        taken |= read(Path(file))
    found = folders(taken)
    print(told(taken, found))
    return int(not taken or any(each.is_over for each in found))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
