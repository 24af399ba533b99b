"""For all tests: on CI hypothesis draws the same examples on each run; by hand it draws new ones.  Long files first."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# What helpers of the tests assert is shown with its values, as in the tests themselves.
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in Path(__file__).parent.iterdir() if path.is_dir()))

# How long an example takes says more of the machine, and of what else runs there, than of the code.
settings.register_profile("patient", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("patient")
if os.environ.get("CI"):
    settings.load_profile("repeatable")

# Files that take a minute or two: begun last, they would keep one core waiting for the other.
_LONG_FILES = (
    "soak/test_streaming_equality.py",
    "spark_source/test_cluster.py",
    "spark_source/test_sink.py",
    "jobs/test_demo.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the long files in front of all others, which stay as they are."""
    rank = {name: number for number, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: rank.get(f"{item.path.parent.name}/{item.path.name}", len(rank)))
