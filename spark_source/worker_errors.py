"""How an error leaves a Python worker of Spark: a StoreError as its own one line, without the frames that led to it.

Spark sends the text of a traceback to the driver, where frames of this package say nothing to a user, and push the
line that does off the screen.  Errors that are no StoreError are mistakes of this package, and keep their frames.

This module imports nothing that Spark's own Python may lack, because Spark imports it to learn the source's name.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

# Advice in error messages for Python programs, and its replacement with Spark's options.
_OPTIONS_SAID = (
    ("on_corrupt_record='skip'", "onCorruptRecord=skip"),
    (
        "open the store again for its current offsets, or set fail_on_data_loss=False",
        "load again for the current offsets, or set failOnDataLoss=false",
    ),
    ("; pattern= takes a regular expression", "; subscribePattern takes a regular expression"),
    (
        "it goes on after it with fail_on_data_loss=False, or begins again without `after`",
        "the stream goes on after it with failOnDataLoss=false, or from the start with another checkpointLocation",
    ),
    ("missing_time='latest'", "startingOffsetsByTimestampStrategy=latest"),
    ("max_records does not go with", "maxRecordsPerPartition does not go with"),
    ("merge=False does not go with", "mergePartitions=false does not go with"),
    ("go with scan_mode='commitlog'", "go with scanMode=commitlog"),
    ("use max_bytes or min_partitions", "use maxBytesPerPartition or minPartitions"),
    ("the offsets to go on from are of", "the checkpoint holds offsets of"),
    ("the same store, name it, as ", "the same store, name it with the option stores, "),
    ("or begin again without `after`", "or start the query with another checkpointLocation"),
    (" to go on from is not of this source", " in the checkpoint is not of this source"),
    ("give back the offsets of a batch as they came", "start the query with a checkpointLocation of its own"),
    (" (rmqstore.opened_store gives what open_store opened)", ""),
    ("check that disk, and try again", "check that disk, and load again"),
)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """For functions that Spark calls, as a decorator or in `with`: a StoreError from them names Spark's options.

    In a worker Spark prints the error without a traceback.  A worker ends after an error, so the setting for this one
    error stays.
    """
    try:
        yield
    except Exception as error:
        errors = sys.modules.get("rmqstore.errors")
        if errors is not None and isinstance(error, errors.StoreError):
            error.say(said_to_spark(str(error)))
            if _is_worker():
                sys.tracebacklimit = 0
                raise error from None
        raise


def said_to_spark(line: str) -> str:
    """A line that the package says to Python programs, with Spark's options."""
    for said, meant in _OPTIONS_SAID:
        line = line.replace(said, meant)
    return line


def _is_worker() -> bool:
    """Whether Spark started this process, as `python -m pyspark.daemon` or `python -m pyspark.sql.worker.…`."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


class RefusedStream(DataSourceStreamReader):
    """Stands for a stream that cannot be: every question raises the same error.

    PySpark wants to stop a reader that was never made, and would tell of that mistake in place of what is wrong.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    @errors_in_one_line()
    def _refuse(self, *_: Any) -> NoReturn:
        raise self._error

    def latestOffset(self, start: Any = None, limit: Any = None) -> NoReturn:  # noqa: ARG002, N802 (Spark's names)
        """Raises the error."""
        self._refuse()

    # All that Spark calls; Any because each has a signature of its own.
    initialOffset: Any = _refuse  # noqa: N815
    getDefaultReadLimit: Any = _refuse  # noqa: N815
    reportLatestOffset: Any = _refuse  # noqa: N815
    partitions: Any = _refuse
    read: Any = _refuse
    commit: Any = _refuse
