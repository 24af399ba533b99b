"""The program `rmqstore` from its first moment to its last: Ctrl-C shows nobody a traceback, the shell completes it."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqstore import Message, open_store

pytestmark = pytest.mark.stores

PROGRAM = [sys.executable, "-c", "from rmqstore.command import main; main()"]
ENDS = (1, -signal.SIGINT)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("start") / "store"
    with open_store(path) as one:
        one.put(Message("orders", b"x"))
    return path


def has_handler(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the process catches SIGINT, as the interpreter does from its beginning until the program is imported."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << signal.SIGINT - 1)
    return False  # it has ended


def waited(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Lets the program go on for so long, or until it says something."""
    assert process.stderr is not None
    select.select([process.stderr], [], [], seconds)


@pytest.mark.host
@pytest.mark.parametrize("after_ms", [0, 50, 150, 300, 450, 700])
@pytest.mark.parametrize("arguments", [["tail", "-f"], ["verify"]])
def test_ctrl_c_at_any_moment_is_quiet(arguments: list[str], after_ms: int, store: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, arguments[0], str(store), *arguments[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    end_s = time.monotonic() + 60
    seen = False
    while time.monotonic() < end_s:  # the interpreter's own beginning is not ours
        caught = has_handler(process)
        if seen and not caught:
            break
        seen = seen or caught
    waited(process, after_ms / 1000)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert b"Traceback" not in said
    assert b"Exception ignored" not in said
    assert said.strip() in (b"", b"Aborted!")
    assert process.returncode in (*ENDS, 0)


@pytest.mark.host
def test_one_that_was_started_to_ignore_it_goes_on(store: Path) -> None:
    script = f'trap "" INT; exec "$0" -c "from rmqstore.command import main; main()" inspect {store}'
    process = subprocess.Popen(["sh", "-c", script, sys.executable], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(10):
        waited(process, 0.05)
        process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=600)
    assert (process.returncode, said) == (0, b"")
    assert b"orders" in shown


def test_the_program_says_its_version_before_it_imports_anything_that_takes_time() -> None:
    show = "import sys, rmqstore.command; print({'numpy', 'pyarrow', 'click'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.some(3)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_get_what_completes_it(shell: str, tmp_path: Path) -> None:
    (tmp_path / "rmqstore").symlink_to(Path(sys.executable).with_name("rmqstore"))
    environment = os.environ | {"_RMQSTORE_COMPLETE": f"{shell}_source"}
    done = subprocess.run([tmp_path / "rmqstore"], env=environment, capture_output=True, text=True, check=True)
    assert "_RMQSTORE_COMPLETE" in done.stdout
    assert done.stderr == ""


@pytest.mark.deep
def test_commands_and_options_are_completed() -> None:
    program = shutil.which("rmqstore", path=str(Path(sys.executable).parent))
    assert program is not None

    def completed(words: str) -> list[str]:
        environment = os.environ | {
            "_RMQSTORE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1),
        }  # fmt: skip
        done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("rmqstore p") == ["put"]
    assert {"serve", "serve-metrics"} <= {*completed("rmqstore serve")}
    assert "--keep-queues" in completed("rmqstore put /data --ke")
    assert {"avro", "json", "protobuf"} <= {*completed("rmqstore cat /data --decode ")}
