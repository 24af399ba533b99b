"""A program for `test_connect.py`: reads a store through Spark Connect and prints what it saw as JSON.

A process of its own, because Connect and Classic sessions cannot live in one.
"""

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(path: str, topic: str) -> None:
    """Writes {"count", "columns", "places", "mistake"} in one line."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    frame = spark.read.format("rmqstore").option("subscribe", topic).load(path)
    seen: dict[str, object] = {"count": frame.count(), "columns": frame.columns}
    pruned = spark.read.format("rmqstore").schema("queueId int, queueOffset long").option("subscribe", topic)
    seen["places"] = sorted([row.queueId, row.queueOffset] for row in pruned.load(path).collect())
    try:
        spark.read.format("rmqstore").option("subcribe", topic).load(path).count()
    except PySparkException as mistake:
        seen["mistake"] = str(mistake)
    sys.stdout.write(json.dumps(seen) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
