"""Puts into light queues (LMQ): the queue offsets that a message gets in the queues that its properties name.

Java: LmqDispatch, MultiDispatchUtils of 5.3.x.
"""

from collections.abc import Mapping
from dataclasses import replace

from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, WAIT
from rmqstore.log.encode.deferred_frame import DeferredFrame, deferred_frame_of
from rmqstore.log.encode.record_frame import RecordForm
from rmqstore.message import Message, PutStatus
from rmqstore.records.light_queues import LIGHT_QUEUE_ID, SEPARATOR, may_dispatch, split_names


def is_light_message(message: Message) -> bool:
    """Whether a put of the message gives it places in light queues as well."""
    return bool((message.properties.get(MULTI_DISPATCH) or "").strip()) and may_dispatch(message.topic)


class LightQueues:
    """Gives out the queue offsets of light queues, under the put lock: `next_offsets` is the store's table.

    At most `count_max` light queues; the message that needs one more is refused.  `_light` are those that there are.
    """

    def __init__(self, next_offsets: Mapping[QueueKey, int], count_max: int) -> None:
        self._next_offsets = next_offsets
        self._count_max = count_max
        self._light = {topic for topic, _ in next_offsets if is_light_queue(topic)}

    def frame_of(self, message: Message, form: RecordForm, now_ms: int) -> DeferredFrame | PutStatus:
        """The record of a message for light queues; `offsets_of` gives the value that it lacks.

        WAIT is not stored.  The whole record must be no larger than a body may be, as in Java.
        """
        kept = {name: value for name, value in message.properties.items() if name != WAIT}
        stored = replace(message, properties=kept, wait_store_ok=True)
        return deferred_frame_of(stored, MULTI_QUEUE_OFFSET, form, now_ms, form.message_size_max)

    def offsets_of(self, message: Message) -> str | PutStatus:
        """INNER_MULTI_QUEUE_OFFSET for a message that is appended next: empty pieces for names that are not light."""
        listed = split_names(message.properties[MULTI_DISPATCH])
        if len(self._light) + len(set(filter(is_light_queue, listed)) - self._light) > self._count_max:
            return PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        offsets = self._next_offsets
        pieces = [str(offsets.get((name, LIGHT_QUEUE_ID), 0)) if is_light_queue(name) else "" for name in listed]
        return SEPARATOR.join(pieces)

    def moved(self, message: Message) -> dict[QueueKey, int]:
        """The next offsets of its light queues, once the message is appended.  A name that is listed twice has one
        entry, so one number (in Java two, and a hole in the queue).
        """
        light = set(filter(is_light_queue, split_names(message.properties[MULTI_DISPATCH])))
        self._light |= light
        return {(name, LIGHT_QUEUE_ID): self._next_offsets.get((name, LIGHT_QUEUE_ID), 0) + 1 for name in light}
