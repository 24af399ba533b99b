"""Stores that nobody has seen before: RocketMQ writes them now, with a new seed, answers, and our reader is held to
its answers.

The golden tests run on the new stores.  RMQSTORE_CONFORMANCE_SEED repeats a run; needs the oracle (`make conformance`).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqstore import Message, open_snapshot
from tests.conformance.java import java_put, jvm
from tests.conformance.workload import JAVA_SIZES, as_request

PROJECT = Path(__file__).parents[2]
ORACLE = PROJECT / "tests" / "oracle"
CASES = [
    pytest.param("5.3.3", ("killed", "batchcq_mixed"), id="5.3.3"),
    pytest.param("4.9.8", ("killed",), id="4.9.8"),
    pytest.param("5.3.3", ("sysflags", "batchflags"), id="5.3.3-flags", marks=pytest.mark.java),
    pytest.param("5.3.3", ("batchcq", "crcprop", "deleted_head"), id="5.3.3-others"),
    pytest.param("4.9.8", ("sysflags", "batchflags"), id="4.9.8-others"),
    pytest.param("5.5.1", ("basic", "lite", "batch", "tagindex"), id="5.5.1"),
]
_OWN_TABLE = "tests/golden/test_queues.py::test_the_table_of_departures_holds_no_case_too_many"


def _run(command: list[str], environment: dict[str, str], what: str) -> str:
    """Runs a command to its end; its output becomes the message when it fails."""
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{what}\n{done.stdout[-8000:]}", pytrace=False)
    return done.stdout


@pytest.mark.parametrize(("version", "cases"), CASES)
def test_new_stores_read_as_java_reads_them(version: str, cases: tuple[str, ...], seed: str, tmp_path: Path) -> None:
    """Rows, queues, entries, keys and times of new stores, sound, killed and damaged."""
    again = f"RMQSTORE_CONFORMANCE_SEED={seed} repeats this"
    for case in cases:
        make = [
            sys.executable,
            str(ORACLE / "make_golden.py"),
            "--out",
            str(tmp_path),
            "--seed",
            seed,
            "--version",
            version,
        ]
        _run(
            [*make, "--case", case],
            {"PYTHONDONTWRITEBYTECODE": "1"},
            f"RocketMQ {version} wrote no store {case}; {again}",
        )
    # The writer's recovery: test_engine.  The table of departures is of the project's own stores.
    readers = ["tests/golden", "--ignore=tests/golden/test_recovery.py", f"--deselect={_OWN_TABLE}"]
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *readers, "-m", "not spark"]
    output = _run(
        tests,
        {"RMQSTORE_GOLDEN": str(tmp_path)},
        f"stores of RocketMQ {version} read otherwise than Java does; {again}",
    )
    assert " passed" in output


def test_a_follower_goes_on_while_releases_take_turns(tmp_path: Path) -> None:
    """An upgrade of the broker below a stream, and the way back: each message once, in the order of its queue."""
    store, after, places = tmp_path / "store", None, list[tuple[int, int]]()
    for turn, version in enumerate(("4.9.8", "5.3.3", "5.5.1", "5.3.3")):
        sent = [
            Message("orders", b"%d/%d" % (turn, each), queue_id=each % 3, born_timestamp_ms=1, born_host="127.0.0.1:1")
            for each in range(90)
        ]
        with jvm(version) as oracle:
            assert oracle.open(store, JAVA_SIZES, {})["load"]
            java_put(oracle, [as_request(message) for message in sent])
            oracle.call("settle")
            oracle.call("close")
        came = list(open_snapshot(store).follow(["orders"], start="earliest", after=after, wait_s=0))
        after = came[-1].offsets
        rows = [row for batch in came for row in batch.rows.to_pylist()]
        assert sorted(row["body"] for row in rows) == sorted(message.body for message in sent), version
        places += [(row["queueId"], row["queueOffset"]) for row in rows]
    for queue_id in range(3):
        assert [offset for each, offset in places if each == queue_id] == list(range(120))
