"""Reading queues of whole batches message by message.

Java gives its clients whole batches, which they take apart; here any queue offset can be read from and stopped at.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from rmqstore.formats import message as layouts
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.inner_batch import counted_pieces, without_batch_flags
from rmqstore.formats.record_crc import masked_crc32
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.derived.batch_queue import BatchQueue
from rmqstore.log.get.answer import Answer, Wanted
from rmqstore.log.get.readable import ReadableLog, holds_record
from rmqstore.message import GetStatus

# Units that one read looks at.
_UNITS_MAX = 400


def collect_batches(log: ReadableLog, queue: BatchQueue, wanted: Wanted, broker_name: str) -> Answer:
    """The next messages from a queue offset that lies inside the queue, also in the middle of a batch."""
    answer, size = Answer(wanted.offset), 0
    for stored, base, count in _batches(log, queue, wanted.offset, broker_name):
        if answer.messages and size + stored.store_size > wanted.size:
            break
        size += stored.store_size
        if not _can_read(log, stored):
            answer.next_offset = max(base + count, wanted.offset)
            answer.missed(GetStatus.MESSAGE_WAS_REMOVING)
            continue
        for message in taken_apart(stored, base, count):
            if message.queue_offset < wanted.offset and message is not stored:
                continue
            if len(answer.messages) >= wanted.count:
                return answer
            answer.next_offset = max(base + count if message is stored else message.queue_offset + 1, wanted.offset)
            if wanted.takes(message):
                answer.add(message)
            else:
                answer.missed(GetStatus.NO_MATCHED_MESSAGE)
    return answer


class _Batch(NamedTuple):
    """The record of a unit: `message_count` messages from queue offset `base` on."""

    stored: StoredMessage
    base: int
    message_count: int


def _batches(log: ReadableLog, queue: BatchQueue, offset: int, broker_name: str) -> Iterator[_Batch]:
    """The records of the units from that of a queue offset on."""
    slot = max(queue.slot_of(offset), queue.slots[0])
    units = queue.read(slot, slot + _UNITS_MAX)
    fields = ("physical_offset", "size", "base_queue_offset", "message_count")
    for place, size, base, count in zip(*(units[name].tolist() for name in fields), strict=True):
        if base + count > offset:  # numbers may be missing between units
            is_held = size >= layouts.RECORD_SIZE_MIN and holds_record(log, place, size)
            data = log.read(place, size) if is_held else b""
            yield _Batch(StoredMessage(data, 0, size, place, broker_name), base, count)


def _can_read(log: ReadableLog, stored: StoredMessage) -> bool:
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
