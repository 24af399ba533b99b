"""A disk that is really small, and full: the plan, the deleting and the refusing on a file system of 48 MiB.

The disk is a tmpfs in a namespace of its own (util-linux: unshare), so that nobody needs to be root.  Containers often
refuse even that; `make crash` and who sets RMQSTORE_MUST_MOUNT want these tests to run.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stores

DISK_SIZE = "48m"
MOUNT = f'mount -t tmpfs -o size={DISK_SIZE} rmqstore "$1"'


@pytest.fixture
def run_on_small_disk(tmp_path):
    """Runs a scenario of small_disk.py on a disk of its own; its answer."""
    probe = ["unshare", "-r", "-m", "sh", "-c", MOUNT, "sh", str(tmp_path)]
    refused = (
        subprocess.run(probe, capture_output=True, text=True, check=False).stderr
        if shutil.which("unshare")
        else "no unshare"
    )
    if refused:
        assert "RMQSTORE_MUST_MOUNT" not in os.environ, refused
        pytest.skip(f"this system lets nobody mount a disk of his own: {refused.strip()}")

    def run(scenario: str) -> dict:
        command = f'{MOUNT} && mkdir "$1/store" && exec "$2" -m tests.store.small_disk "$1/store" "$3"'
        done = subprocess.run(
            ["unshare", "-r", "-m", "sh", "-c", command, "sh", str(tmp_path), sys.executable, scenario],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2], timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_disk_that_fills_up_is_cleaned_while_it_is_written_and_read(run_on_small_disk):
    found = run_on_small_disk("retained")
    assert found["statuses"].keys() == {"PUT_OK"}, "cleaning at 85 % keeps ahead of 90 %, where puts are refused"
    assert found["fullest"] < 0.92
    assert found["rose"]
    assert found["first"] > 1000
    assert found["whole"]
    assert found["planned"] > 10
    assert found["plan"], "what is deleted is what the plan says"
    assert found["again"]
    assert "orders" in found["reader"], "a reader whose files go says which messages it misses"


def test_a_disk_that_is_full_refuses_and_keeps_what_was_acknowledged(run_on_small_disk):
    found = run_on_small_disk("filled")
    assert found["statuses"] == {"PUT_OK": found["accepted"], "CREATE_MAPPED_FILE_FAILED": 3}
    assert found["accepted"] > 1000
    assert found["whole"]
    assert (found["after"], found["again"]) == ("PUT_OK", True)
    assert found["first"] > 0
