"""Reading queues of whole batches message by message; `log.fetch` asks here for such queues.

Java gives its clients whole batches, which they take apart; here any queue offset can be read from and stopped at.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from rmqstore.formats import message as layouts
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.inner_batch import counted_pieces, without_batch_flags
from rmqstore.formats.record_crc import masked_crc32
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.derived.batch_queue import BatchQueue
from rmqstore.log.get.tag_filter import TagFilter
from rmqstore.message import GetResult, GetStatus

# Units that one read looks at.
_UNITS_MAX = 400


class ReadableRecords(Protocol):
    """What is asked of a log."""

    @property
    def start(self) -> int:
        """The first offset that can be read."""

    @property
    def readable_end(self) -> int:
        """Where what can be read ends."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from `offset` on, as far as they can be read."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: at most `count` messages and `size` bytes of records but one in any case, of these tags."""

    offset: int
    count: int
    size: int
    tags: TagFilter | None


def get_messages(log: ReadableRecords, queue: BatchQueue, wanted: Wanted, broker_name: str) -> GetResult:
    """The next messages from a queue offset that lies inside the queue, also in the middle of a batch."""
    low, high = queue.min_offset, queue.max_offset
    found: list[StoredMessage] = []
    status, next_offset, size = GetStatus.NO_MATCHED_MESSAGE, wanted.offset, 0
    for stored, base, count in _batches(log, queue, wanted.offset, broker_name):
        if found and size + stored.store_size > wanted.size:
            break
        size += stored.store_size
        if not _can_read(log, stored):
            next_offset = base + count
            status = status if found else GetStatus.MESSAGE_WAS_REMOVING
            continue
        for message in taken_apart(stored, base, count):
            if message.queue_offset < wanted.offset and message is not stored:
                continue
            if len(found) >= wanted.count:
                return GetResult(GetStatus.FOUND, next_offset, low, high, found)
            next_offset = base + count if message is stored else message.queue_offset + 1
            if wanted.tags is None or message.tags in wanted.tags.tags:
                found.append(message)
                status = GetStatus.FOUND
            elif not found:
                status = GetStatus.NO_MATCHED_MESSAGE
    return GetResult(status, max(next_offset, wanted.offset), low, high, found)


def offset_at(queue: BatchQueue, timestamp_ms: int, boundary: str) -> int:
    """The queue offset for a store time, as `Fetch.offset_at` answers it: all messages of a batch have one time."""
    first, last = queue.slots
    slot = queue.slot_at_time(timestamp_ms + (boundary == "upper"))
    if boundary == "lower":
        units = queue.read(slot, slot + 1)
        return int(units["base_queue_offset"][0]) if len(units) else queue.max_offset
    if slot <= first:
        return queue.min_offset
    unit = queue.read(min(slot, last) - 1, min(slot, last))
    return int(unit["base_queue_offset"][0]) + int(unit["message_count"][0]) - 1


def _batches(
    log: ReadableRecords, queue: BatchQueue, offset: int, broker_name: str
) -> Iterator[tuple[StoredMessage, int, int]]:
    """The records of the units from that of a queue offset on, with first queue offset and count of messages."""
    slot = max(queue.slot_of(offset), queue.slots[0])
    units = queue.read(slot, slot + _UNITS_MAX)
    fields = ("physical_offset", "size", "base_queue_offset", "message_count")
    for place, size, base, count in zip(*(units[name].tolist() for name in fields), strict=True):
        if base + count > offset:  # numbers may be missing between units
            is_held = log.start <= place and place + size <= log.readable_end and size >= layouts.RECORD_SIZE_MIN
            data = log.read(place, size) if is_held else b""
            yield StoredMessage(data, 0, size, place, broker_name), base, count


def _can_read(log: ReadableRecords, stored: StoredMessage) -> bool:
    return log.start <= stored.physical_offset and len(stored.stored_record) == stored.store_size


def taken_apart(stored: StoredMessage, base: int, count: int) -> list[StoredMessage]:
    """The messages of an inner batch, `count` of them from queue offset `base` on, each as if it had been stored alone.

    They share the record's place, times and hosts.  A record that is no inner batch, cannot be taken apart, or holds
    another number of messages, stays one message, and its `corrupt_reason` says why, if it does.
    """
    record = stored.record
    if not sys_flag.is_inner_batch(record.sys_flag) or not stored.is_whole:
        return [stored]
    body = stored.body
    if body is None or (count == 1 and properties.INNER_COUNT not in stored.properties):
        return [stored]
    pieces = counted_pieces(body, count)
    if pieces is None:
        return [stored]
    flags = without_batch_flags(record.sys_flag)
    found = []
    for number, piece in enumerate(pieces):
        data = layouts.encode_record(
            replace(
                record, sys_flag=flags, flag=piece.flag, body=piece.body, properties=piece.properties,
                body_crc=masked_crc32(piece.body), queue_offset=base + number,
            )
        )  # fmt: skip
        found.append(StoredMessage(data, 0, len(data), stored.physical_offset, stored.broker_name))
    return found
