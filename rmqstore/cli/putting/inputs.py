"""Inputs of messages, chunk by chunk: JSON lines, plain lines and Parquet."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rmqstore.cli.putting.chunks import ROWS_AT_ONCE, Chunk, Mistake, Wrong, up_to_a_mistake
from rmqstore.cli.putting.line_input import STANDARD_INPUT, lines_of
from rmqstore.cli.putting.message_columns import MessageWishes, of_bodies, of_json, of_table
from rmqstore.errors import Rejected

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
        yield Chunk(None, (), number, Wrong(number, f"is no Parquet that can be read ({reason})"))


def _rows(batch: pa.RecordBatch, wishes: MessageWishes, count: int) -> pa.RecordBatch:
    return of_table(batch.slice(0, count), wishes)
