"""Delay levels: a message with DELAY waits in SCHEDULE_TOPIC_XXXX, in the queue of its level.

Java: HookUtils.handleScheduleMessage (4.9: CommitLog.asyncPutMessage) and ScheduleMessageService.messageTimeUp.  Timer
messages of 5.x (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, which ask for any time) are read and shown like all
others, but their delivery is out of scope: a put that asks for one gets the answer of a broker without a timer wheel.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rmqstore.core.arguments import shown
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.log.encode.property_values import REPLACED_BY_DELAY, TIMER_REQUESTS
from rmqstore.engine.log.encode.record_frame import PROPERTIES_SIZE_MAX, RecordForm, may_be_stored
from rmqstore.engine.log.put.refusal_reasons import topic_reason
from rmqstore.formats import delay_levels, names, properties, sys_flag
from rmqstore.formats import message as layouts
from rmqstore.formats.java_text import parse_int
from rmqstore.formats.message import Record, encode_record, read_record
from rmqstore.formats.record_crc import PROPERTY_CRC_SIZE, masked_crc32, property_crc, verify_property_crc

_WAITING_KINDS = (sys_flag.NOT_TRANSACTIONAL, sys_flag.COMMIT)
# The properties without which a message is none of `DelayLevels`' business.
DECIDING = TIMER_REQUESTS | {properties.DELAY}
CRC_NAME = properties.CRC32.encode() + properties.NAME_END


class DelayLevels:
    """The levels of a store by their milliseconds, level 1 first; as a PutHook it sends messages to wait.

    To be asked after hooks that look at a message's own topic.  `delay_ms` is not changed.  `long_topics_as_v2` is that
    of the records: a message whose topic they may not have could never be delivered.
    """

    def __init__(self, delay_ms: Sequence[int], *, long_topics_as_v2: bool = True) -> None:
        self.delay_ms = tuple(delay_ms)
        self._long_topics_as_v2 = long_topics_as_v2

    @property
    def count(self) -> int:
        """How many levels there are, which is the highest one."""
        return len(self.delay_ms)

    def __call__(self, message: Message) -> Message | PutStatus:
        """The message as it waits, or itself where it asks for no delay.

        Only messages of no transaction or committed ones wait, and none that is put into the schedule topic by hand,
        which waits already.  A level above the highest becomes that one, in the property too.  MESSAGE_ILLEGAL for a
        DELAY that is no number (Java raises; and where it finds one in the schedule topic, of whatever kind, it cuts
        the log there) and for a topic or queue id to which the message could not come back; WHEEL_TIMER_NOT_ENABLE for
        a timer message: stored as it is, it would be delivered early.
        """
        asked = message.properties
        if not asked:
            return message
        may_wait = message.sys_flag & sys_flag.TRANSACTION_MASK in _WAITING_KINDS
        text = asked.get(properties.DELAY)
        level = delay_levels.asked_level(text) if text else 0
        if level is None and (may_wait or message.topic == names.SCHEDULE_TOPIC):
            return PutStatus.MESSAGE_ILLEGAL
        if level is None or not may_wait:
            return message
        if level <= 0:
            return PutStatus.WHEEL_TIMER_NOT_ENABLE if asks_for_timer(message.topic, asked) else message
        if message.topic == names.SCHEDULE_TOPIC:
            return message
        if not self.delay_ms or message.queue_id < 0 or not may_be_stored(message.topic, self._long_topics_as_v2):
            return PutStatus.MESSAGE_ILLEGAL
        return self._waiting(message, level)

    def refusal_reason(self, message: Message) -> str:
        """Why a message was refused, in words."""
        text = message.properties.get(properties.DELAY)
        level = delay_levels.asked_level(text)
        if level is None:
            return f"{properties.DELAY}={shown(text)}: a number, the delay level"
        if level <= 0:
            return f"{timer_reason(message.properties)}; {properties.DELAY} sets a delay level"
        if not self.delay_ms:
            return f"{properties.DELAY}={text}: the store has no delay levels (delay_levels)"
        return topic_reason(message.topic, self._long_topics_as_v2) or f"queue_id={message.queue_id}: at least 0"

    def _waiting(self, message: Message, asked: int) -> Message:
        """The message in the queue of its level, with what brings it back; that stands after its own properties."""
        level = delay_levels.clamped(asked, self.count)
        kept = {name: value for name, value in message.properties.items() if name not in REPLACED_BY_DELAY}
        kept[properties.DELAY] = message.properties[properties.DELAY] if level == asked else str(level)
        kept[properties.REAL_TOPIC] = message.topic
        kept[properties.REAL_QUEUE_ID] = str(message.queue_id)
        return replace(message, topic=names.SCHEDULE_TOPIC, queue_id=level - 1, properties=kept)


def timer_reason(asked: Mapping[str, str]) -> str:
    """Why a message that asks for a timer is refused, in words."""
    return f"{', '.join(sorted(TIMER_REQUESTS.intersection(asked)))}: rmqstore does not deliver timer messages"


def asks_for_timer(topic: str, asked: Mapping[str, str]) -> bool:
    """Java: HookUtils.checkIfTimerMessage, for a message without a delay level."""
    if TIMER_REQUESTS.isdisjoint(asked) or topic == names.TIMER_TOPIC or asked.get(properties.TIMER_OUT_MS) is not None:
        return False
    return any(asked.get(name) is not None for name in TIMER_REQUESTS)


class Undeliverable(enum.Enum):
    """Why the record of a waiting message is passed over."""

    HALF = "of a half message"  # Java discards them
    UNREADABLE = "damaged, or without the topic and queue to deliver to"


def destination(topic: str, queue_id: str, form: RecordForm) -> tuple[str, int] | Undeliverable:
    """Where REAL_TOPIC and REAL_QID ("": absent) bring a message back to."""
    if topic == names.HALF_TOPIC:
        return Undeliverable.HALF
    number = parse_int(queue_id)
    if number is None or number < 0 or topic == names.SCHEDULE_TOPIC or form.topic_bytes(topic) is None:
        return Undeliverable.UNREADABLE
    return topic, number


@dataclass(frozen=True, slots=True)
class RestoredRecord:
    """A record as it is delivered, whole but for place, store time and the digits of the CRC property."""

    data: bytes
    topic: str
    queue_id: int
    sys_flag: int


def restored_record(data: bytes, offset: int, form: RecordForm, size_max: int) -> RestoredRecord | Undeliverable:
    """The record that delivers the message whose waiting record `data` stands at `offset` of the log.

    It is the same, and its properties are those very bytes, DELAY, REAL_TOPIC and REAL_QID among them, but for its
    place, its store time, preparedTransactionOffset (0) and the CRC property, which is the store's matter.  `size_max`
    is what a file of the log takes.  Unreadable is every record that a check finds unsound, a wrong CRC included: the
    log must not get a record that recovery stops at.  The scalar twin of `delay_columns.restored_columns`.
    """
    record = read_record(data, 0)
    if not isinstance(record, Record) or record.end != len(data) or record.physical_offset != offset:
        return Undeliverable.UNREADABLE
    if record.body and masked_crc32(record.body) != record.body_crc:
        return Undeliverable.UNREADABLE
    if len(record.properties) >= PROPERTY_CRC_SIZE and verify_property_crc(data) is False:
        return Undeliverable.UNREADABLE
    block = _without_crc(record.properties)
    found = properties.parse_properties(block)
    back = destination(found.get(properties.REAL_TOPIC, ""), found.get(properties.REAL_QUEUE_ID, ""), form)
    if isinstance(back, Undeliverable):
        return back
    if form.property_crc:
        is_open = block and not block.endswith(properties.VALUE_END)
        block += (properties.VALUE_END if is_open else b"") + property_crc(b"")
    topic = back[0].encode()
    restored = encode_record(
        replace(
            record,
            magic=layouts.magic_of(len(topic)),
            queue_id=back[1], queue_offset=0, physical_offset=0, store_timestamp=0, prepared_transaction_offset=0,
            topic=topic, properties=block[:PROPERTIES_SIZE_MAX],
        )
    )  # fmt: skip
    if len(block) > PROPERTIES_SIZE_MAX or len(restored) > size_max:
        return Undeliverable.UNREADABLE
    return RestoredRecord(restored, *back, record.sys_flag)


def _without_crc(block: bytes) -> bytes:
    """A properties block without the CRC property at its end."""
    tail = block[-PROPERTY_CRC_SIZE:]
    is_crc = len(tail) == PROPERTY_CRC_SIZE and tail.startswith(CRC_NAME) and tail.endswith(properties.VALUE_END)
    return block[:-PROPERTY_CRC_SIZE] if is_crc else block
