"""rmqstore: Apache RocketMQ's store directories, written and read from Python, Arrow and Spark."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqstore.config import StoreConfig
    from rmqstore.core.ledger_config import LedgerConfig
    from rmqstore.core.message import GetResult, GetStatus, Message, PutResult, PutStatus
    from rmqstore.engine.broker.transaction_messages import TransactionState
    from rmqstore.engine.consumer import Consumer
    from rmqstore.engine.stats import Health
    from rmqstore.engine.store import Store, open_store, opened_store
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
    from rmqstore.records.batch import RecordBatch
    from rmqstore.records.dispatcher import Dispatcher
    from rmqstore.snapshot import Snapshot, StoresIn, open_snapshot
    from rmqstore.snapshot.stream.lag import stream_lag

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
    "RecoveryPlan",
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
    "Verification",
    "WrongType",
    "open_snapshot",
    "open_store",
    "opened_store",
    "recovery_plan",
    "register",
    "stream_lag",
    "verify",
]

_OF = {
    "rmqstore.engine.broker.transaction_messages": ("TransactionState",),
    "rmqstore.config": ("StoreConfig",),
    "rmqstore.engine.consumer": ("Consumer",),
    "rmqstore.errors": (
        "Corrupt",
        "DataLost",
        "DurabilityLost",
        "NotAStore",
        "NotNow",
        "PutFailed",
        "Rejected",
        "StoreChanging",
        "StoreClosed",
        "StoreError",
        "StoreInUse",
        "UnknownColumn",
        "UnknownTopic",
        "UnsupportedLayout",
        "WrongType",
    ),
    "rmqstore.cli.recover": ("recovery_plan",),
    "rmqstore.formats.broker_json": ("SubscriptionGroup", "TopicConfig"),
    "rmqstore.formats.stored_message": ("StoredMessage",),
    "rmqstore.core.ledger_config": ("LedgerConfig",),
    "rmqstore.engine.log.recovery.plan": ("RecoveryPlan",),
    "rmqstore.core.message": ("GetResult", "GetStatus", "Message", "PutResult", "PutStatus"),
    "rmqstore.records.batch": ("RecordBatch",),
    "rmqstore.records.dispatcher": ("Dispatcher",),
    "rmqstore.snapshot": ("Snapshot", "StoresIn", "open_snapshot"),
    "rmqstore.snapshot.verify.verification": ("Verification", "verify"),
    "rmqstore.engine.stats": ("Health",),
    "rmqstore.engine.store": ("Store", "open_store", "opened_store"),
    "rmqstore.snapshot.stream.lag": ("stream_lag",),
}
# Imported when they are first asked for: each of Spark's Python workers imports this package and only reads, and the
# command line has to be able to end quietly before NumPy and Arrow are there.
_MODULES = {name: module for module, names in _OF.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def register(spark: "SparkSession") -> None:
    """Makes spark.read.format("rmqstore") known to a session.

    An installed package is found by Spark by itself, if its workers run the Python that has it (PYSPARK_PYTHON); this
    is for sessions where another `pyspark_*` package that fails on import hides it, and for clusters that get this one
    with --py-files.
    """
    from pyspark.errors import AnalysisException

    from spark_source.shipped import lead_to_archive
    from spark_source.source import RmqStoreDataSource

    lead_to_archive(spark)
    try:
        spark.dataSource.register(RmqStoreDataSource)
    except AnalysisException as error:
        if (
            error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS"
        ):  # PySpark 4.0 does not replace a source of the same name
            raise
