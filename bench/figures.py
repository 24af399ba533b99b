"""What a bench measured: one line a figure, beside what it is compared with and the goal."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple, TypeVar

from bench.cpu import machine

T = TypeVar("T")
# What benches leave: figures, and what others printed meanwhile.
OUTPUT = Path("build/figures")


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
    rows: list[tuple[str, ...]] = [("figure", "measured", "against", "judged", "goal", "")]
    rows += [tuple(_cells(figure)) for figure in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of a bench: its seconds by the clock, and those of all processes on all cores."""

    name: str
    wall_s: float
    cpu_s: float


def write_json(path: Path, made: str, figures: Sequence[Figure], steps: Sequence[Step]) -> None:
    """Figures with their verdicts, and where and when they were measured; `made`: the command and how it measures."""
    rows = [asdict(figure) | {"verdict": figure.verdict} for figure in figures]
    document = {"made": made, **machine(), "figures": rows, "steps": [asdict(step) for step in steps]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def page(documents: Sequence[dict[str, Any]]) -> str:
    """The page of figures, docs/figures.md, from documents as `write_json` writes them."""
    lines = [
        "# Figures of one run",
        "",
        "Each table is of one run on one machine, as the command wrote it; [how fast](performance.md) has what they",
        "mean, and how far they go up and down. Seconds by the clock are beside those of all processes on all cores.",
    ]
    for document in documents:
        title, _, details = document["made"].partition(": ")
        how = details and f". {details[0].upper()}{details[1:]}"
        lines += [
            "",
            f"## {title}",
            "",
            f"{document['date']}, {document['machine']}; {document['versions']}{how}.",
            "",
        ]
        lines += ["| figure | measured | beside | ratio or value | goal | |", "|---|---:|---|---:|---|---|"]
        for row in document["figures"]:
            figure = Figure(**{name: value for name, value in row.items() if name != "verdict"})
            lines.append(f"| {' | '.join(_cells(figure))} |")
        lines += ["", "| part | seconds | CPU seconds |", "|---|---:|---:|"]
        lines += [f"| {step['name']} | {step['wall_s']:.2f} | {step['cpu_s']:.2f} |" for step in document["steps"]]
    return "\n".join(lines) + "\n"


def _cells(figure: Figure) -> list[str]:
    sign = "≥" if figure.at_least else "<"
    goal = "" if figure.goal is None else f"{sign} {figure.goal:g}"
    judged = "" if figure.judged is None else f"{figure.judged:.2f}"
    return [figure.line, f"{figure.value:,.2f} {figure.unit}", figure.against, judged, goal, figure.verdict]


class Cost(NamedTuple):
    """Seconds by the clock, and CPU seconds; the shorter one is less."""

    wall_s: float
    cpu_s: float


def best_seconds(
    actions: Sequence[Callable[[], object]], rounds: int, settle: Callable[[], object] | None = None
) -> list[float]:
    """As `best_costs`, without CPU seconds."""
    return [cost.wall_s for cost in best_costs(actions, rounds, settle)]


def best_costs(
    actions: Sequence[Callable[[], object]], rounds: int, settle: Callable[[], object] | None = None,
    cpu: Callable[[], float] = process_time,
) -> list[Cost]:  # fmt: skip
    """The shortest time of each action over `rounds` rounds, in each of which every action runs once: they share good
    and bad moments of the machine.  One round more goes before, to warm up.  `settle` runs before each, and is not
    timed.  `cpu` answers how many CPU seconds were spent."""
    costs: list[list[Cost]] = [[] for _ in actions]
    for turn in range(rounds + 1):
        for action, taken in zip(actions, costs, strict=True):
            if settle is not None:
                settle()
            spent_s, began_s = cpu(), perf_counter()
            action()
            wall_s = perf_counter() - began_s
            if turn:
                taken.append(Cost(wall_s, cpu() - spent_s))
    return [min(taken) for taken in costs]


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
