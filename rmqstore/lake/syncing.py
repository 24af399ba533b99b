"""Topics of stores into a table, each message once: what is there now, or on and on."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.core import arguments
from rmqstore.core.locks import Bell
from rmqstore.errors import DataLost, NotAStore, Rejected, StoreChanging
from rmqstore.files.reading import LOCAL
from rmqstore.lake.parquet_files import ParquetFiles
from rmqstore.lake.places import require_apart
from rmqstore.lake.sink import Committed, DataFile, Overtaken, Standing, TableFailed, TableSink
from rmqstore.lake.table_columns import REASON
from rmqstore.snapshot import Snapshot, open_snapshot
from rmqstore.snapshot.columns import resolve_columns
from rmqstore.snapshot.losses import LostBeforeRead, OtherLogThanRead, told_as
from rmqstore.snapshot.plan.selection import Wanted, WantedTime
from rmqstore.snapshot.request import Place, ScanRequest
from rmqstore.snapshot.store_paths import Paths
from rmqstore.snapshot.stream.following import Beginning, FollowedBatch, Following, Patience
from rmqstore.snapshot.stream.offsets import BEHIND, MARKS, SINCE, Offsets, note_in, offset_json, offsets_in
from rmqstore.snapshot.stream.subscription import StreamSelection

# --- Losses of a store, told of the table that it goes into.


class LostToTable(LostBeforeRead):
    """Messages that were gone before they came into the table."""

    next_step = "--skip-lost continues with the remaining messages, and a new table begins again"


class OtherLogThanInTable(OtherLogThanRead):
    """A store, or a topic, that is another one than the table has, or that lost messages which the table has."""

    done = "went into the table"
    next_step = "name another table, or restore the store that was read"


def told_of_table(lost: DataLost) -> DataLost:
    """The same in a line that names the next step of a sync."""
    return told_as(lost, LostToTable, OtherLogThanInTable)


# ---

# --- Offsets of a table that holds more than one run reads: other topics, and stores of other brokers.

_NOTES = (MARKS, SINCE, BEHIND)


@dataclass(frozen=True)
class Scope:
    """The part of a table that a run reads: the queues of a selection in the stores of some brokers."""

    selection: StreamSelection
    brokers: frozenset[str]

    def own(self, noted: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a table's offsets that the run goes on from."""
        return _where(noted, self._covers)

    def carried(self, noted: Mapping[str, Any] | None, reached: Mapping[str, Any]) -> dict[str, Any]:
        """The offsets of the table after the run reached `reached`: all else stays as it was."""
        if noted is None:
            return offset_json(offsets_in(reached), {name: note_in(reached, name) for name in _NOTES})
        kept = _where(noted, lambda place: not self._covers(place))
        notes = {name: note_in(kept, name) | note_in(reached, name) for name in _NOTES}
        return offset_json(offsets_in(kept) | offsets_in(reached), notes)

    def knows(self, noted: Mapping[str, Any]) -> bool:
        """Whether the offsets are of any of the brokers, or of none at all."""
        known = brokers_of(noted)
        return not known or bool(known & self.brokers)

    def _covers(self, place: Place) -> bool:
        return place[0] in self.brokers and self.selection.covers(place)


def brokers_of(noted: Mapping[str, Any]) -> set[str]:
    """The brokers that offsets are of."""
    return {place[0] for place in offsets_in(noted)}


def require_offsets(table: str, noted: Mapping[str, Any]) -> None:
    """Raises Rejected for what is no offset JSON."""
    try:
        offsets_in(noted)
        for name in _NOTES:
            note_in(noted, name)
    except Rejected:
        raise Rejected(f"{table}: its offsets are not those of a sync; name a new table, which is created") from None


def _where(noted: Mapping[str, Any], holds: Callable[[Place], bool]) -> dict[str, Any]:
    def part(offsets: Offsets) -> Offsets:
        return {place: offset for place, offset in offsets.items() if holds(place)}

    return offset_json(part(offsets_in(noted)), {name: part(note_in(noted, name)) for name in _NOTES})


# ---

# Seconds without messages after which a look has nothing; not 0, which would end for good at the present ends.
_MOMENT_S = 0.001
_PAUSE_S = 0.2
# How often in a row a commit may be overtaken by writers of other rows, and the first wait after that.
_OVERTAKEN_MAX = 12
_OVERTAKEN_WAIT_S = 0.05
# While nothing comes the table is looked at after so long, at the soonest; and offsets that others have committed upon
# are committed once more, before snapshots and logs that hold them expire.
_LOOK_S = 60.0
_CARRY_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """When rows are committed: once so many came (0: any number), so many bytes of them as Arrow holds them, or after
    so many seconds since the first of them came; `target_mib`: about the size of a file."""

    rows: int = 0
    mib: int = 1024
    seconds: float = 60.0
    target_mib: int = 128

    def __post_init__(self) -> None:
        arguments.integer("rows", self.rows, 0)
        arguments.integer("mib", self.mib, 1)
        arguments.integer("target_mib", self.target_mib, 1)
        arguments.seconds("seconds", self.seconds)

    @property
    def bytes(self) -> int:
        """`mib` in bytes."""
        return self.mib * 2**20

    @property
    def target_bytes(self) -> int:
        """`target_mib` in bytes."""
        return self.target_mib * 2**20


class SyncTotals(NamedTuple):
    """The results of a run.  `skipped`: messages that were gone before they were read; `damaged`: records that could
    not be read, of which the table, or the file of dead letters, has the place and the reason."""

    rows: int = 0
    commits: int = 0
    skipped: int = 0
    damaged: int = 0


# Is told of each batch of damaged records before the rest is committed; the table does not get them then.
DeadLetters = Callable[[pa.RecordBatch], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """The messages that go into a table, and how they do.

    Without `fail_on_data_loss` messages that were deleted before they were read are passed over; another log than was
    read is refused all the same.  `start`, `start_time` as `Snapshot.follow` takes them: for a table without offsets,
    else queues go on from those that it has, and new ones from their beginning.  `adds_brokers`: also stores of brokers
    none of which the table knows; they begin at `start`.  RocketMQ's own topics, retries and dead letters among them,
    are meant by name, and otherwise with `include_system_topics`.
    """

    topics: Sequence[str] | None = None
    pattern: str | None = None
    include_system_topics: bool = False
    start: Wanted = "earliest"
    start_time: WantedTime | None = None
    fail_on_data_loss: bool = True
    adds_brokers: bool = False
    steps: Steps = Steps()
    dead_letters: DeadLetters | None = None

    @property
    def selection(self) -> StreamSelection:
        """The queues that are meant."""
        topics = None if self.topics is None else tuple(self.topics)
        return StreamSelection(topics, self.pattern, None, self.include_system_topics)

    @property
    def begins_later(self) -> bool:
        """Whether a new table begins elsewhere than at the first message that there is."""
        return self.start != "earliest" or self.start_time is not None


class SyncListener:
    """Is told of a run as it goes; does nothing."""

    def commit(self, done: Committed) -> None:
        """Rows were committed."""

    def wait(self, error: Exception) -> None:
        """The stores are not there just now, and are waited for."""

    def progress(self, waiting: int, read: int) -> None:
        """So many of the messages that were waiting, as far as that is known, are read."""


class Sync:
    """One run after another of the same stores into the same table.

    All that a run knows stands in the table: whatever exception ends it, the next one, of any process, goes on from
    there.  One thread at a time; `stop` may be called by any.
    """

    def __init__(
        self, paths: Paths, table: TableSink, request: SyncRequest | None = None, listener: SyncListener | None = None
    ) -> None:
        self.paths, self.table, self.request = paths, table, request or SyncRequest()
        self.listener = listener or SyncListener()
        self._bell, self.is_over = Bell(), False
        self._following: Following | None = None
        self.totals = SyncTotals()

    def stop(self) -> None:
        """Ends a run soon, after it has committed what it holds; any thread, also a signal's handler."""
        self.is_over = True
        following = self._following
        if following is not None:
            following.stop()
        self._bell.ring()

    def run(self, *, follows: bool = False) -> SyncTotals:
        """Takes what is there now, or with `follows` also what comes, until `stop`; returns what was done.

        Raises as `Snapshot.follow` and TableSink; what was committed before stays, and is in `totals`.
        """
        self.totals = SyncTotals()
        while True:
            try:
                self._one_run(follows=follows)
            except Overtaken:  # by another sync, which took some of these rows, or by a roll-back
                continue
            except DataLost as lost:
                raise told_of_table(lost) from lost
            return self.totals

    def _one_run(self, *, follows: bool) -> None:
        files = ParquetFiles(self.table, self.request.steps.target_bytes)
        try:
            run = _Run(self, files, follows=follows)
            self._following = run.following
            if self.is_over:
                run.following.stop()
            try:
                run.go()
            finally:
                self.totals = self.totals._replace(skipped=self.totals.skipped + run.following.skipped_count)
        finally:
            files.abandon()
            self._following = None

    def follow(self, after: Mapping[str, Any] | None, wait_s: float) -> Following:
        """The messages that come after offsets, or from where a new table begins."""
        asked = self.request
        request = ScanRequest(
            columns=resolve_columns(self.table.columns.asked), on_corrupt_record="null",
            fail_on_data_loss=asked.fail_on_data_loss,
        )  # fmt: skip
        beginning = Beginning(
            start=asked.start, start_time=asked.start_time, after=after, requires_same_logs=True
        )  # fmt: skip
        return Following(self.paths, asked.selection, beginning, request, Patience(wait_s=wait_s), LOCAL)

    def wait(self, seconds: float) -> None:
        """Waits, or until it is stopped."""
        if not self.is_over:
            self._bell.wait(seconds)

    def without_damaged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for the table, once the others are where dead letters go."""
        if self.request.dead_letters is None:
            return rows
        reasons = rows.column(REASON)
        if reasons.null_count == rows.num_rows:
            return rows
        self.request.dead_letters(rows.filter(reasons.is_valid()))
        return rows.filter(pc.is_null(reasons))

    def committed(self, rows: int, damaged: int, files: Sequence[DataFile]) -> None:
        """Counts a commit."""
        totals = self.totals
        self.totals = totals._replace(
            rows=totals.rows + rows, commits=totals.commits + 1, damaged=totals.damaged + damaged
        )
        self.listener.commit(Committed(rows, sum(file.size for file in files), len(files)))


class _Run:
    """From one standing of the table on, for as long as nobody else moves its offsets."""

    def __init__(self, sync: Sync, files: ParquetFiles, *, follows: bool) -> None:
        self._sync, self._table, self._files, self._follows = sync, sync.table, files, follows
        standing = self._table.look()
        snapshot = open_snapshot(sync.paths)
        self._scope = Scope(sync.request.selection, frozenset(store.broker_name for store in snapshot.stores))
        self._stores = [store.path for store in snapshot.stores]
        self._noted, self._token = standing.offsets, standing.token
        after = None if self._noted is None else self._after(self._noted)
        self._require_topics(snapshot, after)
        self.following = sync.follow(after, _MOMENT_S if follows else 0)
        self._must_note = sync.request.begins_later if after is None else not standing.is_newest
        self._waiting, self._read, self._damaged = _waiting(snapshot, self._scope, self.following.offsets), 0, 0
        self._held_since_s: float | None = None
        self._committed_s = self._looked_s = time.monotonic()

    def _require_topics(self, snapshot: Snapshot, after: Mapping[str, Any] | None) -> None:
        """Raises Rejected where a pattern, which may be misspelt, fits no topic that there is or was."""
        pattern = self._sync.request.pattern
        if pattern is None or self._follows or offsets_in(after) or self._scope.selection.queues(snapshot):
            return
        hint = (
            "" if self._sync.request.include_system_topics else "; RocketMQ's own are meant with include_system_topics"
        )
        raise Rejected(f"no topic of {', '.join(self._stores)} fits {pattern!r}{hint}")

    def _after(self, noted: Mapping[str, Any]) -> dict[str, Any] | None:
        """Where to go on from; None for a new broker."""
        require_offsets(self._table.name, noted)
        if self._scope.knows(noted):
            return self._scope.own(noted)
        if not self._sync.request.adds_brokers:
            known, now = ", ".join(sorted(brokers_of(noted))), ", ".join(sorted(self._scope.brokers))
            raise Rejected(
                f"{self._table.name}: has messages of {known}, but this store is of {now}; name the store as "
                f"before, {known.split(', ')[0]}=PATH, if it is the same, or add another broker's with --new-broker"
            )
        return None

    def go(self) -> None:
        """Until there is no more, or the end of the sync."""
        self._require_apart()
        self._table.create()
        self._require_apart()
        if self._must_note and self._noted is None:
            self._commit()  # else what comes until the first commit would be passed over by whoever begins again
        while True:
            batch = self._next()
            if batch is not None:
                self._take(batch)
            if self._is_due():
                self._commit()
            if self._sync.is_over or (batch is None and not self._follows):
                break
            if batch is None:
                self._idle()
        if self._files.row_count or self._damaged or self._must_note or self._offsets != self._noted:
            self._commit()

    def _require_apart(self) -> None:
        if self._table.location is not None:
            require_apart(self._table.name, self._table.location, self._stores)

    @property
    def _offsets(self) -> dict[str, Any]:
        return self._scope.carried(self._noted, self.following.offsets)

    def _next(self) -> FollowedBatch | None:
        try:
            return next(self.following, None)
        except (NotAStore, StoreChanging) as error:
            if not self._follows:
                raise
            self._sync.listener.wait(error)
            return None

    def _take(self, batch: FollowedBatch) -> None:
        rows = batch.rows
        if not rows.num_rows:
            return
        if self._held_since_s is None:
            self._held_since_s = time.monotonic()
        self._damaged += rows.num_rows - rows.column(REASON).null_count
        self._files.add(self._table.columns.made(self._sync.without_damaged(rows)))
        self._read += rows.num_rows
        self._sync.listener.progress(self._waiting, self._read)

    def _is_due(self) -> bool:
        if self._held_since_s is None:
            return False
        steps, files = self._sync.request.steps, self._files
        is_full = 0 < steps.rows <= files.row_count or files.row_bytes >= steps.bytes
        return is_full or time.monotonic() - self._held_since_s >= steps.seconds

    def _idle(self) -> None:
        """Waits a little; sees now and then whether the table is as it was left."""
        now_s = time.monotonic()
        if self._held_since_s is None and now_s - self._looked_s >= max(_LOOK_S, self._sync.request.steps.seconds):
            self._looked_s = now_s
            standing = self._require_same_offsets()
            if not standing.is_newest and now_s - self._committed_s >= _CARRY_S:
                self._commit()
        self._sync.wait(_PAUSE_S)

    def _commit(self) -> None:
        rows, offsets = self._files.row_count, self._offsets
        self._require_same_brokers()
        files = self._files.finish()
        self._token = self._appended(files, offsets)
        self._noted, self._must_note = offsets, False
        self._held_since_s, self._committed_s = None, time.monotonic()
        damaged, self._damaged = self._damaged, 0
        self._sync.committed(rows, damaged, files)

    def _require_same_brokers(self) -> None:
        """Raises Overtaken where a store came, into a directory of stores, that the table knows and this run did not
        see when it began: it was read from its beginning, and the next run goes on from the table's offsets."""
        came = brokers_of(self.following.offsets) - self._scope.brokers
        if self._noted is not None and (back := came & brokers_of(self._noted)):
            raise Overtaken(f"{self._table.name}: the stores of {', '.join(sorted(back))} came back")

    def _appended(self, files: Sequence[DataFile], offsets: Mapping[str, Any]) -> object:
        """Commits, also upon commits of others that leave the offsets as they are.  Raises Overtaken for one that moved
        them."""
        wait_s, reason = _OVERTAKEN_WAIT_S, ""
        for _ in range(_OVERTAKEN_MAX):
            try:
                return self._table.append(files, offsets)
            except Overtaken as error:
                reason = str(error)
            try:
                self._require_same_offsets()
            except BaseException:
                self._discard(files)
                raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 2.0)
        self._discard(files)
        raise TableFailed(self._table.name, f"other programs keep committing to it ({reason})")

    def _require_same_offsets(self) -> Standing:
        """Raises Overtaken where the table stands elsewhere by now."""
        standing = self._table.look()
        if standing.token != self._token:
            raise Overtaken
        return standing

    def _discard(self, files: Sequence[DataFile]) -> None:
        for file in files:
            self._table.discard(file.path)


def _waiting(snapshot: Snapshot, scope: Scope, offsets: Mapping[str, Any]) -> int:
    """How many messages are to be read, as far as it is known."""
    at = offsets_in(offsets)
    queues = scope.selection.queues(snapshot)
    return sum(
        max(queue.max_offset - max(at.get(place, 0), queue.min_offset), 0) for place, (_, queue) in queues.items()
    )
