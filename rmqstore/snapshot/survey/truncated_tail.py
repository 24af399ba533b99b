"""A log that ends where no sound record stands: was that write never finished, or was a stored record damaged since?

Nobody was promised what a crash cut off: it is the end of the data.  But a record that was on the disk, as the
checkpoint says, is a message that is lost.  A queue entry alone proves nothing: RocketMQ's recovery cuts the log and
the queues without erasing what follows.
"""

from typing import NamedTuple

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import SIMPLE, first_behind, holds_message
from rmqstore.formats import message, sys_flag
from rmqstore.formats.checkpoint import Checkpoint
from rmqstore.snapshot.survey.queue_entries import QueueEntries

_BLOCK_SLOTS = 4096


class WriterTraces(NamedTuple):
    """The traces of a store's last writer: whether it closed the store and nobody has opened it since, its checkpoint,
    and where the entry ends that a DLedger node's checkpoint calls the last one that its group has agreed on.
    """

    is_clean: bool
    checkpoint: Checkpoint | None
    committed_end: int = 0


class EndEntries(NamedTuple):
    """Queue entries that point at or past the end of the log: `is_there` says whether one points at the end itself.

    `reach` is the log offset, in bytes, up to which the records of plain queues' entries reach; None if no plain queue
    points at the end.
    """

    is_there: bool
    reach: int | None


def end_entries(entries: QueueEntries, view: LogView, offset: int) -> EndEntries:
    """The queue entries, as far as they count, that point at `offset` of the log, where it ends, or past it.  Raises
    DataLost.
    """
    number = view.file_number(offset)
    if number is None or offset >= view.end:
        return EndEntries(False, None)
    end = view.readable_end(number)
    small = entries.small
    is_there = has_plain = bool((small.offsets == offset).any())
    reaches = (small.offsets + small.sizes)[small.offsets >= offset]
    reach = int(reaches[reaches <= end].max(initial=offset))
    for key, queue in entries.others.items():
        last = entries.ends[key] if queue.kind == SIMPLE else queue.written_end()  # of a batch queue its records decide
        first = first_behind(queue, queue.first_slot(), last, offset)
        block = queue.read(first, min(first + _BLOCK_SLOTS, last)) if first < last else None
        if block is None or not holds_message(queue.kind, block)[0]:
            continue
        places, sizes = block["physical_offset"].astype(np.int64), block["size"].astype(np.int64)
        is_there |= int(places[0]) == offset
        has_plain |= int(places[0]) == offset and queue.kind == SIMPLE
        fit = (places >= offset) & (places + sizes <= end)
        if queue.kind == SIMPLE and fit.any():
            reach = max(reach, int((places + sizes)[fit].max()))
    return EndEntries(is_there, reach if has_plain else None)


def was_stored(
    view: LogView, offset: int, newest_ms: int, words: WriterTraces, at_end: EndEntries, *, is_whole: bool = False
) -> bool:
    """Whether what stands at `offset`, after the last sound record, was a record that was on the disk: a damage.

    `newest_ms` is the store time of the last sound record.  `is_whole`: all but its CRC property is right, so that
    RocketMQ's recovery would have kept it.  Raises DataLost.
    """
    known = words.checkpoint
    if known is None or offset < words.committed_end:
        return offset < words.committed_end
    if words.is_clean and is_whole and at_end.is_there:
        return True
    head = _head_at(view, offset)
    times = _store_times(head, offset)
    if not words.is_clean:  # entries may be on the disk without their records, so the flushed time counts
        return at_end.is_there and any(newest_ms <= time < known.physic_timestamp_ms for time in times)
    # RocketMQ 5 tells the time of the last flush, any release that of the last message that was dispatched.
    known_ms = known.newest_ms
    if known_ms == newest_ms:  # what is put in bulk has one time, and nothing is left of it but its entries
        is_later = bool(times) and times[_is_from_v6(head)] > known_ms
        return newest_ms in times or (at_end.is_there and not is_later)
    return known_ms > newest_ms and (at_end.is_there or any(head))


def _head_at(view: LogView, offset: int) -> bytes:
    if view.file_number(offset) is None or offset >= view.end:
        return b""
    page, position = view.window(offset, message.STORE_TIME_REACH)
    return page[position : position + message.STORE_TIME_REACH].tobytes()


def _is_from_v6(head: bytes) -> bool:
    return bool(message.HEAD.read(head)["sys_flag"] & sys_flag.BORN_HOST_V6)


def _store_times(head: bytes, offset: int) -> tuple[int, ...]:
    """All that may be the store time of the record that begins with `head`, by either size of its sender's host;
    nothing if neither its magic nor its place say that one begins there.
    """
    if len(head) < message.STORE_TIME_REACH:
        return ()
    fields = message.HEAD.read(head)
    if fields["magic"] not in message.MESSAGE_MAGICS and fields["physical_offset"] != offset:
        return ()
    times = (message.store_time(head, host.size) for host in (message.HOST_V4, message.HOST_V6))
    return tuple(time for time in times if time is not None)
