"""What a batch reader came to ask of a store, when Spark has told it which columns and rows it wants."""

from rmqstore.snapshot.request import ScanRequest
from spark_source.batch_reader import BatchReader


def request_of(reader: BatchReader) -> ScanRequest:
    return reader._batch_read.request
