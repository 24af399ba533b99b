"""A child process that is killed for real at a random moment, and what it told until then."""

import os
import random
import select
import signal
import time
import traceback
from collections.abc import Callable


def told_until_killed(
    run: Callable[[int], None], chance: random.Random, *, opening_share: float, opening_s: float, lines_max: int
) -> tuple[list[str], str | None]:
    """Forks a child that does `run(pipe)`, and kills it after 1 … `lines_max` lines have come through the pipe; in
    `opening_share` of the cases at any moment of its first `opening_s` instead.

    Returns all its lines in their order, and what it raised, if anything did.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run(run, writing)
    os.close(writing)
    in_opening = chance.random() < opening_share
    end_at = time.monotonic() + (chance.uniform(0.0, opening_s) if in_opening else 60.0)
    wanted = 0 if in_opening else chance.randint(1, lines_max)
    data = b""
    while time.monotonic() < end_at and (in_opening or data.count(b"\n") < wanted) and b"failed" not in data:
        if select.select([reading], [], [], max(end_at - time.monotonic(), 0))[0]:
            more = os.read(reading, 65536)
            if not more:
                break
            data += more
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 65536):
        data += more
    os.close(reading)
    lines = data.decode().split("\n")[:-1]
    failures = [line.replace("\\n", "\n") for line in lines if line.startswith("failed")]
    return lines, failures[0] if failures else None


def told_failure() -> bytes:
    """The line that tells of the exception that is being handled."""
    return b"failed " + traceback.format_exc().replace("\n", "\\n").encode() + b"\n"


def _run(run: Callable[[int], None], writing: int) -> None:
    """In the child; never returns."""
    try:
        run(writing)
    except BaseException:  # noqa: BLE001  it is all to be told
        os.write(writing, told_failure())
    finally:
        os._exit(1)
