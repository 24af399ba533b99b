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


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """For functions that Spark calls, as a decorator or in `with`: a StoreError that leaves them is the worker's last
    word.

    Changes nothing in a process that is not a worker of Spark.  A worker that met an error tells it and ends: what is
    set here is set for that one error.
    """
    try:
        yield
    except Exception as error:
        if _is_store_error(error) and _is_worker():
            sys.tracebacklimit = 0
            raise error from None
        raise


def _is_store_error(error: Exception) -> bool:
    errors = sys.modules.get("rmqstore.errors")
    return errors is not None and isinstance(error, errors.StoreError)


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
