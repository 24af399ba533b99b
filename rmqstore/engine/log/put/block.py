"""Ready-made bytes of another store's log, looked at before they are appended as they are."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rmqstore.directory.queue_kinds import QueueKinds
from rmqstore.errors import Rejected
from rmqstore.formats import message
from rmqstore.formats.names import QueueKey
from rmqstore.formats.record_chain import claimed_size
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import distinct_queues, rows_by_kind
from rmqstore.records.light_queues import light_entries
from rmqstore.records.read_batches import CrcChecks, read_batches

_ALL_CHECKS = CrcChecks(bodies=True, properties=True)


class NoBlock(Rejected):
    """Bytes that cannot stand where they are said to: from `position` of the log on they are no sound records."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position, self.reason = position, reason

    def _line(self) -> str:
        return self.reason


class BlockPart(NamedTuple):
    """Bytes [offset, end) of a log, all in one file: records one after the other, or the blank that ends the file.

    `store_ms` is the newest record's store time, None for a blank; `moved` what the records make the next queue offsets
    of their queues; `records` None for a blank.
    """

    offset: int
    end: int
    store_ms: int | None
    moved: dict[QueueKey, int]
    records: RecordBatch | None


def block_parts(
    offset: int, data: bytes, file_size: int, kinds: QueueKinds, *, may_be_cut: bool = False
) -> list[BlockPart]:
    """`data` as it belongs at `offset` of a log, part by part.

    Raises NoBlock unless it is whole sound records of that place, with the blank of each file that it ends, up to the
    file's last byte.  Where it `may_be_cut`, a record or a blank at its end that goes on is left out.
    """
    stop = offset + len(data)
    parts = []
    for standing in read_batches(
        lambda begin, size: data[begin - offset : begin - offset + size], offset, stop, file_size, checks=_ALL_CHECKS
    ):
        if isinstance(standing, message.Torn):
            if may_be_cut and _goes_on(data, standing.position - offset, _room(standing.position, file_size)):
                break
            at = standing.position
            raise NoBlock(at, f"the block cannot stand at {offset}: at {at}: {standing.reason}")
        if isinstance(standing, message.Blank):
            if may_be_cut and standing.size == _room(standing.position, file_size) > stop - standing.position:
                break
            parts.append(_blank_part(standing, stop, file_size))
        else:
            parts.append(_records_part(standing, file_size, kinds))
    return parts


def wanted_size(rest: bytes) -> int:
    """So many bytes, and the first of what `block_parts` left out of a block, the `rest` that goes on, may be whole."""
    if len(rest) < message.BLANK.size:
        return message.BLANK.size
    return int(message.BLANK.struct.unpack_from(rest)[0])


def _room(position: int, file_size: int) -> int:
    """Bytes from a position of the log to the end of its file."""
    return file_size - position % file_size


def _goes_on(data: bytes, position: int, room: int) -> bool:
    """Whether what stands at the end of `data` may be the beginning of a record that fits into its file."""
    if len(data) - position < message.BLANK.size:
        return True
    size = claimed_size(data, position)
    return size is not None and len(data) - position < size <= room - message.BLANK.size


def _blank_part(blank: message.Blank, stop: int, file_size: int) -> BlockPart:
    file_end = blank.position - blank.position % file_size + file_size
    if blank.size != file_end - blank.position or file_end > stop:
        said = f"the block's blank record of {blank.size} bytes at {blank.position}"
        raise NoBlock(blank.position, f"{said} does not end its file, at {file_end}")
    return BlockPart(blank.position, file_end, None, {}, None)


def _records_part(records: RecordBatch, file_size: int, kinds: QueueKinds) -> BlockPart:
    offset = int(records.offsets[0])
    file_end = offset - offset % file_size + file_size
    if records.end + message.BLANK.size > file_end:
        said = f"the block's record that ends at {records.end} leaves no room for the blank of its file"
        raise NoBlock(int(records.offsets[-1]), said)
    return BlockPart(offset, records.end, int(records.store_ms[-1]), dict(_next_offsets(records, kinds)), records)


def _next_offsets(records: RecordBatch, kinds: QueueKinds) -> Iterator[tuple[QueueKey, int]]:
    """The queue offset after the last message of each queue that the records go to."""
    topics, topic_numbers = records.topics
    plain, of_batches = rows_by_kind(records, kinds.is_batch_topic)
    for rows, ends in (
        (plain, records.queue_offsets[plain] + 1),
        (of_batches, records.numbers.bases[of_batches] + records.numbers.counts[of_batches]),
    ):
        if len(rows):
            pairs, places = distinct_queues(topic_numbers[rows], records.queue_ids[rows])
            nexts = np.zeros(len(pairs), np.int64)
            nexts[places] = ends  # the last assignment to an element stays
            for (topic, queue_id), following in zip(pairs, nexts.tolist(), strict=True):
                yield (topics[topic], queue_id), following
    if kinds.multi_dispatch:
        for key, (_, offsets) in light_entries(records).items():
            yield key, int(offsets[-1]) + 1
