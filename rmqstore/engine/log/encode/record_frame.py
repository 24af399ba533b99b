"""Messages as records, one by one: the scalar writer of the put path.  The bytes are those of `message.encode_record`.

A frame is made outside of the put lock; inside of it only `stamp` runs, which fills in the three fields that are known
no earlier.  Budget at 100 bytes of body with TAGS and KEYS: 2.5 µs, measured 2.1 (CRC-32 0.3, properties 0.6, fixed
fields 0.6, join 0.2, the rest checks); a further property 0.8.  `stamp` takes 0.2 µs, with the CRC property 1.5 µs.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rmqstore.core.message import Message, PutStatus
from rmqstore.formats import message as layouts
from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.host import SIZE_V4, SIZE_V6, encode_host
from rmqstore.formats.layout import Layout
from rmqstore.formats.message_fields import plain_message, settled_keys
from rmqstore.formats.record_crc import CRC_MASK, PROPERTY_CRC_SIZE, crc32, crc_digits, property_crc

# RocketMQ's limits.
PROPERTIES_SIZE_MAX = 2**15 - 1
TOPIC_SIZE_MAX = 127
LONG_TOPIC_SIZE_MAX = 255  # of retry topics, which are a group's name and a prefix
RECORD_EXTRA_MAX = 64 * 1024
BODY_SIZE_MAX = 4 * 1024 * 1024
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

# queueOffset and physicalOffset, which stand side by side.
_PLACE = Layout(*layouts.HEAD.fields[5:7])
PLACE_AT = layouts.HEAD.offset["queue_offset"]
assert layouts.HEAD.offset["physical_offset"] == PLACE_AT + 8
STORE_TIME_AT_V4 = layouts.FRONT_V4.offset["store_timestamp"]
STORE_TIME_AT_V6 = layouts.HEAD.size + layouts.HOST_V6.size

_FRONT = layouts.FRONT_V4.struct.pack
_PROPERTIES_SIZE = layouts.PROPERTIES_SIZE.struct.pack
stamp_place = _PLACE.struct.pack_into
stamp_time = layouts.STORE_TIME.struct.pack_into
_CRC_ROOM = property_crc(b"")
_DIGITS_AT = -len(crc_digits(0)) - 1
_NAME_MARK, _VALUE_MARK = ord("\x01"), ord("\x02")
_VALUE_END = "\x02"
_TOPICS_MAX = 65536


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The things that all records of one store have in common, and the limits that its messages are held to.

    `store_host` is the storing broker's 8 or 20 bytes.  `long_topics_as_v2`: retry topics of more than 127 bytes
    become V2 records, else they are refused.  `property_crc`: every record ends in its CRC (docs/formats.md).
    `more_properties` is appended to the properties of every message, closed by 0x02 (CLUSTER, say).  `gap` bytes stand
    in front of each record in the log.
    """

    store_host: bytes
    message_size_max: int = BODY_SIZE_MAX
    long_topics_as_v2: bool = True
    property_crc: bool = False
    more_properties: bytes = b""
    gap: int = 0
    host_flags: int = field(init=False)
    record_size_max: int = field(init=False)
    _topics: dict[str, bytes | None] = field(init=False, repr=False, compare=False)
    _host_numbers: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.store_host) not in (SIZE_V4, SIZE_V6):
            raise ValueError(f"a store host of {len(self.store_host)} bytes")
        own = self.more_properties
        if own and not own.endswith(properties.VALUE_END):
            raise ValueError("more_properties lacks its last 0x02")
        is_v6 = len(self.store_host) == SIZE_V6
        numbers = (0, 0) if is_v6 else layouts.HOST_V4.struct.unpack(self.store_host)
        record_size_max = min(self.message_size_max + RECORD_EXTRA_MAX, layouts.RECORD_SIZE_MAX)
        object.__setattr__(self, "host_flags", sys_flag.STORE_HOST_V6 if is_v6 else 0)
        object.__setattr__(self, "record_size_max", record_size_max)
        object.__setattr__(self, "_topics", {})
        object.__setattr__(self, "_host_numbers", numbers)

    def topic_bytes(self, topic: str) -> bytes | None:
        """The topic with its length in front, as a record holds it; None for a name that may not be stored.

        A length of two bytes says that the record is V2.
        """
        try:
            return self._topics[topic]
        except KeyError:
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()
            return self._topics.setdefault(topic, _topic_bytes(topic, self.long_topics_as_v2))


@lru_cache(maxsize=4096)
def may_be_stored(topic: str, long_as_v2: bool) -> bool:
    """Whether records may have the topic; `long_as_v2` as in `RecordForm`.

    Java: TopicValidator.validateTopic and HookUtils.checkBeforePutMessage in one.  Dead-letter
    topics are no longer than others, though they too are a group's name and a prefix.
    """
    is_long = long_as_v2 and topic.startswith(names.RETRY_PREFIX)
    return len(topic) <= (LONG_TOPIC_SIZE_MAX if is_long else TOPIC_SIZE_MAX) and names.is_topic_name(topic)


def _topic_bytes(topic: str, long_as_v2: bool) -> bytes | None:
    if not may_be_stored(topic, long_as_v2):
        return None
    layout = layouts.topic_size_layout(layouts.magic_of(len(topic)))
    return layout.struct.pack(len(topic)) + topic.encode()


# TAGS, KEYS and UNIQ_KEY of a record, "" for none; lone surrogates as the message has them.
Said = tuple[str, str, str]


class Frame:
    """One record, whole but for its place: `data` is what to append once `stamp` has been called.

    `is_counted`: the message takes a number in its queue (none and commit); others are stored with queueOffset 0.
    `said` is what the properties, the last `properties_size` bytes, hold for dispatch, where that is known.
    """

    __slots__ = (
        "data", "has_crc", "is_counted", "properties_size", "queue_id", "said", "store_time_at", "sys_flag", "topic",
    )  # fmt: skip

    record_count = 1

    def __init__(
        self, data: bytearray, key: tuple[str, int], flags: int, has_crc: bool, properties_size: int,
        said: Said | None,
    ) -> None:  # fmt: skip
        self.data = data
        self.properties_size = properties_size
        self.said = said
        self.topic, self.queue_id = key
        self.sys_flag = flags
        self.is_counted = flags & sys_flag.TRANSACTION_MASK in _COUNTED
        self.store_time_at = STORE_TIME_AT_V6 if flags & sys_flag.BORN_HOST_V6 else STORE_TIME_AT_V4
        self.has_crc = has_crc

    @property
    def records(self) -> list[bytearray]:
        """The record's bytes."""
        return [self.data]

    def stamp(self, queue_offset: int, physical_offset: int, store_ms: int) -> None:
        """Fills in place and store time, and after them the CRC property where there is one; may be called again.

        The queue offset of a message that is not counted is stored as 0.
        """
        data = self.data
        stamp_place(data, PLACE_AT, queue_offset if self.is_counted else 0, physical_offset)
        stamp_time(data, self.store_time_at, store_ms)
        if self.has_crc:
            stamp_crc(data, 0, len(data))


_COUNTED = (sys_flag.NOT_TRANSACTIONAL, sys_flag.COMMIT)


def stamp_crc(data: bytearray, start: int, end: int) -> None:
    """Fills in the CRC property at the end of the record data[start:end]."""
    with memoryview(data) as view:
        value = crc32(view[start : end - PROPERTY_CRC_SIZE]) & CRC_MASK
    data[end + _DIGITS_AT : end - 1] = crc_digits(value)


def frame_of(message: Message, form: RecordForm, now_ms: int) -> Frame | PutStatus:
    """The record of a message, or why it may not be stored: MESSAGE_ILLEGAL or PROPERTIES_SIZE_EXCEEDED.

    `now_ms` stands in for a missing born time, the store's own address for a missing born host.  The bits of sysFlag
    that speak of address families follow the addresses.  Raises WrongType, which names the field.
    """
    if not has_plain_types(message):
        message = plain_message(message)
    body: Any = message.body  # None is refused as RocketMQ refuses it, whatever the annotation says
    topic = form.topic_bytes(message.topic)
    if topic is None or body is None or len(body) > form.message_size_max or message.queue_id < 0:
        return PutStatus.MESSAGE_ILLEGAL
    block, said = _properties_of(message)
    if block is None:
        return PutStatus.MESSAGE_ILLEGAL
    block += form.more_properties
    if form.property_crc:
        block += _CRC_ROOM
    if len(block) > PROPERTIES_SIZE_MAX:
        return PutStatus.PROPERTIES_SIZE_EXCEEDED
    try:
        front, flags = _front_of(message, form, now_ms, len(body) + len(topic) + len(block))
    except (struct.error, ValueError, TypeError):  # a number or a host that has no place in a record
        plain_message(message)
        return PutStatus.MESSAGE_ILLEGAL
    data = _NOTHING.join((front, body, topic, _PROPERTIES_SIZE(len(block)), block))
    if len(data) > form.record_size_max:
        return PutStatus.MESSAGE_ILLEGAL
    return Frame(data, (message.topic, message.queue_id), flags, form.property_crc, len(block), said)


_NOTHING = bytearray()


def has_plain_types(message: Message) -> bool:
    """Whether the fields that are stored as they come have exactly the types that are packed; 0.06 us.

    A truth value would be packed as a number, and of an array of numbers the length is not that of its bytes.
    """
    return (
        type(message.body) is bytes
        and type(message.topic) is str
        and type(message.queue_id)
        is type(message.flag)
        is type(message.sys_flag)
        is type(message.reconsume_times)
        is type(message.prepared_transaction_offset)
        is int
        and type(message.wait_store_ok) is bool
    )


def _front_of(message: Message, form: RecordForm, now_ms: int, variable_size: int) -> tuple[bytes, int]:
    """The fields up to the body size, and sysFlag with its address bits; `variable_size` counts body, topic with its
    length, and properties."""
    flags = message.sys_flag & ~(sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6) | form.host_flags
    body = message.body
    born_ms = message.born_timestamp_ms
    if born_ms is None:
        born_ms = now_ms
    elif type(born_ms) is not int:
        born_ms = plain_message(message).born_timestamp_ms
    magic = layouts.magic_of(len(message.topic))
    crc = crc32(body) & CRC_MASK
    born_text = message.born_host
    if born_text is None:
        born_is_v4, born_numbers = not form.host_flags, form._host_numbers
    else:
        born_is_v4, born_numbers, _ = _host_of(born_text)
    if born_is_v4 and not form.host_flags:
        return _FRONT(
            _FRONT_SIZE + variable_size, magic, crc, message.queue_id, message.flag, 0, 0, flags, born_ms,
            *born_numbers, 0, *form._host_numbers, message.reconsume_times, message.prepared_transaction_offset,
            len(body),
        ), flags  # fmt: skip
    born = form.store_host if born_text is None else _host_of(born_text).data
    flags |= 0 if born_is_v4 else sys_flag.BORN_HOST_V6
    size = _FRONT_SIZE - 2 * SIZE_V4 + len(born) + len(form.store_host) + variable_size
    head = layouts.HEAD.struct.pack(size, magic, crc, message.queue_id, message.flag, 0, 0, flags, born_ms)
    time = layouts.STORE_TIME.struct.pack(0)
    foot = layouts.FOOT.struct.pack(message.reconsume_times, message.prepared_transaction_offset, len(body))
    return b"".join((head, born, time, form.store_host, foot)), flags


_FRONT_SIZE = layouts.FRONT_V4.size + layouts.PROPERTIES_SIZE.size


class _Host(NamedTuple):
    """A host's bytes, and where it is IPv4 the two numbers that they are."""

    is_v4: bool
    numbers: tuple[int, int]
    data: bytes


@lru_cache(maxsize=4096)
def _host_of(text: str) -> _Host:
    """A host by its text.  Raises ValueError."""
    data = encode_host(text)
    is_v4 = len(data) == SIZE_V4
    return _Host(is_v4, layouts.HOST_V4.struct.unpack(data) if is_v4 else (0, 0), data)


def properties_block(message: Message) -> bytes | None:
    """The properties of a message as a record holds them: TAGS, KEYS, WAIT, then its others in their order, each closed
    by 0x02; None where a name is empty or a separator stands in a name or a value.

    None also for INNER_NUM without the flag of an inner batch: RocketMQ 5.3.3 refuses such a message, and where one is
    in the log with an INNER_BASE, and a value that is no number, it cuts the log there.
    The fields of the message win over properties of the same name.  Not stored: properties whose value is None, names
    that begin with __RMQ.TRANSIENT., and a __CRC32# from outside (Java takes it out only where it writes one of its
    own; a stale one would make a sound record look damaged).  Lone surrogates become `?`.
    """
    return _properties_of(message)[0]


def _properties_of(message: Message) -> tuple[bytes | None, Said | None]:  # noqa: PLR0912 (no calls: every put comes here)
    """The properties as `properties_block` has them, and the tags, keys and unique key that dispatch reads out of them.

    The latter None where some properties cannot simply be copied (`_fit`): dispatch reads the block itself then.
    """
    tags, keys, others = message.tags or "", message.keys or "", message.properties
    if type(tags) is not str:
        tags = plain_message(message).tags or ""
    if type(keys) is not str:
        keys = _joined(message, keys)
    count = 0
    text = ""
    if tags:
        count = 1
        text = f"TAGS\x01{tags}\x02"
    if keys:
        count += 1
        text = f"{text}KEYS\x01{keys}\x02"
    if not message.wait_store_ok:
        count += 1
        text += "WAIT\x01false\x02"
    said: Said | None = (tags, keys, "")
    if others:
        joined = ""
        try:
            if STORED_APART.isdisjoint(others):
                joined = _VALUE_END.join(map(_join_pair, others.items()))
        except TypeError:  # a value that is None, or none that a property may have
            plain_message(message)
        if not joined or TRANSIENT_PREFIX in joined:
            others, said = _fit(message, tags, keys), None
            if properties.INNER_COUNT in others and not message.sys_flag & sys_flag.INNER_BATCH:
                return None, None
            joined = _pairs(message, others)
        elif properties.UNIQUE_KEY in others:
            said = (tags, keys, others[properties.UNIQUE_KEY])
        if "" in others:
            return None, None
        if others:
            count += len(others)
            text = f"{text}{joined}\x02"
    block = text.encode(errors="replace")
    # Each property has one of either mark by itself: more than that came from a name or a value.
    if block.count(_NAME_MARK) != count or block.count(_VALUE_MARK) != count:
        return None, None
    return block, said


_join_pair = "\x01".join


def _pairs(message: Message, others: Mapping[str, str]) -> str:
    """Properties one after the other.  Raises WrongType."""
    try:
        return _VALUE_END.join(map(_join_pair, others.items()))
    except TypeError:
        plain_message(message)  # says which
        raise


def _joined(message: Message, keys: Iterable[str]) -> str:
    """Several keys as KEYS has them.  Raises WrongType."""
    if isinstance(keys, str):
        return str.__str__(keys)
    try:
        if type(keys) is not list and type(keys) is not tuple:
            keys = settled_keys(message)
        return properties.KEY_SEPARATOR.join(keys)
    except TypeError:
        plain_message(message)
        raise


# Names that are not simply copied: the message's own fields may win over them, the store writes them itself, or not
# every message may have them.
STORED_APART = frozenset((properties.TAGS, properties.KEYS, properties.WAIT, properties.CRC32, properties.INNER_COUNT))


def _fit(message: Message, tags: str, keys: str) -> dict[str, str]:
    """The further properties of a message without those that are absent, not stored, or stand in its fields."""
    taken = {properties.TAGS: tags, properties.KEYS: keys, properties.WAIT: not message.wait_store_ok}
    left_out = {properties.CRC32, *(name for name, value in taken.items() if value)}
    others: Mapping[str, Any] = message.properties  # a None in it is an absent property, whatever the annotation says
    return {
        name: value
        for name, value in others.items()
        if value is not None and name not in left_out and not name.startswith(TRANSIENT_PREFIX)
    }
