"""Shared by the commands: arguments, errors in one line, plain tables, JSON, and text that is safe on a terminal."""

import base64
import datetime
import io
import json
import logging
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from rmqstore import Rejected, StoreError
from rmqstore.errors import next_step
from rmqstore.files.disk import join
from rmqstore.files.reading import LOCAL
from rmqstore.files.regular import missing_right
from rmqstore.formats.names import LOCK_FILE
from rmqstore.report.words import byte_size, counted, moment_of, utc
from rmqstore.snapshot.store_paths import Paths, stores_below

__all__ = [
    "CELL_MIN", "Commands", "OutputFailed", "body_fields", "body_text", "byte_size", "column_sizes", "counted",
    "cut_size", "debug_option", "escaped", "fitted", "fitted_rows", "given_paths", "iso", "mistakes_in_command",
    "moment_of", "one_line", "padded", "print_json", "print_table", "printable", "progress_bar", "said_here",
    "store_arguments", "table_size", "tell_open", "utc", "whole_text", "width", "wrapped",
]  # fmt: skip

Command = TypeVar("Command", bound=Callable[..., Any])

_DEBUG = "rmqstore.debug"
# Control characters, the C1 ones too, and what turns the direction of writing: a message must not steer the terminal.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
# Of these, those that JSON leaves as they are.
_STEERING = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
# Advice in error messages for Python programs, and its replacement on the command line.
_OPTIONS_SAID = (
    (
        "on_corrupt_record='skip' leaves such records out, `rmqstore verify` lists them all",
        "`rmqstore verify` lists all damage",
    ),
    (
        "open the store again for its current offsets, or set fail_on_data_loss=False to skip the missing messages",
        "run it again",
    ),
    (
        "write the whole name of a topic; pattern= takes a regular expression, .* for all, orders.* for some",
        "write the whole name of a topic, or * for any text and ? for a character; `rmqstore inspect` lists the topics",
    ),
    ("it goes on after it with fail_on_data_loss=False, or begins again without `after`", "run it again"),
    ("choose an earlier time, or missing_time='latest' for an empty result", "choose an earlier time"),
    (
        "; RocketMQ's own are meant with include_system_topics",
        "; RocketMQ's own are meant with --include-system-topics",
    ),
    ("; a read from the beginning (a new checkpointLocation) has all", "; `rmqstore cat` shows all"),
    ("the offsets to go on from are of", "read so far was"),
    ("the same store, name it, as ", "the same store, name it as NAME=PATH, "),
    ("or begin again without `after`", "or begin again"),
    ("give back the offsets of a batch as they came", "begin again"),
    ("check that disk, and try again", "check that disk, and run it again"),
    (" (rmqstore.opened_store gives what open_store opened)", ""),
    ("or read with rmqstore.open_snapshot", "or only read it, as `rmqstore cat` does"),
    (', or name all stores one by one (stores={"broker-a": "/data/a"})', ", or name all stores one by one"),
    ("name them, as {'broker-a': PATH, 'broker-b': PATH}", "give each its name, as broker-a=PATH broker-b=PATH"),
)
# A cell is never cut below this width.
CELL_MIN = 12
_NAMED = re.compile(r"(?P<name>[^/=\\]+)=(?P<path>.+)")


def _remember_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.find_root().meta[_DEBUG] = True


def debug_option(command: Command) -> Command:
    """Adds --debug, which shows the stack of an error."""
    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=_remember_debug, help="Show the stack trace of an error."
    )(command)


def store_arguments(command: Command) -> Command:
    """Adds STORE… and --debug."""
    command = click.argument("stores", metavar="STORE...", nargs=-1, required=True)(command)
    return debug_option(command)


class OutputFailed(click.ClickException):
    """Standard output cannot be written, or was closed before the command began; not an error of the store."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot write to standard output: {reason}; redirect it, with > FILE or | less")


def _is_of_output(error: OSError) -> bool:
    """Whether printing raised the error: everything is printed by click.echo, --help as well."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def _output_failed(error: OSError) -> OutputFailed:
    # The rest of the buffer would fail again when the interpreter ends, and change the exit status.
    sys.stdout = io.StringIO()
    return OutputFailed(error.strerror or str(error))


def _give_up_dead_streams() -> None:
    """Detaches streams whose terminal is gone: the interpreter would fail to flush them and exit with status 120."""
    for name in ("stdout", "stderr"):
        try:
            stream = getattr(sys, name, None)
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            setattr(sys, name, None)


class Commands(click.Group):
    """A group of commands that print one line for an error that the user can fix."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Runs the program; does nothing without a standard output for the result."""
        failed = OutputFailed("it is closed")
        try:
            if getattr(sys, "stdout", None) is not None:
                try:
                    return super().main(*args, **extra)
                except OSError as error:  # of --help and --version, for which no command is invoked
                    if not _is_of_output(error):
                        raise  # a command's, which --debug shows whole
                    failed = _output_failed(error)
            failed.show()
            sys.exit(failed.exit_code)
        finally:
            _give_up_dead_streams()

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; errors become one line and exit status 1, unless --debug is given."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal that is not UTF-8 shows what it can; a file or a program gets the text whole.
                is_text_kept = stream is sys.stdout and not stream.isatty()
                stream.reconfigure(encoding="utf-8" if is_text_kept else None, errors="replace")
        try:
            with _warnings_shown():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends quietly
        except (StoreError, OSError) as error:
            if isinstance(error, OSError) and _is_of_output(error):
                raise _output_failed(error) from None
            if ctx.find_root().meta.get(_DEBUG):
                raise
            raise click.ClickException(one_line(error)) from None


@contextmanager
def mistakes_in_command() -> Iterator[None]:
    """Turns Rejected inside the block into a usage error: exit status 2."""
    try:
        yield
    except Rejected as mistake:
        raise click.UsageError(printable(str(mistake))) from None


def whole_text(_ctx: click.Context, _param: click.Parameter, given: str | None) -> str | None:
    """The callback of a text option: checks for UTF-8, as the system passes any bytes."""
    try:
        (given or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{printable(given or '')!r} is not UTF-8: write it in a UTF-8 terminal") from None
    return given


def one_line(error: Exception) -> str:
    """The message of an error on one line, with options named as on the command line."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        advice = next_step(error, missing_right(error.filename))
        text = f"{error.filename or 'a file of the store'}: {error.strerror}; {advice}"
    return said_here(text)


def said_here(text: str) -> str:
    """A message of the package on one line, with options named as on the command line."""
    for said, meant in _OPTIONS_SAID:
        text = text.replace(said, meant)
    return " ".join(printable(text).split())


class _Warnings(logging.Handler):
    """Prints warnings of the package on standard error, one per line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a warning."""
        click.echo(said_here(record.getMessage()), err=True)


@contextmanager
def _warnings_shown() -> Iterator[None]:
    logger, handler = logging.getLogger("rmqstore"), _Warnings(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def given_paths(stores: Sequence[str]) -> Paths:
    """The STORE arguments as `open_snapshot` takes them: paths, or NAME=PATH for each; a path after a NAME=PATH is a
    directory of its commitlog.  A directory of stores stands for all that are in it.  Raises UsageError for a name that
    comes twice.
    """
    if not _NAMED.fullmatch(stores[0]):
        return (stores_below(stores[0]) if len(stores) == 1 else None) or list(stores)
    found: dict[str, list[str]] = {}
    for store in stores:
        named = _NAMED.fullmatch(store)
        if named is None:
            next(reversed(found.values())).append(store)
        elif named["name"] in found:
            raise click.UsageError(printable(f"{named['name']} is given twice: give each broker's store once"))
        else:
            found[named["name"]] = [named["path"]]
    return found


def tell_open(store: str) -> None:
    """Prints a note if a program of this host has the store of a plan open."""
    if LOCAL.is_locked(join(store, LOCK_FILE)):
        said = "in another program, such as its broker: the plan shows the start after a kill right now"
        click.echo(wrapped("open        ", f"{said}; without --dry-run it is refused"))


def printable(text: str) -> str:
    """The text with each character that could control a terminal replaced by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def escaped(json_text: str) -> str:
    """The same JSON, with each character that could control a terminal escaped; they occur in strings only."""
    if json_text.isascii() and "\x7f" not in json_text:
        return json_text
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    click.echo(escaped(json.dumps(document, indent=2, ensure_ascii=False)))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "  ", right: str = "") -> None:
    """A plain table.  `right` names the columns (by their heads, comma-separated) that are set to the right."""
    cells = [list(heads), *([printable(cell) for cell in row] for row in rows)]
    widths = column_sizes(heads, cells[1:])
    aligned = {head for head in right.split(",") if head}
    for row in cells:
        parts = [
            cell.rjust(size) if head in aligned else padded(cell, size)
            for cell, size, head in zip(row, widths, heads, strict=True)
        ]
        click.echo((indent + "  ".join(parts)).rstrip())


def fitted_rows(heads: Sequence[str], rows: Sequence[Sequence[str]], flexible: str, indent: int = 2) -> list[list[str]]:
    """Rows of `print_table` that fit a terminal: the columns that `flexible` names (commas between) are cut, the widest
    first; in a pipe all cells are whole.
    """
    made = [[printable(cell) for cell in row] for row in rows]
    room = cut_size()
    if room is None or not made:
        return made
    sizes = column_sizes(heads, made)
    bends = [place for place, head in enumerate(heads) if head in flexible.split(",")]
    while table_size(sizes, indent) > room and bends:
        widest = max(bends, key=lambda place: sizes[place])
        if sizes[widest] <= max(cell_len(heads[widest]), CELL_MIN):
            break
        sizes[widest] -= 1
    for row in made:
        for place in bends:
            cut = fitted_end if heads[place] == "path" else fitted
            row[place] = cut(row[place], sizes[place])
    return made


def column_sizes(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Columns of a terminal that each column of a plain table takes."""
    return [max(map(cell_len, cells)) for cells in zip(heads, *rows, strict=True)]


def table_size(sizes: Sequence[int], indent: int = 2) -> int:
    """Columns of a terminal that a plain table takes."""
    return indent + sum(sizes) + 2 * (len(sizes) - 1)


def width() -> int:
    """Columns that a line is broken at: the variable COLUMNS, else those of the terminal, 80 when there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def cut_size() -> int | None:
    """Columns that a line is cut at: `width` on a terminal; None in a pipe or a file, where nothing is cut."""
    return width() if sys.stdout.isatty() else None


def fitted(text: str, size: int | None) -> str:
    """The text cut to `size` columns of a terminal, with … where something is left out; None: the whole text."""
    if size is None or cell_len(text) <= size:
        return text
    return set_cell_size(text, max(size - 1, 0)).rstrip() + "…"


def fitted_end(text: str, size: int) -> str:
    """As `fitted`, the end of the text."""
    return text if cell_len(text) <= size else fitted(text[::-1], size)[::-1]


def padded(text: str, size: int) -> str:
    """The text filled up to `size` columns; wide characters take two."""
    return text + " " * (size - cell_len(text))


def wrapped(head: str, text: str, columns: int | None = None) -> str:
    """`head`, then the text beside it, broken into lines of so many columns, those of the terminal by default; long
    words stay whole."""
    return textwrap.fill(
        printable(text), columns or width(), initial_indent=head, subsequent_indent=" " * len(head),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def iso(moment: datetime.datetime | None) -> str | None:
    """A time for JSON: ISO 8601 with milliseconds and Z."""
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def body_fields(body: bytes | None) -> dict[str, str | None]:
    """A body for JSON: as text under "body" when it is UTF-8, else in base64 under "bodyBase64"."""
    if body is None:
        return {"body": None}
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode("ascii")}


def body_text(body: bytes | None, line_end: str, size_max: int | None = None) -> str:
    """A body for reading: its text, its lines joined by `line_end`, or its size and first bytes when it is no text.

    At most `size_max` characters of it; the rest costs nothing.
    """
    if body is None:
        return ""
    try:
        # Where a line ends two characters become one or the other way round: a few more than are shown will do.
        text = body.decode("utf-8") if size_max is None else body.decode("utf-8")[: 2 * size_max]
        return line_end.join(printable(line) for line in text.splitlines())[:size_max]
    except UnicodeDecodeError:
        return f"{len(body)} bytes: {body[:32].hex(' ')}"


def progress_bar() -> Progress:
    """A bar on standard error that is only there when that is a terminal, and gone when the work is done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
