"""A mark of one message that was read: whoever comes again can tell whether the store is still the same one."""

from zlib import crc32

from rmqstore.directory.listing import file_with
from rmqstore.directory.queue_files import SIMPLE, open_queue
from rmqstore.errors import DataLost
from rmqstore.files.disk import read_part
from rmqstore.formats import message
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

# A record's head with its addresses and times, and what comes after that; no record changes once it is written.
_MARKED_SIZE = 256


def mark_of(store: StoreExtent, queue: QueueExtent, queue_offset: int) -> int | None:
    """The checksum of the first bytes of that message's record; None where the queue's files do not lead to it: it is
    not dispatched yet, deleted, or of an inner batch.
    """
    topic, queue_id = queue.key
    if queue.files.kind != SIMPLE or not queue.min_offset <= queue_offset < queue.max_offset:
        return None
    try:
        entry = open_queue(store.disk, store.path, topic, queue_id, SIMPLE).read(queue_offset, queue_offset + 1)[0]
        offset, size = int(entry["physical_offset"]), int(entry["size"])
        file = file_with(store.log_files, offset)
        if file is None or size < message.RECORD_SIZE_MIN or offset + size > store.log_end:
            return None
        head = read_part(store.disk, file.path, offset - file.start, min(size, _MARKED_SIZE))
    except (DataLost, OSError):  # its owner deleted it
        return None
    if len(head) < message.HEAD.size:
        return None
    fields = message.HEAD.read(head)  # an entry may be left from before the queue was cut
    is_its_own = (fields["total_size"], fields["queue_id"], fields["queue_offset"]) == (size, queue_id, queue_offset)
    return crc32(head) if is_its_own else None
