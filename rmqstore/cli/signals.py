"""Commands that run until they are told to stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# SIGHUP: the terminal is gone, or a supervisor wants an end; nothing here could be read again.
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_told: list[bool] = []


def tell_all() -> None:
    """Says that the outcome was told: a signal that comes after it is too late to change the exit status."""
    _told.append(True)


def has_told_all() -> bool:
    """Whether `tell_all` was called."""
    return bool(_told)


@contextmanager
def until_signalled(stop: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Whether SIGINT, SIGTERM or SIGHUP came, at which `stop` is called; a second one ends the program on the spot, as
    the system does.  One that the program was started to ignore (nohup, a shell's &) stays ignored."""
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        for each in before:  # for good: Python's own handler would show a traceback when the interpreter ends
            signal.signal(each, signal.SIG_DFL)
        stop()

    before = {each: signal.getsignal(each) for each in _ENDS if signal.getsignal(each) is not signal.SIG_IGN}
    try:
        for each in before:
            signal.signal(each, note)
        yield lambda: bool(came)
    finally:
        if not came:
            for each, handler in before.items():
                signal.signal(each, handler)
