"""Commands that run until they are told to stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def until_signalled() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came; a second one ends the program as usual."""
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, before[each])

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, note)
    try:
        yield lambda: bool(came)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
