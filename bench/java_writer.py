"""RocketMQ's own store as the comparison for writing and recovering: the oracle's `benchPut`, `benchBatch`, `open`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.java_reader import VERSION
from rmqstore.config import StoreConfig
from tests.oracle.oracle import Oracle


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second: stored, and with queues and index written as well."""

    accepted: float
    dispatched: float

    def best(self, other: Self) -> Self:
        """The higher of both, each by itself."""
        return type(self)(max(self.accepted, other.accepted), max(self.dispatched, other.dispatched))


class JavaWriter:
    """RocketMQ with a store of its own open, of the sizes and the flush of `config`.  All else is a broker's default.

    `open_seconds` is what its load and start took.  Raises RuntimeError when it does not load the store.
    """

    def __init__(self, store: Path, config: StoreConfig) -> None:
        names = {
            "mappedFileSizeCommitLog": config.log_file_size,
            "mappedFileSizeConsumeQueue": config.queue_file_size,
            "maxHashSlotNum": config.index_slot_count,
            "maxIndexNum": config.index_item_count,
            "flushDiskType": f"{config.flush}_FLUSH",
        }
        store.mkdir(parents=True, exist_ok=True)
        self._oracle = Oracle(VERSION)
        opened = self._oracle.open(store, names)
        if not opened["load"]:
            self.end()
            raise RuntimeError(f"RocketMQ does not load {store}")
        self.open_seconds = (opened["loadMs"] + opened["startMs"]) / 1000

    def put(self, count: int, body_size: int, threads: int = 1) -> Rates:
        """Puts one by one from `threads` threads into BenchTopic, four queues, each with a tag and a key."""
        done = self._oracle.call("benchPut", n=count, size=body_size, threads=threads)
        return Rates(done["putPerSecond"], done["dispatchedPerSecond"])

    def put_batches(self, count: int, body_size: int, batch_size: int) -> Rates:
        """Puts batches that were encoded once, before the clock runs; messages as `put`, and WAIT as clients set it."""
        done = self._oracle.call("benchBatch", n=count, size=body_size, per=batch_size)
        return Rates(done["putPerSecond"], done["dispatchedPerSecond"])

    def messages(self) -> int:
        """How many messages the four queues of BenchTopic hold, once everything is dispatched."""
        self._oracle.call("settle")
        state = self._oracle.call("state")
        return sum(int(queue["max"]) for name, queue in state["queues"].items() if name.startswith("BenchTopic/"))

    def end(self) -> None:
        """Ends the JVM at once; the store stays as a killed broker leaves it."""
        self._oracle.halt()
