"""Rows sorted out by the directories that they go to: topic=NAME/day=YYYY-MM-DD, written as Spark writes them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqstore.errors import Rejected
from rmqstore.formats.message_columns import Ints

_DAY_US = 86_400_000_000
_NO_DAY = np.iinfo(np.int64).min
# Spark: ExternalCatalogUtils.escapePathName, and the name of a partition without a value.
_ESCAPED = re.compile("[\x01-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_NAME_SIZE_MAX = 255  # bytes, of a directory in common file systems


class Part(NamedTuple):
    """Rows that go to one directory, whose path from the export's is "" or ends without a slash."""

    directory: str
    rows: pa.RecordBatch


def parts_of(batch: pa.RecordBatch, by: Sequence[str], day_of: str) -> Iterator[Part]:
    """The rows of a batch by directory, in their order; the batch itself where all go to one."""
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode() if "topic" in by else None
    days = _days(batch.column(day_of)) if "day" in by else np.zeros(batch.num_rows, np.int64)
    numbers = np.zeros(batch.num_rows, np.int64)
    if topics is not None:
        numbers = topics.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    places, owners = _distinct(numbers, days)
    order = np.argsort(owners, kind="stable") if len(places) > 1 else None
    ends = np.cumsum(np.bincount(owners, minlength=len(places)))
    for place, (number, day) in enumerate(places):
        values = {"day": _day_text(day)}
        if topics is not None:
            values["topic"] = None if number < 0 else topics.dictionary[number].as_py()
        directory = "/".join(f"{name}={_escaped(values[name])}" for name in by)
        if order is None:
            yield Part(directory, batch)
        else:
            first = int(ends[place - 1]) if place else 0
            yield Part(directory, batch.take(pa.array(order[first : int(ends[place])])))


def require_room(topics: Iterable[str], by: Sequence[str]) -> None:
    """Raises Rejected for a topic whose name, escaped, is too long for a directory, where there is one for each."""
    for topic in topics if "topic" in by else ():
        if len(f"topic={_escaped(topic)}".encode("utf-8", "surrogatepass")) > _NAME_SIZE_MAX:
            raise Rejected(
                f"topic {topic[:60]}…: its name, escaped, is too long for a directory of its own; use "
                "partition_by=('day',) or () (--partition-by day, or none)"
            )


def _distinct(numbers: Ints, days: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """The distinct pairs, and int64[n] which of them a row has; rows mostly agree."""
    if (numbers == numbers[0]).all() and (days == days[0]).all():
        return [(int(numbers[0]), int(days[0]))], np.zeros(len(numbers), np.int64)
    pairs, owners = np.unique(np.stack((numbers, days), axis=1), axis=0, return_inverse=True)
    return [(int(number), int(day)) for number, day in pairs], owners.reshape(-1).astype(np.int64)


def _days(times: pa.Array) -> Ints:
    """int64[n]: days since 1970 in UTC; _NO_DAY where there is no time."""
    days = times.cast(pa.int64()).fill_null(0).to_numpy() // _DAY_US
    return np.where(np.asarray(times.is_valid().to_numpy(zero_copy_only=False), bool), days, _NO_DAY)


def _day_text(day: int) -> str | None:
    if day == _NO_DAY:
        return None
    text = str(np.datetime64(day, "D"))
    return text if len(text) <= len("2026-11-25") else f"+{text}"


def _escaped(value: str | None) -> str:
    if not value:
        return _NO_VALUE
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)
