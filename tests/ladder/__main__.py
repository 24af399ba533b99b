"""Runs parts of the ladder of tests:  python -m tests.ladder [--keep FILE] PART … [-- OPTIONS OF PYTEST]

PART: the name of a part (see parts.py), `quick` or `deep` for all of that kind, `?` for a list.  Ends with a table, and
with 1 if a part failed; a part in which no test ran has failed.  All quick parts together, green and without options of
pytest, are held to what folders and tests may cost, too (see times.py).  `--keep FILE` keeps the table as JSON; rows of
parts that did not run now stay in it.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from tests.crash.strides import commit, residue
from tests.ladder import times
from tests.ladder.parts import DEEP, QUICK, Part
from tests.ladder.run import HUNG, PROJECT, clean, end_by_signals, memory_for_files, status_of
from tests.ladder.times import Taken

TIMES = PROJECT / "build" / "times"


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one part.  `tests` is None for a command that keeps no times: it prints its own count.

    `failed` counts files that cannot be collected and tests that hung, too; `xfailed` those that are expected to fail.
    """

    part: str
    is_green: bool
    seconds: float
    tests: int | None
    failed: int
    skipped: int
    xfailed: int
    seed: int
    residue: int
    commit: str
    ended: str


def run(arguments: Sequence[str]) -> int:
    """The exit status of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.ladder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", metavar="PART")
    parser.add_argument("--keep", type=Path)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    chosen = parser.parse_args(arguments[:end])
    if chosen.parts == ["?"]:
        print("\n".join(f"{part.name:<12} {part.what}" for part in (*QUICK, *DEEP)))
        return 0
    known = {part.name: (part,) for part in (*QUICK, *DEEP)} | {"quick": QUICK, "deep": (*QUICK, *DEEP)}
    if unknown := [name for name in chosen.parts if name not in known]:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(known)}")
    rows, options = [], arguments[end + 1 :]
    for part in (part for name in chosen.parts for part in known[name]):
        rows.append(_done(part, options))
        if chosen.keep:
            keep(chosen.keep, rows[-1])
    print(f"\n{table(rows)}", flush=True)
    status = int(not all(row.is_green for row in rows))
    if not status and not options and {part.name for part in QUICK} <= {row.part for row in rows}:
        print()
        status = times.run(_file(part) for part in QUICK)
    return status


def _file(part: Part) -> Path:
    return TIMES / f"{part.name}.json"


def command_of(part: Part, options: Sequence[str], seed: int) -> list[str]:
    """The command of a part.  Without a path among the options pytest takes all of `testpaths`."""
    if part.command:
        return [*part.command]
    pairs = itertools.pairwise(["", *options])
    is_random = not any(pair == ("-p", "no:randomly") or pair[1] == "-pno:randomly" for pair in pairs)
    return [
        sys.executable, "-m", "pytest", "-q", "-n", str(part.workers), "-m", part.marks,
        *([f"--randomly-seed={seed}"] if is_random else ()), f"--times={_file(part)}", f"--hang-s={part.hang_s}",
        "-o", f"faulthandler_timeout={part.hang_s * 2 / 3}", *part.options, *options,
    ]  # fmt: skip


def _done(part: Part, options: Sequence[str]) -> Row:
    """Runs a part; what it prints goes where this program's goes."""
    seed = residue() if part in QUICK else random.SystemRandom().randrange(2**32)
    _file(part).unlink(missing_ok=True)
    command = command_of(part, options, seed)
    print(f"\n--- {part.name}: {part.what}")
    print(" ".join(command) if part.command else f"--randomly-seed={seed} RMQSTORE_RESIDUE={residue()}", flush=True)
    began_s = monotonic()
    environment = {**clean(os.environ), "RMQSTORE_RESIDUE": str(residue()), **part.environment}
    is_on_disk = part.command or part.is_on_disk
    with nullcontext(environment) if is_on_disk else memory_for_files(environment) as whole:
        status = int(not _has_all(part.needs)) or status_of(command, whole)
    return row_of(part, status, times.read(_file(part)), round(monotonic() - began_s, 1), seed)


def row_of(part: Part, status: int, taken: Mapping[str, Taken], seconds: float, seed: int) -> Row:
    """What became of a part, by the exit status of its command and the tests that it kept; prints why, where the
    command may not have."""
    count = times.outcomes(taken)
    is_empty = not part.command and not any(count[outcome] for outcome in ("passed", "failed", "xfailed", "xpassed"))
    if status == HUNG:
        tests = ", ".join(name for name, one in taken.items() if one.outcome == "hung") or "none"
        print(f"{part.name}: no test ended for {part.hang_s:.0f} s; these were running: {tests}")
    elif is_empty:
        print(f"{part.name}: no test was executed")
    return Row(
        part=part.name, is_green=status == 0 and not is_empty, seconds=seconds, tests=len(taken) or None,
        failed=count["failed"] + count["hung"], skipped=count["skipped"], xfailed=count["xfailed"] + count["xpassed"],
        seed=seed, residue=residue(), commit=commit()[:10], ended=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _has_all(tools: Iterable[str]) -> bool:
    """Whether these tools are there; says which is not, and what to install."""
    script = str(PROJECT / "scripts" / "check_environment.sh")
    return all(subprocess.run([script, tool], stdout=subprocess.DEVNULL, check=False).returncode == 0 for tool in tools)


def keep(path: Path, row: Row) -> None:
    """Puts the row of a part into the file; rows of other parts stay in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(kept | {row.part: asdict(row)}, indent=1), encoding="utf-8")


def table(rows: Sequence[Row]) -> str:
    """The rows, and their sum, as text of 80 columns."""
    lines = [f"{'part':<12}{'':<8}{'tests':>7}{'failed':>8}{'skipped':>9}{'xfailed':>9}{'seconds':>9}  seed"]
    for row in rows:
        tests = "-" if row.tests is None else format(row.tests, ",")
        lines.append(
            f"{row.part:<12}{'green' if row.is_green else 'FAILED':<8}{tests:>7}{row.failed:>8}{row.skipped:>9}"
            f"{row.xfailed:>9}{row.seconds:>9.1f}  {row.seed}"
        )
    sums = [sum(getattr(row, name) or 0 for row in rows) for name in ("tests", "failed", "skipped", "xfailed")]
    seconds = sum(row.seconds for row in rows)
    return "\n".join([*lines, "{:<20}{:>7,}{:>8}{:>9}{:>9}{:>9.1f}".format("", *sums, seconds)])


if __name__ == "__main__":
    end_by_signals()
    sys.exit(run(sys.argv[1:]))
