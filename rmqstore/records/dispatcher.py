"""The seam for programs that want to be told of every message of a store."""

from typing import Protocol

from rmqstore.records.batch import RecordBatch


class Dispatcher(Protocol):
    """Something that is told of every record of the log: queues and index, and what a caller adds.

    Called from one thread, in the order of the log.  After a crash or a failure records come again that came before:
    what a dispatcher has already, it drops.
    """

    def dispatch(self, batch: RecordBatch) -> None:
        """Takes the records of a batch.  An exception stops dispatching and makes the store unhealthy."""

    def flush(self) -> None:
        """Makes durable all that was taken until now."""
