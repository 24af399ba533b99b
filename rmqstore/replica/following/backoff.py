"""Waits between attempts: longer each time, and randomised so that clients do not retry together."""

import random
from collections.abc import Callable

_FIRST_S = 0.5
_LONGEST_S = 30.0


class Backoff:
    """Waits of 0.5 s, 1 s, 2 s … 30 s, each randomly between half and all of that; `again` resets them."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._next_s = _FIRST_S

    def wait_s(self) -> float:
        """Seconds before the next attempt."""
        present_s, self._next_s = self._next_s, min(self._next_s * 2, _LONGEST_S)
        return present_s * (0.5 + self._chance() / 2)

    def again(self) -> None:
        """Begins with the shortest wait again."""
        self._next_s = _FIRST_S
