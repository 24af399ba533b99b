"""kill -9 for real: a process with threads, on the machine's own file system.  `make crash N=20`: so much oftener."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.strides import ROUNDS

pytestmark = [pytest.mark.deep, pytest.mark.crash]

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(("part", "log"), [(0, "plain"), (1, "plain"), (2, "ledger")])
def test_no_acknowledged_message_is_lost_when_its_writer_is_killed(tmp_path: Path, part: int, log: str):
    cycles = (150 if log == "plain" else 100) * ROUNDS
    seed = int.from_bytes(os.urandom(4)) if ROUNDS > 1 else part
    command = [sys.executable, "-m", "tests.crash.killed_writer", str(tmp_path), str(cycles), str(seed), log]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600 * ROUNDS, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["failure"] is None, f"seed {seed}: {answer['failure']}"
    assert answer["cycles"] == cycles
    assert answer["acknowledged"] > cycles
