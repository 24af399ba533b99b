"""A store in memory whose time the test moves."""

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.engine.store import Store, open_store
from tests.crash.disks import MemoryDisk

SMALL = StoreConfig(
    flush="SYNC", log_file_size=8192, queue_file_size=400, index_slot_count=50, index_item_count=90,
    default_queue_nums=4,
)  # fmt: skip


class Opened:
    """A store in memory whose time the test moves; `again` closes it and opens the same disk."""

    def __init__(self, config: StoreConfig = SMALL, **more) -> None:
        self.disk, self.clock, self.config, self.more = MemoryDisk(), ManualClock(), config, more
        self.store = self.open()

    def again(self) -> Store:
        self.store.close()
        self.store = self.open()
        return self.store

    def after(self, ms: int) -> Store:
        self.clock.advance(ms)
        for _ in range(6):
            self.store.step()
        return self.store

    def bodies(self, topic: str = "orders", queue_id: int = 0) -> list[bytes | None]:
        self.after(0)
        first, _ = self.store.bounds(topic, queue_id)
        return [message.body for message in self.store.get(topic, queue_id, first).messages]

    def bodies_of_all(self, topic: str) -> list[bytes | None]:
        found: list[bytes | None] = []
        while messages := self.store.get(topic, 0, len(found)).messages:
            found += [message.body for message in messages]
        return found

    def open(self) -> Store:
        return open_store(
            "/store", self.config, clock=self.clock, filesystem=self.disk, workers=False, **self.more
        )  # fmt: skip
