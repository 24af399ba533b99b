"""Findings of a doctor: facts, and what to do about it where something is wrong with it."""

from typing import Literal, NamedTuple

# good: as it should be, or a mere fact; odd: works, with a drawback; broken: something does not work.
State = Literal["good", "odd", "broken"]


class Fact(NamedTuple):
    """One line: what was looked at, what is there, and what to do, where the state is not good."""

    area: str
    name: str
    value: str
    state: State = "good"
    advice: str = ""
