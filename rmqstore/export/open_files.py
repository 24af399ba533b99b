"""Files of an export while they are written: rows gathered in memory until they are worth a row group."""

import io
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rmqstore.files.filesystem import DiskFile, FileSystem
from rmqstore.snapshot.arrow.json_lines import json_lines

if TYPE_CHECKING:
    from collections.abc import Buffer

# Rows that go to one file are held until they take so much, and are a row group of it then.
GROUP_BYTES = 64 * 1024 * 1024
# Columns in which values seldom come twice: a dictionary of them only costs.
_PLAIN = frozenset(("body", "msgId", "offsetMsgId", "queueOffset", "physicalOffset"))


class DiskSink(io.RawIOBase):
    """A new file that is written from its beginning on, as writers of Arrow take it; an error tells its path."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Raises OSError."""
        super().__init__()
        self.path, self.size = path, 0
        self._is_given_up = False
        self._file: DiskFile = fs.create(path, 0)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """How much was written."""
        return self.size

    def write(self, data: "Buffer", /) -> int:
        """Writes all of it.  Raises OSError."""
        count = memoryview(data).nbytes
        if not self._is_given_up:
            try:
                self._file.write(self.size, data)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.path) from None
        self.size += count
        return count

    def give_up(self) -> None:
        """From now on nothing is written: what writers add when they are closed is not wanted."""
        self._is_given_up = True

    def settle(self) -> None:
        """Makes all durable, and closes the file.  Raises OSError."""
        try:
            self._file.sync()
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None
        self._file.close()


class RowFile(Protocol):
    """A file that takes rows."""

    @property
    def size(self) -> int:
        """Bytes that it has so far."""

    def write(self, rows: pa.Table) -> None:
        """Adds rows.  Raises OSError."""

    def finish(self) -> None:
        """Makes it whole and durable.  Raises OSError."""

    def give_up(self) -> None:
        """Lets it be, unfinished."""


class ParquetFile:
    """A file of Parquet, a row group for each call of `write`."""

    ending = ".parquet"

    def __init__(self, fs: FileSystem, path: str, schema: pa.Schema, compression: str) -> None:
        self._sink = DiskSink(fs, path)
        coded = [name for name in schema.names if name not in _PLAIN]
        self._writer = pq.ParquetWriter(self._sink, schema, compression=compression, use_dictionary=coded)

    @property
    def size(self) -> int:
        """As RowFile has it."""
        return self._sink.size

    def write(self, rows: pa.Table) -> None:
        """As RowFile has it."""
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))

    def finish(self) -> None:
        """As RowFile has it."""
        self._writer.close()
        self._sink.settle()

    def give_up(self) -> None:
        """As RowFile has it."""
        self._sink.give_up()
        with suppress(OSError, pa.ArrowException):
            self._writer.close()


class JsonLinesFile:
    """Lines of JSON, compressed or not."""

    ending = ".json"

    def __init__(self, fs: FileSystem, path: str, _: pa.Schema, compression: str) -> None:
        self._sink = DiskSink(fs, path)
        out = pa.PythonFile(self._sink, mode="w")
        self._out = out if compression == "none" else pa.CompressedOutputStream(out, compression)

    @property
    def size(self) -> int:
        """As RowFile has it."""
        return self._sink.size

    def write(self, rows: pa.Table) -> None:
        """As RowFile has it."""
        for batch in rows.to_batches():
            data = json_lines(batch).buffers()[2]
            if data is not None:
                self._out.write(data)

    def finish(self) -> None:
        """As RowFile has it."""
        self._out.close()
        self._sink.settle()

    def give_up(self) -> None:
        """As RowFile has it."""
        self._sink.give_up()
        with suppress(OSError, pa.ArrowException):
            self._out.close()


Opener = Callable[[FileSystem, str, pa.Schema, str], RowFile]
