"""The contents of one store directory, frozen when it is opened: files, queues with bounds, where the log ends, what is
torn.

Everything here follows RocketMQ's own start-up (docs/recovery.md), on paper only: nothing is written.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rmqstore.directory import config_files
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import BATCH, SIMPLE, QueueFiles
from rmqstore.errors import Corrupt, DataLost
from rmqstore.files.disk import ReadableDisk, StoredFile, join, read_part, read_small, reason_of
from rmqstore.formats import broker_json, message
from rmqstore.formats.checkpoint import Checkpoint
from rmqstore.formats.deleted_topics import DeletedBefore
from rmqstore.formats.inner_batch import EVERY_TOPIC, NO_TOPIC, OwnBases
from rmqstore.formats.names import CONFIG_ROOM, NOWHERE, REPLICA_FILE, QueueKey
from rmqstore.formats.record_chain import NO_END
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.split import Span, Split
from rmqstore.snapshot.survey.ledger_extent import LedgerExtent

_RECOVERED_FILES = 3
# The name of a store that tells none; it may be anybody's.
NAMELESS = "default"
# The topic that a broker of 5.x makes for its own name.
_SYNC_MEMBER = re.compile(rb"""(["'])rmq_sys_SYNC_BROKER_MEMBER_(.+?)\1""")
_SYNC_MEMBER_NAME = re.compile("rmq_sys_SYNC_BROKER_MEMBER_(.+)")


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that is not as it should be: byte `position` of the file `path`, byte `offset` of the log.

    `topic` is the record's where it can still be read.  `is_reached`: entries lead to it, so that a scan meets it.
    """

    path: str
    position: int
    reason: str
    offset: int
    topic: str | None = None
    is_reached: bool = True


@dataclass(frozen=True, slots=True)
class QueueExtent:
    """One queue as it can be read: queue offsets [min_offset, max_offset), the files' entries good up to slot
    `entry_end`.

    `gap` is the range of queue offsets of which some or all are found only by walking the log from the store's
    `walk_from`.  `mean_size` is that of its entries' records in bytes where the survey has read all of them, else 0.
    """

    files: QueueFiles
    min_offset: int
    max_offset: int
    entry_start: int
    entry_end: int
    gap: tuple[int, int] | None
    gap_bytes: int = 0
    mean_size: float = 0.0

    @property
    def key(self) -> QueueKey:
        return self.files.topic, self.files.queue_id

    def span(self, start: int, end: int) -> Span:
        """Some of its queue offsets."""
        return Span(*self.key, self.files.kind, start, end)


@dataclass(frozen=True, slots=True)
class StoreExtent:
    """One store directory at the moment of opening, and the disk that all of it is read from.

    `other_names`: it may be the store of one of these brokers as well, see ToldName.
    `light_from`: as of Stretch.
    `database`: where `queue_layout` is "RocksDB", the disk that the entries of queues are read from; without it the log
    alone tells of them.
    `is_partial`: only the queues of some topics are here, and damage and the like as far as it concerns them.
    """

    disk: ReadableDisk = field(compare=False, repr=False)
    path: str
    broker_name: str
    log_files: tuple[StoredFile, ...]
    queues: Mapping[QueueKey, QueueExtent]
    version_line: str
    checkpoint: Checkpoint | None
    abort_present: bool
    lock_held: bool
    log_end: int
    walk_from: int
    crc_from: int
    damage: tuple[Damage, ...] = field(default=())
    tail: Damage | None = None
    queue_layout: str = "file"
    extra_logs: tuple[str, ...] = ()
    deleted_before: DeletedBefore = field(default_factory=dict)
    ledger: LedgerExtent | None = None
    includes_uncommitted: bool = False
    access: Access = "auto"
    is_partial: bool = False
    other_names: tuple[str, ...] = ()
    light_from: int = NOWHERE
    database: ReadableDisk | None = field(default=None, compare=False, repr=False)

    @property
    def queue_disk(self) -> ReadableDisk:
        """The disk that queue files are read from."""
        return self.disk if self.database is None else self.database

    @property
    def has_entries(self) -> bool:
        """Whether queues have entries that can be read; else the log alone tells of their messages."""
        return self.queue_layout == "file" or self.database is not None

    @property
    def is_live(self) -> bool:
        """Whether somebody may be writing: the lock is held, or the last stop was not clean."""
        return self.lock_held or self.abort_present

    @property
    def was_killed(self) -> bool:
        """Whether the last stop was not clean, and nobody has the store open."""
        return self.abort_present and not self.lock_held

    @property
    def is_bare_node(self) -> bool:
        """Whether it is no store but a DLedger node's directory by itself."""
        return self.ledger is not None and self.ledger.node.directory == self.path

    @property
    def log_start(self) -> int:
        """The first offset of the commitlog; 0 without files."""
        return self.log_files[0].start if self.log_files else 0

    @property
    def own_bases(self) -> OwnBases:
        """As of Stretch: RocketMQ writes no INNER_BASE with queues in RocksDB, nor in DLedger mode."""
        if self.queue_layout != "file":
            return EVERY_TOPIC
        return NO_TOPIC if self.ledger is None else batch_topics(queue.files for queue in self.queues.values())

    @property
    def torn_at(self) -> int:
        """Where the record stands that lacks its end though a queue entry leads there; NOWHERE without."""
        return next((one.offset for one in self.damage if one.reason == NO_END), NOWHERE)

    @property
    def log_holes(self) -> list[tuple[int, int]]:
        """The parts of the commitlog, [first, end), that no file holds, between files that do: their messages are gone.

        Files are made one after the other and deleted from the front on, so that a hole is never sound.
        """
        pairs = itertools.pairwise(self.log_files)
        return [(before.end, after.start) for before, after in pairs if before.end < after.start]

    @property
    def maps_index(self) -> bool:
        """Whether index files are mapped: nobody cuts one short, it is as long as it will be when it is made."""
        return self.access != "pread"

    def opened_by(self, access: Access) -> "StoreExtent":
        """The same store, to be read in another way; auto: as it was opened."""
        return self if access in ("auto", self.access) else replace(self, access=access)

    def view(self, access: Access) -> LogView:
        """A reader of the log up to its end.  `access`: mmap all files, pread all, or auto: as the store was opened,
        and where that is auto too, pread the one being written.
        """
        below = mapped_below(self.log_files, self.log_end, self.is_live, self.access if access == "auto" else access)
        view = LogView(self.disk, self.log_files, below, self.log_end, self.deleted_before, own_bases=self.own_bases)
        view.light_from = self.light_from
        return view

    def split(
        self, spans: Sequence[Span], log_range: tuple[int, int] | None = None, *, together: bool = False
    ) -> Split:
        """All that a task has to know to read some queue offsets of this store."""
        topics, keys = {span.topic for span in spans}, {span.key for span in spans}
        return Split(
            self.disk, self.queue_disk, self.path, self.broker_name, tuple(spans), self.log_end, self.walk_from,
            self.crc_from, self.is_live, self.has_entries, log_range, self.extra_logs, together,
            tuple((of, end) for of, end in self.deleted_before.items() if of in topics or of in keys),
            tuple(self._known(span) for span in spans) if log_range else (),
            () if self.ledger is None else tuple({span.topic for span in spans if span.kind == BATCH}),
            self.light_from, self.torn_at,
        )  # fmt: skip

    def _known(self, span: Span) -> tuple[int, int]:
        """The queue offsets of a span that the queue's files held; of a batch queue, whose slots are others, none."""
        queue = self.queues[span.key]
        if queue.files.kind != SIMPLE:
            return 0, 0
        low = max(span.start, queue.entry_start)
        return low, max(low, min(span.end, queue.entry_end))


def batch_topics(queues: Iterable[QueueFiles]) -> frozenset[bytes]:
    """The topics that have batch queues."""
    return frozenset(queue.topic.encode() for queue in queues if queue.kind == BATCH)


def mapped_below(files: Sequence[StoredFile], log_end: int, is_live: bool, access: Access) -> int:
    """Offset below which files may be mapped: all but the newest of a store that somebody may be writing."""
    if access == "mmap" or (access == "auto" and not is_live):
        return files[-1].end if files else 0
    if access == "pread":
        return 0
    newest = [file.start for file in files if file.start <= log_end]
    return newest[-1] if newest else 0


def version_line(disk: ReadableDisk, root: str, checkpoint: Checkpoint | None) -> str:
    """ "5.x" or "4.9.x", by what only a 5.x broker leaves: abort.bak, timer files, compaction/, a confirm offset."""
    marks = ("abort.bak", "timerwheel", "timerlog", "compaction", "batchconsumequeue", "config/timercheck")
    if any(disk.exists(join(root, *mark.split("/"))) for mark in marks):
        return "5.x"
    return "5.x" if checkpoint is not None and checkpoint.confirm_offset > 0 else "4.9.x"


class ToldName(NamedTuple):
    """The name of a store's broker, as far as the store tells it; `others` are names that it tells as well, and nothing
    says which one is its own."""

    name: str
    others: tuple[str, ...] = ()


def stored_broker_name(disk: ReadableDisk, root: str) -> ToldName:
    """The broker's name: that of brokerIdentity (controller mode), of the sync topic of 5.x, or "default".

    A table of topics that came from another broker, or is older than the name, has a sync topic of each name.  A
    replica's master has one of them, or the directory; else the first by the alphabet is as good as any.
    Where topics.json does not tell, its .bak may: a crash leaves the one missing or empty, and a stream knows its
    queues by this name.  A broker that keeps its topics in RocksDB alone is told by these.
    """
    if identity := _identity(disk, root):
        return ToldName(identity)
    for file in ("topics.json", "topics.json.bak"):
        topics = (
            read_small(disk, join(root, CONFIG_ROOM, file), broker_json.TEXT_SIZE_MAX, past_directories=True) or b""
        )
        told = sorted({name.decode("utf-8", "replace") for _, name in _SYNC_MEMBER.findall(topics)})
        known = (_masters_name(disk, root), root.rpartition("/")[2]) if len(told) > 1 else ()
        for name in known:
            if name in told:
                return ToldName(name)
        if told:
            return ToldName(told[0], tuple(told[1:]))
    if config_files.databases(disk, root):
        members = (_SYNC_MEMBER_NAME.fullmatch(topic) for topic in config_files.topics(disk, root))
        told = sorted(found[1] for found in members if found is not None)
        return ToldName(told[0], tuple(told[1:])) if told else ToldName(NAMELESS)
    return ToldName(NAMELESS)


def _masters_name(disk: ReadableDisk, root: str) -> str:
    """The name of the master in a replica; empty elsewhere."""
    try:
        data = read_small(disk, join(root, CONFIG_ROOM, REPLICA_FILE), broker_json.TEXT_SIZE_MAX, past_directories=True)
        note = broker_json.parse(data or b"{}")
        name = note.get("brokerName") if isinstance(note, dict) else None
    except Corrupt:
        return ""
    return name if isinstance(name, str) else ""


def _identity(disk: ReadableDisk, root: str) -> str:
    identity = read_small(disk, join(root, "brokerIdentity"), 4096, past_directories=True) or b""
    parts = identity.decode("utf-8", "replace").split("\n")[0].split("#")
    return parts[1] if len(parts) >= 2 else ""


def recovery_start(view: LogView, checkpoint: Checkpoint | None, abort_present: bool) -> int:
    """Where RocketMQ's recovery would begin to read: the third newest file, after a crash as far back as the
    checkpoint says.

    Pre-created files that hold nothing are not counted.
    """
    used = [number for number in range(len(view.files)) if _first_time(view, number) is not None]
    if not used:
        return view.start
    third = used[max(len(used) - _RECOVERED_FILES, 0)]
    if not abort_present:
        return view.files[third].start
    flushed_ms = checkpoint.min_timestamp_ms if checkpoint else 0
    for number in reversed(used):
        first_ms = _first_time(view, number)
        if first_ms is not None and 0 < first_ms <= flushed_ms:
            return view.files[min(number, third)].start
    return view.files[0].start


def _first_time(view: LogView, number: int) -> int | None:
    """storeTimestamp of a file's first record; None for a file that begins with anything else."""
    file = view.files[number]
    try:
        head = read_part(view.disk, file.path, view.framing(file.start).gap, message.STORE_TIME_REACH)
    except OSError as error:  # its owner deleted it
        span = (file.start, file.end)
        raise DataLost("commitlog", span, None, file.path, reason_of(error)) from None
    if len(head) < message.STORE_TIME_REACH or message.HEAD.read(head)["magic"] not in message.MESSAGE_MAGICS:
        return None
    return message.store_time(head)
