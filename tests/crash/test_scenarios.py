"""A crash before any operation of what single features do; the rows are in scenarios.py."""

from collections import Counter

import pytest

from tests.crash.scenarios import SCENARIOS, Promises
from tests.crash.workload import Moments


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, (_, marks) in SCENARIOS.items()])
def test_a_crash_before_any_operation(name: str) -> None:
    scenario, promises = SCENARIOS[name][0](), Promises()
    moments = Moments(scenario.begin(), scenario.choices, lambda: promises, scenario.quick)  # type: ignore[arg-type,return-value]
    scenario.run(moments, promises)
    assert moments.count > scenario.moments_min
    found: Counter[object] = Counter()
    for operation, choice, disk, kept in moments.taken:
        try:
            found[scenario.check(disk, kept)] += 1  # type: ignore[arg-type]
        except Exception as error:
            error.add_note(f"crash before {operation}, {choice}")
            raise
    assert all(found[outcome] >= count for outcome, count in scenario.outcomes.items()), found
