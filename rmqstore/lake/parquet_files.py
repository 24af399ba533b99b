"""Rows into Parquet files of about one size, each of one partition; what is held in memory is bounded."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rmqstore.lake.sink import DataFile, Partition, TableSink, told

# Rows of so many bytes become one row group; readers take these one at a time.
_GROUP_BYTES = 48 * 2**20
# Bytes of rows that wait for their row group, over all partitions.
_HELD_BYTES = 144 * 2**20
# Files that are open at once; one more closes the one that was written to the longest ago.
_OPEN_MAX = 64
# Columns of which one value comes again and again.
_ALIKE = (
    "topic", "brokerName", "queueId", "tags", "flag", "sysFlag", "bornHost", "storeHost", "reconsumeTimes",
    "preparedTransactionOffset", "tagsCode", "storeSize", "corruptReason",
)  # fmt: skip
# Columns whose smallest and largest value help nobody to leave a file out.
WITHOUT_STATISTICS = ("body", "properties")


class _OpenFile:
    """A file that is being written."""

    def __init__(self, sink: TableSink, partition: Partition) -> None:
        self.partition, self.path = partition, sink.new_path()
        self._output: IO[bytes] = sink.open_output(self.path)
        schema = sink.file_schema
        alike = [name for name in schema.names if name in _ALIKE]
        bounded = [name for name in schema.names if name not in WITHOUT_STATISTICS]
        self._writer = pq.ParquetWriter(
            self._output, schema, compression="zstd", use_dictionary=alike, write_statistics=bounded,
        )  # fmt: skip

    @property
    def size(self) -> int:
        return int(self._output.tell())

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))

    def finish(self) -> DataFile:
        self._writer.close()
        size = self.size
        self._output.close()
        return DataFile(self.path, size, self.partition, self._writer.writer.metadata)

    def abandon(self) -> None:
        """Closes it, whatever state an exception left it in."""
        for part in (self._writer, self._output):
            with suppress(Exception):
                part.close()


class ParquetFiles:
    """The files of one commit, as they are written."""

    def __init__(self, sink: TableSink, target_size: int) -> None:
        """A file ends with the row group that brings it to `target_size` bytes."""
        self._sink, self._target_size = sink, target_size
        self._held: dict[Partition, list[pa.RecordBatch]] = {}
        self._sizes: dict[Partition, int] = {}
        self._open: OrderedDict[Partition, _OpenFile] = OrderedDict()
        self._finished: list[DataFile] = []
        self.row_count, self.row_bytes = 0, 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes rows with the columns of the table."""
        if not rows.num_rows:
            return
        with told(self._sink.name):
            for partition, part in _parts(rows, self._sink.partition_keys(rows)):
                self._held.setdefault(partition, []).append(part)
                self._sizes[partition] = self._sizes.get(partition, 0) + part.nbytes
                if self._sizes[partition] >= _GROUP_BYTES:
                    self._write(partition)
            while sum(self._sizes.values()) > _HELD_BYTES:
                self._write(max(self._sizes, key=self._sizes.__getitem__))
        self.row_count += rows.num_rows
        self.row_bytes += rows.nbytes

    def finish(self) -> list[DataFile]:
        """Writes what is left, and gives up all files; it can be used again."""
        with told(self._sink.name):
            for partition in list(self._held):
                self._write(partition)
            while self._open:
                self._close_oldest()
        files, self._finished = self._finished, []
        self.row_count, self.row_bytes = 0, 0
        return files

    def abandon(self) -> None:
        """Takes the files away: none of them is in a commit."""
        for file in self._open.values():
            file.abandon()
            self._sink.discard(file.path)
        for done in self._finished:
            self._sink.discard(done.path)
        self._open.clear()
        self._held.clear()
        self._sizes.clear()
        self._finished = []
        self.row_count, self.row_bytes = 0, 0

    def _write(self, partition: Partition) -> None:
        schema = self._sink.file_schema
        rows = pa.Table.from_batches(self._held.pop(partition))
        del self._sizes[partition]
        if partition not in self._open:
            if len(self._open) >= _OPEN_MAX:
                self._close_oldest()
            self._open[partition] = _OpenFile(self._sink, partition)
        self._open.move_to_end(partition)
        file = self._open[partition]
        file.write(pa.Table.from_arrays([rows.column(number) for number in self._sink.file_columns], schema=schema))
        if file.size >= self._target_size:
            self._finished.append(self._open.pop(partition).finish())

    def _close_oldest(self) -> None:
        _, file = self._open.popitem(last=False)
        self._finished.append(file.finish())


def _parts(rows: pa.RecordBatch, keys: Sequence[pa.Array]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The rows of each partition, in their order."""
    codes, values = _codes(rows.num_rows, keys)
    if len(values) == 1:
        yield values[0], rows
        return
    order = np.argsort(codes, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    ends = np.cumsum(np.bincount(codes, minlength=len(values)))
    first = 0
    for partition, end in zip(values, ends.tolist(), strict=True):
        yield partition, sorted_rows.slice(first, end - first)
        first = end


def _codes(count: int, keys: Sequence[pa.Array]) -> tuple[np.ndarray, list[Partition]]:
    """For each row the number of its partition, and the values of each partition that there is."""
    codes = np.zeros(count, np.int64)
    values: list[Partition] = [()]
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        own = encoded.dictionary.to_pylist()
        codes = codes * len(own) + encoded.indices.to_numpy(zero_copy_only=False)
        found, codes = (
            np.unique(codes, return_inverse=True) if len(values) * len(own) > 1 else (np.zeros(1, int), codes)
        )
        values = [(*values[number // len(own)], own[number % len(own)]) for number in found.tolist()]
    return codes, values
