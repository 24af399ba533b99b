"""The plan of a recovery: a value that can be shown, compared, and applied."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rmqstore.core.arguments import time_text
from rmqstore.core.safe_text import SENTENCE_MAX, text_html
from rmqstore.engine.log.derived.known_queues import NOTHING_KNOWN, KnownQueues
from rmqstore.engine.log.plan_text import SHOWN_MAX, camel_case, folded, plain
from rmqstore.engine.log.recovery.first_read import NOTHING_SEEN, Seen
from rmqstore.formats.checkpoint import Checkpoint
from rmqstore.formats.delay_levels import DEFAULT_TABLES, LevelTables
from rmqstore.formats.deleted_topics import Deleted, DeletedTopic, name_of
from rmqstore.formats.framing import Divided, Framing, bare
from rmqstore.records.batch import EntryHeads

if TYPE_CHECKING:
    import pyarrow as pa

_STEP = ("step", "detail")
_NOT_SHOWN = ("seen", "known", "heads", "lowered_ms")


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that goes, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class ResizedFile:
    """A file that was cut short gets its full length back, with zeros."""

    path: str
    old_size: int
    new_size: int


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Messages of one topic that nobody can read afterwards: how many, and the least and the latest of their store
    times in ms."""

    topic: str
    count: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """One consume queue.  `entry_end` is where its entries end now; those below `keep` stay, all go where it is None.

    `begin_offset`: records before that place in the log are not for it.  After the recovery it holds the queue offsets
    [min_offset, next_offset).
    """

    topic: str
    queue_id: int
    directory: str
    entry_end: int
    keep: int | None
    begin_offset: int
    min_offset: int
    next_offset: int
    removed_files: tuple[PlannedFile, ...] = ()
    must_cut: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether it holds nothing afterwards, so that its directory goes as well."""
        return self.keep is None and self.next_offset <= self.min_offset

    @property
    def is_changed(self) -> bool:
        """Whether entries or files of it go."""
        return self.must_cut or bool(self.removed_files)

    @property
    def loses(self) -> bool:
        """Whether entries go that are not written again."""
        return self.next_offset < self.entry_end


@dataclass(frozen=True, slots=True)
class PlannedExtension:
    """The extension files of one queue: units before byte `end` stay, all go where it is None."""

    directory: str
    end: int | None
    must_cut: bool
    removed_files: tuple[PlannedFile, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether units or files of it go."""
        return self.must_cut or bool(self.removed_files)


@dataclass(frozen=True, slots=True)
class QueueSizes:
    """The queues beyond the plain ones: which kinds were found, and bytes of a file of each (0: no file tells).

    `batch_topics` are those that have batch queues.
    """

    multi_dispatch: bool = False
    extension: bool = False
    extension_file_size: int = 0
    batch_file_size: int = 0
    batch_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Everything that a recovery of the store at `root` changes; offsets are of the commitlog, ranges half-open.

    `log_removed` are the log files after the end, newest first, `zeroed` the range after it that is made zero.  Records
    from `dispatch_from` on are dispatched again (None: nothing is).  `index_partial` is a record of whose items only so
    many are in the index files that stay.  Sizes are those of the files, 0 and None where no file tells them.
    `deleted_topics` is what is to be noted of topics that were deleted; `notes_deleted`: something else is, by now.
    `seen` and `known` are what need not be looked at again to carry the plan out; they are not shown.
    `lost` are sound messages that stand after the end and go, by topic; `unqueued` stay in the log and are in no queue,
    as their queue offsets contradict others.
    `lowered_ms`: up to then the checkpoint is to know of messages in queues before these are cut; None: as it does.
    `levels` are the delay levels by which delivery times are told; `indexes_tags`: tags are indexed as well.
    `divider`: from there on records stand in entries of DLedger's, whose heads are `heads` as far as they were read.
    """

    root: str
    is_clean_exit: bool
    log_directories: tuple[str, ...]
    log_file_size: int
    log_start: int
    scan_start: int
    scan_reason: str
    record_count: int
    log_end: int
    end_reason: str
    dropped_from: int | None
    log_resized: tuple[ResizedFile, ...]
    log_removed: tuple[PlannedFile, ...]
    zeroed: tuple[int, int] | None
    queue_file_size: int
    queues: tuple[PlannedQueue, ...]
    empty_directories: tuple[str, ...]
    index_sizes: tuple[int, int] | None
    index_deleted: tuple[PlannedFile, ...]
    index_partial: tuple[int, int] | None
    dispatch_from: int | None
    newest_ms: int
    checkpoint: Checkpoint
    checkpoint_after: Checkpoint
    writes_checkpoint: bool
    warnings: tuple[str, ...] = ()
    batch_queues: tuple[PlannedQueue, ...] = ()
    extensions: tuple[PlannedExtension, ...] = ()
    kinds: QueueSizes = QueueSizes()
    deleted_topics: tuple[tuple[Deleted, DeletedTopic], ...] = ()
    notes_deleted: bool = False
    seen: Seen = field(default=NOTHING_SEEN, compare=False, repr=False)
    known: KnownQueues = field(default=NOTHING_KNOWN, compare=False, repr=False)
    divider: int | None = None
    levels: LevelTables = field(default=DEFAULT_TABLES, compare=False, repr=False)
    indexes_tags: bool = False
    heads: tuple[EntryHeads, ...] = field(default=(), compare=False, repr=False)
    lost: tuple[LostMessages, ...] = ()
    unqueued: tuple[LostMessages, ...] = ()
    lowered_ms: int | None = None

    @property
    def framing(self) -> Callable[[int], Framing]:
        """How records stand in the file of an offset."""
        return bare if self.divider is None else Divided(self.divider)

    @property
    def changes_nothing(self) -> bool:
        """Whether the store is as it should be."""
        return not (
            self.log_resized or self.log_removed or self.zeroed or self.empty_directories or self.index_deleted
            or self.index_partial or self.dispatch_from is not None or self.writes_checkpoint or self.notes_deleted
            or any(queue.is_changed for queue in self.all_queues)
            or any(extension.is_changed for extension in self.extensions)
        )  # fmt: skip

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """The queue offset of the next message of each queue that is there afterwards."""
        return {(queue.topic, queue.queue_id): queue.next_offset for queue in self.all_queues if not queue.is_gone}

    @property
    def all_queues(self) -> tuple[PlannedQueue, ...]:
        """The plain queues and those of whole batches."""
        return (*self.queues, *self.batch_queues)

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values for JSON, names in camel case."""
        values = asdict(replace(self, seen=NOTHING_SEEN, known=NOTHING_KNOWN, deleted_topics=()))
        document = {camel_case(name): plain(value) for name, value in values.items() if name not in _NOT_SHOWN}
        deleted = {name_of(of): plain(asdict(noted)) for of, noted in self.deleted_topics}
        return document | {"deletedTopics": deleted, "changesNothing": self.changes_nothing}

    def to_arrow(self) -> "pa.Table":
        """A row for each line that `lines` has, unfolded: step and detail, both text."""
        import pyarrow as pa  # noqa: PLC0415  a store is opened without Arrow

        columns = zip(*self._facts(), strict=True)
        return pa.table({name: pa.array(column, pa.string()) for name, column in zip(_STEP, columns, strict=True)})

    def lines(self, called: str | None = None) -> list[str]:
        """The plan for people, no line longer than 80 columns unless a path is.  `called`: their name for the store."""
        first, *others = self._facts()
        return [line for fact in ((first[0], called or first[1]), *others) for line in folded(*fact)]

    def __repr__(self) -> str:
        return f"<RecoveryPlan of {self.root!r}, {'nothing to do' if self.changes_nothing else 'changes the store'}>"

    def _repr_html_(self) -> str:
        lines = [text_html(line, SENTENCE_MAX) for line in self.lines()]
        return '<pre style="font-family: monospace">' + "\n".join(lines) + "</pre>"

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "store", self.root
        yield "last exit", "clean" if self.is_clean_exit else "not clean: the file abort is there"
        files = f"files of {self.log_file_size} bytes" if self.log_file_size else "no files"
        yield "commitlog", f"{self.log_start} to {self.log_end}, {files}"
        yield "scan", f"{self.record_count} records from {self.scan_start}: {self.scan_reason}"
        yield "end", f"{self.log_end}: {self.end_reason}"
        if self.lost:
            first = "" if self.dropped_from is None else f", the first at {self.dropped_from}"
            yield from _lost_facts(self.lost, f"sound messages stand after the end{first}, and go")
        if self.unqueued:
            yield from _lost_facts(self.unqueued, "sound messages stay in the log and are in no queue")
        for resized in self.log_resized:
            yield "grow", f"{resized.path} from {resized.old_size} to {resized.new_size} bytes"
        yield from self._removals("remove", self.log_removed)
        if self.zeroed is not None:
            yield "zero", f"{self.zeroed[0]} to {self.zeroed[1]} of the commitlog"
        yield from self._queue_facts()
        yield from self._removals("remove", self.index_deleted)
        if self.index_partial is not None:
            yield "index", f"the keys of the record at {self.index_partial[0]} are completed"
        if self.dispatch_from is not None:
            yield "dispatch", f"{self.dispatch_from} to {self.log_end}, to queues and index"
        yield from self._deleted_facts()
        if self.writes_checkpoint:
            newest_ms = self.checkpoint_after.physic_timestamp_ms
            until = f", with times up to {time_text(newest_ms)}" if newest_ms else ""
            yield "checkpoint", f"written again{until}"
        for warning in self.warnings:
            yield "note", warning.replace(f"{self.root}/", "")
        if self.changes_nothing:
            yield "result", "nothing to do"

    def _deleted_facts(self) -> Iterator[tuple[str, str]]:
        for of, noted in self.deleted_topics[:SHOWN_MAX]:
            yield "deleted", f"{name_of(of)}: its messages before {noted.log_end} of the commitlog are in no queue"
        if len(self.deleted_topics) > SHOWN_MAX:
            yield "deleted", f"{len(self.deleted_topics) - SHOWN_MAX} more topics (--json lists them)"
        if self.notes_deleted:
            yield "deleted", "config/deletedTopics.json is written again"

    def _queue_facts(self) -> Iterator[tuple[str, str]]:
        changed = [queue for queue in self.all_queues if queue.is_changed]
        kept = sum(1 for queue in self.all_queues if not queue.is_gone)
        cut = [queue for queue in changed if queue.loses]
        again = [queue for queue in changed if not queue.loses]
        yield "queues", f"{kept} afterwards; {len(cut)} lose entries, {len(again)} get missing ones or are made again"
        for verb, queues in (("cut", cut), ("rewrite", again)):
            for queue in queues[:SHOWN_MAX]:
                first = queue.next_offset if queue.loses else queue.keep or queue.min_offset
                then = "the queue goes" if queue.is_gone else f"then it ends at {queue.next_offset}"
                entries = f"entries {first} to {queue.entry_end}" if first < queue.entry_end else "all entries"
                yield verb, f"{queue.topic}/{queue.queue_id}: {entries}; {then}"
            if len(queues) > SHOWN_MAX:
                yield verb, f"{len(queues) - SHOWN_MAX} more queues (--json lists them)"
        extensions = [extension for extension in self.extensions if extension.is_changed]
        if extensions:
            yield "extensions", f"those of {len(extensions)} queues are cut after what their entries point at"
        removed = [file for queue in changed for file in queue.removed_files]
        removed += [file for extension in extensions for file in extension.removed_files]
        yield from self._removals("remove", tuple(removed))

    def _removals(self, verb: str, files: tuple[PlannedFile, ...]) -> Iterator[tuple[str, str]]:
        for file in files[:SHOWN_MAX]:
            yield verb, f"{file.path.removeprefix(self.root).lstrip('/')}: {file.reason}"
        if len(files) > SHOWN_MAX:
            yield verb, f"{len(files) - SHOWN_MAX} more files (--json lists them)"


def _lost_facts(lost: tuple[LostMessages, ...], fate: str) -> Iterator[tuple[str, str]]:
    yield "lose", f"{sum(each.count for each in lost)} {fate}"
    for each in lost[:SHOWN_MAX]:
        yield "lose", f"{each.topic}: {each.count}, stored {time_text(each.first_ms)} to {time_text(each.last_ms)}"
    if len(lost) > SHOWN_MAX:
        yield "lose", f"those of {len(lost) - SHOWN_MAX} more topics (--json lists them)"
