"""`pruneColumns`, by which an engine says which columns a query needs."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_source.batch_reader import BatchReader
from spark_source.source import RmqStoreDataSource
from tests.snapshot.small_store import SmallStore
from tests.spark_source.read_requests import request_of


@pytest.fixture
def reader(tmp_path: Path) -> BatchReader:
    made = SmallStore()
    for number in range(5):
        made.add("orders", body=b"%d" % number, properties={"amount": str(number) if number else "none"})
    made.write(tmp_path)
    source = RmqStoreDataSource({"path": str(tmp_path), "subscribe": "orders"})
    found = source.reader(source.schema())
    assert isinstance(found, BatchReader)
    return found


def rows_of(reader: BatchReader) -> list[dict[str, object]]:
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "wanted",
    [
        pa.schema([("queueOffset", pa.int64()), ("topic", pa.string())]),
        StructType([StructField("queueOffset", LongType()), StructField("topic", StringType())]),
    ],
)
def test_only_those_are_read_in_their_order(reader: BatchReader, wanted: object) -> None:
    assert reader.pruneColumns(wanted) is wanted
    rows = rows_of(reader)
    assert rows == [{"queueOffset": number, "topic": "orders"} for number in range(5)]
    assert list(rows[0]) == ["queueOffset", "topic"]
    assert request_of(reader).needs_entries_only


def test_without_any_column_all_are_read(reader: BatchReader) -> None:
    with pytest.raises(NotImplementedError):
        reader.pruneColumns(pa.schema([]))
    assert len(rows_of(reader)[0]) == 11


def test_a_typed_property_is_still_converted_and_strict(tmp_path: Path, reader: BatchReader) -> None:
    source = RmqStoreDataSource({"path": str(tmp_path), "subscribe": "orders", "onCorruptRecord": "null"})
    schema = pa.schema([("body", pa.binary()), ("property.amount", pa.int64()), ("queueId", pa.int32())])
    typed = source.reader(schema)  # type: ignore[arg-type]
    assert isinstance(typed, BatchReader)
    typed.pruneColumns(pa.schema([schema.field(1)]))
    assert rows_of(typed) == [{"property.amount": number or None} for number in range(5)]
    strict = RmqStoreDataSource({"path": str(tmp_path), "subscribe": "orders"}).reader(schema)  # type: ignore[arg-type]
    assert isinstance(strict, BatchReader)
    strict.pruneColumns(pa.schema([schema.field(2), schema.field(1)]))
    with pytest.raises(Exception, match="is 'none', no int64"):
        rows_of(strict)
