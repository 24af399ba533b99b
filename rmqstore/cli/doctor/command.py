"""`rmqstore doctor`: facts of this machine and of stores, and what to do about each problem."""

import fcntl
import importlib.metadata
import mmap
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator

import click

from rmqstore.cli.doctor.compiled_home import write_home
from rmqstore.cli.doctor.finding import Fact
from rmqstore.cli.doctor.machine import machine_facts, numbers_of, version_of
from rmqstore.cli.doctor.pyspark_zip import ANSWER_S, worker_program, zip_facts
from rmqstore.cli.doctor.stores import store_facts
from rmqstore.cli.output import counted, debug_option, print_json, printable, wrapped
from rmqstore.directory.store_root import found_store
from rmqstore.errors import StoreError, in_one_line

# --- Facts that need a test: locks, maps, sparse files and syncs, in a temporary directory beside a store.

_SIZE = 4 * 1024 * 1024
_SYNCS = 15
# Seconds of a sync: no disk is faster, nor a battery-backed cache on a bus.
_SYNC_LEAST_S = 5e-6
_TAKE = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
_PATIENCE_S = 60.0


def tried_facts(given: str) -> Iterator[Fact]:
    """The facts of the file system beside a store, which itself is not touched.  What is made is removed again."""
    try:
        area = found_store(given, may_be_ledger=True)
    except StoreError:  # told already
        return
    beside = os.path.dirname(area)
    try:
        with tempfile.TemporaryDirectory(prefix=".rmqstore-doctor-", dir=beside) as directory:
            path = os.path.join(directory, "tried")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                yield _sparse(area, descriptor)
                yield _mapped(area, descriptor)
                yield _locked(area, descriptor, path)
                yield _synced(area, descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        yield Fact(
            area,
            "tried",
            f"no directory can be created in {beside}: {error.strerror}",
            "odd",
            "run as a user who may write there",
        )


def _sparse(area: str, descriptor: int) -> Fact:
    os.ftruncate(descriptor, _SIZE)
    if os.fstat(descriptor).st_blocks * 512 < _SIZE:
        return Fact(area, "sparse files", "tried: a file that is created ahead takes no room")
    return Fact(
        area, "sparse files", "tried: none", "odd", "each file that is created ahead takes its whole size at once"
    )


def _mapped(area: str, descriptor: int) -> Fact:
    try:
        with mmap.mmap(descriptor, _SIZE) as page:
            os.pwrite(descriptor, b"written", 100)
            is_seen = page[100:107] == b"written"
    except OSError as error:
        return Fact(area, "mmap", f"tried: refused ({error.strerror})", "odd", "read with access='pread'")
    if is_seen:
        return Fact(area, "mmap", "tried: works, and sees what is written")
    return Fact(area, "mmap", "tried: does not see what is written", "broken", "read with access='pread'")


def _locked(area: str, descriptor: int, path: str) -> Fact:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        return Fact(area, "locks", f"tried: refused ({error.strerror})", "broken", "no store can be written here")
    done = subprocess.run(  # noqa: S603  this very Python
        [sys.executable, "-c", _TAKE, path], capture_output=True, timeout=_PATIENCE_S, check=False
    )
    if done.returncode:
        return Fact(area, "locks", "tried: keep a second process out")
    return Fact(
        area,
        "locks",
        "tried: a second process gets the same locks",
        "broken",
        "write to a store here from one program alone",
    )


def _synced(area: str, descriptor: int) -> Fact:
    took_s = []
    for number in range(_SYNCS):
        os.pwrite(descriptor, b"%d" % number, number * 4096)
        began_s = time.perf_counter()
        os.fsync(descriptor)
        took_s.append(time.perf_counter() - began_s)
    middle_s = statistics.median(took_s)
    said = f"tried: {middle_s * 1000:.3f} ms, as the median of {_SYNCS}"
    if middle_s < _SYNC_LEAST_S:
        return Fact(
            area, "fsync", said, "odd", "no disk is that fast: a power cut may lose messages that were acknowledged"
        )
    return Fact(area, "fsync", said)


# ---

# --- Spark, as this environment would start it: which versions, whether they fit together, whether workers find the
# source.

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
            _AREA, "Python", present, "odd", f"PySpark {version} supports Python {', '.join(tried)}: use one of them"
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
        said = error.strerror if isinstance(error, OSError) else "it does not finish"
        return None, f"{program} cannot be run: {said}"
    found = _JAVA_VERSION.search(done.stderr + done.stdout)
    return (None, f"{program} does not print its version") if found is None else (int(found[1]), program)


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
        said = error.strerror if isinstance(error, OSError) else "it does not finish"
        return Fact(_AREA, "workers", f"{called} cannot be run: {said}", "broken", advice)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Fact(_AREA, "workers", f"{called} cannot import the source: {why}", "broken", advice)
    version = tuple(map(int, done.stdout.split()))
    if version != sys.version_info[:2]:
        said = f"{called} is Python {'.'.join(map(str, version))}, this command runs another version"
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


# ---

_EXAMPLE = """\b
Examples:
  rmqstore doctor
  rmqstore doctor /data/rocketmq/store --json
  rmqstore doctor --write-pyspark-zip ~/spark-compiled
"""
_MARKS = {"good": "  ", "odd": "? ", "broken": "! "}
_NAME_WIDTH = 15


@click.command("doctor", epilog=_EXAMPLE, short_help="Show what this machine lacks, and what to do about it.")
@click.argument("stores", metavar="[STORE]...", nargs=-1)
@click.option(
    "--try", "tries", is_flag=True,
    help="Test locks, maps, sparse files and syncs in a temporary directory beside each STORE.",
)  # fmt: skip
@click.option(
    "--write-pyspark-zip", "home", metavar="DIR",
    help="Write a pyspark.zip with compiled modules into DIR, a new SPARK_HOME of links to the installed one, or the "
        "installed SPARK_HOME itself.  Nothing else is checked.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
@debug_option
@click.pass_context
def doctor(ctx: click.Context, stores: tuple[str, ...], tries: bool, home: str | None, as_json: bool) -> None:
    """Look whether this machine can do what rmqstore asks of it, and what stands in the way.

    Versions, and whether Spark's fit together; memory, limits, the terminal; of each STORE its disk, who writes to it
    and its state. ? is a drawback, ! is broken: then the exit status is 1. Nothing is written to a STORE.
    """
    if tries and not stores:
        raise click.UsageError("--try needs a STORE: the tests run beside it")
    if home is not None and stores:
        raise click.UsageError("--write-pyspark-zip takes no STORE")
    facts = list(write_home(home)) if home is not None else [*machine_facts(), *spark_facts()]
    for store in dict.fromkeys(stores):
        facts += store_facts(store)
        if tries:
            facts += tried_facts(store)
    broken = sum(fact.state == "broken" for fact in facts)
    if as_json:
        print_json({"isSound": not broken, "facts": [fact._asdict() for fact in facts]})
    else:
        _show(facts)
        odd = sum(fact.state == "odd" for fact in facts)
        said = f"{counted(broken, 'problem')}, {counted(odd, 'drawback')}"
        click.echo("all is well" if not broken and not odd else said)
    ctx.exit(1 if broken else 0)


def _show(facts: Iterable[Fact]) -> None:
    area = None
    for fact in facts:
        if fact.area != area:
            click.echo(printable(in_one_line(fact.area)))
            area = fact.area
        head = f"{_MARKS[fact.state]}{fact.name:{_NAME_WIDTH}} "
        click.echo(wrapped(head, in_one_line(fact.value)))
        if fact.advice:
            click.echo(wrapped(" " * len(head) + "-> ", in_one_line(fact.advice)))
