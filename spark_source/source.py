"""`spark.read.format("rmqstore")`: the wiring of options, schema and reader.

Spark runs `__init__` and `schema()` in one Python process on the driver, `reader()` and `partitions()` in another, and
`read()` on the executors; what travels between them is pickled.

The imports stand in the methods because Spark imports this module just to learn the name of the source: where numpy or
pyarrow are missing, the user then reads that in a traceback, and not that no source is called rmqstore.
"""
# ruff: noqa: PLC0415

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_source.worker_errors import RefusedStream, errors_in_one_line

if TYPE_CHECKING:
    from spark_source.tables import TableRead


class RmqStoreDataSource(DataSource):
    """A RocketMQ store as a Spark table.  Options are checked in `schema()`, so that `load()` itself tells of mistakes,
    and again, then for what is really meant, in `reader()` and `streamReader()`; Spark's writers start here as well.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """The word in `format(...)`."""
        return "rmqstore"

    @errors_in_one_line()
    def schema(self) -> StructType:
        """The schema when the user gives none.

        Raises Rejected for options that neither a batch read nor a stream takes, NotAStore, UnsupportedLayout.
        """
        from rmqstore.errors import Rejected
        from rmqstore.snapshot import require_stores
        from spark_source.columns.schema import spark_schema
        from spark_source.options.reads import parse_for_schema

        table = _table(self.options)
        if table is not None:
            from spark_source.tables import spark_table_schema

            require_stores(table.stores, takes_nodes=table.takes_nodes)
            return spark_table_schema(table.schema)
        read = parse_for_schema(self.options)
        require_stores(read.stores)
        if read.is_json:
            raise Rejected(
                "bodyFormat=json needs a schema with the fields of the bodies: .schema('topic string, queueOffset "
                "long, amount double')"
            )
        return spark_schema(read.request.columns)

    @errors_in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of `schema`, which is the user's where one was given.  Raises as `schema`, which
        Spark does not ask then.
        """
        from rmqstore.snapshot import require_stores
        from spark_source.batch_reader import BatchReader
        from spark_source.columns.schema import shape_for
        from spark_source.options.reads import parse_options
        from spark_source.pushdown_reader import PushdownReader, pushes_filters

        table = _table(self.options)
        if table is not None:
            from spark_source.tables import TableReader

            require_stores(table.stores, takes_nodes=table.takes_nodes)
            return TableReader(table.with_schema(schema))
        read = parse_options(self.options)
        require_stores(read.stores)
        shape = shape_for(schema, on_corrupt_record=read.request.on_corrupt_record, is_json=read.is_json)
        kind = PushdownReader if pushes_filters(read.pushdown) else BatchReader
        return kind(read.with_columns(shape.columns).with_group_resolved(), shape)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """A stream of the columns of `schema`.  Where `reader` would raise, the stream does so at its first
        question.
        """
        try:
            return self._stream_reader(schema)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
            return RefusedStream(error)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from rmqstore.snapshot import require_stores
        from spark_source.columns.schema import shape_for
        from spark_source.options.reads import parse_stream_options
        from spark_source.stream.reader import StreamReader

        read = parse_stream_options(self.options)
        require_stores(read.rows.stores)
        shape = shape_for(schema, on_corrupt_record=read.rows.request.on_corrupt_record, is_json=read.rows.is_json)
        return StreamReader(read.with_columns(shape.columns), shape)

    @errors_in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of the rows of a DataFrame with this schema.

        Raises Rejected for all that is wrong with options and columns, StoreInUse.
        """
        from spark_source.options.writes import parse_sink_options
        from spark_source.sink import BatchSink, open_sink

        request = parse_sink_options(self.options, is_stream=False)
        return BatchSink(open_sink(request, schema, overwrite), request.writer_id, request.batch_id)

    @errors_in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """A writer of one micro-batch of a stream, `overwrite` in output mode complete.  Raises as `writer`."""
        from spark_source.options.writes import parse_sink_options
        from spark_source.sink import StreamSink, open_sink

        request = parse_sink_options(self.options, is_stream=True)
        return StreamSink(open_sink(request, schema, overwrite))


def _table(options: Mapping[str, str]) -> "TableRead | None":
    """The table that is asked for; what tables are made of is imported for those who ask for one."""
    if not any(key.lower() == "table" for key in options):
        return None
    from spark_source.tables import parse_table

    return parse_table(options)
