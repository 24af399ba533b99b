"""What a finished scan means for the consume queues and for the rest of the log's files."""

from collections.abc import Mapping, Sequence

from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_files import SIMPLE, leading_blanks, queue_directory
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.files.zeros import is_zero, nonzero
from rmqstore.formats import names
from rmqstore.formats.names import QueueKey
from rmqstore.log.recovery.log_end import LogEnd
from rmqstore.log.recovery.plan import PlannedFile, PlannedQueue
from rmqstore.log.recovery.queue_states import QueueTrack

_I32_MAX = 2**31 - 1  # tag hashes are no more, delivery times are


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
                PlannedQueue(*key, directory, 0, None, track.begin, track.anew or 0, track.next or 0)  # all of it new
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
    behind = keep or 0
    if track is not None and track.first_missing is not None:
        behind = track.next or 0
    low = behind
    if keep is not None:
        filled = queue.first + leading_blanks(queue, queue.first, queue.end)
        low = min(max(queue.slot_at(store.log.start), filled), behind)
    elif track is not None and track.anew is not None:
        low = track.anew
    must_cut = bool(queue.files) and (keep is None or queue.end > keep)
    must_cut = must_cut or (store.abort_present and keep is not None and has_rest(queue, keep))
    return PlannedQueue(
        queue.topic, queue.queue_id, queue.directory, queue.end, keep, begin, low, behind, removed, must_cut
    )


def has_rest(queue: QueueView, keep: int) -> bool:
    """Whether anything but zeros stands behind the entries that stay, in their last file."""
    file = queue.files[-1]
    source = queue.queue.disk.open(file.path)
    try:
        return not is_zero(source, max(keep * queue.layout.size - file.start, 0), file.size)
    finally:
        source.close()


def delay_warnings(store: StoreView, queues: Sequence[PlannedQueue], delay_ms: Sequence[int]) -> list[str]:
    """Where the delivery times that stay in the delay queues tell of other delays than those given, by which the times
    behind them would be written again."""
    warnings = []
    for planned in queues:
        queue = store.queues.get((planned.topic, planned.queue_id))
        if planned.topic != names.SCHEDULE_TOPIC or queue is None or planned.keep is None:
            continue
        entry = queue.read(planned.keep - 1, planned.keep)
        record = store.log.record_at(int(entry["physical_offset"][0]))
        code = int(entry["tags_code"][0])
        if planned.next_offset <= planned.keep or record is None or code <= _I32_MAX:
            continue
        known_ms, given_ms = code - int(record.store_ms[0]), delay_ms[min(planned.queue_id, len(delay_ms) - 1)]
        if known_ms != given_ms:
            warnings.append(
                f"messages of delay level {planned.queue_id + 1} waited {known_ms} ms, and would now wait {given_ms} "
                "ms: recover with the broker's own configuration (messageDelayLevel)"
            )
    return warnings


def cut_warnings(queues: Sequence[PlannedQueue], log_end: int, *, is_clean: bool) -> list[str]:
    """What is said of entries that go as no record is behind them: messages are missing, or another program left them
    there, as RocketMQ's recovery does.  One line, however many queues it is about.
    """
    cut = [queue for queue in queues if queue.entry_end > (queue.keep or 0) and not queue.next_offset > queue.entry_end]
    if not is_clean:  # there what was written since the checkpoint is written again
        cut = [each for each in cut if each.next_offset < each.entry_end and not names.is_light_queue(each.topic)]
    if not cut:
        return []
    first, more = cut[0], len(cut) - 1
    begin = first.keep or 0 if is_clean else first.next_offset
    others = f", and of {more} other queue{'s' if more > 1 else ''}" if more else ""
    why = " though the store was closed" if is_clean else ""
    said = (
        f"{first.directory}: entries {begin} to {first.entry_end}{others} are dropped{why}: "
        f"they lead nowhere in the log, which ends at {log_end}; is a commitlog file missing?"
    )
    return [said]


def end_warnings(log: LogSpace, end: LogEnd, reason: str, zeroed: tuple[int, int] | None) -> list[str]:
    """What is said of a log that ends where something stands that is no sound record: `zeroed` is what of it goes."""
    file = log.file_at(end.offset)
    if not end.is_broken or file is None:
        return []
    last = zeroed[1] if zeroed else end.offset
    dropped = f"{last - end.offset} bytes from there on are dropped"
    if any(other.start > file.start for other in log.files):
        dropped += ", and the files behind"
    return [f"{file.path}: the log is cut at byte {end.offset - file.start}: {reason}; {dropped}"]


def files_behind(log: LogSpace, end: int) -> list[PlannedFile]:
    """The log files behind the end, newest first; the first file of the log stays, though it may be empty."""
    behind = [file for file in log.files[1:] if file.start >= end]
    return [PlannedFile(file.path, "it lies behind the end of the log") for file in reversed(behind)]


def nonzero_behind(log: LogSpace, end: int) -> tuple[int, int] | None:
    """The range behind the end of the log, in the file that holds it, that is not zero; None if all is."""
    file = log.file_at(end)
    if file is None:
        return None
    found = nonzero(log.opened(file), end - file.start, file.size)
    return None if found is None else (file.start + found[0], file.start + found[1])
