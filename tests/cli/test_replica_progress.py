"""Progress as it stands on a terminal of 80 columns, in JSON, and as the last line."""

import json

import pytest
from rich.console import Console

from rmqstore.cli.replication.replica_progress import ProgressScreen, final_line, progress_table
from rmqstore.replica.following.state import ReplicaState, Traffic

GIB = 1024**3
SOME = ReplicaState("following", 0, 12 * GIB, 13, 12 * GIB + 1_200_000, 1_795_412_403_147, 2.3, 3400)
LARGE = ReplicaState("connecting", 0, 1023 * GIB + 900 * 1024**2, 1024, 2047 * GIB, None, 9 * 86_400.0, 123_456_789)
LOST = ReplicaState("waiting", 0, 5 * GIB, 5, error="10.0.0.5:10912: No route to host, " + "and so on, " * 40)


def shown(states: dict[str, ReplicaState], width: int = 80, rate: float = 14e6) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(progress_table(states, dict.fromkeys(states, rate), width))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_replica_is_one_row_with_all_figures() -> None:
    assert shown({"broker-a": SOME}) == [
        "broker    state           log  files   behind  messages  time        rate",
        "broker-a  following  12.0 GiB     13  1.1 MiB    ~3,400   2 s  13.4 MiB/s",
    ]


def test_long_names_large_figures_and_long_errors_fit() -> None:
    names = [f"prod-eu-west-1-orders-broker-{number:04d}" for number in range(7)]
    lines = shown(dict(zip(names, (LARGE, SOME, LOST, LOST, LOST, LOST, LOST), strict=True)), rate=1023.9 * 1024**2)
    assert max(map(len, lines)) <= 80
    head, *rows = lines[:8]
    assert head.split() == ["broker", "state", "log", "behind", "messages", "time", "rate"]
    assert [row.split()[0][-3:] for row in rows] == [name[-3:] for name in names]  # told apart by their ends
    assert rows[0].split()[1:] == [
        "connecting", "1023.9", "GiB", "1023.1", "GiB", "~123M", "9", "d", "1023.9", "MiB/s",
    ]  # fmt: skip
    assert rows[2].split()[4:7] == ["?", "?", "?"]
    below = lines[9:]
    assert below[0].startswith(f"{names[2]}: 10.0.0.5:10912: No route to host")
    assert below[2].endswith("…")
    assert below[-1] == "and 1 more: --json shows them all"
    assert len(below) == 4 * 3 + 1


@pytest.mark.parametrize("width", range(20, 80))
def test_a_narrow_terminal_goes_without_some_columns(width: int) -> None:
    lines = shown({"broker-a": SOME, "c": LOST}, width)
    assert max(map(len, lines)) <= width
    if width >= 32:
        assert not any("…" in line for line in lines[:3])
        assert {"broker", "state", "behind"} <= {*lines[0].split()}


@pytest.mark.parametrize("name", ["日本語ブローカー日本語ブローカー日本語", "\x1b[31mred\u202e", "[bold]markup[/bold]"])
def test_a_name_that_steers_or_is_wide_keeps_its_column(name: str) -> None:
    _, first, second = shown({name: LARGE, "b": LARGE})[:3]
    assert first.index("connecting") < second.index("connecting") + 1
    assert "\x1b" not in first
    assert "\u202e" not in first


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (1, "~1"), (9999, "~9,999"), (10_000, "~10k"), (1_200_000, "~1.2M"), (5 * 10**9, "~5.0G"),
     (10**15, "~1,000T"), (None, "?")],
)  # fmt: skip
def test_an_estimate_is_marked(count: int | None, text: str) -> None:
    assert shown({"b": ReplicaState("following", master_end=5, behind_messages=count)})[1].split()[7] == text


def test_the_last_line() -> None:
    assert final_line("broker-a", SOME) == (
        "broker-a: 12.0 GiB of log in 13 files, 1.1 MiB behind (~3,400 messages, 2 s), newest message "
        "2026-11-23 05:40:03"
    )
    assert (
        final_line("b", ReplicaState("stopped", 0, 100, 1, 100, None, 0.0, 0))
        == "b: 100 B of log in 1 file, 0 B behind"
    )
    assert (
        final_line("b", ReplicaState("stopped", error="gone\x1b"))
        == "b: 0 B of log in 0 files; not connected: gone\ufffd"
    )


def test_a_json_line_has_all(capsys: pytest.CaptureFixture[str]) -> None:
    state = ReplicaState("waiting", 10, 20, 1, 30, 1_795_412_403_147, 1.26, 4, Traffic(7, 3, 2), 0.51, "e", "t", "l", 0)
    with ProgressScreen(as_json=True) as screen:
        screen.show({"b\u202e": state})
    shown_line, last = capsys.readouterr().out.splitlines()
    assert json.loads(shown_line) == {
        "broker": "b\u202e", "phase": "waiting", "logStart": 10, "logEnd": 20, "logFiles": 1, "masterEnd": 30,
        "behindBytes": 10, "behindMessagesEstimate": 4, "behindSeconds": 1.3, "bytesPerSecond": 0, "receivedBytes": 7,
        "connectionAttempts": 3, "connectionFailures": 2, "newestStoreTimestamp": "2026-11-23T05:40:03.147Z",
        "tablesAgeSeconds": 0.5, "error": "e", "tablesError": "t", "lastError": "l",
        "lastErrorTimestamp": "1970-01-01T00:00:00.000Z",
    }  # fmt: skip
    assert json.loads(last)["bytesPerSecond"] is None


def test_without_a_terminal_changes_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressScreen(as_json=False) as screen:
        for state in (ReplicaState(), SOME, SOME, LOST, ReplicaState(), LOST, SOME):
            screen.show({"b": state})
    told = capsys.readouterr()
    assert [line[:20] for line in told.err.splitlines()] == ["b: following", "b: waiting: 10.0.0.5", "b: following"]
    assert told.out.startswith("b: 12.0 GiB of log")
