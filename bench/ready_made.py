"""A Python data source that does nothing but hand out ready-made Arrow batches: the fastest that Spark takes them
from Python."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class ReadyMadeSource(DataSource):
    """Options: `sample`, an Arrow file of one batch; `sizes`, a JSON file with the rows of each batch of each
    partition."""

    @classmethod
    def name(cls) -> str:
        """The word in `format(...)`."""
        return "ready-made"

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader; the schema is that of the sample."""
        return _ReadyMadeReader(self.options["sample"], json.loads(Path(self.options["sizes"]).read_text()))


class _ReadyMadeReader(DataSourceReader):
    def __init__(self, sample: str, sizes: list[list[int]]) -> None:
        self._sample = sample
        self._sizes = sizes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(sizes) for sizes in self._sizes]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._sample) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
        for rows in partition.value:
            yield batch if rows == batch.num_rows else batch.slice(0, rows)
