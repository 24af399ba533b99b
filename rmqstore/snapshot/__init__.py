"""The reader: sees a store directory that may be live, never writes, never locks, starts no thread."""

from rmqstore.snapshot.entries import ledger_entries
from rmqstore.snapshot.reader import Snapshot, open_selected, open_snapshot
from rmqstore.snapshot.request import QueueRange, ScanRequest, SplitBudget
from rmqstore.snapshot.scan.split_reader import read_split
from rmqstore.snapshot.split import Split
from rmqstore.snapshot.store_paths import require_stores
from rmqstore.snapshot.stores_in import StoresIn

__all__ = [
    "QueueRange",
    "ScanRequest",
    "Snapshot",
    "Split",
    "SplitBudget",
    "StoresIn",
    "ledger_entries",
    "open_selected",
    "open_snapshot",
    "read_split",
    "require_stores",
]
