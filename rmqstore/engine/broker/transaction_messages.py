"""The messages of which a transaction consists: half, copies of it, committed, given up, and op; pure forms, no state.

Java: TransactionalMessageBridge, EndTransactionProcessor, DefaultTransactionalMessageCheckListener (docs/formats.md).
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rmqstore.core.arguments import I64_MAX
from rmqstore.core.message import Message
from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.java_text import parse_int
from rmqstore.formats.stored_message import StoredMessage

CHECK_GROUP = "CID_RMQ_SYS_TRANS"
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
OP_TAG = "d"
OP_SEPARATOR = ","
# What a client calls a producer that was given no name; without any, a broker cannot ask back.
DEFAULT_GROUP = "DEFAULT_PRODUCER"
_OP_OFFSET_DIGITS_MAX = 19


@dataclass(frozen=True, slots=True)
class Dialect:
    """The two topics that tell of transactions; `has_copies`: each check puts the half message once more."""

    half_topic: str
    op_topic: str
    has_copies: bool


OF_QUEUES = Dialect(names.HALF_TOPIC, names.OP_HALF_TOPIC, has_copies=True)
# Of a broker with transRocksDBEnable and without transWriteOriginTransHalfEnable, since 5.4.
OF_ROCKSDB = Dialect(names.ROCKSDB_HALF_TOPIC, names.ROCKSDB_OP_HALF_TOPIC, has_copies=False)


class TransactionState(enum.Enum):
    """A producer's knowledge of its own transaction (Java: LocalTransactionState)."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The name of a half message: with it a transaction is committed or rolled back, also after the store was closed.

    `topic` is the real one; `transaction_id` the unique key.  `queue_offset` and `physical_offset` are the half
    message's own; every check makes a copy with new ones, and the names of the older ones stay good.
    """

    topic: str
    group: str
    transaction_id: str
    queue_offset: int
    physical_offset: int
    born_timestamp_ms: int


def prepared_of(half: StoredMessage) -> Prepared:
    """The name of a stored half message."""
    found = half.properties
    return Prepared(
        found.get(properties.REAL_TOPIC, ""),
        found.get(properties.PRODUCER_GROUP, ""),
        found.get(properties.UNIQUE_KEY, ""),
        half.queue_offset,
        half.physical_offset,
        half.born_timestamp_ms,
    )


def half_message(message: Message, group: str, new_key: str, now_ms: int) -> Message:
    """The half message of a message: out of sight, in queue 0 of the half topic.

    `group` "" stands for PGROUP of the message, else DEFAULT_GROUP; `new_key` becomes UNIQ_KEY where there is none, as
    5.x does.  DELAY is dropped, as clients drop it: a delayed half message would never come back.
    """
    kept = {name: value for name, value in message.properties.items() if name != properties.DELAY}
    key = kept.get(properties.UNIQUE_KEY) or new_key
    kept |= {
        properties.TRANSACTION_PREPARED: "true",
        properties.PRODUCER_GROUP: group or kept.get(properties.PRODUCER_GROUP) or DEFAULT_GROUP,
        properties.UNIQUE_KEY: key,
        properties.TRANSACTION_ID: key,
        properties.REAL_TOPIC: message.topic,
        properties.REAL_QUEUE_ID: str(message.queue_id),
    }
    return Message(
        names.HALF_TOPIC,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=kept,
        flag=message.flag,
        sys_flag=message.sys_flag & ~sys_flag.TRANSACTION_MASK,
        born_timestamp_ms=now_ms if message.born_timestamp_ms is None else message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        wait_store_ok=message.wait_store_ok,
    )


def committed_message(half: StoredMessage) -> Message:
    """A half message as consumers get it.  All its properties stay; raises ValueError where REAL_QID is no number."""
    found = half.properties
    message = copy_of(half, found.get(properties.REAL_TOPIC, ""), found)
    message.queue_id = int(found.get(properties.REAL_QUEUE_ID, ""))
    message.sys_flag = half.record.sys_flag & ~sys_flag.TRANSACTION_MASK | sys_flag.COMMIT
    message.prepared_transaction_offset = half.physical_offset
    return message


def checked_message(half: StoredMessage, is_immune: bool) -> Message:
    """The copy of a half message that stands for it from a check on, with one more TRANSACTION_CHECK_TIMES.

    That of an immune one says where the first stood, as its producer knows no other place, and WAIT=false (quirk of
    RocketMQ).  Flag and reconsumeTimes are kept, which RocketMQ loses here.
    """
    found = half.properties | {properties.CHECK_TIMES: str(check_times(half.properties) + 1)}
    if is_immune:
        found[properties.WAIT] = "false"
        found.setdefault(PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    return copy_of(half, names.HALF_TOPIC, found)


def given_up_message(half: StoredMessage) -> Message:
    """The message that a half message becomes when nobody decided it."""
    return copy_of(half, names.TRANSACTION_CHECK_TOPIC, half.properties)


def copy_of(stored: StoredMessage, topic: str, found: Mapping[str, str]) -> Message:
    """A stored message once more, with these properties, in queue 0 of a topic: its body stays as it is stored."""
    return Message(
        topic,
        stored.stored_body,
        properties=found,
        flag=stored.flag,
        sys_flag=stored.record.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        reconsume_times=stored.reconsume_times,
    )


def op_message(half_offsets: Iterable[int], now_ms: int) -> Message:
    """The message that says of half messages, by queue offset, that they are decided; the dialect of 5.1 and later."""
    body = "".join(f"{offset}{OP_SEPARATOR}" for offset in half_offsets).encode()
    wait = {properties.WAIT: "true"}
    return Message(names.OP_HALF_TOPIC, body, tags=OP_TAG, properties=wait, born_timestamp_ms=now_ms)


def rocksdb_op_message(prepared: Prepared, new_key: str, now_ms: int) -> Message:
    """The op message in the dialect of RocksDB: it names one half message by its place in the log.

    WAIT is true, as what it says is acknowledged; RocketMQ's say false.
    """
    found = {
        properties.UNIQUE_KEY: new_key,
        properties.TRANSACTION_ID: prepared.transaction_id,
        properties.TRANSACTION_OFFSET: str(prepared.physical_offset),
        properties.REAL_TOPIC: prepared.topic,
        properties.WAIT: "true",
    }
    topic = names.ROCKSDB_OP_HALF_TOPIC
    return Message(topic, b"\0", tags=OP_TAG, properties=found, born_timestamp_ms=now_ms)


def op_place(op: StoredMessage) -> int | None:
    """The place of the half message that an op message names in the dialect of RocksDB; None where it names none."""
    place = number(op.properties.get(properties.TRANSACTION_OFFSET)) if op.tags == OP_TAG else None
    return None if place is None or place < 0 else place


def op_offsets(op: StoredMessage) -> list[int]:
    """The half messages that an op message of any version names: `17`, or `17,18,`; pieces that are no number are
    left out."""
    if op.tags != OP_TAG:
        return []
    pieces = (op.body or b"").split(OP_SEPARATOR.encode())
    return [int(piece) for piece in pieces if piece.isdigit() and len(piece) <= _OP_OFFSET_DIGITS_MAX]


def check_times(found: Mapping[str, str]) -> int:
    """How often a half message with these properties was checked."""
    return max(parse_int(found.get(properties.CHECK_TIMES, "")) or 0, 0)


def immunity_ms(found: Mapping[str, str], default_ms: int) -> int | None:
    """For how long after its birth a half message is not checked by its own wish; None where it has none.

    A wish that makes no sense is `default_ms` (Java: getImmunityTime).
    """
    text = found.get(IMMUNITY_SECONDS)
    if text is None:
        return None
    seconds = number(text)
    return default_ms if seconds is None or seconds == -1 else seconds * 1000


def number(text: str | None) -> int | None:
    """A number of 64 bits as Java's Long.parseLong takes it; None for anything else."""
    return None if text is None else parse_int(text, I64_MAX)
