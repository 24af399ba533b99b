"""Runs parts of the ladder of tests:  python -m tests.ladder [--keep FILE] PART … [-- OPTIONS OF PYTEST]

PART: the name of a part (see parts.py), `quick` or `deep` for all of that kind, `?` for a list.  Ends with a table, and
with 1 if a part failed.  `--keep FILE` keeps the table as JSON; rows of parts that did not run now stay in it.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from tests.crash.strides import residue
from tests.ladder import times
from tests.ladder.parts import DEEP, QUICK, Part

PROJECT = Path(__file__).parents[2]
TIMES = PROJECT / "build" / "times"


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one part.  `tests` is None for a command that keeps no times: it prints its own count."""

    part: str
    is_green: bool
    seconds: float
    tests: int | None
    failed: int
    skipped: int
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
    rows = []
    for part in (part for name in chosen.parts for part in known[name]):
        rows.append(_done(part, arguments[end + 1 :]))
        if chosen.keep:
            keep(chosen.keep, rows[-1])
    print(f"\n{table(rows)}")
    return int(not all(row.is_green for row in rows))


def _done(part: Part, options: Sequence[str]) -> Row:
    """Runs a part; what it prints goes where this program's goes."""
    seed = residue() if part in QUICK else random.SystemRandom().randrange(2**32)
    file = TIMES / f"{part.name}.json"
    file.unlink(missing_ok=True)
    command = part.command or (
        sys.executable, "-m", "pytest", "-q", "-n", str(part.workers), "-m", part.marks, f"--randomly-seed={seed}",
        f"--times={file}", *part.options, *part.paths, *options,
    )  # fmt: skip
    print(f"\n--- {part.name}: {part.what}")
    print(" ".join(command) if part.command else f"--randomly-seed={seed} RMQSTORE_RESIDUE={residue()}", flush=True)
    began_s = monotonic()
    status = int(not _has_all(part.needs)) or _status(command, part.environment)
    taken = times.read(file)
    count = times.outcomes(taken)
    return Row(
        part=part.name, is_green=status == 0, seconds=round(monotonic() - began_s, 1), tests=len(taken) or None,
        failed=count["failed"], skipped=count["skipped"], seed=seed, residue=residue(), commit=_commit(),
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _has_all(tools: Iterable[str]) -> bool:
    """Whether these tools are there; says which is not, and what to install."""
    script = str(PROJECT / "scripts" / "check_environment.sh")
    return all(subprocess.run([script, tool], stdout=subprocess.DEVNULL, check=False).returncode == 0 for tool in tools)


def _status(command: Sequence[str], more: Mapping[str, str]) -> int:
    environment = {**os.environ, "RMQSTORE_RESIDUE": str(residue()), **more}
    # Else each of the hundreds of processes that the tests start would compile the package again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(command, cwd=PROJECT, env=environment, check=False).returncode


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False).stdout.strip()


def keep(path: Path, row: Row) -> None:
    """Puts the row of a part into the file; rows of other parts stay in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(kept | {row.part: asdict(row)}, indent=1), encoding="utf-8")


def table(rows: Sequence[Row]) -> str:
    """The rows, and their sum, as text of 80 columns."""
    lines = [f"{'part':<12}{'':<8}{'tests':>7}{'failed':>8}{'skipped':>9}{'seconds':>9}  seed"]
    lines += [
        f"{row.part:<12}{'green' if row.is_green else 'FAILED':<8}"
        f"{'-' if row.tests is None else format(row.tests, ','):>7}{row.failed:>8}{row.skipped:>9}{row.seconds:>9.1f}"
        f"  {row.seed}"
        for row in rows
    ]
    tests, failed, skipped = (sum(getattr(row, name) or 0 for row in rows) for name in ("tests", "failed", "skipped"))
    return "\n".join([*lines, f"{'':<20}{tests:>7,}{failed:>8}{skipped:>9}{sum(row.seconds for row in rows):>9.1f}"])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
