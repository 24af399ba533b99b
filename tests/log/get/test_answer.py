"""The table of answers, row by row: where the offset lies, the status, where the next read begins."""

import pytest

from rmqstore.core.message import GetResult, GetStatus
from rmqstore.engine.log.get.fetch import STATUSES, Answer, Wanted, Where, answer_outside, where_of
from rmqstore.engine.log.get.tag_filter import parse_tags
from rmqstore.formats.message import encode_record
from rmqstore.formats.stored_message import StoredMessage
from tests.formats.records import make_record

LOW, HIGH = 5, 9
ROWS = [
    (0, 0, 0, Where.EMPTY, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
    (7, 0, 0, Where.EMPTY, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
    (-1, 0, 0, Where.EMPTY, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
    (-1, LOW, HIGH, Where.TOO_SMALL, GetStatus.OFFSET_TOO_SMALL, LOW),
    (LOW - 1, LOW, HIGH, Where.TOO_SMALL, GetStatus.OFFSET_TOO_SMALL, LOW),
    (LOW, LOW, HIGH, Where.INSIDE, None, None),
    (HIGH - 1, LOW, HIGH, Where.INSIDE, None, None),
    (HIGH, LOW, HIGH, Where.AT_END, GetStatus.OFFSET_OVERFLOW_ONE, HIGH),
    (HIGH + 1, LOW, HIGH, Where.BEYOND, GetStatus.OFFSET_OVERFLOW_BADLY, HIGH),
    (2**62, LOW, HIGH, Where.BEYOND, GetStatus.OFFSET_OVERFLOW_BADLY, HIGH),
    # All that the queue held has expired.
    (HIGH - 1, HIGH, HIGH, Where.TOO_SMALL, GetStatus.OFFSET_TOO_SMALL, HIGH),
    (HIGH, HIGH, HIGH, Where.AT_END, GetStatus.OFFSET_OVERFLOW_ONE, HIGH),
]


@pytest.mark.parametrize(("offset", "low", "high", "where", "status", "following"), ROWS)
def test_a_row_of_the_table(
    offset: int, low: int, high: int, where: Where, status: GetStatus | None, following: int
) -> None:
    assert where_of(offset, low, high) is where
    if status is None:
        assert where not in STATUSES
    else:
        assert answer_outside(where, low, high) == GetResult(status, following, low, high, [])


def test_a_queue_that_is_not_there_has_no_bounds() -> None:
    assert answer_outside(Where.NO_QUEUE) == GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [])


def test_every_place_has_its_row() -> None:
    assert {row[3] for row in ROWS} | {Where.NO_QUEUE} == {*Where}
    assert {*STATUSES} == {*Where} - {Where.INSIDE}


def message() -> StoredMessage:
    data = encode_record(make_record())
    return StoredMessage(data, 0, len(data), 0, "broker")


def test_what_was_missed_last_is_told_until_something_is_found() -> None:
    answer = Answer(5)
    assert answer.result(0, 9) == GetResult(GetStatus.NO_MATCHED_MESSAGE, 5, 0, 9, [])
    answer.missed(GetStatus.MESSAGE_WAS_REMOVING)
    assert answer.status is GetStatus.MESSAGE_WAS_REMOVING
    answer.missed(GetStatus.NO_MATCHED_MESSAGE)
    assert answer.status is GetStatus.NO_MATCHED_MESSAGE
    found = message()
    answer.add(found)
    answer.missed(GetStatus.MESSAGE_WAS_REMOVING)
    answer.next_offset = 8
    assert answer.result(0, 9) == GetResult(GetStatus.FOUND, 8, 0, 9, [found])


@pytest.mark.parametrize(("tags", "takes"), [("*", True), ("none", False)])
def test_what_has_none_of_the_tags_is_not_taken(tags: str, takes: bool) -> None:
    assert Wanted(0, 1, 100, parse_tags(tags)).takes(message()) is takes
