"""For all tests: what hypothesis draws, which tests only `make deep` has, and that long files come first.

A golden store of one release beside another's of the same making is for `make deep`.
"""

import signal
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.internal.constants_ast import Constants

# What helpers of the tests assert is shown with its values, as in the tests themselves.
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in Path(__file__).parent.iterdir() if path.is_dir()))

from tests.golden.cases import TWINS  # noqa: E402  after what it is to be rewritten for
from tests.ladder.parts import left_out  # noqa: E402
from tests.ladder.run import Watch  # noqa: E402
from tests.ladder.times import Keeper  # noqa: E402

# How long an example takes says more of the machine, and of what else runs there, than of the code.
settings.register_profile("patient", deadline=None)
settings.register_profile("many", deadline=None, max_examples=1000)
# `make test`: it fails for a change, not for an example that another run would not have drawn.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("patient")


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads are switched as often as it goes."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


class _Repeatable(HypothesisProvider):
    """Draws no constants of our own modules where examples repeat: they come from the modules that tests before have
    loaded."""

    @cached_property
    def _local_constants(self) -> Constants:
        return Constants() if settings().derandomize else super()._local_constants


AVAILABLE_PROVIDERS["hypothesis"] = _Repeatable

# These have commands of their own: `make conformance`, `make test-tables`, `make test-sail`, `make soak`.
collect_ignore = ["conformance", "tables", "sail", "soak"]

# Files that take a minute or two: begun last, they would keep one core waiting for the other.
_LONG_FILES = (
    "soak/test_streaming_equality.py",
    "spark_source/test_cluster.py",
    "spark_source/test_sink.py",
    "jobs/test_demo.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--times FILE`: what each test took, as tests/ladder/times.py reads it.  `--hang-s`: see tests/ladder/run.py."""
    parser.addoption("--times", type=Path, help="keep the seconds and outcomes of all tests in this file")
    parser.addoption("--hang-s", type=float, help="with --times: end a run in which no test ends for so many seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the times, and watches the run, where that is asked for, once for all workers of xdist.

    A shell's background has SIGINT ignored, which children inherit: those that a test interrupts would never end.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.times and not hasattr(config, "workerinput"):
        keeper = Keeper(config.option.times)
        config.pluginmanager.register(keeper)
        if config.option.hang_s:
            config.pluginmanager.register(Watch(keeper, config.option.hang_s))


def _is_twin(item: pytest.Item) -> bool:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(isinstance(value, str) and value in TWINS for value in values)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what only `make deep` has, before pytest looks at its -m."""
    for item in filter(_is_twin, items):
        item.add_marker("deep")
    for item in left_out(item for item in items if not item.get_closest_marker("deep")):
        item.add_marker("deep")


@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def long_files_first(items: list[pytest.Item]) -> None:
    """Puts the long files in front of all others, which stay as they are."""
    rank = {name: number for number, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: rank.get(f"{item.path.parent.name}/{item.path.name}", len(rank)))
