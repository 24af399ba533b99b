"""Small stores, opened."""

from dataclasses import replace

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.engine.store import Store, open_store
from tests.crash.disks import MemoryDisk

SMALL = StoreConfig(flush="SYNC", log_file_size=4096, queue_file_size=200, index_slot_count=5, index_item_count=9)
ASYNC = replace(SMALL, flush="ASYNC")


def opened(config: StoreConfig = SMALL, disk=None, **more) -> Store:
    """A store in memory, without threads."""
    more.setdefault("clock", ManualClock())
    return open_store("/store", config, filesystem=MemoryDisk() if disk is None else disk, workers=False, **more)
