"""Stores of a few records, written byte by byte, for tests that must know where everything lies."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.formats import java_hash
from rmqstore.formats.message import BLANK, MAGIC_BLANK, encode_record
from rmqstore.formats.names import format_start
from rmqstore.formats.properties import encode_properties, parse_properties
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.formats.records import make_record

FIRST_MS = 1_700_000_000_000
QUEUE_FILE_ENTRIES = 50

Queue = tuple[str, int]


@dataclass
class SmallStore:
    """A log under construction; `offsets` are where its records stand, `end` where the next one would.

    Store times rise by one second a record.  A record that does not fit into the rest of a file begins the next one.
    """

    file_size: int = 4096
    end: int = 0
    data: dict[int, bytearray] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)
    entries: dict[Queue, list[bytes]] = field(default_factory=dict)
    next_offsets: dict[Queue, int] = field(default_factory=dict)

    def add(
        self, topic: str = "T", queue_id: int = 0, *, body: bytes = b"hello", dispatched: bool = True,
        properties: Mapping[str, str] | bytes | None = None, **fields: object,
    ) -> int:  # fmt: skip
        """Appends a message, with its queue entry if `dispatched`; returns its physical offset."""
        queue = (topic, queue_id)
        queue_offset = self.next_offsets.get(queue, 0)
        given = {"TAGS": "A"} if properties is None else properties
        block = given if isinstance(given, bytes) else encode_properties(given)
        wanted = {
            "store_timestamp": FIRST_MS + 1000 * len(self.offsets),
            "queue_offset": queue_offset,
            "properties": block,
        } | fields
        size = len(encode_record(make_record(topic=topic.encode(), queue_id=queue_id, body=body, **wanted)))
        if self.end % self.file_size + size + BLANK.size > self.file_size:
            self.roll()
        offset = self.end
        record = make_record(
            topic=topic.encode(), queue_id=queue_id, body=body, **({"physical_offset": offset} | wanted)
        )
        self.append(encode_record(record))
        self.offsets.append(offset)
        self.next_offsets[queue] = queue_offset + 1
        if dispatched:
            tags = parse_properties(block).get("TAGS", "")
            entry = QUEUE_ENTRY.struct.pack(offset, size, java_hash.string_hash(tags))
            self.entries.setdefault(queue, []).append(entry)
        return offset

    def append(self, data: bytes) -> None:
        """Puts any bytes at the end of the log, within one file."""
        start = self.end // self.file_size * self.file_size
        file = self.data.setdefault(start, bytearray(self.file_size))
        file[self.end - start : self.end - start + len(data)] = data
        assert len(file) == self.file_size
        self.end += len(data)

    def roll(self) -> None:
        """Fills the rest of the file with a blank."""
        room = self.file_size - self.end % self.file_size
        self.append(BLANK.struct.pack(room, MAGIC_BLANK))
        self.end += room - BLANK.size

    def change(self, offset: int, data: bytes) -> None:
        """Overwrites bytes of the log."""
        start = offset // self.file_size * self.file_size
        self.data[start][offset - start : offset - start + len(data)] = data

    def write(self, root: Path, log: str = "commitlog") -> Path:
        """Writes the files of the log and of the queues; returns `root`."""
        self.write_log(root / log)
        for (topic, queue_id), entries in self.entries.items():
            directory = root / "consumequeue" / topic / str(queue_id)
            directory.mkdir(parents=True)
            size = QUEUE_FILE_ENTRIES * QUEUE_ENTRY.size
            whole = b"".join(entries)
            for start in range(0, len(whole), size):
                (directory / format_start(start)).write_bytes(whole[start : start + size].ljust(size, b"\0"))
        return root

    def write_log(self, *directories: Path) -> None:
        """Writes the files of the log, over several directories in turn."""
        for number, (start, data) in enumerate(sorted(self.data.items())):
            directory = directories[number % len(directories)]
            directory.mkdir(parents=True, exist_ok=True)
            (directory / format_start(start)).write_bytes(data)


def small_store(count: int = 60, **sizes: int) -> SmallStore:
    """`count` messages of about 110 bytes in topic T, queues 0 and 1 in turn, bodies b"body 0" and so on."""
    store = SmallStore(**sizes)
    for number in range(count):
        store.add("T", number % 2, body=b"body %d" % number)
    return store


def split_store(count: int, directory: Path) -> tuple[Path, Path]:
    """A small store below `directory`, and where its commitlog lies: elsewhere."""
    root = small_store(count).write(directory / "store")
    return root, shutil.move(root / "commitlog", directory / "log")
