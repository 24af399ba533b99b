"""How a part runs, and how it ends: with an environment of its own, in a session of its own, and never by hanging.

What a user's shell exports changes no outcome: see `clean`.  Whatever ends the ladder, or a part, ends all processes
that the part started.  What its tests write is in memory: see `memory_for_files`.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

import pytest

from tests.ladder.times import Keeper

PROJECT = Path(__file__).parents[2]
# The exit status of a run of pytest that the watch has ended.
HUNG = 70
# How long processes have to end by themselves before they are killed.
GRACE_S = 10.0

# Linux keeps the files of this directory in memory.  The tests of two workers hold some hundred MiB at a time.
MEMORY, ROOM_MIN = Path("/dev/shm"), 4 << 30

# Each of these changes what programs print, which tests pytest takes, or which Python and Spark a test starts; with
# PYTHONDONTWRITEBYTECODE each of the hundreds of processes that tests start would compile the package again.
_DROPPED = {
    "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE",
    "COLUMNS", "LINES", "JUPYTER_COLUMNS", "JUPYTER_LINES", "CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "TF_BUILD",
    "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL",
}  # fmt: skip
# `PYTHON` itself says which Python to set up with, and is kept.
_DROPPED_BEGINNINGS = ("PYTHON", "PYTEST_", "HYPOTHESIS_", "RMQSTORE_", "_RMQSTORE_")
# They say where files go, which run is repeated, or ask for more; no test is left out by any of these.
_KEPT = {"PYTHON", "RMQSTORE_BENCH_DIR", "RMQSTORE_CONFORMANCE_SEED", "RMQSTORE_MUST_MOUNT"}


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a part: without what would change the outcome of a test.

    Of PYTHONPATH only this project stays: a checkout can be tested with the packages of another.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name in _KEPT or not (name in _DROPPED or name.startswith(_DROPPED_BEGINNINGS))
    }
    if str(PROJECT) in environment.get("PYTHONPATH", "").split(os.pathsep):
        kept["PYTHONPATH"] = str(PROJECT)
    return kept


@contextmanager
def memory_for_files(
    environment: Mapping[str, str], memory: Path = MEMORY, room_min: int = ROOM_MIN
) -> Iterator[dict[str, str]]:
    """The environment with a TMPDIR in memory, which is gone at the end: half of the time of tests is waiting for a
    disk.  It stays as it is where it has a TMPDIR, and where memory holds no such files, or too few: outside of Linux,
    or in a small container.
    """
    if "TMPDIR" in environment or not _has_room(memory, room_min):
        yield {**environment}
        return
    with tempfile.TemporaryDirectory(prefix="rmqstore-tests-", dir=memory, ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)  # some tests look at their files as another user
        yield {**environment, "TMPDIR": directory}


def _has_room(directory: Path, room_min: int) -> bool:
    return os.access(directory, os.W_OK) and shutil.disk_usage(directory).free >= room_min


def status_of(command: Sequence[str], environment: Mapping[str, str], directory: Path = PROJECT) -> int:
    """The exit status of a command, which has no other environment; no process of its session outlives this call."""
    process = subprocess.Popen(command, cwd=directory, env=dict(environment), start_new_session=True)
    _keep_nice(process.pid)
    number = signal.SIGTERM
    try:
        return process.wait()
    except SystemExit as ended:
        number = signal.SIGINT if ended.code == _code(signal.SIGINT) else signal.SIGTERM
        raise
    finally:
        _end(process, number)


def _keep_nice(process: int) -> None:
    """Linux shares its processors between sessions first, and a new one begins at nice 0, whatever started it."""
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)), encoding="ascii")


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Ends the group of a process: by a signal first, which lets pytest print what it has, then by force."""
    with suppress(ProcessLookupError):  # when the group is empty
        os.killpg(process.pid, number)
        last_s = monotonic() + GRACE_S
        while monotonic() < last_s:
            process.poll()
            os.killpg(process.pid, 0)
            sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_by_signals() -> None:
    """From now on SIGTERM, SIGINT and SIGHUP end this program as SystemExit of 128 + their number."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def end(number: int, _frame: FrameType | None) -> None:
        for each in numbers:  # what ends its processes is not interrupted
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(_code(number))

    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, end)


def _code(number: int) -> int:
    return 128 + number


class Watch:
    """A plugin of pytest that ends a run in which nothing happens for `limit_s`: no test began, none ended.

    The tests that were running are kept as `hung`.  With xdist it watches the whole run.
    """

    def __init__(self, keeper: Keeper, limit_s: float, end: Callable[[int], object] = os._exit) -> None:
        self._keeper = keeper
        self._limit_s = limit_s
        self._end = end
        self._running: dict[str, None] = {}
        self._has_moved = threading.Event()
        self._is_over = False

    def pytest_sessionstart(self) -> None:
        """Begins to watch."""
        threading.Thread(target=self.watch, daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Takes in that a test begins."""
        self._running[nodeid] = None
        self._has_moved.set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes in what a test has done; a test whose worker died has one report, and no end."""
        if report.when not in ("setup", "call"):
            self._running.pop(report.nodeid, None)
        self._has_moved.set()

    def pytest_unconfigure(self) -> None:
        """Stops watching."""
        self._is_over = True
        self._has_moved.set()

    def watch(self) -> None:
        """Returns when the run is over, or when it was ended."""
        while self._has_moved.wait(self._limit_s):
            self._has_moved.clear()
            if self._is_over:
                return
        self._keeper.hung([*self._running])
        self._end(HUNG)
