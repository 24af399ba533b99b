"""Where `Dispatcher` was before it became a public name: programs that import it from here go on to run."""

from rmqstore.records.batch import Dispatcher, RecordBatch

__all__ = ["Dispatcher", "RecordBatch"]
