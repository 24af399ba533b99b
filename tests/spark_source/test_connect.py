"""The source through Spark Connect."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore.snapshot.columns import DEFAULT_COLUMNS

pytestmark = [pytest.mark.deep, pytest.mark.spark]

RUN_SECONDS_MAX = 600


def test_connect_reads_the_same_rows_and_tells_the_same_mistakes(store, topic, worker_environment, tmp_path):
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("connect_read.py")), str(store), topic],
        env=worker_environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    seen = json.loads(run.stdout.splitlines()[-1])
    rows = rmqstore.open_snapshot(store).scan(topics=[topic], columns=["queueId", "queueOffset"]).read_all()
    assert seen["count"] == rows.num_rows
    assert seen["columns"] == list(DEFAULT_COLUMNS)
    assert seen["places"] == sorted([row["queueId"], row["queueOffset"]] for row in rows.to_pylist())
    assert "unknown option 'subcribe': did you mean subscribe" in seen["mistake"]
    assert "Traceback" not in seen["mistake"]
