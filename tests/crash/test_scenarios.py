"""A crash before any operation of what single features do; the rows are in scenarios.py."""

import pytest

from tests.crash.scenarios import SCENARIOS
from tests.crash.sweep import sweep


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, (_, marks) in SCENARIOS.items()])
def test_a_crash_before_any_operation(name: str) -> None:
    assert sweep(SCENARIOS[name][0]())
