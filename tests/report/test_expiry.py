"""When commitlog files go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.engine.log.retention.plan import DiskUse, LogFile, RetentionPolicy, RetentionView, plan_retention
from rmqstore.report.expiry import DAY_MS, LogFileFacts, LogGrowth, growth_of, levels_of, outlook_of

HOUR, SIZE, NOW = 3_600_000, 1000, 1_700_000_000_000
POLICY = RetentionPolicy()


def facts(number: int, modified_ms: int, used: int = SIZE, **times: int) -> LogFileFacts:
    return LogFileFacts(
        f"/s/commitlog/{number}", number * SIZE, SIZE, used, modified_ms, times.get("first"), times.get("last")
    )


@given(
    st.lists(st.integers(-200, 0), min_size=2, max_size=8),
    st.integers(0, SIZE),
    st.sampled_from(["04", "04;16", "0;12"]),
    st.integers(1, 100),
)
def test_a_round_at_that_time_deletes_the_file_and_none_before_does(
    ages: list[int], used: int, hours: str, reserved: int
) -> None:
    """By the plan that a broker of ours, and `rmqstore clean`, makes."""
    policy = RetentionPolicy(delete_when=hours, reserved_ms=reserved * HOUR)
    files = [facts(number, NOW + age * HOUR) for number, age in enumerate(ages)]
    log_end = (len(files) - 1) * SIZE + used
    found = outlook_of(files, log_end, None, policy, NOW)
    logs = tuple(LogFile(file.path, file.start, file.size, file.modified_ms) for file in files)
    view = RetentionView("/s", logs, log_end, DiskUse((("/s", 0.1),), 0.1), lambda _: (), lambda _: ())
    for number, each in enumerate(found[:-1]):
        assert each.goes_ms is not None
        assert len(plan_retention(view, policy, each.goes_ms).log_files) > number
        for moment in range(NOW, each.goes_ms, HOUR // 2):
            assert len(plan_retention(view, policy, moment).log_files) <= number
    assert found[-1].goes_ms is None  # the newest stays


def test_files_that_are_not_full_fill_at_the_pace_of_the_log() -> None:
    growth = LogGrowth(SIZE, DAY_MS)  # a file a day
    files = [facts(0, NOW - HOUR), facts(1, NOW, 500), facts(2, NOW, 0)]
    found = outlook_of(files, SIZE + 500, growth, POLICY, NOW)
    assert [each.state for each in found] == ["complete", "being written", "made ahead"]
    assert [each.ripe_ms for each in found] == [
        NOW - HOUR + 72 * HOUR, NOW + 12 * HOUR + 72 * HOUR, NOW + 36 * HOUR + 72 * HOUR,
    ]  # fmt: skip
    goes = [each.goes_ms for each in found]
    assert goes == sorted(goes, key=lambda moment: moment or 0)
    assert all(each.goes_ms >= each.ripe_ms for each in found if each.goes_ms and each.ripe_ms)


def test_growth_is_that_of_the_last_days_up_to_the_newest_message() -> None:
    files = [
        facts(0, 0, first=NOW - 30 * DAY_MS, last=NOW - 20 * DAY_MS),
        facts(1, 0, first=NOW - 5 * DAY_MS, last=NOW - 2 * DAY_MS),
        facts(2, 0, 500, first=NOW - 2 * DAY_MS, last=NOW),
    ]
    assert growth_of(files, 2500) == LogGrowth(300, 5 * DAY_MS)
    assert growth_of(files[:1], SIZE) == LogGrowth(100, 10 * DAY_MS)
    assert growth_of([facts(0, 0, first=NOW - HOUR + 1, last=NOW)], SIZE) is None
    assert growth_of([facts(0, 0)], SIZE) is None
    assert growth_of([], 0) is None


def test_the_level_comes_to_rest_at_what_is_kept() -> None:
    """A file a day, kept for three days and until the next round: four or five files."""
    growth = LogGrowth(SIZE, DAY_MS)
    files = [facts(number, NOW - (9 - number) * DAY_MS) for number in range(9)] + [facts(9, NOW, 0)]
    outlook = outlook_of(files, 9 * SIZE, growth, POLICY, NOW)
    levels = levels_of(outlook, 9 * SIZE, growth, POLICY, NOW)
    assert levels[0] == (NOW, 10 * SIZE)
    assert {level.bytes for level in levels[len(levels) // 2 :]} <= {4 * SIZE, 5 * SIZE, 6 * SIZE}
    assert levels[-1].at_ms <= NOW + 72 * HOUR + 4 * DAY_MS


@pytest.mark.parametrize("pace", [1e-9, 1.0, 1e18])
def test_any_pace_gives_an_outlook(pace: float) -> None:
    growth = LogGrowth(pace, DAY_MS)
    files = [facts(0, NOW), facts(1, NOW, 1)]
    outlook = outlook_of(files, SIZE + 1, growth, POLICY, NOW)
    assert len(levels_of(outlook, SIZE + 1, growth, POLICY, NOW)) <= 242


def test_without_an_hour_for_deleting_nothing_goes() -> None:
    found = outlook_of([facts(0, 0), facts(1, 0)], SIZE, None, RetentionPolicy(delete_when=""), NOW)
    assert [each.goes_ms for each in found] == [None, None]
