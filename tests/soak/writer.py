"""A program for the soak: an engine that appends, rolls its files and deletes those that a stream is done with.

    python writer.py STORE JOURNAL PROGRESS RATE SEED

It notes every message in JOURNAL once it is stored: topic, queue, queue offset and the number that is its body.  It
deletes a log file when the progress that a stream exported to PROGRESS is past all of its messages.  A line of
input, or its end, ends it, after a last message to every queue.
"""

import itertools
import json
import random
import select
import sys
from pathlib import Path
from typing import TextIO

from rmqstore import Message, Store, StoreConfig, open_store
from rmqstore.formats import broker_json

LOG_FILE_SIZE = 64 * 1024
QUEUES = 3
TOPICS_MAX = 6
KEPT_FILES = 3
ENTRY_SIZE = 20

Key = tuple[str, int]


class Writer:
    """Puts messages, and knows which log file holds which of them."""

    def __init__(self, store: Store, root: Path, journal: TextIO, dice: random.Random) -> None:
        self._store = store
        self._root = root
        self._journal = journal
        self._dice = dice
        self._topics = 2
        self._count = 0
        self._files: dict[int, dict[Key, int]] = {}  # by start: the queue offset behind the last message in it

    def put_some(self) -> None:
        """A few messages, now and then of a new topic."""
        if self._dice.random() < 0.01:
            self._topics = min(self._topics + 1, TOPICS_MAX)
        for _ in range(self._dice.randrange(1, 20)):
            topic = f"soak-{self._dice.randrange(self._topics)}"
            self.put(topic, self._dice.randrange(QUEUES))

    def put(self, topic: str, queue_id: int) -> None:
        """One message of a random size."""
        body = b"%d " % self._count + bytes(self._dice.choice((10, 100, 1000)))
        result = self._store.put(Message(topic, body, queue_id=queue_id, tags="A"))
        assert result.physical_offset >= 0, result
        file = result.physical_offset // LOG_FILE_SIZE * LOG_FILE_SIZE
        self._files.setdefault(file, {})[topic, queue_id] = result.queue_offset + 1
        self._journal.write(f"{topic} {queue_id} {result.queue_offset} {self._count}\n")
        self._count += 1

    def put_last(self) -> None:
        """One message to every queue."""
        for topic in range(self._topics):
            for queue_id in range(QUEUES):
                self.put(f"soak-{topic}", queue_id)

    def retire(self, progress: Path) -> int:
        """Deletes the oldest log files as far as a stream is done with them; how many."""
        try:
            done = read_progress(progress)
        except (FileNotFoundError, json.JSONDecodeError):
            return 0
        retired = 0
        for start in sorted(self._files)[:-KEPT_FILES]:
            if any(done.get(key, 0) < end for key, end in self._files[start].items()):
                break
            (self._root / "commitlog" / f"{start:020}").unlink()
            del self._files[start]
            retired += 1
        if retired:
            self._retire_queue_files(done)
        return retired

    def _retire_queue_files(self, done: dict[Key, int]) -> None:
        """Deletes the queue files of messages that are gone, but for the newest of each queue."""
        oldest = min(self._files)
        for (topic, queue_id), end in done.items():
            files = sorted((self._root / "consumequeue" / topic / str(queue_id)).iterdir())
            for file, following in itertools.pairwise(files):
                first = int.from_bytes(following.read_bytes()[:8], "big")
                if int(following.name) // ENTRY_SIZE > end or first > oldest or not first:
                    break
                file.unlink()


def read_progress(path: Path) -> dict[Key, int]:
    """The next offset by topic and queue, of a file in consumerOffset.json's shape (fastjson: keys without quotes)."""
    offsets = broker_json.consumer_offsets(broker_json.parse(path.read_bytes()))
    return {(topic, queue_id): end for (_, topic), queues in offsets.items() for queue_id, end in queues.items()}


def main(root: Path, journal_path: Path, progress: Path, rate: float, seed: int) -> None:
    """Writes until it is told something; prints a line when the store is there, and one with counts at the end."""
    config = StoreConfig.embedded(log_file_size=LOG_FILE_SIZE, queue_file_size=2000)
    retired = 0
    with journal_path.open("w", buffering=1) as journal, open_store(root, config) as store:
        writer = Writer(store, root, journal, random.Random(seed))
        writer.put_last()
        store.flush()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        # Waiting for the end of the input is also what holds the rate.
        while not select.select([sys.stdin], [], [], 10 / rate)[0]:
            writer.put_some()
            retired += writer.retire(progress)
        writer.put_last()
        store.flush()
    sys.stdout.write(json.dumps({"retired": retired}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
