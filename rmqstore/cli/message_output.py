"""Messages on standard output, batch by batch: as a table, JSON, CSV, lines of a format, or their bodies alone."""

import csv
import io
import json
import re
import string
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import click
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.cli.decoding.decoder import BodyDecoder
from rmqstore.cli.decoding.options import chosen_decoder, decode_options
from rmqstore.cli.output import body_text, cut_size, escaped, fitted, iso, moment_of, padded, printable, utc, wrapped
from rmqstore.snapshot.arrow.json_lines import json_lines
from rmqstore.snapshot.survey.extents import StoreExtent

Form = Literal["table", "json-lines", "csv", "bodies"]
Command = TypeVar("Command", bound=Callable[..., Any])
Row = dict[str, Any]

COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "bornTimestamp", "storeTimestamp",
    "physicalOffset", "bornHost", "reconsumeTimes", "flag", "properties", "body", "corruptReason",
)  # fmt: skip
_TABLE_COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "tags", "keys", "bornTimestamp", "storeTimestamp",
    "physicalOffset", "body", "corruptReason",
)  # fmt: skip
_TIMES = ("bornTimestamp", "storeTimestamp", "deliverAt")
# Room for a time, or for a column beside those of messages; for a time without its year, where room is scarce.
_TIME_SIZE = 19
_SHORT_TIME_SIZE = 14
# Terminal columns that a table needs to show topics or an extra column; and to show times and keys.
_ROOM_MIN = 110
_ROOM_FOR_ALL = 72
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\", r"\0": "\0"}


def output_options(command: Command, *more: str) -> Command:
    """Adds --output, which may be one of `more` as well, and --format, and how bodies are decoded."""
    command = decode_options(command)
    command = click.option(
        "--format", "template", callback=_template,
        help=r"Print this for each message: '{topic} {queueOffset} {property.traceId} {body}\n', with any column.",
    )(command)  # fmt: skip
    forms = (*get_args(Form), *more)
    told = ", ".join(("table (default)", *forms[1:-1]))
    return click.option(
        "-o", "--output", "form", type=click.Choice(forms), help=f"{told} or {forms[-1]}."
    )(command)  # fmt: skip


def _template(_ctx: click.Context, _param: click.Parameter, text: str | None) -> "Template | None":
    if text is None:
        return None
    try:
        return Template.of(text)
    except ValueError as mistake:
        raise click.BadParameter(str(mistake)) from None


class Template(NamedTuple):
    """A text with fields in braces, as pairs: the text before a field, and the name of the field ("" at the end)."""

    parts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str) -> "Template":
        """Raises ValueError for a field that messages do not have."""
        plain = re.sub(r"\\[nt\\0]", lambda found: _ESCAPES[found[0]], text)
        parts = []
        for before, name, spec, conversion in string.Formatter().parse(plain):
            if name is not None and (spec or conversion or not _is_field(name)):
                raise ValueError(f"no field {{{name}}}; choose from {', '.join(COLUMNS)} and property.NAME")
            parts.append((before, name or ""))
        return cls(tuple(parts))

    def filled(self, row: Row) -> str:
        """The text for a message; a field that the message does not have is empty."""
        return "".join(before + (_field(row, name) if name else "") for before, name in self.parts)


def _is_field(name: str) -> bool:
    return name in COLUMNS or (name.startswith("property.") and len(name) > len("property."))


def _field(row: Row, name: str) -> str:
    if name.startswith("property."):
        value: Any = dict(row["properties"] or ()).get(name.removeprefix("property."))
    else:
        value = row[name]
    if name in _TIMES:
        return iso(moment_of(value)) or ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return ", ".join(f"{key}={text}" for key, text in value)
    return "" if value is None else str(value)


class Printer:
    """Prints batches in one format; the output cannot control a terminal."""

    def __init__(
        self, form: Form | None, template: Template | None, *, with_topic: bool, with_broker: bool, more: str = ""
    ) -> None:  # fmt: skip
        """`more`: a column that comes beside those of messages.  Raises click.UsageError for two forms."""
        if form is not None and template is not None:
            raise click.UsageError("--output and --format: give only one of them")
        self._template, self._decoder = template, chosen_decoder()
        self._form: Form = form or "table"
        self._with_topic, self._with_broker, self._more = with_topic, with_broker, more
        self._is_begun = False
        self._is_shown = is_terminal()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that each batch must have."""
        return _TABLE_COLUMNS if self._form == "table" and self._template is None else COLUMNS

    def show(self, batch: pa.RecordBatch) -> None:
        """Prints the rows of a batch."""
        if not batch.num_rows:
            return
        if self._form == "json-lines" and self._template is None:
            click.echo("\n".join(json_objects(batch, self._decoder)))
            sys.stdout.flush()
            return
        if self._decoder is not None:
            at = batch.schema.get_field_index("body")
            batch = batch.set_column(at, "body", self._decoder.texts(batch.column(at)))
        if self._form == "bodies" and self._template is None:
            self._show_bodies(batch)
            return
        if self._template is not None:
            text = "".join(map(self._template.filled, _rows_in_ms(batch)))
            click.echo(self._bearable(text), nl=False, color=True)
        elif self._form == "csv":
            click.echo(self._bearable(self._csv(batch)), nl=False, color=True)
        else:
            click.echo("\n".join(self._lines(batch)))
        self._is_begun = True
        sys.stdout.flush()

    def end(self, count: int) -> None:
        """Says of a table that it has no rows, or which columns a terminal has no room for."""
        if self._form != "table" or self._template is not None:
            return
        if not count:
            click.echo("no messages")
        elif left_out := self._shape().left_out(with_topic=self._with_topic):
            said = f"no room for {', '.join(left_out)}: use a wider terminal, a pipe or -o json-lines"
            click.echo(wrapped("", said))

    def _bearable(self, text: str) -> str:
        """The text for `click.echo(color=True)`, which takes no escape sequences out of what goes elsewhere."""
        return "\n".join(map(printable, text.split("\n"))) if self._is_shown else text

    def _csv(self, batch: pa.RecordBatch) -> str:
        written = io.StringIO()
        table = csv.writer(written, lineterminator="\n")
        columns = (*COLUMNS, self._more) if self._more else COLUMNS
        if not self._is_begun:
            table.writerow(columns)
        table.writerows([_field(row, name) for name in columns] for row in _rows_in_ms(batch))
        return written.getvalue()

    def _show_bodies(self, batch: pa.RecordBatch) -> None:
        """Prints the bodies of a batch; a damaged message has no body, and gets no line."""
        sound = batch.filter(batch.column("corruptReason").is_null())
        if not sound.num_rows:
            return
        bodies = [body or b"" for body in sound.column("body").to_pylist()]
        if self._is_shown:
            click.echo("\n".join(body_text(body, "\n") for body in bodies))
        else:
            click.echo(b"\n".join([*bodies, b""]), nl=False)
        sys.stdout.flush()

    def _shape(self) -> "_Shape":
        """The columns of the table that fit on the terminal."""
        line_size = cut_size()
        shape = _WIDE
        if line_size is not None and line_size < _ROOM_MIN:
            shape = _NARROW_WITH_MORE if self._more else _NARROW if self._with_topic else _NARROW_OF_ONE
            shape = _PLACES if line_size < _ROOM_FOR_ALL else shape
        if not self._with_topic:
            shape = shape._replace(topic=0)
        if line_size is None or line_size - shape.topic - _TIME_SIZE * bool(self._more) >= _ROOM_MIN:
            shape = shape._replace(sent=_TIME_SIZE)
        return shape

    def _lines(self, batch: pa.RecordBatch) -> Iterator[str]:
        line_size, shape = cut_size(), self._shape()
        if not self._is_begun:
            head = shape.head()
            yield fitted(f"{self._more:{_TIME_SIZE}}  {head}" if self._more else head, line_size)
        for row in _rows_in_ms(batch):
            line = _table_line(row, line_size, shape, with_broker=self._with_broker)
            yield fitted(f"{padded(_said(row[self._more]), _TIME_SIZE)}  {line}", line_size) if self._more else line


def is_terminal() -> bool:
    """Whether the output is a terminal, which it must not control."""
    return sys.stdout.isatty()


def _rows_in_ms(batch: pa.RecordBatch) -> list[Row]:
    """The rows with their times in ms: Python's calendar does not hold every time."""
    for name in _TIMES:
        at = batch.schema.get_field_index(name)
        if at >= 0:
            millis = pc.divide(batch.column(at).cast(pa.int64()), 1000)
            batch = batch.set_column(at, name, millis)
    return list(batch.to_pylist())


class _Shape(NamedTuple):
    """The columns of a terminal that parts of a table's lines take; 0: the part is not there."""

    topic: int
    sent: int
    stored: int
    tags: int
    keys: int

    def left_out(self, *, with_topic: bool) -> list[str]:
        """The parts that are not there, but for the topic of a table of one topic."""
        parts = {
            "topic": self.topic or not with_topic, "sent": self.sent, "stored": self.stored, "tags": self.tags,
            "keys": self.keys,
        }  # fmt: skip
        return [name for name, size in parts.items() if not size]

    def head(self) -> str:
        """The header line."""
        topic = f"{'topic':{self.topic}} " if self.topic else ""
        named = (("sent (UTC)", self.sent), ("stored (UTC)", self.stored), ("tags", self.tags), ("keys", self.keys))
        rest = "".join(f"{name:{size}}  " for name, size in named if size)
        return f"{topic}{'queue':>5} {'offset':>9}  {rest}body"


_WIDE = _Shape(topic=20, sent=0, stored=_TIME_SIZE, tags=10, keys=12)
_NARROW = _Shape(topic=14, sent=0, stored=_SHORT_TIME_SIZE, tags=0, keys=8)
_NARROW_OF_ONE = _Shape(topic=0, sent=0, stored=_SHORT_TIME_SIZE, tags=8, keys=8)
_PLACES = _Shape(topic=10, sent=0, stored=0, tags=0, keys=0)
_NARROW_WITH_MORE = _Shape(topic=14, sent=0, stored=0, tags=0, keys=8)


def _table_line(row: Row, line_size: int | None, shape: _Shape, *, with_broker: bool = False) -> str:
    """A message as a line, cut to so many columns; None: whole."""
    queue = f"{printable(row['brokerName'])}/{row['queueId']}" if with_broker else str(row["queueId"])
    place = f"{queue:>5} {row['queueOffset']:>9}  "
    if shape.topic:
        place = f"{_cell(row['topic'] or '', shape.topic, line_size)} {place}"
    if row["corruptReason"]:
        reason = f"damaged: {row['corruptReason']}"
        return place + printable(reason) if line_size is None else wrapped(place, reason)
    stored = utc(row["storeTimestamp"])[-shape.stored :] if shape.stored else ""
    times = ((utc(row["bornTimestamp"]), shape.sent), (stored, shape.stored))
    texts = (*times, (row["tags"], shape.tags), (row["keys"], shape.keys))
    cells = "".join(f"{_cell(text or '', size, line_size)}  " for text, size in texts if size)
    body = body_text(row["body"], " ", None if line_size is None else line_size + 1)
    line = fitted(f"{place}{cells}{body}", line_size)
    return line if body else line.rstrip()


def _said(value: object) -> str:
    """A value of a column beside those of messages: a time in ms, or a word."""
    return utc(value) if isinstance(value, int) else printable(str(value or ""))


def _cell(text: str, size: int, line_size: int | None) -> str:
    """A column of at least `size`, and where lines are cut of just as many."""
    shown = printable(text)
    return padded(shown if line_size is None else fitted(shown, size), size)


def tell_holes(stores: Iterable[StoreExtent]) -> None:
    """Prints on standard error which bytes of a log no file holds: their messages are missing in the output."""
    for store in stores:
        for first, end in store.log_holes:
            line = f"{store.path}: no commitlog file holds bytes {first} to {end}; messages in these bytes are left out"
            click.echo(printable(line), err=True)


_AT_THE_END = ("body", "corruptReason")


def json_objects(batch: pa.RecordBatch, decoder: BodyDecoder | None = None) -> list[str]:
    """The rows of a batch, each as json.dumps(…, ensure_ascii=False) writes an object of its columns in order, with
    what could steer a terminal escaped.

    At the end stand `body`, as "bodyBase64" where it is not UTF-8, or as `decoder` has it, and `corruptReason` where
    there is one; the batch must have these two columns.
    """
    others = [name for name in batch.schema.names if name not in _AT_THE_END]
    if decoder is None:
        return [escaped(line) for line in json_lines(batch.select([*others, *_AT_THE_END]), end="").to_pylist()]
    heads = json_lines(batch.select(others), end="").to_pylist()
    bodies = decoder.json_fields(batch.column("body").to_pylist())
    reasons = batch.column("corruptReason").to_pylist()
    ends = ["}" if text is None else f', "corruptReason": {json.dumps(text, ensure_ascii=False)}}}' for text in reasons]
    # What is decoded may hold halves of characters, which no Arrow text does.
    return [
        escaped(f"{head[:-1]}{', ' if others else ''}{body}{end}")
        for head, body, end in zip(heads, bodies, ends, strict=True)
    ]
