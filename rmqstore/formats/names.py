"""Names that carry meaning: files named by byte offset, queue directories, topics that RocketMQ keeps for itself."""

import re

from rmqstore.core.arguments import I32_MAX, I64_MAX

# Topic and queue id.
QueueKey = tuple[str, int]

_START = re.compile(r"[0-9]{20}")
_INDEX = re.compile(r"[0-9]{17}")
_DIRECTORY_SIZE_MAX = 255  # of names in common file systems
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")

# The directories at the root of a store: those of plain queues, of batch queues and of the extension units of entries;
# then those of the log, the index and the broker's tables.
PLAIN_ROOM, BATCH_ROOM, EXTENSION_ROOM = QUEUE_ROOMS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
LOG_ROOM, INDEX_ROOM, CONFIG_ROOM = "commitlog", "index", "config"
STORE_ROOMS = frozenset((*QUEUE_ROOMS, LOG_ROOM, INDEX_ROOM, CONFIG_ROOM))
# Since RocketMQ 5.4: a database that every broker makes, whatever is kept in it.
ROCKSDB_ROOM = "rocksdbstore"
# Databases of the queues, where they do not stand in consumequeue/, and of what POP consumers have under way.
SEPARATE_ROOM, POP_ROOM = "consumequeue_rocksdb", "kvStore"
NOWHERE = 2**63 - 1  # no offset of the log
# Files at the root of a store.
LOCK_FILE = "lock"
ABORT_FILE = "abort"
CHECKPOINT_FILE = "checkpoint"
# In config/: whose replica a store is; RocketMQ passes it over.
REPLICA_FILE = "replica.json"
# Any file at the root that a broker or this engine makes; 5.x writes some by way of a sibling.
_ROOT_FILE = re.compile(
    r"(?:lock|abort|checkpoint|timerwheel|epochFileCheckpoint|brokerIdentity)(?:[.-](?:bak|tmp|temp|\d+)){0,2}"
)
# The names in config/, up to the first dot.
_CONFIG_FILES = frozenset(
    (
        "topics", "subscriptionGroup", "consumerOffset", "lmqConsumerOffset", "consumerFilter", "delayOffset",
        "consumerOrderInfo", "topicQueueMapping", "messageRequestMode", "timercheck", "timermetrics",
        "transactionMetrics", "subscriptionGroups", "consumerOffsets", "rdb", "metadata", "deletedTopics", "replica",
    )
)  # fmt: skip
# The next step, for the answer to a wrong path.
ROOT_WANTED = "give the broker's storePathRootDir, the directory that holds commitlog/"
LOG_WANTED = "give the directory that holds commitlog/"

_START_MAX = 2**62  # so that the end of a file fits 64 bits as well

# Java: MixAll (prefixes) and TopicValidator (the rest), read in 5.3.
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"
REPLY_SUFFIX = "_REPLY_TOPIC"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
# Since RocketMQ 5.4, with transRocksDBEnable and without transWriteOriginTransHalfEnable.
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
HALF_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC)
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_CHECK_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
AUTO_CREATE_TOPIC = "TBW102"
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"

SYSTEM_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        TRACE_TOPIC,
        TRANSACTION_CHECK_TOPIC,
        AUTO_CREATE_TOPIC,
        BENCHMARK_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
    )
)
# Java: TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET.
NOT_SENDABLE_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        TRANSACTION_CHECK_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    )
)
# Topics that a broker makes beside those of users: retries, dead letters, light queues, and its own bookkeeping.
SYSTEM_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX, SYSTEM_PREFIX, "RMQ_SYS_")


def parse_start(name: str) -> int | None:
    """The start byte offset that a file name of 20 digits says; None for any other name and beyond 2**62."""
    if not _START.fullmatch(name):
        return None
    start = int(name)
    return start if start <= _START_MAX else None


def format_start(start: int) -> str:
    """The file name of a file that starts at byte `start`.  Raises ValueError outside 0 … 2**63 - 1."""
    if not 0 <= start <= I64_MAX:
        raise ValueError(f"a file cannot start at {start}")
    return f"{start:020d}"


def parse_index_name(name: str) -> int | None:
    """The creation time that an index file name says as one number: digits yyyyMMddHHmmssSSS, the broker's time zone.

    It says nothing about the order of the files (`index.log_order`).  None for a name that is not 17 digits.
    """
    return int(name) if _INDEX.fullmatch(name) else None


def parse_queue_id(name: str) -> int | None:
    """The queue id that a directory name says; None unless it is its digits, no zero in front, and at most 2**31 - 1.

    RocketMQ reads 00 as queue 0, too, and then looks for its files in the directory 0.
    """
    if not _QUEUE_ID.fullmatch(name):
        return None
    queue_id = int(name)
    return queue_id if queue_id <= I32_MAX else None


def is_root_file(name: str) -> bool:
    """Whether a file of this name at the root of a store is RocketMQ's or this engine's."""
    return _ROOT_FILE.fullmatch(name) is not None


def is_config_name(name: str) -> bool:
    """Whether RocketMQ or this engine keeps something of this name in config/, its .bak and .tmp as well."""
    return name.partition(".")[0] in _CONFIG_FILES


def is_directory_name(topic: str) -> bool:
    """Whether brokers may have stored the topic, as it can have a directory of queues: no path, at most 255 bytes.

    Readers, recovery and replicas go by this.  Brokers make topics of their own that no client may name: retry topics
    V2 (`%RETRY%group+topic`), light queues of lite topics (`%LMQ%$parent$lite`) and of MQTT.
    """
    is_path = any(mark in topic for mark in "/\0") or topic in {"", ".", ".."}
    return not is_path and len(topic.encode("utf-8", "surrogatepass")) <= _DIRECTORY_SIZE_MAX


def is_topic_name(name: str) -> bool:
    """True for a name that a client may send to: letters, digits, % | _ -, at most 255 of them.

    Clients are held to 127; retry and dead-letter topics (group name plus prefix) go beyond.
    """
    return _TOPIC.fullmatch(name) is not None


def is_bookkeeping_topic(topic: str) -> bool:
    """True for topics that a store or broker keeps for itself, which nobody may delete (Java:
    TopicValidator.isSystemTopic).
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_topic(topic: str) -> bool:
    """True for topics that brokers create themselves: bookkeeping, retries, dead letters, light queues, replies.

    Wider than Java's TopicValidator.isSystemTopic, which knows nothing of %RETRY%, %DLQ%, %LMQ% and
    <cluster>_REPLY_TOPIC.  The topics named after the cluster and the broker cannot be told from a user's by name.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES) or topic.endswith(REPLY_SUFFIX)


def lite_parent(topic: str) -> str | None:
    """The topic to which a lite topic `%LMQ%$PARENT$LITE` belongs; None for another (Java: LiteUtil.getParentTopic)."""
    prefix, *rest = topic.split("$")
    return rest[0] if prefix == LMQ_PREFIX and len(rest) == 2 and all(rest) else None


def is_light_queue(topic: str) -> bool:
    """Whether a queue of this name takes entries of other topics' records (LMQ)."""
    return topic.startswith(LMQ_PREFIX)
