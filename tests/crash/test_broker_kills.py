"""kill -9 for real, of programs with delays, transactions and a consumer.  `make crash N=20`: so much oftener."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.strides import ROUNDS

pytestmark = [pytest.mark.deep, pytest.mark.crash]

PROJECT = Path(__file__).parents[2]


def test_no_promise_is_broken_when_its_program_is_killed(tmp_path: Path):
    cycles = 40 * ROUNDS
    seed = int.from_bytes(os.urandom(4)) if ROUNDS > 1 else 1
    command = [sys.executable, "-m", "tests.crash.broker_killed_writer", str(tmp_path), str(cycles), str(seed)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=600 * ROUNDS, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["failure"] is None, f"seed {seed}: {answer['failure']}"
    assert answer["cycles"] == cycles
    assert min(answer[each] for each in ("delayed", "decided", "got")) > cycles, answer
