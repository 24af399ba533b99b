"""Questions by key and by time get Java's answers, or those of the rows where Java's index or queues hide messages."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from tests.golden.cases import INNER_BATCH, READ_CASES, ROLLBACK, TRANSACTION_MASK, Row, base_name, load_expected
from tests.golden.departures import KEYS, TIMES, has_shifted_queue, rows_in_full

pytestmark = pytest.mark.stores

TIME_CASES = [case for case in READ_CASES if base_name(case) not in TIMES]
# The index knows times in whole seconds after its file's first message, rounded down.
INDEX_PRECISION_MS = 999


def _asked(question: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `index_offsets` and `query` for one of Java's key questions."""
    times = {"begin_ms": question["begin"], "end_ms": question["end"]}
    return {"topic": question["topic"], "key": question["key"], "count_max": question["max"]} | times


def _short(question: dict[str, Any]) -> str:
    return f"{question['topic']} {question['key'][:40]} {question['begin']}-{question['end']} max {question['max']}"


@pytest.mark.some(14)
@pytest.mark.parametrize("case", READ_CASES)
def test_key_queries(case: str, store_of: Callable[[str], Path]) -> None:
    """Java's answers in Java's order, doublets included, where its index is the one in the store; else what the log
    holds."""
    store, expected = store_of(case), load_expected(case)
    snapshot = rmqstore.open_snapshot(store)
    questions = expected.get("keyQueries") or load_expected(expected["recordsFrom"])["keyQueries"]
    if base_name(case) not in KEYS and _archived_index(store) == _java_index(expected):
        # A variant has the messages of its base case, whose questions are all asked.
        step = 4 if "recordsFrom" in expected else 1
        _assert_java_s(snapshot, questions, step)
    else:
        _assert_found_in(rows_in_full(case, expected), expected["baseRecords"], snapshot, questions[::2])


def _assert_java_s(snapshot: rmqstore.Snapshot, questions: list[dict[str, Any]], step: int) -> None:
    for number, question in enumerate(questions):
        asked = _asked(question)
        assert snapshot.index_offsets(**asked) == question["index"], _short(question)
        if number % step == 0:
            found = [message.physical_offset for message in snapshot.query(**asked)]
            assert found == question["physicalOffsets"], _short(question)


def _assert_found_in(
    sound: list[Row], records: list[Row], snapshot: rmqstore.Snapshot, questions: list[dict[str, Any]]
) -> None:
    """Every sound row with the key is found, and no record without it; damaged and prepared ones may be."""
    # The messages inside of a batch have keys for themselves: in the index are those of their record.
    batches = {each["physicalOffset"]: each for each in records if each["sysFlag"] & INNER_BATCH == INNER_BATCH}
    sound = [batches[row["physicalOffset"]] if _is_of_batch(row, batches) else row for row in sound]
    for question in questions:
        asked = _asked(question)
        found = [message.physical_offset for message in snapshot.query(**asked)]
        is_full = len(snapshot.index_offsets(**asked)) == min(question["max"], 64)  # unreadable ones count
        surely, _ = _keyed(sound, question)
        _, perhaps = _keyed(records, question)
        assert found == sorted(found), _short(question)
        assert set(found) <= perhaps, f"{_short(question)}: {sorted(set(found) - perhaps)} found"
        assert surely <= set(found) or is_full, f"{_short(question)}: {sorted(surely - set(found))} not found"


def _is_of_batch(row: Row, batches: dict[int, Row]) -> bool:
    record = batches.get(row["physicalOffset"])
    return record is not None and row["topic"] == record["topic"] and row["sysFlag"] & INNER_BATCH == 0


def _archived_index(store: Path) -> dict[str, tuple[int, ...]]:
    """Index files of the store by name: begin and end time, begin and end offset, used slots, items."""
    files = sorted((store / "index").glob("*"))
    return {file.name: struct.unpack_from(">qqqqii", file.read_bytes()) for file in files}


def _java_index(expected: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The same of the index that Java had when it answered."""
    fields = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount")
    files = expected.get("state", {}).get("indexFiles", ())
    return {file["name"]: tuple(file[field] for field in fields) for file in files}


def _keyed(rows: list[Row], question: dict[str, Any]) -> tuple[set[int], set[int]]:
    """Physical offsets of rows with the key: those whose time is inside by any reading, and those inside by some."""
    begin, end = question["begin"], question["end"]
    hits = [
        (row["storeTimestamp"], row["physicalOffset"])
        for row in rows
        if row["topic"] == question["topic"]
        and row["sysFlag"] & TRANSACTION_MASK != ROLLBACK
        and (question["key"] in (row["keys"] or "").split(" ") or row["properties"].get("UNIQ_KEY") == question["key"])
    ]
    surely = {offset for time_ms, offset in hits if begin + (begin and INDEX_PRECISION_MS) <= time_ms <= end}
    perhaps = {offset for time_ms, offset in hits if begin <= time_ms <= end + INDEX_PRECISION_MS and begin <= end}
    return surely, perhaps


@pytest.mark.some(5)
@pytest.mark.parametrize("case", TIME_CASES)
def test_time_look_ups_are_java_s(case: str, store_of: Callable[[str], Path]) -> None:
    """5.x: lower and upper; 4.9: nearest, where the answer does not depend on the moment of Java's opening."""
    snapshot = rmqstore.open_snapshot(store_of(case))
    if base_name(case) == "killed-lagcq" and has_shifted_queue(load_expected(case)):
        return  # Java counts in its shifted queue
    for question in load_expected(case).get("timeQueries", ()):
        for boundary, answer in _answers(question).items():
            found = snapshot.offset_at(question["topic"], question["queueId"], question["timestamp"], boundary)
            assert found == answer, (question, boundary)


def _answers(question: dict[str, Any]) -> dict[str, int]:
    """Java's answers by boundary; where it threw an exception there is none."""
    found = {name: question[name] for name in ("lower", "upper") if name in question}
    found = found or {"nearest": question["offset"]}
    return {name: answer for name, answer in found.items() if isinstance(answer, int)}


@pytest.mark.some(4)
@pytest.mark.parametrize("case", [case for case in READ_CASES if base_name(case) in TIMES])
def test_time_look_ups_follow_the_rows(case: str, store_of: Callable[[str], Path]) -> None:
    """The first message stored at or after the time, and the last one stored at or before it."""
    snapshot, expected = rmqstore.open_snapshot(store_of(case)), load_expected(case)
    questions = expected.get("timeQueries") or load_expected(expected["recordsFrom"])["timeQueries"]
    bounds = {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in snapshot.queues().to_pylist()}
    rows = rows_in_full(case, expected)
    for question in questions:
        place, time_ms = (question["topic"], question["queueId"]), question["timestamp"]
        times = {row["queueOffset"]: row["storeTimestamp"] for row in rows if (row["topic"], row["queueId"]) == place}
        lower, upper = (snapshot.offset_at(*place, time_ms, boundary) for boundary in ("lower", "upper"))
        low, high = bounds[place]
        assert low <= min(lower, upper) <= max(lower, upper) <= high, question
        # A damaged record has no row, and nobody knows its time: compare with the sound ones on either side.
        assert all(time < time_ms for offset, time in times.items() if offset < lower), question
        assert all(time >= time_ms for offset, time in times.items() if offset >= lower), question
        assert all(time > time_ms for offset, time in times.items() if offset > upper), question
        assert all(time <= time_ms for offset, time in times.items() if low < offset <= upper), question
        assert low <= snapshot.offset_at(*place, time_ms, "nearest") <= high, question
