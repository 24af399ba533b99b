"""`rmqstore recover`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, document_of, last_line
from tests.golden.cases import unpack
from tests.golden.rows import fingerprint


def test_a_dry_run_shows_the_plan_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    store = unpack("killed-torn", tmp_path)
    before = fingerprint(store)
    result = run("recover", store, "--dry-run")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines if str(store) not in line) <= 80
    shown = {line.split()[0] for line in lines}
    assert {"store", "scan", "end", "cut", "remove", "zero", "dispatch", "checkpoint"} <= shown
    assert last_line(result.stdout) == "nothing was written; run without --dry-run to do this"
    assert fingerprint(store) == before


def test_the_store_is_called_as_it_was_given_and_its_files_by_their_place_in_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the way there is: lines stay within a terminal."""
    deep = tmp_path / ("a-long-name-of-a-directory" * 4)
    deep.mkdir()
    store = unpack("killed-torn", deep)
    monkeypatch.chdir(store.parent)
    lines = run("recover", store.name, "--dry-run").stdout.splitlines()
    assert lines[0].split() == ["store", store.name]
    assert max(map(len, lines)) <= 80


def test_recovered_and_closed_cleanly(run: Run, tmp_path: Path) -> None:
    store = unpack("killed-torn", tmp_path)
    planned = document_of(run("recover", store, "--dry-run", "--json"))
    done = document_of(run("recover", store, "--json"))
    assert done == planned | {"isApplied": True}
    assert not (store / "abort").exists()
    assert run("verify", store).exit_code == 0
    again = document_of(run("recover", store, "--dry-run", "--json"))
    assert again["changesNothing"]
    assert again["isCleanExit"]
    assert "nothing to do" in run("recover", store).stdout


def test_damage_in_the_middle_is_refused_unless_told_to_cut(run: Run, tmp_path: Path) -> None:
    store = unpack("killed-midflip", tmp_path)
    result = run("recover", store)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    for part in ("commitlog/00000000000000098304 @ 39900", "the CRC of the body is wrong", "--cut"):
        assert part in result.stderr
    assert (store / "abort").exists()
    result = run("recover", store, "--cut")
    assert result.exit_code == 0
    assert last_line(result.stdout) == "recovered, and closed cleanly"
    assert run("verify", store).exit_code == 0


def test_the_broker_s_configuration(run: Run, tmp_path: Path) -> None:
    store = unpack("broker-killed-5.3.3", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=1s 2s 1s 2s 5s 1h 2h\nbrokerName=broker-a\n")
    warned = document_of(run("recover", store, "--dry-run", "--json"))["warnings"]
    told = document_of(run("recover", store, "--dry-run", "--json", "--broker-conf", conf))["warnings"]
    assert len(warned) > len(told)
    assert any("messageDelayLevel" in warning for warning in warned)
    assert run("recover", store, "--broker-conf", tmp_path / "none.conf").exit_code == 2


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_what_is_no_store_does_not_become_one(options: list[str], run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for path in (tmp_path / "nowhere", tmp_path):
        before = sorted(tmp_path.rglob("*"))
        result = run("recover", path, *options)
        assert result.exit_code == 1
        assert "storePathRootDir" in result.stderr or "holds no RocketMQ store" in result.stderr
        assert sorted(tmp_path.rglob("*")) == before


def test_a_store_that_somebody_writes_to_is_left_alone(run: Run, tmp_path: Path) -> None:
    store = unpack("killed", tmp_path)
    hold = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\nfcntl.lockf(file, fcntl.LOCK_EX, 1, 0)\n"
        "print('held', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(store / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = fingerprint(store)
        result = run("recover", store)
        holder.communicate("")
    assert result.exit_code == 1
    assert "stop the other writer" in result.stderr
    after = fingerprint(store)
    assert {path: state[-1] for path, state in after.items()} == {path: state[-1] for path, state in before.items()}
