"""The reader: sees a store directory that may be live, never writes, never locks, starts no thread."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqstore.snapshot.entries import ledger_entries
    from rmqstore.snapshot.opening import open_selected
    from rmqstore.snapshot.request import QueueRange, ScanRequest, SplitBudget
    from rmqstore.snapshot.scan.split_reader import read_split
    from rmqstore.snapshot.snapshot import Snapshot, open_snapshot
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

# Imported when they are first asked for: of Spark's Python processes one checks options, one plans and one reads.
_MODULE_OF = {
    "QueueRange": "request",
    "ScanRequest": "request",
    "Snapshot": "snapshot",
    "Split": "split",
    "SplitBudget": "request",
    "StoresIn": "stores_in",
    "ledger_entries": "entries",
    "open_selected": "opening",
    "open_snapshot": "snapshot",
    "read_split": "scan.split_reader",
    "require_stores": "store_paths",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
