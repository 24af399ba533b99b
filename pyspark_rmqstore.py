"""Imported by Spark itself, as any installed module named pyspark_* with a `DefaultSource`.

Kept to one import, because a module of this kind that fails to import hides every other source of its kind from Spark.
"""

from spark_source.source import RmqStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
