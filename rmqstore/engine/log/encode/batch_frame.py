"""A batch: several messages of one queue that are stored together, one after the other in one file of the log.

Java: CommitLog.asyncPutMessages (docs/formats.md).
"""

from collections.abc import Sequence

from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.log.encode.record_frame import (
    PLACE_AT,
    Frame,
    RecordForm,
    frame_of,
    stamp_crc,
    stamp_place,
    stamp_time,
)
from rmqstore.errors import Rejected
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.delay_levels import asked_level
from rmqstore.formats.inner_batch import PIECE_SIZE_MIN
from rmqstore.formats.record_crc import PROPERTY_CRC_SIZE


class BatchFrame:
    """The records of a batch, whole but for their places: `data` is what to append once `stamp` has been called.

    `starts` are the records' positions in `data`, in the order of the messages, which all take a number in the queue.
    In the log `gap` bytes stand in front of each.
    """

    __slots__ = ("_has_crc", "_store_time_at", "data", "gap", "queue_id", "starts", "topic")

    def __init__(self, frames: Sequence[Frame], gap: int = 0) -> None:
        self.gap = gap
        self.topic, self.queue_id = frames[0].topic, frames[0].queue_id
        self.data = bytearray().join([frame.data for frame in frames])
        self.starts: list[int] = []
        position = 0
        for frame in frames:
            self.starts.append(position)
            position += len(frame.data)
        self._store_time_at = [frame.store_time_at for frame in frames]
        self._has_crc = frames[0].has_crc

    @property
    def count(self) -> int:
        """How many messages it has."""
        return len(self.starts)

    @property
    def record_count(self) -> int:
        """How many records it is."""
        return len(self.starts)

    @property
    def records(self) -> "list[bytearray]":
        """The records' bytes; all in one piece where they lie side by side in the log."""
        if not self.gap:
            return [self.data]
        return [
            self.data[start:end] for start, end in zip(self.starts, [*self.starts[1:], len(self.data)], strict=True)
        ]

    def places(self, first: int) -> list[int]:
        """Where the records stand in the log, by the place of the first."""
        return [first + start + number * self.gap for number, start in enumerate(self.starts)]

    def stamp(self, first_queue_offset: int, first_physical_offset: int, store_ms: int) -> None:
        """Fills in places and store time: the queue offsets are consecutive, the time is one.

        May be called again, as where the batch turns out not to fit the file.
        """
        data, places = self.data, self.places(first_physical_offset)
        for number, (start, time_at) in enumerate(zip(self.starts, self._store_time_at, strict=True)):
            stamp_place(data, start + PLACE_AT, first_queue_offset + number, places[number])
            stamp_time(data, start + time_at, store_ms)
        if self._has_crc:
            for start, end in zip(self.starts, [*self.starts[1:], len(data)], strict=True):
                stamp_crc(data, start, end)


def batch_of(messages: Sequence[Message], form: RecordForm, now_ms: int) -> BatchFrame | PutStatus:
    """The records of a batch, or why it may not be stored, as `frame_of` says it of any of its messages.

    MESSAGE_ILLEGAL also for a part of a transaction, a delayed message, and where the body in which a client sends
    these messages (`inner_batch`) would be larger than the largest message.  Raises Rejected for no message at all and
    for messages of several queues.
    """
    if not messages:
        raise Rejected("a batch of no messages")
    first = messages[0]
    frames = []
    own_size = len(form.more_properties) + (PROPERTY_CRC_SIZE if form.property_crc else 0)
    body_size = 0
    for message in messages:
        if message.sys_flag & sys_flag.TRANSACTION_MASK or is_delayed(message):
            return PutStatus.MESSAGE_ILLEGAL
        if message.topic != first.topic or message.queue_id != first.queue_id:
            raise Rejected(
                f"a batch goes to one queue, not to {first.topic}/{first.queue_id} and "
                f"{message.topic}/{message.queue_id}: put the messages of each queue by themselves"
            )
        frame = frame_of(message, form, now_ms)
        if isinstance(frame, PutStatus):
            return frame
        body_size += PIECE_SIZE_MIN + len(message.body) + frame.properties_size - own_size
        frames.append(frame)
    return PutStatus.MESSAGE_ILLEGAL if body_size > form.message_size_max else BatchFrame(frames, form.gap)


def is_delayed(message: Message) -> bool:
    """Whether a message asks for a delay level above 0, or for something that is no number: no message of a batch may.

    RocketMQ's client refuses it (MessageBatch.generateFromList); its store would take it, and deliver it at once.
    """
    text = message.properties.get(properties.DELAY)
    if not text:
        return False
    level = asked_level(text)
    return level is None or level > 0
