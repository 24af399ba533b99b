"""Bounds and entries of every queue are Java's, or those of the rows where Java's queues hide messages."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from tests.golden.cases import READ_CASES, base_name, load_expected
from tests.golden.departures import DAMAGED_QUEUES, QUEUES, SOMETIMES, has_shifted_queue, rows_in_full

pytestmark = pytest.mark.stores

Entry = tuple[int, int, int, int]  # queueOffset, physicalOffset, storeSize, tagsCode
ENTRY_COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "tagsCode")


def _departs(case: str, expected: dict[str, Any]) -> bool:
    reason = QUEUES.get(base_name(case))
    if base_name(case) == "killed-lagcq":
        return has_shifted_queue(expected)
    return reason is not None and (expected["open"]["load"] is False or reason != QUEUES["basic-strayfile"])


def _java_bounds(expected: dict[str, Any]) -> dict[str, tuple[int, int]]:
    queues = expected.get("state", {}).get("queues", {})
    return {name: (queue["min"], queue["max"]) for name, queue in queues.items()}


def _row_entries(case: str, expected: dict[str, Any]) -> dict[str, list[Entry]]:
    entries: dict[str, list[Entry]] = defaultdict(list)
    for row in rows_in_full(case, expected):
        place = row["queueOffset"], row["physicalOffset"], row["storeSize"], row["tagsCode"]
        entries[f"{row['topic']}/{row['queueId']}"].append(place)
    return entries


def _our_bounds(snapshot: rmqstore.Snapshot) -> dict[str, tuple[int, int]]:
    return {f"{q['topic']}/{q['queueId']}": (q["minOffset"], q["maxOffset"]) for q in snapshot.queues().to_pylist()}


def _our_entries(snapshot: rmqstore.Snapshot) -> dict[str, list[Entry]]:
    how = {"columns": ENTRY_COLUMNS, "scan_mode": "queue", "on_corrupt_record": "skip"}
    found = snapshot.scan(pattern=".*", include_system_topics=True, **how)
    entries: dict[str, list[Entry]] = defaultdict(list)
    for row in found.read_all().to_pylist():
        place = row["queueOffset"], row["physicalOffset"], row["storeSize"], row["tagsCode"]
        entries[f"{row['topic']}/{row['queueId']}"].append(place)
    return entries


@pytest.mark.parametrize("case", READ_CASES)
def test_bounds(case: str, store_of: Callable[[str], Path]) -> None:
    expected = load_expected(case)
    ours = _our_bounds(rmqstore.open_snapshot(store_of(case)))
    if not _departs(case, expected):
        javas = _java_bounds(expected)
        assert {name: bounds for name, bounds in ours.items() if bounds[0] < bounds[1] or name in javas} == javas
        return
    of_rows = {n: (entries[0][0], entries[-1][0] + 1) for n, entries in _row_entries(case, expected).items()}
    damaged = base_name(case) in DAMAGED_QUEUES
    for name, bounds in of_rows.items():
        # A damaged record may be the last of its queue: its offset is within the bounds, though it has no row.
        wanted = (bounds, (bounds[0], bounds[1] + 1)) if damaged else (bounds,)
        assert ours[name] in wanted, name
    assert all(low == high for name, (low, high) in ours.items() if name not in of_rows)


@pytest.mark.parametrize("case", READ_CASES)
def test_entries(case: str, store_of: Callable[[str], Path]) -> None:
    """Queue offset, physical offset, size and tags code of every entry; the address of an extension is resolved."""
    expected = load_expected(case)
    ours = _our_entries(rmqstore.open_snapshot(store_of(case)))
    if _departs(case, expected):
        theirs = _row_entries(case, expected)
        for name, entries in theirs.items():
            assert [entry for entry in ours[name] if entry in entries] == entries, name
        extra = [entry for name, entries in ours.items() for entry in entries if entry not in theirs[name]]
        assert len(extra) <= 1  # the damaged record itself: its entry is sound
        return
    queues = expected.get("queues", {})
    theirs = {name: _java_entries(queue, ours.get(name, [])) for name, queue in queues.items() if queue["entries"]}
    assert {name: entries for name, entries in ours.items() if entries} == theirs


def _java_entries(queue: dict[str, Any], ours: list[Entry]) -> list[Entry]:
    """Java's entries; a unit of a batch queue stands for several messages, an extension for its tags code."""
    entries: list[Entry] = []
    extensions = queue.get("ext", {})
    for queue_offset, physical_offset, size, tags_code, *count in queue["entries"]:
        code = extensions.get(str(queue_offset), {"tagsCode": tags_code})["tagsCode"]
        entries += [(queue_offset + step, physical_offset, size, code) for step in range(count[0] if count else 1)]
    assert len(entries) == len(ours)
    return entries


@pytest.mark.parametrize("case", [case for case in READ_CASES if base_name(case) in QUEUES.keys() - SOMETIMES])
def test_the_table_of_departures_holds_no_case_too_many(case: str) -> None:
    expected = load_expected(case)
    if _departs(case, expected):
        queues = {
            name: [tuple(entry[:4]) for entry in queue["entries"]] for name, queue in expected.get("queues", {}).items()
        }
        assert queues != _row_entries(case, expected)
