"""Messages that go into a store and come back, results, and RocketMQ's words for their outcome."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.errors import PutFailed

if TYPE_CHECKING:
    from rmqstore.formats.stored_message import StoredMessage


@dataclass(slots=True)
class Message:
    """A message to put.

    - `keys`: the KEYS property, as one string with spaces between keys, or as several strings.
    - `properties`: all other properties.  They never override `tags`, `keys` or `wait_store_ok`, which are stored as
      TAGS, KEYS and WAIT.  A property whose value is None is left out.
    - `born_timestamp_ms` and `born_host`: by default the time of the put and the store's own address.
    - `wait_store_ok`: with False the put does not wait for the disk.

    The put checks the types: a wrong type raises WrongType, which names the field.  Any bytes-like object is a body.
    """

    topic: str  #: 1 to 127 of letters, digits and `%|_-`
    body: bytes  #: the bytes of the message
    tags: str | None = None  #: its tag: a message has one
    keys: str | Sequence[str] = ()  #: what it is found by
    properties: Mapping[str, str] = field(default_factory=dict)  #: names and values
    queue_id: int = 0  #: its queue, from 0
    flag: int = 0  #: a number of the sender's own
    sys_flag: int = 0  #: RocketMQ's bits
    born_timestamp_ms: int | None = None  #: when it was sent, by the sender's clock
    born_host: str | None = None  #: host:port of the sender
    reconsume_times: int = 0  #: how often it came again
    prepared_transaction_offset: int = 0  #: where its half message lies
    wait_store_ok: bool = True  #: whether the put waits for the disk

    def __repr__(self) -> str:
        """One line; a large body is cut."""
        fields = [f"{self.topic!r}, {_short(self.body)}"]
        fields += [
            f"{name}={getattr(self, name)!r}" for name, default in _DEFAULTS.items() if getattr(self, name) != default
        ]
        return f"Message({', '.join(fields)})"


# Defaults of the fields that follow the body: `repr` leaves out a field that has its default.
_DEFAULTS: Mapping[str, object] = {
    "tags": None, "keys": (), "properties": {}, "queue_id": 0, "flag": 0, "sys_flag": 0, "born_timestamp_ms": None,
    "born_host": None, "reconsume_times": 0, "prepared_transaction_offset": 0, "wait_store_ok": True,
}  # fmt: skip
_SHOWN_MAX = 40


def _short(body: object) -> str:
    if isinstance(body, bytes) and len(body) > _SHOWN_MAX:
        return f"{body[:_SHOWN_MAX]!r}... {len(body)} bytes"
    return repr(body)


class PutStatus(enum.Enum):
    """The outcome of a put (Java: PutMessageStatus)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"  #: stored, the sync is not confirmed in time
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"  #: closed, or read-only
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class PutResult(NamedTuple):
    """The answer to a put.  If nothing was stored, offsets are -1 and `msg_id` is empty.

    - `physical_offset`: the commitlog offset of the first record; `size`: the bytes of all records.
    - `queue_offset`: that of the first message.
    - `msg_id`: the offset message id, never the unique key.  Of a batch it holds the ids of all messages, separated by
      commas, as in RocketMQ.
    - `reason`: why the status is not PUT_OK.
    """

    status: PutStatus  #: RocketMQ's word for the outcome
    physical_offset: int = -1  #: where the first record lies in the commitlog
    size: int = 0  #: bytes of all records
    msg_id: str = ""  #: the offset message id; of a batch all, with commas
    store_timestamp_ms: int = 0  #: when it was stored
    queue_offset: int = -1  #: the number of the first message in its queue
    message_count: int = 0  #: how many messages are stored
    reason: str = ""  #: why it is not PUT_OK, in words

    def __bool__(self) -> bool:
        """Whether it is PUT_OK, as `raise_for_status` has it."""
        return self.status is PutStatus.PUT_OK

    @property
    def msg_ids(self) -> tuple[str, ...]:
        """The offset message ids one by one; none for rows of `put_columns`, whose answer has none."""
        return tuple(self.msg_id.split(",")) if self.msg_id else ()

    def raise_for_status(self) -> "PutResult":
        """The answer itself if its status is PUT_OK.  Raises PutFailed for any other status.

        With FLUSH_DISK_TIMEOUT the message is stored, but it is not known yet whether it is on the disk.
        """
        if self.status is not PutStatus.PUT_OK:
            raise PutFailed(self)
        return self

    def __repr__(self) -> str:
        """One line, without the ids: a batch may have many."""
        if not self.is_stored:
            return f"PutResult({self.status.name}{f', {self.reason}' if self.reason else ''})"
        what = f"{self.message_count} message{'' if self.message_count == 1 else 's'} of {self.size} bytes"
        place = f" at {self.physical_offset}, queue_offset={self.queue_offset}"
        return f"PutResult({self.status.name}, {what}{place}{f', {self.reason}' if self.reason else ''})"

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the commitlog (Java: isOk), even if its flush was not confirmed in time."""
        return self.physical_offset >= 0


class GetStatus(enum.Enum):
    """The outcome of a read of a queue (Java: GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"  #: the filter let none of the scanned pass
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"  #: the record's file is gone
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"  #: the end: nothing new yet
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"  #: never answered, by RocketMQ neither
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"  #: also for a queue that is not there


@dataclass(frozen=True, slots=True)
class GetResult:
    """The answer to a read: the next read begins at `next_offset`; the bounds are those of the queue at that moment."""

    status: GetStatus  #: RocketMQ's word for the outcome
    next_offset: int  #: where the next read begins
    min_offset: int  #: the first queue offset that is there
    max_offset: int  #: the one after the last
    messages: list["StoredMessage"] = field(default_factory=list)  #: what was found

    def __repr__(self) -> str:
        """One line, without the messages."""
        count = len(self.messages)
        found = f"{self.status.name}, {count} message{'' if count == 1 else 's'}"
        return f"GetResult({found}, next_offset={self.next_offset} of [{self.min_offset}, {self.max_offset}))"
