"""A package that came to the driver with --py-files: where it is, for those of Spark's processes that are not told."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATHS, _BETWEEN = "PYTHONPATH", ":"  # the package runs on POSIX systems alone


def lead_to_archive(spark: SparkSession) -> None:
    """Names the archive that this package was imported from, if it was, to sources that are registered from now on.

    Spark adds shipped files to what workers import, but not to what the driver's process does that plans a stream: it
    cannot find the source without.  A session of Spark Connect has its driver elsewhere, and is left as it is.
    """
    archive = getattr(sys.modules[__name__].__loader__, "archive", None)
    driver = getattr(spark, "sparkContext", None)
    if archive is None or driver is None:
        return
    paths = driver.environment.get(_PATHS, "").split(_BETWEEN)
    if archive not in paths:
        driver.environment[_PATHS] = _BETWEEN.join(filter(None, [*paths, archive]))
