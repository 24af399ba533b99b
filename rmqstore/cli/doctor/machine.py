"""Facts about this machine: Python and its libraries, memory, limits, the terminal, the clock."""

import importlib
import importlib.metadata
import locale
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rmqstore import __version__
from rmqstore.cli.doctor.finding import Fact
from rmqstore.cli.output import byte_size

_AREA = "machine"
_LIBRARIES = {"pyarrow": (18,), "numpy": (1, 26), "zlib-ng": (1, 0)}
_MODULES = {"zlib-ng": "zlib_ng"}
# The extras, but Spark's and the notebooks', and the library that each brings.
_EXTRAS = {
    "metrics": "prometheus_client",
    "avro": "fastavro",
    "protobuf": "protobuf",
    "rocksdb": "rocksdict",
    "iceberg": "pyiceberg",
    "delta": "deltalake",
}
_MEMORY_LEAST = 1024**3
_FILES_LEAST = 1024
# 2026-01-01: an earlier clock is wrong, as rmqstore is younger.
_FIRST_YEAR_S = 1_767_225_600


def machine_facts() -> Iterator[Fact]:
    """The facts, in the order in which they are read."""
    yield Fact(_AREA, "rmqstore", __version__)
    yield Fact(_AREA, "Python", f"{platform.python_version()} ({sys.executable})")
    yield from _libraries()
    yield Fact(_AREA, "system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield _cores()
    yield _memory()
    yield _open_files()
    yield _encoding()
    yield _clock()


def version_of(name: str) -> str | None:
    """The version of an installed distribution; None where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def numbers_of(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _libraries() -> Iterator[Fact]:
    for name, least in _LIBRARIES.items():
        version = version_of(name)
        wanted = ".".join(map(str, least))
        mend = f"pip install '{name}>={wanted}'"
        if version is None:
            yield Fact(_AREA, name, "is not installed", "broken", mend)
        elif numbers_of(version) < least:
            yield Fact(_AREA, name, f"{version}, and {wanted} is wanted", "broken", mend)
        elif (failure := _import_failure(_MODULES.get(name, name))) is not None:
            yield Fact(_AREA, name, f"{version} cannot be imported: {failure}", "broken", f"pip install -U {name}")
        else:
            yield Fact(_AREA, name, version)
    there = [f"{name} {version}" for name in _EXTRAS.values() if (version := version_of(name)) is not None]
    yield Fact(_AREA, "extras", ", ".join(there) or f"none ({', '.join(_EXTRAS)})")


def _import_failure(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return None


def _cores() -> Fact:
    return Fact(
        _AREA, "cores", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    )


def _memory() -> Fact:
    """Memory that can be had: of the machine, or of the container if that has less."""
    found = _numbers_in("/proc/meminfo", "MemAvailable:", 1024)
    limit = _numbers_in("/sys/fs/cgroup/memory.max", "", 1)
    known = [size for size in (found, limit) if size is not None]
    if not known:
        return Fact(_AREA, "memory", "unknown")
    of_container = limit is not None and limit == min(known)
    said = f"{byte_size(min(known))} {'of the container' if of_container else 'available'}"
    if min(known) < _MEMORY_LEAST:
        return Fact(_AREA, "memory", said, "odd", "Spark wants 1 GiB and more: --driver-memory says how much it takes")
    return Fact(_AREA, "memory", said)


def _numbers_in(path: str, begins: str, unit: int) -> int | None:
    """The number on the line that begins so."""
    try:
        lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        number = line.removeprefix(begins).split()[:1] if line.startswith(begins) else []
        if number and number[0].isdigit():
            return int(number[0]) * unit
    return None


def _open_files() -> Fact:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    if soft != resource.RLIM_INFINITY and soft < _FILES_LEAST:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        return Fact(_AREA, "open files", said, "odd", f"ulimit -n 4096 (at the most {most} here)")
    return Fact(_AREA, "open files", said)


def _encoding() -> Fact:
    encoding = getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(do_setlocale=False)
    said = f"{encoding}, TERM={os.environ.get('TERM', '')!r}"
    if encoding.lower().replace("-", "") != "utf8":
        return Fact(_AREA, "terminal", said, "odd", "other characters become ?: export LC_ALL=C.UTF-8")
    return Fact(_AREA, "terminal", said)


def _clock() -> Fact:
    said = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) + f", zone {'/'.join(time.tzname)}"
    if time.time() < _FIRST_YEAR_S:
        return Fact(_AREA, "clock", said, "broken", "set the clock: messages get their store times from it")
    return Fact(_AREA, "clock", said)
