"""What a bench measured: one line a figure, beside what it is compared with and the goal."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`value` in `unit`; `against` is the comparison measured in the same run, `goal` a bound on `judged`.

    `judged` is what the goal speaks of: a ratio, or the value itself.  `at_least`: whether more is better.
    A figure without a comparison (no Java on this machine) has judged None and is neither met nor missed.
    """

    line: str
    value: float
    unit: str
    against: str = ""
    judged: float | None = None
    goal: float | None = None
    at_least: bool = True

    @property
    def verdict(self) -> str:
        """met, MISSED, or "-" where nothing can be said."""
        if self.judged is None or self.goal is None:
            return "-"
        return "met" if (self.judged >= self.goal) == self.at_least or self.judged == self.goal else "MISSED"


def table(figures: Sequence[Figure]) -> str:
    """The figures as text, a line each."""
    rows = [("figure", "measured", "against", "judged", "goal", "")]
    for figure in figures:
        sign = "≥" if figure.at_least else "<"
        goal = "" if figure.goal is None else f"{sign} {figure.goal:g}"
        judged = "" if figure.judged is None else f"{figure.judged:.2f}"
        rows.append((figure.line, f"{figure.value:,.2f} {figure.unit}", figure.against, judged, goal, figure.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def write_json(figures: Sequence[Figure], path: Path) -> None:
    """The figures as a JSON list, with their verdicts."""
    rows = [asdict(figure) | {"verdict": figure.verdict} for figure in figures]
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def best_seconds(
    actions: Sequence[Callable[[], object]], rounds: int, settle: Callable[[], object] | None = None
) -> list[float]:
    """The shortest time of each action over `rounds` rounds, in each of which every action runs once: they share good
    and bad moments of the machine.  One round more goes before, to warm up.  `settle` runs before each, and is not
    timed."""
    times: list[list[float]] = [[] for _ in actions]
    for turn in range(rounds + 1):
        for action, taken in zip(actions, times, strict=True):
            if settle is not None:
                settle()
            began = perf_counter()
            action()
            if turn:
                taken.append(perf_counter() - began)
    return [min(taken) for taken in times]


def in_turns(actions: Sequence[Callable[[], T]], rounds: int) -> list[list[T]]:
    """What each action returns, round by round; the actions take turns as in `best_seconds`, whose first round does not
    count either."""
    results: list[list[T]] = [[] for _ in actions]
    for turn in range(rounds + 1):
        for action, seen in zip(actions, results, strict=True):
            value = action()
            if turn:
                seen.append(value)
    return results
