"""What an export wrote, read back by others: Arrow's own reader of Parquet, JSON's of lines."""

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqstore import open_snapshot

PLACE = ("topic", "queueId", "queueOffset")
Row = tuple[str, int, int, bytes]


def files_of(directory: Path) -> list[Path]:
    """The files that are part of the export: all but what begins with a dot."""
    return sorted(
        path for path in directory.rglob("*")
        if path.is_file() and not any(name.startswith(".") for name in path.relative_to(directory).parts)
    )  # fmt: skip


def table_of(directory: Path) -> pa.Table:
    """All rows of an export to Parquet that has no partitions."""
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in files_of(directory)])


def rows_of(place: Path, form: str) -> list[Row]:
    """Topic, queue, offset and body of each row of an export with the columns for it; of a store those of its own."""
    if form == "store":
        table = open_snapshot(place).scan(columns=[*PLACE, "body"]).read_all()
    elif form == "parquet":
        table = table_of(place)
    else:
        lines = [line for path in files_of(place) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(row["topic"], row["queueId"], row["queueOffset"], body_of(row)) for row in map(json.loads, lines)]
    return list(zip(*(table[name].to_pylist() for name in (*PLACE, "body")), strict=True))


def body_of(row: dict[str, Any]) -> bytes:
    """The body of a line."""
    return row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"])


def require_each_once(place: Path, form: str, store: Path, **how: Any) -> int:
    """Whether an export has what the store has, each message once; in another store, by queue and in order."""
    theirs = open_snapshot(store).scan(columns=[*PLACE, "body"], **how).read_all()
    wanted = list(zip(*(theirs[name].to_pylist() for name in (*PLACE, "body")), strict=True))
    found = rows_of(place, form)
    if form == "store":
        by_queue = [
            [(row[0], row[1], row[3]) for row in sorted(rows, key=lambda row: row[:3])] for rows in (found, wanted)
        ]
        assert by_queue[0] == by_queue[1]
    else:
        assert Counter(found) == Counter(wanted)
    return len(found)
