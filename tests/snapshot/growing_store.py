"""A store whose writer is caught in the act: what was added so far is put on the disk when a test says so."""

import shutil
from pathlib import Path
from typing import Any

from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.snapshot.small_store import FIRST_MS, QUEUE_FILE_ENTRIES, SmallStore


class GrowingStore(SmallStore):
    """As `SmallStore`, written over and over to the same directory; files that the test deleted stay away."""

    def __init__(self, root: Path, **sizes: int) -> None:
        super().__init__(**sizes)
        self.root = root
        self._deleted: set[Path] = set()

    def add_many(self, count: int, topic: str = "T", queues: int = 2, *, dispatched: bool = True) -> None:
        """Appends messages to the queues in turn, bodies b"T 0" and so on by their number in the store."""
        for _ in range(count):
            number = len(self.offsets)
            self.add(topic, number % queues, body=b"%s %d" % (topic.encode(), number), dispatched=dispatched)

    def publish(self, *, live: bool = True) -> Path:
        """Puts it on the disk, files in place, as a writer that maps them does; returns the root."""
        for start, data in sorted(self.data.items()):
            self._put(self.root / "commitlog" / format_start(start), bytes(data))
        size = QUEUE_FILE_ENTRIES * QUEUE_ENTRY.size
        for (topic, queue_id), entries in self.entries.items():
            whole = b"".join(entries)
            for start in range(0, len(whole), size):
                path = self.root / "consumequeue" / topic / str(queue_id) / format_start(start)
                self._put(path, whole[start : start + size].ljust(size, b"\0"))
        abort = self.root / "abort"
        abort.touch() if live else abort.unlink(missing_ok=True)
        return self.root

    def delete_log_file(self, number: int) -> None:
        """Deletes the n-th file of the log for good; it keeps its number."""
        path = self.root / "commitlog" / format_start(number * self.file_size)
        path.unlink()
        self._deleted.add(path)

    def delete_topic(self, topic: str) -> None:
        """Takes the queues of a topic away, as a broker does."""
        shutil.rmtree(self.root / "consumequeue" / topic)
        self.entries = {key: entries for key, entries in self.entries.items() if key[0] != topic}

    def _put(self, path: Path, data: bytes) -> None:
        if path in self._deleted:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with path.open("r+b") as file:
                file.write(data)
        else:
            path.write_bytes(data)


class BrokerStore(GrowingStore):
    """One of several brokers' stores, in a directory with its broker's name: its records have times of their own."""

    def __init__(self, root: Path, broker: str, **sizes: int) -> None:
        super().__init__(root / broker, **sizes)
        self._first_ms = FIRST_MS + sum(broker.encode())

    def add(self, *place: Any, **fields: Any) -> int:
        """As SmallStore.add."""
        time_ms = self._first_ms + 1000 * len(self.offsets)
        return super().add(*place, **({"store_timestamp": time_ms} | fields))


def broker_store(root: Path, broker: str, count: int) -> BrokerStore:
    """A broker's store with so many messages of topic T, in queues 0 and 1, on the disk."""
    store = BrokerStore(root, broker)
    store.add_many(count)
    store.publish()
    return store


def made_anew(store: GrowingStore, count: int) -> GrowingStore:
    """Another store of `count` messages in the place of one, which is left beside it under the name "old"."""
    store.root.rename(store.root.with_name("old"))
    anew = GrowingStore(store.root)
    anew.add_many(count)
    anew.publish()
    return anew
