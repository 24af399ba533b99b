"""The lag in time: certain bounds of the own clock around what store times say; 0 once everything is here."""

import pickle
import random
from copy import deepcopy

import pytest

from rmqstore.replica.following.state import ReplicaState, TimeLag

HOUR = 3600.0


def lag(*heard: tuple[float, int]) -> TimeLag:
    """Each answer came a tenth of a second after its question."""
    made = TimeLag()
    for asked_s, end in heard:
        made.heard(asked_s, asked_s + 0.1, end)
    return made


def test_nothing_is_said_while_nothing_is_known() -> None:
    assert TimeLag().behind_s(100, 0, None) is None
    assert lag((0, 500)).behind_s(100, 0, None) is None


def test_the_age_of_the_newest_message_counts_until_it_has_caught_up_once() -> None:
    seen = lag((0, 500))
    assert seen.behind_s(1, 0, 2 * HOUR) == 2 * HOUR
    assert seen.behind_s(2, 400, HOUR) == HOUR
    assert seen.behind_s(3, 500, HOUR) == 0


def test_a_message_after_a_quiet_hour_is_no_lag_of_an_hour() -> None:
    seen = lag((0, 500), (HOUR, 500), (HOUR + 2, 600))
    assert seen.behind_s(HOUR + 2.5, 500, HOUR) == 2.5
    assert seen.behind_s(HOUR + 2.5, 600, 0.5) == 0


@pytest.mark.parametrize("skew_s", [-10 * HOUR, 10 * HOUR])
def test_clocks_that_differ_are_held_within_what_was_heard(skew_s: float) -> None:
    seen = lag((0, 500))
    assert seen.behind_s(1, 500, skew_s) == 0
    for asked_s in range(2, 60, 2):
        seen.heard(asked_s, asked_s + 0.1, 500 + asked_s)
    found = seen.behind_s(60, 510, skew_s)
    assert found is not None
    assert 60 - 12.1 <= found <= 60 - 10  # 510 was the end at 10 s, and more at 12.1 s


def test_a_master_that_is_not_heard_any_more_may_have_stored_since_then() -> None:
    seen = lag((0, 500))
    assert seen.behind_s(10, 500, HOUR) == 0
    assert seen.behind_s(100, 500, HOUR) == 100
    assert seen.behind_s(100, 500, 30) == 30
    seen.heard(101, 101.1, 500)
    assert seen.behind_s(102, 500, HOUR) == 0


def test_a_lag_of_days_takes_no_memory() -> None:
    """Of many ends that were heard some are forgotten, never the bounds' truth."""
    seen, chance = lag((0, 0)), random.Random(3)
    assert seen.behind_s(0, 0, None) == 0
    for step in range(1, 100_000):
        seen.heard(step, step, step * 10)
    assert len(pickle.dumps(seen)) < 64 * 1024
    for _ in range(20):
        own = chance.randrange(0, 900_000, 10)
        most, least = (deepcopy(seen).behind_s(100_000, own, age_s) for age_s in (None, 0.0))
        assert most is not None
        assert least is not None
        assert least <= 100_000 - own / 10 <= most + 1


def test_bytes_are_unknown_without_a_masters_end_and_never_below_none() -> None:
    assert ReplicaState().behind_bytes is None
    assert ReplicaState(log_end=10, master_end=4).behind_bytes == 0
