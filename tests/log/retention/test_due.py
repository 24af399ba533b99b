"""The next nightly round."""

import time
from collections.abc import Iterator

import pytest

from rmqstore.clock import local_time
from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.report.expiry import next_round_ms

HOUR = 3_600_000
NOON = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/New_York"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize("hours", ["04", "04;16", "0", "23"])
def test_it_is_the_first_moment_of_an_hour_for_deleting(hours: str) -> None:
    policy = RetentionPolicy(delete_when=hours)
    for start in range(NOON, NOON + 30 * HOUR, HOUR // 2):
        found = next_round_ms(policy, start)
        assert found is not None
        assert start <= found <= start + 24 * HOUR
        assert policy.is_hour(found)
        assert found == start or (local_time(found).minute, local_time(found).second, found % 1000) == (0, 0, 0)
        assert not any(policy.is_hour(moment) for moment in range(start, found, HOUR // 4))


def test_within_the_hour_it_is_at_once() -> None:
    policy = RetentionPolicy(delete_when=str(local_time(NOON).hour))
    assert next_round_ms(policy, NOON) == NOON


def test_no_hour_is_never() -> None:
    assert next_round_ms(RetentionPolicy(delete_when=""), NOON) is None
