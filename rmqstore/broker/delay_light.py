"""Delivery of delayed messages for light queues: their records say queue offsets, so they are put one by one.

Java: ScheduleMessageService puts every message through putMessage, which gives it its places there.
"""

from rmqstore.log.encode.columns import EncodedColumns
from rmqstore.log.put.appender import Appender
from rmqstore.log.put.deferred_put import light_rows
from rmqstore.message import PutResult, PutStatus

# Refusals that another try would not change.
_FOR_GOOD = frozenset(
    (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)
)


class LightDelivery:
    """Puts ready-made records as `Appender.put_records` does, in their order, those for light queues as messages.

    One that can get no places there goes into its own queue alone, so that nothing after it waits for it in vain.
    """

    def __init__(self, appender: Appender) -> None:
        self._appender = appender

    def put(self, records: EncodedColumns) -> PutResult:
        """Appends the records; the answer counts those stored, from the first on.  Raises DurabilityLost."""
        done = 0
        for row, message in light_rows(records):
            before = self._appender.put_records(records, done, row)
            done += before.message_count
            if done < row:
                return PutResult(before.status, message_count=done)
            own = self._appender.put_past_hooks(message, waits=False)
            if own.status in _FOR_GOOD:
                continue
            if not own.is_stored:
                return PutResult(own.status, message_count=done)
            done += 1
        rest = self._appender.put_records(records, done)
        return PutResult(rest.status, message_count=done + rest.message_count)
