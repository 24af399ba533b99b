"""The configuration of a store: read once, checked as a whole.  Accepts a broker's own configuration file."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from rmqstore.core.annotations import plain_values
from rmqstore.core.arguments import shown
from rmqstore.core.ledger_config import LedgerConfig, ledger_of_broker
from rmqstore.errors import NotAStore, Rejected
from rmqstore.files.reading import StorePath, canonical_path, read_small_file
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.delay_levels import DEFAULT_LEVELS, parse_levels
from rmqstore.formats.host import encode_host, parse_place
from rmqstore.formats.index import DEFAULT_ITEM_COUNT, DEFAULT_SLOT_COUNT
from rmqstore.formats.java_text import java_properties
from rmqstore.formats.names import LOG_ROOM
from rmqstore.formats.queue_entry import QUEUE_ENTRY

MIB = 1024 * 1024

_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}")
# Since these releases of RocketMQ the index has tags as well, and the checkpoint tells how far queues are durable.
TAGS_INDEXED_SINCE, QUEUES_TOLD_SINCE = (5, 4), (5, 5)

Flush = Literal["SYNC", "ASYNC"]
OnMiddleDamage = Literal["refuse", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HaTls:
    """Mutual TLS on the replication link of a pair of ours; RocketMQ's own brokers have none there.

    Paths of PEM files, the same three on both sides: the own certificate (with what leads from it to the authority, if
    anything does), its private key, which has no passphrase, and the authority that the peer's certificate must be of.
    They are read when a master is opened, and by a slave for each connection.
    """

    cert_file: StorePath  #: the own certificate, with what leads to the authority
    key_file: StorePath  #: its private key, without a passphrase
    ca_file: StorePath  #: the authority that the peer's certificate must be of


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """A store that slaves may attach to, RocketMQ's or our own; sizes are bytes, times milliseconds.

    `listen` is host:port (port 0: any that is free); the protocol has neither passwords nor encryption, so another host
    than loopback wants `tls`, which only slaves of ours have, or `is_open_to_network`.  A put waits for
    `in_sync_replicas` copies, its own included (RocketMQ 5: inSyncReplicas), at the most `slave_timeout_ms`; a slave
    that lags by `slave_fallen_behind_bytes` is none to wait for.  With fewer than `min_in_sync_replicas` copies nothing
    is put at all.  `whole_history`: a new slave gets the log from its first byte on, instead of the newest file only,
    as RocketMQ's masters have it.  Raises Rejected.
    """

    listen: str = "127.0.0.1:10912"  #: host:port; port 0 is any that is free
    is_open_to_network: bool = False  #: whether another host than loopback may do without `tls`
    in_sync_replicas: int = 1  #: copies that a put waits for, its own included
    min_in_sync_replicas: int = 1  #: with fewer copies nothing is put
    slave_timeout_ms: int = 3000  #: how long a put waits for them
    slave_fallen_behind_bytes: int = 256 * MIB  #: a slave that lags so far is none to wait for
    slaves_max: int = 16  #: the most slaves at a time
    whole_history: bool = False  #: whether a new slave gets the log from its first byte on
    tls: HaTls | None = None  #: mutual TLS, which only slaves of ours have

    def __post_init__(self) -> None:
        plain, mistakes = plain_values(self)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        least = {"in_sync_replicas": 1, "min_in_sync_replicas": 1, "slave_timeout_ms": 0, "slaves_max": 1}
        least["slave_fallen_behind_bytes"] = 1
        mistakes += [f"{name}={getattr(self, name)}: at least {low}" for name, low in least.items()
                     if getattr(self, name) < low]  # fmt: skip
        copies_max = self.slaves_max + 1
        mistakes += [f"{name}={getattr(self, name)}: slaves_max={self.slaves_max} makes {copies_max} copies at the most"
                     for name in ("in_sync_replicas", "min_in_sync_replicas")
                     if getattr(self, name) > copies_max > 1]  # fmt: skip
        if not mistakes:
            host, _ = self.place()
            if not self.is_open_to_network and self.tls is None and host not in LOOPBACK:
                mistakes.append(f"listen={self.listen!r}: replication has no passwords and no encryption; another host "
                                "than 127.0.0.1 needs tls, or is_open_to_network=True")  # fmt: skip
        if mistakes:
            raise Rejected("; ".join(mistakes))

    def place(self) -> tuple[str, int]:
        """Host and port of `listen`.  Raises Rejected."""
        return listening_place("listen", self.listen)


LOOPBACK = ("127.0.0.1", "localhost", "::1")


def listening_place(name: str, given: str) -> tuple[str, int]:
    """Host and port of host:port; an IPv6 host in brackets, port 0 for any that is free.  Raises Rejected."""
    place = parse_place(given)
    if place is None:
        raise Rejected(f"{name}={given!r}: expected host:port, as 127.0.0.1:10912 or [::1]:10912")
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Sizes are bytes, times milliseconds; a new store gets the sizes, an existing one keeps those of its files.

    `flush` SYNC: a put returns when its bytes are on the disk; ASYNC: they get there within `flush_interval_ms` or so.
    `pool_buffers` > 0 switches the transient write pool on: puts go to memory, a commit thread writes them to the file,
    and only what is committed can be read.  `on_middle_damage`: what opening does with a log that is damaged in front
    of sound records: refuse, or cut it there as RocketMQ does.  `auto_create_topics`: a topic is made by its first
    message, and gets more queues when a message asks for one that it has not; without, such messages are refused.
    `ha`: slaves may attach.  `dledger`: the commitlog stands in a DLedger log; `log_paths` are then those of an
    ordinary one in front of it, and `read_only_log_paths` of either.
    `release`: since RocketMQ 5.4 the index has tags as well, since 5.5 the checkpoint tells how far queues are durable;
    a store that has these keeps them up, and a new one gets them by `release="5.5"`.
    `retention`: old log files are deleted, and a full disk refuses messages, by themselves; without, only when asked.
    Raises Rejected, with all mistakes in one message.
    """

    log_file_size: int = 64 * MIB  #: bytes of a file of the commitlog
    queue_file_size: int = 1_000_000  #: bytes of a file of a queue: a multiple of 20
    index_slot_count: int = 100_000  #: hash slots of an index file
    index_item_count: int = 400_000  #: keys that an index file holds
    log_paths: tuple[str, ...] = ()  #: directories of the log, in turn, where it is not `commitlog/` below the root
    read_only_log_paths: tuple[str, ...] = ()  #: directories of older files, which are read and deleted, never written
    flush: Flush = "ASYNC"  #: when a put answers: `SYNC` on the disk, `ASYNC` before
    flush_interval_ms: int = 500  #: `ASYNC`: how often the log is synced
    flush_least_pages: int = 4  #: `ASYNC`: pages of 4 KiB that make a sync worth it
    flush_thorough_interval_ms: int = 10_000  #: `ASYNC`: how often it is synced with fewer pages, too
    queue_flush_interval_ms: int = 1000  #: how often queues and index are synced
    sync_flush_timeout_ms: int = 5000  #: `SYNC`: how long a put waits, then `FLUSH_DISK_TIMEOUT`
    commit_interval_ms: int = 200  #: with `pool_buffers`: how often they are written to the file
    pool_buffers: int = 0  #: buffers of the transient write pool; 0: none
    pool_fast_fail: bool = False  #: whether puts are refused at once when no buffer is free
    busy_timeout_ms: int = 1000  #: a put lock held for longer: `OS_PAGE_CACHE_BUSY`
    message_size_max: int = 4 * MIB  #: bytes of the largest body
    store_host: str = "127.0.0.1:10911"  #: the address that records carry
    broker_name: str = "default"  #: the broker's name in messages that are read here
    cluster_name: str = ""  #: the name of its cluster
    index_enabled: bool = True  #: whether keys are indexed
    append_property_crc: bool = False  #: whether a record ends in a CRC of all of it (since RocketMQ 5.2)
    long_topics_as_v2: bool = True  #: whether long topics make records of version 2, as by RocketMQ 5
    check_crc_on_recovery: bool = True  #: whether recovery looks at CRCs
    on_middle_damage: OnMiddleDamage = (
        "refuse"  #: damage in front of sound records: `refuse` the store, or `cut` the log there
    )
    preallocate: bool = True  #: whether the next file is made ahead
    preallocation_timeout_ms: int = 5000  #: how long a put waits for it
    warm_up: bool = False  #: whether a new file is touched page by page
    lock_memory: bool = False  #: whether a new file is kept in memory
    delay_levels: str | None = (
        None  #: the delay levels, the first is 1; `None`: those of a replica's master, or usual ones
    )
    open_files_max: int = 512  #: files that are kept open at a time
    auto_create_topics: bool = True  #: whether a message makes its topic
    default_queue_nums: int = 8  #: queues of a topic that a message makes
    transaction_timeout_ms: int = 6000  #: how long a transaction is open before it is asked after
    transaction_check_max: int = 15  #: how often it is asked after
    transaction_check_interval_ms: int = 30_000  #: how long between two rounds of asking
    retention: bool = False  #: whether old files are deleted by themselves
    delete_when: str = "04"  #: hours of the day at which files go that are old enough: `04;16`
    file_reserved_hours: int = 72  #: hours after which a log file is old enough
    disk_max_used_percent: int = 75  #: a fuller disk: old files go at any hour
    disk_clean_percent: int = 85  #: a fuller disk: files of any age go
    disk_warning_percent: int = 90  #: a fuller disk: messages are refused
    clean_forcibly: bool = True  #: whether files of any age go
    multi_dispatch: bool = False  #: whether messages go to light queues as well
    light_queue_max: int = 20_000  #: the most light queues
    queue_extension: bool = False  #: whether queues have extension files
    extension_file_size: int = MIB  #: bytes of a file of those
    batch_queue_file_size: int = 460_000  #: bytes of a file of a batch queue
    release: str | None = None  #: the RocketMQ whose files it is to leave, as `5.5`; `None`: as they are
    statistics: bool = True  #: whether puts and reads are counted
    ha: HaConfig | None = None  #: slaves may attach
    dledger: LedgerConfig | None = None  #: the commitlog is a DLedger log

    def __post_init__(self) -> None:
        plain, mistakes = plain_values(self)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        mistakes += [f"{name}={getattr(self, name)}: at least {least}" for name, least in _least(self)
                     if getattr(self, name) < least]  # fmt: skip
        if self.queue_file_size % QUEUE_ENTRY.size:
            mistakes.append(f"queue_file_size={self.queue_file_size}: a multiple of {QUEUE_ENTRY.size}")
        if self.pool_buffers == 1:
            mistakes.append("pool_buffers=1: 0, or at least 2, as a new file begins before the old one is committed")
        if self.dledger is not None and self.ha is not None:
            mistakes.append("ha and dledger: the members of a DLedger group have no slaves")
        if self.release is not None and not _RELEASE.fullmatch(self.release):
            mistakes.append(f"release={shown(self.release)}: a release of RocketMQ, as 4.9 or 5.5.1")
        mistakes += wrong_percents(self, _PERCENTS) + wrong_hours("delete_when", self.delete_when)
        for check in (self.delay_ms, self.host_bytes):
            try:
                check()
            except (Rejected, ValueError) as mistake:
                mistakes.append(str(mistake))
        if mistakes:
            raise Rejected("; ".join(mistakes))
        for name in ("log_paths", "read_only_log_paths"):  # RocketMQ's are sets
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))

    @classmethod
    def embedded(cls, **changes: Any) -> Self:
        """Small files, for a store inside a program: 64 MiB of log at a time.  The default for a new store."""
        return cls(**changes)

    @classmethod
    def broker(cls, **changes: Any) -> Self:
        """The file sizes of a broker with default configuration, which then opens the store as it is, and its
        retention: messages older than 72 hours are deleted."""
        sizes = {
            "log_file_size": 1024 * MIB,
            "queue_file_size": 6_000_000,
            "index_slot_count": DEFAULT_SLOT_COUNT,
            "index_item_count": DEFAULT_ITEM_COUNT,
            "extension_file_size": 48 * MIB,
            "batch_queue_file_size": 13_800_000,
            "retention": True,
        }
        return cls(**(sizes | changes))

    @classmethod
    def from_broker_conf(cls, path: StorePath, read: Callable[[StorePath], str] | None = None, **changes: Any) -> Self:
        """The configuration of a broker's `broker.conf`, with Apache's names, units and defaults.

        Names that have nothing to do with storage are passed over, and shares of the disk have Java's bounds.  Raises
        Rejected for a value that makes no sense.
        """
        return cls.broker(**(_from_apache(broker_pairs((read or read_broker_conf)(path))) | changes))

    def is_for(self, release: tuple[int, int]) -> bool:
        """Whether the store's files are to be as by that release of RocketMQ, or a later one."""
        return self.release is not None and tuple(map(int, self.release.split("."))) >= release

    def named_log_paths(self) -> tuple[str, ...]:
        """The directories of the log that are not where the root has them."""
        data_paths = () if self.dledger is None else self.dledger.data_paths
        return (*self.log_paths, *self.read_only_log_paths, *data_paths)

    def log_directories(self, root: str) -> tuple[str, ...]:
        """Where files of the log may lie, those that are only read last."""
        return (*(self.log_paths or (f"{root}/{LOG_ROOM}",)), *self.read_only_log_paths)

    def delay_ms(self) -> tuple[int, ...]:
        """Milliseconds of each delay level; level 1 is the first.  Raises Rejected."""
        try:
            return parse_levels(DEFAULT_LEVELS if self.delay_levels is None else self.delay_levels)
        except ValueError as wrong:
            raise Rejected(f"delay_levels: {wrong}") from None

    def host_bytes(self) -> bytes:
        """`store_host` as records carry it.  Raises ValueError."""
        return encode_host(self.store_host)


def _least(config: StoreConfig) -> Sequence[tuple[str, int]]:
    """The smallest value of each number that has one."""
    numbers = [
        field.name for field in fields(config)
        if field.name.endswith(("_ms", "_pages", "_hours", "_nums"))
        or field.name in ("pool_buffers", "message_size_max")
    ]  # fmt: skip
    return [
        ("log_file_size", 4096), ("queue_file_size", QUEUE_ENTRY.size), ("index_slot_count", 1),
        ("index_item_count", 2), ("open_files_max", 16), *((name, 0) for name in numbers),
    ]  # fmt: skip


_PERCENTS = ("disk_max_used_percent", "disk_clean_percent", "disk_warning_percent")


def wrong_percents(settings: object, names: Iterable[str]) -> list[str]:
    """The mistakes in those attributes of `settings` that are percents."""
    values = {name: getattr(settings, name) for name in names}
    return [f"{name}={shown(value)}: a number of percent" for name, value in values.items() if not 0 <= value <= 100]


def wrong_hours(name: str, text: str) -> list[str]:
    """The mistake in hours of the day as deleteWhen lists them, in one line; none where they are right."""
    pieces = [piece.strip() for piece in text.split(";")]
    if all(not piece or re.fullmatch("0*([01]?[0-9]|2[0-3])", piece) for piece in pieces):
        return []
    return [f"{name}={shown(text)}: hours from 0 to 23, with ; between"]


_TEXT_SIZE_MAX = 1024 * 1024


def read_broker_conf(path: StorePath) -> str:
    """The text of a broker's configuration file.  Raises Rejected."""
    try:
        whole = canonical_path(path)
        data = read_small_file(whole, _TEXT_SIZE_MAX + 1)
    except NotAStore as error:
        raise Rejected(f"{error.path}: {error.reason.partition(';')[0]}; give a broker's configuration file") from None
    if data is None:
        raise Rejected(f"{whole}: no such file; give a broker's configuration file")
    if len(data) > _TEXT_SIZE_MAX:
        raise Rejected(f"{whole}: more than {_TEXT_SIZE_MAX} bytes; give a broker's configuration file")
    return data.decode("iso-8859-1")  # as java.util.Properties


def broker_pairs(text: str) -> dict[str, str]:
    """Names and values of a broker's configuration file, without blanks around them; the last of a name wins."""
    return {name: value.strip() for name, value in java_properties(text).items()}


def _number(text: str) -> int:
    return int(text)


def _within(low: int, high: int) -> Callable[[str], int]:
    return lambda text: min(max(int(text), low), high)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _paths(text: str) -> tuple[str, ...]:
    return tuple(piece for piece in text.split(",") if piece)


def _flush_kind(text: str) -> str:
    return {"SYNC_FLUSH": "SYNC", "ASYNC_FLUSH": "ASYNC"}[text]


def _batch_queue_file_size(text: str) -> int:
    return -(-int(text) // BATCH_QUEUE_ENTRY.size) * BATCH_QUEUE_ENTRY.size


def _queue_file_size(text: str) -> int:
    return -(-int(text) // QUEUE_ENTRY.size) * QUEUE_ENTRY.size


ApacheNames = Mapping[str, tuple[str, Callable[[str], Any]]]

# Apache's name -> ours and how to read its value.
_APACHE: ApacheNames = {
    "mappedFileSizeCommitLog": ("log_file_size", _number),
    "mapedFileSizeCommitLog": ("log_file_size", _number),
    "mappedFileSizeConsumeQueue": ("queue_file_size", _queue_file_size),
    "mapedFileSizeConsumeQueue": ("queue_file_size", _queue_file_size),
    "maxHashSlotNum": ("index_slot_count", _number),
    "maxIndexNum": ("index_item_count", _number),
    "storePathCommitLog": ("log_paths", _paths),
    "readOnlyCommitLogStorePaths": ("read_only_log_paths", _paths),
    "flushDiskType": ("flush", _flush_kind),
    "flushIntervalCommitLog": ("flush_interval_ms", _number),
    "flushCommitLogLeastPages": ("flush_least_pages", _number),
    "flushCommitLogThoroughInterval": ("flush_thorough_interval_ms", _number),
    "flushIntervalConsumeQueue": ("queue_flush_interval_ms", _number),
    "syncFlushTimeout": ("sync_flush_timeout_ms", _number),
    "commitIntervalCommitLog": ("commit_interval_ms", _number),
    "transientStorePoolSize": ("pool_buffers", _number),
    "fastFailIfNoBufferInStorePool": ("pool_fast_fail", _flag),
    "osPageCacheBusyTimeOutMills": ("busy_timeout_ms", _number),
    "maxMessageSize": ("message_size_max", _number),
    "brokerName": ("broker_name", str),
    "brokerClusterName": ("cluster_name", str),
    "messageIndexEnable": ("index_enabled", _flag),
    "enabledAppendPropCRC": ("append_property_crc", _flag),
    "autoMessageVersionOnTopicLen": ("long_topics_as_v2", _flag),
    "checkCRCOnRecover": ("check_crc_on_recovery", _flag),
    "warmMapedFileEnable": ("warm_up", _flag),
    "messageDelayLevel": ("delay_levels", str),
    "autoCreateTopicEnable": ("auto_create_topics", _flag),
    "defaultTopicQueueNums": ("default_queue_nums", _number),
    "transactionTimeOut": ("transaction_timeout_ms", _number),
    "transactionCheckMax": ("transaction_check_max", _number),
    "transactionCheckInterval": ("transaction_check_interval_ms", _number),
    "deleteWhen": ("delete_when", str),
    "fileReservedTime": ("file_reserved_hours", _number),
    "diskMaxUsedSpaceRatio": ("disk_max_used_percent", _within(10, 95)),
    "diskSpaceCleanForciblyRatio": ("disk_clean_percent", _within(30, 85)),
    "diskSpaceWarningLevelRatio": ("disk_warning_percent", _within(35, 90)),
    "cleanFileForciblyEnable": ("clean_forcibly", _flag),
    "enableMultiDispatch": ("multi_dispatch", _flag),
    "maxLmqConsumeQueueNum": ("light_queue_max", _number),
    "enableConsumeQueueExt": ("queue_extension", _flag),
    "mappedFileSizeConsumeQueueExt": ("extension_file_size", _number),
    "mapperFileSizeBatchConsumeQueue": ("batch_queue_file_size", _batch_queue_file_size),
}


def read_values(pairs: Mapping[str, str], names: ApacheNames) -> dict[str, Any]:
    """Those of a broker's settings that have one of `names`, under our own names.  Raises Rejected."""
    values: dict[str, Any] = {}
    mistakes = []
    for name, text in pairs.items():
        if name in names:
            own, read = names[name]
            try:
                values[own] = read(text)
            except (ValueError, KeyError):
                mistakes.append(f"{name}={text!r} cannot be read")
    if mistakes:
        raise Rejected("; ".join(mistakes))
    return values


def _from_apache(pairs: Mapping[str, str]) -> dict[str, Any]:
    values = read_values(pairs, _APACHE) | ledger_of_broker(pairs)
    if pairs.get("transientStorePoolEnable", "false").lower() != "true":
        values.pop("pool_buffers", None)
    else:
        values.setdefault("pool_buffers", 5)
    if "brokerIP1" in pairs or "listenPort" in pairs:
        values["store_host"] = f"{pairs.get('brokerIP1', '127.0.0.1')}:{pairs.get('listenPort', '10911')}"
    return values
