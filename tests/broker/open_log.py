"""What transactions see of a store, over a real one without threads; `dispatch` is what its worker would do."""

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetResult, Message, PutResult, PutStatus
from rmqstore.engine.broker.consumer_offsets import ConsumerOffsets
from rmqstore.engine.broker.transaction_check import Check, CheckLimits
from rmqstore.engine.broker.transaction_messages import Prepared, half_message, prepared_of
from rmqstore.engine.broker.transactions import Transactions
from rmqstore.engine.store import Store, open_store
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import names
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.testing import Probe

SMALL = StoreConfig(
    flush="SYNC", log_file_size=64 * 1024, queue_file_size=2000, index_slot_count=50, index_item_count=200,
    preallocate=False,
)  # fmt: skip


class OpenLog:
    """A store without hooks.  `refused` topics are not admitted; `failing` topics cannot be put to."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._parts_of = Probe(store).engine
        self.refused: set[str] = set()
        self.failing: set[str] = set()
        self.put_topics: list[str] = []

    def admit(self, message: Message) -> Message | PutStatus:
        return PutStatus.MESSAGE_ILLEGAL if message.topic in self.refused else message

    def why_not(self, message: Message) -> str:
        return f"topic={message.topic!r}"

    def put(self, message: Message) -> PutResult:
        if message.topic in self.failing:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        self.put_topics.append(message.topic)
        return self._parts_of.appender.put_past_hooks(message)

    def put_copy(self, message: Message) -> PutResult:
        return self.put(message)

    def sync(self) -> None:
        self._parts_of.sync_log()

    def get(self, topic: str, queue_id: int, offset: int, max_count: int) -> GetResult:
        return self.store.get(topic, queue_id, offset, max_count)

    def message_at(self, physical_offset: int) -> StoredMessage:
        return self.store.message_at(physical_offset)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.store.bounds(topic, queue_id)

    def query(self, topic: str, key: str, max_count: int) -> list[StoredMessage] | None:
        return self.store.query(topic, key, max_count) if self.store.config.index_enabled else None

    def offset_after(self, topic: str, queue_id: int, physical_offset: int) -> int:
        queue = self._parts_of.parts.queues.find(topic, queue_id)
        if queue is None:
            return 0
        entries = queue.read(queue.min_offset, queue.max_offset)
        return queue.min_offset + int((entries["physical_offset"] <= physical_offset).sum())


class Opened:
    """A store with transactions, put together as a broker has them."""

    def __init__(
        self, disk: FileSystem, config: StoreConfig = SMALL, *, clock: ManualClock | None = None,
        check: Check | None = None, limits: CheckLimits | None = None, path: str = "/store",
    ) -> None:  # fmt: skip
        self.clock = clock or ManualClock()
        self.store = open_store(path, config, clock=self.clock, filesystem=disk, workers=False)
        self.dispatch()
        self.log = OpenLog(self.store)
        self.offsets = ConsumerOffsets(disk, self.store.path, self.clock)
        self.offsets.load()
        self.transactions = Transactions(self.log, self.offsets, self.clock, check=check, limits=limits)
        self.transactions.load()

    def dispatch(self) -> None:
        while self.store.health().dispatch_behind_bytes:
            self.store.step()

    def put_rocksdb_half(self, body: bytes) -> Prepared:
        """Puts a half message as brokers with transRocksDBEnable and without transWriteOriginTransHalfEnable do."""
        half = half_message(Message("orders", body, queue_id=1), "shop", f"KEY-{body.decode()}", self.clock.now_ms())
        half.topic = names.ROCKSDB_HALF_TOPIC
        return prepared_of(self.store.message_at(self.store.put(half).physical_offset))

    def check(self) -> None:
        """One check cycle, with all that was put before dispatched."""
        self.dispatch()
        self.transactions.cycle.run()
        self.dispatch()

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes | None]:
        return [message.body for message in self.messages(topic, queue_id)]

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        self.dispatch()
        found: list[StoredMessage] = []
        offset, end = self.store.bounds(topic, queue_id)
        while offset < end:
            result = self.store.get(topic, queue_id, offset)
            found += result.messages
            offset = result.next_offset
        return found

    def close(self) -> None:
        self.offsets.persist()
        self.store.close()
