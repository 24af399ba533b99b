"""STORE arguments where a commitlog lies elsewhere."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run, document_of, last_line
from tests.snapshot.small_store import split_store

COUNT = 10


@pytest.fixture
def split(tmp_path: Path) -> tuple[Path, Path]:
    return split_store(COUNT, tmp_path)


@pytest.mark.parametrize("command", ["inspect", "cat"])
def test_a_missing_log_ends_with_one_line(command: str, run: Run, split: tuple[Path, Path]) -> None:
    options = ["--topic", "T"] if command == "cat" else []
    result = run(command, split[0], *options)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "`rmqstore inspect STORE LOG`" in last_line(result.stderr)


def test_verify_names_it_as_damage(run: Run, split: tuple[Path, Path]) -> None:
    result = run("verify", split[0])
    assert result.exit_code == 1
    assert "no commitlog file" in " ".join(result.stdout.split())


def test_the_log_stands_behind_its_store_with_a_name_or_without(run: Run, split: tuple[Path, Path]) -> None:
    root, log = split
    copy = shutil.copytree(root, root.parent / "copy")
    for arguments in ([root, log], [f"broker-a={root}", log], [f"a={root}", log, f"b={copy}", log]):
        for store in document_of(run("inspect", *arguments, "--json"))["stores"]:
            assert sum(topic["messages"] for topic in store["topics"]) == COUNT


def test_a_name_is_given_once(run: Run, split: tuple[Path, Path]) -> None:
    result = run("inspect", f"a={split[0]}", f"a={split[1]}")
    assert result.exit_code == 2
    assert last_line(result.stderr) == "Error: a is given twice: give each broker's store once"
