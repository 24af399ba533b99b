"""A message as it was read back from a log: a view of its record that decodes a field when it is asked for.

The one type of all single messages: of an open store's reads, of consumers, and of a snapshot's look-ups.
"""

import datetime
from typing import Any

from rmqstore.formats import properties, sys_flag
from rmqstore.formats.compression import BODY_SIZE_MAX, BodyError, decompress
from rmqstore.formats.host import decode_host
from rmqstore.formats.java_hash import string_hash
from rmqstore.formats.java_text import java_text
from rmqstore.formats.message import Blank, Record, Torn, read_record
from rmqstore.formats.message_id import offset_message_id
from rmqstore.formats.record_crc import masked_crc32, verify_property_crc

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NO_HOST = bytes(8)
_UNREADABLE = Record(0, 0, 0, 0, -1, 0, -1, -1, 0, 0, _NO_HOST, 0, _NO_HOST, 0, 0, b"", b"", b"")


class StoredMessage:
    """The message whose record was read at `physical_offset`; names as the columns in snake case, times UTC.

    Nothing raises for a damaged record: `corrupt_reason` says what is wrong, and `body` is None then; where no record
    stands at all, numbers are -1 or 0 and texts empty.  Keeps the bytes that it was read with, which the messages of
    one read share, until it is pickled or let go.  Threads may share it.
    """

    __slots__ = (
        "_body", "_buffer", "_is_sound", "_position", "_properties", "_reason", "_record", "_size", "broker_name",
        "physical_offset",
    )  # fmt: skip

    def __init__(
        self, buffer: bytes, position: int, size: int, physical_offset: int, broker_name: str = "default"
    ) -> None:
        self._buffer, self._position, self._size = buffer, position, size
        self.physical_offset = physical_offset
        self.broker_name = broker_name
        self._record: Record | None = None
        self._reason: str | None = None
        self._properties: dict[str, str] | None = None
        self._body: bytes | type[_Unasked] | None = _Unasked
        self._is_sound = False  # once the body was asked for

    @property
    def record(self) -> Record:
        """The fields as stored, bytes not interpreted."""
        record = self._record
        if record is None:
            record = self._record = self._read()
        return record

    def _read(self) -> Record:
        end = self._position + self._size
        found = read_record(memoryview(self._buffer)[:end], self._position)
        if isinstance(found, Record) and found.end == end and found.physical_offset == self.physical_offset:
            return found
        if isinstance(found, Torn):
            self._reason = found.reason
        elif isinstance(found, Blank):
            self._reason = "a blank record"
        elif found.end != end:
            self._reason = f"a record of {found.size} bytes where one of {self._size} is expected"
        else:
            self._reason = f"the record names {found.physical_offset} as its place"
        return _UNREADABLE

    @property
    def is_whole(self) -> bool:
        """Whether a record stands where one should, so that its fields mean something; its body may still be
        damaged."""
        return self.record is not _UNREADABLE

    @property
    def is_sound(self) -> bool:
        """Whether the record is what was stored: whole, and the CRCs that it has right, of its body and of all of it.

        A sound body may still be None, where its sender said that it is compressed and it is not.
        """
        _ = self.body
        return self._is_sound

    @property
    def corrupt_reason(self) -> str | None:
        """The reason why the record or its body is not sound; None for a sound one."""
        _ = self.body
        return self._reason

    @property
    def body(self) -> bytes | None:
        """The body as it was sent, decompressed; None where it cannot be had, `corrupt_reason` says why."""
        body = self._body
        if body is _Unasked:
            body = self._body = self._unpacked()
        assert not isinstance(body, type)
        return body

    def _unpacked(self) -> bytes | None:
        record = self.record
        if record is _UNREADABLE:
            return None
        if record.body and masked_crc32(record.body) != record.body_crc:  # of no bytes RocketMQ checks no CRC
            self._reason = "the CRC of the body is wrong"
            return None
        if record.properties.endswith(properties.VALUE_END) and verify_property_crc(self._whole()) is False:
            self._reason = "the CRC property of the record is wrong"
            return None
        self._is_sound = True
        try:
            return decompress(record.body, record.sys_flag, BODY_SIZE_MAX)
        except BodyError as error:
            self._reason = str(error)
            return None

    @property
    def stored_body(self) -> bytes:
        """The body as it is stored, compressed or not, sound or not."""
        return self.record.body

    @property
    def stored_record(self) -> bytes:
        """The bytes of the whole record."""
        return bytes(self._whole())

    def _whole(self) -> memoryview:
        return memoryview(self._buffer)[self._position : self._position + self._size]

    @property
    def properties(self) -> dict[str, str]:
        """The properties by name; not to be changed."""
        found = self._properties
        if found is None:
            found = self._properties = properties.parse_properties(self.record.properties)
        return found

    @property
    def topic(self) -> str:
        """The topic that the record names."""
        return java_text(self.record.topic)

    @property
    def tags(self) -> str | None:
        """TAGS."""
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> str | None:
        """KEYS: the keys with spaces between."""
        return self.properties.get(properties.KEYS)

    @property
    def queue_id(self) -> int:
        """The queue of the topic."""
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        """The message's number in its queue."""
        return self.record.queue_offset

    @property
    def flag(self) -> int:
        """The sender's own number."""
        return self.record.flag

    @property
    def sys_flag(self) -> int:
        """The bits of formats.sys_flag that go with `body`: none that tell of a compression.  With `stored_body` goes
        `record.sys_flag`.
        """
        flags = self.record.sys_flag
        return sys_flag.without_compression(flags) if flags & sys_flag.COMPRESSED else flags

    @property
    def born_timestamp_ms(self) -> int:
        """When it was sent, by the sender's clock: ms since the epoch."""
        return self.record.born_timestamp

    @property
    def store_timestamp_ms(self) -> int:
        """When it was stored, by the store's clock: ms since the epoch."""
        return self.record.store_timestamp

    @property
    def born_timestamp(self) -> datetime.datetime | None:
        """When it was sent, UTC; None where no calendar reaches."""
        return _instant(self.record.born_timestamp)

    @property
    def store_timestamp(self) -> datetime.datetime | None:
        """When it was stored, UTC; None where no calendar reaches."""
        return _instant(self.record.store_timestamp)

    @property
    def born_host(self) -> str:
        """Who sent it: address:port."""
        return decode_host(self.record.born_host, 0, len(self.record.born_host))

    @property
    def store_host(self) -> str:
        """The broker that stored it: address:port."""
        return decode_host(self.record.store_host, 0, len(self.record.store_host))

    @property
    def offset_msg_id(self) -> str:
        """The id by place."""
        return offset_message_id(self.record.store_host, self.physical_offset)

    @property
    def msg_id(self) -> str:
        """The sender's unique key, else the id by place."""
        return self.properties.get(properties.UNIQUE_KEY) or self.offset_msg_id

    @property
    def reconsume_times(self) -> int:
        """How often it came back from consumers."""
        return self.record.reconsume_times

    @property
    def prepared_transaction_offset(self) -> int:
        """Of a committed message: where its half message lies."""
        return self.record.prepared_transaction_offset

    @property
    def store_size(self) -> int:
        """Bytes of the record."""
        return self._size

    @property
    def body_crc(self) -> int:
        """The CRC of the stored body, as the record has it."""
        return self.record.body_crc

    @property
    def tags_code(self) -> int:
        """The hash of TAGS."""
        return string_hash(self.tags or "")

    def has_id(self, text: str) -> bool:
        """Whether `text` is its offset id."""
        return self.is_whole and self.offset_msg_id == text.upper()

    def has_key(self, key: str) -> bool:
        """Whether `key` is its unique key or one of its KEYS."""
        return self.properties.get(properties.UNIQUE_KEY) == key or key in properties.split_keys(self.keys or "")

    def __repr__(self) -> str:
        return f"<StoredMessage {self.topic}/{self.queue_id} @ {self.queue_offset}, log @ {self.physical_offset}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return self.physical_offset == other.physical_offset and self.stored_record == other.stored_record

    def __hash__(self) -> int:
        return hash((self.physical_offset, self._size))

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredMessage, (self.stored_record, 0, self._size, self.physical_offset, self.broker_name)


class _Unasked:
    """Stands in for a body that nobody asked for yet."""


def _instant(ms: int) -> datetime.datetime | None:
    try:
        return _EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        return None
