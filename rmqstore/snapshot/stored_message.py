"""One message as a value, for look-ups of single records."""

import datetime
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with everything its record says; names as the columns in snake case, times UTC."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    tags: str | None
    keys: str | None
    body: bytes | None
    properties: dict[str, str] = field(hash=False)
    flag: int
    sys_flag: int
    born_timestamp: datetime.datetime | None
    store_timestamp: datetime.datetime | None
    born_host: str
    store_host: str
    msg_id: str
    offset_msg_id: str
    reconsume_times: int
    prepared_transaction_offset: int
    physical_offset: int
    store_size: int
    body_crc: int
    tags_code: int | None
    corrupt_reason: str | None


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def messages_of(batch: pa.RecordBatch) -> list[StoredMessage]:
    """The rows of a batch with every column (arrow_schema.COLUMNS in order) as messages.  A time that no calendar of
    Python's reaches is None.
    """
    rows = zip(*(_values(column) for column in batch.columns), strict=True)
    place = batch.schema.get_field_index("properties")
    return [StoredMessage(*(*row[:place], dict(row[place] or ()), *row[place + 1 :])) for row in rows]


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [None if us is None else _moment(us) for us in column.cast(pa.int64()).to_pylist()]
    return list(column.to_pylist())


def _moment(us: int) -> datetime.datetime | None:
    try:
        return _EPOCH + datetime.timedelta(microseconds=us)
    except OverflowError:
        return None
