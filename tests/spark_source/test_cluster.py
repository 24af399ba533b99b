"""A cluster of processes, the project shipped as its wheel."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import rmqstore
from tests.built_wheel import built_archive

pytestmark = [pytest.mark.spark, pytest.mark.deep]

RUN_SECONDS_MAX = 600


@pytest.fixture
def archive(project: Path, tmp_path: Path) -> Path:
    """The built wheel under a name that Spark imports from: it takes .zip, .egg and .jar, and not .whl."""
    return built_archive(project, tmp_path)


@pytest.fixture
def executor_logs_removed() -> Iterator[None]:
    """Removes what a local cluster leaves in Spark's own directory."""
    logs = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent)) / "work"
    before = set(logs.iterdir()) if logs.exists() else set()
    yield
    for left in set(logs.iterdir()) - before if logs.exists() else ():
        shutil.rmtree(left, ignore_errors=True)


@pytest.mark.usefixtures("executor_logs_removed")
def test_executors_read_with_the_shipped_wheel(archive, store, topic, worker_environment, tmp_path):
    copy = tmp_path / "stores" / "store"
    shutil.copytree(store, copy)
    program = shutil.copy(Path(__file__).with_name("cluster_read.py"), tmp_path)
    environment = {name: text for name, text in worker_environment.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, program, str(archive), str(copy), topic],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    seen = json.loads(run.stdout.splitlines()[-1])
    assert "rmqstore.zip" in seen["driver"]
    assert seen["executors"]
    assert all("rmqstore.zip" in origin for origin in seen["executors"])
    rows = rmqstore.open_snapshot(store).scan(topics=[topic], columns=["queueId", "queueOffset"]).read_all()
    assert seen["places"] == sorted([row["queueId"], row["queueOffset"]] for row in rows.to_pylist())
    line = next(line for line in seen["unseen"].splitlines() if "rmqstore.errors." in line)
    assert f"host {socket.gethostname()} cannot see this store" in line
    assert "mount it at the same path on every executor" in line
