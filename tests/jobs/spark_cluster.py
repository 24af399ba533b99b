"""A standalone cluster of Spark on the loopback, in an environment in which this project is not installed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Self

START_SECONDS_MAX = 600
RUN_SECONDS_MAX = 600
HOST = "127.0.0.1"
# As README says: what has to be on the executors, and Spark itself with the library that it needs.
INSTALLED = ("numpy", "pyarrow", "zlib-ng", "pyspark", "py4j")


def bare_python(directory: Path) -> Path:
    """The Python of a new environment that has INSTALLED, as this one has them, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True, capture_output=True)
    (site,) = directory.glob("lib/python*/site-packages")
    for name in INSTALLED:
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or () if file.parts[0] != ".."}:
            (site / top).symlink_to(str(installed.locate_file(top)))
    return directory / "bin" / "python"


def environment(python: Path) -> dict[str, str]:
    """Variables by which Spark runs `python`, and of which none leads to this project."""
    foreign = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
    own = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    path = os.pathsep.join([str(python.parent), own.get("PATH", "")])
    pythons = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    return own | pythons | {"PATH": path, "SPARK_LOCAL_IP": HOST}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster: its address, and the environment that programs on it run in."""

    master: str
    python: Path
    directory: Path

    def submit(self, archive: Path, job: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A job by spark-submit, with the wheel shipped as README says."""
        conf = {"spark.ui.enabled": "false", "spark.driver.host": HOST, "spark.sql.shuffle.partitions": "2"}
        given = [part for name, text in conf.items() for part in ("--conf", f"{name}={text}")]
        command = [_script(self.python, "spark-submit"), "--master", self.master, *given, "--py-files", archive, job]
        return subprocess.run(
            [str(part) for part in (*command, *arguments)], env=environment(self.python), cwd=self.directory,
            capture_output=True, encoding="utf-8", timeout=RUN_SECONDS_MAX, check=False,
        )  # fmt: skip


@contextmanager
def standalone_cluster(python: Path, directory: Path, workers: int) -> Iterator[Cluster]:
    """A master and so many workers of one core each, on free ports; they end with the block."""
    with ExitStack() as running:
        master = running.enter_context(_Server(python, "org.apache.spark.deploy.master.Master"))
        (address,) = master.said(re.compile(rf"(spark://{HOST}:\d+)"))
        for number in range(workers):
            places = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"), address]
            running.enter_context(_Server(python, "org.apache.spark.deploy.worker.Worker", *places))
        for _ in range(workers):
            master.said(re.compile(r"(Registering worker)"))
        yield Cluster(address, python, directory)


class _Server:
    """A server of Spark's, and what it logs."""

    def __init__(self, python: Path, name: str, *arguments: str) -> None:
        places = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        command = [str(_script(python, "spark-class")), name, *places, *arguments]
        self._lines: Queue[str] = Queue()
        self._process = subprocess.Popen(
            command, env=environment(python), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
        )
        self._listener = Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(START_SECONDS_MAX)
        self._listener.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def said(self, wanted: re.Pattern[str]) -> tuple[str, ...]:
        """The groups of the next line that has `wanted` in it.  Raises queue.Empty when none comes in time."""
        while True:
            if found := wanted.search(self._lines.get(timeout=START_SECONDS_MAX)):
                return found.groups()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.put(line)


def _script(python: Path, name: str) -> Path:
    (pyspark,) = python.parents[1].glob("lib/python*/site-packages/pyspark")
    return pyspark / "bin" / name
