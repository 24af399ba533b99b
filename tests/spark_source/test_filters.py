"""Filters of Spark to conditions: what is taken, what goes back, without a Spark session."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rmqstore.snapshot.plan.range_pruning import Interval, RowConditions
from rmqstore.snapshot.request import QueueRange
from spark_source.pushdown_reader import PushedFilters, push

MOMENT = datetime(2026, 5, 1, 8, 0, 0, 1500, tzinfo=UTC)
MOMENT_MS = 1_777_622_400_001


@pytest.mark.parametrize(
    ("one", "conditions"),
    [
        (EqualTo(("topic",), "a"), RowConditions(names={"topic": frozenset("a")})),
        (EqualNullSafe(("brokerName",), "a"), RowConditions(names={"brokerName": frozenset("a")})),
        (In(("topic",), ["a", "b", None]), RowConditions(names={"topic": frozenset("ab")})),
        (StringStartsWith(("topic",), "a"), RowConditions(prefixes=(("topic", "a"),))),
        (EqualTo(("queueId",), 3), RowConditions(queue_id=Interval(3, 3), queue_ids=frozenset([3]))),
        (In(("queueId",), [7, 1]), RowConditions(queue_id=Interval(1, 7), queue_ids=frozenset([1, 7]))),
        (In(("queueId",), []), RowConditions(queue_id=Interval(0, -1), queue_ids=frozenset())),
        (GreaterThan(("queueOffset",), 5), RowConditions(queue_offset=Interval(low=6))),
        (GreaterThanOrEqual(("queueOffset",), 5), RowConditions(queue_offset=Interval(low=5))),
        (LessThan(("queueOffset",), 5), RowConditions(queue_offset=Interval(high=4))),
        (LessThanOrEqual(("queueOffset",), 5), RowConditions(queue_offset=Interval(high=5))),
        (EqualTo(("queueOffset",), 5), RowConditions(queue_offset=Interval(5, 5))),
        (IsNotNull(("topic",)), RowConditions()),
        (IsNotNull(("queueOffset",)), RowConditions()),
    ],
)
def test_what_ranges_answer_is_taken(one, conditions):
    assert push([one]) == (PushedFilters(conditions), [])


@pytest.mark.parametrize(
    ("one", "pushed"),
    [
        (In(("queueOffset",), [9, 5]), PushedFilters(RowConditions(queue_offset=Interval(5, 9)))),
        (LessThan(("physicalOffset",), 100), PushedFilters(RowConditions(physical_offset=Interval(high=99)))),
        (EqualTo(("tags",), "A"), PushedFilters(tags=frozenset("A"))),
        (In(("tags",), ["A", "B", None]), PushedFilters(tags=frozenset("AB"))),
        (EqualTo(("keys",), "k1 longest k2"), PushedFilters(keys=frozenset(["longest"]))),
        (
            GreaterThan(("storeTimestamp",), MOMENT),
            PushedFilters(RowConditions(store_time_ms=Interval(low=MOMENT_MS))),
        ),
        (
            LessThan(("storeTimestamp",), MOMENT.astimezone(timezone(timedelta(hours=8)))),
            PushedFilters(RowConditions(store_time_ms=Interval(high=MOMENT_MS + 1))),
        ),
        (
            EqualTo(("storeTimestamp",), MOMENT_MS),
            PushedFilters(RowConditions(store_time_ms=Interval(MOMENT_MS, MOMENT_MS))),
        ),
    ],
)
def test_what_only_helps_goes_back_as_well(one, pushed):
    found, left = push([one])
    assert found == pushed
    assert left == [one]
    assert left[0] is one


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("topic",), "a")),
        IsNull(("topic",)),
        IsNotNull(("tags",)),
        EqualNullSafe(("topic",), None),
        EqualTo(("queueId",), True),
        GreaterThan(("topic",), "a"),
        GreaterThan(("queueOffset",), "5"),
        EqualTo(("tags",), ""),
        In(("tags",), ["A", " "]),
        EqualTo(("keys",), " "),
        StringContains(("keys",), "k"),
        StringEndsWith(("topic",), "a"),
        StringStartsWith(("tags",), "A"),
        LessThan(("storeTimestamp",), MOMENT.replace(tzinfo=None)),
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "topic"), "a"),
        EqualTo(("msgId",), "x"),
        object(),
    ],
)
def test_anything_else_changes_nothing_and_goes_back(one):
    found, left = push([one])
    assert found == PushedFilters()
    assert left[0] is one


def test_all_filters_have_to_hold():
    filters = [
        In(("topic",), ["a", "b"]),
        In(("topic",), ["b", "c"]),
        GreaterThan(("queueOffset",), 3),
        LessThan(("queueOffset",), 9),
        In(("tags",), ["A", "B"]),
        EqualTo(("tags",), "B"),
        In(("queueId",), [0, 1]),
        GreaterThan(("queueId",), 0),
    ]
    found, left = push(filters)
    assert found.conditions.names == {"topic": frozenset("b")}
    assert found.conditions.queue_offset == Interval(4, 8)
    assert found.tags == frozenset("B")
    assert [found.conditions.allows(QueueRange("x", "b", number, 0, 9)) for number in range(3)] == [False, True, False]
    assert left == filters[4:6]


def test_a_comparison_with_null_holds_for_no_row():
    found, _ = push([EqualTo(("topic",), None)])
    assert not found.conditions.allows(QueueRange("x", "b", 0, 0, 9))
    assert push([EqualTo(("tags",), None)])[0].tags == frozenset()
    assert push([In(("queueOffset",), [None])])[0].conditions.queue_offset == Interval(0, -1)
