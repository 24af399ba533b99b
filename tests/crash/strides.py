"""Which moments of a sweep a run takes: all of them, or every n-th, others for each commit.

A sweep over thousands of moments proves most by having them all, and costs minutes.  `make test` takes every n-th of
them, beginning at a residue that comes from the commit's hash: the commits of a week cover all.  `make deep` and
`make crash` take all.  RMQSTORE_RESIDUE=N repeats a run.
"""

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_PROJECT = Path(__file__).parents[2]


def number(name: str, usual: int, least: int = 0) -> int:
    """The number that an environment variable holds, `usual` where it is not set or empty.

    Raises SystemExit, which ends a program with one line, where it holds something else.
    """
    text = os.environ.get(name) or str(usual)
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise SystemExit(f"{name}={text}: that is no whole number from {least} on; set another, or unset it")
    return int(text)


# How many random images of each crash there are, too.
ROUNDS = number("RMQSTORE_CRASH_ROUNDS", 1, least=1)
IS_WHOLE = ROUNDS > 1 or os.environ.get("RMQSTORE_SWEEPS") == "whole"


def commit() -> str:
    """The hash of the commit that is checked out; empty outside of a repository, and without git."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=_PROJECT, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def residue() -> int:
    """That of this run: RMQSTORE_RESIDUE, else the commit's; 0 where no commit is known."""
    return number("RMQSTORE_RESIDUE", int(commit()[:8] or "0", 16))


def stride(quick: int, whole: int = 1) -> int:
    """The distance of the moments that are taken: `whole` where a run takes all that a sweep has."""
    return whole if IS_WHOLE else quick


def first(distance: int, around: int = 1) -> int:
    """The first moment that a sweep of this distance takes.  `around`: the distance of a sweep within each of its
    moments; the two begin independently of each other, so that all pairs have their turn."""
    return residue() // around % distance


def every(quick: int, moments: Sequence[T], whole: int = 1, around: int = 1) -> Sequence[T]:
    """The moments that this run takes, never none of some.  `around`: see `first`."""
    distance = min(stride(quick, whole), max(len(moments), 1))
    return moments[first(distance, around) :: distance]
