"""The progress of replicas: a table on a terminal, lines where there is none, JSON where that is asked for."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import click
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rmqstore.cli.output import byte_size, counted, escaped, fitted, iso, moment_of, printable, utc, wrapped
from rmqstore.replica.following.state import ReplicaState

_RATE_WINDOW_S = 10.0
_SHOW_S = 1.0
_HEADS = ("broker", "state", "log", "files", "behind", "messages", "time", "rate")
# What a narrow terminal goes without, first to last.
_LESS_NEEDED = ("files", "rate", "messages", "log", "time")
_GAP = 2
# Names of up to so many columns are never cut: a column of figures goes first.
_NAME_SIZE_MIN = 12
# What is wrong stands below the table: so many brokers' words, of so many lines each.
_TROUBLES_MAX, _TROUBLE_LINES = 4, 3
_UNKNOWN = "?"


class _Rate:
    """Bytes a second over the last few seconds."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def of(self, now_s: float, log_end: int) -> float:
        self._seen = [*((when, end) for when, end in self._seen if now_s - when < _RATE_WINDOW_S), (now_s, log_end)]
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


class ProgressScreen:
    """Shows the states that it is given: a table that stands still on a terminal; where standard error is none, a line
    there when a replica begins to follow, and when it begins to wait; with JSON one line each second on standard
    output.  At the end one line for each replica on standard output.
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._rates: dict[str, _Rate] = {}
        self._shown_s = 0.0
        self._last: Mapping[str, ReplicaState] = {}
        self._told: dict[str, str] = {}
        console = Console(stderr=True)
        is_live = console.is_terminal and not as_json
        self._live = Live(console=console, transient=True, auto_refresh=False) if is_live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        if kind is None:
            for name, state in self._last.items():
                click.echo(_json_line(name, state) if self._as_json else final_line(name, state))

    def show(self, states: Mapping[str, ReplicaState]) -> None:
        """Shows the states, once a second at the most."""
        self._last = states
        now_s = time.monotonic()
        rates = {name: self._rates.setdefault(name, _Rate()).of(now_s, state.log_end) for name, state in states.items()}
        if not self._as_json and self._live is None:
            self._tell_changes(states)
        if now_s - self._shown_s < _SHOW_S:
            return
        self._shown_s = now_s
        if self._as_json:
            for name, state in states.items():
                click.echo(_json_line(name, state, rates[name]))
        elif self._live is not None:
            self._live.update(progress_table(states, rates, self._live.console.width), refresh=True)

    def _tell_changes(self, states: Mapping[str, ReplicaState]) -> None:
        """Prints a reason for waiting once, not at each attempt."""
        for name, state in states.items():
            if state.phase == "following":
                words = "following"
            elif state.phase == "waiting":
                words = f"waiting: {state.error}"
            else:
                continue
            if self._told.get(name) != words:
                self._told[name] = words
                click.echo(f"{printable(name)}: {printable(words)}", err=True)


def progress_table(states: Mapping[str, ReplicaState], rates: Mapping[str, float], width: int) -> RenderableType:
    """The table, in so many columns of a terminal, and below it what is wrong."""
    rows = [_row(state, rates[name]) for name, state in states.items()]
    sizes = {head: max(map(cell_len, column)) for head, *column in zip(_HEADS[1:], _HEADS[1:], *rows, strict=True)}
    least = min(max((cell_len(printable(name)) for name in states), default=0), _NAME_SIZE_MIN)
    dropped = iter(_LESS_NEEDED)
    while (room := width - sum(sizes.values()) - _GAP * len(sizes)) < least:
        less = next(dropped, None)
        if less is None:
            break
        del sizes[less]
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for head in (_HEADS[0], *sizes):
        table.add_column(head, justify="left" if head in _HEADS[:2] else "right", no_wrap=True)
    for name, row in zip(states, rows, strict=True):
        cells = [cell for head, cell in zip(_HEADS[1:], row, strict=True) if head in sizes]
        table.add_row(*map(Text, (_middle_out(printable(name), max(room, least)), *cells)))
    return Group(table, *(Text(line) for line in _troubles(states, width)))


def final_line(name: str, state: ReplicaState) -> str:
    """The last line about a replica, after it was stopped."""
    said = f"{byte_size(state.log_end - state.log_start)} of log in {counted(state.log_files, 'file')}"
    if state.behind_bytes is not None:
        said += f", {byte_size(state.behind_bytes)} behind"
    if state.behind_bytes:
        more = [f"{_about(state)} messages"] if state.behind_messages is not None else []
        more += [_duration(state.behind_s)] if state.behind_s is not None else []
        said += f" ({', '.join(more)})" if more else ""
    if state.newest_ms:
        said += f", newest message {utc(state.newest_ms)}"
    if state.error and state.phase != "failed":  # what failed for good is said as the command's error
        said += f"; not connected: {printable(state.error)}"
    return f"{printable(name)}: {said}"


def _row(state: ReplicaState, rate: float) -> Sequence[str]:
    behind = _UNKNOWN if state.behind_bytes is None else byte_size(state.behind_bytes)
    size = byte_size(state.log_end - state.log_start)
    time_behind = _duration(state.behind_s)
    return state.phase, size, f"{state.log_files:,}", behind, _about(state), time_behind, f"{byte_size(int(rate))}/s"


def _about(state: ReplicaState) -> str:
    """The estimate of messages that are missing, short; none is none for certain."""
    count = state.behind_messages
    if count is None:
        return _UNKNOWN
    if count == 0:
        return "0"
    value = float(count)
    for unit in ("", "k", "M", "G"):
        if value < (10_000 if not unit else 1000):
            return f"~{value:.1f}{unit}" if unit and value < 10 else f"~{value:,.0f}{unit}"
        value /= 1000
    return f"~{value:,.0f}T"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return _UNKNOWN
    for most, unit, size in ((60, "s", 1), (3600, "min", 60), (48 * 3600, "h", 3600)):
        if seconds < most:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds / 86_400):,} d"


def _middle_out(name: str, size: int) -> str:
    """The name with its middle left out: what tells brokers apart is at its ends."""
    if cell_len(name) <= size:
        return name
    end = (size - 1) // 2
    tail = name[-end:]
    while cell_len(tail) > end:
        tail = tail[1:]
    return fitted(name, size - cell_len(tail)) + tail


def _troubles(states: Mapping[str, ReplicaState], width: int) -> Sequence[str]:
    found = {name: state.error or state.tables_error for name, state in states.items()}
    troubled = {name: words for name, words in found.items() if words}
    lines: list[str] = []
    for name, words in list(troubled.items())[:_TROUBLES_MAX]:
        told = wrapped("", f"{name}: {words}", width).splitlines()
        rest = " ".join(told[_TROUBLE_LINES - 1 :])
        lines += [fitted(line, width) for line in (*told[: _TROUBLE_LINES - 1], rest) if line]
    if len(troubled) > _TROUBLES_MAX:
        lines.append(f"and {len(troubled) - _TROUBLES_MAX} more: --json shows them all")
    return ["", *lines] if lines else []


def _json_line(name: str, state: ReplicaState, rate: float | None = None) -> str:
    return escaped(json.dumps(_document(name, state, rate)))


def _document(name: str, state: ReplicaState, rate: float | None) -> dict[str, Any]:
    return {
        "broker": name,
        "phase": state.phase,
        "logStart": state.log_start,
        "logEnd": state.log_end,
        "logFiles": state.log_files,
        "masterEnd": state.master_end,
        "behindBytes": state.behind_bytes,
        "behindMessagesEstimate": state.behind_messages,
        "behindSeconds": None if state.behind_s is None else round(state.behind_s, 1),
        "bytesPerSecond": None if rate is None else round(rate),
        "receivedBytes": state.traffic.received_size,
        "connectionAttempts": state.traffic.attempts,
        "connectionFailures": state.traffic.failures,
        "newestStoreTimestamp": iso(moment_of(state.newest_ms)),
        "tablesAgeSeconds": None if state.tables_age_s is None else round(state.tables_age_s, 1),
        "error": state.error,
        "tablesError": state.tables_error,
        "lastError": state.last_error,
        "lastErrorTimestamp": iso(moment_of(state.last_error_ms)),
    }
