"""Recovery: a plan made from looking at a store (nothing is changed), which `apply.apply` then carries out.

After a clean exit the last three log files are read, with CRCs, and held against the queues: what is right stays
untouched.  After any other exit reading begins where the checkpoint says that everything before is on the disk and in
queues and index; queue entries from there on, and index files that may be torn, are dropped and written again from the
log.  Either way reading begins earlier where queues or index turn out to lack older records.  So queues and index come
out as if they were built from nothing.  Java: DefaultMessageStore.load, CommitLog.recoverNormally and
recoverAbnormally.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rmqstore.config import QUEUES_TOLD_SINCE, TAGS_INDEXED_SINCE, StoreConfig
from rmqstore.directory.config_files import level_tables
from rmqstore.directory.deleted_queues import HeldPlaces, held_places, honour, own_places
from rmqstore.directory.layouts import is_since_5_4
from rmqstore.directory.own_log import require_own_log
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView, open_view, require_places
from rmqstore.engine.log.ledger_paths import entry_paths, with_ledger_paths
from rmqstore.engine.log.recovery.batch_tracks import BatchScan, BatchTrack, planned_batch_queues
from rmqstore.engine.log.recovery.claims import Claim, claims, is_known, set_aside, strays
from rmqstore.engine.log.recovery.extensions import planned_extensions
from rmqstore.engine.log.recovery.first_read import NOTHING_SEEN, Seen, SeenRecords, record_places, records_to_keep
from rmqstore.engine.log.recovery.first_record import NOT_ONE, bytes_without_record, is_torn_beginning
from rmqstore.engine.log.recovery.index_choice import (
    IndexChoice,
    IndexRules,
    choose,
    index_views,
    index_warnings,
    indexes_tags,
    partial_record,
)
from rmqstore.engine.log.recovery.log_end import LogEnd, ScanCount, ScanRules, scan_log
from rmqstore.engine.log.recovery.outcome import (
    AGAIN_HINT,
    BEGIN_HINT,
    CUT_HINT,
    MISSING_DATA_HINT,
    MISSING_HINT,
    OTHER_LOG_HINT,
    cut_warnings,
    delay_warnings,
    end_reason,
    end_warnings,
    files_behind,
    known_queues,
    lost_messages,
    lost_warnings,
    nonzero_behind,
    planned_queues,
    queue_sizes,
    require_first_files,
    require_last_file,
    require_own_bytes,
    unqueued_messages,
    unqueued_warnings,
)
from rmqstore.engine.log.recovery.plan import PlannedFile, RecoveryPlan
from rmqstore.engine.log.recovery.queue_states import Contradiction, QueueTrack
from rmqstore.engine.log.recovery.queue_tracks import QueueScan
from rmqstore.engine.log.recovery.start import (
    Start,
    covered_start,
    file_before,
    hole_start,
    indexed_start,
    lowered_ms,
    own_start,
    settled_log,
    usual_start,
)
from rmqstore.errors import Corrupt, StoreDamaged
from rmqstore.files.disk import ReadableDisk
from rmqstore.files.filesystem import directory_of, join
from rmqstore.formats.checkpoint import Checkpoint
from rmqstore.formats.deleted_topics import Deleted, DeletedBefore, DeletedTopic, DeletedTopics
from rmqstore.formats.names import CHECKPOINT_FILE, LOG_ROOM, QueueKey
from rmqstore.records.batch import EntryHeads, RecordBatch

# --- Topics that were deleted, as a recovery plan takes them: their records belong to no queue, and what is left of
# their queues goes.

_GOES = "its topic was deleted"


def without_deleted_topics(store: StoreView) -> StoreView:
    """The store with `deleted_before` set, and without the entries that an interrupted deletion left."""
    if not store.deleted_topics:
        return store
    views = [
        (key, view) for key, view in (*store.queues.items(), *store.batch_queues.items())
        if key in store.deleted_topics or key[0] in store.deleted_topics
    ]  # fmt: skip
    held = [(key, view, places) for key, view in views if (places := _own_places(store, view)) is not None]
    found = honour(store.deleted_topics, [(key, places) for key, _, places in held])
    for (_, view, _), goes in zip(held, found.leaving, strict=True):
        if goes:
            view.set_aside(_GOES)
    return replace(store, deleted_before=found.before)


def with_topics_made_again(store: StoreView, begun: Mapping[QueueKey, int]) -> StoreView:
    """The store with the topics of queues that begin again, at places of the log, among those that were deleted: of
    other queues of theirs, too, what stands in front of that was, as all of a topic go at once.  The same where that
    tells nothing new.
    """
    ends: dict[Deleted, int] = {}
    for (topic, _), begin in begun.items():
        ends[topic] = min(begin, ends.get(topic, begin))
    for key, view in (*store.queues.items(), *store.batch_queues.items()):
        if view.topic in ends and key not in begun:
            places = _own_places(store, view)
            ends[view.topic] = min(ends[view.topic], ends[view.topic] if places is None else places.first)
    new = {topic: end for topic, end in ends.items() if end > store.deleted_before.get(topic, store.log.start)}
    if not new:
        return store
    topics = {**store.deleted_topics, **{topic: DeletedTopic(end) for topic, end in new.items()}}
    return replace(store, deleted_topics=topics, deleted_before={**store.deleted_before, **new})


def with_queues_begun(store: StoreView, begun: Mapping[QueueKey, int]) -> StoreView:
    """The store with queues that somebody said are to begin at places of the log: what they had in front of these is in
    no queue, and entries that lead there go.  The same where that tells nothing new.
    """
    new: dict[Deleted, int] = {key: at for key, at in begun.items() if at > store.deleted_before.get(key, 0)}
    if not new:
        return store
    for view in (store.queues[key] for key in begun if key in new and key in store.queues):
        view.set_aside("its queue begins with a later record")
    topics = {**store.deleted_topics, **{key: DeletedTopic(end) for key, end in new.items()}}
    return replace(store, deleted_topics=topics, deleted_before={**store.deleted_before, **new})


def _own_places(store: StoreView, view: QueueView) -> HeldPlaces | None:
    """Where a queue's first and last message stand, if its files are its own."""
    return own_places(held_places(view, view.queue.kind, view.first, view.end), store.log, view.key)


def noted_after(noted: DeletedTopics, ends: DeletedBefore, log: tuple[int, int]) -> dict[Deleted, DeletedTopic]:
    """The note of deleted topics that is right once the log holds [start, end): records past its end will be new ones,
    those before its start are gone."""
    start, end = log
    after = {of: replace(one, log_end=min(ends[of], end)) for of, one in noted.items()}
    return {of: one for of, one in after.items() if one.log_end > start or one.is_pending}


# ---

_PASSED_OVER = "a plain queue of a topic that has batch queues, left as it is; RocketMQ 5 opens no store that has both"
_NOT_OF_THIS_LOG = "queues have entries that this log has no records for, and are written again from it"
_NO_DIRECTORY = "can be no directory: its messages stay in the log and are in no queue"


def plan_recovery(
    disk: ReadableDisk, root: str, config: StoreConfig, kinds: QueueKinds = PLAIN_ONLY, *, keeps_records: bool = False
) -> RecoveryPlan:
    """The plan of a recovery of the store at `root`.  Looks, and changes nothing.

    `keeps_records`: the caller that carries the plan out tells only queues and index of records, so that those which
    are read here need not be read again.

    Of `config` count the paths, the checks and what is to be done about damage; sizes come from the files.  Raises
    Corrupt for a log that is damaged in front of sound records, unless the configuration says to cut it there;
    NotAStore, UnsupportedLayout, OSError.
    """
    config = with_ledger_paths(disk, root, config)
    wrapped = entry_paths(disk, config)
    store = open_view(disk, root, (*config.log_paths, *config.read_only_log_paths), kinds, wrapped=wrapped)
    require_places(store, has_index=config.index_enabled)
    planner = _Planner(without_deleted_topics(store), config, keeps_records)
    try:
        return planner.plan()
    finally:
        planner.close()


@dataclass(slots=True)
class _Scan:
    """The result of reading the log from `start`; `index_missing` is the first record that has keys and is not known to
    the index (after a clean exit), `seen` what need not be read again."""

    start: Start
    end: LogEnd
    count: ScanCount
    queues: QueueScan
    batches: BatchScan
    seen: Seen
    index_missing: int | None = None
    claims: list[Claim] = field(default_factory=list)
    heads: tuple[EntryHeads, ...] = ()

    @property
    def tracks(self) -> list[QueueTrack | BatchTrack]:
        return [*self.queues.tracks.values(), *self.batches.tracks.values()]


def tells_of_queues(config: StoreConfig, disk: ReadableDisk, root: str) -> bool:
    """Whether the checkpoint says how far the queues are on the disk: as the release wants that `config` names, else
    for a broker of 5.4 or later; 5.5 with enableAcceleratedRecovery does not start where it says nothing.
    """
    return is_since_5_4(disk, root) if config.release is None else config.is_for(QUEUES_TOLD_SINCE)


class _Planner:
    """Works out one plan."""

    def __init__(self, store: StoreView, config: StoreConfig, keeps_records: bool) -> None:
        self._config, self._keeps_records = config, keeps_records
        self._levels = level_tables(store.disk, store.root, config.delay_levels)
        self._must_refuse = config.on_middle_damage == "refuse"
        self._was_clean = self._clean = not store.abort_present
        self._checkpoint = store.checkpoint
        new_size = 0 if self._clean else config.log_file_size
        self._log, self._removed, self._resized, warnings = settled_log(
            store.disk, store.log, self._must_refuse, new_size
        )
        self._store, self._noted = replace(store, log=self._log), store.deleted_topics
        self._indexed_by: tuple[int | None, int] | None = None  # by an index like this the log
        self._deleted = store.deleted_before
        self._begun: dict[QueueKey, int] = {}  # where queues are to begin
        self._indexed_until = 0  # has no keys before here that are missing in it
        self._warnings = [*store.notes]
        self._warnings += [f"{path}: not a commitlog file, left as it is" for path in store.log_strays]
        self._warnings += warnings
        self._index = index_views(store.disk, store.root, (config.index_slot_count, config.index_item_count))
        told = None if config.release is None else config.is_for(TAGS_INDEXED_SINCE)
        self._indexes_tags = indexes_tags(store, self._index, told)
        self._choice = self._choose_index(self._log.end)

    def close(self) -> None:
        """Closes what is open."""
        self._log.close()

    def plan(self) -> RecoveryPlan:
        """Finds where to begin, reads, and begins earlier as long as something older is missed."""
        if not self._log.files:
            return self._plan_without_log()
        if self._must_refuse:
            require_own_log(
                self._store.root, self._log, self._store.queue_files(), OTHER_LOG_HINT, was_killed=not self._clean
            )
        scan = self._scan_from(usual_start(self._log, self._checkpoint, self._clean))
        if self._drops_checkpoint(scan):
            reason = "the checkpoint is later than the newest message: it answers for nothing"
            scan = self._scan_from((self._log.start, reason))
        while (earlier := self._earlier_start(scan)) is not None:  # each time a file less: it ends
            scan = self._scan_from(earlier)
        scan.end = self._judged(scan)
        if self._must_refuse:
            self._refuse(scan)
        elif found := list(strays(scan.queues, scan.batches, scan.end.offset)):
            set_aside(self._store, found)
            self._clean, self._store = False, replace(self._store, abort_present=True)
            scan = self._scan_from((self._log.start, _NOT_OF_THIS_LOG))
            scan.end = self._judged(scan)
        plan = self._plan_of(scan)
        if self._must_refuse:
            require_first_files(self._store, plan.record_count)
            require_last_file(self._store, plan, MISSING_DATA_HINT if self._config.dledger else MISSING_HINT)
        return self._with_checkpoint(plan, scan)

    def _plan_without_log(self) -> RecoveryPlan:
        entries = [queue for queue in self._store.all_queues() if queue.end > queue.first]
        if (entries or any(not view.is_empty for view in self._index)) and self._must_refuse:
            had = "no commitlog file has anything in it" if self._removed else "there is no commitlog file"
            reason = f"{had}, while queues or index have entries; recovering would delete them"
            raise StoreDamaged(_log_directories(self._config, self._store)[0], 0, reason)
        end, count = scan_log(self._log, 0, ScanRules(), lambda _: None)
        self._choice = self._choose_index(0)
        queues = QueueScan(self._store, 0, compare=False, begins_with_log=True)
        batches = BatchScan(self._store, 0, compare=False, begins_with_log=True)
        scan = _Scan((0, end.reason), end, count, queues, batches, NOTHING_SEEN)
        return self._with_checkpoint(self._plan_of(scan), scan)

    # --- reading

    def _scan_from(self, start: Start) -> _Scan:
        """Reads the log from `start`, or from an earlier file where queues or index lack what stands before."""
        first = covered_start(self._store, self._indexed(start))
        scan = self._scan(first if self._must_refuse else own_start(self._log, first))
        self._choice = self._choose_index(scan.end.offset)
        return scan

    def _scan(self, start: Start) -> _Scan:
        """Reads the log from `start`; a record that lies about its queue offset ends it like one that is broken."""
        rules = ScanRules(
            check_crc=self._config.check_crc_on_recovery,
            flushed_ms=self._checkpoint.physic_timestamp_ms,
            may_be_torn=not self._clean,
            has_checkpoint=self._store.disk.exists(join(self._store.root, CHECKPOINT_FILE)),
            is_known=lambda located, offset: is_known(self._store, located, offset),
        )
        while True:
            scan = self._scan_once(start, rules)
            if scan.batches.claimed or scan.queues.names_light:
                self._store = self._store.with_kinds_of_log(scan.batches.claimed, has_light=scan.queues.names_light)
                continue
            lies: list[Claim | Contradiction] = [found for found in scan.claims if found.is_proven]
            lies += [found for found in scan.queues.contradictions if found.is_lie]
            if not lies:
                before, self._store = self._store, with_topics_made_again(self._store, scan.queues.restarts)
                if not self._must_refuse:
                    self._begin_queues(scan)
                if self._store is before:
                    return scan
                continue
            first = min(lies, key=lambda found: found.offset)
            rules = replace(rules, stop=self._log.boundary(first.offset), stop_reason=first.reason)

    def _begin_queues(self, scan: _Scan) -> None:
        """Queues whose offsets contradict each other begin after that: somebody said to go on."""
        begun = {found.key: found.offset for found in scan.queues.contradictions}
        self._store = with_queues_begun(self._store, begun)
        self._begun = {**dict.fromkeys(scan.queues.repeating, 0), **self._begun, **begun}

    def _scan_once(self, start: Start, rules: ScanRules) -> _Scan:
        begins_with_log = start[0] <= self._log.start
        queues = QueueScan(self._store, start[0], self._clean, begins_with_log)
        batches = BatchScan(self._store, start[0], self._clean, begins_with_log)
        missing: list[int] = []
        heads: list[EntryHeads] = []
        keeps = self._keeps_records and not self._clean
        kept = (self._config, self._store.kinds, self._levels, self._indexes_tags)
        seen = SeenRecords(records_to_keep(*kept) if keeps else None)
        covered = self._choice.covered
        looks = self._clean and self._config.index_enabled

        def take(batch: RecordBatch) -> None:
            if batch.heads is not None:
                heads.append(batch.heads)
            queues.add(batch)
            batches.add(batch)
            seen.add(batch)
            if looks and not missing and batch.offsets[-1] > covered:
                places = batch.offsets[batch.index_items(self._indexes_tags)[0]]
                missing.extend(places[places > covered][:1].tolist())

        end, count = scan_log(self._log, start[0], rules, take, record_places(self._store, start[0]))
        queues.finish()
        batches.finish()
        return _Scan(
            start,
            end,
            count,
            queues,
            batches,
            seen.all(),
            missing[0] if missing else None,
            claims(queues),
            tuple(heads),
        )

    def _drops_checkpoint(self, scan: _Scan) -> bool:
        """Whether the checkpoint speaks of later messages than there are; from then on it counts as one that says
        nothing.  Asked once: where the clock went far back, any checkpoint is later than the newest message.
        """
        is_later = self._checkpoint.min_timestamp_ms > scan.count.newest_ms
        if self._clean or not is_later or scan.end.is_middle_damage:  # what it speaks of may stand after the damage
            return False
        self._checkpoint = Checkpoint()
        return True

    def _earlier_start(self, scan: _Scan) -> Start | None:
        """Where reading has to begin instead, always earlier, and why; None when the scan tells everything."""
        for wanted in (self._indexed(scan.start), hole_start(self._store, scan.tracks, scan.start)):
            if wanted[0] < scan.start[0]:
                return wanted
        before = file_before(self._log, scan.start[0])
        if before is not None and not scan.count.record_count:
            return before.start, "nothing sound is in the files after it"
        return None

    def _indexed(self, start: Start) -> Start:
        asked = self._choice.needed_from, self._choice.covered
        if not self._config.index_enabled or (asked == self._indexed_by and start[0] <= self._indexed_until):
            return start
        found = indexed_start(self._log, self._choice, start)
        if found == start:  # to ask it again costs a look into each file
            self._indexed_by, self._indexed_until = asked, start[0]
        return found

    def _choose_index(self, log_end: int) -> IndexChoice:
        is_trusted = self._clean or not self._config.index_enabled
        flushed_ms = None if is_trusted else self._checkpoint.index_timestamp_ms
        is_of_this_log = self._clean == self._was_clean and not any(self._begun.values())
        return choose(self._index, IndexRules(flushed_ms, log_end if is_of_this_log else 0, self._indexes_tags))

    # --- damage

    def _judged(self, scan: _Scan) -> LogEnd:
        """The end of a log that holds bytes and no record says what they are.  Raises Corrupt for what nobody may cut
        without being told to."""
        if self._must_refuse:
            require_own_bytes(self._log, scan.end.offset)
        place = bytes_without_record(self._log, scan.end, scan.count)
        if place is None:
            return scan.end
        reason = NOT_ONE
        if not self._clean and is_torn_beginning(self._log, self._store.checkpoint.physic_timestamp_ms):
            reason = "the first record was torn by a power cut"
        elif self._must_refuse:
            raise self._corrupt(place, NOT_ONE)
        return replace(scan.end, reason=f"{scan.end.reason}; {reason}")

    def _refuse(self, scan: _Scan) -> None:
        """Raises Corrupt for damage that somebody has to look at first."""
        end = scan.end
        is_there = self._log.file_at(end.offset) is not None
        if end.is_middle_damage:
            hint = CUT_HINT if is_there else MISSING_HINT
            raise self._corrupt(end.offset, f"{end.reason}; the next sound record is at {end.resume} of the log", hint)
        for found in (each for each in scan.queues.contradictions if not each.is_lie):
            raise self._corrupt(found.offset, found.reason, BEGIN_HINT)
        for stray in strays(scan.queues, scan.batches, end.offset):
            raise self._corrupt(stray.offset, stray.reason, AGAIN_HINT)
        is_zeroed = is_there and self._store.checkpoint.newest_ms > scan.count.newest_ms
        if self._clean and (end.is_broken or is_zeroed) and _reach_past(self._store, end.offset):
            raise self._corrupt(end.offset, f"{end.reason}, and an entry points there though the exit was clean")

    def _place(self, offset: int) -> str:
        file = self._log.file_at(offset)
        return "commitlog" if file is None else f"{file.path}, byte {offset - file.start}"

    def _corrupt(self, offset: int, reason: str, hint: str = CUT_HINT) -> Corrupt:
        file = self._log.file_at(offset)
        path, start = (directory_of(self._log.files[0].path), 0) if file is None else (file.path, file.start)
        return StoreDamaged(path, offset - start, f"{reason}; {hint}")

    # --- the plan

    def _plan_of(self, scan: _Scan) -> RecoveryPlan:
        end, choice, store = scan.end.offset, self._choice, self._store
        partial = None
        if self._config.index_enabled and self._log.files:
            partial = partial_record(store.disk, self._log, choice)
            self._warnings += index_warnings(self._log, choice)
        starts = self._dispatch_starts(scan)
        queues = planned_queues(store, scan.queues.tracks, scan.start[0], end)
        batch_queues = planned_batch_queues(store, scan.batches, end)
        zeroed, reason = nonzero_behind(self._log, end), end_reason(scan.end)
        at_end = end_warnings(self._log, scan.end, reason, zeroed)
        if self._clean or not at_end:  # after a crash a broken record at the end explains the entries that go
            at_end += cut_warnings(queues, end, is_clean=self._clean)
        warnings = [*self._warnings, *at_end, *lost_warnings(store, scan.count.newest_ms)]
        warnings += [f"{self._place(found.offset)}: {found.reason}: one of them is damaged" for found in scan.claims]
        warnings += [f"{at}: {_PASSED_OVER}" for at in store.passed_over]
        warnings += delay_warnings(store, queues, self._levels, self._config.delay_levels)
        warnings += [f"topic {topic!r} {_NO_DIRECTORY}" for topic in sorted(scan.queues.unfit_topics)]
        unqueued = unqueued_messages(replace(store, deleted_before=self._deleted), self._begun, (scan.start[0], end))
        warnings += unqueued_warnings(unqueued)
        deleted = noted_after(store.deleted_topics, store.deleted_before, (self._log.start, end))
        sizes = [(view.slot_count, view.item_count) for view in self._index if view.slot_count]
        return RecoveryPlan(
            root=store.root, is_clean_exit=self._was_clean, log_directories=_log_directories(self._config, self._store),
            log_file_size=self._log.file_size, log_start=self._log.start, scan_start=scan.start[0],
            scan_reason=scan.start[1], record_count=scan.count.record_count, log_end=end,
            end_reason=reason, dropped_from=scan.end.resume, log_resized=tuple(self._resized),
            log_removed=(*self._removed, *files_behind(self._log, end)), zeroed=zeroed,
            queue_file_size=store.queue_file_size,
            queues=queues, empty_directories=store.empty_directories, index_sizes=sizes[-1] if sizes else None,
            index_deleted=tuple(PlannedFile(view.path, why) for view, why in choice.deleted),
            index_partial=partial, dispatch_from=min(starts) if starts else None, newest_ms=scan.count.newest_ms,
            checkpoint=store.checkpoint, checkpoint_after=store.checkpoint, writes_checkpoint=False,
            warnings=tuple(warnings), batch_queues=batch_queues, extensions=planned_extensions(store, queues),
            kinds=queue_sizes(store), deleted_topics=tuple(deleted.items()), notes_deleted=deleted != self._noted,
            seen=scan.seen, known=known_queues(store, queues), divider=self._log.divider, heads=scan.heads,
            levels=self._levels, indexes_tags=self._indexes_tags,
            lost=lost_messages(self._log, scan.end, scan.count.newest_ms),
            unqueued=unqueued,
        )  # fmt: skip

    def _with_checkpoint(self, plan: RecoveryPlan, scan: _Scan) -> RecoveryPlan:
        """The times that hold once everything is on the disk; written if something changes, or if the old ones lie."""
        old, newest_ms = plan.checkpoint, scan.count.newest_ms
        ends_ms = [view.header.end_timestamp_ms for view in self._choice.kept if view.header and not view.is_empty]
        tells_offset = old.logics_physical_offset > 0 or tells_of_queues(self._config, self._log.disk, plan.root)
        new = replace(
            old,
            physic_timestamp_ms=newest_ms,
            logics_timestamp_ms=scan.count.newest_queued_ms or newest_ms,
            index_timestamp_ms=max(ends_ms, default=0) if plan.dispatch_from is None else newest_ms,
            confirm_offset=min(old.confirm_offset, plan.log_end),
            logics_physical_offset=max(plan.log_end - 1, 0) if tells_offset else 0,  # a byte of the last record
        )
        times_ms = (old.physic_timestamp_ms, old.logics_timestamp_ms, old.index_timestamp_ms)
        lies = max(old.confirm_offset, old.logics_physical_offset) > plan.log_end or max(times_ms) > newest_ms
        lacks = not self._store.has_checkpoint and bool(self._log.files)
        is_new = new != old and (lies or not self._clean or not plan.changes_nothing)
        lowered = lowered_ms(self._log, old, plan.dispatch_from)
        return replace(plan, checkpoint_after=new, writes_checkpoint=lacks or is_new, lowered_ms=lowered)

    def _dispatch_starts(self, scan: _Scan) -> list[int]:
        """The first records that queues and index do not have."""
        if not scan.count.record_count:
            return []
        if not self._clean:
            return [scan.start[0]]
        starts = [track.first_missing for track in scan.tracks if track.first_missing is not None]
        if scan.index_missing is not None:
            starts.append(scan.index_missing)
        if self._config.index_enabled and self._choice.needed_from is not None:
            starts.append(max(self._choice.needed_from, scan.start[0]))
        return [start for start in starts if start < scan.end.offset]


def _log_directories(config: StoreConfig, store: StoreView) -> tuple[str, ...]:
    configured = (*config.log_paths, *config.read_only_log_paths)
    found = dict.fromkeys(directory_of(file.path) for file in store.log.files)
    return configured or tuple(sorted(found)) or (join(store.root, LOG_ROOM),)


def _reach_past(store: StoreView, offset: int) -> bool:
    """Whether an entry of any queue points at a place of the log, or past it."""
    return any(queue.slot_at(offset) < queue.end for queue in store.all_queues())
