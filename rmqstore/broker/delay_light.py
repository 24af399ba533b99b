"""Delivery of delayed messages for light queues: their records say queue offsets, so they are put one by one.

Java: ScheduleMessageService puts every message through putMessage, which gives it its places there.
"""

import re
from collections.abc import Iterator

from rmqstore.formats.host import decode_host
from rmqstore.formats.message import Record, read_record
from rmqstore.formats.properties import MULTI_DISPATCH, NAME_END, parse_properties
from rmqstore.log.appender import Appender
from rmqstore.log.columns import EncodedColumns
from rmqstore.log.multi_dispatch import is_light_message
from rmqstore.message import Message, PutResult

_MARK = re.compile(re.escape(MULTI_DISPATCH.encode() + NAME_END))


class LightDelivery:
    """Puts ready-made records as `Appender.put_records` does, in their order, those for light queues as messages."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender

    def put(self, records: EncodedColumns) -> PutResult:
        """Appends the records; the answer counts those stored, from the first on.  Raises DurabilityLost."""
        done = 0
        for row, message in _light_rows(records):
            before = self._appender.put_records(records, done, row)
            done += before.message_count
            if done < row:
                return PutResult(before.status, message_count=done)
            own = self._appender.put_past_hooks(message, waits=False)
            if not own.is_stored:
                return PutResult(own.status, message_count=done)
            done += 1
        rest = self._appender.put_records(records, done)
        return PutResult(rest.status, message_count=done + rest.message_count)


def _light_rows(records: EncodedColumns) -> Iterator[tuple[int, Message]]:
    """The records that name light queues, as messages; ascending.  Only they cost anything each."""
    data, last = records.data.tobytes(), -1
    for found in _MARK.finditer(data):
        row = records.row_at(found.start())
        if row > last:
            last = row
            message = _message_at(data, int(records.starts[row]))
            if message is not None and is_light_message(message):
                yield row, message


def _message_at(data: bytes, start: int) -> Message | None:
    """The message of a record, its body as it is stored."""
    record = read_record(data, start)
    if not isinstance(record, Record):
        return None
    return Message(
        record.topic.decode(),
        record.body,
        properties=parse_properties(record.properties),
        queue_id=record.queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp,
        born_host=decode_host(record.born_host, 0, len(record.born_host)),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )
