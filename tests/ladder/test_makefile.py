"""What a shell exports is no option of the Makefile; an environment whose Python is gone is told in one line."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ladder.run import PROJECT

pytestmark = pytest.mark.stores

PRINTED = "print-options:\n\t@echo '[$(ARGS)$(PART)$(N)$(EXAMPLES)$(ONLY)$(DEMO_ARGS)]'\n"


def make(directory: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs make with these variables in the environment."""
    return subprocess.run(
        ["make", *arguments], cwd=directory, env={"PATH": os.environ["PATH"], **more}, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["ARGS", "PART", "N", "EXAMPLES", "ONLY", "DEMO_ARGS"])
def test_only_the_command_line_of_make_gives_options(tmp_path: Path, name: str) -> None:
    shutil.copy(PROJECT / "Makefile", tmp_path)
    with (tmp_path / "Makefile").open("a", encoding="utf-8") as file:
        file.write(PRINTED)
    assert make(tmp_path, "print-options", **{name: "-k nothing"}).stdout == "[]\n"
    assert make(tmp_path, "print-options", f"{name}=some", **{name: "-k nothing"}).stdout == "[some]\n"


@pytest.mark.parametrize("name", ["PYTEST_ADDOPTS", "PYTEST_PLUGINS"])
def test_options_of_pytest_do_not_come_from_the_shell(tmp_path: Path, name: str) -> None:
    shutil.copy(PROJECT / "Makefile", tmp_path)
    with (tmp_path / "Makefile").open("a", encoding="utf-8") as file:
        file.write(f'print-option:\n\t@echo "[$${name}$$OTHER]"\n')
    assert make(tmp_path, "print-option", OTHER="other", **{name: "--co"}).stdout == "[other]\n"


def test_an_environment_whose_python_is_gone_is_told_in_a_line(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(tmp_path / "gone" / "python")
    (tmp_path / ".venv" / ".ready").touch()
    for target in ("test-unit", "setup"):
        done = make(tmp_path, target)
        assert done.returncode == 2
        assert done.stderr.splitlines()[0] == (
            "the Python that .venv was set up with is gone: remove .venv and run `make setup`"
        )
    assert make(tmp_path, "help").returncode == 0
