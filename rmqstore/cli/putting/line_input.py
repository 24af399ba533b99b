"""The lines of a file or of standard input, some megabytes at a time, as they come."""

import io
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqstore.cli.putting.chunks import ROWS_AT_ONCE, Mistake
from rmqstore.errors import Rejected
from rmqstore.files.reading import opened_at_once

STANDARD_INPUT = "-"
_READ_SIZE = 4 * 1024 * 1024
# No message is so large, however its bytes are written in JSON.
_LINE_SIZE_MAX = 64 * 1024 * 1024
# Seconds: how often is asked whether to end, how long an input is silent until what came is put, and how long what came
# waits at the most.
_POLL_S, _SILENCE_S, _HELD_S = 0.2, 0.1, 1.0


class Lines(NamedTuple):
    """Lines without their ends, the number of the first, from 1; `is_pause`: no more came just now."""

    first_line: int
    lines: list[bytes]
    is_pause: bool


def shown_name(path: str) -> str:
    """The name of an input for people."""
    return "standard input" if path == STANDARD_INPUT else path


def lines_of(path: str, is_over: Callable[[], bool], told: Callable[[int], None]) -> Iterator[Lines]:
    """The lines of an input until its end, or until `is_over`; `told` hears how many bytes were read.

    What follows the last line end counts as a line if it is anything.  Raises OSError, Rejected where there is no
    standard input, and Mistake for a line that is too long to be a message.
    """
    number, rest = 1, b""
    with _opened(path) as source:
        while not is_over():
            data, has_ended, is_pause = _gathered(source, is_over)
            told(len(data))
            *whole, rest = (rest + data).split(b"\n")
            if has_ended and rest:
                whole.append(rest)
            if len(rest) > _LINE_SIZE_MAX:
                raise Mistake(
                    f"line {number + len(whole)} is longer than {_LINE_SIZE_MAX} bytes, the most that a "
                    "message can take"
                )
            for first in range(0, len(whole), ROWS_AT_ONCE):
                last = min(first + ROWS_AT_ONCE, len(whole))
                yield Lines(number + first, whole[first:last], is_pause and last == len(whole))
            number += len(whole)
            if has_ended:
                return


def _opened(path: str) -> io.FileIO:
    if path == STANDARD_INPUT:
        if sys.stdin is None:  # as `<&-` starts a program
            raise Rejected("standard input is closed: name a FILE, or pipe messages into it")
        return io.FileIO(sys.stdin.fileno(), "rb", closefd=False)
    return opened_at_once(path)


class _Gathered(NamedTuple):
    data: bytes
    has_ended: bool
    is_pause: bool


def _gathered(source: io.FileIO, is_over: Callable[[], bool]) -> _Gathered:
    """The bytes that come together: up to a size, a silence or some time."""
    parts: list[bytes] = []
    size, began_s = 0, 0.0
    while size < _READ_SIZE and not is_over():
        if not select.select([source], [], [], _SILENCE_S if parts else _POLL_S)[0]:
            if parts:
                return _Gathered(b"".join(parts), False, True)
            continue
        part = source.read(_READ_SIZE)
        if part == b"":
            return _Gathered(b"".join(parts), True, False)
        now_s = time.monotonic()
        began_s = began_s or now_s
        if part is not None:
            parts.append(part)
            size += len(part)
        if now_s - began_s > _HELD_S:
            break
    return _Gathered(b"".join(parts), False, False)
