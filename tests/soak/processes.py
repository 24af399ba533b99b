"""Child processes that speak in lines, and an end for them and theirs: by process id, whatever they are doing."""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Seconds without a word after which a child is taken for stuck.
PATIENCE_S = 120.0


class Child:
    """A program of this test; what it started itself is found by the system's own table of parents."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=dict(environment)
            )
        self._rest = b""

    def tell(self, command: Mapping[str, object]) -> None:
        """One command, as a line of JSON."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def line(self, within_s: float = PATIENCE_S) -> str | None:
        """The next line that it says; None if it says nothing in that time.  An AssertionError when it has ended."""
        assert self._process.stdout is not None
        until = time.monotonic() + within_s
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], max(until - time.monotonic(), 0))[0]:
                return None
            data = os.read(self._process.stdout.fileno(), 65536)
            assert data, self._errors.read_text()[-4000:]
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()

    def heard(self, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The next line, which is JSON; empty if there is none in that time."""
        line = self.line(within_s)
        return {} if line is None else json.loads(line)

    def close(self) -> None:
        """Closes its standard input, and waits for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0, self._errors.read_text()[-4000:]

    def descendants(self, *words: str) -> list[int]:
        """The processes that it started, and theirs, whose command line has all of the words."""
        return [pid for pid in _descendants(self._process.pid) if all(word in _command(pid) for word in words)]

    def kill(self) -> None:
        """Ends it and all that it started, at once."""
        for pid in [*_descendants(self._process.pid), self._process.pid]:
            kill(pid)
        self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def kill(pid: int) -> None:
    """Ends one process at once, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                # The name, in brackets, may hold anything; the parent is the second field behind it.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, ahead = [], [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
