"""examples/replica: the unit and the image name options that there are, and end the command as it wants to be ended."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqstore.cli.replication.replicate import replicate

EXAMPLES = Path(__file__).parents[2] / "examples" / "replica"
UNIT = EXAMPLES / "rmqstore-replica.service"
DOCKERFILE = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(UNIT.read_text(encoding="utf-8"))
    return parsed


def taken(arguments: list[str]) -> dict[str, object]:
    """The options as the command takes them; it is not run."""
    return replicate.make_context("replicate", list(arguments)).params


def test_the_units_command_takes_its_options(unit: configparser.ConfigParser) -> None:
    program, command, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("rmqstore", "replicate")
    given = taken(arguments)
    assert given["namesrv"] == "${RMQ_NAMESRV}"
    assert unit["Service"]["Environment"].startswith("RMQ_NAMESRV=")
    assert given["target"] == f"/var/lib/{unit['Service']['StateDirectory']}"
    assert given["metrics"] == "9095"


def test_the_unit_ends_it_as_it_wants_to_be_ended(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert (service["KillSignal"], service["Restart"], service["RestartPreventExitStatus"]) == (
        "SIGTERM", "on-failure", "2",
    )  # fmt: skip
    assert service["User"] == "rmqstore"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("/opt/rmqstore/bin/rmqstore", sys.executable)
    (tmp_path / UNIT.name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / UNIT.name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert (ours, done.returncode) == ([], 0)


def test_the_images_command_takes_its_options() -> None:
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, command, *arguments = json.loads(entry)
    assert (program, command) == ("rmqstore", "replicate")
    given = taken([*arguments, "--namesrv", "10.0.0.1:9876"])
    assert (given["target"], given["open_to_network"]) == ("/data", True)
    (port,) = re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE)
    assert given["metrics"] == f"0.0.0.0:{port}"
    assert f"http://127.0.0.1:{port}/metrics" in DOCKERFILE
    assert re.search(r"^STOPSIGNAL SIGTERM$", DOCKERFILE, re.MULTILINE)
    assert re.search(r"^USER rmqstore$", DOCKERFILE, re.MULTILINE)
