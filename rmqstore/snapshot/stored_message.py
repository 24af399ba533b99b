"""One message as a value, for look-ups of single records."""

import datetime
from dataclasses import dataclass, field

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


def messages_of(batch: pa.RecordBatch) -> list[StoredMessage]:
    """The rows of a batch with every column (arrow_schema.COLUMNS in order) as messages."""
    rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    place = batch.schema.get_field_index("properties")
    return [StoredMessage(*(*row[:place], dict(row[place] or ()), *row[place + 1 :])) for row in rows]
