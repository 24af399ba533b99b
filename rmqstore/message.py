"""What goes into a store and what comes back: messages, results, and RocketMQ's words for their outcome."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqstore.log.stored_record import StoredMessage


@dataclass(slots=True)
class Message:
    """A message to put.

    `keys` are the KEYS property: one string (keys with spaces between) or several.  `properties` are any others, and
    win over nothing: TAGS, KEYS and WAIT stand here by their own names.  A property whose value is None is an absent
    one.  `born_timestamp_ms` and `born_host` default to the time of the put and the store's own address.
    `wait_store_ok` False: the put does not wait for the disk.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int | None = None
    born_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True


class PutStatus(enum.Enum):
    """What became of a put (Java: PutMessageStatus)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"  # stored, the sync is not confirmed in time
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"  # closed, or read-only
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
    """The answer to a put.  Offsets are -1 and the id is empty where nothing was stored.

    `physical_offset` is the first record's place in the commitlog, `size` the bytes of all records, `queue_offset` the
    first message's; `msg_id` joins the offset message ids of a batch with commas.
    """

    status: PutStatus
    physical_offset: int = -1
    size: int = 0
    msg_id: str = ""
    store_timestamp_ms: int = 0
    queue_offset: int = -1
    message_count: int = 0

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the commitlog (Java: isOk), even if its flush was not confirmed in time."""
        return self.physical_offset >= 0


class GetStatus(enum.Enum):
    """What a read of a queue came to (Java: GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"  # the filter let none of the scanned pass
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"  # the record's file is gone
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"  # the end: nothing new yet
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"  # never answered, by RocketMQ neither
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"  # also for a queue that is not there


@dataclass(frozen=True, slots=True)
class GetResult:
    """The answer to a read: `next_offset` is where the next read begins, the bounds are the queue's at that moment."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list["StoredMessage"] = field(default_factory=list)
