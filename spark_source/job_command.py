"""The common part of the jobs as commands: their arguments, their session, and where their rows go.

It stands here and not beside them because spark-submit runs a job as a script, which is in no package.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import rmqstore
from rmqstore.clock import SYSTEM_CLOCK
from rmqstore.core.arguments import moment_ms
from rmqstore.directory.queue_files import topic_directories
from rmqstore.directory.store_root import lies_about_a_store
from rmqstore.files.reading import LOCAL, canonical_path
from rmqstore.snapshot.plan.selection import topic_names
from rmqstore.snapshot.store_paths import stores_below
from spark_source import job_table

if TYPE_CHECKING:  # so that --help answers, and says what is missing, where there is no PySpark
    from pyspark.sql import DataFrame, SparkSession

_BY_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"  # it starts a program with this variable
FORMATS = ("parquet", "json", "csv")
_ROWS = 40
# RFC 4180: a header, and a quote in a value is doubled; a value may have several lines.
_CSV = {"header": "true", "escape": '"', "multiLine": "true"}
_INTERRUPTED = 130  # as shells say it
# The last line of a traceback of Python's, which Spark passes on whole.
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.*)$", re.MULTILINE)


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with the arguments that every job has: which store, and where the rows go."""
    parser = argparse.ArgumentParser(prog=f"{name}.py", description=description)
    parser.add_argument("--store", required=True, help="the store's directory, as the executors see it")
    parser.add_argument("--output", help="the directory to write, a path or URL; without it the rows are printed")
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help="the format of the files (default: %(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the output directory")
    parser.add_argument(
        "--rows", type=whole(0), default=_ROWS, metavar="N", help="print at most this many rows (default: %(default)s)"
    )
    return parser


def add_topics(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose messages: topics and times."""
    parser.add_argument(
        "--topic", type=given, help="a topic, or several separated by commas; by default all but system topics"
    )
    parser.add_argument(
        "--since", type=moment, help="stored at this time or later: ISO 8601 with a zone, ms, or an age such as 2h, 7d"
    )
    parser.add_argument("--until", type=moment, help="stored before this time")


def given(text: str) -> str:
    """An argument that says something."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: leave it out, or give a value")
    return text


def moment(text: str) -> str:
    """A time in ms, as Spark's options take it: given as ms, ISO 8601 with a zone, an age such as 2h, or a day."""
    try:
        return str(moment_ms(given(text), SYSTEM_CLOCK.now_ms()))
    except rmqstore.Rejected as mistake:
        raise argparse.ArgumentTypeError(f"{text!r}: {mistake}") from None


def some_of(words: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A parser of some of `words`, with commas between them."""

    def named(text: str) -> tuple[str, ...]:
        found = tuple(name.strip() for name in text.split(","))
        if unknown := sorted(set(found) - set(words)):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: of {', '.join(words)}")
        return found

    return named


def whole(least: int) -> Callable[[str], int]:
    """A parser of a whole number, `least` or more."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: write a whole number, {least} or more")
        return int(text)

    return number


def one_key(text: str) -> str:
    """A single key, whatever is in it but a space: that stands between the keys of a message."""
    if " " in given(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a single key: RocketMQ separates keys by spaces; give one key"
        )
    return text


def chosen(asked: argparse.Namespace) -> dict[str, str]:
    """The options of a read that `add_topics` asked for."""
    options = {"subscribe": asked.topic} if asked.topic else {"subscribePattern": ".*"}
    times = {"startingTimestamp": asked.since, "endingTimestamp": asked.until}
    # A queue whose newest message is older than the beginning has no rows: that is no mistake.
    late = {"startingOffsetsByTimestampStrategy": "latest"} if asked.since else {}
    return options | late | {name: value for name, value in times.items() if value}


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    rows: Callable[[SparkSession, argparse.Namespace], DataFrame],
) -> int:
    """Runs a job: `rows` makes its answer, which is written or shown.  Returns the exit status; times are UTC's."""
    asked = parser.parse_args(argv)
    require_apart(parser, asked.store, output=asked.output)
    _require_topics(parser, asked)
    with session(parser) as spark:
        _give(spark, rows(spark, asked), asked)
    return 0


@contextmanager
def session(parser: argparse.ArgumentParser) -> Iterator[SparkSession]:
    """The Spark session of a job, in UTC, with the data source; ends the program where there is no PySpark."""
    if importlib.util.find_spec("pyspark") is None:
        parser.exit(1, f"{parser.prog}: PySpark is not installed: pip install 'rmqstore[spark]'\n")
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if _BY_SPARK_SUBMIT not in os.environ:  # else its own configuration says which Python workers run
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark says it of each pandas 3 that it finds, and jobs use none.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    spark = SparkSession.builder.appName(f"rmqstore {parser.prog.removesuffix('.py')}").getOrCreate()
    try:
        _register(spark)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        yield spark
    except PySparkException as error:
        parser.exit(1, f"{parser.prog}: {_reason(error)}\n")
    except KeyboardInterrupt:
        parser.exit(_INTERRUPTED, f"{parser.prog}: interrupted\n")
    finally:
        _stop(spark)


def _stop(spark: SparkSession) -> None:
    """Ends a session that has answered.  An answer without rows leaves stages of the other side of a join running, and
    Spark prints stacks of those that it ends."""
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none
    if context is not None:
        with suppress(Exception):  # Ctrl-C may have ended the JVM first
            context.setLogLevel("OFF")
            context.cancelAllJobs()
    spark.stop()


def _register(spark: SparkSession) -> None:
    """Makes the data source known: a cluster that got the package with --py-files does not find it by itself.

    Where it was found already, Spark warns that it is replaced.  Nobody can do anything about that, so it is not shown.
    """
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none
    if context is not None:
        context.setLogLevel("ERROR")
    rmqstore.register(spark)
    if context is not None:
        context.setLogLevel(spark.conf.get("spark.log.level", "WARN"))


def _reason(error: Exception) -> str:
    """The line of an error that tells, without Spark's words about where it came up."""
    _, _, own = str(error).partition("rmqstore.errors.")
    text = own.partition(": ")[2] or str(error)
    first = text.strip().partition("\n")[0]
    if own or "Traceback" not in first or not (raised := _RAISED.findall(text)):
        return first
    kind, words = raised[-1]
    if kind == "ModuleNotFoundError":
        return (
            f"{words} in the Python of Spark's workers: run them with the Python that has it "
            f"(PYSPARK_PYTHON={sys.executable})"
        )
    return f"{kind}: {words}"


def require_apart(parser: argparse.ArgumentParser, store: str, **places: str | None) -> None:
    """Ends the program where a place of this machine that is to be written is a store, in one, or has one in it:
    what is replaced there would be messages.  `places` by the name of their option."""
    for option, given in places.items():
        path = "" if not given else given.removeprefix("file://").removeprefix("file:")
        if not path.startswith("/") and (":" in path or not path):
            continue  # another file system's, or none
        try:
            place, own = (canonical_path(each) for each in (path, store))
        except rmqstore.StoreError as mistake:
            parser.error(str(mistake))
        if lies_about_a_store(LOCAL, place, [own]):
            parser.error(f"--{option} {given}: is a store, lies in one or holds one; name a directory of its own")


def _require_topics(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> None:
    """Ends the program for a topic that a store of this machine has not, before Spark starts.

    Queue files tell at once that a topic is there; the store is looked at for those that have none.
    """
    named = getattr(asked, "topic", None) or ""
    root = canonical_path(asked.store)
    if named.startswith("[") or not LOCAL.is_directory(root):
        return
    try:
        unlisted = set(topic_names(named)) - topic_directories(LOCAL, root) - {""}
        if unlisted and not stores_below(root):
            rmqstore.open_snapshot(root).scan(sorted(unlisted))
    except rmqstore.UnknownTopic as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except rmqstore.StoreError:
        return  # the read tells it, with all that belongs to it


def _give(spark: SparkSession, frame: DataFrame, asked: argparse.Namespace) -> None:
    if not asked.output:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        rows = job_table.shown(frame, asked.rows, width)
        print(rows.text)
        if rows.left_out:
            print(f"\n{rows.left_out}" if width else rows.left_out, file=sys.stdout if width else sys.stderr)
        return
    options = {} if asked.format != "csv" else _CSV
    frame = frame if asked.format != "csv" else job_table.flattened(frame)
    mode = "overwrite" if asked.overwrite else "errorifexists"
    frame.write.mode(mode).options(**options).format(asked.format).save(asked.output)
    written = spark.read.schema(frame.schema).options(**options).format(asked.format).load(asked.output).count()
    print(f"{written} rows are in {asked.output}")
