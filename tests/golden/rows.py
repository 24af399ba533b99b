"""Rows of a scan as plain Python values that compare with Java's, and the state of a directory before and after."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqstore import Snapshot
from tests.golden.cases import Row, row_order

SCAN_MODES = ("queue", "commitlog")
EVERYTHING = {"pattern": ".*", "include_system_topics": True, "columns": "*"}
# Columns that no record of Java's has: where the row was read, and what was wrong with it.
OUR_OWN = ("brokerName", "corruptReason")


def scanned(snapshot: Snapshot, **how: Any) -> list[Row]:
    """Every message of every topic, system topics too, all columns, ordered by queue and queue offset."""
    return plain_rows(snapshot.scan(**(EVERYTHING | how)).read_all())


def plain_rows(table: pa.Table) -> list[Row]:
    """The rows of a scan of all columns: times in milliseconds, properties as a dict, corruptReason only where
    there is one."""
    for name in ("bornTimestamp", "storeTimestamp"):
        at = table.schema.get_field_index(name)
        milliseconds = [None if us is None else us / 1000 for us in table.column(name).cast(pa.int64()).to_pylist()]
        table = table.set_column(at, name, pa.array(milliseconds, pa.float64()))
    rows = table.to_pylist()
    for row in rows:
        row["properties"] = None if row["properties"] is None else dict(row["properties"])
        del row["brokerName"]
        if row["corruptReason"] is None:
            del row["corruptReason"]
    return sorted(rows, key=row_order)


def differences(ours: list[Row], javas: list[Row], limit: int = 5) -> list[str]:
    """Where two lists of rows differ, a line each: rows on one side only, then fields.  Empty: equal to the last
    field."""
    mine, theirs = {row_order(row): row for row in ours}, {row_order(row): row for row in javas}
    lines = [f"only ours: {place}" for place in mine.keys() - theirs.keys()]
    lines += [f"only Java's: {place}" for place in theirs.keys() - mine.keys()]
    if len(mine) != len(ours):
        lines.append(f"{len(ours) - len(mine)} rows of ours are doubled")
    for place in sorted(mine.keys() & theirs.keys()):
        for name in sorted(theirs[place].keys() - {"storedBody", "storedFlags"} | mine[place].keys()):
            left, right = mine[place].get(name, "no such field"), theirs[place].get(name, "no such field")
            if left != right:
                lines.append(f"{place} {name}: {str(left)[:150]!r} against Java's {str(right)[:150]!r}")
    return lines[:limit] + ([f"… and {len(lines) - limit} more"] if len(lines) > limit else [])


def fingerprint(directory: Path) -> dict[str, tuple[Any, ...]]:
    """All that a reader could change: names, sizes, modes, modification and change times, contents.

    Blocks are not counted: where files are in memory, a look at a hole through a mapping makes one.  Who fills a hole,
    or makes one, changes the times.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted([directory, *directory.rglob("*")]):
        state = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        times = (state.st_mtime_ns, state.st_ctime_ns)
        found[str(path)] = (state.st_size, state.st_mode, *times, content)
    return found


def make_read_only(directory: Path) -> None:
    """Takes the write permission from a directory and all below it (root is not held back by it: compare as well)."""
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)


def make_writable(directory: Path) -> None:
    """Gives the permissions back, so that the directory can be removed."""
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
