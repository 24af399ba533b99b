"""A program for `test_cluster.py`: reads a store on a cluster of processes that get this project as an archive.

Prints what it saw as one line of JSON.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def origin(rows: Iterator[object]) -> list[str]:
    """Where an executor imported the reader from."""
    import rmqstore.snapshot

    return [str(rmqstore.snapshot.__file__) for _ in rows][:1]


def main(archive: str, path: str, topic: str) -> None:
    """Writes {"driver", "executors", "places", "unseen"}."""
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.submit.pyFiles", archive).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    import rmqstore

    rmqstore.register(spark)
    read = spark.read.format("rmqstore").option("subscribe", topic).option("minPartitions", "4")
    frame = read.load(path)
    seen: dict[str, object] = {
        "driver": str(rmqstore.__file__),
        "executors": sorted(set(frame.rdd.mapPartitions(origin).collect())),
        "places": sorted([row.queueId, row.queueOffset] for row in frame.select("queueId", "queueOffset").collect()),
    }
    moved = Path(path).with_name("moved")
    shutil.copytree(path, moved)
    late = read.load(str(moved)).rdd
    late.getNumPartitions()  # planned while the driver sees the store, read when nobody does
    moved.rename(moved.with_name("elsewhere"))
    try:
        late.count()
    except (PySparkException, Py4JJavaError) as unseen:
        seen["unseen"] = str(unseen)
    sys.stdout.write(json.dumps(seen) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
