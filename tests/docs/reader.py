"""A reader who does what a page says: types its commands, runs its program, writes its files."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import PROJECT, Block, shows

_OWN = re.compile(r"(?<![\w./$-])(?:/data|build)/")
_PORT = re.compile(r"(?<=127\.0\.0\.1):10912\b")
_JOB = re.compile(r"^(?:python|spark-submit)\b.*?\bjobs/(\w+)\.py\b(.*)", re.DOTALL)
# What one command leaves to the next: what it exported, and where it went.
_STATE = """status=$?
{ export -p; printf 'cd %q\\n' "$PWD"; } >"$RMQ_STATE"
exit "$status\""""


class Reader:
    """Does what the blocks of one page say.  `data` is /data, `work` the directory in which everything is typed."""

    def __init__(self, data: Path, work: Path, capsys: pytest.CaptureFixture[str], **names: Any) -> None:
        self._data, self._work, self._capsys, self._names = data, work, capsys, names
        self._state = data / ".exported"
        self._printed = ""

    def do(self, block: Block) -> None:
        """Raises AssertionError, with the page and the line, for what does not do what is said there."""
        self._capsys.readouterr()
        doing: dict[str, Callable[[Block], None]] = {
            "python": self._run, "file": self._write, "sh": self._type, "text": self._compare,
        }  # fmt: skip
        doing[block.kind](block)

    def _placed(self, text: str) -> str:
        """The text with the places of this test."""
        text = _PORT.sub(":0", text)
        return _OWN.sub(lambda found: f"{self._data}/" if found[0] == "/data/" else f"{self._work}/build/", text)

    def _run(self, block: Block) -> None:
        source = "\n" * (block.line - 1) + self._placed(block.text)
        exec(compile(source, block.page, "exec"), self._names)
        self._printed = self._capsys.readouterr().out

    def _write(self, block: Block) -> None:
        path = self._work / block.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._placed(block.text), encoding="utf-8")
        self._printed = ""

    def _type(self, block: Block) -> None:
        self._printed = ""
        for command in _commands(block.text):
            job = _JOB.match(command)
            if job is not None and (PROJECT / "jobs" / f"{job[1]}.py").exists():
                self._printed += self._job(job[1], shlex.split(self._placed(job[2])))
            else:
                self._printed += self._typed(self._placed(command), block)

    def _typed(self, command: str, block: Block) -> str:
        before = self._state.read_text(encoding="utf-8") if self._state.exists() else ""
        script = f"{before}\n{command}\n{_STATE}"
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "RMQ_STATE": str(self._state),
            "COLUMNS": "120", "PYTHONPATH": str(PROJECT),
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, env=environment, cwd=self._work, timeout=600,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.where}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _job(self, name: str, arguments: list[str]) -> str:
        status = importlib.import_module(f"jobs.{name}").main(arguments)
        assert status in (0, None), f"{name} {arguments}: {status}"
        return self._capsys.readouterr().out

    def _compare(self, block: Block) -> None:
        printed = self._printed.replace(str(self._data), "/data").replace(f"{self._work}/", "")
        assert shows(block.text, printed), f"{block.where} says\n{block.text}\nand it is\n{printed}"


def _commands(text: str) -> list[str]:
    """The commands of a block; one that goes on after a backslash, or in quotes, is one."""
    commands, begun = [], ""
    for line in text.splitlines():
        begun += line + "\n"
        try:
            shlex.split(begun, comments=True)
        except ValueError:
            continue
        if not line.endswith("\\"):
            commands.append(begun)
            begun = ""
    assert not begun.strip(), f"it ends in the middle of a command: {begun}"
    return [command for command in commands if shlex.split(command, comments=True)]
