"""A record with one property whose value is known only under the put lock: a queue offset, as text.

`INNER_BASE` of an inner batch and `INNER_MULTI_QUEUE_OFFSET` of a message that goes into several queues are such; the
size of the record depends on them.
"""

from dataclasses import replace

from rmqstore.formats import message as layouts
from rmqstore.formats.layout import Layout
from rmqstore.log.encode.record_frame import PROPERTIES_SIZE_MAX, Frame, RecordForm, frame_of
from rmqstore.message import Message, PutStatus

_MARK = "\0late\0"
_TOTAL_SIZE = Layout(layouts.HEAD.fields[0])


class DeferredFrame:
    """`complete` makes the record, then `data` and `stamp` are those of its `Frame`; again and again if need be."""

    __slots__ = ("_block_after", "_block_before", "_front", "_size_max", "frame")

    def __init__(self, frame: Frame, properties_at: int, mark: bytes, size_max: int) -> None:
        self.frame = frame
        self._size_max = size_max
        self._front = bytes(frame.data[:properties_at])
        block = bytes(frame.data[properties_at + layouts.PROPERTIES_SIZE.size :])
        before, _, after = block.partition(mark)
        self._block_before = before + mark[: -len(_MARK)]
        self._block_after = after

    @property
    def data(self) -> bytearray:
        """The record."""
        return self.frame.data

    def complete(self, value: str) -> PutStatus | None:
        """Puts the value in; why the message may not be stored, if it became too large by it."""
        block = b"".join((self._block_before, value.encode(), self._block_after))
        if len(block) > PROPERTIES_SIZE_MAX:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        data = bytearray().join((self._front, layouts.PROPERTIES_SIZE.struct.pack(len(block)), block))
        if len(data) > self._size_max:
            return PutStatus.MESSAGE_ILLEGAL
        _TOTAL_SIZE.struct.pack_into(data, 0, len(data))
        self.frame.data = data
        return None


def deferred_frame_of(
    message: Message, name: str, form: RecordForm, now_ms: int, size_max: int
) -> DeferredFrame | PutStatus:
    """The record of a message but for the value of the property `name`, or why it may not be stored, as `frame_of`.

    The property keeps its place if the message has one of that name, and else is the last of the message's own.
    `size_max` is what the whole record may have.
    """
    marked = replace(message, properties={**message.properties, name: _MARK})
    frame = frame_of(marked, form, now_ms)
    if isinstance(frame, PutStatus):
        return frame
    topic = form.topic_bytes(message.topic)
    assert topic is not None
    hosts_at = frame.store_time_at + layouts.STORE_TIME.size
    properties_at = hosts_at + len(form.store_host) + layouts.FOOT.size + len(message.body) + len(topic)
    return DeferredFrame(frame, properties_at, f"{name}\1{_MARK}".encode(), size_max)
