"""Spark, as this environment would start it: which versions, whether they fit together, whether workers find the
source."""

import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

from rmqstore.cli.doctor.finding import Fact
from rmqstore.cli.doctor.machine import numbers_of, version_of
from rmqstore.cli.doctor.pyspark_zip import ANSWER_S, worker_program, zip_facts

_AREA = "Spark"
_NAME_ANSWER_S = 5.0
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


# Spark 4 needs the first; its releases are made and tried on these.
_JAVA_LEAST, _JAVA_TRIED = 17, 21
_TRIED = "Programming Language :: Python :: "
_ARROW_LEAST = re.compile(r"pyarrow\s*>=\s*(\d+)")


def spark_facts() -> Iterator[Fact]:
    """The facts; without PySpark that one alone."""
    version = version_of("pyspark")
    if version is None:
        advice = "pip install 'rmqstore[spark]'; everything else works without"
        yield Fact(_AREA, "pyspark", "is not installed", "odd", advice)
        return
    if numbers_of(version) < (4, 0):
        yield Fact(_AREA, "pyspark", version, "broken", "the source needs 4.0 or newer: pip install -U 'pyspark>=4,<5'")
        return
    yield Fact(_AREA, "pyspark", version)
    yield _java(version)
    yield from _libraries_that_fit(version)
    yield _worker()
    yield from zip_facts()
    yield _host_name()


def _java(version: str) -> Fact:
    java, where = java_version()
    set_it = f"install a JDK {_JAVA_LEAST} or {_JAVA_TRIED}, and export JAVA_HOME"
    if java is None:
        return Fact(_AREA, "Java", where, "broken", set_it)
    if java < _JAVA_LEAST:
        return Fact(_AREA, "Java", f"{java} ({where}); Spark {version} needs {_JAVA_LEAST}", "broken", set_it)
    if java > _JAVA_TRIED:
        return Fact(
            _AREA, "Java", f"{java} ({where})", "odd", f"newer than what Spark is tried on: if it fails, {set_it}"
        )
    return Fact(_AREA, "Java", f"{java} ({where})")


def _libraries_that_fit(version: str) -> Iterator[Fact]:
    """The faults of this Python and with pyarrow, by what the installed PySpark says that it needs."""
    said = importlib.metadata.metadata("pyspark")
    tried = [text.removeprefix(_TRIED) for text in said.get_all("Classifier") or () if text.startswith(f"{_TRIED}3.")]
    present = ".".join(map(str, sys.version_info[:2]))
    if tried and present not in tried:
        yield Fact(
            _AREA, "Python", present, "odd", f"PySpark {version} is made for Python {', '.join(tried)}: use one of them"
        )
    found = _ARROW_LEAST.search(" ".join(said.get_all("Requires-Dist") or ()))
    arrow = version_of("pyarrow")
    if found is not None and arrow is not None and numbers_of(arrow) < (int(found[1]),):
        yield Fact(_AREA, "pyarrow", arrow, "broken", f"PySpark {version} needs {found[1]}: pip install -U pyarrow")


def java_version() -> tuple[int | None, str]:
    """The version of the Java that Spark would start, and its path; None, and the reason."""
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    if program is None:
        return None, "there is no java on PATH, and no JAVA_HOME"
    try:
        done = subprocess.run(  # noqa: S603  the Java that Spark starts as well
            [program, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        said = error.strerror if isinstance(error, OSError) else "it does not answer"
        return None, f"{program} cannot be run: {said}"
    found = _JAVA_VERSION.search(done.stderr + done.stdout)
    return (None, f"{program} does not tell its version") if found is None else (int(found[1]), program)


def _worker() -> Fact:
    """Whether the Python that Spark's workers run has the source."""
    program, called = worker_program()
    advice = f"export PYSPARK_PYTHON={sys.executable}"
    try:
        done = subprocess.run(  # noqa: S603  the Python that Spark starts as well
            [program, "-c", "import pyspark_rmqstore, sys; print(*sys.version_info[:2])"], capture_output=True,
            text=True, timeout=ANSWER_S, check=False, cwd="/", errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        said = error.strerror if isinstance(error, OSError) else "it does not answer"
        return Fact(_AREA, "workers", f"{called} cannot be run: {said}", "broken", advice)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Fact(_AREA, "workers", f"{called} cannot import the source: {why}", "broken", advice)
    version = tuple(map(int, done.stdout.split()))
    if version != sys.version_info[:2]:
        said = f"{called} is Python {'.'.join(map(str, version))}, and this one is another"
        return Fact(_AREA, "workers", said, "broken", advice)
    return Fact(_AREA, "workers", f"{called} imports the source")


def _host_name() -> Fact:
    """Whether the host's name resolves, which Spark's driver needs; asked for no longer than a few seconds."""
    name = socket.gethostname()
    given = os.environ.get("SPARK_LOCAL_IP")
    if given:
        return Fact(_AREA, "host name", f"{name}; SPARK_LOCAL_IP={given}")
    found: list[str] = []

    def look() -> None:
        try:
            found.append(socket.gethostbyname(name))
        except (OSError, UnicodeError):
            return

    asking = threading.Thread(target=look, daemon=True)
    asking.start()
    asking.join(_NAME_ANSWER_S)
    if found:
        return Fact(_AREA, "host name", f"{name} is {found[0]}")
    advice = f"export SPARK_LOCAL_IP=127.0.0.1, or name {name} in /etc/hosts"
    return Fact(_AREA, "host name", f"{name} does not resolve", "broken", advice)
