"""`rmqstore sync` on the command line: what it says, takes and refuses."""

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqstore.cli import main
from tests.cli.conftest import Run, run
from tests.lake.conftest import lake, put_into, store, stored
from tests.lake.tables import Lake

pytestmark = pytest.mark.stores

__all__ = ["lake", "run", "store"]
RMQSTORE = [sys.executable, "-c", "from rmqstore.cli import main; main(prog_name='rmqstore')"]


def test_a_sync_says_what_it_did(run: Run, lake: Lake, store: Path) -> None:
    first = run("sync", store, *lake.arguments)
    assert (first.exit_code, first.stderr) == (0, "")
    assert first.stdout == f"42 messages added to {lake.name} in 1 commit\n"
    assert run("sync", store, *lake.arguments).stdout == f"0 messages added to {lake.name} in 0 commits\n"
    assert lake.places() == stored(store)


def test_a_program_reads_an_object_a_line(run: Run, lake: Lake, store: Path) -> None:
    lines = run("sync", store, *lake.arguments, "--json", "--topic", "orders").stdout.splitlines()
    commit, end = map(json.loads, lines)
    assert {name: commit[name] for name in ("event", "rows", "files")} == {"event": "commit", "rows": 30, "files": 1}
    assert commit["bytes"] > 1000
    assert end == {"event": "end", "table": lake.name, "rows": 30, "commits": 1, "skipped": 0, "damaged": 0}


def test_a_time_to_begin_at(run: Run, lake: Lake, store: Path) -> None:
    assert run("sync", store, *lake.arguments, "--start", "2100-01-01T00:00:00Z").stdout.startswith("0 messages")
    put_into(store, "orders", 30, 2)
    assert run("sync", store, *lake.arguments).stdout.startswith("2 messages")


def test_columns_dead_letters_and_brokers_are_said(run: Run, lake: Lake, store: Path, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    how = ["--columns", "property.orderId", "--dead-letters", str(letters), "--pattern", "o.*"]
    assert run("sync", f"a={store}", *lake.arguments, *how).stdout.startswith("30 messages")
    assert "property.orderId" in lake.rows().schema.names
    assert not letters.exists()
    refused = run("sync", f"b={store}", *lake.arguments, *how)
    assert refused.exit_code == 1
    assert "has messages of a, but this store is of b; name the store as before, a=PATH" in refused.stderr
    assert run("sync", f"b={store}", *lake.arguments, "--new-broker").stdout.startswith("42 messages")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "Missing option '--to'"),
        (["--to", "hudi", "x"], 2, "'hudi' is not one of 'iceberg', 'delta'"),
        (["--to", "iceberg", "orders"], 1, "with its namespace, such as shop.orders"),
        (
            ["--to", "delta", "DIR/t", "--catalog", "x"],
            1,
            "catalog=x: a Delta table has no catalog, give only its path",
        ),
        (
            ["--to", "delta", "DIR/t", "--start", "yesterday"],
            2,
            "'yesterday': earliest, latest, or a time with its zone",
        ),
        (["--to", "delta", "DIR/t", "--start", "2026-11-25"], 2, "or a time with its zone"),
        (["--to", "delta", "DIR/t", "--option", "x"], 2, "'x': write NAME=VALUE"),
        (["--to", "delta", "DIR/t", "--columns", "body,nope"], 1, "no column 'nope'"),
        (["--to", "delta", "DIR/t", "--commit-seconds", "0"], 2, "0.1<=x<=86400"),
        (["--to", "delta", "DIR/t", "--topic", "order"], 1, "did you mean orders?"),
        (["--to", "delta", "DIR/t", "--topic", "orders", "--pattern", "x"], 2, "give only one of them"),
        (["--to", "delta", "DIR/store"], 1, "is the store"),
        (["--to", "delta", "DIR/t", "--dead-letters", "DIR/none/x"], 1, "there is no directory"),
        (["--to", "iceberg", "a.b", "--catalog", "sqlite:////none/x.db"], 1, "unable to open database file"),
        (["--to", "delta", "DIR/t\x1b[31m", "--topic", "none"], 1, "no topic 'none'"),
    ],
)
def test_a_mistake_is_one_line(
    run: Run, store: Path, tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    done = run("sync", store, *(text.replace("DIR", str(tmp_path)) for text in arguments))
    assert done.exit_code == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert status == 2 or len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "t").exists()


def test_a_store_that_was_made_again_is_one_line_with_what_to_do(
    run: Run, lake: Lake, store: Path, tmp_path: Path
) -> None:
    assert run("sync", store, *lake.arguments).exit_code == 0
    put_into(tmp_path / "again", "orders", 500, 60)
    put_into(tmp_path / "again", "payments", 500, 60)
    done = run("sync", tmp_path / "again", *lake.arguments)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert "another message stands there than the stream has read" in line
    assert line.endswith("; name another table, or restore the store that was read")
    assert run("sync", tmp_path / "again", *lake.arguments, "--skip-lost").stderr == done.stderr


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_without_the_library_it_says_what_to_install(
    run: Run, store: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqstore.lake.opening.find_spec", lambda name: None)
    done = run("sync", store, "--to", kind, str(tmp_path / "a.b"))
    assert done.exit_code == 1
    assert f"pip install 'rmqstore[{kind}]'" in done.stderr


def test_neither_library_is_imported_before_a_table_is_asked_for() -> None:
    show = "import sys, rmqstore, rmqstore.lake, rmqstore.cli; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split()
    assert "rmqstore.lake.syncing" in shown
    assert {"pyiceberg", "deltalake", "sqlalchemy", "pydantic"}.isdisjoint(shown)
    assert importlib.util.find_spec("pyiceberg") is not None
    assert "sync" in main.commands


@pytest.mark.some(4)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_what_it_holds_is_committed(lake: Lake, store: Path, number: signal.Signals) -> None:
    lake.sync(topics=["payments"])
    follow = [*RMQSTORE, "sync", str(store), *lake.arguments, "--follow", "--json", "--commit-seconds", "86400"]
    child = subprocess.Popen(
        [*follow, "--start", "latest", "--commit-rows", "30"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["rows"] == 30
        child.send_signal(number)
        said, told = child.communicate(timeout=600)
    finally:
        child.kill()
    assert (child.returncode, told) == (0, "")
    assert json.loads(said.splitlines()[-1])["event"] == "end"
    assert lake.places() == stored(store)
