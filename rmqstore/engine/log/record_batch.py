"""Where `Dispatcher` was before it became a public name: programs that import it from here go on to run."""

from rmqstore.records.batch import RecordBatch
from rmqstore.records.dispatcher import Dispatcher

__all__ = ["Dispatcher", "RecordBatch"]
