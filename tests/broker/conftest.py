"""What tests of several files ask for by name."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads are switched as often as it goes."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)
