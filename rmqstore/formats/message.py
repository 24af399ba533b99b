"""One message record of the commitlog (docs/formats.md: versions 1 and 2, blank records): the scalar codec.

It is the specification that the vector codec, `message_columns`, is tested against.
"""

from dataclasses import dataclass

from rmqstore.formats import sys_flag as flags
from rmqstore.formats.layout import Layout

NO_DATA = "no data"  # the reason of a Torn place that was never written
NO_MAGIC = "no message magic"  # and of one where something else was

MAGIC_V1 = -626843481  # DA A3 20 A7
MAGIC_V2 = -626843477  # DA A3 20 AB, since 5.1.0: the topic length takes two bytes
MAGIC_BLANK = -875286124  # CB D4 31 94
MESSAGE_MAGICS = (MAGIC_V1, MAGIC_V2)
_TOPIC_SIZE_V1_MAX = 127  # what a signed byte says

# totalSize … bornTimestamp: the part that stands at the same place in every record.
HEAD = Layout(
    ("total_size", "i4"),
    ("magic", "i4"),
    ("body_crc", "i4"),
    ("queue_id", "i4"),
    ("flag", "i4"),
    ("queue_offset", "i8"),
    ("physical_offset", "i8"),
    ("sys_flag", "i4"),
    ("born_timestamp", "i8"),
)
HOST_V4 = Layout(("address", "i4"), ("port", "i4"))
HOST_V6 = Layout(("address_high", "i8"), ("address_low", "i8"), ("port", "i4"))
STORE_TIME = Layout(("store_timestamp", "i8"))  # after bornHost; storeHost follows
FOOT = Layout(("reconsume_times", "i4"), ("prepared_transaction_offset", "i8"), ("body_size", "i4"))
# The whole front of a record whose two hosts are IPv4; nearly every record, so it is read in one piece.
FRONT_V4 = Layout(
    *HEAD.fields,
    ("born_address", "i4"),
    ("born_port", "i4"),
    *STORE_TIME.fields,
    ("store_address", "i4"),
    ("store_port", "i4"),
    *FOOT.fields,
)
TOPIC_SIZE_V1 = Layout(("topic_size", "i1"))
TOPIC_SIZE_V2 = Layout(("topic_size", "i2"))
PROPERTIES_SIZE = Layout(("properties_size", "i2"))
BLANK = Layout(("total_size", "i4"), ("magic", "i4"))

# So many bytes of a record hold its storeTimestamp, whatever its hosts.
STORE_TIME_REACH = HEAD.size + HOST_V6.size + STORE_TIME.size
# Bytes of a record that are neither host, body, topic nor properties, with a topic length of one byte (V1).
FIXED_SIZE = HEAD.size + STORE_TIME.size + FOOT.size + TOPIC_SIZE_V1.size + PROPERTIES_SIZE.size
RECORD_SIZE_MIN = FIXED_SIZE + 2 * HOST_V4.size
# All before the body, at the most.
FRONT_SIZE_MAX = HEAD.size + STORE_TIME.size + 2 * HOST_V6.size + FOOT.size
# Broker default: maxMessageSize (4 MiB) can be raised by configuration, so the bound here is what one i32 body may
# hold.
RECORD_SIZE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Record:
    """A whole record at `position`; `end` is where the next one begins.  Byte fields are as stored."""

    position: int
    end: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole record, totalSize."""
        return self.end - self.position


@dataclass(frozen=True, slots=True)
class Blank:
    """The filler at the end of a file: `size` bytes from `position` to the end of the file hold no message."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Torn:
    """No record stands at `position`: unwritten zeros, a cut record or damage; `reason` says which."""

    position: int
    reason: str


def magic_of(topic_size: int) -> int:
    """The magic of a record that is written with a topic of so many bytes."""
    return MAGIC_V1 if topic_size <= _TOPIC_SIZE_V1_MAX else MAGIC_V2


def topic_size_layout(magic: int) -> Layout:
    """The length of the topic, as a record with this magic has it."""
    return TOPIC_SIZE_V1 if magic == MAGIC_V1 else TOPIC_SIZE_V2


def host_sizes(sys_flag: int) -> tuple[int, int]:
    """Bytes of bornHost and storeHost (address and port) by the IPv6 bits of sysFlag."""
    born = HOST_V6.size if sys_flag & flags.BORN_HOST_V6 else HOST_V4.size
    store = HOST_V6.size if sys_flag & flags.STORE_HOST_V6 else HOST_V4.size
    return born, store


def store_time(front: bytes, born_size: int | None = None) -> int | None:
    """storeTimestamp in ms of the record that begins with `front`; None where `front` ends before it.

    Nothing else of the record is checked.  `born_size` are the bytes of its bornHost, where sysFlag is not to be asked.
    """
    if len(front) < HEAD.size:
        return None
    if born_size is None:
        born_size, _ = host_sizes(HEAD.read(front)["sys_flag"])
    if len(front) < HEAD.size + born_size + STORE_TIME.size:
        return None
    (time_ms,) = STORE_TIME.struct.unpack_from(front, HEAD.size + born_size)
    return int(time_ms)


def size_without_first_byte(rest: bytes | memoryview) -> int | None:
    """The total size of a record whose first byte, the highest of its size, is missing before `rest`.

    Its other lengths tell it.  None while more of the record is needed; what is no message's record counts as small.
    """
    if len(rest) < HEAD.size - 1:
        return None
    size = int.from_bytes(rest[:3], "big")
    front = b"\0" + bytes(rest[: FRONT_SIZE_MAX - 1])
    head = HEAD.read(front)
    if head["magic"] not in MESSAGE_MAGICS:
        return size
    foot_at = HEAD.size + STORE_TIME.size + sum(host_sizes(head["sys_flag"]))
    if len(front) < foot_at + FOOT.size:
        return None
    least = foot_at + FOOT.size + FOOT.read(front, foot_at)["body_size"]
    whole = size + max(-(-(least - size) // 2**24), 0) * 2**24
    return whole if whole <= RECORD_SIZE_MAX else size


def read_record(buffer: bytes | memoryview, position: int) -> Record | Blank | Torn:
    """The record, blank or torn place at `position` of `buffer`.  Checks lengths, not CRCs; never raises for any bytes.

    `buffer` ends where readable data ends: a record that reaches over its end is Torn.
    """
    room = len(buffer) - position
    if room < BLANK.size:
        return Torn(position, f"{room} bytes left, too few for a record")
    total_size, magic = BLANK.struct.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return Blank(position, total_size)
    if magic not in MESSAGE_MAGICS:
        return Torn(position, NO_DATA if total_size == magic == 0 else f"{NO_MAGIC} ({magic & 0xFFFFFFFF:08X})")
    if not RECORD_SIZE_MIN <= total_size <= room:
        return Torn(position, f"record size {total_size} with {room} bytes left")
    return _read_message(buffer, position, total_size)


def _read_message(buffer: bytes | memoryview, start: int, total_size: int) -> Record | Torn:
    end = start + total_size
    _, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = HEAD.struct.unpack_from(
        buffer, start
    )
    born_size, store_size = host_sizes(sys_flag)
    topic_size_field = topic_size_layout(magic)
    variable = total_size - FIXED_SIZE - (topic_size_field.size - TOPIC_SIZE_V1.size) - born_size - store_size
    if variable < 0:
        return Torn(start, f"record size {total_size} is too small for its hosts")
    born_at = start + HEAD.size
    store_time_at = born_at + born_size
    store_host_at = store_time_at + STORE_TIME.size
    foot_at = store_host_at + store_size
    (store_timestamp,) = STORE_TIME.struct.unpack_from(buffer, store_time_at)
    reconsume_times, prepared, body_size = FOOT.struct.unpack_from(buffer, foot_at)
    body_at = foot_at + FOOT.size
    if not 0 <= body_size <= variable:
        return Torn(start, f"body size {body_size} in a record of {total_size}")
    (topic_size,) = topic_size_field.struct.unpack_from(buffer, body_at + body_size)
    if not 0 <= topic_size <= variable - body_size:
        return Torn(start, f"topic size {topic_size} in a record of {total_size}")
    topic_at = body_at + body_size + topic_size_field.size
    (properties_size,) = PROPERTIES_SIZE.struct.unpack_from(buffer, topic_at + topic_size)
    if body_size + topic_size + properties_size != variable or properties_size < 0:
        return Torn(start, f"lengths {body_size}, {topic_size}, {properties_size} do not add up to {total_size}")
    properties_at = topic_at + topic_size + PROPERTIES_SIZE.size
    return Record(
        start, end, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born,
        bytes(buffer[born_at:store_time_at]), store_timestamp, bytes(buffer[store_host_at:foot_at]),
        reconsume_times, prepared, bytes(buffer[body_at : body_at + body_size]),
        bytes(buffer[topic_at : topic_at + topic_size]), bytes(buffer[properties_at:end]),
    )  # fmt: skip


def encode_record(record: Record) -> bytes:
    """The bytes of `record`; `position` and `end` are not looked at.  The lengths must fit their fields
    (struct.error).
    """
    topic_size_field = topic_size_layout(record.magic)
    tail = b"".join(
        (
            record.born_host,
            STORE_TIME.struct.pack(record.store_timestamp),
            record.store_host,
            FOOT.struct.pack(record.reconsume_times, record.prepared_transaction_offset, len(record.body)),
            record.body,
            topic_size_field.struct.pack(len(record.topic)),
            record.topic,
            PROPERTIES_SIZE.struct.pack(len(record.properties)),
            record.properties,
        )
    )
    head = HEAD.struct.pack(
        HEAD.size + len(tail), record.magic, record.body_crc, record.queue_id, record.flag, record.queue_offset,
        record.physical_offset, record.sys_flag, record.born_timestamp,
    )  # fmt: skip
    return head + tail
