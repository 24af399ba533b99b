"""Real brokers in DLedger mode, converted from an ordinary log: read running, killed and stopped."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.broker import RELEASES, RELEASES_OF_5

_PROJECT = Path(__file__).parents[2]
_OWN_NETWORK = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "-"]
_PATIENCE_S = 400.0


def own_network() -> list[str]:
    """The command before one that is to have only a loopback of its own; nothing where the system lets nobody."""
    try:
        subprocess.run([*_OWN_NETWORK, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return _OWN_NETWORK


@pytest.mark.parametrize("rocketmq", RELEASES, ids=lambda rocketmq: rocketmq.release)
def test_a_broker_that_goes_over_to_dledger_is_read_through_its_life(rocketmq, tmp_path):
    command = [
        *own_network(),
        sys.executable,
        "-m",
        "tests.conformance.ledger_reading",
        rocketmq.release,
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=_PROJECT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["acked"] >= 360
    assert told["looks"] >= 10


@pytest.mark.parametrize("rocketmq", RELEASES_OF_5, ids=lambda rocketmq: rocketmq.release)
def test_a_dledger_node_and_ours_take_turns(rocketmq, tmp_path):
    """DLedger 0.3.3.4 and 0.3.1.2."""
    arguments = [rocketmq.release, "11", str(tmp_path)]
    command = [*own_network(), sys.executable, "-m", "tests.conformance.ledger_node", *arguments]
    done = subprocess.run(command, cwd=_PROJECT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["entries"] > 180
