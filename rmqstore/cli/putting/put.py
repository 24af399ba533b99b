"""`rmqstore put`: messages from files or a pipe into a store, in bulk."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click

from rmqstore.cli.choices import topic_name
from rmqstore.cli.output import (
    counted,
    debug_option,
    one_line,
    print_json,
    printable,
    progress_bar,
    whole_text,
)
from rmqstore.cli.putting.chunks import Chunk, Wrong
from rmqstore.cli.putting.inputs import InputForm, Reading, chunks_of
from rmqstore.cli.putting.line_input import STANDARD_INPUT, shown_name
from rmqstore.cli.putting.message_columns import MessageWishes
from rmqstore.cli.putting.target import NotTaken, Target
from rmqstore.cli.signals import tell_all, until_signalled
from rmqstore.config import StoreConfig
from rmqstore.errors import StoreError

# Names of files in one line of an error.
_SHOWN_MAX = 4
_EXAMPLE = """\b
Examples:
  rmqstore put /data/orders --create --topic orders orders.jsonl
  kubectl logs app | rmqstore put /data/logs --create --topic logs --lines
  rmqstore cat /data/a --topic orders -o json-lines | rmqstore put /data/b
"""


@click.command(epilog=_EXAMPLE, short_help="Put messages of files or a pipe into a store.")
@click.argument("store", metavar="STORE", type=click.Path())
@click.argument(
    "files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
)
@click.option("--topic", callback=topic_name, help="The topic of all messages, whatever stands in the input.")
@click.option("--tags", callback=whole_text, help="The tag of all messages.")
@click.option("--key", "keys", callback=whole_text, help="The keys of all messages, with blanks between them.")
@click.option("--queue", type=click.IntRange(0, 2**31 - 2), help="The queue of all messages; by default chosen by key.")
@click.option("--keep-queues", is_flag=True, help="Each message goes to the queue that stands in the input.")
@click.option(
    "--format", "form", type=click.Choice(get_args(InputForm)),
    help="json-lines (default), lines, or parquet, which is the default for FILE.parquet.",
)  # fmt: skip
@click.option("--lines", "are_lines", is_flag=True, help="Each line is a body; as --format lines.")
@click.option(
    "--from-line", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Begin at this line (row, of Parquet) of the first FILE.",
)  # fmt: skip
@click.option("--create", "makes", is_flag=True, help="Make the store if there is none.")
@click.option(
    "--broker-conf",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The broker's configuration: sizes, log paths, largest message.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a line.")
@debug_option
@click.pass_context
def put(ctx: click.Context, /, store: str, files: tuple[str, ...], **given: Any) -> None:
    """Put messages into a store of ours, or one whose broker is stopped.

    FILE, or standard input (-), holds JSON objects, one a line, as `rmqstore cat -o json-lines` prints them, plain
    lines, or Parquet with the columns of a message. What was put is on the disk before its number is said. At a line
    that makes no message nothing more is put: those before it are, and --from-line goes on when it is mended.
    """
    if given["are_lines"] and given["form"] not in (None, "lines"):
        raise click.UsageError("--lines and --format: give one of them")
    if given["queue"] is not None and given["keep_queues"]:
        raise click.UsageError("--queue and --keep-queues: give one of them")
    form: InputForm | None = "lines" if given["are_lines"] else given["form"]
    if form == "lines" and given["topic"] is None:
        raise click.UsageError("--lines: lines have no topic; name it with --topic")
    if form == "lines" and given["keep_queues"]:
        raise click.UsageError("--lines and --keep-queues: lines have no queues; give one of them")
    wishes = MessageWishes(given["topic"], given["tags"], given["keys"], given["queue"], given["keep_queues"])
    conf = given["broker_conf"]
    config = StoreConfig.from_broker_conf(conf) if conf else StoreConfig()
    target = Target(store, config, makes=given["makes"])
    with until_signalled() as is_over:  # also while it is told, so that the exit status fits
        with progress_bar() as bar:
            task = bar.add_task("putting", total=_size_of(files))
            reading = Reading(form, wishes, given["from_line"], is_over, lambda size: bar.advance(task, size))
            end = _put_all(target, files or (STANDARD_INPUT,), reading)
        _tell(target, end, as_json=given["as_json"], is_one_of_several=len(files) > 1)
        tell_all()
    if end is not None:
        ctx.exit(1)


class _End(NamedTuple):
    """The place before which all is put, and nothing after it: the input, its line; why; the inputs that come after."""

    path: str
    line: int
    reason: str
    is_wrong: bool = True
    later: tuple[str, ...] = ()

    @property
    def rest(self) -> list[str]:
        """The inputs that are left, with which to go on; none where all was read."""
        return [self.path, *self.later] if self.line else []


def _put_all(target: Target, paths: Sequence[str], reading: Reading) -> _End | None:
    """Puts the inputs one after the other; where and why it ended before their end.  What was put is on the disk then,
    as far as `target` counts it."""
    end: _End | None = None
    try:
        with target:
            for number, path in enumerate(paths, 1):
                end = _put_one(target, path, reading)
                if end is not None:
                    end = end._replace(later=tuple(paths[number:]))
                    break
                reading = reading._replace(from_line=1)
    except (StoreError, OSError) as error:
        end = (end or _End("", 0, ""))._replace(reason=one_line(error))
    return end


def _put_one(target: Target, path: str, reading: Reading) -> _End | None:
    at, end = reading.from_line, 1  # where to go on, and the line after the last that was read
    chunks = chunks_of(path, reading)
    while True:
        try:
            chunk = next(chunks, None)
        except OSError as error:
            return _End(path, at, one_line(error))
        if chunk is None:
            break
        before = target.put_count
        try:
            if chunk.messages is not None:
                target.put(chunk.messages)
            if chunk.is_pause:
                target.sync()
        except (StoreError, OSError) as error:
            return _End(
                path, _line_after(chunk, target.put_count - before), one_line(error), isinstance(error, NotTaken)
            )
        end = chunk.next_line
        at = max(end, reading.from_line)
        if chunk.wrong is not None:
            return _of_wrong(path, chunk.wrong)
        if reading.is_over():
            break
    if reading.is_over():
        return _End(path, at, "interrupted", is_wrong=False)
    if reading.from_line > end:
        name = shown_name(path)
        return _End(path, 0, f"{name} ends with line {end - 1}, before --from-line {reading.from_line}")
    return None


def _line_after(chunk: Chunk, count: int) -> int:
    """The line that comes after the first `count` messages of a chunk."""
    return chunk.lines[count] if count < len(chunk.lines) else chunk.next_line


def _of_wrong(path: str, wrong: Wrong) -> _End:
    return _End(path, wrong.line, wrong.reason)


def _size_of(files: Sequence[str]) -> int | None:
    """Bytes of the inputs; None where that is not known."""
    if not files or STANDARD_INPUT in files:
        return None
    return sum(Path(file).stat().st_size for file in files)


def _tell(target: Target, end: _End | None, *, as_json: bool, is_one_of_several: bool) -> None:
    """Says how many messages are in the store, and where it ended; on standard error too where it cannot be said."""
    told = _told(target, end, is_one_of_several=is_one_of_several)
    try:
        _say(target, end, as_json=as_json)
    except BrokenPipeError:
        raise
    except OSError:
        click.echo(told, err=True)  # the one thing that nobody can find out again
        raise
    if end is not None:
        click.echo(told, err=True)


def _told(target: Target, end: _End | None, *, is_one_of_several: bool) -> str:
    count = target.durable_count
    put = f"{counted(count, 'message')} put, and on the disk"
    if end is None:
        return f"{put}: all there are"
    if target.put_count > count:
        put += f"; of {counted(target.put_count - count, 'more message')} nobody knows"
    if not end.line:  # all was read, and its end failed
        return printable(f"Error: {end.reason}; {put}")
    place = f"{shown_name(end.path)}, line {end.line}"
    what = "mend it, and go on" if end.is_wrong else "go on"
    how = f"--from-line {end.line}{_named_again(end, is_one_of_several=is_one_of_several)}"
    return printable(f"Error: {place}: {end.reason}; {put}, nothing from that line on; {what} with {how}")


def _say(target: Target, end: _End | None, *, as_json: bool) -> None:
    """Says it on standard output."""
    count = target.durable_count
    if as_json:
        print_json({
            "store": target.path, "put": count, "unknown": target.put_count - count, "reason": end and end.reason,
            "input": end and (shown_name(end.path) or None), "line": end and (end.line or None),
            "rest": end.rest if end else [],
        })  # fmt: skip
    elif end is None:
        click.echo(f"{counted(count, 'message')} put into {printable(target.path)}")


def _named_again(end: _End, *, is_one_of_several: bool) -> str:
    """The files to go on with, where those that are put are not to come once more."""
    if not is_one_of_several:
        return ""
    shown = end.rest if len(end.rest) <= _SHOWN_MAX else [*end.rest[: _SHOWN_MAX - 1], "…"]
    return f" and, of the files, {shlex.join(shown)}" if end.later else f" and {shlex.join(shown)} alone"
