"""One planned read: splits out of the store on the driver, ready-made Arrow batches on the executors.

What the one needs the other does not import.
"""
# ruff: noqa: PLC0415

import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqstore.errors import NotAStore
from rmqstore.snapshot import Split
from spark_source.columns.schema import BatchShape
from spark_source.options.reads import BatchRead
from spark_source.partitions import StorePartition, split_in
from spark_source.worker_errors import errors_in_one_line


class BatchReader(DataSourceReader):
    """Plans and reads one `load()`.

    It has no `pushFilters` on purpose: Spark 4.1 to 4.3 keep a pushed filter for every later use of the same DataFrame,
    which then lacks rows.  Pruning is by options, which belong to one `load()`.
    """

    def __init__(self, batch_read: BatchRead, shape: BatchShape) -> None:
        self._batch_read = batch_read
        self._shape = shape

    @errors_in_one_line()
    def partitions(self) -> list[InputPartition]:
        """The splits of the store as it is now; a list, because Spark takes nothing else.

        Raises NotAStore, UnsupportedLayout, UnknownTopic, Rejected or DataLost.
        """
        from rmqstore.snapshot import open_selected

        asked = self._batch_read
        snapshot = open_selected(
            asked.stores, asked.selection, access=asked.request.access, include_uncommitted=asked.include_uncommitted
        )
        ranges = snapshot.select(**asked.selection)
        return [StorePartition(split) for split in snapshot.plan(ranges, asked.request, asked.budget)]

    def pruneColumns(self, schema: Any) -> Any:  # noqa: N802  Sail's name, and the one proposed for Spark
        """Reads no other columns than those of `schema`, in its order; an engine that knows which ones a query needs
        calls it before `partitions`.  Returns the schema.

        Raises NotImplementedError, as Sail asks for, where there is no column at all: then all are read.
        """
        if not schema.names:
            raise NotImplementedError("a read has at least one column")
        self._shape = self._shape.of(schema.names)
        self._batch_read = self._batch_read.with_columns(self._shape.columns)
        return schema

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition as batches of exactly the schema that Spark expects.  Raises StoreError."""
        split = split_in(partition)
        if split is not None:
            with errors_in_one_line():
                yield from self._batches(split)

    def _batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        from rmqstore.snapshot import read_split

        try:
            for batch in read_split(split, self._batch_read.request):
                yield self._shape.fit(batch)
        except NotAStore as missing:
            raise _unseen_here(missing) from None


def _unseen_here(missing: NotAStore) -> NotAStore:
    """The same error in the words of a cluster: the driver saw this path when it planned, this host does not.  What is
    there and cannot be read is told as it is, with the host.
    """
    if missing.reason.startswith("cannot be read"):
        return NotAStore(missing.path, f"{missing.reason} (on host {socket.gethostname()})")
    return NotAStore(
        missing.path,
        f"host {socket.gethostname()} cannot see this store ({missing.reason}); mount it at the same path on every "
        "executor, or run Spark with --master local[*] on a host that has it",
    )
