"""Small frames as a read of a store gives them."""

import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

TYPES = {
    "topic": "string", "brokerName": "string", "queueId": "int", "queueOffset": "bigint", "tags": "string",
    "keys": "string", "body": "binary", "properties": "map<string,string>", "flag": "int",
    "bornTimestamp": "timestamp", "storeTimestamp": "timestamp", "bornHost": "string", "msgId": "string",
    "offsetMsgId": "string", "reconsumeTimes": "int", "storeSize": "int", "bodyCrc": "int", "physicalOffset": "bigint",
}  # fmt: skip


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(f"2026-11-19T{text}").replace(tzinfo=datetime.UTC)


def messages(spark: SparkSession, columns: tuple[str, ...], *rows: dict[str, Any]) -> DataFrame:
    """Messages with these columns; what a row does not say is null."""
    schema = ", ".join(f"{name} {TYPES[name]}" for name in columns)
    return spark.createDataFrame([tuple(row.get(name) for name in columns) for row in rows], schema)
