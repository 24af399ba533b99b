"""Requests for scans: small frozen values that travel to a Spark worker as they are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rmqstore.core import arguments
from rmqstore.errors import Rejected
from rmqstore.formats.compression import BODY_SIZE_MAX
from rmqstore.formats.wanted_words import key_words, possible_keys, tag_words
from rmqstore.snapshot.columns import DEFAULT_COLUMNS, ENTRY_COLUMNS, property_of, resolve_columns

BODY_BYTES_MAX = BODY_SIZE_MAX
BATCH_ROWS = 16 * 1024
BATCH_BYTES = 8 * 1024 * 1024
# A task costs Spark 50 ms and more, and so many bytes a few hundred: 128 MiB were a quarter slower on two cores.
SPLIT_BYTES = 256 * 1024 * 1024

ScanMode = Literal["auto", "queue", "commitlog"]
OnCorruptRecord = Literal["fail", "skip", "null"]
VerifyCrc = Literal["auto", "always", "never"]
Access = Literal["auto", "mmap", "pread"]
_WORDS: Mapping[str, tuple[str, ...]] = {
    "scan_mode": get_args(ScanMode),
    "on_corrupt_record": get_args(OnCorruptRecord),
    "verify_crc": get_args(VerifyCrc),
    "access": get_args(Access),
}


# The words of a start where a consumer group stands: `group:billing`.
GROUP_PREFIX = "group:"
# Broker name, topic, queue id.
Place = tuple[str, str, int]
# Strings of which one is enough: a text, `a || b`, any collection of strings, or None for any.
AnyOf = str | Iterable[str] | None


def wanted_tags(given: AnyOf) -> tuple[str, ...]:
    """Tags however they are given; the empty tuple for any.  Raises Rejected."""
    return tag_words(given) if isinstance(given, str) else _strings("tags", given)


def wanted_keys(given: AnyOf) -> tuple[str, ...]:
    """Keys and message ids however they are given; the empty tuple for any.  Raises Rejected."""
    return key_words(given) if isinstance(given, str) else possible_keys(_strings("keys", given))


def _strings(name: str, given: object) -> tuple[str, ...]:
    values = () if given is None else tuple(given) if isinstance(given, Iterable) else (given,)
    for value in values:
        if not isinstance(value, str):
            raise Rejected(f"{name}={given!r}: a text such as 'a || b', or a list of strings")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """How rows are made; which rows is the business of a split.

    `tags` are tag strings of which a message must have one (empty: any), `keys` likewise against KEYS, UNIQ_KEY and the
    offset message id; both may be given as a text, `paid || sent`, or as any collection of strings.
    `verify_crc` "auto" checks CRCs (of bodies, and of whole records that have one) where a crash can have torn the log,
    as RocketMQ's recovery does, and there holds TAGS against the hashes in the consume queue, which tells a tear after
    the body.
    Batches end at `batch_rows` rows or about `batch_bytes` bytes of records, whichever comes first, and hold no more
    than `batch_bytes` of bodies once these are decompressed, unless one body alone is larger.
    Raises Rejected for a word or number that makes no sense.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    scan_mode: ScanMode = "auto"
    on_corrupt_record: OnCorruptRecord = "fail"
    fail_on_data_loss: bool = True
    verify_crc: VerifyCrc = "auto"
    decompress: bool = True
    body_bytes_max: int = BODY_BYTES_MAX
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    access: Access = "auto"

    def __post_init__(self) -> None:
        resolve_columns(self.columns)
        object.__setattr__(self, "tags", wanted_tags(self.tags))
        object.__setattr__(self, "keys", wanted_keys(self.keys))
        for field, words in _WORDS.items():
            arguments.word(field, getattr(self, field), words)
        for field in ("body_bytes_max", "batch_rows", "batch_bytes"):
            arguments.integer(field, getattr(self, field), 1)
        for field in ("fail_on_data_loss", "decompress"):
            arguments.flag(field, getattr(self, field))

    @property
    def offset_ids(self) -> dict[str, int]:
        """The keys that have the form of an offset message id, in upper case, and the physical offsets they name."""
        from rmqstore.formats.message_id import offset_of_id  # noqa: PLC0415  for reads by key

        named = ((key.upper(), offset_of_id(key)) for key in self.keys)
        return {key: offset for key, offset in named if offset is not None}

    @property
    def properties(self) -> tuple[bytes, ...]:
        """The properties that are columns of their own, as they are stored."""
        named = map(property_of, self.columns)
        return tuple(name.encode() for name in named if name is not None)

    @property
    def needs_entries_only(self) -> bool:
        """Whether the queue entries answer everything, so that the commitlog stays closed."""
        return ENTRY_COLUMNS.issuperset(self.columns) and not self.tags and not self.keys

    @property
    def unpacks_bodies(self) -> bool:
        """Whether compressed bodies have to be decompressed: for themselves, or to tell which of them cannot be."""
        return self.decompress and not {"body", "corruptReason"}.isdisjoint(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBudget:
    """How work is cut: at most `max_records` (0: any) and `max_bytes` a split, at least `min_partitions` splits;
    `merge` puts small queues together into one split."""

    min_partitions: int = 0
    max_records: int = 0
    max_bytes: int = SPLIT_BYTES
    merge: bool = True

    def __post_init__(self) -> None:
        if self.min_partitions < 0 or self.max_records < 0 or self.max_bytes < 1:
            raise Rejected("min_partitions and max_records: 0 or more; max_bytes: at least 1")


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Queue offsets [start, end) of one queue of one store."""

    broker: str
    topic: str
    queue_id: int
    start: int
    end: int


# The tables beside the messages.
TableName = Literal["queues", "topics", "groups", "files", "transactions", "delayed", "entries"]
