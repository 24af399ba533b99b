"""The queues that a broker keeps in RocksDB: their entries, and the table of their ends.

Java: RocksDBConsumeQueueTable and RocksDBConsumeQueueOffsetTable of 5.5.1.  A key is the size of the topic (i4), the
topic, the queue id (i4) and the queue offset (i8); in the column family "offset" it is the size, the topic, `max` or
`min`, and the queue id.  The byte 1 stands between them; integers are big-endian.
"""

import errno
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import is_backed
from rmqstore.directory.queue_files import SIMPLE, QueueFiles, queue_directory
from rmqstore.errors import Corrupt, Rejected
from rmqstore.files import rocksdb
from rmqstore.files.disk import DirectoryEntry, PlainDisk, PlainReads, ReadableFile, StoredFile, directory_of, join
from rmqstore.formats.names import PLAIN_ROOM, QueueKey, format_start, is_directory_name, parse_queue_id
from rmqstore.formats.queue_entry import QUEUE_ENTRY

_FAMILY = "offset"
_MAX = b"\1max\1"
_QUEUE_ID, _TOPIC_SIZE, _PLACE = struct.Struct(">i"), struct.Struct(">i"), struct.Struct(">q")
# Not a topic: it says up to where in the log the database has taken in.
_REACHED = "CHECKPOINT_TOPIC"


class OffsetTable(NamedTuple):
    """Where in the log the last message of each queue of a database stands, which has taken in the log up to offset
    `reached`; 0: nobody knows.
    """

    places: dict[QueueKey, int]
    reached: int


def offset_table(path: str) -> OffsetTable:
    """The queues of the database at `path`; none, which has reached nothing, where it cannot be read: without
    rocksdict, or with damaged files.
    """
    try:
        entries = rocksdb.read_family(path, _FAMILY)
    except (Corrupt, Rejected):
        return OffsetTable({}, 0)
    found = {key: value for name, value in entries.items() if (key := _queue_of(name)) is not None}
    places = {key: _PLACE.unpack_from(value)[0] for key, value in found.items() if len(value) >= _PLACE.size}
    return OffsetTable(places, places.pop((_REACHED, 0), 0))


def _queue_of(name: bytes) -> QueueKey | None:
    """The queue whose largest offset a key names."""
    topic_at = _TOPIC_SIZE.size + 1
    topic_end = len(name) - _QUEUE_ID.size - len(_MAX)
    if topic_end <= topic_at or name[topic_end : -_QUEUE_ID.size] != _MAX:
        return None
    if _TOPIC_SIZE.unpack_from(name)[0] != topic_end - topic_at:
        return None
    return name[topic_at:topic_end].decode("utf-8", "replace"), _QUEUE_ID.unpack_from(name, topic_end + len(_MAX))[0]


# --- The entries, as files: what reads queue files reads them.

_QUEUE_OFFSET = struct.Struct(">q")
# An entry as files have it, then the store time (i8).
_VALUE_SIZE = QUEUE_ENTRY.size + 8
_BETWEEN = b"\1"
# Files of more entries have no names.
_SLOT_MAX = 2**62 // QUEUE_ENTRY.size - 1


class _Bounds(NamedTuple):
    """A queue with its first and last entry by queue offset."""

    topic: str
    queue_id: int
    first: int
    last: int


class QueueDatabaseDisk(PlainDisk):
    """The disk on which each queue of a store's database is one file, from its first entry to its last.  It holds
    nothing else.

    The database is as it was when it was first asked; a pickled one opens it again.
    """

    __slots__ = ("_entries", "root")

    def __init__(self, root: str, path: str) -> None:
        self.root, self._entries = root, rocksdb.OpenFamily(path)

    def __reduce__(self) -> tuple[object, ...]:
        return QueueDatabaseDisk, (self.root, self._entries.path)

    def all_queues(self) -> list[QueueFiles] | None:
        """Every queue, by topic and queue id; None where entries are missing between others, as in queues of batches.
        Raises Corrupt, and Rejected without rocksdict.
        """
        found = list(self._bounds(b""))
        if self._entries.entry_count() < sum(queue.last + 1 - queue.first for queue in found):
            return None
        listed = [
            QueueFiles(self.root, queue.topic, queue.queue_id, SIMPLE, (self._file(queue),), self) for queue in found
        ]
        return sorted(listed, key=lambda queue: (queue.topic, queue.queue_id))

    def entries(self, directory: str) -> Sequence[DirectoryEntry]:
        """As files of consume queues would be listed.  Raises FileNotFoundError where the database went or is damaged,
        so that readers look at the store again; Rejected without rocksdict.
        """
        try:
            return self._listed(directory)
        except Corrupt as gone:
            raise FileNotFoundError(errno.ENOENT, gone.reason, directory) from None
        except Rejected as reason:
            raise Rejected(f"queues of {self.root} are read from RocksDB, by each worker as well; {reason}") from None

    def _listed(self, directory: str) -> Sequence[DirectoryEntry]:
        room = join(self.root, PLAIN_ROOM)
        if directory == room:
            return [DirectoryEntry(topic, 0, True) for topic in sorted({queue.topic for queue in self._bounds(b"")})]
        above, name = directory_of(directory), directory.rpartition("/")[2]
        if above == room:
            queues = self._bounds(_topic_key(name))
            return sorted(DirectoryEntry(str(queue.queue_id), 0, True) for queue in queues)
        queue_id = parse_queue_id(name)
        if directory_of(above) != room or queue_id is None:
            return []
        found = [self._file(queue) for queue in self._bounds(_queue_key(above.rpartition("/")[2], queue_id))]
        return [DirectoryEntry(format_start(file.start), file.size, False) for file in found]

    def open(self, path: str) -> ReadableFile:
        """The entries of a queue.  Raises FileNotFoundError if there are none, Rejected as `entries`."""
        directory = directory_of(path)
        for entry in self.entries(directory):
            if not entry.is_directory and join(directory, entry.name) == path:
                topic, queue_id = directory_of(directory).rpartition("/")[2], int(directory.rpartition("/")[2])
                prefix, first = _queue_key(topic, queue_id), int(entry.name) // QUEUE_ENTRY.size
                return _EntryFile(path, self._entries, prefix, first, entry.size)
        raise FileNotFoundError(errno.ENOENT, "no such queue in RocksDB", path)

    def exists(self, path: str) -> bool:
        """Whether a queue, a topic or the entries of a queue stand at `path`."""
        return self.is_directory(path) or bool(self.version_of(path))

    def is_directory(self, path: str) -> bool:
        """Whether a queue or a topic stands at `path`."""
        return bool(self.entries(path))

    def _file(self, queue: _Bounds) -> StoredFile:
        directory = queue_directory(self.root, (queue.topic, queue.queue_id), SIMPLE)
        start, end = queue.first * QUEUE_ENTRY.size, (queue.last + 1) * QUEUE_ENTRY.size
        return StoredFile(join(directory, format_start(start)), start, end - start)

    def _bounds(self, begin: bytes) -> Iterator[_Bounds]:
        for group in self._entries.groups(begin, _QUEUE_OFFSET.size):
            topic_at = _TOPIC_SIZE.size + 1
            topic_end = len(group.last) - _QUEUE_OFFSET.size - _QUEUE_ID.size - 2
            try:
                topic = group.last[topic_at : max(topic_end, 0)].decode()
                (queue_id,) = _QUEUE_ID.unpack_from(group.last, topic_end + 1)
                first, last = (_QUEUE_OFFSET.unpack(key[-_QUEUE_OFFSET.size :])[0] for key in group[:2])
                is_key = group.last[: -_QUEUE_OFFSET.size] == _queue_key(topic, queue_id) and is_directory_name(topic)
            except (ValueError, struct.error):
                is_key, first, last, topic, queue_id = False, 0, 0, "", 0
            if (
                not is_key
                or not 0 <= first <= last <= _SLOT_MAX
                or queue_id < 0
                or len(group.last_value) != _VALUE_SIZE
            ):
                raise Corrupt(self._entries.path, 0, f"RocksDB has the key {group.last!r}, which is no queue entry's")
            yield _Bounds(topic, queue_id, first, last)


class _EntryFile(PlainReads):
    """The entries of one queue as the bytes that a queue file has."""

    __slots__ = ("_entries", "_first", "_prefix", "_size", "path")

    def __init__(self, path: str, entries: rocksdb.OpenFamily, prefix: bytes, first: int, size: int) -> None:
        self.path, self._entries, self._prefix, self._first, self._size = path, entries, prefix, first, size

    def size(self) -> int:
        """As listed."""
        return self._size

    def read(self, position: int, size: int) -> bytes:
        """The bytes of the entries; zeros of those that are missing.  Raises OSError where a file is damaged."""
        end = min(position + size, self._size)
        low, high = position // QUEUE_ENTRY.size, -(-end // QUEUE_ENTRY.size)
        if low >= high:
            return b""
        values = self._entries.values(self._prefix, _QUEUE_OFFSET, self._first + low, high - low)
        if set(map(len, values)) != {_VALUE_SIZE}:  # what is missing, and what is no entry
            values = [value if len(value) == _VALUE_SIZE else bytes(_VALUE_SIZE) for value in values]
        rows = np.frombuffer(b"".join(values), np.uint8).reshape(high - low, _VALUE_SIZE)
        skipped = position - low * QUEUE_ENTRY.size
        return rows[:, : QUEUE_ENTRY.size].tobytes()[skipped : skipped + end - position]

    def next_data(self, position: int) -> int:
        """`position`: nobody knows."""
        return min(position, self._size)

    def close(self) -> None:
        """Nothing: the database stays open."""


def _topic_key(topic: str) -> bytes:
    name = topic.encode()
    return _TOPIC_SIZE.pack(len(name)) + _BETWEEN + name + _BETWEEN


def _queue_key(topic: str, queue_id: int) -> bytes:
    return _topic_key(topic) + _QUEUE_ID.pack(queue_id) + _BETWEEN


def proven_reach(queues: Sequence[QueueFiles], view: LogView) -> int | None:
    """Where in the log the newest message stands that a database has an entry of.

    None where that is not in the log any more: messages after it may be gone, and their numbers with them.  None where
    the last entry of a queue leads to no record of its own: entries are left from before a cut of the log, or are
    another log's.
    """
    reach = 0
    for queue in queues:
        end = queue.files[-1].end // QUEUE_ENTRY.size
        newest = queue.read(end - 1, end)[0]
        place = int(newest["physical_offset"])
        if place >= view.start and not is_backed(queue, end - 1, newest, view):
            return None
        reach = max(reach, place)
    return reach if reach >= view.start else None
