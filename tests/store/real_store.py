"""Small stores on the host's disk."""

from rmqstore.config import StoreConfig
from rmqstore.engine.store import Store

SYNC = StoreConfig(
    flush="SYNC", log_file_size=8192, queue_file_size=200, index_slot_count=5, index_item_count=20, open_files_max=16
)


def bodies(store: Store, topic: str = "alpha", queue_id: int = 0) -> list[bytes | None]:
    """Those of all messages of a queue."""
    low, high = store.bounds(topic, queue_id)
    return [message.body for offset in range(low, high) for message in store.get(topic, queue_id, offset, 1).messages]
