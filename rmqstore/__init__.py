"""rmqstore: Apache RocketMQ's store directories, written and read from Python, Arrow and Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rmqstore.config import StoreConfig
from rmqstore.errors import (
    Corrupt,
    DataLost,
    DurabilityLost,
    NotAStore,
    NotNow,
    PutFailed,
    Rejected,
    StoreChanging,
    StoreClosed,
    StoreError,
    StoreInUse,
    UnknownColumn,
    UnknownTopic,
    UnsupportedLayout,
    WrongType,
)
from rmqstore.formats.broker_json import SubscriptionGroup, TopicConfig
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.ledger_config import LedgerConfig
from rmqstore.message import GetResult, GetStatus, Message, PutResult, PutStatus
from rmqstore.snapshot import Snapshot, StoresIn, open_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqstore.broker.transaction_messages import TransactionState
    from rmqstore.consumer import Consumer
    from rmqstore.records.batch import RecordBatch
    from rmqstore.records.dispatcher import Dispatcher
    from rmqstore.stats import Health
    from rmqstore.store import Store, open_store

__version__ = "0.1.0"

__all__ = [
    "Consumer",
    "Corrupt",
    "DataLost",
    "Dispatcher",
    "DurabilityLost",
    "GetResult",
    "GetStatus",
    "Health",
    "LedgerConfig",
    "Message",
    "NotAStore",
    "NotNow",
    "PutFailed",
    "PutResult",
    "PutStatus",
    "RecordBatch",
    "Rejected",
    "Snapshot",
    "Store",
    "StoreChanging",
    "StoreClosed",
    "StoreConfig",
    "StoreError",
    "StoreInUse",
    "StoredMessage",
    "StoresIn",
    "SubscriptionGroup",
    "TopicConfig",
    "TransactionState",
    "UnknownColumn",
    "UnknownTopic",
    "UnsupportedLayout",
    "WrongType",
    "open_snapshot",
    "open_store",
    "register",
]

# Imported when they are first asked for: each of Spark's Python workers imports this package, and only reads.
_OF_THE_WRITER = {
    "Consumer": "rmqstore.consumer",
    "Dispatcher": "rmqstore.records.dispatcher",
    "Health": "rmqstore.stats",
    "RecordBatch": "rmqstore.records.batch",
    "Store": "rmqstore.store",
    "TransactionState": "rmqstore.broker.transaction_messages",
    "open_store": "rmqstore.store",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_THE_WRITER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_OF_THE_WRITER[name]), name)
    globals()[name] = value
    return value


def register(spark: "SparkSession") -> None:
    """Makes spark.read.format("rmqstore") known to a session.

    An installed package is found by Spark by itself, if its workers run the Python that has it (PYSPARK_PYTHON); this
    is for sessions where another `pyspark_*` package that fails on import hides it.
    """
    from pyspark.errors import AnalysisException

    from spark_source.source import RmqStoreDataSource

    try:
        spark.dataSource.register(RmqStoreDataSource)
    except AnalysisException as error:
        if (
            error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS"
        ):  # PySpark 4.0 does not replace a source of the same name
            raise
