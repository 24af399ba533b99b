"""The queues that a broker keeps in RocksDB, by the column family "offset" of their database.

Java: RocksDBConsumeQueueOffsetTable of 5.5.1.  A key is the size of the topic (i4), the topic, `max` or `min`, and the
queue id (i4), with the byte 1 between them; integers are big-endian.
"""

import struct
from typing import NamedTuple

from rmqstore.errors import Corrupt, Rejected
from rmqstore.files import rocksdb
from rmqstore.formats.names import QueueKey

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
