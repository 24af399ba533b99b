"""Topics of stores in tables of Iceberg and Delta Lake, each message once, without Spark or a JVM.

    from rmqstore.lake import Sync, SyncRequest, open_table
    table = open_table("delta", "/data/orders.delta")
    done = Sync("/data/rocketmq/store", table, SyncRequest(topics=["orders"])).run()

Offsets go into the table with the rows, in one commit: what ends the program ends it before a commit or after it, and
the next run goes on from the table itself.
"""

from rmqstore.lake.dead_letters import DeadLetterFile
from rmqstore.lake.opening import Format, open_table
from rmqstore.lake.sink import Committed, Consent, DataFile, Standing, TableFailed, TableSink
from rmqstore.lake.syncing import Steps, Sync, SyncListener, SyncRequest, SyncTotals
from rmqstore.lake.table_columns import DEFAULT_TABLE_COLUMNS, TableColumns

__all__ = [
    "DEFAULT_TABLE_COLUMNS",
    "Committed",
    "Consent",
    "DataFile",
    "DeadLetterFile",
    "Format",
    "Standing",
    "Steps",
    "Sync",
    "SyncListener",
    "SyncRequest",
    "SyncTotals",
    "TableColumns",
    "TableFailed",
    "TableSink",
    "open_table",
]
