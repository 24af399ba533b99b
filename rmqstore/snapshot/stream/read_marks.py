"""A mark of one message that was read: whoever comes again can tell whether the store is still the same one."""

from typing import NamedTuple
from zlib import crc32

from rmqstore.directory.listing import file_with
from rmqstore.directory.queue_files import SIMPLE, open_queue
from rmqstore.errors import DataLost, StoreChanging
from rmqstore.files.disk import read_part
from rmqstore.formats import message
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

# A record's head with its addresses and times, and what comes after that; no record changes once it is written.
_MARKED_SIZE = 256
# Bytes of the log that are walked at the most for a message that no queue's file leads to yet.
_WALKED_SIZE = 1024 * 1024


class ReadMark(NamedTuple):
    """Where in the log a message's record begins, and the checksum of its first bytes."""

    position: int
    checksum: int


def position_of(store: StoreExtent, queue: QueueExtent, queue_offset: int) -> int:
    """Where in the log a message's record begins, as its queue's files say; the log's end for one that is in no file
    yet, -1 where nobody can tell."""
    if queue.files.kind != SIMPLE or not queue.min_offset <= queue_offset < queue.max_offset:
        return -1
    if queue_offset >= queue.entry_end:
        return store.log_end
    try:
        return int(queue.files.read(queue_offset, queue_offset + 1)["physical_offset"][0])
    except (DataLost, OSError, IndexError):  # its owner deleted it
        return -1


def mark_of(store: StoreExtent, queue: QueueExtent, queue_offset: int) -> ReadMark | None:
    """The mark of that message; None where the queue's files do not lead to it: it is not dispatched yet, deleted, or
    of an inner batch.
    """
    topic, queue_id = queue.key
    if queue.files.kind != SIMPLE or not queue.min_offset <= queue_offset < queue.max_offset:
        return None
    try:
        entry = open_queue(store.disk, store.path, topic, queue_id, SIMPLE).read(queue_offset, queue_offset + 1)[0]
    except (DataLost, OSError):  # its owner deleted it
        return None
    return _mark_at(store, queue, queue_offset, int(entry["physical_offset"]), int(entry["size"]))


def mark_in_log(store: StoreExtent, queue: QueueExtent, queue_offset: int) -> ReadMark | None:
    """As `mark_of`, of a message that the log alone tells of, which is walked for it; None where that would be long."""
    if queue.files.kind != SIMPLE or queue.gap_bytes > _WALKED_SIZE or queue_offset < queue.entry_end:
        return None
    from rmqstore.snapshot.scan.entry_runs import EntryReader  # noqa: PLC0415  where the queue has no entry

    try:
        with store.view("auto") as view:
            for run in EntryReader(store.split([queue.span(queue_offset, queue_offset + 1)]), view).runs(
                queue.span(queue_offset, queue_offset + 1)
            ):
                if len(run.entries):
                    offset, size = (int(run.entries[name][0]) for name in ("physical_offset", "size"))
                    return _mark_at(store, queue, queue_offset, offset, size)
    except (DataLost, StoreChanging, OSError):
        return None
    return None


def _mark_at(store: StoreExtent, queue: QueueExtent, queue_offset: int, offset: int, size: int) -> ReadMark | None:
    """The mark of a record, if it is that message's: an entry may be left from before the queue was cut."""
    try:
        file = file_with(store.log_files, offset)
        if file is None or size < message.RECORD_SIZE_MIN or offset + size > store.log_end:
            return None
        head = read_part(store.disk, file.path, offset - file.start, min(size, _MARKED_SIZE))
    except (DataLost, OSError):
        return None
    if len(head) < message.HEAD.size:
        return None
    fields = message.HEAD.read(head)
    is_its_own = (fields["total_size"], fields["queue_id"], fields["queue_offset"]) == (
        size, queue.key[1], queue_offset,
    )  # fmt: skip
    return ReadMark(offset, crc32(head)) if is_its_own else None
