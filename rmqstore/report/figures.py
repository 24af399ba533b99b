"""The figures of a report: plain values, of which the page is made."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.report.expiry import FileOutlook, Level, LogGrowth
from rmqstore.report.sizes import SizeSummary
from rmqstore.report.traffic import TimeBins, TrafficFigures
from rmqstore.snapshot.finding import Finding
from rmqstore.snapshot.request import TableName

# A part of the report that may be missing, with the reason instead.
Part = TableName | Literal["traffic", "damage"]


class TopicFigures(NamedTuple):
    """A topic on one broker, as `inspect --json` counts it; `sizes` where its messages were read."""

    broker: str
    topic: str
    is_system: bool
    perm: int | None
    queue_count: int
    message_count: int
    sizes: SizeSummary | None
    oldest_ms: int | None
    newest_ms: int | None


class GroupFigures(NamedTuple):
    """How far a consumer group is behind in a topic: messages that the store holds and it has not consumed, as
    `inspect --json` counts them, and the time from the oldest of these to the newest message, None where unknown.
    """

    broker: str
    group: str
    topic: str
    queue_count: int
    backlog: int
    lag_ms: int | None


class DelayedTopic(NamedTuple):
    """Messages that wait for one topic in one way: `level` (delay levels) or `timer`."""

    broker: str
    kind: str
    topic: str | None
    message_count: int
    due_count: int
    first_ms: int | None
    last_ms: int | None


class DelayedMessage(NamedTuple):
    """One of the next messages that are to be delivered."""

    broker: str
    topic: str | None
    message_id: str | None
    stored_ms: int | None
    deliver_ms: int | None


class TransactionFigures(NamedTuple):
    """Transactions of one topic in one state."""

    broker: str
    topic: str | None
    state: str
    transaction_count: int
    oldest_ms: int | None
    newest_ms: int | None


class PendingTransaction(NamedTuple):
    """A transaction that nobody has decided yet."""

    broker: str
    topic: str | None
    transaction_id: str | None
    producer_group: str | None
    prepared_ms: int | None
    check_count: int | None


class FileKind(NamedTuple):
    """Files of one kind together, in bytes."""

    broker: str
    kind: str
    file_count: int
    size: int
    used: int


class DiskFigures(NamedTuple):
    """The disk that holds a store's log: how full, 0 to 1, -1 where unknown, and the bytes that are free."""

    used_ratio: float
    free_bytes: int


class DamageFigures(NamedTuple):
    """All that was found in one store, counted; of the findings the first ones."""

    damage_count: int
    note_count: int
    findings: tuple[Finding, ...]


class Missing(NamedTuple):
    """A part that could not be read of one store, and why."""

    broker: str
    part: Part
    reason: str


class DelayedFigures(NamedTuple):
    """Messages that wait: by topic, the next ones, and how many become due in each of `bins`."""

    topics: tuple[DelayedTopic, ...] = ()
    soonest: tuple[DelayedMessage, ...] = ()
    bins: TimeBins | None = None
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """One store: what it is, its commitlog files with their outlook, its disk.  `damage` is None where not checked."""

    path: str
    broker: str
    version_line: str
    lock_held: bool
    abort_present: bool
    queue_layout: str
    log_start: int
    log_end: int
    log_files: tuple[FileOutlook, ...]
    growth: LogGrowth | None
    levels: tuple[Level, ...]
    disk: DiskFigures
    damage: DamageFigures | None


@dataclass(frozen=True, slots=True)
class Figures:
    """A whole report, made at `made_ms` by the program `made_by`; rows say of which broker they are.

    `traffic` is None where it was not read, or there is none; `is_read` and `is_checked`: whether that was wished.
    Files are kept as `policy` says.
    """

    title: str
    made_ms: int
    made_by: str
    policy: RetentionPolicy
    is_read: bool
    is_checked: bool
    stores: tuple[StoreFigures, ...]
    topics: tuple[TopicFigures, ...]
    groups: tuple[GroupFigures, ...]
    traffic: TrafficFigures | None
    delayed: DelayedFigures
    transactions: tuple[TransactionFigures, ...]
    pending: tuple[PendingTransaction, ...]
    file_kinds: tuple[FileKind, ...]
    missing: tuple[Missing, ...]
