"""`spark.read.format("rmqstore")`: the wiring of options, schema and reader.

Spark runs `__init__` and `schema()` in one Python process on the driver, `reader()` and `partitions()` in another, and
`read()` on the executors; what travels between them is pickled.

The imports stand in the methods because Spark imports this module just to learn the name of the source: where numpy or
pyarrow are missing, the user then reads that in a traceback, and not that no source is called rmqstore.
"""
# ruff: noqa: PLC0415

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType


class RmqStoreDataSource(DataSource):
    """A RocketMQ store as a Spark table.  Options are checked here, so that `load()` itself tells of mistakes."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from spark_source.options import parse_options

        super().__init__(options)
        self._batch_read = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """The word in `format(...)`."""
        return "rmqstore"

    def schema(self) -> StructType:
        """The schema when the user gives none.  Raises NotAStore, UnsupportedLayout, so that `load()` itself does."""
        from rmqstore.snapshot import require_stores
        from spark_source.schema import spark_schema

        require_stores(self._batch_read.stores)
        return spark_schema(self._batch_read.request.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of `schema`, which is the user's where one was given.  Raises as `schema`, which
        Spark does not ask then.
        """
        from rmqstore.snapshot import require_stores
        from spark_source.batch_reader import BatchReader
        from spark_source.schema import shape_for

        require_stores(self._batch_read.stores)
        shape = shape_for(schema)
        return BatchReader(self._batch_read.with_columns(shape.columns), shape)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 (Spark's signature)
        """Raises Rejected: this version reads batches."""
        from rmqstore.errors import Rejected

        raise Rejected("rmqstore has no streams in this version: use spark.read instead of spark.readStream")
