"""The `pyspark.zip` of a Spark installation, which Spark puts first on the path of its Python processes: what importing
it costs, and whether it holds modules that are compiled for the Python that workers run."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from glob import escape, glob
from typing import NamedTuple

from rmqstore.cli.doctor.finding import Fact

_AREA, _NAME = "Spark", "pyspark.zip"
ANSWER_S = 60.0
ZIP_PLACE = os.path.join("python", "lib", "pyspark.zip")
_WRITE = "rmqstore doctor --write-pyspark-zip DIR"
# What Spark starts for a stream; the others of its processes import about as much.
_MEASURE = "import time, pyspark.sql.streaming.python_streaming_source_runner; print(time.process_time())"
_ASK_MAGIC = "import importlib.util; print(importlib.util.MAGIC_NUMBER.hex())"
_VERSION = re.compile(rb"__version__(?::\s*\w+)?\s*=\s*['\"]([^'\"]+)")
_CORE_JAR = re.compile(r"spark-core_[0-9.]+-(.+)\.jar")


class ZipContent(NamedTuple):
    """A zip: its modules that count, how many of them are compiled, and for this Python; PySpark's version."""

    modules: int
    compiled: int
    for_this_python: int
    version: str | None


def is_module(name: str) -> bool:
    """Whether a member of the zip is a module that a process of Spark's may import: tests are none."""
    return name.endswith(".py") and "tests" not in name.split("/")


def worker_program() -> tuple[str, str]:
    """The Python that Spark would start for its workers, and how to call it in a sentence."""
    asked = os.environ.get("PYSPARK_PYTHON")
    program = shutil.which(asked or "python3") or asked or "python3"
    program = os.path.abspath(program) if "/" in program else program  # it is asked from elsewhere
    return program, f"{program} ({'PYSPARK_PYTHON' if asked else 'python3 on PATH'})"


def is_this_python(program: str) -> bool:
    """Whether a program takes modules that this Python compiled."""
    said = _said(program, _ASK_MAGIC, {})
    return said is not None and said.strip() == importlib.util.MAGIC_NUMBER.hex()


def spark_home() -> str | None:
    """The SPARK_HOME of this environment, as Spark's own scripts find it; None where no Spark has jars."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return os.path.abspath(given)
    spec = importlib.util.find_spec("pyspark")
    finder = (
        None
        if spec is None or spec.origin is None
        else os.path.join(os.path.dirname(spec.origin), "find_spark_home.py")
    )
    if finder is None or not os.path.isfile(finder):
        return None
    try:
        done = subprocess.run(  # noqa: S603  Spark's own script, by this very Python
            [sys.executable, finder], capture_output=True, text=True, timeout=ANSWER_S, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode else done.stdout.strip() or None


def zip_of(home: str) -> str:
    """Where an installation has the zip."""
    return os.path.join(home, ZIP_PLACE)


def content_of(path: str) -> ZipContent:
    """Raises OSError, zipfile.BadZipFile."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        modules = [name for name in names if is_module(name)]
        compiled = [f"{name}c" for name in modules if f"{name}c" in names]
        fitting = sum(_magic_of(archive, name) == importlib.util.MAGIC_NUMBER for name in compiled)
        found = _VERSION.search(archive.read("pyspark/version.py")) if "pyspark/version.py" in names else None
    return ZipContent(len(modules), len(compiled), fitting, found[1].decode(errors="replace") if found else None)


def _magic_of(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as member:
        return member.read(4)


def import_seconds(program: str, home: str) -> float | None:
    """CPU seconds of one process that imports what a stream's does, as Spark would start it; None where it fails."""
    found = sorted(glob(os.path.join(escape(os.path.join(home, "python", "lib")), "py4j-*-src.zip")))
    said = _said(program, _MEASURE, {"PYTHONPATH": os.pathsep.join([zip_of(home), *found])})
    try:
        return None if said is None else float(said)
    except ValueError:
        return None


def _said(program: str, text: str, more: dict[str, str]) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  the Python that Spark starts as well
            [program, "-c", text], capture_output=True, text=True, timeout=ANSWER_S, check=False, cwd="/",
            errors="replace", env={**os.environ, **more},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout


def zip_facts(home: str | None = None) -> Iterator[Fact]:
    """The price of importing PySpark for each stream and session, and how to pay less.  Nothing without a Spark."""
    home = spark_home() if home is None else home
    if home is None:
        return
    path = zip_of(home)
    if not os.path.isfile(path):
        yield Fact(_AREA, _NAME, f"there is none in {home}: Python imports the installed package")
        return
    try:
        content = content_of(path)
    except (OSError, zipfile.BadZipFile) as error:
        yield Fact(_AREA, _NAME, f"{path} cannot be read: {error}", "broken", "install PySpark again")
        return
    jars = jars_version(home)
    if jars is None or (content.version is not None and release_of(content.version) != release_of(jars)):
        said = (
            f"{path} is of PySpark {content.version}, the jars beside it {'are gone' if jars is None else f'of {jars}'}"
        )
        yield Fact(_AREA, _NAME, said, "broken", f"write it again ({_WRITE}), or leave SPARK_HOME unset")
        return
    yield _paid(path, content, worker_program()[0], home)


def jars_version(home: str) -> str | None:
    """Spark's version by the jars of an installation; None where they are gone, as links are after an upgrade."""
    jars = os.path.join(home, "jars")
    names = os.listdir(jars) if os.path.isdir(jars) else ()
    found = [
        match for name in names if (match := _CORE_JAR.fullmatch(name)) and os.path.exists(os.path.join(jars, name))
    ]
    return found[0][1] if found else None


def release_of(version: str) -> str:
    """The numbers of a version: a vendor's Spark calls itself 4.1.1+amzn.0 here and 4.1.1-amzn-0 there."""
    return version[: re.match(r"[0-9.]*", version).end()]  # type: ignore[union-attr]  # it fits anything


def _paid(path: str, content: ZipContent, program: str, home: str) -> Fact:
    taken_s = import_seconds(program, home)
    paid = "" if taken_s is None else f"{taken_s:.2f} s of CPU for each stream and several times a session; "
    if content.compiled and content.for_this_python < content.compiled:
        said = f"{paid}{path} has modules that another Python compiled: they are compiled each time"
        return Fact(_AREA, _NAME, said, "odd", f"write it again: {_WRITE}")
    if content.compiled < content.modules:
        has = (
            "no compiled modules"
            if not content.compiled
            else f"{content.compiled} of {content.modules} modules compiled"
        )
        saves = "" if taken_s is None else ": less than half of that"
        return Fact(_AREA, _NAME, f"{paid}{path} has {has}", "odd", f"{_WRITE} makes one with them{saves}")
    return Fact(_AREA, _NAME, f"{paid}{path} has {content.compiled} compiled modules")
