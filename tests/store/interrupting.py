"""An exception at the n-th line that a call executes in the package, as Ctrl-C may come at any moment."""

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import rmqstore
from tests.crash.strides import first

_PACKAGE = rmqstore.__file__.removesuffix("__init__.py")


class Interrupt:
    """Raises KeyboardInterrupt before the n-th line, counted from 1; `place` is where that was, None if it never came.

    With `again` once more so many lines later, as somebody does who is impatient.  `is_real`: only where a
    signal's handler can run, too: not between the body of a `with` and its `__exit__`, and not before a `try` begins.
    """

    def __init__(self, at: int, again: int = 0, *, is_real: bool = False) -> None:
        self.place: str | None = None
        self.left = [at, again] if again else [at]
        self._is_real = is_real
        self._lines: dict[int, int] = {}  # by frame, the line before

    def call(self, work: Callable[[], Any]) -> Any:
        """What `work` answers, None where it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return work()
        except KeyboardInterrupt:
            return None
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE) or _is_finalizing(frame):
            return None
        before, self._lines[id(frame)] = self._lines.get(id(frame), 0), frame.f_lineno
        if event == "line" and self.left and not (self._is_real and _is_unreal(frame, before)):
            self.left[0] -= 1
            if not self.left[0]:
                del self.left[0]
                self.place = self.place or f"{frame.f_code.co_filename.removeprefix(_PACKAGE)}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace


def _is_finalizing(frame: FrameType) -> bool:
    """Whether it belongs to a `__del__`: what that raises, Python swallows."""
    caller = frame.f_back
    return "__del__" in (frame.f_code.co_name, caller.f_code.co_name if caller is not None else "")


def _is_unreal(frame: FrameType, line_before: int) -> bool:
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return line == "try:" or (line.startswith("with ") and line_before > frame.f_lineno)


def sweep(check: Callable[[Interrupt], object], step: int = 1, *, is_real: bool = False) -> int:
    """Has `check` use an interrupt at every `step`-th line, until one comes no more; how many came.  Where the
    first one comes is the run's residue (strides.py).

    `check` raises AssertionError for what is wrong; the place of the interrupt is added to it.
    """
    at, count = 1 + first(step), 0
    while True:
        interrupt = Interrupt(at, is_real=is_real)
        try:
            check(interrupt)
        except AssertionError as wrong:
            raise AssertionError(f"interrupted at line {at}, {interrupt.place}: {wrong}") from wrong
        if interrupt.place is None:
            return count
        at, count = at + step, count + 1
