"""The outcome of a finished scan for the consume queues and for the rest of the log's files."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rmqstore.directory.config_files import lacks_levels
from rmqstore.directory.log_coverage import queue_rows
from rmqstore.directory.log_space import OTHER_BYTES, LogSpace
from rmqstore.directory.queue_files import SIMPLE, queue_directory
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.engine.log.derived.known_queues import KnownQueue, KnownQueues
from rmqstore.engine.log.plan_text import SHOWN_MAX
from rmqstore.engine.log.recovery.log_end import LogEnd, next_sound
from rmqstore.engine.log.recovery.plan import LostMessages, PlannedFile, PlannedQueue, QueueSizes, RecoveryPlan
from rmqstore.engine.log.recovery.queue_states import QueueTrack
from rmqstore.errors import StoreDamaged
from rmqstore.files.disk import directory_of, join
from rmqstore.files.zeros import is_zero, nonzero
from rmqstore.formats import message, names
from rmqstore.formats.delay_levels import LevelTables, waits_at
from rmqstore.formats.framing import BARE
from rmqstore.formats.message_columns import Mask
from rmqstore.formats.names import CONFIG_ROOM, REPLICA_FILE, QueueKey
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import Rows
from rmqstore.records.read_batches import CrcChecks, read_batches

OTHER_LOG_HINT = (
    "name the store's own commitlog (log_paths, storePathCommitLog), or say on_middle_damage='cut' to make the queues "
    "again from this one"
)
CUT_HINT = (
    "a backup or a replica may have what stood there; on_middle_damage='cut' (recover --cut) drops what follows, sound "
    "messages too, as RocketMQ does; recover --cut --dry-run says which"
)
MISSING_HINT = (
    "name all directories of the log (log_paths, storePathCommitLog), or bring the file back; on_middle_damage='cut' "
    "(recover --cut) gives these messages up, as RocketMQ does"
)
MISSING_DATA_HINT = (
    "say data_paths as they were, or bring the file back; on_middle_damage='cut' goes on without these messages"
)
BEGIN_HINT = "on_middle_damage='cut' (recover --cut) has the queue begin with that record, and cuts nothing off the log"
AGAIN_HINT = (
    "bring back the file that stood there; on_middle_damage='cut' (recover --cut) writes the queues again from this log"
)

_I32_MAX = 2**31 - 1  # tag hashes are no more, delivery times are
_LEVELS_UNKNOWN = (
    "config/replica.json does not say by which delay levels the master goes: messages that wait here are due by "
    "RocketMQ's own; name the master's (StoreConfig.delay_levels, rmqstore replicate --delay-levels)"
)


def planned_queues(
    store: StoreView, tracks: Mapping[QueueKey, QueueTrack], scan_start: int, log_end: int
) -> tuple[PlannedQueue, ...]:
    """Every queue that has files or records, by name: what stays of it, and what it holds then."""
    planned = []
    for key in sorted({*store.queues, *tracks}):
        queue, track = store.queues.get(key), tracks.get(key)
        if queue is None:
            assert track is not None
            directory = queue_directory(store.root, key, SIMPLE)
            planned.append(
                PlannedQueue(
                    *key, directory, 0, None, track.begin, track.restart or 0, track.next or 0
                )  # all of it new
            )
        else:
            keep = _kept(store, queue, track, (scan_start, log_end))
            planned.append(_planned_queue(store, queue, track, keep))
    return tuple(planned)


def _kept(store: StoreView, queue: QueueView, track: QueueTrack | None, scanned: tuple[int, int]) -> int | None:
    """The slot up to which entries stay; None if none do.

    After a crash those of scanned records are written again; light queues that are not kept up are only held against
    the log's end.
    """
    scan_start, log_end = scanned
    is_trusted = not store.abort_present or (queue.is_light and not store.kinds.multi_dispatch)
    kept = queue.slot_at(log_end if is_trusted else scan_start)
    if track is not None and track.rewriting:
        kept = min(kept, track.kept if track.kept is not None else 0)
    return kept if kept > queue.first else None


def _planned_queue(store: StoreView, queue: QueueView, track: QueueTrack | None, keep: int | None) -> PlannedQueue:
    removed = tuple(PlannedFile(file.path, why) for file, why in queue.bad_files)
    begin = 0 if track is None else track.begin
    following = keep or 0
    if track is not None and track.first_missing is not None:
        following = track.next or 0
    low = following
    if keep is not None:
        filled = queue.first + queue.leading_blanks()
        low = min(max(queue.slot_at(store.log.start), filled), following)
    elif track is not None and track.restart is not None:
        low = track.restart
    must_cut = bool(queue.files) and (keep is None or queue.end > keep)
    must_cut = must_cut or (store.abort_present and keep is not None and has_rest(queue, keep))
    return PlannedQueue(
        queue.topic, queue.queue_id, queue.directory, queue.end, keep, begin, low, following, removed, must_cut
    )


def known_queues(store: StoreView, planned: Sequence[PlannedQueue]) -> KnownQueues:
    """The queues that a load need not look at again: the recovery leaves their files as they are, and adds nothing."""
    found: dict[QueueKey, KnownQueue] = {}
    for queue in planned:
        key = queue.topic, queue.queue_id
        view = store.queues.get(key)
        if view is None or queue.is_changed or not queue.keep == queue.next_offset == view.end or view.has_strays:
            continue
        files = view.files
        if files and not files[0].start % store.queue_file_size and directory_of(files[0].path) == queue.directory:
            head = None if view.kept is None else (files[0].start, view.kept)
            found[key] = KnownQueue(tuple(file.start for file in files), head)
    topics = {
        topic: queue_ids
        for topic, queue_ids in store.topic_queues.items()
        if all((topic, queue_id) in found for queue_id in queue_ids)
    }
    return KnownQueues(found, topics)


def has_rest(queue: QueueView, keep: int) -> bool:
    """Whether anything but zeros stands after the entries that stay, in their last file."""
    file = queue.files[-1]
    source = queue.queue.disk.open(file.path)
    try:
        return not is_zero(source, max(keep * queue.layout.size - file.start, 0), file.size)
    finally:
        source.close()


def delay_warnings(
    store: StoreView, queues: Sequence[PlannedQueue], levels: LevelTables, named: str | None
) -> list[str]:
    """A warning for each delay queue whose kept entries were made with another delay than `levels` give its level; and
    one where nobody knows the levels: a replica that has waiting messages, with a configuration that has `named` none.

    An entry's delivery time less its record's store time, both in ms, is the delay that it was made with; the entries
    that are written again would get the given one.
    """
    waiting = [planned for planned in queues if planned.topic == names.SCHEDULE_TOPIC]
    warnings = [_LEVELS_UNKNOWN] if waiting and lacks_levels(store.disk, store.root, named) else []
    for planned in waiting:
        queue = store.queues.get((planned.topic, planned.queue_id))
        if queue is None or planned.keep is None:
            continue
        entry = queue.read(planned.keep - 1, planned.keep)
        record = store.log.record_at(int(entry["physical_offset"][0]))
        code = int(entry["tags_code"][0])
        if planned.next_offset <= planned.keep or record is None or code <= _I32_MAX:
            continue
        known_ms = code - int(record.store_ms[0])
        given_ms = max(int(waits_at(np.array([planned.queue_id + 1]), entry["physical_offset"], levels)[0]), 0)
        if known_ms != given_ms:
            warnings.append(
                f"messages of delay level {planned.queue_id + 1} waited {known_ms} ms, and would now wait {given_ms} "
                "ms: recover with the broker's own configuration (messageDelayLevel)"
            )
    return warnings


def cut_warnings(queues: Sequence[PlannedQueue], log_end: int, *, is_clean: bool) -> list[str]:
    """The warning about entries that go because they lead to no record: messages are missing, or another program left
    the entries, as RocketMQ's recovery does.  One line, however many queues it is about.
    """
    cut = [queue for queue in queues if queue.next_offset < queue.entry_end]  # others are written again, or stay
    if not is_clean:
        cut = [queue for queue in cut if not names.is_light_queue(queue.topic)]
    if not cut:
        return []
    first, more = cut[0], len(cut) - 1
    others = f", and of {more} other queue{'s' if more > 1 else ''}" if more else ""
    why = " though the store was closed" if is_clean else ""
    said = (
        f"{first.directory}: entries {first.next_offset} to {first.entry_end}{others} are dropped{why}: "
        f"they lead nowhere in the log, which ends at {log_end}; is a commitlog file missing?"
    )
    return [said]


def require_first_files(store: StoreView, record_count: int) -> None:
    """Raises StoreDamaged for a log without a record that begins after 0, where nothing tells that the messages before
    it have expired: their files are not where they were looked for.

    A file expires after its messages are in their queues, which the checkpoint tells, and queues outlive their
    messages.  Where a store was not closed, some may be in no queue; and the file that is left was made in advance, as
    one with messages is never deleted for it.  The log of a replica begins where its master's did, and a note says so
    before there is a file.
    """
    if not store.log.start or record_count or store.disk.exists(join(store.root, CONFIG_ROOM, REPLICA_FILE)):
        return
    told = store.checkpoint.logics_timestamp_ms or store.checkpoint.logics_physical_offset or _has_entries(store)
    if told and not store.abort_present:
        return
    raise StoreDamaged(
        store.log.files[0].path,
        0,
        f"no record is in the log from here on, no file holds what comes before {store.log.start}, and nothing tells "
        f"how far its messages went, so that their queue offsets would be given again; {MISSING_HINT}",
    )


def require_own_bytes(log: LogSpace, end: int) -> None:
    """Raises StoreDamaged for a file from the end of the log on that begins with a sound record of another place: it
    has another file's name or bytes, and what lies past the end would be deleted.
    """
    for file in (each for each in log.files if each.start >= end):
        place = log.other_place(file)
        if place is not None:
            raise StoreDamaged(
                file.path, 0,
                f"{OTHER_BYTES.format(place=place)}; give each file the name and the bytes that it had; {CUT_HINT}",
            )  # fmt: skip


def require_last_file(store: StoreView, plan: RecoveryPlan, hint: str = MISSING_HINT) -> None:
    """Raises StoreDamaged where the log ends with a full file, and the file after it was there and is not: its messages
    would be given up, and their queue offsets given again.

    A file after that one says so, for files are made in their order, or entries that lead there.  After a crash the
    entries alone do not say that those messages were on the disk; the checkpoint's time does.  Where no queue has an
    entry, it tells alone.
    """
    if not store.log.files or store.log.file_at(plan.log_end) is not None:
        return
    behind = [file for file in store.log.files if file.start > plan.log_end]
    if behind:
        raise StoreDamaged(
            directory_of(store.log.files[-1].path), plan.log_end,
            f"no commitlog file holds what follows, and {behind[0].path}, which was made later, is there; {hint}",
        )  # fmt: skip
    is_later = store.checkpoint.physic_timestamp_ms > plan.newest_ms
    if is_later and not _has_entries(store):
        raise StoreDamaged(
            directory_of(store.log.files[-1].path), plan.log_end,
            f"no commitlog file holds what follows, and the checkpoint tells of a later message; {hint}",
        )  # fmt: skip
    if not (plan.is_clean_exit or is_later):
        return
    for planned, queues in ((plan.queues, store.queues), (plan.batch_queues, store.batch_queues)):
        for each in (one for one in planned if one.next_offset < one.entry_end):
            entry = queues[each.topic, each.queue_id].read(each.entry_end - 1, each.entry_end)
            if int(entry["physical_offset"][0]) >= plan.log_end and entry["size"][0] > 0:
                raise StoreDamaged(
                    directory_of(store.log.files[-1].path),
                    plan.log_end,
                    f"no commitlog file holds what follows, and {each.directory} leads there: its entries "
                    f"{each.next_offset} to {each.entry_end}; {hint}",
                )


def _has_entries(store: StoreView) -> bool:
    return any(queue.end for queue in (*store.queues.values(), *store.batch_queues.values()))


def end_reason(end: LogEnd) -> str:
    """Why the log ends there, in words."""
    if end.resume is None:
        return end.reason
    if end.is_tear:
        return f"{end.reason}; torn by a power cut, after what was known to be on the disk"
    return f"{end.reason}; the log is damaged in the middle"


def unqueued_messages(
    store: StoreView, begun: Mapping[QueueKey, int], scanned: tuple[int, int]
) -> tuple[LostMessages, ...]:
    """The messages before the log's end that no plain queue holds afterwards, by topic: those in front of the places
    `begun` of the log at which their queues are to begin, and those that say queue offsets of earlier ones.

    Read is what was `scanned`, from the beginning of the log where a queue begins later.
    """
    found: dict[str, LostMessages] = {}
    reached, log = dict.fromkeys(begun, 0), store.log
    low, high = log.start if any(begun.values()) else scanned[0], scanned[1] if begun else scanned[0]
    for item in read_batches(log.read, low, high, log.file_size, framing=log.framing):
        if not isinstance(item, RecordBatch):
            continue
        for key in begun:
            rows = _rows_of(item, queue_rows(store, item)[0], key)
            says, is_late = item.queue_offsets[rows], item.offsets[rows] >= begun[key]
            before = np.maximum.accumulate(np.concatenate(([reached[key]], says[is_late] + 1)))
            is_out = ~is_late
            is_out[is_late] = says[is_late] < before[:-1]
            reached[key] = int(before[-1])
            _add_lost(found, item, rows[is_out])
    return tuple(found[name] for name in sorted(found))


def unqueued_warnings(unqueued: Sequence[LostMessages]) -> list[str]:
    """The warning about messages that stay in the log and come into no queue, as somebody said to go on."""
    if not unqueued:
        return []
    counts = ", ".join(f"{each.count} of {each.topic!r}" for each in unqueued[:SHOWN_MAX])
    more = f" and {len(unqueued) - SHOWN_MAX} more topics" if len(unqueued) > SHOWN_MAX else ""
    said = "sound messages stay in the log and are in no queue, as their queue offsets contradict others"
    return [f"{said}: {counts}{more}"]


def lost_messages(log: LogSpace, end: LogEnd, newest_ms: int) -> tuple[LostMessages, ...]:
    """The sound messages after the end of the log, by topic: none are older than the newest before it, `newest_ms`, but
    those of files that have other files' names or bytes.
    """
    found: dict[str, LostMessages] = {}
    position = end.resume
    while position is not None:
        low = position
        for item in read_batches(
            log.read, low, log.end, log.file_size, checks=CrcChecks(bodies=True), framing=log.framing
        ):
            if isinstance(item, RecordBatch):
                position = item.end
                _add_lost(found, item, np.arange(len(item.offsets)))
            elif isinstance(item, message.Torn):
                position = item.position
        position = next_sound(log, max(position, low + 1), newest_ms)
    for batch in _misnamed(log, end.offset):
        _add_lost(found, batch, np.arange(len(batch.offsets)))
    return tuple(found[name] for name in sorted(found))


def _misnamed(log: LogSpace, end: int) -> Iterator[RecordBatch]:
    """The records of plain files after the end of the log that have other files' names or bytes, unless their own files
    are there as well.
    """
    places = {file.start: log.other_place(file) for file in log.files if file.start + file.size > end}
    own = {start for start, place in places.items() if place is None and any(log.read(start, message.BLANK.size))}
    for start, place in places.items():
        if place is None or place < end or place in own or place % log.file_size or log.framing(start) is not BARE:
            continue
        own.add(place)

        def read(offset: int, size: int, shift: int = start - place) -> bytes:
            return log.read(offset + shift, size)

        checks = CrcChecks(bodies=True)
        batches = read_batches(read, place, place + log.file_size, log.file_size, checks=checks)
        yield from (each for each in batches if isinstance(each, RecordBatch))


def _rows_of(batch: RecordBatch, rows: Rows, key: QueueKey) -> Rows:
    topics, numbers = batch.topics
    if key[0] not in topics:
        return rows[:0]
    is_of_it: Mask = (numbers[rows] == topics.index(key[0])) & (batch.queue_ids[rows] == key[1])
    return rows[is_of_it]


def _add_lost(found: dict[str, LostMessages], batch: RecordBatch, rows: Rows) -> None:
    topics, numbers = batch.topics
    for number in np.unique(numbers[rows]).tolist():
        times, topic = batch.store_ms[rows][numbers[rows] == number], topics[number]
        old = found.get(topic, LostMessages(topic, 0, int(times.min()), int(times.max())))
        first, last = min(old.first_ms, int(times.min())), max(old.last_ms, int(times.max()))
        found[topic] = LostMessages(topic, old.count + len(times), first, last)


def end_warnings(log: LogSpace, end: LogEnd, reason: str, zeroed: tuple[int, int] | None) -> list[str]:
    """The warning about a log that ends at bytes that are no sound record; `zeroed` is the range of them that goes."""
    file = log.file_at(end.offset)
    if not end.is_broken or file is None:
        return []
    last = zeroed[1] if zeroed else end.offset
    dropped = f"{last - end.offset} bytes from there on are dropped"
    behind = [other for other in log.files if other.start > file.start]
    if behind:
        dropped += f", and {sum(other.size for other in behind)} in files after it"
    return [f"{file.path}: the log is cut at byte {end.offset - file.start}: {reason}; {dropped}"]


def lost_warnings(store: StoreView, newest_ms: int) -> list[str]:
    """The warning about a store that was not closed and whose checkpoint tells that a later message than the newest one
    was on the disk.  Not a refusal: a copy of a running store is like that, and a clock that was set back makes one.
    """
    ahead_ms = store.checkpoint.physic_timestamp_ms - newest_ms
    if not store.abort_present or not newest_ms or ahead_ms <= 0:
        return []
    said = (
        f"{join(store.root, names.CHECKPOINT_FILE)}: a message was on the disk that is {ahead_ms} ms later than the "
        "newest one of the log: unless a clock was set back, messages are lost, and their queue offsets are given again"
    )
    return [said]


def files_behind(log: LogSpace, end: int) -> list[PlannedFile]:
    """The log files after the end, newest first; the first file of the log stays, though it may be empty."""
    after = [file for file in log.files[1:] if file.start >= end]
    return [PlannedFile(file.path, "it lies past the end of the log") for file in reversed(after)]


def nonzero_behind(log: LogSpace, end: int) -> tuple[int, int] | None:
    """The range after the end of the log, in the file that holds it, that is not zero; None if all is."""
    file = log.file_at(end)
    if file is None:
        return None
    found = nonzero(log.opened(file), end - file.start, file.size)
    return None if found is None else (file.start + found[0], file.start + found[1])


def queue_sizes(store: StoreView) -> QueueSizes:
    """The kinds of queues that were found, and the sizes of their files."""
    kinds = store.kinds
    return QueueSizes(
        kinds.multi_dispatch, kinds.extension, kinds.extension_file_size, store.batch_file_size,
        tuple(sorted(store.batch_topics)),
    )  # fmt: skip
