"""Every row and every field of every golden store is Java's, in both ways through the data, and nothing is written."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import rmqstore
from tests.golden import departures
from tests.golden.cases import (
    FOLDERS,
    READ_CASES,
    REFUSED,
    REFUSED_CASES,
    STORE_CASES,
    base_name,
    java_rows,
    load_expected,
)
from tests.golden.rows import SCAN_MODES, differences, fingerprint, scanned

pytestmark = pytest.mark.stores

DAMAGED = [case for case in READ_CASES if (known := departures.ROWS.get(base_name(case))) and known.damaged_at]


def test_the_golden_stores_are_all_there() -> None:
    """A test over an empty directory would find nothing wrong."""
    assert len(STORE_CASES) == len(FOLDERS) - sum((folder / "meta.json").exists() for folder in FOLDERS.values())
    assert READ_CASES


@pytest.mark.parametrize("case", REFUSED_CASES)
def test_a_store_whose_messages_are_not_there_is_refused(case: str, store_of: Callable[[str], Path]) -> None:
    """RocketMQ deletes its queues and index on the first start, and is empty."""
    assert load_expected(case)["records"] == []
    with pytest.raises(rmqstore.NotAStore, match=REFUSED[base_name(case)]):
        rmqstore.open_snapshot(store_of(case))


@pytest.mark.parametrize("scan_mode", SCAN_MODES)
@pytest.mark.parametrize("case", [case for case in READ_CASES if case not in DAMAGED])
def test_rows_are_java_s(case: str, scan_mode: str, store_of: Callable[[str], Path]) -> None:
    store, expected = store_of(case), load_expected(case)
    before = fingerprint(store)
    snapshot = rmqstore.open_snapshot(store)
    refused = departures.torn_behind_the_body(case, expected, partial(_has_entry, snapshot))
    ours = scanned(snapshot, scan_mode=scan_mode, on_corrupt_record="skip" if refused else "fail")
    departure = departures.of_rows(case, expected)
    theirs = departure.rows(expected) if departure else java_rows(expected["records"])
    assert differences(ours, [row for row in theirs if row not in refused]) == []
    assert fingerprint(store) == before


def _has_entry(snapshot: rmqstore.Snapshot, row: departures.Row) -> bool:
    queue = snapshot.stores[0].queues[row["topic"], row["queueId"]]
    return queue.entry_start <= row["queueOffset"] < queue.entry_end


@pytest.mark.parametrize("scan_mode", SCAN_MODES)
@pytest.mark.parametrize("case", DAMAGED)
class TestDamageInTheMiddle:
    def test_fail_names_file_and_place(self, case: str, scan_mode: str, store_of: Callable[[str], Path]) -> None:
        expected, departure = load_expected(case), departures.ROWS[base_name(case)]
        snapshot = rmqstore.open_snapshot(store_of(case))
        with pytest.raises(rmqstore.Corrupt) as caught:
            scanned(snapshot, scan_mode=scan_mode)
        assert departure.damaged_at is not None
        assert _log_offset(caught.value) == departure.damaged_at(expected)

    def test_skip_returns_every_sound_record(self, case: str, scan_mode: str, store_of: Callable[[str], Path]) -> None:
        store, expected, departure = store_of(case), load_expected(case), departures.ROWS[base_name(case)]
        before = fingerprint(store)
        ours = scanned(rmqstore.open_snapshot(store), on_corrupt_record="skip", scan_mode=scan_mode)
        assert differences(ours, departure.rows(expected)) == []
        assert fingerprint(store) == before

    def test_null_keeps_the_damaged_row_and_says_why(
        self, case: str, scan_mode: str, store_of: Callable[[str], Path]
    ) -> None:
        expected, departure = load_expected(case), departures.ROWS[base_name(case)]
        snapshot = rmqstore.open_snapshot(store_of(case))
        ours = scanned(snapshot, on_corrupt_record="null", scan_mode=scan_mode)
        flagged = [row for row in ours if "corruptReason" in row]
        assert departure.damaged_at is not None
        # A record that was not dispatched and lies about its place in the queue has no row to keep: the store names it.
        placeless = {damage.offset for damage in snapshot.stores[0].damage if "contradicts queue" in damage.reason}
        wanted = [offset for offset in [departure.damaged_at(expected)] if offset not in placeless]
        assert [row["physicalOffset"] for row in flagged] == wanted
        assert [row["body"] for row in flagged] == [None] * len(wanted)
        assert differences([row for row in ours if row not in flagged], departure.rows(expected)) == []


def _log_offset(error: rmqstore.Corrupt) -> int:
    """The offset in the commitlog of a place that an error names by file and byte: files are named by where they
    begin."""
    return int(Path(error.path).name) + error.offset


@pytest.mark.parametrize("case", READ_CASES)
def test_beyond_java_is_what_the_table_says(case: str) -> None:
    """Only cases of the table have rows that Java lacks, and these are rows that its writer had confirmed."""
    expected = load_expected(case)
    more = departures.beyond_java(case, expected)
    lost_by_java = case_lost_rows(case, expected)
    assert bool(more) == lost_by_java
    assert not more or {row["physicalOffset"] for row in more} <= {place[0] for place in expected["before"]["acked"]}


def case_lost_rows(case: str, expected: departures.Expected) -> bool:
    """Whether Java, opening this store, lost or refused messages that are sound on the disk."""
    refused = not expected["open"]["load"]
    return refused or base_name(case) in ("basic-midflip", "killed-midflip")


@pytest.mark.parametrize("case", [case for case in READ_CASES if base_name(case) == "sysflags"])
def test_stored_bodies_come_as_they_are(case: str, store_of: Callable[[str], Path]) -> None:
    ours = scanned(rmqstore.open_snapshot(store_of(case)), decompress=False)
    rows = java_rows(load_expected(case)["records"])
    theirs = [row | {"body": row["storedBody"], "sysFlag": row["storedFlags"]} for row in rows]
    assert any(row["body"] != row["storedBody"] for row in rows)
    assert differences(ours, theirs) == []
