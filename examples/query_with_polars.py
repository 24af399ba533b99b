"""A RocketMQ store in Polars, without Spark or Java.

    python examples/query_with_polars.py build/demo/store

A DataFrame holds all rows that the scan brings: choose columns, tags or times, or go through the stream batch by batch.
"""

import sys

import polars as pl

import rmqstore


def orders_by_hour(store: str) -> pl.DataFrame:
    """How many orders of the example store were created in which hour (UTC): hour, created."""
    snapshot = rmqstore.open_snapshot(store)
    messages = snapshot.scan(topics=["orders"], columns=["bornTimestamp"], tags=("created",))
    frame = pl.DataFrame(messages)
    hours = frame.group_by(pl.col("bornTimestamp").dt.truncate("1h").alias("hour"))
    return hours.agg(pl.len().alias("created")).sort("hour")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/query_with_polars.py STORE")
    print(orders_by_hour(sys.argv[1]))  # noqa: T201
