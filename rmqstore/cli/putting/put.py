"""`rmqstore put`: messages from files or a pipe into a store, in bulk."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from rmqstore.cli.putting.chunks import ROWS_AT_ONCE, Chunk, Mistake, Wrong, up_to_a_mistake
from rmqstore.cli.putting.line_input import STANDARD_INPUT, lines_of, shown_name
from rmqstore.cli.putting.message_columns import MessageWishes, of_bodies, of_json, of_table
from rmqstore.cli.signals import tell_all, until_signalled
from rmqstore.config import StoreConfig
from rmqstore.core.message import PutStatus
from rmqstore.directory.store_root import found_store
from rmqstore.engine.log.encode.queue_choice import QueueChoice
from rmqstore.engine.log.ledger_paths import with_found_member
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import NotAStore, NotNow, Rejected, StoreError
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import canonical_path, exists
from rmqstore.formats.names import is_system_topic
from rmqstore.replica.following.note import read_origin
from rmqstore.sink import require_free

# --- The store that messages are put into: opened with the first of them, and counted exactly.

_QUEUE_COLUMN = "queueId"
_ROWS_SAID = ": row"


class NotTaken(Rejected):
    """A message that the store refuses; the messages before it are put."""


class Target:
    """A store for one input after another; one thread.

    `put_count` messages are in it, of which `durable_count` are known to be on the disk.
    """

    def __init__(self, path: str, config: StoreConfig, *, makes: bool) -> None:
        """Checks whether the store takes puts, and creates nothing.  Raises NotAStore, UnsupportedLayout, StoreInUse,
        Rejected for a replica."""
        self._config = with_found_member(path, config)
        root = canonical_path(path)
        if not makes and not exists(root):
            raise NotAStore(root, "does not exist here; --create makes a new store")
        if not makes:
            found_store(path, self._config.named_log_paths(), may_be_ledger=self._config.dledger is not None)
        if self._config.dledger is None:
            require_free(path, self._config)
        origin = read_origin(RealFileSystem(), root)
        if origin is not None:
            raise Rejected(f"{root}: is a replica of {origin.broker_name}, and a put would make it differ from its "
                "master: put to the master, or into a copy without config/replica.json")  # fmt: skip
        self.path, self._store = root, None
        self._choices: dict[str, QueueChoice] = {}
        self.put_count = self.durable_count = 0

    _store: Store | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()
            self.durable_count = self.put_count

    def put(self, messages: pa.RecordBatch) -> None:
        """Puts messages, in their order.  Raises NotTaken for the first that is not taken, after those before it are
        put: `put_count` tells; NotNow likewise where there is no room; DurabilityLost."""
        if self._store is None:
            self._store = open_store(self.path, self._config)
        self._put(self._store, self._queued(self._store, messages))

    def sync(self) -> None:
        """Makes what was put durable.  Raises DurabilityLost, NotNow."""
        if self._store is not None and self.durable_count < self.put_count:
            self._store.flush()
            self.durable_count = self.put_count

    def _put(self, store: Store, messages: pa.RecordBatch) -> None:
        try:
            result = store.put_columns(messages)
        except Rejected as refusal:
            half = messages.num_rows // 2
            if not half:
                raise NotTaken(str(refusal).partition(_ROWS_SAID)[0]) from None
            self._put(store, messages.slice(0, half))
            self._put(store, messages.slice(half))
            return
        self.put_count += result.message_count
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            rest = messages.slice(result.message_count)
            if rest.num_rows == 1:
                raise NotTaken(result.reason)
            half = rest.num_rows // 2
            self._put(store, rest.slice(0, half))
            self._put(store, rest.slice(half))
        elif result.status is not PutStatus.PUT_OK:
            raise NotNow(f"{result.status.name}: {result.reason}")

    def _queued(self, store: Store, messages: pa.RecordBatch) -> pa.RecordBatch:
        """The messages with a queue each: by their keys, or in turn, among those that their topic has."""
        if _QUEUE_COLUMN in messages.schema.names:
            return messages
        topics = messages.column("topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        if len(names) == 1:
            return self._choice(store, names[0]).queued(messages)
        of_topic = topics.indices.to_numpy()
        chosen = np.zeros(messages.num_rows, np.int32)
        for number, name in enumerate(names):
            rows = np.flatnonzero(of_topic == number)
            queued = self._choice(store, name).queued(messages.take(pa.array(rows)))
            chosen[rows] = pc.cast(queued.column(_QUEUE_COLUMN), pa.int32()).to_numpy()
        return messages.append_column(_QUEUE_COLUMN, pa.array(chosen))

    def _choice(self, store: Store, topic: str) -> QueueChoice:
        if topic not in self._choices:
            known = store.topics.find(topic)
            own = 1 if is_system_topic(topic) else self._config.default_queue_nums
            count = own if known is None else known.write_queue_nums
            self._choices[topic] = QueueChoice(max(count, 1))
        return self._choices[topic]


# ---

# --- Inputs of messages, chunk by chunk: JSON lines, plain lines and Parquet.

InputForm = Literal["json-lines", "lines", "parquet"]
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PARQUET_ENDS = (".parquet", ".pq")


class Reading(NamedTuple):
    """How an input is read: its form, what is wished for its messages, the first line that is taken, whether to end,
    and who hears how many bytes were read."""

    form: InputForm | None
    wishes: MessageWishes
    from_line: int
    is_over: Callable[[], bool]
    told: Callable[[int], None]


def chunks_of(path: str, reading: Reading) -> Iterator[Chunk]:
    """The messages of an input until its end, the first thing that is wrong, or until it is over.  Raises OSError,
    Rejected for a form that it cannot have."""
    form = reading.form or ("parquet" if path.endswith(_PARQUET_ENDS) else "json-lines")
    if form != "parquet":
        return _of_lines(path, reading, is_json=form == "json-lines")
    if path == STANDARD_INPUT:
        raise Rejected("Parquet is read from its end and cannot come through a pipe: name the file")
    return _of_parquet(path, reading)


def _of_lines(path: str, reading: Reading, *, is_json: bool) -> Iterator[Chunk]:
    number = 1
    try:
        for first, lines, is_pause in lines_of(path, reading.is_over, reading.told):
            number = first + len(lines)
            if is_json and first == 1 and lines and lines[0].startswith(_BYTE_ORDER_MARK):
                lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
            skipped = max(reading.from_line - first, 0)
            numbered = [*enumerate(lines, first)][skipped:]
            if is_json:
                numbered = [(place, line) for place, line in numbered if line.strip()]
            numbers, kept = [place for place, _ in numbered], [line for _, line in numbered]
            columns = partial(_columns, of_json if is_json else of_bodies, kept, reading.wishes)
            chunk = up_to_a_mistake(numbers, columns, number, is_pause=is_pause)
            yield chunk
            if chunk.wrong is not None:
                return
    except Mistake as mistake:
        yield Chunk(None, (), number, Wrong(number, str(mistake)))


_Made = Callable[[list[bytes], MessageWishes], pa.RecordBatch]


def _columns(made: _Made, lines: list[bytes], wishes: MessageWishes, count: int) -> pa.RecordBatch:
    return made(lines[:count], wishes)


def _of_parquet(path: str, reading: Reading) -> Iterator[Chunk]:
    number, heard = 1, 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                if reading.is_over():
                    return
                first, number = number, number + batch.num_rows
                rows = batch.slice(min(max(reading.from_line - first, 0), batch.num_rows))
                numbers = range(number - rows.num_rows, number)
                chunk = up_to_a_mistake(numbers, partial(_rows, rows, reading.wishes), number)
                reading.told(batch.nbytes - heard if batch.nbytes > heard else 0)
                yield chunk
                if chunk.wrong is not None:
                    return
    except (pa.ArrowException, ValueError) as error:
        reason = " ".join(str(error).split("\n")[0].split())
        yield Chunk(None, (), number, Wrong(number, f"is not readable as Parquet ({reason})"))


def _rows(batch: pa.RecordBatch, wishes: MessageWishes, count: int) -> pa.RecordBatch:
    return of_table(batch.slice(0, count), wishes)


# ---

# Names of files in one line of an error.
_SHOWN_MAX = 4
_EXAMPLE = """\b
Examples:
  rmqstore put /data/orders --create --topic orders orders.jsonl
  kubectl logs app | rmqstore put /data/logs --create --topic logs --lines
  rmqstore cat /data/a --topic orders -o json-lines | rmqstore put /data/b
"""


@click.command(epilog=_EXAMPLE, short_help="Put messages from files or a pipe into a store.")
@click.argument("store", metavar="STORE", type=click.Path())
@click.argument(
    "files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)
)
@click.option("--topic", callback=topic_name, help="The topic of all messages; overrides the input.")
@click.option("--tags", callback=whole_text, help="The tag of all messages.")
@click.option("--key", "keys", callback=whole_text, help="The keys of all messages, separated by blanks.")
@click.option(
    "--queue", type=click.IntRange(0, 2**31 - 2), help="The queue of all messages; by default the key chooses it."
)
@click.option("--keep-queues", is_flag=True, help="Put each message into the queue that the input names.")
@click.option(
    "--format", "form", type=click.Choice(get_args(InputForm)),
    help="json-lines (default), lines, or parquet, which is the default for FILE.parquet.",
)  # fmt: skip
@click.option("--lines", "are_lines", is_flag=True, help="Each line is a body; as --format lines.")
@click.option(
    "--from-line", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Begin at this line (Parquet: row) of the first FILE.",
)  # fmt: skip
@click.option("--create", "makes", is_flag=True, help="Create the store if it does not exist.")
@click.option(
    "--broker-conf",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The broker's configuration: sizes, log paths, largest message.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a line.")
@debug_option
@click.pass_context
def put(ctx: click.Context, /, store: str, files: tuple[str, ...], **given: Any) -> None:
    """Put messages into a store of ours, or one whose broker is stopped.

    FILE, or standard input (-), holds JSON objects, one a line, as `rmqstore cat -o json-lines` prints them, plain
    lines, or Parquet with the columns of a message. What was put is on the disk before its number is said. At a line
    that makes no message nothing more is put: those before it are, and --from-line goes on when it is mended.
    """
    if given["are_lines"] and given["form"] not in (None, "lines"):
        raise click.UsageError("--lines and --format: give only one of them")
    if given["queue"] is not None and given["keep_queues"]:
        raise click.UsageError("--queue and --keep-queues: give only one of them")
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
    """Where the put ended: the input and its line, the reason, and the inputs after it.  All before it is put."""

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
    """Prints how many messages are in the store, and where the put ended; on standard error if stdout fails."""
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
        return f"{put}: all messages of the input"
    if target.put_count > count:
        put += f"; {counted(target.put_count - count, 'more message')} may be lost"
    if not end.line:  # all was read, and its end failed
        return printable(f"Error: {end.reason}; {put}")
    place = f"{shown_name(end.path)}, line {end.line}"
    what = "correct it, and continue" if end.is_wrong else "continue"
    how = f"--from-line {end.line}{_named_again(end, is_one_of_several=is_one_of_several)}"
    return printable(f"Error: {place}: {end.reason}; {put}, none from that line on; {what} with {how}")


def _say(target: Target, end: _End | None, *, as_json: bool) -> None:
    """Prints the result on standard output."""
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
    """The arguments for the files to continue with, without those that are already put."""
    if not is_one_of_several:
        return ""
    shown = end.rest if len(end.rest) <= _SHOWN_MAX else [*end.rest[: _SHOWN_MAX - 1], "…"]
    return f" and, of the files, {shlex.join(shown)}" if end.later else f" and {shlex.join(shown)} alone"
