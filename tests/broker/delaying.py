"""Delay delivery put together with a real store, as the store does it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import PutResult
from rmqstore.engine.broker.delay import DelayLevels
from rmqstore.engine.broker.delay_delivery import DelayDelivery, Progress, ReadyPut
from rmqstore.engine.log.encode.columns import EncodedColumns
from rmqstore.engine.store import open_store
from rmqstore.files.filesystem import FileSystem
from rmqstore.testing import Probe

Put = Callable[[EncodedColumns], PutResult]


@dataclass
class Saved:
    """Stands for config/delayOffset.json: what was saved, and how often the log was synced before."""

    table: dict[int, int] = field(default_factory=dict)
    count: int = 0
    synced_count: int = 0

    def save(self, offsets: dict[int, int]) -> None:
        assert self.synced_count > self.count, "saved before the log was synced"
        self.table, self.count = offsets, self.count + 1


class Delaying:
    """A store without threads whose messages are delayed, and the delivery."""

    def __init__(
        self, path: str, config: StoreConfig, clock: ManualClock, *,
        fs: FileSystem | None = None, saved: Saved | None = None, wrap: Callable[[Put], Put] = lambda put: put,
    ) -> None:  # fmt: skip
        levels = DelayLevels(config.delay_ms())
        self.clock = clock
        self.store = open_store(path, config, clock=clock, filesystem=fs, workers=False)
        self.probe, self.engine = Probe(self.store), Probe(self.store).engine
        # The delivery is this one, with a put and a progress of the test's.
        del self.engine.workers["delay"]
        self.saved = saved or Saved()
        # Ready-made records, past the hooks, without a wait for the disk.
        self.delivery = self.new_delivery(levels, wrap(self.engine.appender.put_records))

    def new_delivery(self, levels: DelayLevels, put: Put) -> DelayDelivery:
        """A delivery that begins with what was saved."""
        engine = self.engine
        return DelayDelivery(
            engine.log, engine.parts.queues, ReadyPut(put, engine.appender.form), levels, self.clock,
            Progress(self.saved.table, self.saved.save, self._sync),
        )  # fmt: skip

    def _sync(self) -> None:
        self.probe.sync_log()
        self.saved.synced_count = self.saved.count + 1

    def run(self) -> None:
        """Dispatches what was put, delivers what is due, and dispatches that."""
        self.probe.catch_up()
        while self.delivery.step() == 0:
            self.probe.catch_up()
        self.probe.catch_up()

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """The bodies of a queue's messages."""
        found: list[bytes] = []
        while (answer := self.store.get(topic, queue_id, len(found))).messages:
            found += [message.body or b"" for message in answer.messages]
        return found

    def close(self) -> None:
        self.delivery.persist()
        self.store.close()
