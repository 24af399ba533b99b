"""An exception at any line of ours, and at any call of the libraries that write the tables: each message once.

RMQSTORE_LAKE_ROUNDS=20: so many times as many places.
"""

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import deltalake
import pyiceberg
import pytest

import rmqstore.lake
from tests.lake.conftest import put_into, stored
from tests.lake.tables import Lake

_OURS = str(Path(rmqstore.lake.__file__).parent)
_THEIRS = tuple(str(Path(str(library.__file__)).parent) for library in (pyiceberg, deltalake))
# In a generator of a library's that is thrown away Python swallows an interrupt, and says so.
pytestmark = [pytest.mark.stores, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
PLACES = 24 * int(os.environ.get("RMQSTORE_LAKE_ROUNDS", "1"))


class Interrupt:
    """Counts lines and calls, and raises KeyboardInterrupt at the n-th."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def call(self, lake: Lake) -> bool:
        """Whether a sync was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            lake.sync()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        place = frame.f_code.co_filename
        if place.startswith(_THEIRS):
            self._step(frame)
            return None
        if not place.startswith(_OURS):
            return None
        if event == "line":
            self._step(frame)
        return self._trace

    def _step(self, frame: FrameType) -> None:
        if frame.f_code.co_name in ("__del__", "__hash__", "__eq__"):
            return  # of what a library keeps in a table of its own: Python swallows it there
        self.count += 1
        if self.count == self.at:
            raise KeyboardInterrupt


@pytest.mark.some(4)
@pytest.mark.parametrize("part", range(2))
def test_an_interrupt_anywhere_doubles_and_loses_nothing(lake: Lake, store: Path, part: int) -> None:
    lake.sync()
    put_into(store, "orders", 30, 2)
    counting = Interrupt(0)
    assert not counting.call(lake)
    first, came = 32, 0
    for number in range(part, PLACES, 2):
        put_into(store, "orders", first, 2)
        put_into(store, "payments", first, 1)
        first += 2
        came += Interrupt(1 + number * counting.count // PLACES).call(lake)
        lake.sync()
        assert lake.places() == stored(store), f"at {number} of {PLACES}"
    assert came > PLACES // 2 * 0.9
