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
# How many random images of each crash there are, too.
ROUNDS = int(os.environ.get("RMQSTORE_CRASH_ROUNDS", "1"))
IS_WHOLE = ROUNDS > 1 or os.environ.get("RMQSTORE_SWEEPS") == "whole"


@cache
def residue() -> int:
    """That of this run: RMQSTORE_RESIDUE, else the commit's; 0 outside of a repository."""
    if given := os.environ.get("RMQSTORE_RESIDUE"):
        return int(given)
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=_PROJECT, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git
        return 0
    return int(done.stdout[:8], 16) if done.returncode == 0 else 0


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
